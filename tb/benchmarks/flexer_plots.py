"""The pictures of the Flexer benchmarks (SVG): end to end, layer by layer, reloads, sharing; policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from meshloom.sched.papers.flexer.policy import PAPER

from ..report.plots import save_plot
from .flexer_layers import LayerCost, grouped, total
from .flexer_reuse import KINDS, SHARED, Reuse
from .flexer_search import TABLE_2, mean_ratio

#: Cycles and words of a schedule.
Point = tuple[float, int]

_COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple")
_SETTINGS: Any = {"svg.hashsalt": "meshloom", "font.size": 7, "svg.fonttype": "none"}
_PAIRS = (("flexer", "paper_static"), ("flexer", "loop_order"), ("hybrid", "loop_order"))


def _bars(axis: Any, groups: Sequence[str], series: Mapping[str, Sequence[float]], title: str) -> None:
    """Ratios as bars from 1 up or down, side by side, one colour for each series."""
    wide = 0.8 / max(1, len(series))
    for number, (name, values) in enumerate(series.items()):
        at = [index + (number - (len(series) - 1) / 2) * wide for index in range(len(groups))]
        above = [value - 1.0 for value in values]
        axis.bar(at, above, wide, bottom=1.0, label=name, color=_COLOURS[number % len(_COLOURS)])
    axis.axhline(1.0, color="black", linewidth=0.6)
    axis.set_xticks(range(len(groups)), groups, rotation=60, ha="right")
    axis.set_title(title)
    axis.grid(axis="y", alpha=0.3)
    axis.legend(loc="upper right", fontsize=6)


def _end_to_end(axes: Sequence[Any], costs: Sequence[LayerCost]) -> None:
    runs = {
        f"{arch} {network}": layers
        for arch, some in grouped(costs, lambda one: one.arch).items()
        for network, layers in grouped(some, lambda one: one.network).items()
    }
    for axis, index, what in zip(axes, (0, 1), ("speed-up", "transfer reduction"), strict=True):
        series = {
            f"{scheduler} over {baseline}": [
                total(layers, baseline)[index] / total(layers, scheduler)[index] for layers in runs.values()
            ]
            for scheduler, baseline in _PAIRS
        }
        _bars(axis, list(runs), series, f"end to end: {what} (Figure 8)")


def _layers(axes: Sequence[Any], costs: Sequence[LayerCost]) -> None:
    some = [one for one in costs if one.network == "vgg16" and one.arch == "arch5"]
    names = [one.layer.partition("/")[2] for one in some]
    speed = {f"{a} over {b}": [one.speedup(a, b) for one in some] for a, b in _PAIRS}
    saved = {f"{a} over {b}": [one.saving(a, b) for one in some] for a, b in _PAIRS}
    _bars(axes[0], names, speed, "VGG-16 on arch5: speed-up (Figure 9)")
    _bars(axes[1], names, saved, "VGG-16 on arch5: transfer reduction (Figure 9)")


def _stacks(axis: Any, groups: Sequence[str], series: Mapping[str, Sequence[float]], title: str) -> None:
    """Bars on top of each other, one colour for each series."""
    base = [0.0] * len(groups)
    for number, (name, values) in enumerate(series.items()):
        axis.bar(range(len(groups)), values, 0.7, bottom=base, label=name, color=_COLOURS[number])
        base = [low + value for low, value in zip(base, values, strict=True)]
    axis.set_xticks(range(len(groups)), groups, rotation=60, ha="right")
    axis.set_title(title)
    axis.grid(axis="y", alpha=0.3)
    axis.legend(loc="upper right", fontsize=6)


def _reuses(axes: Sequence[Any], found: Mapping[tuple[str, str], Reuse]) -> None:
    names = [f"{layer.partition('/')[2]} {label}" for layer, label in found]
    words = {kind: [one.words.get(kind, 0) / 1000 for one in found.values()] for kind in KINDS}
    _stacks(axes[0], names, words, "thousand words moved (Figure 10)")
    sets = [max(1, sum(one.shared.values())) for one in found.values()]
    shared = {
        kind: [100 * one.shared.get(kind, 0) / count for one, count in zip(found.values(), sets, strict=True)]
        for kind in SHARED
    }
    _stacks(axes[1], names, shared, "% of the sets of operations by what their cores share (Figure 11)")


def _policies(axis: Any, found: Mapping[tuple[str, str, str], tuple[float, float]]) -> None:
    archs = list(dict.fromkeys(arch for arch, _, _ in found))
    layers = list(dict.fromkeys(layer for _, layer, _ in found))
    series = {
        label: [
            mean_ratio(
                [
                    (PAPER.metric(*found[arch, layer, label]), PAPER.metric(*found[arch, layer, "the paper's"]))
                    for layer in layers
                ]
            )
            for arch in archs
        ]
        for label in TABLE_2
    }
    _bars(axis, archs, series, "cycles x words against the paper's policies (Figure 12)")


def draw(
    costs: Sequence[LayerCost],
    reuses: Mapping[tuple[str, str], Reuse],
    path: Path,
) -> None:
    """Writes figures 8 to 11; the same figures give the same bytes."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    with mpl.rc_context(_SETTINGS):  # pyright: ignore[reportUnknownMemberType]  (names of settings are open)
        figure, axes = plt.subplot_mosaic(
            [["speed", "speed"], ["saved", "saved"], ["layers", "transfers"], ["words", "shared"]], figsize=(14, 18)
        )
        _end_to_end((axes["speed"], axes["saved"]), costs)
        _layers((axes["layers"], axes["transfers"]), costs)
        _reuses((axes["words"], axes["shared"]), reuses)
        _write(figure, path)


def draw_policies(policies: Mapping[tuple[str, str, str], tuple[float, float]], path: Path) -> None:
    """Writes figure 12."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    with mpl.rc_context(_SETTINGS):  # pyright: ignore[reportUnknownMemberType]  (names of settings are open)
        figure, axis = plt.subplots(figsize=(7, 4))
        _policies(axis, policies)
        _write(figure, path)


def draw_assumptions(found: Mapping[str, Mapping[str, Sequence[Point]]], arch: str, path: Path) -> None:
    """Figure 1: of each layer, the points of each kind of schedule."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    with mpl.rc_context(_SETTINGS):  # pyright: ignore[reportUnknownMemberType]  (names of settings are open)
        figure, axes = plt.subplots(1, len(found), figsize=(6 * len(found), 4), squeeze=False)
        for axis, (name, series) in zip(axes[0], found.items(), strict=True):
            for colour, (label, points) in zip(_COLOURS, series.items(), strict=False):
                cycles, words = zip(*points, strict=True)
                axis.scatter(cycles, words, s=4, color=colour, label=label)
            axis.set(xscale="log", yscale="log", xlabel="cycles (estimate)", ylabel="words from and to DRAM")
            axis.set_title(f"{name} on {arch}: one point a tiling (Figure 1)")
            axis.grid(alpha=0.3)
            axis.legend(fontsize=6)
        _write(figure, path)


def _write(figure: Any, path: Path) -> None:
    figure.tight_layout()
    save_plot(figure, path)
