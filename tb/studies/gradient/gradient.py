"""Both gradients of the layers of the networks that the paper trains, in every order, on its small and large NPUs.

J. Kim et al., "Improving Data Reuse in NPU On-chip Memory with Interleaved Gradient Order for DNN Training" (MICRO
2023), section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from meshloom.hw.spec.config import OFFSET_BITS

from ..engine.point import Point
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.values import with_settings
from . import gradient_tables as tables
from .gradient_cases import BATCHES, BYTES, EDGE, EDGE_BYTES, EDGE_SWEPT, NETWORKS, SERVERS, Case
from .gradient_forward import ForwardModelled, forward
from .gradient_plot import draw
from .gradient_points import LARGE, ON_RTL, SMALL, PairModelled, PairRow, PairRun, modelled, on_rtl
from .gradient_sums import network_sums

#: Bars: layers on the RTL of each chip; the model's error in percent, the mean and each.
ENOUGH: Mapping[str, int] = {EDGE: 30, "server1": 12, "server2": 4, "server4": 4, "server8": 1}
MEAN_ERROR, WORST_ERROR = 1.0, 3.0
PLOT = "gradient.svg"
#: Networks of the quick study, and its layers on the RTL of the small chip.
QUICK, QUICK_LAYERS = ("ncf", "dlrm"), 3
_WIDTHS = {width: Case("server1", width) for width in BYTES}
_EDGE_WIDTHS = {width: Case(EDGE, width) for width in EDGE_BYTES}
_BATCHES = {batch: Case("server1", None, batch) for batch in BATCHES}


def points(full: bool) -> list[Point]:
    """Layers in the model, then those on the RTL."""
    networks = NETWORKS if full else QUICK
    swept = [network for network in EDGE_SWEPT if network in networks]
    some: list[Point] = _of((Case(chip) for chip in (EDGE, *SERVERS)), networks)
    some += _of((*_WIDTHS.values(), *_BATCHES.values()), networks) + _of(_EDGE_WIDTHS.values(), swept)
    if full:
        return some + [run for chip in ON_RTL for run in on_rtl(chip)]
    layers = list(dict.fromkeys(run.layer for run in on_rtl(EDGE)))[:QUICK_LAYERS]
    return some + [run for run in on_rtl(EDGE) if run.layer in layers]


def _of(cases: Iterable[Case], networks: Sequence[str]) -> list[Point]:
    layers = [(case, layer) for case in cases for network in networks for layer in case.layers(network)]
    return [point(case, layer) for point in (modelled, forward) for case, layer in layers]


def _pairs(rows: Rows, chip: str) -> list[tuple[PairRun, PairRow]]:
    return [(point, row) for point, row in rows.items() if isinstance(point, PairRun) and point.chip == chip]


def wrong(rows: Rows) -> list[str]:
    """Pairs that have trouble on the RTL, or that the model predicts badly."""
    texts: list[str] = []
    for chip in ON_RTL:
        for point, row in _pairs(rows, chip):
            if row.trouble:
                texts.append(f"{point.name}: {row.trouble}")
            if row.rtl_cycles and abs(row.error) > WORST_ERROR:
                texts.append(f"{point.name}: the model is {abs(row.error):.2f} % off")
    return texts


def _left_out(rows: Rows) -> list[str]:
    chips = dict.fromkeys(point.chip for point in rows if isinstance(point, PairModelled))
    layers = [layer for chip in chips for name in NETWORKS for layer in Case(chip).left_out(name)]
    names = ", ".join(f"{layer.name.removeprefix('gradient:')} ({layer.m:,} pixels)" for layer in layers)
    refused = [point.name for point, row in rows.items() if isinstance(point, ForwardModelled) and row.refused]
    texts = [f"Without a forward pass: {', '.join(refused)}."] if refused else []
    return [f"Left out: {names or 'none'}.", *texts] if chips else texts


def _mean(chip: str, way: str, base: str = "plain", step: bool = False) -> Callable[[Rows], float | None]:
    """Percent less than a base, of both gradients or of a whole step, mean over the networks that are measured."""

    def value(rows: Rows) -> float | None:
        sums = [some for name in NETWORKS if (some := network_sums(rows, Case(chip), name)) is not None]
        values = [less for some in sums if (less := some.less(way, base, step)) is not None]
        return sum(values) / len(values) if values and len(values) == len(sums) else None

    return value


def _layers_run(chip: str) -> Callable[[Rows], float | None]:
    """Layers that have run well; None where fewer were to be run than the bar has."""

    def value(rows: Rows) -> float | None:
        if (
            len({point.layer for point in rows.points if isinstance(point, PairRun) and point.chip == chip})
            < ENOUGH[chip]
        ):
            return None
        return len({point.layer for point, row in _pairs(rows, chip) if row.rtl_cycles and not row.trouble})

    return value


def _mean_error(chip: str) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        errors = [abs(row.error) for _, row in _pairs(rows, chip) if row.rtl_cycles]
        return sum(errors) / len(errors) if errors else None

    return value


def _figures() -> list[Figure]:
    figures: list[Figure] = []
    for chip in (EDGE, *SERVERS):
        paper = tables.PAPER.get(chip, {})
        for way in ("and the split", "sequential", "best"):
            figures.append(
                Figure(
                    f"{chip}_{way.replace(' ', '_')}",
                    f"{chip}, `{way}`: less than `plain`, mean of networks",
                    _mean(chip, way),
                    "{:+.1f} %",
                )
            )
            figures.append(
                Figure(
                    f"{chip}_step_{way.replace(' ', '_')}",
                    f"{chip}, `{way}`, with the forward pass: less than `plain`, mean of networks",
                    _mean(chip, way, step=True),
                    "{:+.1f} %",
                    paper=f"{paper[way]:+.1f} %" if way in paper else "",
                )
            )
        figures.append(
            Figure(
                f"{chip}_ahead", f"{chip}, `best`: less than `sequential`, mean of networks",
                _mean(chip, "best", "sequential"), "{:+.1f} %",
            )
        )  # fmt: skip
    for chip, enough in ENOUGH.items():
        bar = Bar("at least", enough)
        figures.append(Figure(f"{chip}_layers", f"{chip}, layers on the RTL", _layers_run(chip), "{:.0f}", bar))
        figures.append(
            Figure(
                f"{chip}_error", f"{chip}, the model's error on the RTL, mean", _mean_error(chip), "{:.3f} %",
                Bar("at most", MEAN_ERROR),
            )
        )  # fmt: skip
    return figures


STUDY = Study(
    name="gradient",
    title="Both gradients of a layer, in every order",
    question="What do interleaved orders of both gradients of a layer bring, beside a strong baseline?",
    answer=f"The paper's techniques take {{{{ {EDGE}_and_the_split }}}} less time than its baseline on `{EDGE}`, and "
    f"{{{{ server1_and_the_split }}}} on `server1` (with the forward pass {{{{ {EDGE}_step_and_the_split }}}} and "
    "{{ server1_step_and_the_split }}); the best order takes "
    f"{{{{ {EDGE}_ahead }}}} and {{{{ server1_ahead }}}} less than the strong baseline.",
    about=with_settings(prose(__file__), words=2**OFFSET_BITS, large=LARGE, small=SMALL),
    points=points,
    tables=(
        tables.memories,
        *(partial(tables.networks, chip=chip) for chip in (EDGE, *SERVERS)),
        partial(tables.longest, chip="server1"),
        partial(tables.sweep, title="Bytes of DRAM a cycle, server1 (figure 15)", name="bytes", cases=_WIDTHS,
                some=NETWORKS, paper=tables.PAPER_BYTES),
        partial(tables.sweep, title=f"Bytes of DRAM a cycle, {EDGE}", name="bytes", cases=_EDGE_WIDTHS,
                some=EDGE_SWEPT, paper={}),
        partial(tables.sweep, title="Examples of a batch, server1 (figure 16)", name="batch", cases=_BATCHES,
                some=NETWORKS, paper=tables.PAPER_BATCH),
        partial(tables.neighbours, chips=SERVERS[1:]),
        tables.on_rtl,
    ),
    figures=_figures(),
    checks=wrong,
    pictures={PLOT: draw},
    remarks=_left_out,
    paper="gradient",
)  # fmt: skip
