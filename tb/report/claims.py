"""What other tools say of the layers that they mapped, beside what these take here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.table import Table

from meshloom.sched.ir.schedule import ToolClaim

from ..results.schema import Row
from .narrow import show

if TYPE_CHECKING:
    from rich.console import Console


class ClaimedRun(NamedTuple):
    """A layer on a chip, what its tool says of it, and the cycles that it takes there."""

    workload: str
    chip: str
    claim: ToolClaim
    cycles: int


def claimed(row: Row, chip: str) -> ClaimedRun:
    """That of a row with a claim, under the name that its chip has in the table."""
    assert row.claim is not None
    return ClaimedRun(row.workload, chip, row.claim, row.rtl_cycles)


def print_claims(runs: Sequence[ClaimedRun], counted: str, to: Console) -> None:
    """A line for each run, and one for each change to a mapping. `counted`: what the cycles are of, RTL or model."""
    table = Table(header_style="bold", pad_edge=False)
    for name in ("workload", "chip", "mapped by"):
        table.add_column(name, no_wrap=True)
    for name in ("claimed cycles", f"{counted} cycles", "beyond claim", "claimed DRAM bytes", "claimed µJ"):
        table.add_column(name, justify="right", no_wrap=True)
    for workload, chip, claim, cycles in runs:
        beyond = f"{100 * (cycles - claim.cycles) / claim.cycles:+.2f} %" if claim.cycles and cycles else "-"
        table.add_row(
            workload,
            chip,
            claim.tool,
            "-" if claim.cycles is None else f"{claim.cycles:,}",
            f"{cycles:,}" if cycles else "-",
            beyond,
            "-" if claim.dram_bytes is None else f"{claim.dram_bytes:,}",
            "-" if claim.picojoules is None else f"{claim.picojoules / 1e6:,.4g}",
        )
    show(table, to)
    for workload, _, claim, _ in runs:
        for change in claim.changes:
            note = f"note: {workload}: not quite the mapping of {claim.tool}, but the nearest: {change}"
            to.print(note, style="yellow", markup=False, soft_wrap=True)
