"""Out-of-order schedules against static ones: figures 8 to 11 of the Flexer paper, in the timeline model.

H. Min, J. Kwon, B. Egger, "Flexer: Out-of-Order Scheduling for Multi-NPUs" (CGO 2023). `flexer_rtl` measures the same
on the RTL, `flexer_policies` has figure 12.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from meshloom.sched.papers.flexer.judge import PLAYED_CYCLES
from meshloom.sched.papers.flexer.policy import Policy

from ..engine.point import Point
from ..engine.rows import Rows
from ..engine.study import Figure, Study, prose
from ..engine.tables import DASH, Table, count, ratio
from ..engine.values import with_settings
from . import plots, reuse
from .layers import (
    ARCHS,
    EVERY,
    QUICK,
    Cost,
    LayerCost,
    LayerPoint,
    Pair,
    PolicyPoint,
    complete,
    grouped,
    layer_costs,
    points_of,
    ratio_of,
    total,
)
from .reuse import KINDS, SHARED, Reuse

#: The architecture of Figure 9, the layers whose transfers it weighs higher, and by what.
FIGURE_9, WEIGHED = "arch5", ("vgg16/conv3_1", "vgg16/conv3_2")
TRANSFERS = Policy(by_cycles=1.0, by_words=3.0)
#: Who is compared with whom.
PAIRS: tuple[Pair, ...] = (("flexer", "paper_static"), ("flexer", "loop_order"), ("hybrid", "loop_order"))
#: The paper's best, by whether it is of a layer, and of words.
_PAPER = {(False, False): "1.67", (False, True): "1.26", (True, False): "2.17", (True, True): "1.53"}
PLOT = "flexer.svg"
_SHOWN = ("paper_static", "loop_order", "flexer", "hybrid")


def points(full: bool) -> list[Point]:
    """Quick: a third of SqueezeNet on one architecture, and of what Figures 9 (b), 10 and 11 need one layer."""
    layers = points_of(ARCHS) if full else points_of([FIGURE_9], [QUICK], EVERY)
    weighed = [LayerPoint(FIGURE_9, layer) for layer in WEIGHED]
    return [*layers, *weighed, *(PolicyPoint(FIGURE_9, layer, TRANSFERS) for layer in WEIGHED), *reuse.points(full)]


class _Network:
    """A network, layer after layer, on an architecture."""

    def __init__(self, layers: Sequence[LayerCost]) -> None:
        self.arch, self.network = layers[0].arch, layers[0].network
        self.costs: dict[str, Cost] = {name: total(layers, name) for name in _SHOWN}

    def ratio(self, pair: Pair, words: bool) -> float:
        """See `LayerCost`."""
        return ratio_of(self.costs, pair, words)


def _whole(rows: Rows) -> list[LayerCost]:
    return complete(layer_costs(rows))


def _networks(rows: Rows) -> list[_Network]:
    archs = grouped(_whole(rows), lambda one: one.arch).values()
    return [_Network(layers) for some in archs for layers in grouped(some, lambda one: one.network).values()]


#: Ratios that tables show, and the names of their columns.
_RATIOS = [(pair, words) for pair in PAIRS for words in (False, True)]
_TITLES = tuple("transfers>" if words else f"{pair[0]}/{pair[1]}>" for pair, words in _RATIOS)


def end_to_end(rows: Rows) -> Table:
    """Figure 8: whole networks, layer after layer."""
    cells = [
        (
            one.arch,
            one.network,
            *(count(one.costs[name][0]) for name in _SHOWN),
            *(ratio(one.ratio(pair, words), digits=2) for pair, words in _RATIOS),
        )
        for one in _networks(rows)
    ]
    columns = ("arch", "network", *(f"{name}>" for name in _SHOWN), *_TITLES)
    return Table("End to end (Figure 8): cycles, and speed-up / transfer reduction", columns, cells)


def extremes(rows: Rows) -> Table:
    """Best and worst layers of each architecture."""

    def ends(layers: Sequence[LayerCost], pair: Pair, words: bool) -> tuple[str, str]:
        ordered = sorted(layers, key=lambda one: one.ratio(pair, words))
        best, worst = (f"{one.ratio(pair, words):.2f} {one.layer}" for one in (ordered[-1], ordered[0]))
        return best, worst

    cells = [
        (arch, " / ".join(pair), *ends(layers, pair, False), *ends(layers, pair, True))
        for arch, layers in grouped(_whole(rows), lambda one: one.arch).items()
        for pair in PAIRS
    ]
    columns = "arch", "who / over whom", "speed-up, best", "worst", "transfer reduction, best", "worst"
    return Table("Single layers: the best and the worst", columns, cells)


def _per_layer(network: str) -> Callable[[Rows], Table]:
    """Figure 9 (a): one network on one architecture, layer by layer."""

    def view(rows: Rows) -> Table:
        cells = [
            (
                one.layer,
                *(count(one.costs[name][0]) for name in _SHOWN),
                one.best,
                *(f"{one.ratio(pair, words):.2f}" for pair, words in _RATIOS[:-1]),
            )
            for one in layer_costs(rows)
            if (one.network, one.arch) == (network, FIGURE_9)
        ]
        title = f"{network} on {FIGURE_9} (Figure 9 (a)): cycles, and speed-up / transfer reduction"
        return Table(title, ("layer", *(f"{name}>" for name in _SHOWN), "hybrid is", *_TITLES[:-1]), cells)

    return view


def weighed(rows: Rows) -> Table:
    """Figure 9 (b): transfers count for more."""

    def over(one: Cost, other: Cost) -> str:
        return f"{one[0] / other[0]:.2f} / {one[1] / other[1]:.2f}"

    cells = [
        (layer, over(costs["paper_static"], costs["flexer"]), over(costs["paper_static"], rows[heavy]))
        for layer in WEIGHED
        if (point := LayerPoint(FIGURE_9, layer)) in rows and (heavy := PolicyPoint(FIGURE_9, layer, TRANSFERS)) in rows
        for costs in (rows[point].costs,)
    ]
    title = f"Transfers weighed higher (Figure 9 (b), {FIGURE_9}): speed-up / transfer reduction over paper_static"
    return Table(title, ("layer", "cycles x words", "cycles x words ** 3"), cells)


def reloads(rows: Rows) -> Table:
    """Figure 10."""

    def loads(one: Reuse, kind: str) -> str:
        return "; ".join(f"{tiles} x {times}" for times, tiles in one.loads[kind].items()) or DASH

    cells = [
        (*key, *(count(one.words.get(kind, 0)) for kind in KINDS), *(loads(one, kind) for kind in KINDS[:3]))
        for key, one in reuse.reuses(rows).items()
    ]
    title = f"Words moved and how often each tile is moved (Figure 10, {reuse.ARCH}): tiles x times"
    return Table(title, ("layer", "schedule", *(f"{kind}>" for kind in KINDS), *KINDS[:3]), cells)


def sharing(rows: Rows) -> Table:
    """Figure 11."""
    cells = [(*key, *(count(one.shared.get(kind, 0)) for kind in SHARED)) for key, one in reuse.reuses(rows).items()]
    title = f"Sets of operations by what their cores share (Figure 11, {reuse.ARCH})"
    return Table(title, ("layer", "schedule", *(f"{kind}>" for kind in SHARED)), cells)


def behind(rows: Rows) -> list[str]:
    """Layers on which the hybrid is worse than another. (Its bar for networks is judged on the RTL.)"""
    return [
        f"{one.layer} on {one.arch}: the hybrid takes {one.costs['hybrid'][0]:,} cycles, not {least:,}"
        for one in layer_costs(rows)
        if one.costs["hybrid"][0] > (least := min(cycles for cycles, _ in one.costs.values()))
    ]


def _most(pair: Pair, layers: bool, words: bool) -> Callable[[Rows], float | None]:
    """The most of a ratio of all layers, or of all networks."""

    def value(rows: Rows) -> float | None:
        return max((one.ratio(pair, words) for one in (_whole if layers else _networks)(rows)), default=None)

    return value


def _ratio_figures() -> list[Figure]:
    figures: list[Figure] = []
    for pair in PAIRS:
        short = f"{pair[0]}_{'static' if pair[1] == 'paper_static' else 'loops'}"
        for (layers, words), paper in _PAPER.items():
            name = f"{'layer' if layers else 'net'}{'_words' * words}_{short}"
            of, what = "a layer" if layers else "a network", "times less moved" if words else "times as fast"
            theirs = paper if pair == PAIRS[0] else ""
            text = f"{of} by {pair[0]} over {pair[1]}: {what}, at most"
            figures.append(Figure(name, text, _most(pair, layers, words), "{:.2f}", paper=theirs))
    return figures


def _share(name: str) -> Callable[[Rows], float | None]:
    """Of all layers, those whose schedule the hybrid takes from somebody, in percent."""

    def value(rows: Rows) -> float | None:
        layers = _whole(rows)
        return 100 * sum(one.best == name for one in layers) / len(layers) if layers else None

    return value


def _draw(rows: Rows, path: Path) -> None:
    if whole := _whole(rows):
        plots.draw(whole, reuse.reuses(rows), path)


STUDY = Study(
    name="flexer",
    title="Out-of-order schedules",
    question="Are layers and networks faster, and do they move less, out of order than in static order?",
    answer="A network is at most {{ net_flexer_static }} times as fast by `flexer` as by a static baseline of the same "
    "kind (the paper: 1.67), a layer {{ layer_flexer_static }} times (2.17); over `loop_order` these are "
    "{{ net_flexer_loops }} and {{ layer_flexer_loops }}.",
    about=with_settings(prose(__file__), played=PLAYED_CYCLES),
    points=points,
    tables=(end_to_end, extremes, _per_layer("vgg16"), _per_layer("resnet50"), weighed, reloads, sharing),
    figures=(
        *_ratio_figures(),
        *(
            Figure(f"share_{name}", f"layers whose hybrid is {name}", _share(name), "{:.0f} %")
            for name in ("loop_order", "nest", "paper_static", "flexer")
        ),
    ),
    checks=behind,
    pictures={PLOT: _draw},
    paper="flexer",
)
