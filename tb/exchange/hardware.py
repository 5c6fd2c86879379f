"""A chip of ours for the hardware that another tool describes, and what of that could not be carried over."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from math import ceil, isqrt
from pathlib import Path

from pydantic import ValidationError

from meshloom.hw.spec.config import MOST_LANES, OFFSET_BITS, ChipConfig, CoreConfig, DramConfig, built_in_chips
from meshloom.sched.schedulers.nest.schedule import BIAS_PART

from .interface import ImportFileError

#: Words of a core's memories at most: A and B; ACC and OUT.
_MOST_OPERANDS, _MOST_SUMS = 1 << 16, 1 << 14
#: Bytes of a sum, and the fewest lanes of a chip.
SUM_BYTES, _FEWEST_LANES = 4, 4
#: What no tool's file has, and a chip does.
_OURS = (
    "the NoC, the host and the layout are ours: cores in a grid, DRAM channels at its sides",
    "DRAM latency, the vector unit and instruction memories are those of any chip of ours",
)


@dataclass
class ToolHardware:
    """Hardware by a tool's file. `rows`, `cols`: of a core's array; `inputs`, `weights`, `sums`, `results`: bytes that
    a core has of A, B, ACC (what biases take comes on top) and OUT, `dram`: of all channels, `bandwidth`: bytes of DRAM
    a cycle (None: the file does not say); `left`: what is not carried over."""

    name: str
    rows: int
    cols: int
    cores: int
    inputs: int | None = None
    weights: int | None = None
    sums: int | None = None
    results: int | None = None
    dram: int | None = None
    bandwidth: int | None = None
    left: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class ImportedChip:
    """A chip, and what of a tool's file could not be carried over, or is ours."""

    chip: ChipConfig
    left: tuple[str, ...]


@dataclass(frozen=True)
class ChipImporter:
    """A reader of a tool's hardware files. `reader`: a function of a path that returns the hardware, or
    `module:function`; it raises ImportFileError and OSError. `summary`: one line for lists."""

    name: str
    summary: str
    reader: Callable[[Path], ToolHardware] | str

    def read(self, path: Path, name: str | None = None) -> ImportedChip:
        """The chip of a file, called `name`. Raises ImportFileError, OSError."""
        reader = self.reader
        if isinstance(reader, str):
            module, _, function = reader.partition(":")
            reader = getattr(import_module(module), function)
        return chip_of(reader(path), path, self.name, name)


def chip_of(hardware: ToolHardware, path: Path, tool: str, name: str | None = None) -> ImportedChip:
    """The chip that is nearest to hardware. Raises ImportFileError for what no chip can be."""
    wide = max(hardware.rows, hardware.cols)
    if wide > MOST_LANES:
        raise ImportFileError(
            f"{path}: its array has {hardware.rows} rows and {hardware.cols} columns; up to {MOST_LANES} are built: "
            "give several cores a part each"
        )
    lanes, left = max(_FEWEST_LANES, 1 << (wide - 1).bit_length()), [*hardware.left]
    core, dram = CoreConfig(), DramConfig()
    channels, bandwidth = _channels(hardware.bandwidth, lanes, dram.bytes_per_cycle, left)
    own = None if hardware.dram is None else hardware.dram // channels
    values = {
        "name": name or _name(hardware.name, tool),
        "lanes": lanes,
        "rows": hardware.rows,
        "cols": hardware.cols,
        "floorplan": floorplan(hardware.cores, channels),
        "trace_records": 32768,
        "core": {
            "a_words": _words("A", hardware.inputs, lanes, core.a_words, _MOST_OPERANDS, left),
            "b_words": _words("B", hardware.weights, lanes, core.b_words, _MOST_OPERANDS, left),
            "acc_words": _acc_words(hardware, core.acc_words, left),
            "out_words": _words("OUT", hardware.results, lanes, core.out_words, _MOST_SUMS, left),
        },
        "dram": {
            "bytes_per_cycle": bandwidth,
            "words": _words("a DRAM channel", own, lanes, dram.words, 1 << OFFSET_BITS, left),
        },
    }
    try:
        chip = ChipConfig.model_validate(values)
    except ValidationError as error:
        why = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ImportFileError(f"{path}: no chip is like it: {why}") from None
    return ImportedChip(chip, (*left, *_OURS))


