"""The programs of a model with experts on a chip: side by side in DRAM, each scheduled and checked once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import stats_words
from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.lowering.programs import check_program
from meshloom.sched.lowering.resident import Regions, ResidentProgram, lasting, moved_schedule
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.model.timeline import play
from meshloom.sched.program.program import Program, ProgramError
from meshloom.sched.workload.language.experts import Part, regions_of, slot
from meshloom.sched.workload.language.graph import named
from meshloom.sched.workload.language.integers import Integers
from meshloom.sched.workload.language.model import LanguageError, LanguageModel

from ...compare.energy import estimate
from ...devices import readout
from ...devices.interface import Job, Run
from ...results.energy import load as load_energies
from ..network import PreparedNetwork, dram_bytes, prepare, results
from .comparison import StepComparison, run_compared, step_job
from .fitting import check_records, end, fitted
from .step import least_cycles
from .walk import Arrays

Range = tuple[int, int, int]
#: Where programs begin: their own lie behind what they have in common.
FIRST = 1


class PartProgram:
    """A part of a step on a chip, whose own constants and code lie behind the first `begin` words of each DRAM tile. A
    run moves its caches to where they lie by then, and its slots to the experts that were chosen. `texts`: for how many
    there are regions.

    Raises what scheduling raises; LanguageError with the words of DRAM that are enough, if it lies `FIRST` in the DRAM.
    """

    def __init__(
        self, integers: Integers, part: Part, chip: ChipConfig, scheduler: str, begin: int,
        on_progress: Callable[[str], None], texts: int = 1,
    ) -> None:  # fmt: skip
        self.part, self.chip, self.model, self._seats = part, chip, integers.model, texts
        self.graph = part.graph(integers, begin, texts)
        make = fitted if begin == FIRST else prepare
        self.prepared: PreparedNetwork = make(self.graph, chip, on_progress, scheduler)
        schedule = self.prepared.network_schedule.schedule
        self._texts = [
            Regions.of(schedule, (cache for cache in self.graph.caches if cache.region in self._caches(text)))
            for text in range(len(part.news))
        ]
        self._regions = [*self._texts, *(Regions.of_views(schedule, [name]) for name in self._slots)]
        self._resident = ResidentProgram(self.prepared.program, *self._regions)
        self.lasting: list[Range] = [*lasting(schedule, chip), *self._resident.unchanged(chip)]
        # the last places, too: where others lie between them, they reach no other words
        most = self.model.experts(self.model.mixtures[part.number]) if part.slots else 0
        last = self.at([self.model.context] * len(part.news), range(most - part.slots, most))
        on_progress("checking the program with caches and experts at their ends")
        check_program(last.program, chip, last.network_schedule.schedule)

    def _caches(self, text: int) -> set[str]:
        """The regions of a text's caches."""
        return {named(f"{layer}/{name}", text, self._seats) for layer in range(self.model.layers) for name in "kv"}

    @property
    def _slots(self) -> list[str]:
        """The tensors that move to an expert."""
        layer = self.model.mixtures[self.part.number] if self.part.slots else 0
        return [slot(layer, name, number) for number in range(self.part.slots) for name in ("up", "down")]

    @property
    def end(self) -> int:
        """The first word of all DRAM tiles behind it."""
        return end(self.prepared, self.chip)

    @property
    def dram_bytes(self) -> int:
        """Read from and written to DRAM in a run, the program included."""
        return dram_bytes(self._schedule, self.prepared.program, self.chip)

    @property
    def least_cycles(self) -> int:
        """What no schedule of it can be below."""
        return least_cycles(self.graph.total_macs, self.dram_bytes, self.chip)

    @cached_property
    def picojoules(self) -> float:
        """What a run is estimated to take. Raises EnergyError."""
        macs, table = self.graph.total_macs, load_energies()
        return estimate(macs, self._schedule, self.prepared.program, self.chip, table).microjoules * 1e6

    def program_at(self, totals: Sequence[int], experts: Sequence[int]) -> Program:
        """Its program alone; see `at`."""
        return self._resident.moved(*self._by(totals, experts))

    def at(self, totals: Sequence[int], experts: Sequence[int]) -> PreparedNetwork:
        """The program of these experts, after which the caches hold `totals[i]` tokens of text i."""
        base, by = self.prepared.network_schedule, self._by(totals, experts)
        schedule = moved_schedule(base.schedule, *zip(self._regions, by, strict=True))
        program = self._resident.moved(*by)
        network_schedule = replace(base, schedule=schedule, lowered=None)
        return replace(
            self.prepared, network_schedule=network_schedule, program=program, timeline=play(program, self.chip)
        )

    def shared(self, prepared: PreparedNetwork) -> dict[str, list[Range]]:
        """What a run of it (`at`) reads that other programs have left: where that lies, by tensor. Of a cache the whole
        region, wherever its view begins."""
        caches = {cache.past: cache for cache in self.graph.caches}
        ranges: dict[str, list[Range]] = {}
        names = {view.value for view in self.graph.views} | caches.keys()
        for tensor in prepared.network_schedule.schedule.tensors:
            if tensor.name not in names or tensor.role == "output":
                continue
            pieces = tensor.pieces
            if tensor.name in caches:
                pieces = self._schedule.tensor(tensor.name).pieces
                long = caches[tensor.name].positions
                ranges[tensor.name] = [(piece.tile, piece.address, long) for piece in pieces]
            else:
                ranges[tensor.name] = [(piece.tile, piece.address, piece.words) for piece in pieces]
        return ranges

    @property
    def _schedule(self) -> Schedule:
        return self.prepared.network_schedule.schedule

    def _by(self, totals: Sequence[int], experts: Sequence[int]) -> list[int]:
        """By how much each of its regions moves."""
        words = [self.graph.value(name).width for name in self._slots]
        places = [expert - number for number, expert in enumerate(experts) for _ in ("up", "down")]
        return [*totals, *(each * by for each, by in zip(words, places, strict=True))]


