"""How the PE cycles of a run were spent, layer by layer, to the last cycle.

The time of each core, from the start of the run to its end, is cut where the operand windows of each GEMM end; each
slice belongs to that GEMM's layer. In the windows the array is fed. The gap before them is explained by walking back
from the GEMM's start along what it waited for: the last post to arrive, the MOVE, SYNC or VEC that made it, what that
one waited for, and so on (`causes`). Measured and predicted records are treated alike.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Opcode, Region, split_address
from meshloom.sched.ir.schedule import Operation, Schedule
from meshloom.sched.program.program import Program

from ..results.legend import GROUPS, CycleCause
from .causes import Activity, AttributionError, Causes, Step
from .records import InstructionPlace, T, locate, operations

#: Memories of a core that GEMMs and VECs write.
_RESULTS = (Region.ACC, Region.OUT, Region.VEC)


@dataclass(frozen=True)
class Share:
    """PE cycles of a layer, or of the whole run, by groups of causes: all `results.legend.GROUPS`, in their order."""

    layer: str
    cycles: Mapping[str, int]

    @classmethod
    def of(cls, layer: str, spent: Mapping[CycleCause, int]) -> Share:
        """The share of a layer that spent PE cycles on causes."""
        cycles = dict.fromkeys(GROUPS, 0)
        for cause, count in spent.items():
            cycles[cause.group] += count
        return cls(layer, cycles)

    @property
    def total(self) -> int:
        """PE cycles of all groups."""
        return sum(self.cycles.values())

    @property
    def utilisation(self) -> float:
        """Share of useful PE cycles, 0..1."""
        return self.cycles["compute"] / self.total if self.total else 0.0


@dataclass(frozen=True)
class Attribution:
    """`layers` in the order of their first GEMM, and their sum `total`: cores x cycles x PEs of a core."""

    layers: tuple[Share, ...]
    total: Share


def attribute(
    program: Program,
    schedule: Schedule,
    records: Sequence[T],
    cycles: int,
    chip: ChipConfig,
    layer_of: Callable[[Operation], str],
    macs: Mapping[str, int],
) -> Attribution:
    """Attributes every PE cycle of a run that took `cycles`, from its trace records (`Run.records`) or from the model's
    (`Timeline.executed`).

    `layer_of`: layer of an operation that is a GEMM. `macs`: multiply-accumulates of each layer that has GEMMs,
    including those with padding; other layers are ignored. Raises AttributionError if records are missing or `macs` is
    impossible, CompareError if records and program do not belong together.
    """
    causes = Causes(program, locate(records, program), chip)
    numbers = operations(program, schedule)
    by_layer = spent_by_layer(causes, lambda place: numbers[place[:3]], schedule, cycles, layer_of, macs)
    layers = tuple(Share.of(layer, spent) for layer, spent in by_layer.items())
    return Attribution(layers, Share.of("total", sum(by_layer.values(), Counter[CycleCause]())))


def spent_by_layer(
    causes: Causes[T],
    number: Callable[[InstructionPlace], int],
    schedule: Schedule,
    cycles: int,
    layer_of: Callable[[Operation], str],
    macs: Mapping[str, int],
) -> dict[str, Counter[CycleCause]]:
    """PE cycles by cause of each layer that has GEMMs, in schedule order; together cores x `cycles` x PEs of a core.

    `number`: the operation of an instruction; the rest as for `attribute`. Raises AttributionError if `macs` is
    impossible.
    """
    chip = causes.chip
    gemms = {core: causes.gemms(core) for core in chip.cores}
    layers = {place: layer_of(schedule.operations[number(place)]) for mine in gemms.values() for place in mine}
    spent: dict[str, Counter[CycleCause]] = defaultdict(Counter)  # cycles of a core; those of ROWS are PE cycles
    fed = Counter[str]()
    for index in sorted(map(number, layers)):  # rows in schedule order
        spent[layer_of(schedule.operations[index])]
    slices: dict[int, list[tuple[int, str]]] = {}  # of each core: ends of slices and their layers
    for core, mine in gemms.items():
        at, slices[core] = 0, []
        for place in mine:
            layer = layers[place]
            for part in gap(causes, place, at):
                spent[layer][part.cause] += part.cycles
            at = causes.windows_end(place)
            fed[layer] += causes.occupancy(place)
            spent[layer][CycleCause.ROWS] += causes.idle_rows(place)
            slices[core].append((at, layer))
    longest = max(slices, key=lambda core: slices[core][-1][0] if slices[core] else 0)
    for core in chip.cores:
        for layer, share in _tail(causes, gemms[core], slices[core], slices[longest], cycles).items():
            spent[layer].update(share)
    return {layer: _pe_cycles(layer, counts, fed[layer], macs, chip) for layer, counts in spent.items()}


def _pe_cycles(
    layer: str, spent: Counter[CycleCause], windows: int, macs: Mapping[str, int], chip: ChipConfig
) -> Counter[CycleCause]:
    """A layer's cycles of cores as cycles of PEs; `windows`: those in which its arrays were fed."""
    pes = chip.rows * chip.cols
    fed = pes * windows
    useful = macs.get(layer, 0 if not fed else -1)
    if not 0 <= useful <= fed:
        text = "unknown" if useful < 0 else f"{useful}"
        raise AttributionError(
            f"layer {layer!r}: its GEMMs can do up to {fed} multiply-accumulates, those of the layer are {text}; "
            "give `macs` for the layer names that `layer_of` makes"
        )
    rows = min(spent.pop(CycleCause.ROWS, 0), fed - useful)
    counts = Counter({cause: pes * count for cause, count in spent.items()})
    return counts + Counter(
        {CycleCause.USEFUL: useful, CycleCause.ROWS: rows, CycleCause.CHANNELS: fed - useful - rows}
    )


