"""Which assumption yields which part of Flexer's speed-up: what the paper leaves open, one by one and together.

H. Min, J. Kwon, B. Egger, "Flexer: Out-of-Order Scheduling for Multi-NPUs" (CGO 2023), Figures 1, 8 and 9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import log
from pathlib import Path

from meshloom.sched.papers.flexer.policy import PAPER

from ..engine.point import Point
from ..engine.rows import Rows
from ..engine.study import Figure, Study, prose
from ..engine.tables import Table, count, ratio
from . import plots
from .assumed import (
    ARCH,
    ASSUMPTIONS,
    EVERYWHERE,
    FIGURE_1,
    WEIGHED,
    AssumedNetwork,
    AssumedRun,
    Gain,
    NetworkGain,
    Tilings,
    WeighedNetwork,
    sampled,
)
from .layers import ARCHS, NETWORKS

#: The network on which every assumption is tried, and layers that run on the RTL under each.
NETWORK = "vgg16"
ON_RTL = ("vgg16/conv3_1", "vgg16/conv4_2", "resnet50/conv3_1_1", "squeezenet/fire3_expand1")
#: Layers of Figure 1, and tilings that the quick study shows of the first.
LAYERS, FEW = ("resnet50/conv3_1_1", "vgg16/conv4_2"), 40
#: Of so many convolutions of a network the quick study has one.
EVERY = 8
PLOT = "flexer_assumptions.svg"
#: The paper's best: of a network, of a layer.
PAPER_NETWORK, PAPER_LAYER = 1.67, 2.17
_NAMES = tuple(ASSUMPTIONS)
#: What the quick study assumes.
_QUICK = _NAMES[0], _NAMES[2], _NAMES[-1]


def points(full: bool) -> list[Point]:
    """Quick: three assumptions, SqueezeNet, a part of the convolutions, two layers on the RTL, a few tilings of one
    layer."""
    every = 1 if full else EVERY
    names, networks, archs = (_NAMES, NETWORKS, ARCHS) if full else (_QUICK, ("squeezenet",), (ARCH,))
    runs, assumed = (ON_RTL, _NAMES) if full else (ON_RTL[2:], _QUICK[:2])
    return [
        *(AssumedNetwork(NETWORK, ARCH, name, True, every) for name in names),
        *(
            AssumedNetwork(network, arch, one.name, every=every)
            for arch in archs
            for network in networks
            for one in EVERYWHERE
        ),
        *(AssumedRun(layer, name) for name in assumed for layer in runs),
        *(WeighedNetwork(network, every) for network in networks),
        *([Tilings(layer) for layer in LAYERS] if full else [Tilings(LAYERS[0], shown=FEW)]),
    ]


def _cells(gain: Gain) -> tuple[str, str, str]:
    return f"{gain.network:.2f}", f"{gain.layer:.2f}", f"{gain.words:.2f}"


def _every(rows: Rows, points: Iterable[AssumedNetwork | WeighedNetwork]) -> int:
    """Of how many convolutions the rows are to have one: 1 if there is one of these points, whole."""
    return 1 if any(point in rows for point in points) else EVERY


def _one_by_one(rows: Rows) -> dict[str, tuple[NetworkGain, Gain]]:
    """By assumption, what it comes to on one network, and of that the timeline model's."""
    points = {name: AssumedNetwork(NETWORK, ARCH, name, timeline=True) for name in _NAMES}
    every = _every(rows, points.values())
    gains = {name: rows.get(replace(point, every=every)) for name, point in points.items()}
    return {name: (gain, gain.timeline) for name, gain in gains.items() if gain and gain.timeline}


def _everywhere(rows: Rows) -> Iterator[tuple[str, str, list[Gain]]]:
    """Of each network on each architecture, what those assumptions come to that are tried everywhere."""
    for arch in ARCHS:
        for network in NETWORKS:
            points = [AssumedNetwork(network, arch, one.name) for one in EVERYWHERE]
            every = _every(rows, points)
            gains = [rows.get(replace(point, every=every)) for point in points]
            if all(gains):
                yield arch, sampled(network, every), [gain.estimate for gain in gains if gain]


