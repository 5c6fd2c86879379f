"""MAESTRO (Kwon et al., MICRO 2019): layers and data-flow directives of a mapping file (`.m`), in the published form.

    Network net { Layer CONV1 { Type: CONV  Stride { X: 1, Y: 1 }  Dimensions { K: 16, C: 8, R: 3, S: 3, Y: 10, X: 10 }
      Dataflow { TemporalMap(8,8) K;  SpatialMap(Sz(R),1) Y;  ...  Cluster(8, P);  SpatialMap(1,1) K; } } }

Directives come outermost first: a tile of a dimension and how far the next one is from it, in turn (`TemporalMap`) or
side by side (`SpatialMap`); below a `Cluster` they are about its members. The tiles of the first level lie in the core.
`NAME.hw` beside NAME.m says how many PEs there are (`num_pes: 64`); NAME.csv, which MAESTRO writes, is the claim.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from pathlib import Path

from meshloom.sched.ir.schedule import ToolClaim
from meshloom.sched.schedulers.nest.mapping import (
    REDUCTIONS,
    Dimension,
    Factor,
    LayerMapping,
    Level,
    MappingError,
    MemoryPlace,
    Operand,
)
from meshloom.sched.schedulers.nest.schedule import sizes_of
from meshloom.sched.support.reading import parse_csv
from meshloom.sched.support.text import shortened, whole_number
from meshloom.sched.workload.layers import ConvShape, gemm_shape
from meshloom.sched.workload.shapes import describe

from .interface import Importer, ImportFileError, ToolLayer, check_layer, text_of

TOOL = "maestro"
_WHAT = "a mapping file of MAESTRO: Network NAME { Layer NAME { Type Dimensions Dataflow } }"
_TOKEN = re.compile(r"[A-Za-z_][\w.']*(?:-[\w.]+)*|\d+|\S")
#: Dimensions of a CONV; Y' and X' count results, Y and X what is read.
_CONV = {
    "N": Dimension.B, "K": Dimension.K, "C": Dimension.C, "R": Dimension.FY, "S": Dimension.FX, "Y": Dimension.OY,
    "X": Dimension.OX, "Y'": Dimension.OY, "X'": Dimension.OX,
}  # fmt: skip
#: Those of a GEMM, M x K by K x N.
_GEMM = {"M": Dimension.OX, "N": Dimension.K, "K": Dimension.C}
#: What a window slides over, and its kernel and stride.
_SLIDING = {"Y": ("R", "Y"), "X": ("S", "X")}
_INSIDE = (Dimension.C, Dimension.FX, Dimension.FY, Dimension.OX, Dimension.OY, Dimension.B, Dimension.K)


@dataclass
class _Directive:
    """`spatial`: side by side; `size`: of a tile, as the file counts it."""

    spatial: bool
    size: int
    name: str


@dataclass
class _MaestroLayer:
    """`sizes`, `strides`: by the file's names; `levels`: directives, outermost first; `clusters`: members of each."""

    name: str
    kind: str
    sizes: dict[str, int]
    strides: dict[str, int]
    levels: list[list[_Directive]]
    clusters: list[int]


