"""Layers written out by their shapes, as on the command line: `conv:28x28x128-128,k3,p1` and `gemm:64x64x64`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ..support.text import shortened
from .layers import NO_CLAMP, ConvShape, WorkloadError, gemm_shape

SYNTAX = """\
conv:HxWxC-O[,kK][,sS][,pP][,dD][,bB][,relu][,clampN]
  H rows, W columns, C input and O output channels
  kK or kRxC   kernel (default 1)           sS or sRxC   stride (default 1)
  pP, pRxC or pTOPxLEFTxBOTTOMxRIGHT   zero padding (default 0)
  dD   dilation (default 1)                 bB   batch (default 1)
  relu   clamp below at 0                   clampN   clamp above at N
gemm:MxNxK[,relu][,clampN]   M x K by K x N
examples: conv:28x28x128-128,k3,p1,relu   gemm:256x256x256"""

#: A size in a text.
_SIZE = r"(\d{1,12})"
#: Letter of an option: how many numbers it may have.
_OPTIONS = {"k": (1, 2), "s": (1, 2), "p": (1, 2, 4), "d": (1,), "b": (1,), "clamp": (1,)}


def parse(text: str) -> ConvShape:
    """The shape that `text` describes, under its canonical name (see `describe`). Raises WorkloadError otherwise."""
    kind, _, rest = text.partition(":")
    head, *options = rest.split(",")
    if kind == "gemm":
        sizes = re.fullmatch(rf"{_SIZE}x{_SIZE}x{_SIZE}", head)
        if not sizes:
            raise _error(text, f"{shortened(head)!r} is not MxNxK, of 12 digits at most")
        values, relu = _options(text, options, {"clamp"})
        m, n, k = map(int, sizes.groups())
        for letter, size in (("M", m), ("N", n), ("K", k)):
            if not size:
                raise _error(text, f"{letter} = 0 must be at least 1")
        return _named(gemm_shape(text, m, n, k, relu=relu, clamp=values.get("clamp", (NO_CLAMP,))[0]))
    if kind != "conv":
        raise _error(text, f"{shortened(kind)!r} is neither conv nor gemm")
    sizes = re.fullmatch(rf"{_SIZE}x{_SIZE}x{_SIZE}-{_SIZE}", head)
    if not sizes:
        raise _error(text, f"{shortened(head)!r} is not HxWxC-O, of 12 digits at most")
    values, relu = _options(text, options, set(_OPTIONS))
    height, width, inputs, outputs = map(int, sizes.groups())
    values = {"k": (1,), "s": (1,), "p": (0,), "d": (1,), "b": (1,), "clamp": (NO_CLAMP,)} | values
    kernel, stride, pads = values["k"], values["s"], values["p"]
    top, left, bottom, right = pads if len(pads) == 4 else (pads[0], pads[-1], pads[0], pads[-1])
    return _named(
        ConvShape(
            text,
            values["b"][0],
            inputs,
            height,
            width,
            outputs,
            kernel[0],
            kernel[-1],
            stride[0],
            stride[-1],
            top,
            left,
            bottom,
            right,
            dilation=values["d"][0],
            relu=relu,
            clamp=values["clamp"][0],
        )
    )


def _options(text: str, options: list[str], allowed: set[str]) -> tuple[dict[str, tuple[int, ...]], bool]:
    values: dict[str, tuple[int, ...]] = {}
    relu = False
    for option in options:
        if option == "relu" and not relu:
            relu = True
            continue
        match = re.fullmatch(r"([a-z]+)(\d{1,12}(?:x\d{1,12})*)", option)
        letter = match[1] if match else ""
        if not match or letter not in allowed:
            raise _error(text, f"{shortened(option)!r} is not an option of {text.partition(':')[0]}, or is given twice")
        if letter in values:
            raise _error(text, f"option {letter!r} is given twice")
        numbers = tuple(int(number) for number in match[2].split("x"))
        if len(numbers) not in _OPTIONS[letter]:
            raise _error(text, f"option {shortened(option)!r} has {len(numbers)} numbers")
        values[letter] = numbers
    return values, relu


def _error(text: str, why: str) -> WorkloadError:
    return WorkloadError(f"workload {shortened(text)!r}: {why}. Expected:\n{SYNTAX}")


def _named(shape: ConvShape) -> ConvShape:
    return replace(shape, name=describe(shape))


def describe(shape: ConvShape) -> str:
    """The canonical text of a shape: `parse(describe(shape))` is the shape; the same shape, the same text.

    (The shape's own name plays no part.) Names seed random data, so two spellings of one shape have the same data.
    """
    return ",".join(_parts(shape))


def _parts(shape: ConvShape) -> Iterator[str]:
    pads = (shape.pad_top, shape.pad_left, shape.pad_bottom, shape.pad_right)
    plain = (shape.batch, shape.in_h, shape.kernel_h, shape.kernel_w, shape.stride_h, shape.stride_w, shape.dilation)
    if set(plain) == {1} and not any(pads):
        yield f"gemm:{shape.in_w}x{shape.out_channels}x{shape.in_channels}"
    else:
        yield f"conv:{shape.in_h}x{shape.in_w}x{shape.in_channels}-{shape.out_channels}"
    for letter, high, wide in (("k", shape.kernel_h, shape.kernel_w), ("s", shape.stride_h, shape.stride_w)):
        if (high, wide) != (1, 1):
            yield letter + (f"{high}" if high == wide else f"{high}x{wide}")
    if any(pads):
        if len(set(pads)) == 1:
            yield f"p{pads[0]}"
        elif pads[:2] == pads[2:]:
            yield f"p{pads[0]}x{pads[1]}"
        else:
            yield "p" + "x".join(map(str, pads))
    if shape.dilation != 1:
        yield f"d{shape.dilation}"
    if shape.batch != 1:
        yield f"b{shape.batch}"
    if shape.relu:
        yield "relu"
    if shape.clamp != NO_CLAMP:
        yield f"clamp{shape.clamp}"
