"""Texts of the language model that ships, and single steps of it and of larger ones in the timeline model."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.model.timeline import Executed
from meshloom.sched.schedulers.network.limits import totals
from meshloom.sched.schedulers.network.scheduler import layer_of
from meshloom.sched.workload.language.drawn import drawn_model
from meshloom.sched.workload.language.integers import integers
from meshloom.sched.workload.language.model import LanguageModel, load
from meshloom.sched.workload.layout import WeightLayout

from ...compare import attribution
from ...results.language import PhaseFigures
from ...results.legend import GROUPS
from ...runs.language.generation import Generation, generate
from ...runs.language.step import LanguageStep
from ...runs.network import PreparedNetwork, spans
from ..engine.point import Inputs, Point, Report
from ..points.runs import DEVICE, Changes, chip_of, gateware, scheduled_by

MODEL, SCHEDULER = "shakespeare", "loop_order:effort=quick"
#: What is generated, and how.
PROMPT, TOKENS, CHUNK = "ROMEO:\nI will not ", 12, 16
#: Of drawn models: heads, context, layers, and the width between the products of a layer over that of the model.
DRAWN = 4, 256, 2, 4
#: Options that chips lack which a softmax and a division by the root mean square need.
ADDED: Mapping[str, Changes] = {
    "lp9": (("core.vec_whole", True),),
    "server1": (("core.vec_whole", True), ("core.vec_table", True)),
}
_BYTE = 8
_MODULES = "tb.runs.language.generation", "sched.workload.language.drawn"


def described(chip: str) -> str:
    """A chip with the options that it was given."""
    return " + ".join([chip, *(name for name, _ in ADDED.get(chip, ()))])


def model_of(width: int) -> LanguageModel:
    """The model that ships, or (`width` above 0) one of that width with weights drawn at random (`DRAWN`)."""
    return drawn_model(width, *DRAWN) if width else load(MODEL)


@dataclass(frozen=True)
class Phase:
    """Prefill or decode, all steps together. `least`: cycles that no schedule can be below; `host_bytes`: what the host
    wrote to DRAM, 0 without a device."""

    steps: int
    tokens: int
    cycles: int
    model_cycles: int
    least: int
    dram_bytes: int
    host_bytes: int
    microjoules: float

    @classmethod
    def of(cls, figures: PhaseFigures) -> Phase:
        """That of results."""
        cycles = figures.model_cycles if figures.rtl_cycles is None else figures.rtl_cycles
        return cls(
            figures.steps, figures.tokens, cycles, figures.model_cycles, figures.least_cycles, figures.dram_bytes,
            figures.host_bytes or 0, figures.microjoules or 0.0,
        )  # fmt: skip


@dataclass(frozen=True)
class TextRow:
    """A generated text, as in `LanguageResults`; `reasons`: what is wrong."""

    text: str
    float_text: str
    agreement: float
    perplexity: float
    float_perplexity: float
    prefill: Phase
    decode: Phase
    compared: int
    wrong: int
    seconds: float
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class TextPoint(Point):
    """The text on a chip, on the `rtl` or (cycles) in the timeline model and (bytes) by ONNX Runtime."""

    chip: str
    rtl: bool
    row: ClassVar[Any] = TextRow
    weight_bits: ClassVar[int] = 8

    @property
    def config(self) -> ChipConfig:
        """The chip."""
        return chip_of(self.chip, ADDED.get(self.chip, ()))

    @property
    def name(self) -> str:
        return f"text on {described(self.chip)}" + " (model)" * (not self.rtl)

    @property
    def work(self) -> float:
        return 60.0 if self.rtl else 20.0

    def inputs(self) -> Inputs:
        scheduled = scheduled_by(SCHEDULER)
        bench = (("gateware", gateware()),) * self.rtl
        return Inputs((*scheduled.modules, *_MODULES), (*scheduled.more, ("chip", self.config.digest), *bench))

    def measure(self, report: Report) -> TextRow:
        with tempfile.TemporaryDirectory() as folder:
            generation = Generation(
                load(MODEL), PROMPT, TOKENS, self.config, Path(folder) / "text.npz", CHUNK, SCHEDULER,
                DEVICE if self.rtl else None, weight_bits=self.weight_bits,
            )  # fmt: skip
            results = generate(generation, report)
        return TextRow(
            results.text, results.float_text, results.agreement or 0.0, results.perplexity, results.float_perplexity,
            Phase.of(results.prefill), Phase.of(results.decode), results.bytes_checked, results.mismatches,
            results.cpu_seconds, results.reasons,
        )  # fmt: skip


@dataclass(frozen=True)
class StepRow:
    """A step in the timeline model. `weights`: bytes of all products' weights (if they have fewer bits, of all words
    that hold them); `cache`: of its keys and values;
    `product_macs` of its products with weights, `product_cycles` in which any of these was computed; `busy`: cycles of
    the busiest resource of each kind; `shares`: of the PE cycles by cause, in percent; `changing` of its
    `instructions` are others in each step."""

    cycles: int
    macs: int
    weights: int
    cache: int
    dram_bytes: int
    product_macs: int
    product_cycles: int
    busy: dict[str, int]
    shares: dict[str, float]
    instructions: int
    changing: int


def weight_bytes(schedule: Schedule, chip: ChipConfig) -> int:
    """Bytes of DRAM that hold the weights of products, with their scales if they have some."""
    return sum(one.words for one in schedule.tensors if isinstance(one.layout, WeightLayout)) * chip.lanes


@dataclass(frozen=True)
class StepPoint(Point):
    """A step of so many tokens. `width`: of a drawn model (`model_of`); 0: the one that ships."""

    chip: str
    tokens: int
    width: int = 0
    row: ClassVar[Any] = StepRow
    weight_bits: ClassVar[int] = 8

    @property
    def config(self) -> ChipConfig:
        """The chip."""
        return chip_of(self.chip, ADDED.get(self.chip, ()))

    @property
    def name(self) -> str:
        width = f" of width {self.width}" * (self.width > 0)
        return f"step of {self.tokens}{width} on {described(self.chip)}"

    @property
    def work(self) -> float:
        return 10.0 + self.tokens / 8

    def inputs(self) -> Inputs:
        scheduled = scheduled_by(SCHEDULER)
        modules = *scheduled.modules, "tb.runs.language.step", "sched.workload.language.drawn"
        return Inputs(modules, (*scheduled.more, ("chip", self.config.digest)))

    def measure(self, report: Report) -> StepRow:
        """Raises DoesNotFit, LanguageError."""
        chip, model = self.config, model_of(self.width)
        step = LanguageStep(integers(model, self.weight_bits), self.tokens, chip, SCHEDULER, report)
        schedule, prepared = step.prepared.network_schedule.schedule, step.prepared
        executed = list(prepared.timeline.executed)
        macs = {layer.output: step.graph.macs(layer) for layer in step.graph.layers}
        total = attribution.attribute(
            prepared.program, schedule, executed, prepared.timeline.cycles, chip, lambda op: layer_of(op.label), macs
        ).total
        products = [layer.output for layer in step.graph.layers if layer.kind == "conv"]
        return StepRow(
            prepared.timeline.cycles, step.graph.total_macs,
            model.weights if self.weight_bits == _BYTE else weight_bytes(schedule, chip),
            2 * model.layers * model.context * model.width, step.dram_bytes,
            sum(macs[name] for name in products), _together(products, prepared, executed, chip),
            {name: round(cycles) for name, cycles in totals(schedule, chip).items()},
            {group: 100 * total.cycles.get(group, 0) / max(1, total.total) for group in GROUPS},
            prepared.program.instructions, step.resident.changing,
        )  # fmt: skip


def _together(names: list[str], prepared: PreparedNetwork, executed: list[Executed], chip: ChipConfig) -> int:
    """Cycles in which any of these layers is computed, from its first operation to its last."""
    by_layer = spans(executed, chip, prepared.network_schedule.schedule)
    cycles, behind = 0, 0
    for start, end in sorted(by_layer[name] for name in names):
        cycles += max(0, end - max(start, behind))
        behind = max(behind, end)
    return cycles
