"""Checks that do not depend on time: every field of every instruction, code placement, and who starts each stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from meshloom.hw.spec.config import OFFSET_BITS, ChipConfig
from meshloom.hw.spec.contracts import ISSUE_CYCLES
from meshloom.hw.spec.isa import (
    ACCEPTS,
    FETCH_TAG,
    INSTRUCTIONS,
    OPERAND_WALKS,
    PAGE_WORDS,
    REQUANTISING,
    SCALED_BIAS_WORDS,
    TWO_OPERANDS,
    WHOLE_PAIRS,
    WINDOWED,
    Addend,
    IsaError,
    Opcode,
    Pair,
    Region,
    Unit,
    VectorOp,
    YWalk,
    decode,
    encode,
    units_of,
    vector_ops,
)
from meshloom.hw.spec.routes import RouteError

from ..program.names import Names, opcode_name, region_name, unit_name
from ..program.program import Instruction, Program, Stream
from ..program.routes import Route, copied_tiles, route_of
from .accesses import Access, gemm_accesses, move_accesses, region_words, vec_accesses
from .problems import Problems

#: Intervals of words that a program's instructions may touch in all, and on average.
MOST_INTERVALS, MEAN_INTERVALS = 1 << 24, 512
_ADDENDS = frozenset(Addend)
#: Fields of a FETCH that say what the stream may do.
_RIGHTS = ("slot", "cores", "first_page", "end_page")


@cache
def _limits(opcode: Opcode) -> dict[str, int]:
    """One more than the largest value of each field."""
    layout = INSTRUCTIONS[opcode]
    return {name: 1 << layout.bits(name) for name in layout.offsets if name != "opcode"}


def _all_fields(opcode: Opcode, given: Mapping[str, int]) -> dict[str, int]:
    """The fields of an instruction as a decoder sees them, those that are left out as 0. Raises as `encode`."""
    limits = _limits(opcode)
    fields = dict.fromkeys(limits, 0)
    for name, value in given.items():
        if name not in fields or not 0 <= value < limits[name]:
            return decode(encode(opcode, **given))[1]  # says what is wrong
        fields[name] = int(value)
    return fields


@dataclass(frozen=True)
class DecodedInstruction:
    """A decoded instruction: all fields, the accesses, and for a MOVE the route of its packets."""

    opcode: Opcode
    fields: dict[str, int]
    accesses: tuple[Access, ...] = ()
    route: Route | None = None


class StaticCheck:
    """Fills `steps` (per stream, the boot stream first) and `problems`."""

    def __init__(self, program: Program, chip: ChipConfig, names: Names, problems: Problems) -> None:
        self.program, self.chip, self.names, self.problems = program, chip, names, problems
        self.steps: list[list[DecodedInstruction]] = []
        #: Code intervals [begin, end) of each DRAM tile, with the number of the stream.
        self.code: dict[int, list[tuple[int, int, int]]] = {tile: [] for tile in chip.channels}
        self._route: tuple[int, DecodedInstruction] | None = (
            None  # position and step of a ROUTE that no MOVE has used yet
        )
        self._intervals = 0  # that the instructions so far touch
        count = sum(len(stream.instructions) for stream in names.streams)
        self._most = max(MOST_INTERVALS, MEAN_INTERVALS * count)
        self._sizes: dict[tuple[int, int, str | None], int] = {}  # of regions, as `region_words` says
        self._earliest = 0  # earliest cycle in which the instruction can fire

    def run(self) -> None:
        """All static checks."""
        program, chip = self.program, self.chip
        if program.chip_digest != chip.digest:
            self.problems.add("program", f"was lowered for another chip than {chip.name}", "lower the schedule again")
        for number, stream in enumerate(self.names.streams):
            self._placement(number, stream)
        self._code_overlaps()
        for number, stream in enumerate(self.names.streams):
            self._stream(number, stream)
        self._starts()

    # -- streams ----------------------------------------------------------------------------------------------

    def _placement(self, number: int, stream: Stream) -> None:
        if stream.tile == self.chip.dtt:
            what = "belongs to a controller, whose program is timed ahead"
            self.problems.add(self.names.stream(number), what, "use `sched.lowering.programs.check_program`")
        self._place(number, stream)

    def _place(self, number: int, stream: Stream) -> None:
        chip, where = self.chip, self.names.stream(number)
        kind = chip.tiles.get(stream.tile)
        if kind is None:
            self.problems.add(where, "no such tile", f"the floorplan of {chip.name} is {chip.width}x{chip.height}")
            return
        if stream.unit not in units_of(chip, kind):
            self.problems.add(where, f"a {kind} tile has no {unit_name(stream.unit)} unit", "place it elsewhere")
        if number == 0 and (stream.tile, stream.unit) != (chip.host, Unit.MOVER):
            fix = f"boot from the mover of {self.names.tile(chip.host)}"
            self.problems.add(where, f"runs on {self.names.tile(stream.tile)} {unit_name(stream.unit)}", fix)
        words = len(stream.instructions) * chip.instruction_words
        if stream.dram_tile not in self.code:
            what = f"its code lies in {self.names.tile(stream.dram_tile)}"
            self.problems.add(where, what, "code must lie in a dram tile")
        elif not 0 <= stream.address <= chip.dram.words - words:
            what = f"its code, words {stream.address}..{stream.address + words - 1}, ends past the DRAM"
            self.problems.add(where, what, f"the channel has {chip.dram.words} words")
        elif words:
            self.code[stream.dram_tile].append((stream.address, stream.address + words, number))
        if not words:
            self.problems.add(where, "holds no instruction", "leave the stream out")

    def _code_overlaps(self) -> None:
        for tile, pieces in self.code.items():
            pieces.sort()
            for (_, end, one), (begin, _, other) in zip(pieces, pieces[1:], strict=False):
                if begin < end:
                    what = f"its code overlaps that of the {self.names.stream(one)} in {self.names.tile(tile)}"
                    self.problems.add(self.names.stream(other), what, "place it after that")

    def _starts(self) -> None:
        """Each stream is started once, by a FETCH with its address; END is the last instruction of the boot stream."""
        units: dict[tuple[int, int], int] = {}
        for number, stream in enumerate(self.names.streams):
            key = (int(stream.tile), int(stream.unit))
            if key in units:
                what = f"the unit already has another stream ({self.names.stream(units[key])})"
                self.problems.add(self.names.stream(number), what, "a unit has one stream per run")
            units.setdefault(key, number)
        started: dict[int, str] = {}
        for number, steps in enumerate(self.steps):
            for position, step in enumerate(steps):
                if step.opcode is not Opcode.FETCH:
                    continue
                where, fields = self.names.instruction(number, position), step.fields
                target = units.get((fields["tile"], fields["unit"]), 0)
                if target == 0:
                    what = f"starts {self.names.tile(fields['tile'])} {unit_name(fields['unit'])}, which has no stream"
                    self.problems.add(where, what, "drop it, or add the stream")
                    continue
                stream = self.names.streams[target]
                start = (fields["dram"], fields["addr"], fields["count"])
                meant = (stream.dram_tile, stream.address, len(stream.instructions))
                if start != meant:
                    what = "fetches {2} instructions from {0}, word {1}".format(self.names.tile(start[0]), *start[1:])
                    fix = "the {3} has {2} in {0}, word {1}".format(
                        self.names.tile(meant[0]), *meant[1:], self.names.stream(target)
                    )
                    self.problems.add(where, what, fix)
                if target in started:
                    what = f"starts the {self.names.stream(target)} again after {started[target]}"
                    self.problems.add(where, what, "a stream starts once")
                started.setdefault(target, where)
        for number in range(1, len(self.steps)):
            if number not in started:
                self.problems.add(self.names.stream(number), "is never started", "the boot stream must FETCH it")
        boot = self.steps[0]
        if not boot or boot[-1].opcode is not Opcode.END:
            self.problems.add("boot stream", "does not finish with END", "END must be its last instruction")

    # -- instructions -----------------------------------------------------------------------------------------

    def _stream(self, number: int, stream: Stream) -> None:
        steps: list[DecodedInstruction] = []
        self._route, self._earliest = None, 0
        for position, instruction in enumerate(stream.instructions):
            if self.problems.full:
                break
            step = self._decode(number, position, instruction)
            if step is not None:
                step = self._instruction(number, position, stream, step)
            steps.append(
                step
                if step is not None
                else DecodedInstruction(Opcode.SYNC, dict.fromkeys(("wait_n", "post_n", "n"), 0))
            )
        self.steps.append(steps)
        self._unused(number)

    def _decode(self, number: int, position: int, instruction: Instruction) -> DecodedInstruction | None:
        try:
            opcode = Opcode(instruction.opcode)
            return DecodedInstruction(opcode, _all_fields(opcode, instruction.fields))
        except (ValueError, TypeError) as error:
            where = self.names.instruction(number, position)
            fix = "see the instruction tables" if isinstance(error, IsaError) else "fields are whole numbers"
            self.problems.add(where, f"does not encode: {error}", fix)
            return None

    def _instruction(
        self, number: int, position: int, stream: Stream, step: DecodedInstruction
    ) -> DecodedInstruction | None:
        """Checks the fields for this chip; returns the step with its accesses, None if they are invalid."""
        chip, fields, opcode = self.chip, step.fields, step.opcode
        before = len(self.problems.list)

        def problem(what: str, fix: str) -> None:
            self.problems.add(self.names.instruction(number, position), what, fix)

        def semaphore(which: str, at: int) -> None:
            if at not in chip.tiles:
                problem(f"{which} names tile {self.names.tile(at)}", "the tile must lie on the floorplan")
            elif fields[which] >= chip.semaphores:
                problem(f"{which} = {fields[which]}", f"{chip.name} has semaphores 0..{chip.semaphores - 1}")

        self._time(fields["fire_at"], problem)
        if opcode not in (Opcode.SYNC, *ACCEPTS.get(stream.unit, ())):
            problem(f"the {unit_name(stream.unit)} does not execute {opcode_name(opcode)}", "use the other unit")
        if opcode is Opcode.END and (number, position) != (0, len(stream.instructions) - 1):
            problem("END ends the whole run", "only the boot stream's last instruction may be END")
        if fields["tag"] == FETCH_TAG:
            problem(f"tag {FETCH_TAG:#x} belongs to instruction fetch", "choose another")
        for name, least in INSTRUCTIONS[opcode].least.items():
            if fields[name] < least:
                problem(f"{name} = {fields[name]}", f"it must be at least {least}")
        if fields["wait_n"]:
            semaphore("wait_sem", stream.tile)
        executing = fields["src_tile"] if opcode is Opcode.MOVE else stream.tile
        if executing not in chip.tiles:
            problem(f"src_tile is {self.names.tile(executing)}", "the tile must lie on the floorplan")
        elif fields["post_n"]:
            semaphore("post_sem", executing)
        if opcode is Opcode.SYNC and fields["n"]:
            semaphore("sem", fields["tile"])
        if opcode is Opcode.MOVE and fields["notify"]:
            semaphore("notify_sem", fields["notify_tile"])
        if len(self.problems.list) > before:
            return None
        route, copied = None, tuple[int, ...]()
        if opcode is Opcode.FETCH:
            self._rights(fields, problem)
        elif opcode is Opcode.ROUTE:
            self._take_route(number, position, step, problem)
        elif opcode is Opcode.MOVE:
            route = self._route_of(number, fields, problem)
            copied = self._copied(route, fields, problem)
        accesses = self._accesses(opcode, stream.tile, fields, problem)
        if accesses is None:
            return None
        accesses += tuple(replace(accesses[1], tile=tile) for tile in copied)
        self._count(accesses)
        for access in accesses:
            self._inside(access, opcode is Opcode.MOVE, problem)
        return DecodedInstruction(opcode, fields, accesses, route)

    def _accesses(
        self, opcode: Opcode, tile: int, fields: dict[str, int], problem: Callable[[str, str], None]
    ) -> tuple[Access, ...] | None:
        """The words that an instruction of a stream of `tile` accesses, None if its fields contradict each other."""
        before = len(self.problems.list)
        if opcode is Opcode.MOVE:
            return move_accesses(fields)
        if opcode is Opcode.GEMM:
            if fields["addend"] not in _ADDENDS:
                problem(f"addend = {fields['addend']}", "0 = none, 1 = bias, 2 = partial sums")
                return None
            if fields["by_channel"]:
                self._scaled("GEMM", fields, problem)
                single = fields["k_blocks"] * fields["kernel_h"] * fields["kernel_w"] == 1
                if fields["addend"] == Addend.PARTIAL and not fields["to_acc"] and single:
                    problem(
                        "by_channel = 1 with partial sums and a single window",
                        "no cycle is left to read multipliers in: cut K otherwise",
                    )
                if len(self.problems.list) > before:
                    return None
            if fields["int4"]:
                self._int4(fields, problem)
                if len(self.problems.list) > before:
                    return None
            self._own_sums(fields, problem)
            return tuple(gemm_accesses(tile, fields, self.chip.cols))
        if opcode is Opcode.VEC:
            self._vector(fields, problem)
            return None if len(self.problems.list) > before else tuple(vec_accesses(tile, fields, self.chip.lanes))
        return ()

    def _count(self, accesses: Sequence[Access]) -> None:
        """Raises CheckError if the program touches more intervals of words than can be followed."""
        self._intervals += sum(access.walk.intervals for access in accesses)
        if self._intervals > self._most:
            many = f"more than {self._most:,} separate stretches of words"
            what = f"touches {many}, which is more than the checker follows"
            self.problems.add("program", what, "let its MOVEs and windows touch words in longer runs")
            self.problems.settle()

    def _rights(self, fields: dict[str, int], problem: Callable[[str, str], None]) -> None:
        """A FETCH gives rights on chips that run several programs at once, and only such as there are."""
        chip = self.chip
        if not chip.programs:
            for name in ("clear", *_RIGHTS):
                if fields[name]:
                    problem(f"{name} = {fields[name]:#x}", f"it must be 0: {chip.name} runs one program at a time")
            return
        if fields["slot"] > chip.programs:
            problem(f"slot = {fields['slot']}", f"{chip.name} has slots 0..{chip.programs - 1}, and one to clear up")
        if fields["cores"] >> len(chip.cores):
            problem(f"cores = {fields['cores']:#x}", f"{chip.name} has {len(chip.cores)} cores, a bit for each")
        first, end, pages = fields["first_page"], fields["end_page"], chip.dram.words // PAGE_WORDS
        if (fields["cores"] or first or end) and not first < end <= pages:
            problem(f"first_page = {first}, end_page = {end}", f"a channel has pages 0..{pages - 1}: name some of them")
        if (first or end) and not fields["cores"]:
            problem("cores = 0 with pages", "rights without cores limit nothing: name its cores, or no pages")

    def _time(self, fire: int, problem: Callable[[str, str], None]) -> None:
        """A fire time must not be earlier than the first cycle in which the stream can reach the instruction."""
        if fire and not self.chip.fire_times:
            problem(f"fire_at = {fire}", f"it must be 0: fire_times is off in {self.chip.name}")
        elif fire:
            if fire < self._earliest:
                what = f"fire_at = {fire}, but the stream reaches it in cycle {self._earliest} at the earliest"
                problem(what, f"set it to {self._earliest} or later, or to 0")
            self._earliest = max(self._earliest, fire)
        self._earliest += ISSUE_CYCLES

    def _take_route(
        self, number: int, position: int, step: DecodedInstruction, problem: Callable[[str, str], None]
    ) -> None:
        """Stores a ROUTE for the next MOVE of its stream; that MOVE decides whether it leads to its destination."""
        noc = self.chip.noc
        if noc.data_vcs == 1 and not noc.route_hops:
            problem(f"{self.chip.name} has one virtual channel and no source routes, so no ROUTE", "leave it out")
            return
        if step.fields["post_n"]:
            problem(f"post_n = {step.fields['post_n']}", "a ROUTE posts nothing: let the MOVE after it post")
        self._unused(number)
        self._route = position, step

    def _unused(self, number: int) -> None:
        """Reports a ROUTE that is followed by the end of the stream or another ROUTE instead of a MOVE."""
        if self._route is not None:
            where = self.names.instruction(number, self._route[0])
            self.problems.add(where, "no MOVE follows that could use it", "drop it, or put it before the MOVE")
            self._route = None

    def _route_of(self, number: int, fields: dict[str, int], problem: Callable[[str, str], None]) -> Route | None:
        """The route of a MOVE's packets, given the ROUTE before it, if any."""
        chip, source, target = self.chip, fields["src_tile"], fields["dst_tile"]
        (position, route), self._route = self._route or (0, None), None
        if target not in chip.tiles:
            return None
        try:
            return route_of(chip, source, target, route.fields if route is not None else None)
        except RouteError as error:
            problem(f"cannot follow its ROUTE, [{position}]: {error}", "see `hw.spec.routes` for the entries")
            return None

    def _copied(
        self, route: Route | None, fields: dict[str, int], problem: Callable[[str, str], None]
    ) -> tuple[int, ...]:
        """The tiles that take the packets of a MOVE on their way."""
        copies, chip = fields["copies"], self.chip
        if not copies or route is None:
            return ()
        try:
            return copied_tiles(chip, route.tiles, copies)
        except RouteError as error:
            problem(f"copies = {copies}: {error}", "send the words to each tile by itself otherwise")
            return ()

    def _vector(self, fields: dict[str, int], problem: Callable[[str, str], None]) -> None:
        """Fields that a vector operation does not use must be off."""
        op = fields["op"]
        name = VectorOp(op).name
        window = (fields["kernel_h"], fields["kernel_w"])
        if op not in WINDOWED and window != (1, 1):
            problem(f"{name} with a window of {window[0]}x{window[1]}", "its window must be 1x1")
        elif fields["repeat"] and window != (1, 1):
            problem(f"{name} with repeat = {fields['repeat']} and a window", "words are repeated for 1x1 windows only")
        if op in (*TWO_OPERANDS, VectorOp.REQUANT) and fields["x_out"]:
            problem(f"{name} with x_out = 1", "it must be 0: this operation has one place for x")
        if op == VectorOp.TABLE and not self.chip.core.vec_table:
            problem("TABLE", f"cores of {self.chip.name} have none: core.vec_table is off")
        elif op not in vector_ops(self.chip.core):
            problem(name, f"cores of {self.chip.name} have no {name}: it is not among core.vec_ops")
        whole = op in WINDOWED and fields["y_walk"] == YWalk.WHOLE
        if whole:
            self._whole(name, fields, problem)
        if op != VectorOp.PAIR and fields["pair"] and not whole:
            problem(f"{name} with pair = {fields['pair']}", "it must be 0")
        if fields["y_walk"] not in (OPERAND_WALKS if op in TWO_OPERANDS else (0,)) and not whole:
            problem(f"{name} with y_walk = {fields['y_walk']}", "0 to 2 for ADD and PAIR, 0 or 3 for MAC, SUM and MAX")
        scaled = op in REQUANTISING or (op == VectorOp.PAIR and fields["pair"] == Pair.MUL)
        if fields["times16"] and not scaled:
            problem(f"{name} with times16 = 1", "it must be 0: nothing is scaled")
        if op not in (VectorOp.MAC, VectorOp.SUM) and fields["addend"]:
            problem(f"{name} with addend = 1", "only MAC and SUM add a bias")
        if fields["by_channel"]:
            self._scaled(name, fields, problem)
            if op != VectorOp.MAC or whole or window == (1, 1):
                problem(f"{name} with by_channel = 1", "it must be 0: only a MAC with a window of several taps may")

    def _scaled(self, name: str, fields: dict[str, int], problem: Callable[[str, str], None]) -> None:
        """What may have multipliers by channel."""
        if not self.chip.core.channel_scales:
            problem(f"{name} with by_channel = 1", f"cores of {self.chip.name} cannot: core.channel_scales is off")
        if not fields["addend"]:
            problem(f"{name} with by_channel = 1 and no bias", "multipliers lie beside biases: add one, if of zeros")

    def _int4(self, fields: dict[str, int], problem: Callable[[str, str], None]) -> None:
        """What a GEMM with weights of four bits may be."""
        if not self.chip.core.int4:
            problem("GEMM with int4 = 1", f"cores of {self.chip.name} cannot: core.int4 is off")
        if fields["k_blocks"] % 2 and fields["kernel_h"] % 2 and fields["kernel_w"] % 2:
            problem("GEMM with int4 = 1 and an odd number of windows", "such weights lie in pairs of windows")

    def _whole(self, name: str, fields: dict[str, int], problem: Callable[[str, str], None]) -> None:
        """What a VEC of whole blocks may be."""
        if not self.chip.core.vec_whole:
            problem(f"{name} of whole blocks", f"cores of {self.chip.name} have none: core.vec_whole is off")
        if (fields["op"], fields["pair"]) not in WHOLE_PAIRS:
            problem(
                f"{name} of whole blocks with pair = {fields['pair']}",
                "MAX subtracts (3), MAC multiplies (0), SUM does either",
            )
        for field in ("addend", "repeat"):
            if fields[field]:
                problem(f"{name} of whole blocks with {field} = {fields[field]}", "it must be 0")
        if (fields["kernel_h"], fields["kernel_w"]) != (1, 1):
            problem(f"{name} of whole blocks with a window", "it must be 1x1")

    def _own_sums(self, fields: dict[str, int], problem: Callable[[str, str], None]) -> None:
        """A GEMM may accumulate in place, but not overwrite addends that it has yet to read."""
        if not fields["to_acc"] or fields["addend"] == Addend.NONE:
            return
        bias = fields["addend"] == Addend.BIAS
        results = fields["n_blocks"] * fields["pixels"]
        begin, dest = fields["addend_base"], fields["dest_base"]
        step = SCALED_BIAS_WORDS if fields["by_channel"] else 1
        end = begin + (step * (fields["n_blocks"] - 1) + 1 if bias else results)
        if begin < dest + results and dest < end and (bias or begin != dest):
            problem(
                f"its addend ACC {begin}..{end - 1} overlaps its result ACC {dest}..{dest + results - 1}",
                "partial sums accumulate in exactly the same words, or in separate ones",
            )

    def _inside(self, access: Access, move: bool, problem: Callable[[str, str], None]) -> None:
        verb = "writes" if access.write else "reads"
        end = access.walk.end
        end_of_move = ("dst" if access.write else "src") if move else None
        place = access.tile, access.region, end_of_move
        if (size := self._sizes.get(place)) is None:
            size = self._sizes[place] = region_words(self.chip, *place)
        if access.tile not in self.chip.tiles:
            problem(f"{verb} {self.names.tile(access.tile)}", "the tile must lie on the floorplan")
        elif not size:
            what = f"{verb} {self.names.tile(access.tile)} {region_name(access.region)}"
            can = " that a MOVE can " + ("write" if access.write else "read") if move else ""
            problem(what, "the tile has no such region" + can)
        elif end > min(size, 1 << OFFSET_BITS):
            last = self.names.words(access.tile, access.region, end - 1, end)
            problem(f"{verb} up to {last}", f"the memory has {size} words")
        elif access.write and access.tile in self.code and access.region == Region.MAIN:
            for begin, finish, number in self.code[access.tile]:
                hit = (access.begins < finish) & (access.ends > begin)
                if np.any(hit):
                    first = max(begin, int(access.begins[np.argmax(hit)]))
                    word = self.names.words(access.tile, access.region, first, first + 1)
                    problem(f"overwrites {word}, code of the {self.names.stream(number)}", "place the code elsewhere")
