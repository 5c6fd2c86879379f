"""Every word that the cores compute, put back into the tensors that it belongs to, and compared.

The bench logs what matrix and vector units write to OUT and VEC (`Job.observe`). The units of a core execute in order,
so the k-th write to an address comes from the k-th operation of the schedule, in list order, whose result covers it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Region, VectorOp
from meshloom.sched.ir.schedule import Box, Gemm, Schedule, Vec, writes

Words = NDArray[np.uint8]
#: Memories whose writes are logged.
REGIONS = (Region.OUT, Region.VEC)


class ObserveError(ValueError):
    """A log that is not what the schedule says, or tensors that cannot be compared; the message names the place."""


class Written(NamedTuple):
    """What one unit of a core wrote, in the order of writing: `addresses` int32 [n] (words), `words` uint8 [n, P]."""

    addresses: NDArray[np.int32]
    words: Words


#: By core tile and memory (`REGIONS`).
Observed = dict[tuple[int, Region], Written]


def read_log(path: Path, chip: ChipConfig) -> Observed:
    """Reads a log of the bench (`bench` says how it looks); all cores and memories are there, if empty.

    Raises ObserveError when the log ends inside a record.
    """
    from ..build.bench import LOG_OFFSET_BITS

    record = np.dtype([("head", "<u4"), ("word", np.uint8, chip.lanes)])
    if path.stat().st_size % record.itemsize:
        size = path.stat().st_size
        raise ObserveError(f"{path}: {size} bytes are not a whole number of {record.itemsize}-byte records")
    log = np.fromfile(path, record)
    heads = log["head"]
    source = heads >> LOG_OFFSET_BITS
    writtens: Observed = {}
    for core, tile in enumerate(chip.cores):
        for region in REGIONS:
            mine = np.flatnonzero(source == (core << (24 - LOG_OFFSET_BITS) | region))
            offsets = heads[mine] & ((1 << LOG_OFFSET_BITS) - 1)
            writtens[tile, region] = Written(offsets.astype(np.int32), log["word"][mine])
    return writtens


@dataclass
class Values:
    """What is known of a tensor: `words` uint8 [planes, rows, columns, P], and which of them were computed, `covered`
    bool [planes, rows, columns]. Sizes are those that the results span.

    Words can be computed more than once (tiles that overlap): `words` has the first value, `others` the values that
    differ from it, by (plane, row, column).
    """

    words: Words
    covered: NDArray[np.bool_]
    others: dict[tuple[int, int, int], list[Words]] = field(default_factory=dict[tuple[int, int, int], list[Words]])


@dataclass(frozen=True)
class Mismatch:
    """A tensor that is wrong. First wrong byte in the order [plane][row][column][lane], what it must be and what it is
    (None: that word was never computed), as unsigned bytes; `count`: wrong bytes of the tensor, those of words that
    were never computed included."""

    tensor: str
    plane: int
    row: int
    column: int
    lane: int
    expected: int
    got: int | None
    count: int

    def __str__(self) -> str:
        got = "never computed" if self.got is None else f"is {np.int8(np.uint8(self.got))}"
        return (
            f"{self.tensor}: {self.count} wrong bytes, first in plane {self.plane}, row {self.row}, column "
            f"{self.column}, lane {self.lane}: {got}, must be {np.int8(np.uint8(self.expected))}"
        )


def planes(array: NDArray[np.int8], lanes: int, block: int = 0) -> Words:
    """int8 [1, channels, height, width] as words uint8 [planes, height, width, P], `block` channels (0: P) to a plane;
    lanes that hold no channel are zero."""
    _, channels, height, width = array.shape
    block = block or lanes
    count = -(-channels // block)
    full = np.zeros((count * block, height, width), np.int8)
    full[:channels] = array[0]
    words = np.zeros((count, height, width, lanes), np.int8)
    words[..., :block] = full.reshape(count, block, height, width).transpose(0, 2, 3, 1)
    return words.view(np.uint8)


def values(schedule: Schedule, observed: Observed, chip: ChipConfig) -> dict[str, Values]:
    """The tensors that the operations' results (`Gemm.result`, `Vec.result`) are parts of, by name.

    Raises ObserveError when a core wrote more or fewer words, or to other addresses, than the schedule says, or when a
    result's box is not as large as what its operation writes.
    """
    results = _results(schedule, chip)
    boxes = [(op.result, op) for group in results.values() for op in group if op.result is not None]
    result: dict[str, Values] = {}
    for name in dict.fromkeys(box.tensor for box, _ in boxes):
        mine = [box for box, _ in boxes if box.tensor == name]
        size = (
            max(box.plane + box.planes for box in mine),
            max(box.row + box.rows for box in mine),
            max(box.column + box.columns for box in mine),
        )
        result[name] = Values(np.zeros((*size, chip.lanes), np.uint8), np.zeros(size, bool))
    for tile, region in results.keys() - observed.keys():
        raise ObserveError(
            f"core {chip.cores.index(tile)} (tile {tile:#04x}) was not observed, but {region.name} is written; run the "
            "job with observe=True"
        )
    for (tile, region), log in observed.items():
        for op, words in _assign(results.get((tile, region), []), log, tile, region, chip):
            if op.result is not None:
                _place(result[op.result.tensor], op.result, _shaped(op.result, words, op))
    return result


def maker(schedule: Schedule, observed: Observed, chip: ChipConfig, wrong: Mismatch, right: Words) -> int | None:
    """The first operation, in list order, that computed the word of a mismatch as it must not be; `right`: what it must
    be, uint8 [P]. None if nobody computed it. Raises as `values` does."""
    results = _results(schedule, chip)
    numbers = {id(op): number for number, op in enumerate(schedule.operations)}
    result: list[int] = []
    for (tile, region), log in observed.items():
        for op, words in _assign(results.get((tile, region), []), log, tile, region, chip):
            box = op.result
            if box is None or box.tensor != wrong.tensor:
                continue
            plane, row, column = wrong.plane - box.plane, wrong.row - box.row, wrong.column - box.column
            if 0 <= plane < box.planes and 0 <= row < box.rows and 0 <= column < box.columns:
                word = _shaped(box, words, op)[plane, row, column]
                if not np.array_equal(word, right):
                    result.append(numbers[id(op)])
    return min(result, default=None)


def _results(schedule: Schedule, chip: ChipConfig) -> dict[tuple[int, Region], list[Gemm | Vec]]:
    """Operations with logged results by core and memory, in list order."""
    gemms: dict[tuple[int, Region], list[Gemm | Vec]] = {}
    for op in schedule.operations:
        if isinstance(op, Gemm | Vec):
            (access,) = writes(op, chip)
            if access.region in REGIONS:
                gemms.setdefault((access.tile, access.region), []).append(op)
            elif op.result is not None:
                raise ObserveError(f"{op.label!r} has a result but writes to {access.region.name}, which is not logged")
    return gemms


def _assign(
    operations: Sequence[Gemm | Vec], log: Written, tile: int, region: Region, chip: ChipConfig
) -> list[tuple[Gemm | Vec, Words]]:
    """Each operation with the words that it wrote, in the order of its destination."""
    ranges = [writes(op, chip)[0].intervals[0] for op in operations]
    sizes = np.array([stop - start for start, stop in ranges], np.int64)
    expected = (
        np.concatenate([np.arange(start, stop, dtype=np.int32) for start, stop in ranges])
        if ranges
        else np.zeros(0, np.int32)
    )
    # Sorted by address, and by turn among equals, both lists must be the same.
    array, got = np.argsort(expected, kind="stable"), np.argsort(log.addresses, kind="stable")
    if not np.array_equal(expected[array], log.addresses[got]):
        owner = np.repeat(np.arange(len(operations)), sizes)
        raise ObserveError(_difference(operations, expected, owner, log.addresses, tile, region, chip))
    words = np.empty((len(expected), chip.lanes), np.uint8)
    words[array] = log.words[got]
    ends = np.cumsum(sizes)
    return [(op, words[end - size : end]) for op, end, size in zip(operations, ends, sizes, strict=True)]


def _difference(
    operations: Sequence[Gemm | Vec],
    expected: NDArray[np.int32],
    owner: NDArray[np.int64],
    got: NDArray[np.int32],
    tile: int,
    region: Region,
    chip: ChipConfig,
) -> str:
    """Says where a log first differs from what is expected."""
    core = f"core {chip.cores.index(tile)} (tile {tile:#04x})"
    room = max(int(addresses.max(initial=-1)) for addresses in (expected, got)) + 1
    due, done = np.bincount(expected, minlength=room), np.bincount(got, minlength=room)
    if (due > done).any():
        turn = _turns(expected)
        at = int(np.flatnonzero(turn >= done[expected])[0])  # the first word, in list order, that was not written
        label = operations[int(owner[at])].label
        how = f"{done[expected[at]]} times, must be {due[expected[at]]}; first missing in operation {label!r}"
        return f"{core} wrote {region.name} word {expected[at]} {how}"
    at = int(np.flatnonzero(_turns(got) >= due[got])[0])
    owners = owner[expected == got[at]]
    last = f"last by operation {operations[int(owners[-1])].label!r}" if len(owners) else "no operation does"
    return f"{core} wrote {region.name} word {got[at]} {done[got[at]]} times, must be {due[got[at]]} ({last})"


def _turns(addresses: NDArray[np.int32]) -> NDArray[np.int64]:
    """How often each entry's value has been in the list before it."""
    order = np.argsort(addresses, kind="stable")
    ordered = addresses[order]
    fresh = np.concatenate(([True], ordered[1:] != ordered[:-1])) if len(ordered) else np.zeros(0, bool)
    index = np.arange(len(ordered))
    turns = np.empty(len(ordered), np.int64)
    turns[order] = index - np.maximum.accumulate(np.where(fresh, index, 0))
    return turns