def _words(what: str, count: int | None, each: int, default: int, most: int, left: list[str]) -> int:
    """Words of `each` bytes of a memory of `count` bytes."""
    if count is None:
        left.append(f"{what}: the file does not say how large it is; {default:,} words as in any chip of ours")
        return default
    if not 1 <= count // each <= most:
        left.append(f"{what}: {count:,} bytes are not 1 to {most:,} words of {each} bytes; the nearest is built")
    elif count % each:
        left.append(f"{what}: {count % each} of {count:,} bytes, which fill no word of {each}")
    return min(most, max(1, count // each))


def _acc_words(hardware: ToolHardware, default: int, left: list[str]) -> int:
    """Words of ACC: those of sums, and as many more as biases may take."""
    if hardware.sums is None:
        return _words("ACC", None, 1, default, _MOST_SUMS, left)
    return min(_MOST_SUMS, _with_biases(_words("ACC", hardware.sums, SUM_BYTES * hardware.cols, 1, _MOST_SUMS, left)))


def _with_biases(sums: int) -> int:
    """The most words of ACC of which so many are left for sums."""
    total = sums
    while total + 1 - (total + 1) // BIAS_PART <= sums:
        total += 1
    return total


def _channels(bandwidth: int | None, lanes: int, default: int, left: list[str]) -> tuple[int, int]:
    """The fewest DRAM channels that have a bandwidth together, and what each has."""
    if bandwidth is None:
        left.append(f"DRAM: the file does not say its bandwidth; {default} bytes a cycle")
        return 1, default
    channels = ceil(bandwidth / lanes)
    if channels > 8:
        left.append(f"DRAM: {bandwidth:,} bytes a cycle; 8 channels of {lanes} are built")
        return 8, lanes
    if bandwidth % channels:
        left.append(
            f"DRAM: {bandwidth % channels} of {bandwidth:,} bytes a cycle, which {channels} channels do not share"
        )
    return channels, bandwidth // channels


def floorplan(cores: int, channels: int) -> list[str]:
    """Rows of a mesh: cores in a grid, DRAM channels and the host at its sides, and below it if there are more."""
    width = isqrt(cores - 1) + 1
    height = ceil(cores / width)
    kinds = ["core"] * cores + ["."] * (width * height - cores)
    edge = ["dram"] * channels + ["host"]
    rows = [kinds[row * width : (row + 1) * width] for row in range(height)]
    for row in rows:
        row.insert(0, edge.pop(0) if edge else ".")
    if edge:
        for row in rows:
            row.append(edge.pop(0) if edge else ".")
    while edge:
        rows.append([edge.pop(0) if edge else "." for _ in rows[0]])
    return [" ".join(row) for row in rows]


def _name(name: str, tool: str) -> str:
    """A name that a chip may have, and that is no built-in one's."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    plain = (plain if plain[:1].isalpha() else f"chip_{plain}")[:30]
    return f"{plain}_{tool}" if plain in built_in_chips() else plain


def toml(chip: ChipConfig, origin: str) -> str:
    """A chip as its file. `origin`: what it was made from."""
    core, dram = chip.core, chip.dram
    plan = ",\n             ".join(f'"{" ".join(row)}"' for row in chip.floorplan)
    return "\n".join(
        [
            f"# {origin}", f'name = "{chip.name}"', f"lanes = {chip.lanes}", f"rows = {chip.rows}",
            f"cols = {chip.cols}", f"trace_records = {chip.trace_records}  # enough for whole networks",
            f"floorplan = [{plan}]", "[core]", f"a_words = {core.a_words}", f"b_words = {core.b_words}",
            f"acc_words = {core.acc_words}", f"out_words = {core.out_words}", "[dram]",
            f"bytes_per_cycle = {dram.bytes_per_cycle}", f"words = {dram.words}", "",
        ]
    )  # fmt: skip
