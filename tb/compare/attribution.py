"""How the PE cycles of a run were spent, layer by layer, to the last cycle.

The time of each core, from the start of the run to its end, is cut where the operand windows of each GEMM end; each
slice belongs to that GEMM's layer. In the windows the array is fed. The gap before them is explained by walking back
from the GEMM's start along what it waited for: the last post to arrive, the MOVE, SYNC or VEC that made it, what that
one waited for, and so on (`causes`). Measured and predicted records are treated alike.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import NamedTuple

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Opcode, Region, split_address
from meshloom.sched.ir.schedule import Operation, Schedule
from meshloom.sched.program.program import Program

from .causes import Activity, AttributionError, Causes, Step
from .records import Place, T, locate, operations

#: Memories of a core that GEMMs and VECs write.
_RESULTS = (Region.ACC, Region.OUT, Region.VEC)


class Cause(StrEnum):
    """Why the array of a core does no useful work in a cycle, or that it does."""

    USEFUL = "useful"  #: it multiplies and accumulates what the layer needs
    ROWS = "rows"  #: it is fed, but rows have no pixel: pixels of a GEMM are no multiple of the rows
    CHANNELS = "channels"  #: it is fed, but columns or lanes have no channel, or a result is computed twice
    PIPELINE = "pipeline"  #: the previous GEMM is in the pipeline: the array fills and drains
    RESULTS = "results"  #: a result buffer of the core is not empty yet
    DEPENDENCE = "dependence"  #: another core's GEMM has not computed the operands yet
    VECTOR = "vector"  #: a VEC has not
    DRAM = "dram"  #: operands are read from DRAM or results written to it, as fast as on an idle chip
    DRAM_QUEUE = "dram queue"  #: the same, behind others at that channel or held up by traffic
    PORT = "port"  #: a scratchpad's or core's port sends them, a word a cycle, or another MOVE first
    NOC = "noc"  #: they are held up by traffic, or words, requests and posts are on their way
    START = "start"  #: before the core's first GEMM, the program is fetched and issued
    FETCH = "fetch"  #: the same later on
    IMBALANCE = "imbalance"  #: the core has no GEMM left, but others have
    END = "end"  #: no core has; the last results are stored and the run ends


@dataclass(frozen=True)
class Share:
    """PE cycles of a layer, or of the whole run.

    `compute`: useful multiply-accumulates. `edges`: the array is fed, but rows, columns or lanes carry padding.
    Otherwise the array is idle. `operands`: another core's GEMM has not computed them yet; `vector`: a VEC has not;
    `noc`: they are in flight or wait for a mover, or a request or post does; `dram`: they are read from DRAM or
    written to it, or queue there; `drain`: a result buffer or the pipeline is not empty yet; `start`: before the core's
    first GEMM, the program is fetched and issued; `fetch`: the same later on; `idle`: the core has no GEMM left, but
    others have.
    """

    layer: str
    compute: int = 0
    edges: int = 0
    operands: int = 0
    vector: int = 0
    noc: int = 0
    dram: int = 0
    drain: int = 0
    start: int = 0
    fetch: int = 0
    idle: int = 0

    @property
    def cycles(self) -> dict[str, int]:
        """PE cycles by category, in the order above."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "layer"}

    @property
    def total(self) -> int:
        """PE cycles of all categories."""
        return sum(self.cycles.values())

    @property
    def utilisation(self) -> float:
        """Share of useful PE cycles, 0..1."""
        return self.compute / self.total if self.total else 0.0


@dataclass(frozen=True)
class Attribution:
    """`layers` in the order of their first GEMM, and their sum `total`: cores x cycles x PEs of a core."""

    layers: tuple[Share, ...]
    total: Share


