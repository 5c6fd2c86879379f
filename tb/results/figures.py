"""What a row says besides its cycles and bytes: divergences, wrong bytes, faults, layers, networks, links."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Self

from pydantic import AfterValidator, Field, computed_field, model_validator

from .record import Count, Record


class Divergence(Record):
    """The first instruction, by measured time, whose cycles differ from the model's. Cycles of the run."""

    tile: Count
    unit: str
    tag: Count
    operation: Count | None = None  #: index in the schedule; null = an instruction that lowering added
    label: str = ""
    predicted_start: Count
    predicted_end: Count
    measured_start: Count
    measured_end: Count


class Maker(Record):
    """An instruction through which a wrong byte passed: a MOVE, or the GEMM or VEC that computed it.

    `index`: its position in the stream of `unit` of `tile`; `executed_by`: the tile whose unit executed it. Cycles of
    the run, from its record; null if that is missing.
    """

    operation: Count  #: index in the schedule
    label: str
    opcode: str
    tile: Count
    unit: str
    index: Count
    executed_by: Count
    start: Count | None
    end: Count | None


class WrongByte(Record):
    """The first wrong byte of an output tensor in DRAM, in the order of its words, and where it comes from.

    `channel` is null in a lane without a channel (which must be 0). `expected` and `found` as int8. `count`: wrong
    bytes of the tensor. The byte is in `lane` of word `address` of the DRAM tile `tile`; `unwritten`: that word has not
    changed since before the run. `makers`: the instructions through which it passed, the last one first.
    """

    tensor: str
    image: Count
    channel: Count | None
    row: Count
    column: Count
    lane: Count
    expected: Annotated[int, Field(ge=-128, le=127)]
    found: Annotated[int, Field(ge=-128, le=127)]
    count: Annotated[int, Field(ge=1)]
    tile: Count
    address: Count
    unwritten: bool
    makers: tuple[Maker, ...]


class FaultReport(Record):
    """One fault as latched by the host tile."""

    cause: str
    tile: Count
    unit: str
    tag: Count
    value: Count
    label: str = ""  #: of the schedule's operation, if the tag names one
    explanation: str = ""  #: after a watchdog: what waited for what, and the cycle of waits


def _renamed(shares: dict[str, float]) -> dict[str, float]:
    """Shares by the names that causes have now: files of before call the NoC `network`."""
    return {"noc" if cause == "network" else cause: share for cause, share in shares.items()}


def _renamed_limit(limit: str) -> str:
    """The same of a limit, which is one resource or several: `compute+noc`."""
    return "+".join("noc" if resource == "network" else resource for resource in limit.split("+"))


#: Resources that bound a schedule.
Limit = Annotated[str, AfterValidator(_renamed_limit)]
#: Group of causes (`legend.GROUPS`) to percent.
Shares = Annotated[dict[str, float], AfterValidator(_renamed)]


class LayerFigures(Record):
    """One layer of a network. Cycles: from the start of its first GEMM or VEC to the end of its last, on RTL and in the
    model; layers overlap, so their cycles do not add up.

    `limit`: what one would buy more of: compute (the arrays), vector, dram or noc, or several (`sched.schedulers.
    network.limits.bounding`). `utilisation`: useful multiply-accumulates / processing elements x the time that the
    arrays spent on it or waiting for it. `shares`: how that time was spent, in percent of the layer's, by cause.
    `snr_db`: of a model that was quantised, how far the layer's result is from the one in real numbers over the
    calibration data, an output's from the file's own; None where there is none, or no difference.
    """

    name: str
    kind: str
    macs: Count
    limit: Limit
    rtl_cycles: Count
    model_cycles: Count
    core_cycles: Count
    utilisation: Annotated[float, Field(ge=0, le=1)]
    shares: Shares
    snr_db: float | None = None

    @computed_field
    @property
    def error_percent(self) -> float | None:
        """Signed error of the model, 100 * (model - RTL) / RTL."""
        return 100.0 * (self.model_cycles - self.rtl_cycles) / self.rtl_cycles if self.rtl_cycles else None


