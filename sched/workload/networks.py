"""Layer tables of well-known networks (shapes only), at their usual input sizes.

Layers are called conv<stage>_<block>_<index>; `shortcut` in place of the index is the 1x1 projection beside a block.
A layer that a residual addition follows has no ReLU of its own.
"""

from __future__ import annotations

from .layers import ConvShape


def _conv(
    name: str, inputs: int, size: int, outputs: int, kernel: int = 1, stride: int = 1, relu: bool = True
) -> ConvShape:
    """A square convolution padded to keep (or, with a stride, to divide) the size."""
    pad = kernel // 2
    return ConvShape(
        name, 1, inputs, size, size, outputs, kernel, kernel, stride, stride, pad, pad, pad, pad, relu=relu
    )


def resnet50() -> tuple[ConvShape, ...]:
    """ResNet-50, 224x224, 53 convolutions and fc (He et al. 2015, table 1, 50 layers).

    Version 1.5: the stride of stages 3 to 5 is in the 3x3 convolution (in the original it is in the first 1x1).
    """
    layers = [_conv("resnet50/conv1", 3, 224, 64, 7, 2)]
    channels, size = 64, 56
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), start=2):
        for block in range(1, blocks + 1):
            stride = 2 if block == 1 and stage > 2 else 1
            name = f"resnet50/conv{stage}_{block}_"
            layers += [
                _conv(name + "1", channels, size, width),
                _conv(name + "2", width, size, width, 3, stride),
                _conv(name + "3", width, size // stride, 4 * width, relu=False),
            ]
            if block == 1:
                layers.append(_conv(name + "shortcut", channels, size, 4 * width, 1, stride, relu=False))
            channels, size = 4 * width, size // stride
    return *layers, _conv("resnet50/fc", channels, 1, 1000, relu=False)


def resnet18() -> tuple[ConvShape, ...]:
    """ResNet-18, 224x224, 20 convolutions and fc (He et al. 2015, table 1, 18 layers)."""
    layers = [_conv("resnet18/conv1", 3, 224, 64, 7, 2)]
    channels, size = 64, 56
    for stage, width in enumerate((64, 128, 256, 512), start=2):
        for block in (1, 2):
            stride = 2 if block == 1 and stage > 2 else 1
            name = f"resnet18/conv{stage}_{block}_"
            layers += [
                _conv(name + "1", channels, size, width, 3, stride),
                _conv(name + "2", width, size // stride, width, 3, relu=False),
            ]
            if stride == 2:
                layers.append(_conv(name + "shortcut", channels, size, width, 1, stride, relu=False))
            channels, size = width, size // stride
    return *layers, _conv("resnet18/fc", channels, 1, 1000, relu=False)


def vgg16() -> tuple[ConvShape, ...]:
    """VGG-16, 224x224, 13 convolutions conv<stage>_<index> and 3 fully connected layers (Simonyan 2014, column D)."""
    layers, channels, size = [], 3, 224
    for stage, (count, width) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), start=1):
        for index in range(1, count + 1):
            layers.append(_conv(f"vgg16/conv{stage}_{index}", channels, size, width, 3))
            channels = width
        size //= 2
    return (
        *layers,
        _conv("vgg16/fc6", channels * size * size, 1, 4096),
        _conv("vgg16/fc7", 4096, 1, 4096),
        _conv("vgg16/fc8", 4096, 1, 1000, relu=False),
    )


def mobilenet_v1() -> tuple[ConvShape, ...]:
    """MobileNet-v1 1.0, 224x224: conv1, the pointwise layers pw1..pw13 and fc (Howard et al. 2017, table 1).

    The depthwise layers between them are no matrix products and are left out.
    """
    outputs = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
    sizes = (112, 56, 56, 28, 28, 14, 14, 14, 14, 14, 14, 7, 7)
    layers, channels = [_conv("mobilenet_v1/conv1", 3, 224, 32, 3, 2)], 32
    for index, (width, size) in enumerate(zip(outputs, sizes, strict=True), start=1):
        layers.append(_conv(f"mobilenet_v1/pw{index}", channels, size, width))
        channels = width
    return *layers, _conv("mobilenet_v1/fc", channels, 1, 1000, relu=False)
