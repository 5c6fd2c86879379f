"""Names of tiles, streams, instructions and words in messages and listings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self

from meshloom.hw.spec.config import ChipConfig, TileKind, tile_position
from meshloom.hw.spec.isa import Opcode, Region, Unit, split_address

from ..support.text import one_line
from .program import Program, Stream


def tile_name(chip: ChipConfig, tile: int) -> str:
    """`core@(1,0)`; a tile outside the floorplan is `nothing@(9,9)`."""
    x, y = tile_position(tile)
    kind = chip.tiles.get(tile)
    return f"{kind.value if kind is not None else 'nothing'}@({x},{y})"


def region_name(region: int) -> str:
    """Name of a region number, `region 7` if it is unknown."""
    return Region(region).name if region in set(Region) else f"region {region}"


def address_name(address: int) -> str:
    """`B+0x40`: the region and the word offset of a 28-bit word address."""
    region, offset = split_address(address)
    return f"{region_name(region)}+{offset:#x}"


def unit_name(unit: int) -> str:
    """`mover`, `matrix`, ...; `unit 9` for an unknown number."""
    return Unit(unit).name.lower() if unit in set(Unit) else f"unit {unit}"


def opcode_name(opcode: int) -> str:
    """Mnemonic of an opcode, `opcode 9` if it is unknown."""
    return Opcode(opcode).name if opcode in set(Opcode) else f"opcode {opcode}"


def streams_of(program: Program) -> tuple[Stream, ...]:
    """All streams of a program; the boot stream is number 0."""
    return (program.boot, *program.streams)


#: Words of a row of ACC.
_ACC_ROW = 4


class ScheduleLike(Protocol):
    """The parts of a schedule that names are taken from: labels of operations, their lines, pieces of tensors."""

    @property
    def operations(self) -> Sequence[Any]: ...

    @property
    def tensors(self) -> Sequence[Any]: ...

    @property
    def sites(self) -> Sequence[str] | None: ...


class Names:
    """Names of the parts of one program. `labels[i]` is the schedule's label of operation i, `sites[i]` the line of its
    author's file that adds it (`Schedule.sites`); `tensors` are the schedule's."""

    def __init__(
        self, chip: ChipConfig, program: Program, labels: Sequence[str] = (), sites: Sequence[str] = (),
        tensors: Sequence[Any] = (),
    ) -> None:  # fmt: skip
        self.chip, self.labels, self.sites, self.tensors = chip, labels, sites, tensors
        self.streams = streams_of(program)
        self._program = program
        self._operations: dict[int, list[int | None]] = {}  # of each instruction of a stream

    @classmethod
    def of(cls, chip: ChipConfig, program: Program, schedule: ScheduleLike | None) -> Self:
        """Names of a program that implements a schedule, if that is known."""
        if schedule is None:
            return cls(chip, program)
        labels = tuple(operation.label for operation in schedule.operations)
        return cls(chip, program, labels, schedule.sites or (), schedule.tensors)

    def tile(self, tile: int) -> str:
        """See `tile_name`."""
        return tile_name(self.chip, tile)

    def stream(self, stream: int) -> str:
        """`core@(1,0) matrix stream`, or `boot stream`."""
        if stream == 0:
            return "boot stream"
        target = self.streams[stream]
        return f"{self.tile(target.tile)} {unit_name(target.unit)} stream"

    def operation(self, stream: int, position: int) -> int | None:
        """Index of an instruction's operation; None if lowering added the instruction."""
        if stream not in self._operations:
            self._operations[stream] = self._program.operations_of(self.streams[stream])
        return self._operations[stream][position]

    def instruction(self, stream: int, position: int) -> str:
        """`core@(1,0) matrix stream [17] GEMM tag 42 (operation 41 "conv1 0,0", line 12 of first.py)`."""
        instruction = self.streams[stream].instructions[position]
        tag = instruction.fields.get("tag", 0)
        text = f"{self.stream(stream)} [{position}] {opcode_name(instruction.opcode)} tag {tag}"
        operation = self.operation(stream, position)
        if operation is None:
            return text
        label = f' "{one_line(self.labels[operation])}"' if operation < len(self.labels) else ""
        site = one_line(self.sites[operation]) if operation < len(self.sites) else ""
        return f"{text} (operation {operation}{label}{', ' * bool(site)}{site})"

    def words(self, tile: int, region: int, begin: int, end: int) -> str:
        """`core@(1,0) B words 16..31` for the words [begin, end), `dram@(0,0) word 3` where there is one memory.

        The names are those that an author of a scheduler uses: operands are in A and B, and ACC has rows, each of four
        words, one for each bias or sum.
        """
        memory, unit = region_name(region), "word"
        if region == Region.MAIN:
            memory = "A" if self.chip.tiles.get(tile) is TileKind.CORE else ""
        if region == Region.ACC and begin % _ACC_ROW == end % _ACC_ROW == 0:
            begin, end, unit = begin // _ACC_ROW, end // _ACC_ROW, "row"
        what = f"{unit} {begin}" if end - begin == 1 else f"{unit}s {begin}..{end - 1}"
        return " ".join(filter(None, (self.tile(tile), memory, what)))

    def semaphore(self, tile: int, semaphore: int) -> str:
        """`semaphore 3 of core@(1,0)`."""
        return f"semaphore {semaphore} of {self.tile(tile)}"