def one_by_one(rows: Rows) -> Table:
    """Every assumption, layer by layer."""
    cells = [(name, *_cells(gain.estimate), *_cells(timeline)) for name, (gain, timeline) in _one_by_one(rows).items()]
    columns = ("estimate: network>", "best layer>", "words>", "timeline: network>", "best layer>", "words>")
    whole = [AssumedNetwork(NETWORK, ARCH, name, timeline=True) for name in _NAMES]
    title = f"{sampled(NETWORK, _every(rows, whole))} on {ARCH}: convolutions, speed-up of flexer over paper_static"
    return Table(title, ("assumed", *columns), cells)


def everywhere(rows: Rows) -> Table:
    """The assumptions that explain most, on everything, as the search estimates them."""
    cells = [
        (arch, network, *(cell for gain in gains for cell in _cells(gain)))
        for arch, network, gains in _everywhere(rows)
    ]
    columns = [f"{one.width} B: {what}" for one in EVERYWHERE for what in ("network>", "best layer>", "words>")]
    return Table("Static does not overlap: all networks, estimated", ("arch", "network", *columns), cells)


def on_rtl(rows: Rows) -> Table:
    """Layers on the RTL under each assumption."""
    cells: list[tuple[str, ...]] = []
    for name in _NAMES:
        runs = {layer: rows.get(AssumedRun(layer, name)) for layer in ON_RTL}
        some = [run for run in runs.values() if run is not None]
        if some:
            speedups = (ratio(run.speedup if run else None, digits=2) for run in runs.values())
            compared, error = sum(run.compared for run in some), max(run.error for run in some)
            cells.append((name, *speedups, count(compared), f"{error:.2f} %"))
    title = f"On the RTL of {ARCH} and its wide kin: speed-up of flexer over paper_static"
    return Table(title, ("assumed", *(f"{name}>" for name in ON_RTL), "bytes equal>", "worst model error>"), cells)


def weighed(rows: Rows) -> Table:
    """Figure 9 (c): networks when words count for more."""
    cells = [
        (sampled(network, every), *(f"{value:.2f}" for name in ("flexer", "weighed") for value in gain[name]))
        for network in NETWORKS
        for every in (_every(rows, [WeighedNetwork(network)]),)
        if (gain := rows.get(WeighedNetwork(network, every))) is not None
    ]
    columns = ("network", "cycles x words: speed-up>", "words>", f"cycles x words^{WEIGHED:.0f}: speed-up>", "words>")
    return Table(f"End to end on {ARCH} when words count for more (Figure 9 (c)): over paper_static", columns, cells)


def _tilings(rows: Rows) -> list[Tilings]:
    """Of each layer those points that show most tilings."""
    some = sorted((point for point in rows if isinstance(point, Tilings)), key=lambda point: point.shown)
    return list({point.layer: point for point in some}.values())


def tilings(rows: Rows) -> Table:
    """Figure 1 in numbers."""
    cells: list[tuple[str, ...]] = []
    for point in _tilings(rows):
        for label, spots in rows[point].spots.items():
            best, quickest = min(spots, key=lambda spot: PAPER.metric(*spot)), min(spots)
            numbers = (count(each[what]) for each in (best, quickest) for what in (0, 1))
            cells.append((point.layer, label, f"{len(spots)} of {rows[point].every:,}", *numbers))
    columns = ("tilings>", "best by cycles x words: cycles>", "words>", "quickest: cycles>", "words>")
    title = f"Tilings into 1,000 operations at most on {FIGURE_1} (Figure 1), estimated"
    return Table(title, ("layer", "schedule", *columns), cells)


