"""What other tools claim of their own mappings, beside what these take on the RTL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from statistics import mean, median

from meshloom.sched.schedulers.nest.schedule import sizes_of
from meshloom.sched.workload.catalog import find

from ...report.console import percent
from ...results.schema import Row
from ..engine.point import Point
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import DASH, Table, count, share, table
from ..points.runs import RunPoint
from .mapped import FILES, MappedPoint, MappedRun, every_point

#: Of the quick study: layers of each tool on these chips, drawn with this seed.
QUICK_CHIPS, QUICK_EACH, SEED = ("tiny", "quad8", "mono16", "quad16"), 6, 45
#: Networks of which every layer has been mapped.
WHOLE = ("resnet8", "squeezenet")
#: Causes that are no loss, and how many of the others a line has.
_USEFUL, _MOST = "useful", 3


def sample() -> Sequence[MappedPoint]:
    """The layers of the quick study."""
    some: list[MappedPoint] = []
    for tool in FILES:
        every = [point for point in every_point() if point.tool == tool and point.chip in QUICK_CHIPS]
        some += Random(f"{SEED} {tool}").sample(every, min(QUICK_EACH, len(every)))
    return some


def _own(point: MappedPoint) -> RunPoint:
    return RunPoint(point.chip, point.workload)


def points(full: bool) -> Sequence[Point]:
    """Layers by a tool's mapping, and by our own search."""
    some = every_point() if full else sample()
    return [*some, *dict.fromkeys(map(_own, some))]


#: A layer by a tool's mapping, its row, and that of our own search where it has run.
JudgedLayer = tuple[MappedPoint, MappedRun, Row | None]


def _every(rows: Rows) -> list[JudgedLayer]:
    """Layers that ran, in the order of tools, chips and names."""
    own: dict[RunPoint, Row] = dict(rows.pairs(RunPoint))
    order = list(FILES)
    pairs = [(point, row) for point, row in rows.pairs(MappedPoint) if not row.refused]
    pairs.sort(key=lambda pair: (order.index(pair[0].tool), pair[0].chip, pair[0].workload))
    return [(point, row, own.get(_own(point))) for point, row in pairs]


def _beyond(rows: Rows, tool: str = "") -> list[float]:
    return [row.beyond for point, row, _ in _every(rows) if row.beyond is not None and tool in ("", point.tool)]


def tools(rows: Rows) -> Table:
    """A line for each tool."""
    refused = [point for point, row in rows.pairs(MappedPoint) if row.refused]
    some = [tool for tool in FILES if _beyond(rows, tool)]
    columns: dict[str, Callable[[str], str]] = {
        "tool": lambda tool: tool,
        "layers>": lambda tool: str(len(_beyond(rows, tool))),
        "mean error>": lambda tool: percent(mean(map(abs, _beyond(rows, tool))), 1),
        "median error>": lambda tool: percent(median(map(abs, _beyond(rows, tool))), 1),
        "most beyond>": lambda tool: percent(max(_beyond(rows, tool)), 1, "+"),
        "least>": lambda tool: percent(min(_beyond(rows, tool)), 1, "+"),
        "RTL / loop_order>": lambda tool: _against_own(rows, tool),
        "refused>": lambda tool: str(sum(point.tool == tool for point in refused)),
    }
    return table("By tool: RTL from claim", columns, some)


def _against_own(rows: Rows, tool: str) -> str:
    pairs = [(row.rtl, own.rtl_cycles) for point, row, own in _every(rows) if point.tool == tool and own]
    return f"{sum(one for one, _ in pairs) / sum(other for _, other in pairs):.2f}" if pairs else DASH


def side_by_side(rows: Rows) -> Table:
    """A line for each layer on a chip that several tools mapped; a column for each tool."""
    known: dict[tuple[str, str], dict[str, MappedRun]] = {}
    own: dict[tuple[str, str], Row | None] = {}
    for point, row, other in _every(rows):
        place = point.chip, _of_equal_size(point.workload)
        known.setdefault(place, {})[point.tool] = row
        own[place] = own.get(place) or other
    several = [(place, runs) for place, runs in sorted(known.items()) if len(runs) > 1]

    def cell(tool: str) -> Callable[[tuple[tuple[str, str], dict[str, MappedRun]]], str]:
        def text(line: tuple[tuple[str, str], dict[str, MappedRun]]) -> str:
            row = line[1].get(tool)
            return f"{count(row.claimed)} / {count(row.rtl)} ({percent(row.beyond, 1, '+')})" if row else DASH

        return text

    columns: dict[str, Callable[[tuple[tuple[str, str], dict[str, MappedRun]]], str]] = {
        "layer": lambda line: line[0][1],
        "chip": lambda line: line[0][0],
        **{f"{tool}>": cell(tool) for tool in FILES},
        "loop_order>": lambda line: count(row.rtl_cycles) if (row := own[line[0]]) else DASH,
    }
    return table("Side by side: claimed / RTL", columns, several)


def _of_equal_size(workload: str) -> str:
    """The first layer of its network that has these sizes, so that lines meet."""
    network, _, _ = workload.partition("/")
    if network == workload:
        return workload
    sizes = {each.name: (sizes_of(each.shape), each.shape.stride_h) for each in find(network)}
    return next(name for name, size in sizes.items() if size == sizes[workload])


