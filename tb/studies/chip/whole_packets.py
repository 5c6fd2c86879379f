"""Slow DRAM channels that send packets once they have read them whole: cycles on the RTL with and without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import geometric_mean

from ...results.schema import Row
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count, ratio, table
from ..points.runs import Changes, RunPoint, wrong_with

_SMALL = ("gemm:64x256x128", "conv:16x16x32-32,k3,p1", "conv:28x28x32-64,k1")
_LAYERS = ("resnet50/conv3_2_1", "resnet50/conv4_1_shortcut", "resnet50/conv5_1_2")
#: Four channels around the cores of quad8.
_FOUR = (("floorplan", ("dram core core dram", "host core core dram", "spm  spm  dram .")),)
_WHOLE = (("dram.whole_packets", True),)
#: Chips, what differs in them, and what runs there; the first two are quick.
CASES: tuple[tuple[str, Changes, Sequence[str]], ...] = (
    ("quad8", (), _SMALL),
    ("quad8", (("dram.bytes_per_cycle", 4),), _SMALL),
    ("quad8", (("dram.bytes_per_cycle", 4), *_FOUR), _SMALL),
    ("quad8", (("dram.bytes_per_cycle", 2), *_FOUR), _SMALL),
    ("arch1", (), _LAYERS),
    ("arch5", (), _LAYERS),
)


def points(full: bool) -> list[RunPoint]:
    """Every case without and with whole packets."""
    return [
        RunPoint(chip, workload, changes=changes + whole)
        for chip, changes, workloads in CASES[: None if full else 2]
        for workload in workloads
        for whole in ((), _WHOLE)
    ]


class _Pair:
    """A layer as words come, and in whole packets."""

    def __init__(self, point: RunPoint, words: Row, packets: Row) -> None:
        self.point, self.words, self.packets = point, words, packets
        chip = point.config
        self.channels, self.rate = len(chip.drams), chip.dram.bytes_per_cycle / chip.lanes
        self.gain = words.rtl_cycles / packets.rtl_cycles


def _pairs(rows: Rows, slow: bool | None = None) -> list[_Pair]:
    pairs: list[_Pair] = []
    for point in rows.points:
        assert isinstance(point, RunPoint)
        other = replace(point, changes=point.changes + _WHOLE)
        if point in rows and other in rows:
            pairs.append(_Pair(point, rows[point], rows[other]))
    return [pair for pair in pairs if slow is None or (pair.rate < 1) == slow]


def cycles(rows: Rows) -> Table:
    """Every layer both ways."""
    columns: dict[str, Callable[[_Pair], str]] = {
        "chip": lambda pair: pair.point.chip,
        "channels x words a cycle": lambda pair: f"{pair.channels} x {pair.rate:.2f}",
        "layer": lambda pair: pair.point.workload,
        "cycles as words come>": lambda pair: count(pair.words.rtl_cycles),
        "in whole packets>": lambda pair: count(pair.packets.rtl_cycles),
        "times as fast>": lambda pair: ratio(pair.gain),
        "bytes>": lambda pair: count(pair.words.bytes_checked + pair.packets.bytes_checked),
        "wrong>": lambda pair: count(pair.words.mismatches + pair.packets.mismatches),
    }
    return table("Cycles on the RTL", columns, _pairs(rows))


def by_channels(rows: Rows) -> Table:
    """The gain where a channel is slower than a word a cycle, and where it is not."""
    some = [
        (name, [pair.gain for pair in _pairs(rows, slow)])
        for name, slow in (("less than a word a cycle", True), ("a word a cycle", False))
    ]
    columns: dict[str, Callable[[tuple[str, list[float]]], str]] = {
        "channels with": lambda each: each[0],
        "runs>": lambda each: str(len(each[1])),
        "mean>": lambda each: ratio(geometric_mean(each[1])),
        "worst>": lambda each: ratio(min(each[1])),
        "best>": lambda each: ratio(max(each[1])),
    }
    return table("Times as fast, by channels", columns, [each for each in some if each[1]])


def _mean(slow: bool) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        gains = [pair.gain for pair in _pairs(rows, slow)]
        return geometric_mean(gains) if gains else None

    return value


def _wrong(rows: Rows) -> list[str]:
    return [text for point, row in rows.items() if isinstance(point, RunPoint) for text in wrong_with(point, row, True)]


STUDY = Study(
    name="whole_packets",
    title="DRAM channels that send whole packets",
    question="Should a slow DRAM channel send a packet as its words come, or once it has read it whole?",
    answer="Whole packets make layers {{ slow }} times as fast where a channel has less than a word a cycle, and "
    "{{ fast }} times where it has one.",
    about=prose(__file__),
    points=points,
    tables=(cycles, by_channels),
    figures=(
        Figure("slow", "times as fast, channels of less than a word a cycle", _mean(True)),
        Figure("fast", "times as fast, channels of a word a cycle", _mean(False)),
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
