"""Traffic of a network on chip as other tools describe it: transfers, each of some packets from one place to others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from .interface import ImportFileError

#: A place in the mesh: column, row.
Place = tuple[int, int]


@dataclass(frozen=True)
class NocTransfer:
    """Packets from one place to others. `size`: bytes of each of `packets`, or `flits`: its flits, the head among them,
    where the tool counts in flits (0: it does not); `rate`: bytes a cycle (0: any); `offset`: the cycle in which the
    first may leave; `noc`: the network by its name; `multicast`: one packet is for all places."""

    source: Place
    targets: tuple[Place, ...]
    size: int
    packets: int
    rate: float
    offset: int
    noc: str
    multicast: bool
    flits: int = 0

    def lengths(self, flit_bytes: int, longest: int) -> list[int]:
        """The flits of the packets that one of these becomes: bytes get a head before them, and what is longer than
        `longest` is cut."""
        total, most, head = (self.flits, longest, 0) if self.flits else (ceil(self.size / flit_bytes), longest - 1, 1)
        parts = [most] * (total // most) + ([total % most] if total % most else [])
        return [part + head for part in parts]

    def bytes(self, flit_bytes: int) -> int:
        """Of all packets to one place."""
        return self.packets * (self.flits * flit_bytes if self.flits else self.size)


@dataclass(frozen=True)
class NocWorkload:
    """Transfers by a `tool`. `claimed_cycles`, `claimed_latency`: cycles of all, and of a packet in the mean, as the
    tool says (None: it does not). `gaps`: what the file does not say and is left out; `notes`: how it was read."""

    tool: str
    transfers: tuple[NocTransfer, ...]
    claimed_cycles: int | None = None
    claimed_latency: float | None = None
    gaps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrafficSettings:
    """What a file leaves open. `side`: columns and rows of the mesh; `flits`: of a packet; `cycles`, `seed`: of traffic
    that is drawn, how long, and by which numbers."""

    side: Place | None = None
    flits: int = 8
    cycles: int = 10_000
    seed: int = 0


def placing(side: Place | None, path: Path) -> Callable[[int, int], Place]:
    """What turns the number of a node in a line into its place: row by row. Raises ImportFileError without a mesh, or
    for a node that is not in it."""
    if side is None:
        raise ImportFileError(f"{path}: its nodes have numbers; say how they lie with --mesh, such as --mesh 4x4")
    width, height = side

    def place(node: int, line: int) -> Place:
        if node >= width * height:
            raise ImportFileError(
                f"{path}:{line}: node {node} is not in a mesh of {width}x{height}, which ends with node "
                f"{width * height - 1}; raise --mesh"
            )
        return node % width, node // width

    return place
