"""Texts of the model with experts that ships, steps of it whose choices are drawn, and what cutting a step costs."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.config import load as load_chip
from meshloom.sched.workload.language.drawn import drawn_model
from meshloom.sched.workload.language.experts import Chosen, Part, even_chosen, parts_of, whole_graph
from meshloom.sched.workload.language.integers import Integers, integers
from meshloom.sched.workload.language.model import LanguageModel, load
from meshloom.sched.workload.normalisation import ONE

from ...devices.registry import find as find_device
from ...results.language import ExpertFigures, PhaseFigures
from ...runs.language.expert_step import ExpertModel, expert_bytes
from ...runs.language.generation import Generation, generate
from ...runs.language.programs import Programs
from ...runs.language.state import first_state
from ...runs.network import prepare
from ...runs.training.machine import on_device
from ..engine.point import Inputs, Point, Report
from ..points.runs import DEVICE, gateware, scheduled_by

MODEL, SCHEDULER = "shakespeare_experts", "loop_order:effort=quick"
#: What is generated, and how.
PROMPT, TOKENS, CHUNK = "ROMEO:\nI will not ", 32, 16
#: Of drawn models: heads, context, layers, the width between the products of an expert over that of the model, experts,
#: and those that a token takes.
DRAWN = 4, 128, 2, 4, 8, 2
#: How often choices are drawn for a step; the exponent for which all tokens take the same.
DRAWS, ALIKE = 5, 99.0
_MODULES = "tb.runs.language.generation", "sched.workload.language.drawn"


def model_of(width: int) -> LanguageModel:
    """The model that ships, or (`width` above 0) one of that width with weights drawn at random (`DRAWN`)."""
    return drawn_model(width, *DRAWN) if width else load(MODEL)


def _inputs(chip: str, rtl: bool) -> Inputs:
    scheduled = scheduled_by(SCHEDULER)
    bench = (("gateware", gateware()),) * rtl
    return Inputs((*scheduled.modules, *_MODULES), (*scheduled.more, ("chip", load_chip(chip).digest), *bench))


@dataclass(frozen=True)
class TextRow:
    """A generated text, as in `LanguageResults`; `reasons`: what is wrong."""

    text: str
    float_text: str
    agreement: float
    perplexity: float
    float_perplexity: float
    prefill: PhaseFigures
    decode: PhaseFigures
    experts: ExpertFigures
    compared: int
    wrong: int
    seconds: float
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class TextPoint(Point):
    """The text on the RTL of a chip."""

    chip: str
    row: ClassVar[Any] = TextRow

    @property
    def name(self) -> str:
        return f"text on {self.chip}"

    @property
    def work(self) -> float:
        return 40.0

    def inputs(self) -> Inputs:
        return _inputs(self.chip, True)

    def measure(self, report: Report) -> TextRow:
        with tempfile.TemporaryDirectory() as folder:
            generation = Generation(
                load(MODEL), PROMPT, TOKENS, load_chip(self.chip), Path(folder) / "text.npz", CHUNK, SCHEDULER, DEVICE
            )
            results = generate(generation, report)
        assert results.experts is not None
        return TextRow(
            results.text, results.float_text, results.agreement or 0.0, results.perplexity, results.float_perplexity,
            results.prefill, results.decode, results.experts, results.bytes_checked, results.mismatches,
            results.cpu_seconds, results.reasons,
        )  # fmt: skip


def drawn_choices(tokens: int, experts: int, top: int, skew: float, seed: int) -> Chosen:
    """The experts of each token, [tokens, top]: drawn without putting back, expert r with a weight of (r + 1) to the
    power of -`skew` (Zipf's law)."""
    noise = np.random.RandomState(seed).gumbel(size=(tokens, experts))
    return np.sort(np.argsort(skew * np.log(np.arange(experts) + 1) - noise, axis=-1)[:, :top], axis=-1)


@dataclass(frozen=True)
class SkewRow:
    """A step, in the mean of its draws: `experts` of a program, the `busiest` over the mean; `cycles` of the step and
    of its programs of experts, bytes of DRAM and of experts among them. On the RTL what was compared and was wrong, and
    cycles of the model."""

    experts: float
    busiest: float
    cycles: float
    expert_cycles: float
    dram_bytes: float
    expert_bytes: float
    compared: int = 0
    wrong: int = 0
    model_cycles: int = 0
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class SkewPoint(Point):
    """A step of so many tokens whose choices are drawn (`drawn_choices`): in the timeline model, or once on the `rtl`.
    `width`: of a drawn model (`model_of`); 0: the one that ships."""

    chip: str
    tokens: int
    skew: float
    width: int = 0
    rtl: bool = False
    row: ClassVar[Any] = SkewRow

    @property
    def name(self) -> str:
        width = f" of width {self.width}" * (self.width > 0)
        return f"step of {self.tokens}{width} on {self.chip}, skew {self.skew:g}" + " (RTL)" * self.rtl

    @property
    def work(self) -> float:
        return 5.0 + self.tokens / 4 + 10 * self.rtl

    def inputs(self) -> Inputs:
        return _inputs(self.chip, self.rtl)

    def measure(self, report: Report) -> SkewRow:
        """Raises DoesNotFit, LanguageError; on the RTL ChipFault, and what the device raises."""
        numbers = integers(model_of(self.width))
        programs = Programs(numbers, load_chip(self.chip), SCHEDULER, report)
        return self._on_device(programs, report) if self.rtl else self._in_model(programs)

    def _choices(self, numbers: Integers, layer: int, draw: int) -> Chosen:
        model = numbers.model
        return drawn_choices(self.tokens, model.experts(layer), model.top, self.skew, 100 * draw + layer)

    def _in_model(self, programs: Programs) -> SkewRow:
        model, news = programs.integers.model, (self.tokens,)
        count, busiest, cycles, inside, moved, read = np.zeros(6)
        for part in (Part(news, number) for number in range(len(model.mixtures) + 1)):
            cost = programs.cost(part, (), news)
            cycles, moved = cycles + cost.comparison.model_cycles, moved + cost.dram_bytes
        for draw in range(DRAWS):
            for number, layer in enumerate(model.mixtures):
                chosen = self._choices(programs.integers, layer, draw)
                experts = tuple(np.unique(chosen).tolist())
                cost = programs.cost(Part(news, number, len(experts)), experts, news)
                inside += cost.comparison.model_cycles / DRAWS
                moved += cost.dram_bytes / DRAWS
                read += len(experts) * expert_bytes(model, layer, programs.chip) / DRAWS
                share = 1 / DRAWS / len(model.mixtures)
                count += len(experts) * share
                busiest += np.bincount(chosen.ravel()).max() * model.experts(layer) / chosen.size * share
        return SkewRow(float(count), float(busiest), float(cycles + inside), float(inside), float(moved), float(read))

    def _on_device(self, programs: Programs, report: Report) -> SkewRow:
        model = programs.integers.model

        def route(layer: int, scores: NDArray[np.int8]) -> tuple[Chosen, NDArray[np.int8]]:
            chosen = self._choices(programs.integers, layer, 0)
            gates = np.zeros(scores.shape, np.int8)
            np.put_along_axis(gates, chosen, np.int8(ONE // model.top), axis=-1)
            return chosen, gates

        text = model.tokens(model.held_out[: self.tokens])
        with on_device(find_device(DEVICE).open(programs.chip, False, report)) as device:
            run = ExpertModel(programs, route).run([(text, first_state(model, "").caches)], device.execute)
        tokens, result = run.routing.tokens, run.comparison
        return SkewRow(
            float(np.count_nonzero(tokens, axis=1).mean()),
            float((tokens.max(axis=1) * [model.experts(each) for each in model.mixtures] / tokens.sum(axis=1)).mean()),
            result.rtl_cycles, run.routing.cycles, run.dram_bytes, run.routing.expert_bytes, result.bytes_checked,
            result.mismatches, result.model_cycles,
            tuple(filter(None, (result.first_mismatch, result.first_divergence))),
        )  # fmt: skip


@dataclass(frozen=True)
class CutRow:
    """Cycles of a step in the timeline model: `whole`, one program, were its experts known before it; `cut`, in so many
    `programs`; `every`, with all experts read in each layer."""

    programs: int
    whole: int
    cut: int
    every: int
    cut_bytes: int
    every_bytes: int


@dataclass(frozen=True)
class CutPoint(Point):
    """A step whose tokens choose experts evenly, in one program and in several. `width`: as in `SkewPoint`."""

    chip: str
    tokens: int
    width: int = 0
    row: ClassVar[Any] = CutRow

    @property
    def config(self) -> ChipConfig:
        """The chip."""
        return load_chip(self.chip)

    @property
    def name(self) -> str:
        width = f" of width {self.width}" * (self.width > 0)
        return f"step of {self.tokens}{width} on {self.chip}, whole and cut"

    @property
    def work(self) -> float:
        return 10.0 + self.tokens / 2

    def inputs(self) -> Inputs:
        return _inputs(self.chip, False)

    def measure(self, report: Report) -> CutRow:
        """Raises DoesNotFit, LanguageError."""
        numbers, news = integers(model_of(self.width)), (self.tokens,)
        slots = partial(even_chosen, news)
        whole = prepare(whole_graph(numbers, news, slots), self.config, report, SCHEDULER).timeline.cycles
        programs = Programs(numbers, self.config, SCHEDULER, report)

        def costs(some: list[Part]) -> tuple[int, int]:
            all_ = [programs.cost(part, tuple(range(part.slots)), news) for part in some]
            return sum(cost.comparison.model_cycles for cost in all_), sum(cost.dram_bytes for cost in all_)

        parts = parts_of(numbers.model, news, slots)
        (cut, cut_bytes), (every, every_bytes) = (
            costs(some) for some in (parts, parts_of(numbers.model, news, lambda experts, top: experts))
        )
        return CutRow(len(parts), whole, cut, every, cut_bytes, every_bytes)
