"""What other tools say of the layers that they mapped, beside what these take here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.table import Table

from meshloom.sched.ir.schedule import ToolClaim

from ..results.energy import DRAM
from ..results.schema import Row
from .narrow import show

if TYPE_CHECKING:
    from rich.console import Console


class ClaimedRun(NamedTuple):
    """A layer on a chip, what its tool says of it, and the cycles that it takes there; `microjoules`: an estimate;
    `dram_bytes`: read and written, the program too."""

    workload: str
    chip: str
    claim: ToolClaim
    cycles: int
    microjoules: float | None = None
    dram_bytes: int | None = None


def claim_of(row: Row, chip: str) -> ClaimedRun:
    """That of a row with a claim, under the name that its chip has in the table."""
    assert row.claim is not None
    energy = row.energy.microjoules if row.energy else None
    moved = row.energy.parts.get(DRAM) if row.energy else None
    return ClaimedRun(row.workload, chip, row.claim, row.rtl_cycles, energy, moved.count if moved else None)


def claim_line(claim: ToolClaim, cycles: int) -> str:
    """A claim of cycles in a sentence."""
    claims = claim.cycles or 0
    more = "more" if cycles >= claims else "fewer"
    return (
        f"{claim.tool} claims {claims:,} cycles: these are {abs(cycles - claims):,} {more} ({_beyond(claim, cycles)})"
    )


def _beyond(claim: ToolClaim, cycles: int) -> str:
    return f"{100 * (cycles - claim.cycles) / claim.cycles:+.2f} %" if claim.cycles and cycles else "-"


def print_claims(runs: Sequence[ClaimedRun], counted: str, to: Console) -> None:
    """A line for each run, and one for each change to a mapping. `counted`: what the cycles are of, RTL or model. What
    no tool claims has no column."""
    columns: dict[str, Callable[[ClaimedRun], str]] = {
        "claimed cycles": lambda run: _number(run.claim.cycles),
        f"{counted} cycles": lambda run: _number(run.cycles or None),
        "beyond claim": lambda run: _beyond(run.claim, run.cycles),
    }
    if any(run.claim.dram_bytes is not None for run in runs):
        columns["claimed DRAM bytes"] = lambda run: _number(run.claim.dram_bytes)
        if any(run.dram_bytes is not None for run in runs):
            columns["DRAM bytes"] = lambda run: _number(run.dram_bytes)
    if any(run.claim.picojoules is not None for run in runs):
        columns["claimed µJ"] = lambda run: _energy(run.claim.picojoules and run.claim.picojoules / 1e6)
    if any(run.microjoules is not None and run.claim.picojoules is not None for run in runs):
        columns["µJ (est.)"] = lambda run: _energy(run.microjoules)
    table = Table(header_style="bold", pad_edge=False)
    for name in ("workload", "chip", "mapped by"):
        table.add_column(name, no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for run in runs:
        table.add_row(run.workload, run.chip, run.claim.tool, *(cell(run) for cell in columns.values()))
    show(table, to)
    for run in runs:
        if run.claim.remark:
            to.print(f"note: {run.workload}: {run.claim.remark}", style="yellow", markup=False, soft_wrap=True)
        for change in run.claim.changes:
            note = f"note: {run.workload}: not quite the mapping of {run.claim.tool}, but the nearest: {change}"
            to.print(note, style="yellow", markup=False, soft_wrap=True)


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _energy(microjoules: float | None) -> str:
    return "-" if microjoules is None else f"{microjoules:,.4g}"
