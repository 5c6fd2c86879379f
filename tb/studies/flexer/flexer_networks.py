"""Whole networks by `hybrid` beside `loop_order` on the RTL, where DRAM is narrow: architectures 1, 3, 5 and 7 of the
paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count, mean_ratio, ratio, share, table
from ..points.network_runs import STORE, NetworkCycles, NetworkRun, accuracy
from .floors import floor_cycles

#: Architectures with the narrow DRAM.
MEMORY_BOUND = ("arch1", "arch3", "arch5", "arch7")
NETWORKS = ("squeezenet", "resnet50", "yolov2")
#: The network of the quick study.
QUICK = "resnet8"
#: Ours, then the strong baseline: as it is, and without comparing whole schedules.
HYBRID, REFINED, PLAIN = "hybrid", "loop_order", "loop_order:refine=0"
SCHEDULERS = (HYBRID, REFINED, PLAIN)
#: How much faster `hybrid` is to be than `loop_order`, in the geometric mean.
BAR = 1.05


def points(full: bool) -> list[NetworkRun]:
    """Quick: a small network on one architecture."""
    networks, archs = (NETWORKS, MEMORY_BOUND) if full else ((QUICK,), MEMORY_BOUND[2:3])
    return [NetworkRun(arch, network, each, True) for network in networks for arch in archs for each in SCHEDULERS]


class _Line:
    """A network on an architecture by all schedulers, as far as there are rows."""

    def __init__(self, rows: Rows, arch: str, network: str) -> None:
        self.arch, self.network = arch, network
        points = {each: NetworkRun(arch, network, each, True) for each in SCHEDULERS}
        self.rows: Mapping[str, NetworkCycles] = {each: rows[point] for each, point in points.items() if point in rows}
        self.older = any(point in rows.older for point in points.values())

    def cycles(self, scheduler: str) -> int | None:
        """On the RTL."""
        return self.rows[scheduler].rtl_cycles if scheduler in self.rows else None


def _lines(rows: Rows) -> list[_Line]:
    pairs = dict.fromkeys((point.network, point.chip) for point in rows if isinstance(point, NetworkRun))
    large = [(network, arch) for network, arch in pairs if network in NETWORKS]
    return [_Line(rows, arch, network) for network, arch in large or pairs]


def cycles(rows: Rows) -> Table:
    """RTL cycles of each network on each architecture."""
    columns: dict[str, Callable[[_Line], str]] = {
        "chip": lambda line: line.arch,
        "network": lambda line: line.network + "*" * line.older,
        **{f"{each}>": lambda line, each=each: count(line.cycles(each)) for each in SCHEDULERS},
        **{
            f"hybrid/{each}>": lambda line, each=each: ratio(line.cycles(each), line.cycles(HYBRID))
            for each in SCHEDULERS[1:]
        },
        "at least>": lambda line: count(floor_cycles(line.arch, line.network)),
        "model>": lambda line: share(max((row.error for row in line.rows.values()), key=abs), 2, "+"),
        "bytes compared>": lambda line: count(sum(row.compared for row in line.rows.values())),
        "wrong>": lambda line: count(sum(row.wrong for row in line.rows.values())),
    }
    return table("RTL cycles", columns, _lines(rows))


def _mean(baseline: str) -> Callable[[Rows], float | None]:
    return lambda rows: mean_ratio((line.cycles(baseline), line.cycles(HYBRID)) for line in _lines(rows))


def behind(rows: Rows) -> list[str]:
    """Networks that `loop_order` has faster."""
    return [
        f"{line.network} on {line.arch}: loop_order is faster than the hybrid"
        for line in _lines(rows)
        for base in SCHEDULERS[1:]
        if (theirs := line.cycles(base)) and (ours := line.cycles(HYBRID)) and theirs < ours
    ]


STUDY = Study(
    name="flexer_networks",
    title="Networks out of order and in loop nests",
    question="Are whole networks faster by `hybrid`, which may choose out-of-order schedules, than by loop nests?",
    answer="`hybrid` is {{ refined }} times as fast as `loop_order` in the geometric mean.",
    about=prose(__file__),
    points=points,
    tables=(cycles,),
    figures=(
        Figure("refined", "times as fast as loop_order", _mean(REFINED), bar=Bar("at least", BAR)),
        Figure("plain", "times as fast as loop_order:refine=0", _mean(PLAIN)),
        *accuracy(),
    ),
    checks=behind,
    paper="flexer",
    store=STORE,
)
