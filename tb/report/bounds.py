"""What bounds a run, and why it took longer than that, as tables on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.table import Table

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.program.names import tile_name

from ..results.explanation import Bounds, GapPart, Waterfall
from ..results.legend import CycleCause
from .console import dense, share_of

#: Places of the gap to the bound that are shown: those of most cycles, in the order of time.
SHOWN = 16

#: The resources of a whole run that are of one kind in a layer, and what each is called.
_PORTS = {"receiving": "a port into a core", "sending": "a port out of a core", "memories": "a scratchpad's port"}
_CALLED = {"compute": "an array", "vector": "a vector unit", "dram": "a DRAM channel, or its port", **_PORTS}


def bounds_table(bounds: Bounds, cycles: int) -> Table:
    """How long each layer keeps the busiest resource of each kind busy, and all layers together."""
    kinds = ("compute", "vector", "dram", "noc")
    table = dense("what bounds it: cycles of the busiest", ("layer",), (*kinds, "most"))
    for layer in bounds.layers:
        spent = [layer.busy.get(kind, 0) for kind in kinds]
        table.add_row(layer.layer, *(f"{count:,}" for count in spent), kinds[spent.index(max(spent))])
    ports = max(bounds.busy.get(kind, 0) for kind in _PORTS)
    whole = [*(bounds.busy.get(kind, 0) for kind in kinds[:3]), ports]
    table.add_row("all", *(f"{count:,}" for count in whole), kinds[whole.index(max(whole))], style="bold")
    table.add_row("", *(share_of(count, cycles) for count in whole), "")
    return table


def bounds_line(bounds: Bounds, cycles: int) -> str:
    """The bounds in a sentence."""
    parts = [
        f"no order of these operations takes less than {bounds.cycles:,} cycles ({_CALLED.get(bounds.limit, '')}), "
        f"{share_of(bounds.cycles, cycles)} of what it took"
    ]
    if len(bounds.layers) > 1:
        parts.append(f"layers one after the other, each at its limit, would take {bounds.in_turn:,}")
    if bounds.floor is not None:
        parts.append(f"no schedule whatever takes less than {bounds.floor:,}: useful products, or bytes in DRAM")
    return "; ".join(parts)


def gap_table(bounds: Bounds, chip: ChipConfig) -> Table:
    """Cycles in which the busiest resource had nothing to do, by cause, a line for each place in the run."""
    gap = bounds.gap
    assert gap is not None, "nothing to show"
    spent = Counter[str]()
    for part in gap.parts:
        spent.update(part.causes)
    causes = [str(cause) for cause in CycleCause if spent[cause]]
    title = f"gap to the bound: cycles in which the {gap.what} of {tile_name(chip, gap.tile)} has nothing to do"
    table = dense(title, ("where",), (*causes, "all", "share"))
    longest = sorted(gap.parts, key=lambda part: -part.cycles)[:SHOWN]
    shown = [part for part in gap.parts if part in longest]
    rest = Counter(spent)
    for part in shown:
        rest.subtract(part.causes)
        table.add_row(*_gap_cells(_where(part), part.causes, causes, gap.cycles))
    if left := len(gap.parts) - len(shown):
        table.add_row(*_gap_cells(f"{left} shorter ones", rest, causes, gap.cycles))
    for kind, counts in _by_kind(gap.parts).items():
        table.add_row(*_gap_cells(kind, counts, causes, gap.cycles), style="bold")
    table.add_row(*_gap_cells("all", spent, causes, gap.cycles), style="bold")
    return table


def _by_kind(parts: Sequence[GapPart]) -> dict[str, Counter[str]]:
    """All gaps within layers, and all between two."""
    kinds: dict[str, Counter[str]] = {"within a layer": Counter(), "between layers": Counter()}
    for part in parts:
        if part.after and part.before:
            kinds["within a layer" if part.after == part.before else "between layers"].update(part.causes)
    return kinds


def _gap_cells(where: str, spent: Mapping[str, int], causes: list[str], whole: int) -> list[str]:
    total = sum(spent.values())
    return [where, *(f"{spent.get(cause, 0):,}" for cause in causes), f"{total:,}", share_of(total, whole)]


def _where(part: GapPart) -> str:
    match part.after, part.before:
        case "", layer:
            return f"before {layer}"
        case layer, "":
            return f"after {layer}"
        case before, after:
            return f"in {after}" if before == after else f"{before}, then {after}"


def share_line(bounds: Bounds, falls: Waterfall) -> str:
    """What the bound itself consists of, in a sentence."""
    gap = bounds.gap
    assert gap is not None, "nothing to say"
    others = f"{max(0.0, bounds.cycles - gap.mean):,.0f} more than the mean of its kind"
    if bounds.limit != "compute":
        return f"the bound of {bounds.cycles:,} cycles is {others}"
    useful = falls.total.get(CycleCause.USEFUL, 0) / falls.pes
    return (
        f"the bound of {bounds.cycles:,} cycles: {useful:,.0f} of useful products, {gap.mean - useful:,.0f} of edges "
        f"(arrays are fed what is no product, on average), and {others}"
    )
