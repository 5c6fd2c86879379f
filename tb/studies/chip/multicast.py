"""Routers that copy packets to the tiles that they pass: cycles, bytes of DRAM, flit-hops of networks on the RTL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import geometric_mean

from meshloom.hw.spec.routes import LOCAL

from ...results.schema import Row
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count, table
from ..points.runs import Changes, RunPoint, wrong_with

#: What copies exclude.
_ONE_WAY: Changes = (("noc.data_vcs", 1), ("noc.route_hops", 0))
#: Chips, what differs in them, where their packets can be copied, and the networks; two networks of the first two chips
#: are quick.
CASES: tuple[tuple[str, Changes, tuple[str, ...], tuple[str, ...]], ...] = (
    ("klotski25", (), ("east", "south"), ("ds_cnn", "resnet8", "vww")),
    ("quad16", (), ("east", "north"), ("ds_cnn", "resnet8", "vww", "squeezenet")),
    ("klotski9", (), ("east", "south"), ("ds_cnn", "resnet8", "vww")),
    ("nine8", _ONE_WAY, ("east", "south"), ("ds_cnn", "resnet8")),
)


def points(full: bool) -> list[RunPoint]:
    """Every case without and with copies."""
    return [
        RunPoint(chip, network, changes=changes + copies, links=True)
        for chip, changes, directions, networks in (CASES if full else CASES[:2])
        for network in networks[: None if full else 2]
        for copies in ((), (("noc.multicast", directions),))
    ]


class _Comparison:
    """A network without copies and with them."""

    def __init__(self, point: RunPoint, without: Row, copied: Row) -> None:
        self.point, self.without, self.copied = point, without, copied
        self.cores = len(point.config.cores)

    def share(self, of: Callable[[Row], float]) -> float:
        """What there is with copies, as a share of what there is without."""
        return of(self.copied) / of(self.without)


def cycles_of(row: Row) -> float:
    """Cycles on the RTL."""
    return row.rtl_cycles


def flit_hops(row: Row) -> int:
    """Cycles in which a flit left a router for another one, of all links together."""
    return sum(link.busy for link in row.links if link.port != LOCAL)


def dram_bytes(row: Row) -> int:
    """Bytes that are read from DRAM and written to it."""
    assert row.network is not None
    return row.network.dram_bytes


def _pairs(rows: Rows, many: bool | None = None) -> list[_Comparison]:
    pairs: list[_Comparison] = []
    directions = {chip: directions for chip, _, directions, _ in CASES}
    for point in rows.points:
        assert isinstance(point, RunPoint)
        copied = replace(point, changes=(*point.changes, ("noc.multicast", directions[point.chip])))
        if point in rows and copied in rows:
            pairs.append(_Comparison(point, rows[point], rows[copied]))
    return [pair for pair in pairs if many is None or (pair.cores == 25) == many]


def _less(of: Callable[[Row], float]) -> Callable[[_Comparison], str]:
    return lambda pair: f"{100 * (1 - pair.share(of)):.1f}"


def gains(rows: Rows) -> Table:
    """Every network both ways."""
    columns: dict[str, Callable[[_Comparison], str]] = {
        "chip": lambda pair: pair.point.chip,
        "cores>": lambda pair: str(pair.cores),
        "network": lambda pair: pair.point.workload,
        "cycles>": lambda pair: count(pair.without.rtl_cycles),
        "fewer cycles, %>": _less(cycles_of),
        "DRAM bytes>": lambda pair: count(dram_bytes(pair.without)),
        "fewer bytes, %>": _less(dram_bytes),
        "flit-hops>": lambda pair: count(flit_hops(pair.without)),
        "fewer flit-hops, %>": _less(flit_hops),
        "wrong bytes>": lambda pair: count(pair.without.mismatches + pair.copied.mismatches),
    }
    return table("Networks without and with copies", columns, _pairs(rows))


def _mean(of: Callable[[Row], float], many: bool) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        shares = [pair.share(of) for pair in _pairs(rows, many)]
        return 100 * (1 - geometric_mean(shares)) if shares else None

    return value


def _wrong(rows: Rows) -> list[str]:
    wrong = [
        text for point, row in rows.items() if isinstance(point, RunPoint) for text in wrong_with(point, row, True)
    ]
    longer = [pair for pair in _pairs(rows) if pair.copied.rtl_cycles > pair.without.rtl_cycles]
    return wrong + [f"{pair.point.name}: takes longer with copies" for pair in longer]


STUDY = Study(
    name="multicast",
    title="Routers that copy packets",
    question="What does it bring that routers copy packets to the tiles that they pass?",
    answer="On 25 cores networks take {{ cycles }} fewer cycles, {{ dram }} fewer bytes of DRAM and {{ hops }} fewer "
    "flit-hops; on chips with fewer cores {{ few }} fewer cycles.",
    about=prose(__file__),
    points=points,
    tables=(gains,),
    figures=(
        Figure("cycles", "cycles less, 25 cores, geometric mean", _mean(cycles_of, True), "{:.1f} %"),
        Figure("dram", "bytes of DRAM less, 25 cores, geometric mean", _mean(dram_bytes, True), "{:.1f} %"),
        Figure("hops", "flit-hops less, 25 cores, geometric mean", _mean(flit_hops, True), "{:.1f} %"),
        Figure("few", "cycles less, fewer cores, geometric mean", _mean(cycles_of, False), "{:.1f} %"),
        Figure(
            "off",
            "cycles that the model is off, all runs",
            lambda rows: sum(abs(row.rtl_cycles - row.model_cycles) for row in rows.values()),
            "{:,.0f}",
            Bar("exactly", 0),
        ),
    ),
    checks=_wrong,
)