#: The category of `Share` that a cause belongs to.
_CATEGORY = {
    Cause.USEFUL: "compute",
    Cause.ROWS: "edges",
    Cause.CHANNELS: "edges",
    Cause.PIPELINE: "drain",
    Cause.RESULTS: "drain",
    Cause.DEPENDENCE: "operands",
    Cause.VECTOR: "vector",
    Cause.DRAM: "dram",
    Cause.DRAM_QUEUE: "dram",
    Cause.PORT: "noc",
    Cause.NOC: "noc",
    Cause.START: "start",
    Cause.FETCH: "fetch",
    Cause.IMBALANCE: "idle",
    Cause.END: "drain",
}


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
    found = spent_by_layer(causes, lambda place: numbers[place[:3]], schedule, cycles, layer_of, macs)
    shares: list[Share] = []
    total = Counter[str]()
    for layer, spent in found.items():
        categories = Counter[str]()
        for cause, count in spent.items():
            categories[_CATEGORY[cause]] += count
        shares.append(Share(layer, **categories))
        total.update(categories)
    return Attribution(tuple(shares), Share("total", **total))


def spent_by_layer(
    causes: Causes[T],
    number: Callable[[Place], int],
    schedule: Schedule,
    cycles: int,
    layer_of: Callable[[Operation], str],
    macs: Mapping[str, int],
) -> dict[str, Counter[Cause]]:
    """PE cycles by cause of each layer that has GEMMs, in schedule order; together cores x `cycles` x PEs of a core.

    `number`: the operation of an instruction; the rest as for `attribute`. Raises AttributionError if `macs` is
    impossible.
    """
    chip = causes.chip
    gemms = {core: causes.gemms(core) for core in chip.cores}
    layers = {place: layer_of(schedule.operations[number(place)]) for mine in gemms.values() for place in mine}
    spent: dict[str, Counter[Cause]] = defaultdict(Counter)  # cycles of a core; those of ROWS are PE cycles
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
            spent[layer][Cause.ROWS] += causes.idle_rows(place)
            slices[core].append((at, layer))
    longest = max(slices, key=lambda core: slices[core][-1][0] if slices[core] else 0)
    for core in chip.cores:
        for layer, share in _tail(causes, gemms[core], slices[core], slices[longest], cycles).items():
            spent[layer].update(share)
    return {layer: _pe_cycles(layer, found, fed[layer], macs, chip) for layer, found in spent.items()}


def _pe_cycles(
    layer: str, spent: Counter[Cause], windows: int, macs: Mapping[str, int], chip: ChipConfig
) -> Counter[Cause]:
    """A layer's cycles of cores as cycles of PEs; `windows`: those in which its arrays were fed."""
    pes = chip.rows * chip.cols
    fed = pes * windows
    useful = macs.get(layer, 0 if not fed else -1)
    if not 0 <= useful <= fed:
        known = "unknown" if useful < 0 else f"{useful}"
        raise AttributionError(
            f"layer {layer!r}: its GEMMs can do up to {fed} multiply-accumulates, those of the layer are {known}; "
            "give `macs` for the layer names that `layer_of` makes"
        )
    rows = min(spent.pop(Cause.ROWS, 0), fed - useful)
    found = Counter({cause: pes * count for cause, count in spent.items()})
    return found + Counter({Cause.USEFUL: useful, Cause.ROWS: rows, Cause.CHANNELS: fed - useful - rows})


class Gap(NamedTuple):
    """Cycles [start, stop) in which an array waited; `step`: what it waited for, None for all that lies before that."""

    start: int
    stop: int
    cause: Cause
    step: Step

    @property
    def cycles(self) -> int:
        return self.stop - self.start


def gap(causes: Causes[T], gemm: Place, first: int) -> list[Gap]:
    """The cycles from `first`, in which the previous GEMM of the core ended its windows, to the start of a GEMM, by
    cause, the last ones first."""
    at = causes.records[gemm].start
    found: list[Gap] = []
    if at <= first:
        return found
    for since, cause, step in _explained(causes, gemm):
        since = max(first, min(at, since))
        if since < at:
            # the core's first slice begins with the run
            found.append(Gap(since, at, Cause.FETCH if cause is Cause.START and first else cause, step))
            at = since
        if at == first:
            break
    assert at == first, "every walk ends with the beginning of the run"
    return found


