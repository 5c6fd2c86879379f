"""The same layers pushed by a controller ahead of time, and pulled by those who need the data, on the same chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import process_time

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.contracts import REQUEST_INTERVAL
from meshloom.hw.spec.routes import LOCAL
from meshloom.sched.papers.dtt.timed import NAME

from ..results.events import OnEvent, Stage
from ..results.schema import Row
from ..runs.options import RunOptions
from ..runs.runner import prepare
from ..runs.runner import run as run_workloads
from .interface import all_ran
from .results import Result, Sheet

CHIP = "ahead16"
#: All of ResNet-8, and layers of the larger networks: dense and pointwise, early and late ones.
WORKLOADS = (
    "resnet8",
    *("resnet50/conv2_1_1", "resnet50/conv2_1_2", "resnet50/conv3_2_2", "resnet50/conv4_2_1", "resnet50/conv5_2_3"),
    *("vgg16/conv2_2", "vgg16/conv4_2", "vgg16/conv5_1"),
)
#: Cores of the chips that ask what one controller can feed, and the layers that they run.
GRIDS = (2, 3, 4, 5)
FED = ("resnet8/conv4_1_2", "gemm:64x256x128")
#: CPU seconds in which a layer must be planned.
MOST_SECONDS = 60


@dataclass(frozen=True)
class Pair:
    """One workload, pushed and pulled."""

    pulled: Row
    pushed: Row

    @property
    def gain(self) -> float:
        """Cycles pulled / cycles pushed."""
        return self.pulled.rtl_cycles / max(1, self.pushed.rtl_cycles)


def wrong_with(pair: Pair) -> list[str]:
    """Bars that were missed: a byte or an arrival that is off, cycles that were not foreseen, or no win."""
    found: list[str] = []
    row = pair.pushed
    for one in (pair.pulled, row):
        if not one.bytes_checked or one.mismatches or one.faults:
            found.append(f"{one.workload}, {one.scheduler}: {one.reason}")
    if row.arrival_mismatches or not row.planned_arrivals:
        found.append(
            f"{row.workload}: {row.arrival_mismatches} of {row.planned_arrivals} arrivals are off; "
            f"{row.first_arrival_mismatch}"
        )
    if row.rtl_cycles != row.model_cycles:
        found.append(f"{row.workload}: {row.rtl_cycles:,} cycles, {row.model_cycles:,} were planned")
    if pair.gain <= 1:
        found.append(f"{row.workload}: pushed takes {row.rtl_cycles:,} cycles, pulled {pair.pulled.rtl_cycles:,}")
    return found


def flit_hops(row: Row) -> int:
    """Flits x links between routers: what energy in the data plane is proportional to."""
    return sum(link.busy for link in row.links if link.port != LOCAL)


def link_load(row: Row) -> float:
    """Share of the cycles of all links between routers in which a flit went."""
    links = [link for link in row.links if link.port != LOCAL]
    return sum(link.busy for link in links) / max(1, sum(link.cycles for link in links))


def fed_chip(grid: int) -> ChipConfig:
    """A chip of `grid` x `grid` 8x8 cores, with a DRAM channel and scratchpad for each row of cores, and a controller
    with a channel for its code."""
    base = load("ahead8")
    rows = [["dram", *["core"] * grid, "spm"] for _ in range(grid)]
    plan = [*rows, ["host", "dtt", "dram", *["spm"] * (grid - 1)]]
    noc = base.noc.model_dump() | {"route_hops": 2 * grid + 6}
    values = base.model_dump() | {"name": f"fed{grid * grid}", "floorplan": [" ".join(row) for row in plan], "noc": noc}
    return ChipConfig.model_validate(values | {"controller_channel": True})


@dataclass(frozen=True)
class Fed:
    """A layer on a larger chip: cycles in the model, and CPU seconds until its pushed program is proven, besides those
    of the base's search, which the pulled one needs, too.

    `shared`: pulled where the code's channel is an ordinary one, for data and code.
    """

    layer: str
    cores: int
    pulled: int
    shared: int
    pushed: int
    packets: int
    seconds: float


def behind(fed: Fed) -> str:
    """Why a larger chip misses its bars; empty if it does not."""
    if fed.pushed >= fed.pulled:
        return f"{fed.layer} on {fed.cores} cores: pushed takes {fed.pushed:,} cycles, pulled {fed.pulled:,}"
    if fed.seconds > MOST_SECONDS:
        return f"{fed.layer} on {fed.cores} cores: planned in {fed.seconds:.0f} s, the bar is {MOST_SECONDS} s"
    return ""


def _fed(on_progress: OnEvent) -> tuple[Sheet, list[str]]:
    """What one controller feeds, in the model, which the other sheet shows to be exact; and the bars that it misses."""
    cells: list[tuple[str, ...]] = []
    failed: list[str] = []
    bad: set[int] = set()
    for name in FED:
        for grid in GRIDS:
            chip = fed_chip(grid)
            on_progress(Stage(workload=name, what=f"planning for {grid * grid} cores"))
            from meshloom.sched.workload.catalog import find

            workload = find(name)[0]
            pulled = prepare(workload, chip, "loop_order")
            shared = ChipConfig.model_validate(chip.model_dump() | {"controller_channel": False})
            begun = process_time()
            pushed = prepare(workload, chip, NAME)
            seconds = process_time() - begun
            packets = sum(1 for one in pushed.timeline.executed if one.tile == chip.dtt and one.opcode.name != "ORDER")
            fed = Fed(
                name, grid * grid, pulled.timeline.cycles, prepare(workload, shared, "loop_order").timeline.cycles,
                pushed.timeline.cycles, packets, seconds,
            )  # fmt: skip
            if missed := behind(fed):
                failed.append(missed)
                bad.add(len(cells))
            peak = chip.rows * chip.cols * grid * grid
            cells.append(
                (
                    name,
                    f"{fed.cores}",
                    f"{fed.pulled:,}",
                    f"{fed.pushed:,}",
                    f"{fed.pulled / fed.pushed:.3f}",
                    f"{fed.shared:,}",
                    f"{fed.shared / fed.pushed:.3f}",
                    f"{packets:,}",
                    f"{100 * REQUEST_INTERVAL * packets / fed.pushed:.0f} %",
                    f"{100 * workload.shape.macs / peak / fed.pulled:.0f} %",
                    f"{100 * workload.shape.macs / peak / fed.pushed:.0f} %",
                    f"{seconds:.0f}",
                )
            )
    columns = (
        "layer", "cores>", "pulled>", "pushed>", "gain>", "pulled, channel shared>", "gain>", "packets>",
        "controller>", "PE util. pulled>", "pushed>", "planned in CPU s>",
    )  # fmt: skip
    title = "What one controller feeds (model; 8x8 cores, a DRAM channel for each row of them, and one for code)"
    return Sheet(title, columns, cells, frozenset(bad)), failed


def run(on_progress: OnEvent) -> Result:
    """Runs all workloads, pushed and pulled, on the RTL, then plans for larger chips."""
    both: list[Sequence[Row]] = []
    for scheduler in ("loop_order", NAME):
        both.append(all_ran(run_workloads(WORKLOADS, CHIP, scheduler, on_progress, RunOptions(jobs=2, links=True))))
    pairs = [Pair(pulled, pushed) for pulled, pushed in zip(*both, strict=True)]
    cells = [
        (
            pair.pushed.workload,
            f"{pair.pulled.rtl_cycles:,}",
            f"{pair.pushed.rtl_cycles:,}",
            f"{pair.gain:.3f}",
            f"{pair.pushed.planned_arrivals:,}",
            f"{pair.pushed.arrival_mismatches}",
            f"{100 * link_load(pair.pulled):.1f} %",
            f"{100 * link_load(pair.pushed):.1f} %",
            f"{flit_hops(pair.pulled):,}",
            f"{flit_hops(pair.pushed):,}",
            f"{pair.pulled.instructions:,}",
            f"{pair.pushed.instructions:,}",
        )
        for pair in pairs
    ]
    fed, behind_there = _fed(on_progress)
    failed = [words for pair in pairs for words in wrong_with(pair)] + behind_there
    bad = frozenset(number for number, pair in enumerate(pairs) if wrong_with(pair))
    columns = (
        "workload", "pulled>", "pushed>", "gain>", "arrivals>", "off>", "link load pulled>", "pushed>",
        "flit-hops pulled>", "pushed>", "instructions pulled>", "pushed>",
    )  # fmt: skip
    return Result(
        "ahead",
        "Ahead of time: pushed against pulled",
        f"The same layers on the RTL of {CHIP}: pulled, every core asks for what it needs and waits for semaphores; "
        "pushed, the controller has every MOVE and computation fire in a cycle that Dijkstra through time has planned, "
        "in the loop nest with the shortest plan. "
        "Bars: every arrival in the planned cycle, all bytes right, and a gain (cycles pulled / pushed) above 1. "
        "Flit-hops, code included, are what energy in the data plane is proportional to. An instruction is 32 bytes. "
        "The controller's code has a DRAM channel of its own (controller_channel), whose tile also holds code of "
        'pulled programs; "channel shared" is the same floorplan with that channel for data, too, which pulled '
        "programs can use and pushed ones cannot.",
        (Sheet("RTL cycles", columns, cells, bad), fed),
        (),
        tuple(failed),
    )
