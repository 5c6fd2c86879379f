"""One step of several texts of a model with experts: its programs one after the other, and the host between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.workload.language.experts import even_chosen, parts_of
from meshloom.sched.workload.language.integers import Integers

from ...devices.interface import Job, Run
from ..language.expert_step import ExpertModel
from ..language.programs import Programs
from .step import BatchOutcome, Caches, ExpertCost


class ExpertBatches:
    """The steps of a model with experts on a chip, of so many texts at most: their programs lie side by side."""

    def __init__(
        self, integers: Integers, chip: ChipConfig, scheduler: str, on_progress: Callable[[str], None], texts: int
    ) -> None:
        self._model = ExpertModel(Programs(integers, chip, scheduler, on_progress, texts=texts, caches=False))

    def of(self, news: tuple[int, ...]) -> ExpertBatch:
        """The step of so many new tokens of each text. Raises LanguageError, and what scheduling raises."""
        return ExpertBatch(self._model, news)


class ExpertBatch:
    """The step of `news[i]` new tokens of text i. How many experts a step reads only its tokens say: so these are
    computed without a device, too."""

    def __init__(self, model: ExpertModel, news: tuple[int, ...]) -> None:
        self.news, self._model = news, model
        programs = self.dram = model.programs
        parts = parts_of(programs.integers.model, news, partial(even_chosen, news))
        self.predicted = sum(
            programs.cost(part, tuple(range(part.slots)), news).comparison.model_cycles for part in parts
        )
        """Cycles with caches at the beginning of their regions, if its tokens chose experts evenly."""

    def run(
        self, texts: Sequence[tuple[NDArray[np.int64], Caches]], execute: Callable[[Job], Run] | None,
        before: object = None,
    ) -> BatchOutcome:  # fmt: skip
        """Runs the step: of each text at most as many tokens as it has places, and its caches. `execute`: None for ONNX
        Runtime and the timeline model; `before`: `dram` of the step that ran last on the device (None: nobody was).
        Raises as `ExpertModel.run`."""
        if before is not self.dram:
            self.dram.forget()
        run = self._model.run(texts, execute, self.news)
        routing = run.routing
        experts = ExpertCost(
            len(routing.tokens), int(routing.fetches.sum()), routing.expert_bytes, routing.cycles,
        )  # fmt: skip
        return BatchOutcome(
            **vars(run.comparison), scores=tuple(scores[-1] for scores in run.walked.scores), new=run.walked.new,
            dram_bytes=run.dram_bytes, experts=experts,
        )  # fmt: skip
