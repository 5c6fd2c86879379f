"""Programs that may run at the same time: proves that none touches what another one has been given.

What a program is given is a grant: cores, a window of pages that is the same in every dram tile, and a slot. The rules
are those that the chip enforces with the rights in a FETCH (`hw.spec.isa.Cause.RIGHTS`), and two that it does not: how
a boot stream starts a program, and how streams report their ends. A program that obeys them all can only reach its own
cores, its own pages, and the host's semaphore of its slot. Whether it is right in itself is for `check` to say.

All words of a MOVE count. The checks are on columns of all instructions at once: programs have tens of thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import ACCEPTS, PAGE_WORDS, Opcode, Region, Unit, split_address

from ..program.names import Names, opcode_name, tile_name, unit_name
from ..program.program import Program, Stream
from .problems import Problems

_Column = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]

#: Instructions of a stream that only the boot stream, or a program with the whole chip, may have.
_BARRED = frozenset((Opcode.FETCH, Opcode.END, Opcode.ORDER))


@dataclass(frozen=True)
class Grant:
    """What a program may use: the semaphore `slot` of the host, `cores` (tiles), and in every dram tile the pages
    [first_page, end_page) of `PAGE_WORDS` words."""

    slot: int
    cores: tuple[int, ...]
    first_page: int
    end_page: int

    def mask(self, chip: ChipConfig) -> int:
        """Its cores as in a FETCH: bit i is core i in floorplan order."""
        return sum(1 << chip.cores.index(core) for core in self.cores)


@dataclass(frozen=True)
class Placed:
    """A placed program, its grant, and its name in messages."""

    name: str
    program: Program
    grant: Grant


def check_concurrent(placed: Sequence[Placed], chip: ChipConfig, running: Sequence[Placed] = ()) -> None:
    """Proves that programs may run at the same time, and beside those in `running`, of which each has been `placed` in
    a call before: what it does itself need not be proved again. Raises CheckError with everything that it finds."""
    problems = Problems()
    _disjoint(placed, running, chip, problems)
    for one in placed:
        if not problems.full:
            _Check(one, chip, problems).run()
    problems.settle()


# -- between programs -------------------------------------------------------------------------------------------------


def _disjoint(placed: Sequence[Placed], running: Sequence[Placed], chip: ChipConfig, problems: Problems) -> None:
    """No core, page or slot that a program is `placed` on is granted to another one. Those in `running` may share with
    each other: a program and its successor do."""
    slots = {one.grant.slot: one.name for one in running}
    cores = {core: one.name for one in running for core in one.grant.cores}
    for one in placed:
        if (other := slots.setdefault(one.grant.slot, one.name)) != one.name:
            problems.add(one.name, f"has slot {one.grant.slot}, as {other} has", "use a free slot")
        for core in one.grant.cores:
            if (other := cores.setdefault(core, one.name)) != one.name:
                what = f"has {tile_name(chip, core)}, as {other} has"
                problems.add(one.name, what, "place it on free cores")
    before = list(running)
    for one in sorted(placed, key=lambda one: (one.grant.first_page, one.grant.end_page)):
        first, end = one.grant.first_page, one.grant.end_page
        shared = (each for each in before if each.grant.first_page < end and first < each.grant.end_page)
        if (overlapping := next(shared, None)) is not None:
            what = f"has pages {_pages(one.grant)}, and {overlapping.name} has {_pages(overlapping.grant)}"
            problems.add(one.name, what, "allot disjoint windows")
        before.append(one)


def _pages(grant: Grant) -> str:
    return f"{grant.first_page}..{grant.end_page - 1}"


# -- one program ------------------------------------------------------------------------------------------------------


class _Table:
    """Fields of the instructions of one opcode in a program's streams, as columns, with each one's place."""

    def __init__(self, streams: Sequence[Stream], opcode: Opcode, fields: tuple[str, ...]) -> None:
        rows: list[list[int]] = []
        places: list[tuple[int, int]] = []
        for number, stream in enumerate(streams, 1):
            for position, one in enumerate(stream.instructions):
                if one.opcode is opcode:
                    values = one.fields
                    rows.append([values[field] for field in fields])
                    places.append((number, position))
        table = np.array(rows, np.int64).reshape(-1, len(fields))
        self._columns = dict(zip(fields, table.T, strict=True))
        #: Number of the stream (the boot stream is 0), position in it, and its tile.
        self.stream, self.position = np.array(places, np.int64).reshape(-1, 2).T
        self.own: _Column = np.array([0, *(stream.tile for stream in streams)], np.int64)[self.stream]

    def __getitem__(self, field: str) -> _Column:
        return self._columns[field]


class _Check:
    """The checks of one program."""

    def __init__(self, placed: Placed, chip: ChipConfig, problems: Problems) -> None:
        self.program, self.grant, self.chip, self.problems = placed.program, placed.grant, chip, problems
        self.name = placed.name
        self.names = Names(chip, placed.program)
        #: The words of every dram tile that it may use.
        self.begin, self.end = placed.grant.first_page * PAGE_WORDS, placed.grant.end_page * PAGE_WORDS

    def run(self) -> None:
        """All of them."""
        if self._granted():
            self._code()
            self._boot()
            self._opcodes()
            self._moves()
            self._syncs()

    def _add(self, where: str, what: str, fix: str) -> None:
        self.problems.add(f"{self.name}: {where}" if where else self.name, what, fix)

    def _granted(self) -> bool:
        """Whether the grant is one that this chip can give."""
        chip, grant = self.chip, self.grant
        before = len(self.problems.list)
        if not 0 <= grant.slot < chip.programs:
            self._add("", f"slot {grant.slot}", f"{chip.name} runs {chip.programs} programs at once, from slot 0 on")
        if not grant.cores or len(set(grant.cores)) < len(grant.cores) or not set(grant.cores) <= set(chip.cores):
            named = ", ".join(tile_name(chip, core) for core in grant.cores) or "none"
            self._add("", f"its cores are {named}", "grant distinct cores of the floorplan")
        pages = chip.dram.words // PAGE_WORDS
        if not 0 <= grant.first_page < grant.end_page <= pages:
            self._add("", f"its window is pages {_pages(grant)}", f"a channel has pages 0..{pages - 1}")
        return len(self.problems.list) == before

    # -- code and its start -------------------------------------------------------------------------------------------

    def _code(self) -> None:
        """Streams run on granted cores, a unit has one, and their code is in the window."""
        seen: set[tuple[int, Unit]] = set()
        for number, stream in enumerate(self.names.streams):
            where = self.names.stream(number)
            if number and stream.tile not in self.grant.cores:
                self._add(where, "runs on a tile that is not granted", "place it on one of its own cores")
            if number and (stream.tile, stream.unit) in seen:
                self._add(where, "its unit has another stream", "a unit has one stream of a program")
            seen.add((stream.tile, stream.unit))
            end = stream.address + len(stream.instructions) * self.chip.instruction_words
            if stream.dram_tile not in self.chip.drams:
                self._add(where, f"its code lies in {self.names.tile(stream.dram_tile)}", "place it in a dram tile")
            elif not self.begin <= stream.address < end <= self.end:
                what = f"its code is words {stream.address}..{end - 1}"
                self._add(where, what, f"its window is words {self.begin}..{self.end - 1}")

    def _boot(self) -> None:
        """The boot stream starts each stream once, with the granted rights; the first FETCH to a core clears it."""
        boot, grant = self.program.boot, self.grant
        if (boot.tile, boot.unit) != (self.chip.host, Unit.MOVER):
            self._add("boot stream", f"runs on {self.names.tile(boot.tile)}", "it runs on the host's mover")
        streams = {(stream.tile, int(stream.unit)): stream for stream in self.program.streams}
        rights = {
            "slot": grant.slot,
            "cores": grant.mask(self.chip),
            "first_page": grant.first_page,
            "end_page": grant.end_page,
        }
        cleared: set[int] = set()
        for position, one in enumerate(boot.instructions):
            where, fields = self.names.instruction(0, position), one.fields
            if one.opcode is not Opcode.FETCH:
                self._add(where, "is no FETCH", "the boot stream of such a program has nothing else")
                continue
            for header in ("wait_n", "post_n", "fire_at"):
                if fields[header]:
                    self._add(where, f"{header} = {fields[header]}", "it must be 0: the next launch waits behind it")
            for field, value in rights.items():
                if fields[field] != value:
                    self._add(where, f"{field} = {fields[field]:#x}", f"its grant says {value:#x}")
            key = fields["tile"], fields["unit"]
            if (stream := streams.pop(key, None)) is None:
                what = f"starts {self.names.tile(key[0])} {unit_name(key[1])}"
                self._add(where, what, "it must start each of its streams once, and no other")
                continue
            meant = stream.dram_tile, stream.address, len(stream.instructions)
            if (fields["dram"], fields["addr"], fields["count"]) != meant:
                at = f"{self.names.tile(fields['dram'])}, word {fields['addr']}"
                what = f"fetches {fields['count']} instructions from {at}"
                fix = f"the stream has {meant[2]} in {self.names.tile(meant[0])}, word {meant[1]}"
                self._add(where, what, fix)
            if bool(fields["clear"]) == (key[0] in cleared):
                what = f"clear = {fields['clear']}"
                self._add(where, what, "the first FETCH to each core clears it, and no other does")
            cleared.add(key[0])
        for tile, unit in streams:
            self._add(f"{self.names.tile(tile)} {unit_name(unit)} stream", "is never started", "the boot stream must")

    def _opcodes(self) -> None:
        """Streams start no others, end no run, and their packets stay on dimension-ordered routes."""
        for number, stream in enumerate(self.program.streams, 1):
            accepts = frozenset((Opcode.SYNC, *ACCEPTS.get(stream.unit, ()))) - _BARRED
            for position, one in enumerate(stream.instructions):
                if one.opcode not in accepts:
                    what = f"is {opcode_name(one.opcode)} in a {unit_name(stream.unit)} stream"
                    self._add(self.names.instruction(number, position), what, "only the boot stream starts anything")
                elif one.opcode is Opcode.ROUTE and one.fields["routed"]:
                    what = "sets a source route, which may deadlock with the packets of other programs"
                    self._add(self.names.instruction(number, position), what, "set a channel only")
                if self.problems.full:
                    return

    # -- what instructions reach --------------------------------------------------------------------------------------

    def _moves(self) -> None:
        """Their words stay on granted cores and in the window; what they post to stays on granted cores."""
        chip = self.chip
        moves = _Table(
            self.program.streams,
            Opcode.MOVE,
            ("src_tile", "src", "src_run", "src_stride", "dst_tile", "dst", "dst_run", "dst_stride", "words", "notify",
             "notify_tile", "post_n"),
        )  # fmt: skip
        own, source, target = moves.own, moves["src_tile"], moves["dst_tile"]
        counted: _Mask = np.ones(len(own), np.bool_)
        for field in ("words", "src_run", "dst_run"):
            self._each(moves, moves[field] < 1, lambda row, field=field: (f"{field} = 0", "it must be at least 1"))
            counted &= moves[field] >= 1
        pulled = source != own
        self._each(
            moves,
            pulled & (target != own),
            lambda row: (f"pulls to {tile_name(chip, target[row])}", "a pull goes to the core that issues it"),
        )
        for end, tiles, verb in (("src", source, "reads"), ("dst", target, "writes")):
            dram = np.isin(tiles, chip.drams)
            self._each(
                moves,
                ~dram & ~np.isin(tiles, self.grant.cores),
                lambda row, tiles=tiles, verb=verb: (
                    f"{verb} {tile_name(chip, tiles[row])}",
                    "it may use its own cores, and dram tiles",
                ),
            )
            first, last = _span(moves[end], moves[f"{end}_run"], moves[f"{end}_stride"], moves["words"])
            outside = (first < self.begin) | (last >= self.end) | (moves[end] >> 24 != Region.MAIN)
            self._each(
                moves,
                counted & dram & outside,
                lambda row, tiles=tiles, verb=verb, first=first, last=last, end=end: self._beyond(
                    verb, int(tiles[row]), int(moves[end][row]), int(first[row]), int(last[row])
                ),
            )
        self._each(
            moves,
            (moves["post_n"] > 0) & ~np.isin(source, self.grant.cores),
            lambda row: (
                f"posts to a semaphore of {tile_name(chip, source[row])}",
                "other programs use that tile: notify one of its own cores instead",
            ),
        )
        self._each(
            moves,
            (moves["notify"] > 0) & ~np.isin(moves["notify_tile"], self.grant.cores),
            lambda row: (
                f"notifies {tile_name(chip, moves['notify_tile'][row])}",
                "it may notify its own cores",
            ),
        )

    def _beyond(self, verb: str, tile: int, address: int, first: int, last: int) -> tuple[str, str]:
        region, _ = split_address(address)
        words = self.names.words(tile, region, first, last + 1)
        return f"{verb} {words}", f"its window is {self.names.words(tile, Region.MAIN, self.begin, self.end)}"

    def _syncs(self) -> None:
        """They add to semaphores of granted cores; the last one of each stream, and no other, reports its end."""
        host, slot = self.chip.host, self.grant.slot
        syncs = _Table(self.program.streams, Opcode.SYNC, ("n", "tile", "sem"))
        counts = [len(stream.instructions) for stream in self.program.streams]
        last = syncs.position == np.array([0, *counts], np.int64)[syncs.stream] - 1
        adds, home = syncs["n"] > 0, syncs["tile"] == host
        reports = home & (syncs["sem"] == slot) & (syncs["n"] == 1) & last
        self._each(
            syncs,
            adds & ~reports & ~np.isin(syncs["tile"], self.grant.cores),
            lambda row: (
                f"adds {syncs['n'][row]} to {self.names.semaphore(int(syncs['tile'][row]), int(syncs['sem'][row]))}",
                f"it may add to its own cores, and as the last of its stream 1 to semaphore {slot} of the host",
            ),
        )
        ended = set(syncs.stream[reports].tolist())
        for number in range(1, len(counts) + 1):
            if number not in ended:
                fix = f"its last instruction must be a SYNC that adds 1 to semaphore {slot} of the host"
                self._add(self.names.stream(number), "does not report its end", fix)

    def _each(self, table: _Table, wrong: _Mask, say: Callable[[int], tuple[str, str]]) -> None:
        """Reports the instructions that are `wrong`; `say` gives what, and the fix, of a row."""
        for row in np.flatnonzero(wrong)[: Problems.LIMIT].tolist():
            where = self.names.instruction(int(table.stream[row]), int(table.position[row]))
            self._add(where, *say(row))


def _span(address: _Column, run: _Column, stride: _Column, words: _Column) -> tuple[_Column, _Column]:
    """Offsets of the lowest and the highest word of strided walks: word i is `(i // run) * stride + i % run` behind
    the first."""
    first = address & 0xFFFFFF
    run = np.maximum(run, 1)
    whole = (words - 1) // run  # runs before the last one
    last = whole * stride + (words - 1) - whole * run
    before = np.where(whole > 0, (whole - 1) * stride + run - 1, 0)  # the last word of the run before
    return first, first + np.maximum(last, before)
