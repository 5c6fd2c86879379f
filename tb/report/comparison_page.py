"""Two runs side by side, as a page that needs no network."""

from __future__ import annotations

from collections.abc import Sequence

from ..results.comparison import Comparison, Comparisons, Side
from ..results.legend import CycleCause
from .compared import different, headline
from .console import percent
from .figures import Figure, cycles_axis, figure, plain
from .markup import Section, contents, document, paragraph, plot, sections_text, table, whole
from .page_words import causes, glossary

_BEFORE, _AFTER = "#90a4ae", "#1e88e5"


def comparison_page(comparisons: Comparisons) -> str:
    """What moved, for each workload: cycles, causes and layers, before and after."""
    workloads = comparisons.workloads
    title = headline(workloads[0]) if len(workloads) == 1 else f"{len(workloads)} workloads compared"
    body = [paragraph(f"worse: {text}", "banner bad") for text in comparisons.regressions]
    for names, which in ((comparisons.only_a, "first"), (comparisons.only_b, "second")):
        if names:
            body.append(paragraph(f"Only in the {which} run: {', '.join(names)}"))
    overview = Section("all", "All workloads", _overview(workloads))
    sections = [_section(each, number) for number, each in enumerate(workloads)]
    words = [causes(), glossary()]
    data = [{"at": number, "figures": _figures(each, number)} for number, each in enumerate(workloads)]
    for number, section in enumerate(sections):
        body.append(f'<div class="run" id="w{number}-run">{sections_text([section])}</div>')
    listed = [overview, *sections, *words]
    return document(title, contents([("", listed)]), [sections_text([overview]), *body, sections_text(words)], data)


def _overview(workloads: Sequence[Comparison]) -> str:
    rows = [
        (
            _name(each),
            _cycles(each.a),
            _cycles(each.b),
            "-" if each.change is None else whole(each.change, "+"),
            percent(each.change_percent, sign="+"),
        )
        for each in workloads
    ]
    return table(("workload", "cycles before", "cycles after", "change", "in %"), rows)


def _name(comparison: Comparison) -> str:
    a, b = comparison.a.workload, comparison.b.workload
    return a if a == b else f"{a} and {b}"


def _cycles(side: Side) -> str:
    return str(side.status) if side.cycles is None else whole(side.cycles)


def _section(comparison: Comparison, number: int) -> Section:
    """What differs between the runs, and what moved."""
    a, b = comparison.a, comparison.b
    rows = [
        ("workload", a.workload, b.workload),
        ("chip", f"{a.chip} ({a.chip_digest[:8]})", f"{b.chip} ({b.chip_digest[:8]})"),
        *((name, *values) for name, values in comparison.chip_fields.items()),
        ("scheduler", a.scheduler, b.scheduler),
        ("cycles of", a.source, b.source),
        ("code", a.code or "-", b.code or "-"),
        ("status", a.status.value, b.status.value),
        ("cycles", _cycles(a), _cycles(b)),
    ]
    if comparison.a_energy and comparison.b_energy:
        before, after = comparison.a_energy.microjoules, comparison.b_energy.microjoules
        rows.append(("microjoules, an estimate", f"{before:,.3f}", f"{after:,.3f}"))
    parts = [table(("", "before", "after"), rows, left=3)]
    if not different(a, b):
        parts.append(paragraph("Chip, scheduler and code are the same."))
    if comparison.note:
        parts.append(paragraph(comparison.note))
    if comparison.a_causes or comparison.b_causes:
        parts.append(plot(f"w{number}-causes", "Cycles by cause: before in grey, after in blue"))
        parts.append(_cause_table(comparison))
    if comparison.layers:
        parts.append(plot(f"w{number}-layers", "Change of each layer, by cause: to the left it became faster"))
        parts.append(_layer_table(comparison))
    return Section(f"w{number}-s", headline(comparison), "".join(parts))


def _cause_table(comparison: Comparison) -> str:
    rows: list[tuple[str, str, str, str]] = []
    for cause in _causes(comparison):
        before, after = comparison.a_causes.get(cause, 0.0), comparison.b_causes.get(cause, 0.0)
        rows.append((cause, whole(before), whole(after), whole(after - before, "+")))
    return table(("cause", "before", "after", "change"), rows)


def _layer_table(comparison: Comparison) -> str:
    rows = [
        (
            each.layer,
            ", ".join(f"{cause} {whole(change, '+')}" for cause, change in each.causes.items()),
            "-" if each.a is None else whole(each.a),
            "-" if each.b is None else whole(each.b),
            whole(each.change, "+"),
            percent(100 * each.change / each.a if each.a and each.b is not None else None, digits=1, sign="+"),
        )
        for each in comparison.layers
    ]
    return table(("layer", "by cause", "before", "after", "change", "in %"), rows, left=2)


def _causes(comparison: Comparison) -> list[str]:
    return list(dict.fromkeys((*comparison.a_causes, *comparison.b_causes)))


def _figures(comparison: Comparison, number: int) -> list[Figure]:
    """Bars of both runs by cause, and of the layers' changes."""
    values: list[Figure] = []
    there = _causes(comparison)
    if there:
        sides = (("before", comparison.a_causes, _BEFORE), ("after", comparison.b_causes, _AFTER))
        bars: list[Figure] = [
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "y": there,
                "marker": {"color": colour},
                "x": [spent.get(cause, 0.0) for cause in there],
            }
            for name, spent, colour in sides
        ]
        values.append(figure(f"w{number}-causes", bars, _layout(len(there), 34, "group")))
    moved = [each for each in comparison.layers if each.causes]
    if moved:
        colours = {str(cause): cause.colour for cause in CycleCause}
        names = [plain(each.layer) for each in moved]
        known = dict.fromkeys(cause for each in moved for cause in each.causes)
        stacks: list[Figure] = [
            {
                "type": "bar",
                "orientation": "h",
                "name": cause,
                "y": names,
                "marker": {"color": colours.get(cause, "#607d8b")},
                "x": [each.causes.get(cause, 0.0) for each in moved],
            }
            for cause in known
        ]
        values.append(figure(f"w{number}-layers", stacks, _layout(len(moved), 20, "relative")))
    return values


def _layout(lines: int, pitch: int, mode: str) -> Figure:
    return {
        "barmode": mode,
        "height": max(200, 90 + pitch * lines),
        "showlegend": False,
        "yaxis": {"autorange": "reversed", "automargin": True, "ticksuffix": " ", "dtick": 1},
        "xaxis": cycles_axis(),
    }