@dataclass(frozen=True)
class Cost:
    """What a program of a step took."""

    part: Part
    experts: tuple[int, ...]
    comparison: StepComparison
    dram_bytes: int
    least_cycles: int
    picojoules: float


@dataclass(eq=False)
class Programs:
    """All programs of a model on a chip for steps of so many `texts` at most, each made when it is needed first, and
    what of them is in DRAM: they lie side by side; one for which there is no room begins another row of them, in the
    place of all before. `caches`: whether all are of the same texts, whose caches stay there, too.

    Raises LanguageError if the DRAM has no room for caches and experts.
    """

    integers: Integers
    chip: ChipConfig
    scheduler: str
    on_progress: Callable[[str], None] = lambda what: None
    texts: int = 1
    caches: bool = True
    _programs: dict[Part, PartProgram] = field(default_factory=dict[Part, PartProgram])
    _begin: int = FIRST  # the first word behind this row of them, and behind all
    _end: int = FIRST
    _rows: dict[Part, int] = field(default_factory=dict[Part, int])
    _row: int = 0  # of the last one that ran
    _there: set[object] = field(default_factory=set[object])

    def __post_init__(self) -> None:
        check_regions(self.integers.model, self.chip, self.texts)

    def of(self, part: Part) -> PartProgram:
        """A program. Raises what scheduling raises."""
        if part not in self._programs:
            row = max(self._rows.values(), default=0)
            try:
                program = self._made(part, self._begin)
                for each in (*self._programs.values(), program):
                    readout.plan(each.prepared.program, self.chip, stats_words(self.chip), max(self._end, program.end))
            except (DoesNotFit, ProgramError):
                if self._begin == FIRST:
                    raise
                program, row = self._made(part, FIRST), row + 1
            self._programs[part], self._rows[part] = program, row
            self._begin, self._end = program.end, max(self._end, program.end)
        return self._programs[part]

    def _made(self, part: Part, begin: int) -> PartProgram:
        return PartProgram(self.integers, part, self.chip, self.scheduler, begin, self.on_progress, self.texts)

    def check_records(self) -> None:
        """Raises LanguageError, with the words that are enough, if the records of a program have no room behind all."""
        for each in self._programs.values():
            check_records(each.prepared, self.chip, self._end)

    def forget(self) -> None:
        """Nothing of them is in DRAM any more."""
        self._there.clear()

    def cost(self, part: Part, experts: tuple[int, ...], totals: Sequence[int]) -> Cost:
        """What a run takes in the timeline model."""
        program = self.of(part)
        cycles = play(program.program_at(totals, experts), self.chip).cycles
        return self._cost(program, experts, StepComparison(cycles))

    def run(
        self, part: Part, experts: tuple[int, ...], totals: Sequence[int], arrays: Arrays,
        execute: Callable[[Job], Run],
    ) -> tuple[Arrays, Cost]:  # fmt: skip
        """Runs a program of these experts on the device, after which the caches hold `totals[i]` tokens of text i, and
        compares every tensor with ONNX Runtime's; returns its outputs. Raises ChipFault, and what the device raises."""
        program = self.of(part)
        inputs = {value.name: arrays[value.name] for value in program.graph.inputs}
        prepared = program.at(totals, experts)
        work = replace(step_job(prepared, inputs, self.chip), stays=self._stays(program, prepared, experts))
        run, comparison = run_compared(prepared, inputs, self.chip, partial(execute, work))
        return results(prepared, run), self._cost(program, experts, comparison)

    def _cost(self, program: PartProgram, experts: tuple[int, ...], comparison: StepComparison) -> Cost:
        return Cost(program.part, experts, comparison, program.dram_bytes, program.least_cycles, program.picojoules)

    def _stays(self, program: PartProgram, prepared: PreparedNetwork, experts: tuple[int, ...]) -> list[Range]:
        """The DRAM ranges that need not be loaded: what the program before has handed on, and what earlier runs have
        loaded, caches, experts, constants and code. Behind all programs the device may write records."""
        ranges = [(tile, self._end, 0) for tile in self.chip.drams]
        if self._rows[program.part] != self._row:
            self._row = self._rows[program.part]
            self._there.difference_update(self._programs)
        layer = self.integers.model.mixtures[program.part.number] if program.part.slots else 0
        numbers = {slot(layer, name, at): (layer, e) for at, e in enumerate(experts) for name in ("up", "down")}
        caches = {cache.past for cache in program.graph.caches}
        loaded = set[str]() if self.caches else caches
        here: set[object] = {program.part}
        for name, places in program.shared(prepared).items():
            if name in loaded:
                continue
            key = numbers.get(name, name if name in caches else None)
            here.add(key)
            if key is None or key in self._there:
                ranges += places
        if program.part in self._there:
            ranges += program.lasting
        self._there |= here
        return ranges


def check_regions(model: LanguageModel, chip: ChipConfig, texts: int = 1) -> None:
    """Raises LanguageError if experts, and caches of so many texts, alone are larger than the chip's DRAM."""
    regions = regions_of(model, texts)
    words = {region.name: region.planes(chip.lanes, chip.cols) * region.positions for region in regions}
    room = chip.dram.words * len(chip.drams)
    if sum(words.values()) > room:
        experts = sum(each for name, each in words.items() if name.rpartition("/")[2] in ("up", "down"))
        raise LanguageError(
            f"the experts of {model.name} take {experts} words of DRAM, its caches {sum(words.values()) - experts}, "
            f"chip {chip.name} has {room}; give its [dram] more words, or take a model with fewer or smaller experts"
        )
