"""One step of several texts: so many new tokens of each behind those that its caches hold, on a device or in the
model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.lowering.programs import check_program
from meshloom.sched.lowering.resident import Regions, ResidentProgram, lasting, moved_schedule
from meshloom.sched.model.timeline import play
from meshloom.sched.program.program import Program
from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.language.graph import attended, batch_graph, named
from meshloom.sched.workload.language.integers import Integers
from meshloom.sched.workload.language.model import LanguageError, LanguageModel

from ...devices.interface import Job, Run
from ..language.comparison import StepComparison, run_compared, step_job
from ..language.fitting import fitted_step
from ..language.shared import SharedDram
from ..network import PreparedNetwork, dram_bytes, results

#: Keys and values of a text: int8 [W, tokens] by name, as a step of one text names its caches.
Caches = Mapping[str, NDArray[np.int8]]


@dataclass(frozen=True)
class ExpertCost:
    """What experts of a step cost: choices of the host between two programs, experts whose weights were read, their
    bytes, and cycles of the programs of experts."""

    round_trips: int
    fetched: int
    bytes: int
    cycles: int


@dataclass(frozen=True, eq=False, kw_only=True)
class BatchOutcome(StepComparison):
    """What a step left, by text: scores of its last token, int8 [V], and what was appended to its caches, int8 [W,
    tokens] by name. `dram_bytes`: from and to DRAM, the programs included; `experts`: None of a model without."""

    scores: tuple[NDArray[np.int8], ...]
    new: tuple[dict[str, NDArray[np.int8]], ...]
    dram_bytes: int
    experts: ExpertCost | None = None


class BatchStep:
    """The step of `news[i]` new tokens of text i, scheduled and checked once; each run moves the caches of each text to
    where they lie by then.

    Caches of text i lie in regions of their own, so that of two texts can lie anywhere in theirs: the checker looks at
    the first place of all, and at the last. `shared`: the DRAM of the steps that run in turn with it, as of a
    `LanguageStep`.
    """

    def __init__(
        self, integers: Integers, news: tuple[int, ...], chip: ChipConfig, scheduler: str,
        on_progress: Callable[[str], None] = lambda what: None, shared: SharedDram | None = None,
    ) -> None:  # fmt: skip
        self.integers, self.news, self.chip = integers, news, chip
        self.graph: Graph = batch_graph(integers, news)
        beside = shared and shared.beside(self.graph, scheduler, on_progress)
        self.prepared: PreparedNetwork = beside or fitted_step(integers, news, chip, on_progress, scheduler)
        self.dram = shared if shared and beside else SharedDram(chip)
        self.dram.add(self.prepared)
        schedule = self.prepared.network_schedule.schedule
        self.regions = tuple(
            Regions.of(schedule, (cache for cache in self.graph.caches if cache.new in self._names(text).values()))
            for text in range(len(news))
        )
        self._resident = ResidentProgram(self.prepared.program, *self.regions)
        self._lasting = [*lasting(schedule, chip), *self._resident.unchanged(chip)]
        last = self._at([integers.model.context] * len(news))
        on_progress("checking the program with all caches at their ends")
        check_program(last.program, chip, last.network_schedule.schedule)

    @property
    def dram_bytes(self) -> int:
        """Read from and written to DRAM in a step, the program included."""
        return dram_bytes(self.prepared.network_schedule.schedule, self.prepared.program, self.chip)

    @property
    def predicted(self) -> int:
        """Cycles with caches at the beginning of their regions."""
        return self.prepared.timeline.cycles

    def model_cycles(self, totals: Sequence[int]) -> int:
        """Cycles in the timeline model, after which the caches hold `totals[i]` tokens of text i."""
        return play(self._program(totals), self.chip).cycles

    def inputs(self, texts: Sequence[tuple[NDArray[np.int64], Caches]]) -> dict[str, NDArray[np.int8]]:
        """What the network reads: for each text tokens, at most as many as there are places, and its caches. Places
        that are left over come first and count for nothing."""
        model = self.integers.model
        rows: dict[str, list[NDArray[np.int8]]] = {}
        arrays: dict[str, NDArray[np.int8]] = {}
        for text, (tokens, caches) in enumerate(texts):
            places, before = self.news[text], _length(caches)
            for name, entered in self.integers.entered(tokens, before).items():
                row = np.zeros((*entered.shape[:3], places), np.int8)
                row[..., places - len(tokens) :] = entered
                rows.setdefault(name, []).append(row)
            counts = attended(model.context, model.heads, places, before + len(tokens), self.integers.slopes)
            arrays |= {named(name, text, len(self.news)): array for name, array in counts.items()}
            pasts = {cache.new: cache.past for cache in self.graph.caches}
            for name, new in self._names(text).items():
                past = np.zeros((1, model.key_width, 1, model.context - places), np.int8)
                past[0, :, 0, past.shape[3] - before :] = caches[name]
                arrays[pasts[new]] = past
        return arrays | {name: np.concatenate(row, axis=3) for name, row in rows.items()}

    def run(
        self, texts: Sequence[tuple[NDArray[np.int64], Caches]], execute: Callable[[Job], Run],
        before: object = None,
    ) -> BatchOutcome:  # fmt: skip
        """Runs the step on a device; see `inputs`. `before`: `dram` of the step that ran last there (None: nobody
        was). Every tensor is compared with ONNX Runtime's. Raises ChipFault, and what the device raises."""
        inputs = self.inputs(texts)
        prepared = self._at([_length(caches) + len(tokens) for tokens, caches in texts])
        work = replace(step_job(prepared, inputs, self.chip), stays=self.dram.present(self._lasting, before))
        run, comparison = run_compared(prepared, inputs, self.chip, partial(execute, work))
        self.dram.record(self._lasting)
        values, ends = results(prepared, run), np.cumsum(self.news) - 1
        return BatchOutcome(
            **vars(comparison),
            scores=tuple(values["scores"][0, :, 0, end] for end in ends),
            new=tuple(
                {name: values[new][0, :, 0, -len(tokens) :].copy() for name, new in self._names(text).items()}
                for text, (tokens, _) in enumerate(texts)
            ),
            dram_bytes=self.dram_bytes,
        )

    def _names(self, text: int) -> dict[str, str]:
        """Names of the caches of a text: in a step of its own, and in this one."""
        names = cache_names(self.integers.model)
        return {name: named(name, text, len(self.news)) for name in names}

    def _at(self, totals: Sequence[int]) -> PreparedNetwork:
        """The step after which the caches hold `totals[i]` tokens of text i."""
        base, program = self.prepared.network_schedule, self._program(totals)
        schedule = moved_schedule(base.schedule, *zip(self.regions, totals, strict=True))
        network_schedule = replace(base, schedule=schedule, lowered=None)
        return replace(
            self.prepared, network_schedule=network_schedule, program=program, timeline=play(program, self.chip)
        )

    def _program(self, totals: Sequence[int]) -> Program:
        """Its program alone."""
        return self._resident.moved(*totals)


