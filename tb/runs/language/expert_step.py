"""One step of a model with experts, on a device or in the model: its programs one after the other, and between them the
host, which reads the router's scores and says whose experts come next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.workload.language.experts import Chosen, Part, hidden_of, most_chosen, parts_of
from meshloom.sched.workload.language.model import LanguageModel

from ...devices.interface import Job, Run
from .comparison import StepComparison
from .programs import Cost, Programs
from .step import Caches, Routing, StepOutcome
from .walk import Arrays, Golden, Router, Texts, Walk, Walked


@dataclass(frozen=True, eq=False)
class ExpertRun:
    """What a step left, and what it took: all its programs together."""

    walked: Walked
    comparison: StepComparison
    dram_bytes: int
    least_cycles: int
    picojoules: float
    routing: Routing


class ExpertModel:
    """Steps of a model with experts. `route`: who chooses instead of the router, for experiments."""

    def __init__(self, programs: Programs, route: Router | None = None) -> None:
        self.programs = programs
        self._walk, self._golden = Walk.of(programs.integers, route), Golden(programs.integers)

    def step(self, tokens: int) -> ExpertStep:
        """The step of so many tokens of one text, its programs made: those of experts for as many as its tokens may
        choose. Raises LanguageError if the context has no room for the tokens, and what scheduling raises."""
        for part in parts_of(self.programs.integers.model, (tokens,), partial(most_chosen, (tokens,))):
            self.programs.of(part)
        return ExpertStep(self)

    def run(self, texts: Texts, execute: Callable[[Job], Run] | None, news: tuple[int, ...] = ()) -> ExpertRun:
        """Runs a step (`Walk.step`). `execute`: the device (None: ONNX Runtime computes, the timeline model counts
        cycles). Every tensor is compared with ONNX Runtime's. Raises ChipFault, and what the device raises."""
        totals = [next(iter(caches.values())).shape[1] + len(tokens) for tokens, caches in texts]
        costs: list[Cost] = []

        def compute(part: Part, experts: tuple[int, ...], arrays: Arrays) -> Arrays:
            if execute is None:
                values, cost = dict(self._golden(part, experts, arrays)), self.programs.cost(part, experts, totals)
            else:
                values, cost = self.programs.run(part, experts, totals, arrays, execute)
            costs.append(cost)
            return values

        walked = self._walk.step(texts, compute, news)
        return ExpertRun(
            walked,
            _sum([cost.comparison for cost in costs]),
            sum(cost.dram_bytes for cost in costs),
            sum(cost.least_cycles for cost in costs),
            sum(cost.picojoules for cost in costs),
            self._routing(walked.chosen, costs),
        )

    def _routing(self, chosen: Sequence[Chosen], costs: Sequence[Cost]) -> Routing:
        model = self.programs.integers.model
        most = max(map(model.experts, model.mixtures))
        tokens = np.array([np.bincount(each.ravel(), minlength=most) for each in chosen])
        fetches, read, cycles = np.zeros_like(tokens), 0, 0
        for cost in costs:
            if cost.part.slots:
                fetches[cost.part.number, list(cost.experts)] += 1
                cycles += cost.comparison.rtl_cycles or cost.comparison.model_cycles
                layer = model.mixtures[cost.part.number]
                read += len(cost.experts) * expert_bytes(model, layer, self.programs.chip)
        return Routing(tokens, fetches, cycles, read)


class ExpertStep:
    """A step of one text whose programs are there."""

    def __init__(self, model: ExpertModel) -> None:
        self._model = model

    def check_records(self) -> None:
        """See `Programs.check_records`."""
        self._model.programs.check_records()

    def run(
        self,
        tokens: NDArray[np.int64],
        caches: Caches,
        execute: Callable[[Job], Run] | None,
        before: object = None,
    ) -> StepOutcome:
        """See `LanguageStep.run`; what is in DRAM the programs know."""
        run = self._model.run([(tokens, caches)], execute)
        (scores,), (new,) = run.walked.scores, run.walked.new
        return StepOutcome(
            **vars(run.comparison), scores=scores, new=new, dram_bytes=run.dram_bytes, least_cycles=run.least_cycles,
            picojoules=run.picojoules, routing=run.routing,
        )  # fmt: skip


def expert_bytes(model: LanguageModel, layer: int, chip: ChipConfig) -> int:
    """Bytes of an expert's weights in DRAM."""
    hidden, block = hidden_of(model, layer), min(chip.lanes, chip.cols)
    return (-(-model.width // block) * hidden + -(-hidden // block) * model.width) * chip.lanes


def _sum(parts: Sequence[StepComparison]) -> StepComparison:
    """What the programs of a step did together, and the first that was wrong."""
    return StepComparison(
        model_cycles=sum(part.model_cycles for part in parts),
        rtl_cycles=sum(part.rtl_cycles for part in parts),
        host_bytes=sum(part.host_bytes for part in parts),
        bytes_checked=sum(part.bytes_checked for part in parts),
        mismatches=sum(part.mismatches for part in parts),
        first_mismatch=next((part.first_mismatch for part in parts if part.first_mismatch), ""),
        divergences=sum(part.divergences for part in parts),
        first_divergence=next((part.first_divergence for part in parts if part.first_divergence), ""),
        cpu_seconds=sum(part.cpu_seconds for part in parts),
    )
