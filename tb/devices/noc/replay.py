"""Packets that somebody lists, sent through the RTL of a mesh: when each left and came, and how busy each link was.

The mesh is that of the soak and of the load curves (`build`), its Verilog comes out of their entry in the cache; only
what stands around it is another bench (`replay_verilog/replay.sv`).
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from meshloom.hw.spec.routes import ports_at
from meshloom.sched.store.kinds import MESHES as KIND
from meshloom.sched.store.store import Recipe, StoreError, key

from ...build.builder import OUTPUT, ROOT, BuildError
from . import build
from .build import Mesh
from .traffic import TrafficError

#: Flits of a packet at most, its head included.
LONGEST = 64
_BENCH = Path(__file__).parent / "replay_verilog" / "replay.sv"
_CLOCK_GATE = ROOT / "tb" / "build" / "verilog" / "clock_gate.v"


@dataclass(frozen=True)
class NocPacket:
    """A packet: nodes (y * width + x), the first cycle in which it may leave, and its flits, the head among them."""

    source: int
    leaves: int
    target: int
    flits: int


@dataclass(frozen=True)
class PacketTimes:
    """The cycles in which a packet's first flit left and its last one came."""

    left: int
    came: int


@dataclass(frozen=True)
class LinkUse:
    """An output of a router: its node, its direction (`local`: to the tile), the cycles in which a flit left by it, and
    those in which one wanted to and could not."""

    node: int
    port: str
    busy: int
    blocked: int


@dataclass(frozen=True)
class ReplayedTraffic:
    """What became of packets, in their order. `cycles`: until the last flit came; `flits`: that came."""

    cycles: int
    flits: int
    times: tuple[PacketTimes, ...]
    links: tuple[LinkUse, ...]


def replay(mesh: Mesh, packets: Sequence[NocPacket], limit: int) -> ReplayedTraffic:
    """Sends packets, each source in the order of their cycles, for at most `limit` cycles. Builds the simulator if it
    is not in the cache.

    Raises TrafficError if a flit is lost, changed or late, BuildError when there is no simulator, ValueError for a
    packet of no flit or of more than `LONGEST`.
    """
    if not packets or any(not 1 <= packet.flits <= LONGEST for packet in packets):
        raise ValueError(f"{mesh.name}: there must be packets, of 1 to {LONGEST} flits")
    order = sorted(range(len(packets)), key=lambda at: (packets[at].source, packets[at].leaves))
    with tempfile.TemporaryDirectory(prefix="meshloom_") as folder:
        listing, out = Path(folder) / "packets", Path(folder) / "out"
        lines = (f"{p.source} {p.leaves} {p.target} {p.flits}\n" for p in (packets[at] for at in order))
        listing.write_text(f"{len(packets)}\n" + "".join(lines))
        command = [str(_simulator(mesh)), f"+packets={listing}", f"+out={out}", f"+limit={limit}"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        texts = {line.partition(" ")[0]: line.partition(" ")[2] for line in reversed(done.stdout.splitlines())}
        if "ERROR" in texts:
            raise TrafficError(f"{mesh.name}: {texts['ERROR']}")
        if done.returncode or "RESULT" not in texts:
            last = (done.stdout + done.stderr).strip().splitlines() or ["it printed nothing"]
            raise TrafficError(f"{mesh.name}: the simulator ended with status {done.returncode}: {last[-1]}")
        counts = {name: int(value) for name, value in (item.split("=") for item in texts["RESULT"].split())}
        pairs = [(int(a), int(b)) for a, b in (line.split() for line in out.read_text().splitlines())]
    times = [PacketTimes(0, 0)] * len(packets)
    for at, pair in zip(order, pairs, strict=False):
        times[at] = PacketTimes(*pair)
    return ReplayedTraffic(counts["cycles"], counts["flits"], tuple(times), _links(mesh, pairs[len(packets) :]))


def _links(mesh: Mesh, pairs: Sequence[tuple[int, int]]) -> tuple[LinkUse, ...]:
    uses: list[LinkUse] = []
    for node in range(mesh.width * mesh.height):
        names = ports_at(node % mesh.width, node // mesh.width, mesh.width, mesh.height)
        uses += [LinkUse(node, name, *pairs[5 * node + port]) for port, name in enumerate(names)]
    return tuple(uses)


def _simulator(mesh: Mesh) -> Path:
    """The program that sends packets through the mesh, from the cache if it is there. Raises BuildError."""
    bench = hashlib.sha256(_BENCH.read_bytes() + Path(__file__).read_bytes()).hexdigest()
    name = key(f"replay-{mesh.name}", replay=bench, **build.ingredients(mesh))
    recipe = Recipe(name, lambda folder, log: _compile(mesh, folder, log), ("bench",))
    try:
        return KIND.store(OUTPUT).build(recipe)[0] / "bench"
    except StoreError as error:
        raise BuildError(str(error)) from error


def _compile(mesh: Mesh, folder: Path, log: Path) -> None:
    shutil.copy(build.simulator(mesh).parent / "mesh.v", folder / "mesh.v")
    (folder / "bench.sv").write_text(build.top(mesh))
    sources = [folder / "mesh.v", _BENCH, _CLOCK_GATE, folder / "bench.sv"]
    build.build_bench(mesh, folder, sources, log)
