"""How much slower do layers get when DRAM has half of its bandwidth? Run: meshloom bench slow_dram.py:STUDY"""

from __future__ import annotations

from meshloom.tb.studies.engine.rows import Rows
from meshloom.tb.studies.engine.study import Bar, Figure, Study
from meshloom.tb.studies.engine.tables import Table, count, mean_ratio, ratio, table
from meshloom.tb.studies.points.runs import RunPoint

LAYERS = ("gemm:8x16x8", "gemm:12x4x20", "conv:6x6x4-8,k3,p1", "conv:9x9x4-4,k1")
SLOW = (("dram.bytes_per_cycle", 2),)


def points(full: bool) -> list[RunPoint]:
    """Each layer on the chip as it is, and with the slow DRAM. Quick: the first two layers."""
    layers = LAYERS if full else LAYERS[:2]
    return [RunPoint("tiny", layer, changes=changes) for layer in layers for changes in ((), SLOW)]


def pairs(rows: Rows) -> list[tuple[str, int, int]]:
    """Layer, cycles, cycles with the slow DRAM."""
    both = [(RunPoint("tiny", layer), RunPoint("tiny", layer, changes=SLOW)) for layer in LAYERS]
    return [(a.workload, rows[a].rtl_cycles, rows[b].rtl_cycles) for a, b in both if a in rows and b in rows]


def cycles(rows: Rows) -> Table:
    """A line for each layer."""
    columns = {
        "layer": lambda pair: pair[0],
        "cycles>": lambda pair: count(pair[1]),
        "with a slow DRAM>": lambda pair: count(pair[2]),
        "times as many>": lambda pair: ratio(pair[2], pair[1]),
    }
    return table("Cycles on the RTL", columns, pairs(rows))


def mean(rows: Rows) -> float | None:
    """Times as many cycles, in the geometric mean."""
    return mean_ratio((slow, usual) for _, usual, slow in pairs(rows))


STUDY = Study(
    name="slow_dram",
    title="Layers with half of the bandwidth",
    question="How much slower do layers get when DRAM has half of its bandwidth?",
    answer="They take {{ mean }} times as many cycles.",
    about="Four small layers by `loop_order` on `tiny`, every output byte compared.",
    points=points,
    tables=(cycles,),
    figures=(Figure("mean", "times as many cycles, geometric mean", mean, bar=Bar("at most", 2)),),
)