def _explained(causes: Causes[T], gemm: Place) -> Iterator[tuple[int, Cause, Step]]:
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
                yield step.since, Cause.START, step
            case Activity.ISSUE if causes.instruction(place).opcode is Opcode.GEMM:
                yield 0, Cause.START if own else Cause.DEPENDENCE, step
                return
            case Activity.ISSUE:
                yield step.since, Cause.START, step
            case Activity.PIPELINE | Activity.COMPUTE:
                yield 0, Cause.PIPELINE if own else Cause.DEPENDENCE, step
                return
            case Activity.VECTOR:
                direct = direct and own
                yield step.since, Cause.VECTOR, step
            case Activity.FLIGHT | Activity.HELD_UP if not flown:
                fields = causes.instruction(place).fields
                stored = fields["src_tile"] == core and split_address(fields["src"])[0] in _RESULTS
                delivered = step.activity is Activity.FLIGHT
                if direct and stored and not (delivered and fields["dst_tile"] == core):
                    yield 0, Cause.RESULTS, step
                    return
                direct = False
                yield step.since, _on_the_way(causes, step), step
            case _:
                direct = direct and step.activity in (Activity.POST, Activity.HAND_OVER)
                yield step.since, _on_the_way(causes, step), step
        flown = step.activity is Activity.FLIGHT


def cause_of(causes: Causes[T], step: Step) -> Cause:
    """The cause that a step is by itself, whatever it is waited for by."""
    match step.activity:
        case Activity.COMPUTE:
            return Cause.USEFUL
        case Activity.PIPELINE:
            return Cause.PIPELINE
        case Activity.VECTOR:
            return Cause.VECTOR
        case Activity.START:
            return Cause.START
        case Activity.ISSUE:
            return Cause.FETCH
        case Activity.END:
            return Cause.END
        case _:
            return _on_the_way(causes, step)


def _on_the_way(causes: Causes[T], step: Step) -> Cause:
    """The cause that a step of a MOVE, its request, or a post is."""
    place = step.place
    match step.activity:
        case Activity.HAND_OVER:
            return Cause.DRAM_QUEUE if causes.behind_dram(place) else Cause.NOC
        case Activity.REQUEST | Activity.POST:
            return Cause.NOC
        case Activity.QUEUE:
            fields = causes.instruction(place).fields
            return Cause.DRAM_QUEUE if causes.is_dram(fields["src_tile"]) else Cause.PORT
        case _:
            fields = causes.instruction(place).fields
            written = causes.is_dram(fields["dst_tile"])
            if step.activity is Activity.FLIGHT:
                return Cause.DRAM if written else Cause.NOC
            held = step.activity is Activity.HELD_UP
            if written or causes.is_dram(fields["src_tile"]):
                return Cause.DRAM_QUEUE if held else Cause.DRAM
            return Cause.NOC if held else Cause.PORT


def _tail(
    causes: Causes[T], gemms: Sequence[Place], mine: list[tuple[int, str]], longest: list[tuple[int, str]], cycles: int
) -> dict[str, Counter[Cause]]:
    """How a core's time after its last GEMM is spent, by the layer in which the last core to finish then is."""
    at = mine[-1][0] if mine else 0
    borders = [
        (causes.records[gemms[-1]].end if gemms else 0, Cause.PIPELINE),
        (causes.last(Opcode.GEMM), Cause.IMBALANCE),
        (causes.last(Opcode.VEC), Cause.VECTOR),
        (cycles, Cause.END),
    ]
    found: dict[str, Counter[Cause]] = defaultdict(Counter)
    steps = [*longest[:-1], (cycles, longest[-1][1] if longest else "")]
    for border, cause in borders:
        for end, layer in steps:
            stop = min(border, end, cycles)
            if stop > at:
                found[layer][cause] += stop - at
                at = stop
    return found