class ClassScore(Record):
    """A class by its index, its name if known, and its score in the network's own unit."""

    index: Count
    label: str = ""
    score: float


class OutputFigures(Record):
    """One output: as the chip computed it, [1, channels, rows, columns], or in the shape that the host gave it.

    `top`: for a vector, the classes with the highest scores. `file`: where any other output was saved. `snr_db`: signal
    to noise ratio, with the float model's output as signal and the difference from it as noise, if there is a float
    model.
    """

    name: str
    shape: tuple[Count, ...]
    top: tuple[ClassScore, ...] = ()
    file: str | None = None
    snr_db: float | None = None


class DetectionFigures(Record):
    """What a detector has found: class by index and name, score, and box: left, top, right, bottom in pixels."""

    index: Count
    label: str = ""
    score: float
    box: tuple[float, float, float, float]

    @property
    def name(self) -> str:
        """Its label, or the number of its class."""
        return self.label or f"class {self.index}"


class DetectorFigures(Record):
    """What the host made of a detector's outputs. `form`: how they were read; `min_score`: of what was kept, `max_iou`:
    of what overlaps a better box of its class (null: the file suppresses by itself). `found`: best first; `exact`: what
    the float model finds, `alike`: how many of these the chip has too, of the same class and overlapping by 0.5 or more
    (intersection over union). `picture`: PNG with the boxes."""

    form: str
    min_score: float
    max_iou: float | None
    found: tuple[DetectionFigures, ...]
    exact: tuple[DetectionFigures, ...]
    alike: Count
    picture: str | None = None


class MicroOpFigures(Record):
    """Of schedulers of micro-ops. `count` of them; `planned_cycles`: of the plan, without what it leaves out;
    `bound_cycles`: no schedule of these micro-ops on so many cores can be shorter, by proof; `hops_bytes`: bytes that
    cores send to each other times the links they pass; `spilled_words`: words that went to DRAM for want of room;
    `taken`: what the program is made of, "micro-ops" or the scheduler that the model found quicker for the network."""

    count: Count
    planned_cycles: Count
    bound_cycles: Count
    hops_bytes: Count
    spilled_words: Count
    taken: str = "micro-ops"

    @computed_field
    @property
    def gap(self) -> float | None:
        """How far the plan can be above the best one for its micro-ops, as a share of the bound."""
        return self.planned_cycles / self.bound_cycles - 1 if self.bound_cycles else None


class GradientFigures(Record):
    """Of a layer's two gradients. `order`: in which their tiles were computed, `nest`: its loops, outermost first (~:
    inner loops turn back), tile sizes m x k x n, and how many cores share the layer, if several do; `dram_bytes`: to
    and from DRAM without the program, of which `spilled_bytes` are partial sums on their way out and back;
    `array_cycles`, `vector_cycles`: for which the array and the vector unit of the core (that with the largest share)
    have work; `orders`: cycles that the model expects of the best schedule of each order that was tried; `macs`:
    multiply-accumulates of all products (None: results of version 0.1 did not say)."""

    order: str
    nest: str
    dram_bytes: Count
    spilled_bytes: Count
    array_cycles: Count
    vector_cycles: Count
    orders: dict[str, Count]
    macs: Count | None = None


class ArrayFigures(Record):
    """Of a single layer. `limit`: the kind of resource of which one would buy more
    (`sched.schedulers.network.limits.bounding`). Cycles of all cores added up: `span_cycles` from the start of a core's
    first GEMM to the end of its last, `fed_cycles` for which operands are read into the array (folds x K windows).
    `within`: useful multiply-accumulates / processing elements x `span_cycles`, and `edges` the same by `fed_cycles`:
    what rows, columns and lanes without use leave."""

    limit: Limit
    span_cycles: Count
    fed_cycles: Count
    within: Annotated[float, Field(ge=0, le=1)]
    edges: Annotated[float, Field(ge=0, le=1)]


