"""The network by itself: latency and saturation against BookSim 2, flits simulated a second, cells of a router."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any, ClassVar

from ...devices.noc.build import Mesh, ingredients
from ...devices.noc.traffic import load_point
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count, table
from ..points.areas import BITS, DEPTH, RouterArea
from .noc_curves import FACTOR, PATIENCE, Curve, LoadPoint
from .noc_peers import DEPTH as PEER_DEPTH
from .noc_peers import PEERS, SPREAD, VCS, Peer
from .noc_plot import draw

POLICIES = {"same": "keeps its VC", "free": "any free VC"}
#: The mesh whose patterns are in the picture.
PICTURED_SIDE, PICTURE = 4, "noc.svg"
#: Channels of the routers whose cells are counted, and of the meshes whose speed is measured.
CHANNELS = (1, 2, 4)
#: Load at which speed is measured, in flits per node and cycle, packet length, and cycles.
SPEED_LOAD, SPEED_LENGTH, SPEED_CYCLES = 0.4, 5, 100_000
#: Patterns of the quick study: side, traffic, flits.
QUICK = ((3, "uniform", 1), (3, "uniform", 5), (4, "transpose", 1))


@dataclass(frozen=True)
class CurveFigures:
    """Of a curve: mean latency in cycles without load; offered load at which it reaches three times that, and at which
    it reaches three times the two-cycle peer's (`equal`); throughput at full load; points of the picture, if it is in
    it: those where not every packet arrived are left out."""

    zero_load: float
    saturation: float
    equal: float
    accepted: float
    points: tuple[LoadPoint, ...]
    cpu_seconds: float


def _inputs(mesh: Mesh) -> Inputs:
    return Inputs(
        ("tb.studies.chip.noc_curves", "tb.devices.noc.traffic"), (("sources", ingredients(mesh)["sources"]),)
    )


@dataclass(frozen=True)
class CurvePoint(Point):
    """A pattern of a peer's, by packets of some flits, on our mesh of that side; `allocate`: of channels to packets."""

    side: int
    pattern: str
    length: int
    allocate: str
    row: ClassVar[Any] = CurveFigures

    @property
    def name(self) -> str:
        return f"{self.side}x{self.side} {self.pattern}, {self.length} flits, {POLICIES[self.allocate]}"

    @property
    def work(self) -> float:
        return 10.0 * self.side

    @property
    def peer(self) -> Peer:
        """What is known of BookSim 2."""
        return next(
            peer for peer in PEERS if (peer.side, peer.pattern, peer.length) == (self.side, self.pattern, self.length)
        )

    def inputs(self) -> Inputs:
        return _inputs(mesh(self.side, self.allocate))

    def measure(self, report: Report) -> CurveFigures:
        """Raises TrafficError, BuildError."""
        report("building the mesh unless it is cached, then running loads")
        curve = Curve(mesh(self.side, self.allocate), self.peer)
        equal = curve.load_at(FACTOR * self.peer.two.zero_load)
        points = curve.shape() if self.side == PICTURED_SIDE else ()
        known = tuple(point for point in points if point.latency < float("inf"))
        return CurveFigures(curve.zero_load, curve.saturation, equal, curve.at(1.0).accepted, known, curve.cpu_seconds)


@dataclass(frozen=True)
class BenchSpeed:
    """What a run of uniform traffic took."""

    cycles: int
    flits: int
    hops: int
    cpu_seconds: float


@dataclass(frozen=True)
class BenchPoint(Point):
    """The bench's speed on a mesh."""

    side: int
    vcs: int
    allocate: str
    row: ClassVar[Any] = BenchSpeed

    @property
    def name(self) -> str:
        return f"speed of {self.side}x{self.side}, {self.vcs} VCs, {POLICIES[self.allocate]}"

    @property
    def work(self) -> float:
        return 30.0

    def inputs(self) -> Inputs:
        return _inputs(self.mesh)

    @property
    def mesh(self) -> Mesh:
        """What is simulated."""
        return Mesh(self.side, self.side, self.vcs, PEER_DEPTH, allocate=self.allocate)

    def measure(self, report: Report) -> BenchSpeed:
        """Raises TrafficError, BuildError."""
        report("simulating")
        limit = SPEED_CYCLES + PATIENCE
        run = load_point(self.mesh, {}, SPEED_LOAD, SPEED_LENGTH, warmup=1000, sample=SPEED_CYCLES, limit=limit)
        return BenchSpeed(run.cycles, run.taken, run.moves, run.cpu_seconds)


