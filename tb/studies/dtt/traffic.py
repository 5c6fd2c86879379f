"""What travels over the links between routers in a run, and what is wrong with a run that was planned to the cycle."""

from __future__ import annotations

from meshloom.hw.spec.routes import LOCAL

from ...results.schema import Row
from ..points.runs import RunPoint, wrong_with


def flit_hops(row: Row) -> int:
    """Flits x links between routers: what energy in the data plane is proportional to."""
    return sum(link.busy for link in row.links if link.port != LOCAL)


def link_load(row: Row) -> float:
    """Share of the cycles of all links between routers in which a flit went."""
    links = [link for link in row.links if link.port != LOCAL]
    return sum(link.busy for link in links) / max(1, sum(link.cycles for link in links))


def off_plan(point: RunPoint, row: Row) -> list[str]:
    """What is wrong with a run: a byte or an arrival that is off, or cycles that were not planned."""
    if not row.bytes_checked:
        return [f"{point.name}: no byte was compared"]
    return wrong_with(point, row, exact=True)
