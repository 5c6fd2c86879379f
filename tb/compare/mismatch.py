"""The first wrong byte of a run: its position in its tensor, and the instructions that made it.

A wrong word is traced back through the schedule by data flow: the last MOVE that wrote it to DRAM, the MOVE that
brought it to where that one read it, and so on to the GEMM or VEC that computed it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Opcode, split_address
from meshloom.sched.ir.hazards import unit_of
from meshloom.sched.ir.schedule import Move, Operation, Schedule, Span, Tensor, writes
from meshloom.sched.program.names import tile_name
from meshloom.sched.program.program import Program, Stream
from meshloom.sched.workload.layout import ActivationLayout

from ..devices.interface import FILL
from ..devices.observe import Mismatch, Observed, maker
from ..devices.readout import Record
from ..results.figures import Maker, WrongByte
from .records import InstructionPlace, Match, numbered

Words = NDArray[np.uint8]


class _Word(NamedTuple):
    """A word of a memory; `offset` in words of P bytes."""

    tile: int
    region: int
    offset: int


def in_dram(
    tensor: Tensor, expected: Words, got: Words, makers: Makers, chip: ChipConfig,
    channels: Sequence[int] | None = None,
) -> WrongByte | None:  # fmt: skip
    """The first wrong byte of an output in the order of its packed form, `expected` and `got` uint8 [words, P]; None
    if all are right. `channels`: the channel of each lane of each block, -1 if it has none; by default they are
    numbered consecutively."""
    wrong = expected != got
    if not wrong.any():
        return None
    word, lane = (int(at) for at in np.unravel_index(int(wrong.argmax()), wrong.shape))
    piece = next(piece for piece in tensor.pieces if piece.first <= word < piece.first + piece.words)
    region, offset = split_address(piece.address)
    at = _Word(piece.tile, region, offset + word - piece.first)
    assert isinstance(tensor.layout, ActivationLayout), "outputs are activations"
    image, channel, row, column = tensor.layout.coordinates(word, lane)
    if channels is not None and channel is not None:
        channel = int(channels[channel]) if channels[channel] >= 0 else None
    return WrongByte(
        tensor=tensor.name,
        image=image,
        channel=channel,
        row=row,
        column=column,
        lane=lane,
        expected=int(np.int8(expected[word, lane])),
        found=int(np.int8(got[word, lane])),
        count=int(np.count_nonzero(wrong)),
        tile=at.tile,
        address=at.offset,
        unwritten=bool((got[word] == FILL).all()),
        makers=tuple(makers.maker(number) for number in _back(makers.schedule.operations, at, chip)),
    )


def computed(
    mismatch: Mismatch, right: Words, observed: Observed, schedule: Schedule, program: Program, match: Match,
    chip: ChipConfig,
) -> Maker | None:  # fmt: skip
    """The operation that computed the first wrong byte of a tensor (`observe.compare_values`); `right`: its golden
    words, uint8 [planes, rows, columns, P]. None if there is none."""
    number = maker(schedule, observed, chip, mismatch, right[mismatch.plane, mismatch.row, mismatch.column])
    return None if number is None else Makers(schedule, program, match).maker(number)


def described(wrong: WrongByte, chip: ChipConfig) -> str:
    """A wrong byte in one line, with its makers in chronological order."""
    channel = "no channel" if wrong.channel is None else f"channel {wrong.channel}"
    image = f"image {wrong.image}, " if wrong.image else ""
    text = (
        f"{wrong.tensor}: {wrong.count} wrong bytes, first in {image}{channel}, row {wrong.row}, column "
        f"{wrong.column}: is {wrong.found}, must be {wrong.expected} ({tile_name(chip, wrong.tile)} word "
        f"{wrong.address}, lane {wrong.lane})"
    )
    if wrong.unwritten:
        text += "; nothing has been written there"
    if not wrong.makers:
        return f"{text}; no operation of the schedule writes it"
    return f"{text}; {', '.join(made_by(one, chip) for one in reversed(wrong.makers))}"


def made_by(one: Maker, chip: ChipConfig) -> str:
    """`computed by GEMM 'conv 0,0' (core@(1,0) matrix stream [17], cycles 210..236)`."""
    what = "moved by" if one.opcode == Opcode.MOVE.name else "computed by"
    where = f"{tile_name(chip, one.tile)} {one.unit} stream [{one.index}]"
    if one.executed_by != one.tile:
        where += f", executed by {tile_name(chip, one.executed_by)}"
    when = "without a record" if one.start is None else f"cycles {one.start}..{one.end}"
    return f"{what} {one.opcode} {one.label!r} ({where}, {when})"


def _back(operations: Sequence[Operation], word: _Word, chip: ChipConfig) -> Iterator[int]:
    """The operations through which a word passed, last first: MOVEs, then what computed it. Ends if none wrote it."""
    for number in range(len(operations) - 1, -1, -1):
        op = operations[number]
        if isinstance(op, Move):
            region, _ = split_address(op.dst.address)
            there = word.tile in op.receivers(chip) and region == word.region
            if not there or (index := _index(op.dst, op.words, word.offset)) is None:
                continue
            yield number
            region, offset = split_address(op.src.address)
            word = _Word(op.src.tile, region, offset + index // op.src.run * op.src.stride + index % op.src.run)
            continue
        (access,) = writes(op, chip)
        if access[:2] == word[:2] and any(start <= word.offset < stop for start, stop in access.intervals):
            yield number
            return


def _index(span: Span, words: int, offset: int) -> int | None:
    """Which of the first `words` words of a span is at an offset: the last one if several are, None if none is."""
    ahead = offset - split_address(span.address)[1]
    last = -(-words // span.run) - 1
    for run in range(min(last, ahead // span.stride) if span.stride else last, -1, -1):
        index = ahead - run * span.stride
        if not 0 <= index < span.run:
            return None  # runs before this one end even earlier
        if run * span.run + index < words:
            return run * span.run + index
    return None


class Makers:
    """The operations of a run as instructions of its program, with their times."""

    def __init__(self, schedule: Schedule, program: Program, match: Match) -> None:
        self.schedule, self._program, self._match = schedule, program, match

    @cached_property  # usually nothing is wrong, and it is not needed
    def _places(self) -> dict[int, tuple[Stream, int]]:
        streams = {(stream.tile, stream.unit): stream for stream in self._program.streams}
        return {
            operation: (streams[tile, unit], index)
            for (tile, unit, index), operation in numbered(self._program, self.schedule).items()
        }

    def _record(self, operation: Operation, stream: Stream, index: int) -> Record | None:
        """The chip's record of it."""
        instruction = stream.instructions[index]
        tile = operation.src.tile if isinstance(operation, Move) else operation.core
        if self._program.ahead:  # tags are unique
            values = tile, unit_of(operation), instruction.opcode, instruction.fields["tag"]
            measured = (pair.measured for pair in self._match.pairs)
            return next((one for one in measured if (one.tile, one.unit, one.opcode, one.tag) == values), None)
        place = InstructionPlace(
            stream.tile, stream.unit, index, instruction.opcode is Opcode.MOVE and tile != stream.tile
        )
        return next((pair.measured for pair in self._match.pairs if pair.place == place), None)

    def maker(self, operation: int) -> Maker:
        """The instruction of an operation, with its times."""
        op = self.schedule.operations[operation]
        stream, index = self._places[operation]
        instruction = stream.instructions[index]
        tile = op.src.tile if isinstance(op, Move) else op.core
        record = self._record(op, stream, index)
        return Maker(
            operation=operation,
            label=op.label,
            opcode=instruction.opcode.name,
            tile=stream.tile,
            unit=stream.unit.name.lower(),
            index=index,
            executed_by=tile,
            start=record.start if record else None,
            end=record.end if record else None,
        )