def networks(rows: Rows) -> Table:
    """Every distinct layer of a network, added up, where a tool has mapped them all."""
    lines: list[tuple[str, ...]] = []
    for network in WHOLE:
        names = {_of_equal_size(each.name) for each in find(network)}
        places = dict.fromkeys((point.tool, point.chip) for point, _, _ in _every(rows))
        for tool, chip in places:
            some = {
                _of_equal_size(point.workload): (row, own)
                for point, row, own in _every(rows)
                if (point.tool, point.chip) == (tool, chip) and point.workload.startswith(f"{network}/")
            }
            if some.keys() != names:
                continue
            claimed, rtl = (
                sum(each) for each in zip(*((row.claimed or 0, row.rtl) for row, _ in some.values()), strict=True)
            )
            owns = [own.rtl_cycles for _, own in some.values() if own]
            own_cycles = sum(owns) if len(owns) == len(names) else None
            beyond = percent(100 * (rtl - claimed) / claimed, 1, "+")
            lines.append((network, chip, tool, str(len(names)), count(claimed), count(rtl), beyond, count(own_cycles)))
    columns = ("network", "chip", "tool", "layers>", "claimed>", "RTL>", "beyond claim>", "loop_order, RTL>")
    return Table("Whole networks: each distinct layer once", columns, lines)


def _causes(row: MappedRun) -> str:
    """What takes most of the cycles that compute nothing."""
    lost = sorted(((spent, cause) for cause, spent in row.causes.items() if cause != _USEFUL), reverse=True)
    return ", ".join(f"{cause} {share(spent / row.model, 0)}" for spent, cause in lost[:_MOST])


def layers(rows: Rows) -> list[Table]:
    """A table for each tool, a line for each layer."""
    tables: list[Table] = []
    for tool in FILES:
        some = [layer for layer in _every(rows) if layer[0].tool == tool]
        columns: dict[str, Callable[[JudgedLayer], str]] = {
            "layer": lambda layer: layer[0].workload,
            "chip": lambda layer: layer[0].chip,
            "claimed>": lambda layer: count(layer[1].claimed),
            "RTL>": lambda layer: count(layer[1].rtl),
            "beyond claim>": lambda layer: percent(layer[1].beyond, 1, "+"),
            "PE util.>": lambda layer: share(layer[1].utilisation),
            "most of the rest": lambda layer: _causes(layer[1]),
            "loop_order, RTL>": lambda layer: count(layer[2].rtl_cycles) if layer[2] else DASH,
        }
        if any(row.claimed_bytes is not None for _, row, _ in some):
            columns["claimed bytes>"] = lambda layer: count(layer[1].claimed_bytes)
            columns["bytes>"] = lambda layer: count(layer[1].moved_bytes)
        if any(row.claimed_microjoules is not None for _, row, _ in some):
            columns["claimed µJ>"] = lambda layer: _energy(layer[1].claimed_microjoules)
            columns["µJ (est.)>"] = lambda layer: _energy(layer[1].microjoules)
        tables.append(table(f"Layers by {tool}", columns, some))
    return tables


def _energy(value: float | None) -> str:
    return DASH if value is None else f"{value:,.3g}"


def refusals(rows: Rows) -> Table:
    """Mappings that the chip cannot run."""
    some = [(point, row) for point, row in rows.pairs(MappedPoint) if row.refused]
    columns: dict[str, Callable[[tuple[MappedPoint, MappedRun]], str]] = {
        "layer": lambda pair: pair[0].workload,
        "chip": lambda pair: pair[0].chip,
        "tool": lambda pair: pair[0].tool,
        "why": lambda pair: pair[1].refused.partition(";")[0],
    }
    return table("Refused", columns, some)


def _of(figure: Callable[[list[float]], float], rows: Rows) -> float | None:
    """A figure of how far the RTL is from claims, either way; None without rows."""
    some = [abs(percent) for percent in _beyond(rows)]
    return figure(some) if some else None


def _mean_of(tool: str) -> Callable[[Rows], float | None]:
    return lambda rows: mean(map(abs, some)) if (some := _beyond(rows, tool)) else None


def wrong(rows: Rows) -> list[str]:
    """Runs that are not good, in words."""
    return [f"{point.name}: {row.problem}" for point, row, _ in _every(rows) if row.problem]


STUDY = Study(
    name="referee",
    title="What tools claim, and what their mappings take",
    question="Does a layer take as many cycles on the RTL as the tool claims that mapped it?",
    answer="{{ layers }} runs of layers are {{ mean }} from the claim in the mean (ZigZag {{ zigzag }}, Stream "
    "{{ stream }}, AccelForge {{ accelforge }}, SCALE-Sim {{ scalesim }}; median {{ median }}), {{ worst }} at worst; "
    "{{ less }} take less than is claimed.",
    about=prose(__file__),
    points=points,
    tables=(tools, networks, side_by_side, layers, refusals),
    figures=(
        Figure("layers", "layers on chips", lambda rows: len(_every(rows)), "{:,.0f}"),
        Figure("mean", "RTL from claim, either way, mean", lambda rows: _of(mean, rows), "{:.1f} %"),
        Figure("median", "the same, median", lambda rows: _of(median, rows), "{:.1f} %"),
        Figure("worst", "the same, worst", lambda rows: _of(max, rows), "{:.1f} %"),
        *(Figure(tool, f"the same, mean of {tool}", _mean_of(tool), "{:.1f} %") for tool in FILES),
        Figure(
            "less",
            "layers that take less than is claimed",
            lambda rows: sum(percent < 0 for percent in _beyond(rows)),
            "{:,.0f}",
        ),
        Figure("refused", "mappings that the chip cannot run", lambda rows: len(refusals(rows).rows), "{:,.0f}"),
        Figure(
            "wrong",
            "bytes that differ",
            lambda rows: sum(row.wrong for _, row, _ in _every(rows)),
            "{:,.0f}",
            Bar("exactly", 0),
        ),
    ),
    checks=wrong,
)
