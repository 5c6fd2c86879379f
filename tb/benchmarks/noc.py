"""The network by itself: latency and saturation against BookSim 2, flits simulated a second, cells of a router."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata

from ..devices.noc.build import Mesh
from ..devices.noc.traffic import TrafficError, load_point
from ..results.events import OnEvent, Stage
from .area import BITS, DEPTH, router_area
from .interface import BenchmarkError
from .noc_curves import FACTOR, PATIENCE, SAMPLE, WARMUP, Curve
from .noc_peers import DEPTH as PEER_DEPTH
from .noc_peers import PEERS, SPREAD, VCS, Peer
from .results import FOLDER, Result, Sheet

POLICIES = {"same": "keeps its VC", "free": "any free VC"}
#: The mesh and patterns of the plot.
PLOTTED_SIDE, PLOT = 4, "noc.svg"
#: Channels of the routers whose cells are counted, and of the meshes whose speed is measured.
CHANNELS = (1, 2, 4)
#: Load at which speed is measured, in flits per node and cycle, packet length, and cycles.
SPEED_LOAD, SPEED_LENGTH, SPEED_CYCLES = 0.4, 5, 100_000


def mesh(side: int, allocate: str) -> Mesh:
    """The mesh that is held against the peer's."""
    return Mesh(side, side, VCS, PEER_DEPTH, allocate=allocate)


def missed(curve: Curve) -> list[str]:
    """Bars that a curve misses, in words.

    Without load no later than the two-cycle router. Saturation no lower than either peer's where the latency reaches
    the same number of cycles as the two-cycle router's. Where it reaches three times what it is here without load, a
    stricter limit the faster the router is: no lower than either but for the peer's own spread, if packets take any
    free channel (those that keep theirs pay for their order: told, not judged).
    """
    peer = curve.peer
    found: list[str] = []
    if curve.zero_load > peer.two.zero_load:
        found.append(f"zero-load latency {curve.zero_load:.2f} is above {peer.two.zero_load}")
    equal = curve.load_at(FACTOR * peer.two.zero_load)
    if equal < theirs(peer):
        found.append(f"{FACTOR * peer.two.zero_load:.1f} cycles are reached at {equal:.3f}, before {theirs(peer):.3f}")
    if curve.mesh.allocate == "free" and curve.saturation < theirs(peer) - SPREAD:
        found.append(f"saturation {curve.saturation:.3f} is below {theirs(peer):.3f} by more than {SPREAD}")
    return found


def theirs(peer: Peer) -> float:
    """The higher saturation of the two peers."""
    return max(peer.two.saturation, peer.four.saturation)


def below(curves: Sequence[Curve]) -> str:
    """Which curves saturate before a peer, each by its own zero load; a sentence for each policy."""
    words: list[str] = []
    for policy, name in POLICIES.items():
        lower = [
            f"{curve.peer.side}x{curve.peer.side} {curve.peer.pattern}, {curve.peer.length} flits "
            f"({curve.saturation:.3f}, theirs {theirs(curve.peer):.3f})"
            for curve in curves
            if curve.mesh.allocate == policy and curve.saturation < theirs(curve.peer)
        ]
        words.append(f"a packet {name}: {'; '.join(lower) or 'none'}.")
    return " ".join(words)


def row(curve: Curve) -> tuple[str, ...]:
    """Ours beside theirs."""
    peer = curve.peer
    return (
        f"{peer.side}x{peer.side}",
        peer.pattern,
        f"{peer.length}",
        POLICIES[curve.mesh.allocate],
        f"{curve.zero_load:.2f}",
        f"{peer.two.zero_load:.1f}",
        f"{peer.four.zero_load:.1f}",
        f"{curve.saturation:.3f}",
        f"{peer.two.saturation:.3f}",
        f"{peer.four.saturation:.3f}",
        f"{curve.load_at(FACTOR * peer.two.zero_load):.3f}",
        f"{curve.at(1.0).accepted:.3f}",
    )


_COLUMNS = (
    "mesh",
    "traffic",
    "flits>",
    "a packet",
    "zero load>",
    "C2>",
    "A4>",
    "saturation>",
    "C2>",
    "A4>",
    "at C2's 3x>",
    "accepted at 1>",
)


def panels(curves: Mapping[tuple[Peer, str], Curve]) -> dict[str, list[Curve]]:
    """What is plotted: title to curves."""
    return {
        f"{peer.side}x{peer.side}, {peer.pattern}, {peer.length}-flit packets": [
            curves[peer, policy] for policy in POLICIES
        ]
        for peer in PEERS
        if peer.side == PLOTTED_SIDE
    }