class NetworkFigures(Record):
    """Figures of whole networks only. `answer`, `expected`, `float_answer`: names of classes (that of the RTL, the
    label supplied with the picture, that of the float network), if known; of a detector, how many of which class.
    `notes`: on a file of the user's. `busy`:
    cycles for which the whole schedule keeps the busiest resource of each kind
    (`sched.schedulers.network.limits.totals`); `in_turn_cycles`: the same added up layer by layer, each with the
    resource that it keeps longest."""

    picture: str = ""
    answer: str = ""
    expected: str = ""
    float_answer: str = ""
    outputs: tuple[OutputFigures, ...] = ()
    detector: DetectorFigures | None = None
    notes: tuple[str, ...] = ()
    macs: Count
    tensors_checked: Count
    dram_bytes: Count
    spilled: tuple[str, ...] = ()
    layers: tuple[LayerFigures, ...]
    shares: Shares
    micro_ops: MicroOpFigures | None = None
    busy: dict[str, Count] = {}
    in_turn_cycles: Count = 0

    def with_paths(self, change: Callable[[str], str]) -> NetworkFigures:
        """The same with every path changed."""
        outputs = (each.model_copy(update={"file": each.file and change(each.file)}) for each in self.outputs)
        detector = self.detector
        if detector is not None and detector.picture:
            detector = detector.model_copy(update={"picture": change(detector.picture)})
        return self.model_copy(update={"outputs": tuple(outputs), "detector": detector})

    @computed_field
    @property
    def layer_error_percent(self) -> float | None:
        """Mean over the layers of the model's absolute error."""
        errors = [abs(layer.error_percent) for layer in self.layers if layer.error_percent is not None]
        return sum(errors) / len(errors) if errors else None


class LinkFigures(Record):
    """An output of a router of the data plane: to the neighbour in direction `port`, or into its own tile ("local").

    Cycles of the run in which a flit left by it (`busy`), and in which one was waiting to leave but none did
    (`blocked`).
    """

    tile: Count
    port: str
    busy: Count
    blocked: Count
    cycles: Count

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.busy + self.blocked > self.cycles:
            raise ValueError(f"busy = {self.busy} and blocked = {self.blocked} exceed cycles = {self.cycles}")
        return self

    @computed_field
    @property
    def load(self) -> float:
        """Share of all cycles in which a flit left."""
        return self.busy / self.cycles if self.cycles else 0.0

    @computed_field
    @property
    def blocked_share(self) -> float:
        """Of the cycles in which a flit was leaving or waiting to leave, the share of those in which none left."""
        number = self.busy + self.blocked
        return self.blocked / number if number else 0.0


class _Times(Record):
    """Ideal and real cycles of MOVEs; see `links`."""

    ideal_cycles: Count
    real_cycles: Count

    @computed_field
    @property
    def level(self) -> float:
        """ideal / real: 1 = as on an idle chip."""
        return self.ideal_cycles / self.real_cycles if self.real_cycles else 1.0


class SourceFigures(_Times):
    """The MOVEs sent by the mover of a tile."""

    tile: Count
    moves: Count


class PacketFigures(Record):
    """Latencies of data packets, in cycles from the first offer of the head to the cycle after the tail was taken.
    `idle_mean`: the mean if each were alone. `worst_late`: the greatest excess over the latency when alone."""

    count: Count
    mean: Annotated[float, Field(ge=0)]
    worst: Count
    idle_mean: Annotated[float, Field(ge=0)]
    worst_late: Count


class Congestion(_Times):
    """How much the MOVEs of a run were delayed, in total and by source tile; `packets` on chips with `noc.arrivals`."""

    sources: tuple[SourceFigures, ...]
    packets: PacketFigures | None = None