class Gap(NamedTuple):
    """Cycles [start, stop) in which an array waited; `step`: what it waited for, None for all that lies before that."""

    start: int
    stop: int
    cause: CycleCause
    step: Step

    @property
    def cycles(self) -> int:
        return self.stop - self.start


def gap(causes: Causes[T], gemm: InstructionPlace, first: int) -> list[Gap]:
    """The cycles from `first`, in which the previous GEMM of the core ended its windows, to the start of a GEMM, by
    cause, the last ones first."""
    at = causes.records[gemm].start
    gaps: list[Gap] = []
    if at <= first:
        return gaps
    for since, cause, step in _explained(causes, gemm):
        since = max(first, min(at, since))
        if since < at:
            # the core's first slice begins with the run
            gaps.append(Gap(since, at, CycleCause.FETCH if cause is CycleCause.START and first else cause, step))
            at = since
        if at == first:
            break
    assert at == first, "every walk ends with the beginning of the run"
    return gaps


def _explained(causes: Causes[T], gemm: InstructionPlace) -> Iterator[tuple[int, CycleCause, Step]]:
    """Steps back from the start of a GEMM, each with the cause of the time between it and the previous step.

    What lies before another GEMM's end is all that GEMM's business; so is, for a full result buffer, what lies before.
    """
    core = gemm.tile
    direct = True  # so far only computing units of this core have waited
    flown = False
    for step in causes.walk(gemm):
        place, own = step.place, step.place.tile == core
        match step.activity:
            case Activity.START:
                yield step.since, CycleCause.START, step
            case Activity.ISSUE if causes.instruction(place).opcode is Opcode.GEMM:
                yield 0, CycleCause.START if own else CycleCause.DEPENDENCE, step
                return
            case Activity.ISSUE:
                yield step.since, CycleCause.START, step
            case Activity.PIPELINE | Activity.COMPUTE:
                yield 0, CycleCause.PIPELINE if own else CycleCause.DEPENDENCE, step
                return
            case Activity.VECTOR:
                direct = direct and own
                yield step.since, CycleCause.VECTOR, step
            case Activity.FLIGHT | Activity.HELD_UP if not flown:
                fields = causes.instruction(place).fields
                stored = fields["src_tile"] == core and split_address(fields["src"])[0] in _RESULTS
                delivered = step.activity is Activity.FLIGHT
                if direct and stored and not (delivered and fields["dst_tile"] == core):
                    yield 0, CycleCause.RESULTS, step
                    return
                direct = False
                yield step.since, _on_the_way(causes, step), step
            case _:
                direct = direct and step.activity in (Activity.POST, Activity.HAND_OVER)
                yield step.since, _on_the_way(causes, step), step
        flown = step.activity is Activity.FLIGHT


def cause_of(causes: Causes[T], step: Step) -> CycleCause:
    """The cause that a step is by itself, whatever it is waited for by."""
    match step.activity:
        case Activity.COMPUTE:
            return CycleCause.USEFUL
        case Activity.PIPELINE:
            return CycleCause.PIPELINE
        case Activity.VECTOR:
            return CycleCause.VECTOR
        case Activity.START:
            return CycleCause.START
        case Activity.ISSUE:
            return CycleCause.FETCH
        case Activity.END:
            return CycleCause.END
        case _:
            return _on_the_way(causes, step)


def _on_the_way(causes: Causes[T], step: Step) -> CycleCause:
    """The cause that a step of a MOVE, its request, or a post is."""
    place = step.place
    match step.activity:
        case Activity.HAND_OVER:
            return CycleCause.DRAM_QUEUE if causes.behind_dram(place) else CycleCause.NOC
        case Activity.REQUEST | Activity.POST:
            return CycleCause.NOC
        case Activity.QUEUE:
            fields = causes.instruction(place).fields
            return CycleCause.DRAM_QUEUE if causes.is_dram(fields["src_tile"]) else CycleCause.PORT
        case _:
            fields = causes.instruction(place).fields
            written = causes.is_dram(fields["dst_tile"])
            if step.activity is Activity.FLIGHT:
                return CycleCause.DRAM if written else CycleCause.NOC
            held = step.activity is Activity.HELD_UP
            if written or causes.is_dram(fields["src_tile"]):
                return CycleCause.DRAM_QUEUE if held else CycleCause.DRAM
            return CycleCause.NOC if held else CycleCause.PORT


def _tail(
    causes: Causes[T],
    gemms: Sequence[InstructionPlace],
    mine: list[tuple[int, str]],
    longest: list[tuple[int, str]],
    cycles: int,
) -> dict[str, Counter[CycleCause]]:
    """How a core's time after its last GEMM is spent, by the layer in which the last core to finish then is."""
    at = mine[-1][0] if mine else 0
    borders = [
        (causes.records[gemms[-1]].end if gemms else 0, CycleCause.PIPELINE),
        (causes.last(Opcode.GEMM), CycleCause.IMBALANCE),
        (causes.last(Opcode.VEC), CycleCause.VECTOR),
        (cycles, CycleCause.END),
    ]
    counts: dict[str, Counter[CycleCause]] = defaultdict(Counter)
    steps = [*longest[:-1], (cycles, longest[-1][1] if longest else "")]
    for border, cause in borders:
        for end, layer in steps:
            stop = min(border, end, cycles)
            if stop > at:
                counts[layer][cause] += stop - at
                at = stop
    return counts
