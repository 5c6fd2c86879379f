"""Layers from topology files of SCALE-Sim (CSV), as its own package has them: convolutions, or products M, N, K.

A convolution there has no padding, and counts a last window that does not fit the input whole: here the input is padded
by what is missing, so that outputs and products are as many (`topo_calc_hyperparams` of SCALE-Sim 3.0.0). A filter as
wide or as high as its input is how such files write matrix products, and becomes one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from meshloom.hw.spec.config import near_or_all

from ..support.reading import parse_csv
from ..support.text import shortened
from .layers import ConvShape, WorkloadError, gemm_shape

#: How names of such files end, and of a layer in one: `nets/alexnet.csv/Conv1`.
SUFFIX = ".csv"
#: Layers that a file may have.
MOST = 20_000
#: Digits of a number in a file.
_DIGITS = 12
#: What marks the layers that SCALE-Sim takes apart into their channels.
_DEPTHWISE = "DP"


def split(name: str) -> tuple[Path, str] | None:
    """The file and the layer (empty: all) that a name means; None if it means no such file."""
    head, inside, layer = name.partition(f"{SUFFIX}/")
    if inside:
        return Path(head + SUFFIX), layer
    return (Path(name), "") if name.endswith(SUFFIX) else None


def layers(path: Path, layer: str = "") -> tuple[ConvShape, ...]:
    """The layers of a file, in its order, named `<path>/<layer>`; or the one of that name. Raises WorkloadError with
    the line and what is wrong."""
    table = _table(path)
    if layer and layer not in table:
        raise WorkloadError(f"{path}: has no layer {layer!r}; {near_or_all(layer, list(table))}")
    chosen = [table[layer]] if layer else list(table.values())
    for each in chosen:
        if isinstance(each, str):
            others = "" if layer else f"; name the others one by one: {path}/LAYER"
            raise WorkloadError(each + others)
    return tuple(each for each in chosen if isinstance(each, ConvShape))


def has_layer(path: Path, layer: str) -> bool:
    """Whether a file is a topology with a layer of that name."""
    try:
        return layer in _table(path)
    except WorkloadError:
        return False


def _table(path: Path) -> dict[str, ConvShape | str]:
    try:
        stamp = path.stat()
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be read: {error.strerror}") from error
    return _read(path, (stamp.st_mtime_ns, stamp.st_size))


@cache
def _read(path: Path, stamp: tuple[int, int]) -> dict[str, ConvShape | str]:
    """The layers by name, or what is wrong with one. `stamp`: when the file was changed; another one is read again."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise WorkloadError(f"{path}: cannot be read: {why}") from error
    between = "," if "," in text.partition("\n")[0] else "\t"
    try:
        rows = parse_csv(text, between)
    except ValueError as error:
        raise WorkloadError(f"{path}: {error}") from error
    if not rows or not rows[0] or not rows[0][0].lower().startswith("layer"):
        raise WorkloadError(f"{path}: is no topology of SCALE-Sim: its first line must name columns, Layer name first")
    head = [cell.lower() for cell in rows[0]]
    table: dict[str, ConvShape | str] = {}
    times: Counter[str] = Counter()
    for number, cells in enumerate(rows[1:], start=2):
        if not any(cells[1:]):  # empty, or a heading
            continue
        try:
            for name, shape in _layers(head, cells):
                key = _key(name, times, table)
                table[key] = replace(shape, name=f"{path.as_posix()}/{key}")
        except WorkloadError as error:
            table[_key(cells[0], times, table)] = f"{path}, line {number}: {error}"
        if len(table) > MOST:
            raise WorkloadError(f"{path}, line {number}: the file has more than {MOST:,} layers; cut it into several")
    if not table:
        raise WorkloadError(f"{path}: has no layers")
    return table


def _key(name: str, times: Counter[str], names: Mapping[str, object]) -> str:
    """The name of a layer among those that a file has so far: `conv`, then `conv#2`. `times`: how often each came."""
    times[name] += 1
    key = name if times[name] == 1 else f"{name}#{times[name]}"
    while key in names:
        times[name] += 1
        key = f"{name}#{times[name]}"
    return key


def _layers(head: Sequence[str], cells: Sequence[str]) -> Iterator[tuple[str, ConvShape]]:
    """The layers of a line with their names: one, or a depthwise one's channels."""
    name = cells[0]
    for cell in cells[1:]:
        density, colon, of = cell.partition(":")
        if colon and density.strip() != of.strip():
            raise WorkloadError(
                f"layer {name} has sparse weights ({shortened(cell)}); this chip multiplies zeros too, give 1:1"
            )
    if head[1:4] == ["m", "n", "k"]:
        m, n, k = (_number(name, head, cells, index) for index in range(1, 4))
        yield name, gemm_shape(name, m, n, k)
        return
    sizes = [_number(name, head, cells, index) for index in range(1, 8)]
    wide = len(head) > 8 and "stride" in head[8]
    strides = sizes[6], _number(name, head, cells, 8) if wide else sizes[6]
    batch = [index for index, cell in enumerate(cells) if cell and head[index : index + 1] and "batch" in head[index]]
    count = _number(name, head, cells, batch[0]) if batch else 1
    if _DEPTHWISE in name:
        if sizes[4] > MOST:
            raise WorkloadError(f"layer {name}: {sizes[4]:,} channels would be as many layers, {MOST:,} are possible")
        for channel in range(sizes[4]):
            yield f"{name}Channel_{channel}", _convolution(name, sizes[:4], 1, sizes[5], strides, count)
    else:
        yield name, _convolution(name, sizes[:4], sizes[4], sizes[5], strides, count)


def _number(name: str, head: Sequence[str], cells: Sequence[str], index: int) -> int:
    what = head[index] if index < len(head) and head[index] else f"column {index + 1}"
    text = cells[index] if index < len(cells) else ""
    if not text.isdecimal() or len(text) > _DIGITS or int(text) < 1:
        must = f"must be a whole number of at least 1, of at most {_DIGITS} digits"
        raise WorkloadError(f"layer {shortened(name)}: {shortened(what)} = {shortened(text)!r} {must}")
    return int(text)


def _convolution(
    name: str, sizes: Sequence[int], channels: int, filters: int, strides: tuple[int, int], batch: int
) -> ConvShape:
    """A convolution, or the matrix product that it is. `sizes`: height and width of the input, and of the filter."""
    height, width, rows, cols = sizes
    if rows > height or cols > width:
        raise WorkloadError(f"layer {name}: a filter of {rows}x{cols} is larger than its input of {height}x{width}")
    outputs = [
        -(-(size - taps) // stride) + 1
        for size, taps, stride in zip((height, width), (rows, cols), strides, strict=True)
    ]
    whole = rows == height, cols == width
    product = all(whole) or (rows == 1 and whole[1]) or (cols == 1 and whole[0])
    if product and batch == 1 and (rows, cols) != (1, 1):
        return gemm_shape(name, outputs[0] * outputs[1], filters, rows * cols * channels)
    bottom, right = (
        (count - 1) * stride + taps - size
        for count, stride, taps, size in zip(outputs, strides, (rows, cols), (height, width), strict=True)
    )
    # a last window that reaches beyond the input; one that ends before it leaves rows or columns unread
    return ConvShape(
        name, batch, channels, height, width, filters, rows, cols, *strides, 0, 0, max(0, bottom), max(0, right)
    )