def mesh(side: int, allocate: str) -> Mesh:
    """The mesh that is held against the peer's."""
    return Mesh(side, side, VCS, PEER_DEPTH, allocate=allocate)


def points(full: bool) -> list[Point]:
    """Quick: three patterns, the speed of one mesh, the smallest router."""
    peers = [peer for peer in PEERS if full or (peer.side, peer.pattern, peer.length) in QUICK]
    curves = [CurvePoint(peer.side, peer.pattern, peer.length, policy) for peer in peers for policy in POLICIES]
    meshes = (
        [*((4, vcs, "same") for vcs in CHANNELS), (4, VCS, "free"), (5, VCS, "same")] if full else [(4, VCS, "free")]
    )
    routers = [(vcs, policy) for vcs in CHANNELS for policy in (POLICIES if vcs > 1 else ("same",))]
    return [
        *curves,
        *(BenchPoint(*each) for each in meshes),
        *(RouterArea(*each) for each in (routers if full else routers[:1])),
    ]


#: A curve that was measured.
Measured = tuple[CurvePoint, CurveFigures]


def theirs(peer: Peer) -> float:
    """The higher saturation of the two peers."""
    return max(peer.two.saturation, peer.four.saturation)


def missed(point: CurvePoint, curve: CurveFigures) -> list[str]:
    """Bars that a curve misses, in words.

    Without load no later than the two-cycle router. Saturation no lower than either peer's where the latency reaches
    the same number of cycles as the two-cycle router's. Where it reaches three times what it is here without load, a
    stricter limit the faster the router is: no lower than either but for the peer's own spread, if packets take any
    free channel (those that keep theirs pay for their order: that is shown, not judged).
    """
    peer = point.peer
    reasons: list[str] = []
    if curve.zero_load > peer.two.zero_load:
        reasons.append(f"zero-load latency {curve.zero_load:.2f} is above {peer.two.zero_load}")
    if curve.equal < theirs(peer):
        limit = FACTOR * peer.two.zero_load
        reasons.append(f"{limit:.1f} cycles are reached at {curve.equal:.3f}, before {theirs(peer):.3f}")
    if point.allocate == "free" and curve.saturation < theirs(peer) - SPREAD:
        reasons.append(f"saturation {curve.saturation:.3f} is below {theirs(peer):.3f} by more than {SPREAD}")
    return reasons


def below(curves: Sequence[Measured]) -> str:
    """Which curves saturate before a peer, each by its own zero load; a sentence for each policy."""
    words: list[str] = []
    for policy, name in POLICIES.items():
        lower = [
            f"{point.side}x{point.side} {point.pattern}, {point.length} flits "
            f"({curve.saturation:.3f}, theirs {theirs(point.peer):.3f})"
            for point, curve in curves
            if point.allocate == policy and curve.saturation < theirs(point.peer)
        ]
        words.append(f"a packet {name}: {'; '.join(lower) or 'none'}.")
    return " ".join(words)


#: Columns of curves.
COLUMNS: dict[str, Callable[[Measured], str]] = {
    "mesh": lambda each: f"{each[0].side}x{each[0].side}",
    "traffic": lambda each: each[0].pattern,
    "flits>": lambda each: str(each[0].length),
    "a packet": lambda each: POLICIES[each[0].allocate],
    "zero load>": lambda each: f"{each[1].zero_load:.2f}",
    "C2's>": lambda each: f"{each[0].peer.two.zero_load:.1f}",
    "A4's>": lambda each: f"{each[0].peer.four.zero_load:.1f}",
    "saturation>": lambda each: f"{each[1].saturation:.3f}",
    "of C2>": lambda each: f"{each[0].peer.two.saturation:.3f}",
    "of A4>": lambda each: f"{each[0].peer.four.saturation:.3f}",
    "at C2's 3x>": lambda each: f"{each[1].equal:.3f}",
    "accepted at 1>": lambda each: f"{each[1].accepted:.3f}",
}


def curves(rows: Rows) -> Table:
    """Ours beside theirs."""
    title = f"Beside BookSim 2: {VCS} VCs x {PEER_DEPTH} flits"
    return table(title, COLUMNS, rows.pairs(CurvePoint), lambda each: bool(missed(*each)))


