"""Traffic that was replayed on the NoC's RTL, as data: what `meshloom noc replay --json` writes."""

from __future__ import annotations

from pydantic import computed_field

from .record import Count, Record


class NocLink(Record):
    """A link from a router, by its place (column, row): to a neighbour, or into the tile. `busy`, `blocked`: cycles."""

    x: Count
    y: Count
    port: str
    busy: Count
    blocked: Count


class NocFlow(Record):
    """A transfer of the file, to one of its places. `begin`, `end`: the cycles in which its first packet may leave, and
    in which its last flit came."""

    source: tuple[Count, Count]
    target: tuple[Count, Count]
    bytes: Count
    packets: Count
    begin: Count
    end: Count


class NocReplay(Record):
    """What became of traffic by a `tool`. `mesh`: its name; `cycles`: until the last flit came; `mean_latency`,
    `worst_latency`: of packets, from the cycle in which each may leave; `claimed_cycles`, `claimed_latency`: by the
    file, the latter in the mean; `changes`: what was done otherwise than the file says, or was not in it; `links`: the
    busiest first."""

    file: str
    tool: str = "tt-npe"
    mesh: str
    code: str
    cycles: Count
    flits: Count
    bytes: Count
    mean_latency: float
    worst_latency: Count
    claimed_cycles: Count | None = None
    claimed_latency: float | None = None
    changes: tuple[str, ...] = ()
    flows: tuple[NocFlow, ...]
    links: tuple[NocLink, ...]

    @computed_field
    @property
    def bytes_per_cycle(self) -> float:
        """Throughput of the mesh as a whole."""
        return self.bytes / max(1, self.cycles)

    @computed_field
    @property
    def beyond_claim_percent(self) -> float | None:
        """How far the RTL is beyond the claim; None without one."""
        claimed = self.claimed_cycles
        return 100.0 * (self.cycles - claimed) / claimed if claimed else None
