"""Traffic of another tool on the RTL of a mesh of ours: transfers become packets, their times become figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..devices.noc.build import Mesh
from ..devices.noc.replay import LONGEST, NocPacket, PacketTimes, ReplayedTraffic, replay
from ..exchange.noc_traffic import NocTransfer, NocWorkload, Place, TrafficSettings
from ..exchange.traffic import read
from ..results.identity import code
from ..results.noc import NocFlow, NocLink, NocReplay

#: The one network that there is here.
NOC = "NOC_0"
#: Packets of a file at most: their numbers are in flits, and in memory.
MOST = 200_000


class ReplayError(ValueError):
    """Traffic that the NoC cannot carry; the message says what would do."""


@dataclass(frozen=True)
class ReplaySettings:
    """`side`: columns and rows of the mesh (None: as many as the traffic needs); `flit_bytes`: of a flit's payload;
    `vcs`: virtual channels; `nearest`: what the NoC lacks becomes unicasts, and what a file does not say is left out;
    `limit`: cycles at most; `flits`, `cycles`, `seed`: of `TrafficSettings`."""

    side: Place | None = None
    flit_bytes: int = 32
    vcs: int = 2
    nearest: bool = False
    limit: int = 10_000_000
    flits: int = 8
    cycles: int = 10_000
    seed: int = 0


@dataclass(frozen=True)
class _Flow:
    """A transfer to one of its places, and where its packets' flits begin and end in the list of all."""

    transfer: NocTransfer
    target: Place
    first: int
    last: int


def replayed(path: Path, settings: ReplaySettings) -> NocReplay:
    """The traffic of a file, replayed. Raises ImportFileError, OSError, ReplayError, TrafficError, BuildError."""
    workload = read(path, TrafficSettings(settings.side, settings.flits, settings.cycles, settings.seed))
    changes = _changes(workload, settings, path)
    mesh = _mesh(workload, settings, path)
    flows, packets = _packets(workload, mesh, settings, path)
    traffic = replay(mesh, packets, settings.limit)
    latencies = list(_latencies(flows, packets, traffic.times, settings))
    return NocReplay(
        file=path.name,
        tool=workload.tool,
        mesh=mesh.name,
        code=code(),
        cycles=traffic.cycles,
        flits=traffic.flits,
        bytes=sum(flow.transfer.bytes(settings.flit_bytes) for flow in flows),
        mean_latency=sum(latencies) / len(latencies),
        worst_latency=max(latencies),
        claimed_cycles=workload.claimed_cycles,
        claimed_latency=workload.claimed_latency,
        changes=tuple(changes),
        flows=tuple(_figures(flow, traffic, settings) for flow in flows),
        links=_links(traffic, mesh),
    )


def _changes(workload: NocWorkload, settings: ReplaySettings, path: Path) -> list[str]:
    """What is done otherwise than the file says. Raises ReplayError unless that is allowed."""
    casts = sum(each.multicast for each in workload.transfers)
    others = sorted({each.noc for each in workload.transfers} - {NOC})
    changes = [f"{casts} multicasts are unicasts to each tile of their boxes"] if casts else []
    changes += [f"{name} is {NOC}, which goes along x and then along y" for name in others]
    if workload.gaps and not settings.nearest:
        raise ReplayError(f"{path}: has {'; '.join(workload.gaps)}; was it cut? --nearest leaves them out")
    if changes and not settings.nearest:
        lacks = [*(["multicasts"] if casts else []), *others]
        raise ReplayError(f"{path}: has {', '.join(lacks)}, which the NoC has not; --nearest sends unicasts by {NOC}")
    return [*changes, *(f"{gap}: left out" for gap in workload.gaps), *workload.notes]


def _mesh(workload: NocWorkload, settings: ReplaySettings, path: Path) -> Mesh:
    places = [place for each in workload.transfers for place in (each.source, *each.targets)]
    need = max(x for x, _ in places) + 1, max(y for _, y in places) + 1
    width, height = settings.side or (max(2, need[0]), max(2, need[1]))
    if need[0] > width or need[1] > height:
        raise ReplayError(f"{path}: needs a mesh of {need[0]}x{need[1]}, {width}x{height} is too small; raise --mesh")
    if width * height > 64:
        raise ReplayError(f"{path}: a mesh of {width}x{height} is too large; up to 64 routers are built")
    return Mesh(width, height, settings.vcs)


def _packets(
    workload: NocWorkload, mesh: Mesh, settings: ReplaySettings, path: Path
) -> tuple[list[_Flow], list[NocPacket]]:
    """Packets of the NoC: those of a transfer have a head, and are cut where they are too long. Raises ReplayError."""
    flows: list[_Flow] = []
    packets: list[NocPacket] = []
    for transfer in workload.transfers:
        lengths = transfer.lengths(settings.flit_bytes, LONGEST)
        for target in transfer.targets:
            if len(packets) + transfer.packets * len(lengths) > MOST:
                raise ReplayError(f"{path}: has more than {MOST:,} packets; replay a part of it, or raise --flit-bytes")
            first = len(packets)
            for number in range(transfer.packets):
                leaves = transfer.offset + (int(number * transfer.size / transfer.rate) if transfer.rate else 0)
                nodes = _node(transfer.source, mesh), _node(target, mesh)
                packets += [NocPacket(nodes[0], leaves, nodes[1], flits) for flits in lengths]
            flows.append(_Flow(transfer, target, first, len(packets)))
    return flows, packets


def _node(place: Place, mesh: Mesh) -> int:
    return place[1] * mesh.width + place[0]


def _latencies(
    flows: Sequence[_Flow], packets: Sequence[NocPacket], times: Sequence[PacketTimes], settings: ReplaySettings
) -> Iterator[int]:
    """Of each packet of the file: from the cycle in which it may leave to that in which its last flit came."""
    for flow in flows:
        each = len(flow.transfer.lengths(settings.flit_bytes, LONGEST))
        for at in range(flow.first, flow.last, each):
            yield max(time.came for time in times[at : at + each]) - packets[at].leaves


def _figures(flow: _Flow, traffic: ReplayedTraffic, settings: ReplaySettings) -> NocFlow:
    transfer = flow.transfer
    return NocFlow(
        source=transfer.source,
        target=flow.target,
        bytes=transfer.bytes(settings.flit_bytes),
        packets=transfer.packets,
        begin=transfer.offset,
        end=max(time.came for time in traffic.times[flow.first : flow.last]),
    )


def _links(traffic: ReplayedTraffic, mesh: Mesh) -> tuple[NocLink, ...]:
    """Links that carried something, the busiest first."""
    used = sorted((use for use in traffic.links if use.busy), key=lambda use: (-use.busy, use.node, use.port))
    return tuple(
        NocLink(x=use.node % mesh.width, y=use.node // mesh.width, port=use.port, busy=use.busy, blocked=use.blocked)
        for use in used
    )