class _Reader:
    """Reads the words of a file one after the other. Raises ImportFileError that names the place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = re.sub(r"//[^\n]*|/\*.*?\*/", lambda match: "\n" * match[0].count("\n"), text_of(path), flags=re.DOTALL)
        self.words = [
            (number, word) for number, line in enumerate(text.split("\n"), 1) for word in _TOKEN.findall(line)
        ]
        self.at = 0
        self.constants: dict[str, int] = {}

    def layers(self) -> list[_MaestroLayer]:
        """All layers of the file."""
        while self._peek() == "Constant":
            _, name, value = self._next(), self._next(), self._number({})
            self.constants[name] = value
            self._maybe(";")
        self._expect("Network")
        while self._next() != "{":
            pass
        layers: list[_MaestroLayer] = []
        while self._peek() == "Layer":
            layers.append(self._layer())
        self._expect("}")
        return layers

    def _layer(self) -> _MaestroLayer:
        self._expect("Layer")
        layer = _MaestroLayer(self._next(), "CONV", {}, {}, [[]], [])
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "Type":
                self._expect(":")
                layer.kind = self._next()
            elif word in ("Stride", "Dimensions"):
                (layer.strides if word == "Stride" else layer.sizes).update(self._table())
            elif word == "Dataflow":
                self._expect("{")
                while self._maybe("}") is None:
                    self._directive(layer)
            else:
                raise self._no(f"{word!r} is none of Type, Stride, Dimensions, Dataflow", -1)
        return layer

    def _table(self) -> dict[str, int]:
        values: dict[str, int] = {}
        self._expect("{")
        while self._maybe("}") is None:
            name = self._next()
            self._maybe(":")
            values[name] = self._number({})
            self._maybe(",")
        return values

    def _directive(self, layer: _MaestroLayer) -> None:
        word = self._next()
        if word not in ("TemporalMap", "SpatialMap", "Cluster"):
            raise self._no(f"{word!r} is none of TemporalMap, SpatialMap, Cluster", -1)
        self._expect("(")
        size = self._number(layer.sizes)
        self._expect(",")
        if word == "Cluster":
            self._next()
            layer.clusters.append(size)
            layer.levels.append([])
        else:
            self._number(layer.sizes)
        self._expect(")")
        if word != "Cluster":
            layer.levels[-1].append(_Directive(word == "SpatialMap", size, self._next()))
        self._expect(";")

    def _number(self, sizes: Mapping[str, int]) -> int:
        """A number, a constant, or the size of a dimension, `Sz(R)`; or a sum of them, `8+Sz(R)-1`."""
        first, value = self.at, self._term(sizes)
        while self._peek() in ("+", "-"):
            value += self._term(sizes) if self._next() == "+" else -self._term(sizes)
        if value < 1:
            text = "".join(word for _, word in self.words[first : self.at])
            raise self._no(f"{shortened(text)!r} is {value}; a size is above 0", -1)
        return value

    def _term(self, sizes: Mapping[str, int]) -> int:
        word = self._next()
        if word == "Sz":
            self._expect("(")
            name = self._next()
            self._expect(")")
            value = sizes.get(name)
        else:
            name, value = word, whole_number(word) or self.constants.get(word)
        if not value:
            raise self._no(f"{shortened(name)!r} is no number above 0, constant, or dimension of the layer", -1)
        return value

    def _peek(self) -> str:
        return self.words[self.at][1] if self.at < len(self.words) else ""

    def _next(self) -> str:
        if self.at >= len(self.words):
            raise ImportFileError(f"{self.path}: ends too early; it must be {_WHAT}: was it cut?")
        self.at += 1
        return self.words[self.at - 1][1]

    def _maybe(self, word: str) -> str | None:
        return self._next() if self._peek() == word else None

    def _expect(self, word: str) -> None:
        if (have := self._next()) != word:
            raise self._no(f"{have!r} stands where {word!r} must", -1)

    def _no(self, why: str, back: int) -> ImportFileError:
        line = self.words[self.at + back][0]
        return ImportFileError(f"{self.path}:{line}: {why}; it must be {_WHAT}")


def read(path: Path, shape: ConvShape | None) -> ToolLayer:
    """The layer of a file, of several the one that `shape` names, or else the only one of its sizes. Raises
    ImportFileError, MappingError, OSError."""
    layers = _layers(path)
    return _read(path, layers, _number(path, layers, shape) if len(layers) > 1 else 0, shape)


def read_named(path: Path, name: str) -> ToolLayer | None:
    """The layer of that name in a file, without padding; None if there is none. Raises ImportFileError, MappingError,
    OSError."""
    layers = _layers(path)
    named = [number for number, layer in enumerate(layers) if layer.name == name]
    if len(named) > 1:
        raise ImportFileError(f"{path}: has {len(named)} layers with the name {name}; give each a name of its own")
    return _read(path, layers, named[0], None) if named else None


def _layers(path: Path) -> list[_MaestroLayer]:
    """All layers of a file. Raises ImportFileError, OSError."""
    if not (layers := _Reader(path).layers()):
        raise ImportFileError(f"{path}: has no Layer; it must be {_WHAT}")
    return layers


def _number(path: Path, layers: Sequence[_MaestroLayer], shape: ConvShape | None) -> int:
    """Which of several layers `shape` is. Raises ImportFileError."""
    if shape is not None:
        own = shape.name.rpartition("/")[2].lower()
        named = [number for number, layer in enumerate(layers) if layer.name.lower() == own]
        if len(named) == 1:
            return named[0]
        if len(alike := [number for number, layer in enumerate(layers) if _fits(path, layer, shape)]) == 1:
            return alike[0]
    names = ", ".join(layer.name for layer in layers[:6])
    raise ImportFileError(f"{path}: has {len(layers)} layers ({names}); name one of them with --workload")


def _fits(path: Path, layer: _MaestroLayer, shape: ConvShape) -> bool:
    """Whether a layer has these sizes."""
    try:
        _shape(path, layer, shape)
    except (ImportFileError, MappingError):
        return False
    return True


def _read(path: Path, layers: Sequence[_MaestroLayer], number: int, shape: ConvShape | None) -> ToolLayer:
    """One of the layers of a file. Raises ImportFileError, MappingError, OSError."""
    layer = layers[number]
    claim, pes = _beside(path, number, len(layers))
    try:
        shape = _shape(path, layer, shape)
        return ToolLayer(shape, _mapping(layer, sizes_of(shape), pes), claim)
    except MappingError as error:
        raise MappingError(f"{path}: layer {layer.name}: {error}") from None


def _shape(path: Path, layer: _MaestroLayer, shape: ConvShape | None) -> ConvShape:
    """The layer itself; a file has no padding. Raises ImportFileError, MappingError."""
    if layer.kind not in ("CONV", "GEMM"):
        raise MappingError(f"is of type {layer.kind}, which has no mapping here; CONV and GEMM have one")
    needed = "MNK" if layer.kind == "GEMM" else "KCRSYX"
    if missing := [name for name in needed if name not in layer.sizes]:
        raise MappingError(f"has no {missing[0]} among its Dimensions; give {', '.join(needed)}")
    s = layer.sizes
    if layer.kind == "GEMM":
        own = gemm_shape(f"gemm:{s['M']}x{s['N']}x{s['K']}", s["M"], s["N"], s["K"])
    else:
        stride = layer.strides.get("Y", 1), layer.strides.get("X", 1)
        own = ConvShape(layer.name, s.get("N", 1), s["C"], s["Y"], s["X"], s["K"], s["R"], s["S"], *stride)
        own = replace(own, name=describe(own))
    if shape is None:
        return own
    padded = shape.in_h + shape.pad_top + shape.pad_bottom, shape.in_w + shape.pad_left + shape.pad_right
    fits = (own.in_h, own.in_w) in ((shape.in_h, shape.in_w), padded)
    wrong = (
        sizes_of(own) if not fits else {d: n for d, n in sizes_of(own).items() if d not in (Dimension.OY, Dimension.OX)}
    )
    check_layer(path, shape, wrong)
    for name, count, stride in (("Y", shape.out_h, shape.stride_h), ("X", shape.out_w, shape.stride_w)):
        if layer.kind == "CONV" and count > 1 and layer.strides.get(name, 1) != stride:
            raise ImportFileError(
                f"{path}: is of another layer: Stride {name} = {layer.strides.get(name, 1)}, but {shape.name} has a "
                f"stride of {stride}; name its own with --workload"
            )
    return shape


def _tile(layer: _MaestroLayer, each: _Directive, inside: int) -> int:
    """How much of its own dimension, of which there is `inside`, a directive's tile covers."""
    size = each.size
    if each.name in _SLIDING and layer.kind == "CONV":
        kernel, stride = _SLIDING[each.name]
        reach = layer.sizes[kernel]
        size = max(1, (size - reach) // layer.strides.get(stride, 1) + 1)
    return min(size, inside)


def _mapping(layer: _MaestroLayer, sizes: Mapping[Dimension, int], pes: int) -> LayerMapping:
    """Raises MappingError."""
    dimensions = _GEMM if layer.kind == "GEMM" else _CONV
    inside, outside, array = dict(sizes), list[Factor](), list[Factor]()
    units = pes // prod(layer.clusters) if pes else 0
    for number, level in enumerate(layer.levels):
        if number:
            units = layer.clusters[number - 1]
        spatial = [each.name for each in level if each.spatial]
        if len(spatial) > 1:
            raise MappingError(
                f"{' and '.join(spatial)} are unrolled together over one level; unroll one at each level"
            )
        for each in level:
            dimension = dimensions.get(each.name)
            if dimension is None:
                raise MappingError(f"{each.name!r} is no dimension of a {layer.kind}: {', '.join(dimensions)}")
            have, tile = inside[dimension], _tile(layer, each, inside[dimension])
            side = 1
            if each.spatial:
                if not units:
                    raise MappingError(f"over how many PEs {each.name} goes is not said; write num_pes: N to NAME.hw")
                side = min(units, ceil(have / tile))
                array.append(Factor(dimension, side))
            if not number:
                outside.insert(0, Factor(dimension, ceil(have / (tile * side))))
            inside[dimension] = tile
    return _nest(sizes, [factor for factor in outside if factor.size > 1], [f for f in array if f.size > 1])


def _nest(sizes: Mapping[Dimension, int], outside: Sequence[Factor], array: Sequence[Factor]) -> LayerMapping:
    """The mapping with these loops outside the core, innermost first, and all else in it. Raises MappingError."""
    within: list[Factor] = []
    for dimension in _INSIDE:
        beside = prod(f.size for f in array if f.dimension is dimension)
        turns = prod(f.size for f in outside if f.dimension is dimension)
        within.append(Factor(dimension, ceil(ceil(sizes[dimension] / beside) / turns)))
    summed = max((number + 1 for number, f in enumerate(outside) if f.dimension in REDUCTIONS), default=0)
    levels = {
        operand: [
            Level("L2", MemoryPlace.CORE, (*within, *outside[:stays])),
            Level("DRAM", MemoryPlace.DRAM, tuple(outside[stays:])),
        ]
        for operand, stays in ((Operand.INPUT, 0), (Operand.WEIGHT, 0), (Operand.OUTPUT, summed))
    }
    return LayerMapping(sizes, levels, array=array)


def _beside(path: Path, number: int, layers: int) -> tuple[ToolClaim, int]:
    """What MAESTRO says of a layer, if its table lies beside the file, and how many PEs there are (0: unknown). Raises
    ImportFileError, OSError."""
    hardware, table = path.with_suffix(".hw"), path.with_suffix(".csv")
    pes = 0
    if hardware.is_file():
        match = re.search(r"(?:num_pes|NumPEs)\s*:\s*(\d{1,6})", text_of(hardware))
        if match is None:
            raise ImportFileError(f"{hardware}: does not say num_pes: N")
        pes = int(match[1])
    if not table.is_file():
        return ToolClaim(tool=TOOL), pes
    try:
        head, *cells = [row for row in parse_csv(text_of(table)) if row] or [[]]
    except ValueError as error:
        raise ImportFileError(f"{table}: {error}") from error
    rows = [dict(zip(head, row, strict=False)) for row in cells]
    if len(rows) != layers:
        raise ImportFileError(
            f"{table}: has {len(rows)} rows for {layers} layers of {path.name}; let MAESTRO write it anew"
        )
    try:
        cycles = round(float(rows[number]["Runtime (Cycles)"]))
    except (KeyError, ValueError, OverflowError):
        raise ImportFileError(f"{table}: row {number + 1} has no Runtime (Cycles); let MAESTRO write it anew") from None
    return ToolClaim(tool=TOOL, cycles=cycles), pes


MAESTRO = Importer("maestro", "a layer's data-flow directives by MAESTRO (.m)", read, named=read_named)