def cache_names(model: LanguageModel) -> tuple[str, ...]:
    """Names of the caches of a step of one text."""
    return tuple(f"{layer}/{name}" for layer in range(model.layers) for name in "kv")


def no_caches(model: LanguageModel) -> Caches:
    """Those of a text of which nothing has been read."""
    return dict.fromkeys(cache_names(model), np.zeros((model.key_width, 0), np.int8))


def seat_words(model: LanguageModel, chip: ChipConfig) -> int:
    """Words of each DRAM tile that the keys and values of a text take, at most."""
    planes = model.groups * -(-model.head_width // min(chip.lanes, chip.cols))
    return 2 * model.layers * -(-planes // len(chip.drams)) * 2 * model.context


def check_seats(model: LanguageModel, chip: ChipConfig, seats: int) -> None:
    """Raises LanguageError if the caches of so many texts alone are larger than the chip's DRAM."""
    words = 2 * model.layers * -(-model.key_width // chip.lanes) * 2 * model.context
    room = chip.dram.words * len(chip.drams)
    if words * seats > room:
        shorter = "take a shorter context" if model.reach else "take a model with a shorter context"
        mend = f"take at most seats = {room // words}" if room >= words else shorter
        raise LanguageError(
            f"keys and values of {seats} texts of {model.name} take {words * seats} words of DRAM, chip {chip.name} "
            f"has {room}; give its [dram] more words, or {mend}"
        )


def _length(caches: Caches) -> int:
    """Tokens that caches hold."""
    return next(iter(caches.values())).shape[1]
