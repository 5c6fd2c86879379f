"""Where the cycles of a run went, as data: what `meshloom explain --json` prints."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, computed_field, model_validator

from meshloom.sched.ir.schedule import ToolClaim

from .area import AreaFigures
from .clock import ClockFigures
from .energy import EnergyFigures
from .figures import Divergence
from .record import Record

Count = Annotated[int, Field(ge=0)]


class LayerSpent(Record):
    """PE cycles of a layer by cause (`legend.CycleCause`), and in its order."""

    layer: str
    pe_cycles: dict[str, Count]


class Waterfall(Record):
    """From the ideal cycles of a run to those that it took.

    `pes`: of the whole chip; `total`: PE cycles by cause, which are `cycles` x `pes` together and the sum over the
    layers. What is divided by `pes` is in cycles; `useful` is the ideal then. Layers of the vector unit alone have no
    entry: arrays wait for them in the next one. `note`: what to know of it, if there is something.
    """

    cycles: Count
    pes: Annotated[int, Field(ge=1)]
    layers: tuple[LayerSpent, ...]
    total: dict[str, Count]
    note: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for cause, spent in self.total.items():
            if spent != sum(layer.pe_cycles.get(cause, 0) for layer in self.layers):
                raise ValueError(f"total[{cause!r}] = {spent} is not the sum over the layers")
        if sum(self.total.values()) != self.cycles * self.pes:
            raise ValueError(f"total is {sum(self.total.values())} PE cycles, not {self.cycles} x {self.pes}")
        return self

    @property
    def ideal_share(self) -> float:
        """Ideal cycles as a share of those that it took."""
        return self.total.get("useful", 0) / max(1, self.cycles * self.pes)

    def in_cycles(self, spent: dict[str, int]) -> dict[str, float]:
        """PE cycles of the chip as cycles."""
        return {cause: count / self.pes for cause, count in spent.items()}


class Who(Record):
    """An instruction: its stream, who executed it, and its operation (null, and no label, if lowering added it)."""

    opcode: str
    tile: Count
    unit: str
    position: Count
    executed_by: Count
    operation: Count | None
    label: str
    layer: str


class PathStep(Record):
    """Cycles [start, end) of the critical path: what `who` did (`Activity` in tb/compare/causes.py), and as what it
    counts (`legend.CycleCause`); `behind`: in a queue, the instruction before it."""

    start: Count
    end: Count
    activity: str
    cause: str
    who: Who
    behind: Who | None = None

    @computed_field
    @property
    def cycles(self) -> int:
        """Its length."""
        return self.end - self.start


class CriticalPath(Record):
    """Steps from cycle 0 to the end of a run, or of an operation, each beginning where the one before ends."""

    cycles: Count
    steps: tuple[PathStep, ...]

    @model_validator(mode="after")
    def _check(self) -> Self:
        at = 0
        for step in self.steps:
            if step.start != at:
                raise ValueError(f"a step begins in cycle {step.start}, the one before ends in {at}")
            at = step.end
        if at != self.cycles:
            raise ValueError(f"the last step ends in cycle {at}, not in {self.cycles}")
        return self


class Wait(Record):
    """Cycles [start, end) in which the array of a core waited before `gemm`, by cause. `by`: what it waited for most,
    for `by_cycles`, and what that was doing; `behind`: in a queue, the one before it."""

    core: Count
    start: Count
    end: Count
    gemm: Who
    causes: dict[str, Count]
    by: Who
    by_activity: str
    by_cycles: Count
    behind: Who | None = None

    @computed_field
    @property
    def cycles(self) -> int:
        """Its length."""
        return self.end - self.start


class LayerBusy(Record):
    """Cycles for which a layer's operations keep the busiest of each kind of resource (`limits.RESOURCES`)."""

    layer: str
    busy: dict[str, Count]


