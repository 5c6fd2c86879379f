"""SCALE-Sim (Samajdar et al., ISPASS 2020; version 3): a topology with its configuration, and the reports of a run.

SCALE-Sim has no mapping file: its mapping is the dataflow. With sums in the array (`os`) it folds pixels over rows and
output channels over columns, and walks all folds of pixels before the next ones of channels. Half of each memory holds
what is used now. `FILE` is the topology; beside it lie one `.cfg` and, in a folder of that run's name, its reports.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field

from meshloom.hw.spec.exact import Exact
from meshloom.sched.ir.schedule import ToolClaim
from meshloom.sched.schedulers.nest.mapping import Dimension, Factor, LayerMapping, Level, MemoryPlace, Operand
from meshloom.sched.schedulers.nest.schedule import sizes_of
from meshloom.sched.support.reading import parse_csv
from meshloom.sched.support.text import shortened, whole_number
from meshloom.sched.workload import shapes
from meshloom.sched.workload.layers import ConvShape, WorkloadError

from .interface import Importer, ImportFileError, ToolLayer, check_layer, text_of, validated

TOOL = "scalesim"
#: The reports of a run, and their columns: cycles (a run of version 2 has no prefetch), and bytes from and to DRAM.
CYCLES, BYTES = "COMPUTE_REPORT.csv", "DETAILED_ACCESS_REPORT.csv"
_CYCLES = "Total Cycles (incl. prefetch)", "Total Cycles"
_BYTES = "DRAM IFMAP Reads", "DRAM Filter Reads", "DRAM OFMAP Writes"
#: Columns of a layer after its name: a convolution's, and those of a product of matrices.
_CONVOLUTION = "IFMAP height, IFMAP width, filter height, filter width, channels, filters, stride"
_PRODUCT = "M, N, K"
#: Names of layers in an error, at most.
_SHOWN = 8
#: How large the memories are, by their names in a configuration.
_MEMORIES = "IfmapSramSzkB", "FilterSramSzkB", "OfmapSramSzkB"
#: Bytes of a kB that hold what is used now; the other half is for what comes next.
_ACTIVE = 512


class _General(Exact):
    run_name: str


class _Architecture(Exact):
    arrayheight: int = Field(gt=0)
    arraywidth: int = Field(gt=0)
    ifmapsramszkb: int = Field(gt=0)
    dataflow: str


class _Sparsity(Exact):
    sparsitysupport: str = "false"


class _Configuration(Exact):
    """What is needed of the `.cfg`; its keys have no capitals."""

    general: _General
    architecture_presets: _Architecture
    sparsity: _Sparsity = _Sparsity()


def read(path: Path, shape: ConvShape | None) -> ToolLayer:
    """The layer of a topology of one layer, or the one of `shape`. Raises ImportFileError, OSError."""
    config_path = _configuration_of(path)
    config = _configuration(config_path)
    dataflow = config.architecture_presets.dataflow
    if dataflow != "os":
        raise ImportFileError(
            f"{config_path}: Dataflow = {dataflow} keeps weights or inputs in the array, where ours keeps sums; run "
            "SCALE-Sim with Dataflow = os"
        )
    if config.sparsity.sparsitysupport.lower() == "true":
        raise ImportFileError(f"{config_path}: SparsitySupport = True, but layers here are dense; run it with False")
    layers = _layers(path)
    number = _number(path, [row[0] for row in _table(path)], layers, shape)
    own = shape or layers[number]
    check_layer(path, own, sizes_of(layers[number]))
    folder = path.parent / config.general.run_name
    return ToolLayer(own, _mapping(own, config.architecture_presets), _claim(folder, number, len(layers), config))


SCALESIM = Importer("scalesim", "a layer of a topology by SCALE-Sim, output stationary (.csv beside a .cfg)", read)


def _configuration_of(path: Path) -> Path:
    """The only `.cfg` beside a topology. Raises ImportFileError, OSError."""
    path.stat()
    files = sorted(path.parent.glob("*.cfg"))
    if len(files) != 1:
        names = ", ".join(file.name for file in files) or "none"
        raise ImportFileError(f"{path}: needs the .cfg of its run beside it, alone; there is {names}")
    return files[0]


def _configuration(path: Path) -> _Configuration:
    """Raises ImportFileError, OSError."""
    parser = configparser.ConfigParser(interpolation=None)
    what = "a configuration of SCALE-Sim: sections general, architecture_presets"
    text = text_of(path)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ImportFileError(f"{path}: {' '.join(str(error).split())}; it must be {what}") from error
    values = {
        name: {key: value if (number := whole_number(value)) is None else number for key, value in section.items()}
        for name, section in parser.items()
    }
    values.setdefault("general", {})["run_name"] = parser.get("general", "run_name", fallback="scale_run")
    for name in _MEMORIES:
        if (size := values.get("architecture_presets", {}).get(name.lower())) == 0:
            lines = [line.partition("=")[0].strip().lower() for line in text.splitlines()]
            raise ImportFileError(
                f"{path}:{lines.index(name.lower()) + 1}: {name} = {size}: nothing fits into that memory; give it the "
                "kB with which SCALE-Sim ran"
            )
    return validated(_Configuration, values, path, what)


def _table(path: Path) -> list[list[str]]:
    """Rows of a CSV file, which end with a comma, without its head. Raises ImportFileError, OSError."""
    try:
        rows = [row for row in parse_csv(text_of(path)) if any(row)]
    except ValueError as error:
        raise ImportFileError(f"{path}: {error}") from error
    return [row[:-1] if row[-1] == "" else row for row in rows[1:]]


def _layers(path: Path) -> list[ConvShape]:
    """The layers of a topology. Raises ImportFileError, OSError."""
    rows = _table(path)
    if not rows:
        raise ImportFileError(f"{path}: has no layer; a topology is a line of names, then one for each layer")
    return [_layer(path, row) for row in rows]


def _layer(path: Path, row: Sequence[str]) -> ConvShape:
    name, *cells = row
    if cells and ":" in cells[-1]:
        ratio = cells.pop()
        if len(set(ratio.split(":"))) > 1:
            raise ImportFileError(f"{path}: layer {name}: sparsity {ratio}: layers here are dense, 1:1")
    sizes = [size for cell in cells if (size := whole_number(cell)) is not None]
    if len(sizes) != len(cells) or len(cells) not in (3, 7):
        raise ImportFileError(
            f"{path}: layer {name}: {shortened(', '.join(cells))} is neither {_CONVOLUTION} nor {_PRODUCT}; was it cut?"
        )
    if "DP" in name:
        raise ImportFileError(f"{path}: layer {name} is channel by channel (DP); import layers that sum over channels")
    try:
        if len(sizes) == 3:
            return shapes.parse(f"gemm:{sizes[0]}x{sizes[1]}x{sizes[2]}")
        height, width, rows, columns, channels, filters, stride = sizes
        below, right = (-(size - kernel) % max(1, stride) for size, kernel in ((height, rows), (width, columns)))
        return shapes.parse(
            f"conv:{height}x{width}x{channels}-{filters},k{rows}x{columns},s{stride},p0x0x{below}x{right}"
        )
    except WorkloadError as error:
        raise ImportFileError(f"{path}: layer {name}: {error}") from error


def _number(path: Path, names: Sequence[str], layers: Sequence[ConvShape], shape: ConvShape | None) -> int:
    """Which layer it is: of those of its sizes the one of its name, or else the first. Raises ImportFileError."""
    if len(layers) == 1:
        return 0
    if shape is None:
        raise ImportFileError(f"{path}: has {len(layers)} layers; name one with --workload: {_some(names)}")
    alike = [
        number
        for number, layer in enumerate(layers)
        if sizes_of(layer) == sizes_of(shape) and layer.stride_h == shape.stride_h
    ]
    if not alike:
        raise ImportFileError(
            f"{path}: none of its {len(layers)} layers is like {shape.name}; name one with --workload: {_some(names)}"
        )
    own = shape.name.removeprefix(f"{path.as_posix()}/")
    return next((number for number in alike if names[number] == own), alike[0])


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _mapping(shape: ConvShape, array: _Architecture) -> LayerMapping:
    """The dataflow as loops. Pixels are in the core as many at once as half of the memory of inputs holds."""
    sizes = sizes_of(shape)
    columns = min(array.arraywidth, sizes[Dimension.K])
    rows, across = _tile(shape, _ACTIVE * array.ifmapsramszkb)
    window = [Factor(d, sizes[d]) for d in (Dimension.C, Dimension.FX, Dimension.FY)]
    within = [Factor(Dimension.OX, across), Factor(Dimension.OY, rows)]
    between = [
        Factor(Dimension.OX, shape.out_w // across),
        Factor(Dimension.OY, shape.out_h // rows),
        Factor(Dimension.B, shape.batch),
    ]
    outer = [Factor(Dimension.K, -(-sizes[Dimension.K] // columns))]
    all_loops = [*window, *within, *between, *outer]
    whole = (rows, across) == (shape.out_h, shape.out_w)
    stays = {
        Operand.INPUT: len(all_loops) if whole and shape.batch == 1 else len(window + within),
        Operand.WEIGHT: len(window + within + between),
        Operand.OUTPUT: len(window),
    }
    levels = {
        operand: [
            Level("SRAM", MemoryPlace.CORE, tuple(all_loops[:count])),
            Level("DRAM", MemoryPlace.DRAM, tuple(all_loops[count:])),
        ]
        for operand, count in stays.items()
    }
    return LayerMapping(sizes, levels, [Factor(Dimension.K, columns)], tells_array=False)  # rows are folds of pixels


def _tile(shape: ConvShape, most: int) -> tuple[int, int]:
    """Rows and columns of output, whole fractions of all, of which the inputs are so many bytes at most."""

    def fits(rows: int, columns: int) -> bool:
        high = (rows - 1) * shape.stride_h + (shape.kernel_h - 1) * shape.dilation + 1
        wide = (columns - 1) * shape.stride_w + (shape.kernel_w - 1) * shape.dilation + 1
        return high * wide * shape.in_channels <= most

    def largest(size: int, rows: bool) -> int:
        whole = (part for part in range(size, 0, -1) if size % part == 0)
        return next((part for part in whole if (fits(part, shape.out_w) if rows else fits(1, part))), 1)

    rows = largest(shape.out_h, True)
    return rows, shape.out_w if fits(rows, shape.out_w) else largest(shape.out_w, False)


def _claim(folder: Path, number: int, layers: int, config: _Configuration) -> ToolClaim:
    """What the reports say of a layer; nothing if there are none. Raises ImportFileError, OSError."""
    array = config.architecture_presets
    sizes = array.arrayheight, array.arraywidth
    cycles = _report(folder / CYCLES, number, layers, _CYCLES)
    some = _report(folder / BYTES, number, layers, _BYTES)
    claimed = next((cycles[name] for name in _CYCLES if name in cycles), None)
    total = sum(some.values()) if len(some) == len(_BYTES) else None
    return ToolClaim(tool=TOOL, cycles=claimed, dram_bytes=total, array=sizes)


def _report(path: Path, number: int, layers: int, names: Sequence[str]) -> Mapping[str, int]:
    """Columns of a layer's line; none without the file. Raises ImportFileError, OSError."""
    if not path.is_file():
        return {}
    head = [cell.strip() for cell in text_of(path).partition("\n")[0].split(",")]
    rows = _table(path)
    if len(rows) != layers:
        raise ImportFileError(f"{path}: is of {len(rows)} layers, its topology of {layers}; was it cut?")
    if not set(head) & set(names):
        raise ImportFileError(f"{path}: has no column {names[-1]!r}; give the reports of the run")
    row = dict(zip(head, rows[number], strict=False))
    try:
        return {name: round(float(row[name])) for name in names if name in head}
    except (KeyError, ValueError, OverflowError):
        raise ImportFileError(f"{path}: line {number + 2} has no number in {' or '.join(names)}; was it cut?") from None