def speed_sheet(meshes: Sequence[Mesh]) -> Sheet:
    """Cycles and flits simulated per CPU-second. Raises TrafficError."""
    cells: list[tuple[str, ...]] = []
    for one in meshes:
        found = load_point(
            one, {}, SPEED_LOAD, SPEED_LENGTH, warmup=1000, sample=SPEED_CYCLES, limit=SPEED_CYCLES + PATIENCE
        )
        cells.append(
            (
                f"{one.width}x{one.height}",
                f"{one.vcs}",
                POLICIES[one.allocate],
                f"{found.taken:,}",
                f"{found.cpu_seconds:.2f}",
                f"{found.cycles / found.cpu_seconds:,.0f}",
                f"{found.taken / found.cpu_seconds:,.0f}",
                f"{found.moves / found.cpu_seconds:,.0f}",
            )
        )
    return Sheet(
        f"Speed of the bench: uniform traffic, {SPEED_LENGTH}-flit packets, {SPEED_LOAD} flits per node and cycle",
        ("mesh", "VCs>", "a packet", "flits>", "CPU s>", "cycles/s>", "flits/s>", "flit hops/s>"),
        cells,
    )


def area_sheet() -> Sheet:
    """Cells of one router. Raises BuildError."""
    cells: list[tuple[str, ...]] = []
    for vcs in CHANNELS:
        for policy in POLICIES if vcs > 1 else ("same",):
            area = router_area(vcs, policy)
            cells.append((f"{vcs}", POLICIES[policy], f"{area.cells:,}", f"{area.flip_flops:,}"))
    return Sheet(
        f"One router: five ports, {BITS}-bit flits, {DEPTH} flits per VC and port, source routes (Yosys `synth`)",
        ("VCs>", "a packet", "cells>", "of them flip-flops>"),
        cells,
    )


def run(on_progress: OnEvent) -> Result:
    """Measures everything; writes the plot beside the tables."""
    from .noc_plot import draw

    curves = {(peer, policy): Curve(mesh(peer.side, policy), peer) for peer in PEERS for policy in POLICIES}
    rows: list[tuple[str, ...]] = []
    failures: list[str] = []
    failed: set[int] = set()
    try:
        for number, ((peer, policy), curve) in enumerate(curves.items()):
            what = f"{peer.side}x{peer.side} {peer.pattern}, {peer.length} flits, {POLICIES[policy]}"
            on_progress(Stage(workload=what, what="building the mesh unless it is cached, then running loads"))
            rows.append(row(curve))
            for reason in missed(curve):
                failures.append(f"{what}: {reason}")
                failed.add(number)
        on_progress(Stage(workload="plot", what=f"loads between, for {PLOT}"))
        draw(panels(curves), FOLDER / PLOT)
        on_progress(Stage(workload="speed", what="simulating"))
        speed = speed_sheet([Mesh(4, 4, vcs, PEER_DEPTH) for vcs in CHANNELS] + [mesh(4, "free"), mesh(5, "same")])
    except TrafficError as error:
        raise BenchmarkError(str(error)) from error
    on_progress(Stage(workload="area", what="synthesising routers"))
    area = area_sheet()
    return Result(
        "noc",
        "The network by itself",
        f"RTL of `VcMesh` in a bench of Verilog (`tb/devices/noc/`): {VCS} VCs of {PEER_DEPTH} flits, XY, Bernoulli "
        f"injection, source queues without bound; {WARMUP:,} cycles of warm-up, packets of {SAMPLE:,} cycles, then "
        "waiting for them all under load; every flit of every run is checked. Peers: BookSim 2 at the same settings "
        "(`tb/benchmarks/noc_peers.py`), with a router of two cycles (C2) and one of four (A4). *Zero load*: mean "
        "packet latency from creation to the last flit's arrival, in cycles: routers + flits, for the peers 2 + 3 and "
        f"2 + 5 times the routers. *Saturation*: offered flits per node and cycle at which it reaches {FACTOR} times "
        "that. *At C2's "
        f"{FACTOR}x*: the load at which our latency reaches {FACTOR} times C2's zero load, the same number of cycles. "
        "*Accepted at 1*: throughput when each node offers a flit in every cycle. *Keeps its VC*: ordered per source, "
        "destination and VC. Bars: zero load not above C2's; saturation not below C2's nor A4's at equal latency, nor, "
        f"with any free VC and but for the peer's spread over seeds ({SPREAD}), at {FACTOR} times one's own zero load.",
        (Sheet(f"Beside BookSim 2: {VCS} VCs x {PEER_DEPTH} flits", _COLUMNS, rows, frozenset(failed)), speed, area),
        (
            f"![Latency against offered load]({PLOT})",
            f"Measured in {sum(curve.cpu_seconds for curve in curves.values()):.0f} CPU-seconds of simulation.",
            f"{FACTOR} times one's own zero load is a stricter limit for the faster router (4x4, uniform, 1 flit: 13.5 "
            f"cycles here, 37.2 for C2). Lower than a peer by that measure: {below(list(curves.values()))}",
            "A packet that keeps its VC waits for those ahead on the same one even where others are free: the price of "
            "order, and the longer the packets the higher. The peers' packets take any free VC at each hop.",
        ),
        tuple(failures),
        {"matplotlib": metadata.version("matplotlib")},
    )
