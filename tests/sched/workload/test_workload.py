"""Layers, layouts and names: what they accept, what they refuse, and that packing loses nothing."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from meshloom.hw.spec.config import load
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.mapping.tiling.room import check_room, least_bytes
from meshloom.sched.workload import catalog, networks, resnet8, shapes, zoo
from meshloom.sched.workload.layers import ConvShape, LayerData, WorkloadError, gemm_shape, random_data
from meshloom.sched.workload.layout import (
    ActivationLayout,
    BiasLayout,
    DepthwiseLayout,
    Layout,
    LayoutError,
    PackedWindow,
    WeightLayout,
)

LANES = st.sampled_from([4, 8, 16, 32])
FEW = st.integers(1, 5)
CHANNELS = st.sampled_from([1, 3, 4, 5, 12, 16, 33])


def numbered(shape: tuple[int, ...], dtype: type = np.int8) -> np.ndarray:
    """Neighbouring elements differ, and no element is 0, so that a lost one shows."""
    return (np.arange(np.prod(shape)) * 37 % 251 - 125).clip(1).astype(dtype).reshape(shape)


# -- layouts ------------------------------------------------------------------------------------------------------


@given(lanes=LANES, batch=FEW, channels=CHANNELS, height=FEW, width=FEW, data=st.data())
@settings(deadline=None, max_examples=80)
def test_activation_words_hold_channels_of_one_pixel(lanes, batch, channels, height, width, data):
    block = data.draw(st.integers(1, lanes))
    layout = ActivationLayout(batch=batch, channels=channels, height=height, width=width, block=block)
    array = numbered(layout.shape)
    packed = layout.pack(array, lanes)
    assert packed.shape == (layout.words(lanes), lanes)
    assert packed.dtype == np.uint8
    np.testing.assert_array_equal(layout.unpack(packed), array)
    # the definition, element by element
    words = packed.view(np.int8).reshape(batch, layout.blocks, height, width, lanes)
    expected = np.zeros_like(words)
    for channel in range(channels):
        expected[:, channel // block, :, :, channel % block] = array[:, channel]
    np.testing.assert_array_equal(words, expected)


@given(lanes=LANES, batch=st.integers(1, 2), channels=st.integers(1, 5), width=st.integers(1, 12), data=st.data())
@settings(deadline=None, max_examples=80)
def test_packed_windows_hold_the_bytes_under_a_kernel_row(lanes, batch, channels, width, data):
    kernel, stride = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 3))
    left, right = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    block = data.draw(st.integers(1, lanes))
    window = PackedWindow(kernel, stride, left, right)
    if width + left + right < kernel:
        with pytest.raises(ValidationError, match="does not fit"):
            ActivationLayout(batch=1, channels=1, height=1, width=width, block=block, packed_kw=window)
        return
    layout = ActivationLayout(batch=batch, channels=channels, height=2, width=width, block=block, packed_kw=window)
    array = numbered(layout.shape)
    packed = layout.pack(array, lanes)
    words = packed.view(np.int8).reshape(batch, layout.blocks, 2, layout.columns, lanes)
    expected = np.zeros_like(words)
    covered = set()
    for ox in range(layout.columns):
        for kx in range(kernel):
            ix = ox * stride + kx - left
            if 0 <= ix < width:
                covered.add(ix)
                for channel in range(channels):
                    at = kx * channels + channel
                    expected[:, at // block, :, ox, at % block] = array[:, channel, :, ix]
    np.testing.assert_array_equal(words, expected)
    array[..., [column for column in range(width) if column not in covered]] = 0
    np.testing.assert_array_equal(layout.unpack(packed), array)


@given(lanes=LANES, channels=st.integers(1, 3), height=st.integers(1, 9), width=st.integers(1, 9), data=st.data())
@settings(deadline=None, max_examples=80)
def test_whole_windows_hold_the_bytes_under_a_kernel(lanes, channels, height, width, data):
    kernels, strides = data.draw(st.tuples(FEW, FEW)), data.draw(st.tuples(FEW, FEW))
    pads = data.draw(st.lists(st.integers(0, 2), min_size=4, max_size=4))  # top, bottom, left, right
    block = data.draw(st.integers(1, lanes))
    window = PackedWindow(kernels[1], strides[1], pads[2], pads[3], kernels[0], strides[0], pads[0], pads[1])
    sizes = {"batch": 2, "channels": channels, "height": height, "width": width, "block": block}
    if height + pads[0] + pads[1] < kernels[0] or width + pads[2] + pads[3] < kernels[1]:
        with pytest.raises(ValidationError, match="does not fit"):
            ActivationLayout(**sizes, packed_kw=window)
        return
    layout = ActivationLayout(**sizes, packed_kw=window)
    array = numbered(layout.shape)
    packed = layout.pack(array, lanes)
    words = packed.view(np.int8).reshape(2, layout.blocks, layout.rows, layout.columns, lanes)
    expected, covered = np.zeros_like(words), np.zeros((height, width), bool)
    for oy, ox, ky, kx in np.ndindex(layout.rows, layout.columns, *kernels):
        iy, ix = oy * strides[0] + ky - pads[0], ox * strides[1] + kx - pads[2]
        if 0 <= iy < height and 0 <= ix < width:
            covered[iy, ix] = True
            for channel in range(channels):
                at = (ky * kernels[1] + kx) * channels + channel
                expected[:, at // block, oy, ox, at % block] = array[:, channel, iy, ix]
    np.testing.assert_array_equal(words, expected)
    np.testing.assert_array_equal(layout.unpack(packed), np.where(covered, array, 0))


def test_windows_that_disagree_are_refused():
    window = PackedWindow(3, 1, 1, 1)
    layout = ActivationLayout(batch=1, channels=1, height=1, width=4, block=4, packed_kw=window)
    packed = layout.pack(numbered(layout.shape), 4)
    packed[2, 1] ^= 1
    with pytest.raises(LayoutError, match="disagree"):
        layout.unpack(packed)


@given(lanes=LANES, outputs=CHANNELS, inputs=CHANNELS, kernel_h=FEW, kernel_w=FEW, fold=st.booleans(), data=st.data())
@settings(deadline=None, max_examples=80)
def test_weight_words_hold_the_inputs_of_one_output(lanes, outputs, inputs, kernel_h, kernel_w, fold, data):
    cols, block = data.draw(st.integers(1, lanes)), data.draw(st.integers(1, lanes))
    layout = WeightLayout(
        out_channels=outputs,
        in_channels=inputs,
        kernel_h=kernel_h,
        kernel_w=kernel_w,
        cols=cols,
        block=block,
        packed_kw=fold,
    )
    array = numbered(layout.shape)
    packed = layout.pack(array, lanes)
    np.testing.assert_array_equal(layout.unpack(packed), array)
    if fold:  # with the rows, too: the same as one row of all taps
        whole = layout.model_copy(update={"packed_kh": True})
        row = layout.model_copy(update={"kernel_h": 1, "kernel_w": kernel_h * kernel_w})
        words = whole.pack(array, lanes)
        np.testing.assert_array_equal(words, row.pack(array.reshape(outputs, inputs, 1, -1), lanes))
        np.testing.assert_array_equal(whole.unpack(words), array)
    taps = 1 if fold else kernel_w
    words = packed.view(np.int8).reshape(layout.n_blocks, layout.k_blocks, kernel_h, taps, cols, lanes)
    expected = np.zeros_like(words)
    for output in range(outputs):
        for at, value in np.ndenumerate(array[output]):
            channel, ky, kx = at
            lane, kx = (kx * inputs + channel, 0) if fold else (channel, kx)
            expected[output // cols, lane // block, ky, kx, output % cols, lane % block] = value
    np.testing.assert_array_equal(words, expected)


@given(lanes=LANES, outputs=CHANNELS, data=st.data())
def test_bias_words_are_little_endian_int32(lanes, outputs, data):
    layout = BiasLayout(out_channels=outputs, cols=data.draw(st.integers(1, lanes)))
    array = (np.arange(outputs) * 0x01020305 - (1 << 30)).astype(np.int32)
    packed = layout.pack(array, lanes)
    assert packed.shape == (4 * -(-outputs // layout.cols), lanes)
    np.testing.assert_array_equal(layout.unpack(packed), array)
    flat = packed.tobytes()
    for channel in range(outputs):
        at = 4 * (channel // layout.cols * lanes + channel % layout.cols)
        assert int.from_bytes(flat[at : at + 4], "little", signed=True) == array[channel]


@given(lanes=LANES, channels=CHANNELS, kernel_h=st.integers(1, 4), kernel_w=st.integers(1, 4), data=st.data())
def test_depthwise_filters_are_one_word_for_each_tap(lanes, channels, kernel_h, kernel_w, data):
    block = data.draw(st.integers(1, lanes))
    layout = DepthwiseLayout(channels=channels, kernel_h=kernel_h, kernel_w=kernel_w, block=block)
    array = np.random.default_rng(channels).integers(-128, 128, layout.shape).astype(np.int8)
    packed = layout.pack(array, lanes)
    assert packed.shape == (layout.words(lanes), lanes)
    np.testing.assert_array_equal(layout.unpack(packed), array)
    expected = np.zeros((layout.blocks, kernel_h, kernel_w, lanes), np.int8)
    for (channel, ky, kx), value in np.ndenumerate(array):
        expected[channel // block, ky, kx, channel % block] = value
    np.testing.assert_array_equal(packed.view(np.int8), expected.reshape(-1, lanes))


def test_layouts_survive_json():
    adapter = TypeAdapter(Layout)
    window = PackedWindow(7, 2, 3, 3)
    for layout in (
        ActivationLayout(batch=1, channels=3, height=4, width=9, block=16, packed_kw=window),
        ActivationLayout(
            batch=1, channels=3, height=4, width=9, block=16, packed_kw=PackedWindow(3, 1, 1, 1, 3, 1, 1, 1)
        ),
        WeightLayout(
            out_channels=5, in_channels=3, kernel_h=7, kernel_w=7, cols=14, block=16, packed_kw=True, packed_kh=True
        ),
        WeightLayout(out_channels=5, in_channels=3, kernel_h=7, kernel_w=7, cols=14, block=16, packed_kw=True),
        DepthwiseLayout(channels=20, kernel_h=3, kernel_w=5, block=14),
        BiasLayout(out_channels=5, cols=14),
    ):
        assert adapter.validate_json(layout.model_dump_json()) == layout
    old = adapter.validate_json(  # as written before windows had rows
        '{"kind": "activation", "batch": 1, "channels": 3, "height": 4, "width": 9, "block": 16, '
        '"packed_kw": [7, 2, 3, 3]}'
    )
    assert old == ActivationLayout(batch=1, channels=3, height=4, width=9, block=16, packed_kw=window)
    with pytest.raises(ValidationError):
        adapter.validate_python({"kind": "bias", "out_channels": 0, "cols": 4})


def test_rows_are_packed_only_with_columns():
    with pytest.raises(ValidationError, match="set packed_kw, too"):
        WeightLayout(out_channels=5, in_channels=3, kernel_h=3, kernel_w=3, cols=4, block=4, packed_kh=True)


def test_misfits_are_refused():
    layout = ActivationLayout(batch=1, channels=3, height=2, width=2, block=8)
    with pytest.raises(LayoutError, match=r"block = 8 exceeds the 4 lanes"):
        layout.pack(np.zeros(layout.shape, np.int8), 4)
    with pytest.raises(LayoutError, match=r"depthwise layout: block = 8 exceeds the 4 lanes"):
        DepthwiseLayout(channels=3, kernel_h=1, kernel_w=1, block=8).words(4)
    with pytest.raises(LayoutError, match=r"uint8\[1, 3, 2, 2\], must be int8"):
        layout.pack(np.zeros(layout.shape, np.uint8), 8)
    with pytest.raises(LayoutError, match=r"5 words, must have 4"):
        layout.unpack(np.zeros((5, 8), np.uint8))
    with pytest.raises(LayoutError, match=r"must be uint8, 2-d"):
        layout.unpack(np.zeros((4, 8), np.int8))  # pyright: ignore[reportArgumentType]  (that is the test)
    with pytest.raises(LayoutError, match=r"cols = 8 exceeds"):
        BiasLayout(out_channels=3, cols=8).words(4)


# -- layers -------------------------------------------------------------------------------------------------------


def test_output_sizes():
    strided = ConvShape("a", 2, 3, 13, 11, 5, 3, 5, 2, 1, 1, 2, 0, 2, 2)
    # rows: (13 + 1 - 5) // 2 + 1; columns: (11 + 4 - 9) + 1
    assert strided.y_shape == (2, 5, 5, 7)
    assert strided.macs == 2 * 5 * 5 * 7 * 3 * 3 * 5
    product = gemm_shape("g", 33, 5, 77)
    assert product.y_shape == (1, 5, 1, 33)
    assert product.macs == 33 * 5 * 77


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel_h": 16}, "kernel_h = 16, a GEMM instruction holds at most 15"),
        ({"stride_w": 8}, "stride_w = 8"),
        ({"dilation": 0}, "dilation = 0 must be an integer >= 1"),
        ({"pad_top": -1}, "pad_top = -1"),
        ({"batch": 1.5}, "batch = 1.5"),
        ({"clamp": 128}, "clamp = 128"),
        ({"kernel_h": 7}, "7x1 kernel .* does not fit the padded input of 4x4"),
    ],
)
def test_impossible_shapes_are_refused(change, message):
    with pytest.raises(WorkloadError, match=message):
        replace(ConvShape("bad", 1, 3, 4, 4, 5), **change)


def test_layer_data_must_fit_its_shape():
    good = random_data(gemm_shape("g", 2, 3, 4))
    wide: Any = good.bias.astype(np.int64)
    with pytest.raises(WorkloadError, match=r"bias is int64\[3\], must be int32\[3\]"):
        LayerData(good.shape, good.x, good.w, wide, good.scale)
    with pytest.raises(WorkloadError, match=r"x is int8\[3, 4, 1, 1\], must be int8\[1, 4, 1, 2\]"):
        LayerData(good.shape, good.w, good.w, good.bias, good.scale)
    with pytest.raises(WorkloadError, match="scale = 65536"):
        LayerData(good.shape, good.x, good.w, good.bias, 1 << 16)
    with pytest.raises(ValueError, match="read-only"):
        good.x[0, 0, 0, 0] = 1


def test_random_data_is_the_same_everywhere():
    data = catalog.find("conv:14x14x33-33,k3,p2,d2,relu")[0].data()
    digest = hashlib.sha256(data.x.tobytes() + data.w.tobytes() + data.bias.astype("<i4").tobytes())
    assert digest.hexdigest() == "59acbb634de899528c8d24d38d094fcea08820cc06912196aec51521aef3eef0"
    assert {data.x.min(), data.x.max(), data.w.min(), data.w.max()} == {-128, 127}
    assert data.bias.all()


@pytest.mark.parametrize("name", ["resnet8/conv1", "resnet8/fc", "gemm:33x5x77", "conv:7x7x33-5,k5,p2"])
def test_the_scale_is_that_of_the_data(name: str):
    (workload,) = catalog.find(name)
    assert workload.scale == workload.data().scale


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("gemm:1000000x1000000x1000000", "take a smaller one"),
        ("conv:99999999999x99999999999x512-512,k3,p1", "take a smaller one"),
        ("gemm:1x5000000x1", r"give the chip's \[dram\] words = 16777216 \(--set .*"),
    ],
)
def test_of_layers_larger_than_dram_nothing_is_drawn(name: str, fix: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(np.random, "PCG64", None)
    (workload,) = catalog.find(name)
    assert workload.scale >= 1
    with pytest.raises(DoesNotFit, match=rf"{name} is too big for chip tiny: its tensors .*; {fix}$"):
        check_room(workload.shape, load("tiny"))


def test_a_layer_may_just_fill_dram():
    """x, w, biases and y, in words of 4 bytes."""
    shape, chip = gemm_shape("g", 4, 3, 3), load("tiny")
    assert least_bytes(shape) == 12 + 9 + 12 + 12
    check_room(shape, chip.model_copy(update={"dram": chip.dram.model_copy(update={"words": 12})}))
    with pytest.raises(DoesNotFit, match="its tensors take 45 bytes, the DRAM has 44 bytes; give the chip"):
        check_room(shape, chip.model_copy(update={"dram": chip.dram.model_copy(update={"words": 11})}))


# -- names --------------------------------------------------------------------------------------------------------


def test_networks_have_their_published_sizes():
    # multiply-accumulates in millions, as in the papers' tables (ResNet: fc included, MobileNet: without depthwise)
    for table, layers, macs in (
        (networks.resnet50, 54, 4089.2),
        (networks.resnet18, 21, 1814.1),
        (networks.resnet152, 156, 11513.6),
        (networks.vgg16, 16, 15470.3),
        (networks.vgg19, 19, 19632.1),
        (networks.inception_v3, 95, 5713.2),
        (networks.mobilenet_v1, 15, 551.4),
    ):
        result = catalog.find(table.__name__)
        assert len(result) == layers
        assert round(sum(layer.shape.macs for layer in result) / 1e6, 1) == macs


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("vgg16/conv4_2", "conv:28x28x512-512,k3,p1,relu"),
        ("vgg16/fc6", "gemm:1x4096x25088,relu"),
        ("resnet50/conv1", "conv:224x224x3-64,k7,s2,p3,relu"),
        ("resnet50/conv3_1_1", "conv:56x56x256-128,relu"),
        ("resnet50/conv3_1_2", "conv:56x56x128-128,k3,s2,p1,relu"),
        ("resnet50/conv3_2_1", "conv:28x28x512-128,relu"),
        ("resnet50/conv5_1_shortcut", "conv:14x14x1024-2048,s2"),
        ("resnet18/conv3_1_shortcut", "conv:56x56x64-128,s2"),
        ("mobilenet_v1/pw7", "conv:14x14x512-512,relu"),
        ("resnet8/conv1", "conv:32x32x3-16,k3,p1,relu"),
        ("resnet8/conv3_1_1", "conv:32x32x16-32,k3,s2,p0x0x1x1,relu"),
        ("resnet8/fc", "gemm:1x10x64"),
    ],
)
def test_single_layers(name, shape):
    (layer,) = catalog.find(name)
    assert layer.name == name
    assert shapes.describe(layer.shape) == shape


def test_every_name_finds_itself():
    for name in catalog.names():
        result = catalog.find(name)
        assert [layer.name for layer in result] == [name] if "/" in name else len(result) > 1
    assert catalog.find("regression") == catalog.regression()


@pytest.mark.parametrize("network", ["ds_cnn", "squeezenet"])
def test_layers_of_trained_networks(network):
    result = catalog.find(network)
    convolutions = [layer.output for layer in zoo.load(network).layers if layer.kind == "conv"]
    assert [layer.name for layer in result] == [f"{network}/{name}" for name in convolutions]
    assert catalog.find(f"{network}/*") == result
    assert catalog.find(result[1].name) == (result[1],)
    assert not any(layer.real for layer in result), "their inputs are random"
    assert result[0].data().x.shape == result[0].shape.x_shape


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet5", "did you mean resnet50, resnet152, resnet8\\?"),
        ("squeeznet", "did you mean squeezenet\\?"),
        ("squeezenet/fire2_squeze", "did you mean squeezenet/fire2_squeeze, "),
        ("minilm_block/keys", "did you mean minilm_block/key"),
        ("vgg16/conv4_4", "did you mean .*vgg16/conv4_2"),
        ("resnet8/nothing_like_it", "there are resnet8/conv1, "),
        ("?", "there are resnet8, ds_cnn, .*yolov2, .*regression, conv: and gemm:"),
        ("", "unknown workload ''"),
    ],
)
def test_unknown_names_say_what_is_near(name, message):
    with pytest.raises(WorkloadError, match=message):
        catalog.find(name)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("conv:28x28x128-128,k3,s1,p1,d1,b2,relu", "conv:28x28x128-128,k3,p1,b2,relu"),
        ("conv:5x6x7-8,relu,p1x1x1x1,k3x3", "conv:5x6x7-8,k3,p1,relu"),
        ("conv:9x9x3-4,k3x5,s2x1,p1x2,d2", "conv:9x9x3-4,k3x5,s2x1,p1x2,d2"),
        ("conv:9x9x3-4,k3,p0x1x2x3,clamp6", "conv:9x9x3-4,k3,p0x1x2x3,clamp6"),
        ("conv:1x4x3-2", "gemm:4x2x3"),
        ("conv:1x4x3-2,b3", "conv:1x4x3-2,b3"),
        ("gemm:1x2x3,relu,clamp100", "gemm:1x2x3,relu,clamp100"),
    ],
)
def test_shapes_written_out(text, canonical):
    (layer,) = catalog.find(text)
    assert layer.name == canonical == shapes.describe(layer.shape)
    assert catalog.find(canonical) == (layer,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("conv:28x28-128", "'28x28-128' is not HxWxC-O"),
        ("conv:", "'' is not HxWxC-O"),
        ("gemm:3x4", "'3x4' is not MxNxK"),
        ("gemm:3x4x5,k3", "'k3' is not an option of gemm"),
        ("conv:8x8x3-4,q2", "'q2' is not an option of conv"),
        ("conv:8x8x3-4,k3,k3", "option 'k' is given twice"),
        ("conv:8x8x3-4,p1x2x3", "option 'p1x2x3' has 3 numbers"),
        ("conv:8x8x3-4,,relu", "'' is not an option"),
        ("conv:2x2x3-4,k3", "3x3 kernel .* does not fit"),
        ("conv:0x8x3-4", "in_h = 0 must be an integer >= 1"),
    ],
)
def test_malformed_shapes_are_refused(text, message):
    with pytest.raises(WorkloadError, match=message):
        catalog.find(text)


def test_regression_covers_what_it_promises():
    layers = [workload.shape for workload in catalog.regression()]
    assert len({layer.name for layer in layers}) == len(layers)
    assert sum(layer.macs for layer in layers) < 2e9
    assert [workload.name for workload in catalog.regression() if workload.real] == [
        workload.name for workload in catalog.find("resnet8")
    ]
    assert {1, 2, 3} <= {layer.batch for layer in layers}
    assert {3, 5, 33} <= {layer.in_channels for layer in layers}
    assert {3, 5, 33} <= {layer.out_channels for layer in layers}
    assert {1, 3, 5, 7} <= {layer.kernel_h for layer in layers}
    assert {1, 2} <= {layer.stride_h for layer in layers}
    assert 2 in {layer.dilation for layer in layers}
    assert 7 in {layer.in_h for layer in layers}
    assert {True, False} == {layer.relu for layer in layers}


# -- the committed data -------------------------------------------------------------------------------------------


def test_files_are_the_ones_that_sources_md_lists():
    folder = resnet8.FILE.parent
    listed = (folder / "SOURCES.md").read_text()
    files = [path for path in folder.iterdir() if path.suffix in (".npz", ".png")]
    assert len(files) == 4
    for path in files:
        assert f"| {path.name} | {hashlib.sha256(path.read_bytes()).hexdigest()} |" in listed
    assert sum(path.stat().st_size for path in files) < 2_000_000


def test_resnet8_scales_are_exact_and_inputs_are_real():
    result = resnet8.contents()
    for picture in (0, 1):
        for workload in catalog.find("resnet8"):
            layer = workload.name.partition("/")[2]
            data = resnet8.layer_data(layer, picture)
            assert data.shape == workload.shape
            # weights use the whole range: the step was nudged by less than one part in m
            assert np.abs(data.w.astype(int)).max() >= 126
            assert data.x.std() > 0
            assert (picture == 0) == np.array_equal(data.x, workload.data().x)
            # every input but the picture is behind a ReLU
            assert data.x.min() == 0 or str(result[f"{layer}/input"]) == "picture"
    assert sum(workload.shape.macs for workload in catalog.find("resnet8")) == 12_501_632


def test_the_first_input_is_the_committed_picture():
    from PIL import Image

    (path,) = resnet8.FILE.parent.glob("*.png")
    picture = np.asarray(Image.open(path).convert("RGB")).transpose(2, 0, 1)
    np.testing.assert_array_equal(resnet8.layer_data("conv1").x[0].astype(int) + 128, picture)
    assert path.stem.endswith(f"_{resnet8.contents()['labels'][0]}")


@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "flipped", "pickled", "incomplete"])
def test_damaged_data_gives_one_clear_error(damage: str, tmp_path: Path):
    path = tmp_path / "resnet8.npz"
    content = bytearray(resnet8.FILE.read_bytes())
    if damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        content[len(content) // 2] ^= 0x10
        path.write_bytes(content)
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "pickled":
        np.savez(path, layers=np.array([json.dumps], dtype=object))
    elif damage == "incomplete":
        arrays: dict[str, Any] = {name: array for name, array in resnet8.contents().items() if name != "conv1/w"}
        np.savez(path, **arrays)
    with pytest.raises(WorkloadError, match=r"resnet8\.npz: cannot be read .*convert_resnet8\.py"):
        resnet8.contents(path)