def _shaped(box: Box, words: Words, op: Gemm | Vec) -> Words:
    """What an operation wrote as its result, [planes, rows, columns, P]. Behind the columns of a TRANSPOSE lie words
    that lanes without a channel make."""
    shape, columns = (box.planes, box.rows, box.columns), box.columns
    if isinstance(op, Vec) and op["op"] == VectorOp.TRANSPOSE and box.rows == 1:
        columns = len(words) // box.planes
    if len(words) != box.planes * box.rows * columns or columns < box.columns:
        raise ObserveError(
            f"operation {op.label!r} writes {len(words)} words, its result is {box.planes} planes x {box.rows} rows x "
            f"{box.columns} columns of {box.tensor!r}; make both the same"
        )
    return words.reshape(*shape[:2], columns, -1)[:, :, : box.columns]


def _place(tensor: Values, box: Box, new: Words) -> None:
    shape, first = (box.planes, box.rows, box.columns), (box.plane, box.row, box.column)
    where = tuple(slice(at, at + size) for at, size in zip(first, shape, strict=True))
    old, array = tensor.words[where], tensor.covered[where]
    for plane, row, column in np.argwhere(array & (new != old).any(axis=-1)):
        at = int(first[0] + plane), int(first[1] + row), int(first[2] + column)
        tensor.others.setdefault(at, []).append(new[plane, row, column].copy())
    old[~array] = new[~array]
    array[...] = True