def speeds(rows: Rows) -> Table:
    """Cycles and flits simulated per CPU-second."""
    columns: dict[str, Callable[[tuple[BenchPoint, BenchSpeed]], str]] = {
        "mesh": lambda each: f"{each[0].side}x{each[0].side}",
        "VCs>": lambda each: str(each[0].vcs),
        "a packet": lambda each: POLICIES[each[0].allocate],
        "flits>": lambda each: count(each[1].flits),
        "CPU s>": lambda each: f"{each[1].cpu_seconds:.2f}",
        "cycles/s>": lambda each: count(each[1].cycles / each[1].cpu_seconds),
        "flits/s>": lambda each: count(each[1].flits / each[1].cpu_seconds),
        "flit hops/s>": lambda each: count(each[1].hops / each[1].cpu_seconds),
    }
    title = f"Speed of the bench: uniform traffic, {SPEED_LENGTH}-flit packets, {SPEED_LOAD} flits per node and cycle"
    return table(title, columns, rows.pairs(BenchPoint))


def routers(rows: Rows) -> Table:
    """Cells of one router."""
    columns: dict[str, Callable[[tuple[RouterArea, Any]], str]] = {
        "VCs>": lambda each: str(each[0].vcs),
        "a packet": lambda each: POLICIES[each[0].allocate],
        "cells>": lambda each: count(each[1].cells),
        "of them flip-flops>": lambda each: count(each[1].flip_flops),
    }
    title = f"One router: five ports, {BITS}-bit flits, {DEPTH} flits per VC and port, source routes (Yosys `synth`)"
    return table(title, columns, rows.pairs(RouterArea))


def panels(rows: Rows) -> dict[Peer, Mapping[str, Sequence[LoadPoint]]]:
    """What is in the picture."""
    some: dict[Peer, dict[str, Sequence[LoadPoint]]] = {}
    for point, curve in rows.pairs(CurvePoint):
        if point.side == PICTURED_SIDE:
            some.setdefault(point.peer, {})[point.allocate] = curve.points
    return {**some}


def remarks(rows: Rows) -> list[str]:
    """What the measures mean."""
    some = rows.pairs(CurvePoint)
    return [
        f"Measured in {sum(curve.cpu_seconds for _, curve in some):.0f} CPU-seconds of simulation.",
        f"{FACTOR} times one's own zero load is a stricter limit for the faster router (4x4, uniform, 1 flit: 13.5 "
        f"cycles here, 37.2 for C2). Lower than a peer by that measure: {below(some)}",
        "A packet that keeps its VC waits for those ahead on the same one even where others are free: the price of "
        "order, and the longer the packets the higher. The peers' packets take any free VC at each hop.",
    ]


def _least(value: Callable[[Measured], float], policy: str = "") -> Callable[[Rows], float | None]:
    return lambda rows: min(
        (value(each) for each in rows.pairs(CurvePoint) if policy in ("", each[0].allocate)), default=None
    )


STUDY = Study(
    name="noc",
    title="The NoC by itself",
    question="Is the NoC as fast, and does it carry as much, as in a simulator of NoCs?",
    answer="Without load packets are at least {{ earlier }} cycles earlier than in BookSim 2's two-cycle router; at "
    "equal latency the mesh carries at least {{ more }} times its load.",
    about=prose(__file__),
    points=points,
    tables=(curves, speeds, routers),
    figures=(
        Figure(
            "earlier",
            "cycles without load that packets are earlier than C2's, least",
            _least(lambda each: each[0].peer.two.zero_load - each[1].zero_load),
            "{:.2f}",
            Bar("at least", 0.0),
        ),
        Figure(
            "more",
            "load at C2's latency beside the better peer's, least",
            _least(lambda each: each[1].equal / theirs(each[0].peer)),
            "{:.3f}",
            Bar("at least", 1.0),
        ),
        Figure(
            "free",
            "saturation by any free VC less the better peer's, least",
            _least(lambda each: each[1].saturation - theirs(each[0].peer), "free"),
            "{:+.3f}",
            Bar("at least", -SPREAD),
        ),
    ),
    checks=lambda rows: [
        f"{point.name}: {reason}" for point, curve in rows.pairs(CurvePoint) for reason in missed(point, curve)
    ],
    pictures={PICTURE: lambda rows, path: draw(panels(rows), path)},
    remarks=remarks,
    alone=True,
    versions=lambda: {"matplotlib": metadata.version("matplotlib")},
)
