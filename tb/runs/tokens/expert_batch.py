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
    """The steps of a model with experts on a chip. Steps of as many texts have their programs in common."""

    def __init__(
        self, integers: Integers, chip: ChipConfig, scheduler: str, on_progress: Callable[[str], None]
    ) -> None:
        self._integers, self._chip, self._scheduler, self._on_progress = integers, chip, scheduler, on_progress
        self._models: dict[int, ExpertModel] = {}

    def of(self, news: tuple[int, ...]) -> ExpertBatch:
        """The step of so many new tokens of each text. Raises LanguageError, and what scheduling raises."""
        texts = len(news)
        if texts not in self._models:
            programs = Programs(self._integers, self._chip, self._scheduler, self._on_progress, texts=texts, stay=False)
            self._models[texts] = ExpertModel(programs)
        return ExpertBatch(self._models[texts], news)


class ExpertBatch:
    """The step of `news[i]` new tokens of text i. How many experts a step reads only its tokens say: so these are
    computed without a device, too."""

    def __init__(self, model: ExpertModel, news: tuple[int, ...]) -> None:
        self.news, self._model = news, model
        programs = model.programs
        parts = parts_of(programs.integers.model, news, partial(even_chosen, news))
        self.predicted = sum(
            programs.cost(part, tuple(range(part.slots)), news).comparison.model_cycles for part in parts
        )
        """Cycles with caches at the beginning of their regions, if its tokens chose experts evenly."""

    def run(
        self, texts: Sequence[tuple[NDArray[np.int64], Caches]], execute: Callable[[Job], Run] | None
    ) -> BatchOutcome:
        """Runs the step: of each text at most as many tokens as it has places, and its caches. `execute`: None for ONNX
        Runtime and the timeline model. Raises as `ExpertModel.run`."""
        run = self._model.run(texts, execute, self.news)
        routing = run.routing
        experts = ExpertCost(
            len(routing.tokens), int(routing.fetches.sum()), routing.expert_bytes, routing.cycles,
        )  # fmt: skip
        return BatchOutcome(
            **vars(run.comparison), scores=tuple(scores[-1] for scores in run.walked.scores), new=run.walked.new,
            dram_bytes=run.dram_bytes, experts=experts,
        )  # fmt: skip
