"""Two runs side by side, as tables on the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from ..results.comparison import Comparison, Comparisons, Side
from ..results.legend import legend
from .console import dense, percent
from .narrow import show

#: Causes of a layer's change that are named.
_NAMED = 3
#: Fields of chips that differ that are listed.
_FIELDS = 8


def print_comparison(comparisons: Comparisons, to: Console) -> None:
    """Prints, for each workload, what differs between the runs, the layers, and the causes; then what is worse."""

    def line(text: str, style: str | None = None) -> None:
        to.print(text, markup=False, soft_wrap=True, style=style)

    for each in comparisons.workloads:
        line(headline(each), "bold")
        for text in different(each.a, each.b):
            line(f"  {text}")
        fields = list(each.chip_fields.items())
        for name, (before, after) in fields[:_FIELDS]:
            line(f"    {name}: {before} -> {after}")
        if len(fields) > _FIELDS:
            line(f"    and {len(fields) - _FIELDS} more fields of the chip, which --json lists")
        if each.layers:
            if len(each.layers) > 1:
                show(layer_table(each), to)
            show(cause_table(each), to)
            line(legend(), "dim")
        if each.a_energy and each.b_energy:
            before, after = each.a_energy.microjoules, each.b_energy.microjoules
            change = percent(100 * (after / before - 1) if before else None, sign="+")
            line(f"energy, an estimate ({each.b_energy.by}): {before:,.3g} -> {after:,.3g} microjoules ({change})")
        if each.note:
            line(f"note: {each.note}")
    for names, which in ((comparisons.only_a, "first"), (comparisons.only_b, "second")):
        if names:
            line(f"only in the {which} run: {', '.join(names)}")
    for name, why in comparisons.refused.items():
        line(f"not compared: {name}: {why}", "yellow")
    for text in comparisons.regressions:
        line(f"worse: {text}", "red")


def headline(comparison: Comparison) -> str:
    """A workload, and its cycles in both runs."""
    a, b = comparison.a, comparison.b
    names = a.workload if a.workload == b.workload else f"{a.workload} and {b.workload}"
    before, after = (f"{side.cycles:,}" if side.cycles is not None else str(side.status) for side in (a, b))
    change = (
        ""
        if comparison.change is None
        else f": {comparison.change:+,} ({percent(comparison.change_percent, sign='+')})"
    )
    return f"{names}: {before} -> {after} cycles{change}"


def different(a: Side, b: Side) -> list[str]:
    """What was not the same in both runs."""
    chips = (f"{side.chip}@{side.chip_digest[:8]}" if a.chip == b.chip else side.chip for side in (a, b))
    pairs = {
        "chip": tuple(chips) if a.chip_digest != b.chip_digest else ("", ""),
        "scheduler": (a.scheduler, b.scheduler),
        "cycles of": (a.source, b.source),
        "code": (a.code, b.code),
        "status": (str(a.status), str(b.status)),
    }
    return [f"{what}: {before or '-'} -> {after or '-'}" for what, (before, after) in pairs.items() if before != after]


def _cycles(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign},.1f}"


def mostly(causes: Mapping[str, float]) -> str:
    """The causes that moved most, with their change in cycles."""
    return ", ".join(f"{cause} {_cycles(change, '+')}" for cause, change in list(causes.items())[:_NAMED])


def layer_table(comparison: Comparison) -> Table:
    """Each layer's part of the cycles, before and after, and the causes that moved most; the parts add up to all."""
    table = dense("layers, in cycles", ("layer",), ("before", "after", "change", "in %", "mostly"))
    for layer in comparison.layers:
        both = layer.a is not None and layer.b is not None
        where = "" if both else f" (only {'before' if layer.b is None else 'after'})"
        table.add_row(
            layer.layer + where,
            _cycles(layer.a),
            _cycles(layer.b),
            _cycles(layer.change, "+"),
            percent(100 * layer.change / layer.a if both and layer.a else None, digits=1, sign="+"),
            mostly(layer.causes),
        )
    return table


def cause_table(comparison: Comparison) -> Table:
    """Cycles by cause, before and after."""
    table = dense("causes, in cycles", ("cause",), ("before", "after", "change"))
    for cause in dict.fromkeys((*comparison.a_causes, *comparison.b_causes)):
        before, after = comparison.a_causes.get(cause, 0.0), comparison.b_causes.get(cause, 0.0)
        table.add_row(cause, _cycles(before), _cycles(after), _cycles(after - before, "+"))
    totals = sum(comparison.a_causes.values()), sum(comparison.b_causes.values())
    table.add_row("all", _cycles(totals[0]), _cycles(totals[1]), _cycles(totals[1] - totals[0], "+"), style="bold")
    return table