def remarks(rows: Rows) -> list[str]:
    """Which assumptions yield most, and what is nearest to the paper."""
    texts: list[str] = []
    gains = {name: timeline for name, (_, timeline) in _one_by_one(rows).items()}
    if gains:
        most = max(gains, key=lambda name: gains[name].network)
        nearest = min(gains, key=lambda name: _distance(gains[name]))
        texts.append(
            f"What yields most for {NETWORK} on {ARCH}: {most} ({gains[most].network:.2f}). Nearest to the paper's "
            f"pair, {PAPER_NETWORK} and {PAPER_LAYER}: {nearest}, {gains[nearest].network:.2f} and "
            f"{gains[nearest].layer:.2f}."
        )
    if some := list(_everywhere(rows)):
        best = max((max(gain.network for gain in gains), arch, network) for arch, network, gains in some)
        layer = max((max(gain.layer for gain in gains), arch, network) for arch, network, gains in some)
        texts.append(
            "A baseline whose transfers and computing take turns, on all architectures: at most "
            f"{best[0]:.2f} for a network ({best[1]}, {best[2]}), {layer[0]:.2f} for a layer ({layer[1]}, {layer[2]})."
        )
    return texts


def _distance(gain: Gain) -> float:
    """How far a network and its best layer are from the paper's."""
    return abs(log(gain.network / PAPER_NETWORK)) + abs(log(gain.layer / PAPER_LAYER))


def _gain(name: str, layer: bool = False) -> Callable[[Rows], float | None]:
    """What an assumption yields in the timeline model."""

    def value(rows: Rows) -> float | None:
        gain = _one_by_one(rows).get(name)
        return (gain[1].layer if layer else gain[1].network) if gain else None

    return value


def _most(layer: bool) -> Callable[[Rows], float | None]:
    """The most that any network has where static schedules do not overlap."""

    def value(rows: Rows) -> float | None:
        gains = [gain for _, _, some in _everywhere(rows) for gain in some]
        return max((gain.layer if layer else gain.network for gain in gains), default=None)

    return value


def _run(width: int) -> Callable[[Rows], float | None]:
    """The most on the RTL where static schedules do not overlap."""
    name = next(one.name for one in EVERYWHERE if one.width == width)
    return lambda rows: max(
        (run.speedup for layer in ON_RTL if (run := rows.get(AssumedRun(layer, name)))), default=None
    )


def _draw(rows: Rows, path: Path) -> None:
    if some := _tilings(rows):
        plots.draw_tilings({point.layer: rows[point].spots for point in some}, FIGURE_1, path)


STUDY = Study(
    name="flexer_assumptions",
    title="Flexer's assumptions",
    question="Which assumption about the static baseline yields the paper's speed-up?",
    answer="With the same assumptions for both, VGG-16 on arch5 is {{ alike }} times as fast by `flexer`; if the "
    "baseline alone cannot transfer while it computes, {{ apart }} times, and a layer {{ apart_layer }} times.",
    about=prose(__file__),
    points=points,
    tables=(one_by_one, everywhere, on_rtl, weighed, tilings),
    figures=(
        Figure("alike", "VGG-16 on arch5, both overlap: times as fast", _gain(_NAMES[0]), "{:.2f}", paper="1.67"),
        Figure("apart", "static does not overlap: times as fast", _gain(_NAMES[2]), "{:.2f}", paper="1.67"),
        Figure("apart_layer", "the same, best layer", _gain(_NAMES[2], layer=True), "{:.2f}", paper="2.17"),
        Figure("worst", "everything against the baseline: times as fast", _gain(_NAMES[-1]), "{:.2f}"),
        Figure("rtl", "static does not overlap, a layer on the RTL, at most", _run(1), "{:.2f}", paper="2.17"),
        Figure("rtl_wide", "the same with elements of two bytes", _run(2), "{:.2f}", paper="2.17"),
        Figure("most", "static does not overlap, a network on any chip, at most", _most(layer=False), "{:.2f}"),
        Figure("most_layer", "static does not overlap, a layer on any chip, at most", _most(layer=True), "{:.2f}"),
    ),
    checks=lambda rows: [text for point, row in rows.items() if isinstance(point, AssumedRun) for text in row.wrong],
    pictures={PLOT: _draw},
    remarks=remarks,
    paper="flexer",
)