def compare_values(result: Mapping[str, Values], golden: Mapping[str, Words]) -> list[Mismatch]:
    """Compares tensors with what they must be (`planes` makes that): one entry for each that is wrong or incomplete.

    Whole words are compared, padding lanes included; every word must have been computed, and each time the same. Raises
    ObserveError when a tensor has no golden values, or other sizes, or was not computed at all.
    """
    wrong: list[Mismatch] = []
    for name in sorted(result.keys() ^ golden.keys()):
        missing = "golden values" if name in result else "operation that computes it"
        both = ", ".join(sorted(result.keys() & golden.keys())) or "none"
        raise ObserveError(f"tensor {name!r} has no {missing}; tensors with both: {both}")
    for name, right in golden.items():
        tensor = result[name]
        if right.shape[-1] != tensor.words.shape[-1] or any(
            have > must for have, must in zip(tensor.words.shape, right.shape, strict=True)
        ):
            raise ObserveError(f"tensor {name!r}: results span {tensor.words.shape}, golden values {right.shape}")
        covered = np.zeros(right.shape[:-1], bool)
        words = np.zeros(right.shape, np.uint8)
        inside = tuple(slice(size) for size in tensor.covered.shape)
        covered[inside], words[inside] = tensor.covered, tensor.words
        bad = (words != right) | ~covered[..., None]
        got = words
        for at, others in tensor.others.items():
            for other in others:
                now = other != right[at]
                got[at] = np.where(now & ~bad[at], other, got[at])
                bad[at] |= now
        if bad.any():
            plane, row, column, lane = (int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
            at = plane, row, column
            value = int(got[(*at, lane)]) if covered[at] else None
            wrong.append(Mismatch(name, *at, lane, int(right[(*at, lane)]), value, int(np.count_nonzero(bad))))
    return wrong
