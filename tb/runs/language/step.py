"""One step of a language model: so many new tokens behind those that the cache holds, on a device or in the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.lowering.programs import check_program
from meshloom.sched.lowering.resident import Regions, ResidentProgram, lasting, moved_schedule
from meshloom.sched.model.timeline import play
from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.language.graph import attended, step_graph
from meshloom.sched.workload.language.integers import Integers

from ...compare.energy import estimate
from ...devices.interface import Job, Run
from ...inputs.golden.graph import golden_values
from ...results.energy import load as load_energies
from ..network import PreparedNetwork, dram_bytes, results
from .comparison import StepComparison, run_compared, step_job
from .fitting import fitted_step
from .shared import SharedDram

Caches = Mapping[str, NDArray[np.int8]]


@dataclass(frozen=True)
class Routing:
    """What experts of a step did, by mixture: tokens that took each of them, whether its weights were read from DRAM,
    and cycles of their program; `expert_bytes`: of the weights that were read."""

    tokens: NDArray[np.int64]
    fetches: NDArray[np.int64]
    cycles: int
    expert_bytes: int


@dataclass(frozen=True, eq=False, kw_only=True)
class StepOutcome(StepComparison):
    """What a step left: `scores` int8 [tokens, V]; by cache what was appended, int8 [W, tokens]. What it cost: bytes
    from and to DRAM, the cycles that no schedule can be below, an estimate of the energy. `routing`: None of a model
    without experts."""

    scores: NDArray[np.int8]
    new: dict[str, NDArray[np.int8]]
    dram_bytes: int
    least_cycles: int
    picojoules: float
    routing: Routing | None = None


class LanguageStep:
    """The step of `tokens` new tokens, scheduled and checked once; each run moves its cache to where it lies by then.
    `shared`: the DRAM of the steps that run in turn with it (None: it has one of its own); where that has no room for
    another one, it lies in their place.

    Raises LanguageError if the context has no room for the tokens or the chip none for such a context, and what
    scheduling raises.
    """

    def __init__(
        self, integers: Integers, tokens: int, chip: ChipConfig, scheduler: str,
        on_progress: Callable[[str], None] = lambda what: None, shared: SharedDram | None = None,
    ) -> None:  # fmt: skip
        self.integers, self.tokens, self.chip = integers, tokens, chip
        self.graph: Graph = step_graph(integers, tokens)
        beside = shared and shared.beside(self.graph, scheduler, on_progress)
        self.prepared: PreparedNetwork = beside or fitted_step(integers, (tokens,), chip, on_progress, scheduler)
        self.shared = shared if shared and (beside or not shared.begin) else SharedDram(chip)
        self.shared.add(self.prepared)
        schedule = self.prepared.network_schedule.schedule
        self.regions = Regions.of(schedule, self.graph.caches)
        self.resident = ResidentProgram(self.prepared.program, self.regions)
        self._lasting = [*lasting(schedule, chip), *self.resident.unchanged(chip)]
        # the last place, too: where others lie between them, they reach no other words
        last = self._at(integers.model.context)
        on_progress("checking the program with the cache at its end")
        check_program(last.program, chip, last.network_schedule.schedule)

    def check_records(self) -> None:
        """See `SharedDram.check_records`."""
        self.shared.check_records()

    @property
    def dram_bytes(self) -> int:
        """Read from and written to DRAM in a step, the program included."""
        return dram_bytes(self.prepared.network_schedule.schedule, self.prepared.program, self.chip)

    @property
    def least_cycles(self) -> int:
        """What no schedule of this step can be below: its products over all PEs, its bytes over all DRAM channels."""
        return least_cycles(self.graph.total_macs, self.dram_bytes, self.chip)

    @cached_property
    def picojoules(self) -> float:
        """What a step is estimated to take, by the table that holds without another one. Raises EnergyError."""
        schedule = self.prepared.network_schedule.schedule
        table = load_energies()
        return estimate(self.graph.total_macs, schedule, self.prepared.program, self.chip, table).microjoules * 1e6

    def inputs(self, tokens: NDArray[np.int64], caches: Caches) -> dict[str, NDArray[np.int8]]:
        """What the network reads: `tokens` behind those of `caches`, int8 [W, tokens so far]."""
        model, before = self.integers.model, next(iter(caches.values())).shape[1]
        arrays = self.integers.entered(tokens, before)
        arrays |= attended(model.context, model.heads, self.tokens, before + self.tokens, self.integers.slopes)
        for cache in self.graph.caches:
            width = self.graph.value(cache.past).width
            past = np.zeros((1, self.integers.model.key_width, 1, width), np.int8)
            some = caches[cache.new][:, -width:]
            past[0, :, 0, width - some.shape[1] :] = some
            arrays[cache.past] = past
        return arrays

    def stays(self, total: int, before: LanguageStep | None) -> list[tuple[int, int, int]]:
        """The DRAM ranges that need not be loaded for the step after which the cache holds `total` tokens, if another
        was there `before`: the cache, its weights if steps that share them with it were, its code if it was. None is if
        nobody was."""
        base = self.prepared.network_schedule.schedule
        present = self.shared.present(self._lasting, before and before.shared)
        if before is None or self._cache_places() != before._cache_places():
            return []
        pieces = [piece for cache in self.graph.caches for piece in base.tensor(cache.past).pieces]
        ranges = [(piece.tile, piece.address + total, piece.words) for piece in pieces]
        return [*ranges, *present]

    def _cache_places(self) -> list[tuple[str, int, int]]:
        """Where each cache's planes begin."""
        schedule = self.prepared.network_schedule.schedule
        return [
            (cache.new, piece.tile, piece.address)
            for cache in self.graph.caches
            for piece in schedule.tensor(cache.past).pieces
        ]

    def run(
        self,
        tokens: NDArray[np.int64],
        caches: Caches,
        execute: Callable[[Job], Run] | None,
        before: LanguageStep | None = None,
    ) -> StepOutcome:
        """Runs the step on `tokens`, behind those of which `caches` holds keys and values. `execute`: the device (None:
        ONNX Runtime computes, the timeline model counts cycles). `before`: the step that ran last there, on the tokens
        of the caches (None: nothing is in DRAM).

        Every tensor is compared with ONNX Runtime's. Raises ChipFault, and what the device raises.
        """
        inputs = self.inputs(tokens, caches)
        total = next(iter(caches.values())).shape[1] + self.tokens
        prepared = self._at(total)
        if execute is None:
            values, comparison = golden_values(self.graph, inputs), StepComparison(prepared.timeline.cycles)
        else:
            work = replace(step_job(prepared, inputs, self.chip), stays=self.stays(total, before))
            run, comparison = run_compared(prepared, inputs, self.chip, partial(execute, work))
            self.shared.record(self._lasting)
            values = results(prepared, run)
        return StepOutcome(
            **vars(comparison),
            scores=values["scores"][0, :, 0].T.copy(),
            new={cache.new: values[cache.new][0, :, 0].copy() for cache in self.graph.caches},
            dram_bytes=self.dram_bytes,
            least_cycles=self.least_cycles,
            picojoules=self.picojoules,
        )

    def _at(self, total: int) -> PreparedNetwork:
        """The step after which the cache holds `total` tokens."""
        prepared, base = self.prepared, self.prepared.network_schedule
        schedule = moved_schedule(base.schedule, (self.regions, total))
        program = self.resident.moved(total)
        network_schedule = replace(base, schedule=schedule, lowered=None)
        return replace(prepared, network_schedule=network_schedule, program=program, timeline=play(program, self.chip))


def least_cycles(macs: int, bytes_moved: int, chip: ChipConfig) -> int:
    """What no schedule of so many products, over all PEs, and bytes, over all DRAM channels, can be below."""
    pes = chip.rows * chip.cols * len(chip.cores)
    channels = chip.dram.bytes_per_cycle * len(chip.drams)
    return max(-(-macs // pes), -(-bytes_moved // channels))
