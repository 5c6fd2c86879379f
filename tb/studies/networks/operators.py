"""ONNX's own backend node tests of all operators that float files may have, quantised and run on a small chip's RTL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from random import Random
from typing import Any, ClassVar

from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, table
from ..points.runs import chip_of, gateware
from .operator_cases import CHIP, HOW, LEAST_DB, Outcome, cases, outcome

#: What the cases of the quick study are drawn with, one of each operator.
SEED = 41


@dataclass(frozen=True)
class NodeTestPoint(Point):
    """A node test of ONNX by its name, and its operator."""

    operator: str
    test: str
    row: ClassVar[Any] = Outcome

    @property
    def name(self) -> str:
        return self.test

    def inputs(self) -> Inputs:
        tools = " ".join(f"{name} {metadata.version(name)}" for name in ("onnx", "onnxruntime"))
        more = (("chip", chip_of(CHIP).digest), ("gateware", gateware()), ("tools", tools))
        return Inputs(("tb.studies.networks.operator_cases",), more)

    def measure(self, report: Report) -> Outcome:
        report("quantising and running")
        return outcome(next(case for case in cases() if case.name == self.test))


@cache
def _every() -> tuple[NodeTestPoint, ...]:
    return tuple(NodeTestPoint(case.operator, case.name) for case in cases())


def points(full: bool) -> Sequence[NodeTestPoint]:
    """Quick: one test of each operator, drawn with `SEED`."""
    if full:
        return _every()
    random = Random(SEED)
    by_operator: dict[str, list[NodeTestPoint]] = {}
    for point in _every():
        by_operator.setdefault(point.operator, []).append(point)
    return [random.choice(by_operator[operator]) for operator in sorted(by_operator)]


def operators(rows: Rows) -> Table:
    """What each operator becomes, and what came of its tests."""
    some = {
        operator: [row for point, row in rows.pairs(NodeTestPoint) if point.operator == operator] for operator in HOW
    }

    def worst(operator: str) -> str:
        noise = [row.snr_db for row in some[operator] if not row.refused and row.snr_db is not None]
        return f"{min(noise):.0f} dB" if noise else ""

    columns: dict[str, Callable[[str], str]] = {
        "operator": lambda name: name,
        "becomes": lambda name: HOW[name][0],
        "limits": lambda name: HOW[name][1],
        "ran>": lambda name: str(sum(not row.refused for row in some[name])),
        "nothing to compute>": lambda name: str(sum(row.nothing for row in some[name])),
        "refused>": lambda name: str(sum(bool(row.refused) and not row.nothing for row in some[name])),
        "wrong>": lambda name: str(sum(bool(row.wrong) for row in some[name])),
        "worst SNR>": worst,
    }
    return table("Operators of float files", columns, sorted(HOW))


def refusals(rows: Rows) -> Table:
    """Why cases are refused: operator, reason, how many, the first."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for point, row in rows.pairs(NodeTestPoint):
        if row.refused and not row.nothing:
            reason = row.refused.partition("): ")[2] or row.refused.partition(": ")[2] or row.refused
            reasons.setdefault((point.operator, reason), []).append(point.test)
    columns: dict[str, Callable[[tuple[tuple[str, str], list[str]]], str]] = {
        "operator": lambda each: each[0][0],
        "why": lambda each: each[0][1],
        "cases>": lambda each: str(len(each[1])),
        "first": lambda each: each[1][0],
    }
    return table("Why cases are refused", columns, reasons.items())


def _counted(which: Callable[[Outcome], bool]) -> Callable[[Rows], float]:
    return lambda rows: sum(which(row) for row in rows.values())


STUDY = Study(
    name="operators",
    title="Operators of ONNX files",
    question="Which operators of float files run, and are their results right?",
    answer="Of {{ cases }} node tests {{ ran }} ran, {{ nothing }} have nothing to compute, {{ refused }} were refused "
    "and {{ wrong }} were wrong.",
    about=prose(__file__),
    points=points,
    tables=(operators, refusals),
    figures=(
        Figure("cases", "node tests", len, "{:,.0f}"),
        Figure("ran", "ran", _counted(lambda row: not row.refused and not row.wrong), "{:,.0f}"),
        Figure("nothing", "with nothing to compute", _counted(lambda row: row.nothing), "{:,.0f}"),
        Figure("refused", "refused", _counted(lambda row: bool(row.refused) and not row.nothing), "{:,.0f}"),
        Figure("wrong", "wrong", _counted(lambda row: bool(row.wrong)), "{:,.0f}", Bar("exactly", 0)),
        Figure(
            "least",
            "least signal-to-noise ratio",
            lambda rows: min(
                (row.snr_db for row in rows.values() if not row.refused and row.snr_db is not None), default=None
            ),
            "{:.1f} dB",
            Bar("at least", LEAST_DB),
        ),
    ),
    checks=lambda rows: [f"{point.test}: {row.wrong}" for point, row in rows.pairs(NodeTestPoint) if row.wrong],
)