class GapPart(Record):
    """Cycles for which the resource that bounds a run had nothing to do, by cause (`legend.CycleCause`; `dependence`: a
    GEMM of any core was computing): after an operation of one layer and before one of another, or of the same. Empty
    names: the beginning and the end of the run."""

    after: str
    before: str
    causes: dict[str, Count]

    @computed_field
    @property
    def cycles(self) -> int:
        """All of them."""
        return sum(self.causes.values())


class BoundGap(Record):
    """From the bound of a schedule to the cycles that it took: for how long its busiest resource, `what` of `tile`, had
    nothing to do, and why. `mean`: cycles for which the resources of its kind are busy on average. `parts`: in the
    order of time in which they first occur."""

    tile: Count
    what: str
    mean: float
    parts: tuple[GapPart, ...]

    @computed_field
    @property
    def cycles(self) -> int:
        """All of them."""
        return sum(part.cycles for part in self.parts)


class Bounds(Record):
    """What no other order of the same operations can undercut, and what nothing can.

    `busy`: cycles for which all operations keep the busiest resource of each kind (`limits.TOTALS`); `cycles`: the
    largest of them, the bound, by `limit`; `layers`: the same layer by layer, with the kinds of `limits.RESOURCES`;
    `in_turn`: layers one after the other, each at its own limit; `floor`: of any schedule whatever, from useful
    products and from bytes that DRAM must carry; null if the workload is not a built-in one. `gap`: from the bound to
    the cycles that it took; null in a program timed ahead, where nothing waits, and without operations.
    """

    busy: dict[str, Count]
    layers: tuple[LayerBusy, ...]
    floor: Count | None = None
    gap: BoundGap | None = None

    @computed_field
    @property
    def cycles(self) -> int:
        """The bound."""
        return max(self.busy.values(), default=0)

    @computed_field
    @property
    def limit(self) -> str:
        """The kind of resource that bounds all; empty without operations."""
        return max(self.busy, key=self.busy.__getitem__, default="")

    @computed_field
    @property
    def in_turn(self) -> int:
        """Layers one after the other, each at its own limit."""
        return sum(max(layer.busy.values(), default=0) for layer in self.layers)


class StreamLag(Record):
    """Instructions that a unit executed in other cycles than the model says: the first one's cycle, how many of how
    many, and the largest lag (RTL - model, in cycles; negative: the RTL was earlier)."""

    tile: Count
    unit: str
    first: Count
    differing: Count
    instructions: Count
    largest: int


class Spread(Record):
    """How RTL and model differ. `end_lag`: RTL - model at the end of the run. `first` and the rest are null and empty
    when no instruction differs; `mechanism`: what the first one tells; `streams`: in the order in which it reached
    them; `unmatched`: records without a prediction, and predictions without a record."""

    instructions: Count
    differing: Count
    unmatched: Count
    end_lag: int
    first: Divergence | None = None
    mechanism: str = ""
    streams: tuple[StreamLag, ...] = ()


class Explanation(Record):
    """Why a run took its cycles. `source`: rtl or model. `planned`: it has not run, the model's plan is all there is.
    `path`: to the end of the run, or of the operation asked for; null in a program timed ahead, where nothing waits.
    `waits`: the most costly ones of arrays, worst first. `energy`: an estimate for the whole run; null if only a layer
    or an operation was asked for. `time`: its cycles as time; null without a clock. `area`: an estimate for the chip;
    null if it has not been measured (`--area`). `claim`: of a layer by another tool's mapping, what that says of
    it. `bounds`: what no other order of its operations can undercut; null if only a layer or an operation was asked
    for."""

    workload: str
    chip: str
    scheduler: str
    source: str
    planned: bool = False
    waterfall: Waterfall
    path: CriticalPath | None
    waits: tuple[Wait, ...]
    spread: Spread
    energy: EnergyFigures | None = None
    time: ClockFigures | None = None
    area: AreaFigures | None = None
    claim: ToolClaim | None = None
    bounds: Bounds | None = None


class Explanations(Record):
    """All workloads of a run, or the one that was asked for. `unexplained`: why, by name, of those that cannot be."""

    workloads: tuple[Explanation, ...]
    unexplained: dict[str, str] = {}
