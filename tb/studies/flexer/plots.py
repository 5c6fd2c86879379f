"""The pictures of the Flexer studies (SVG): end to end, layer by layer, reloads, sharing; policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...report.plots import save_plot
from .layers import LayerCost, grouped, total
from .reuse import KINDS, SHARED, Reuse

#: Cycles and words of a schedule.
Spot = tuple[float, int]

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
    speed = {f"{a} over {b}": [one.ratio((a, b)) for one in some] for a, b in _PAIRS}
    saved = {f"{a} over {b}": [one.ratio((a, b), words=True) for one in some] for a, b in _PAIRS}
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


def _mosaic(draw: Callable[[Any], Any], path: Path) -> None:
    """Has a figure drawn with our settings and writes it; the same rows give the same bytes."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    with mpl.rc_context(_SETTINGS):  # pyright: ignore[reportUnknownMemberType]  (names of settings are open)
        figure = draw(plt)
        figure.tight_layout()
        save_plot(figure, path)


def draw(costs: Sequence[LayerCost], reuses: Mapping[tuple[str, str], Reuse], path: Path) -> None:
    """Writes figures 8 to 11."""

    def all_of_them(plt: Any) -> Any:
        figure, axes = plt.subplot_mosaic(
            [["speed", "speed"], ["saved", "saved"], ["layers", "transfers"], ["words", "shared"]], figsize=(14, 18)
        )
        _end_to_end((axes["speed"], axes["saved"]), costs)
        _layers((axes["layers"], axes["transfers"]), costs)
        _reuses((axes["words"], axes["shared"]), reuses)
        return figure

    _mosaic(all_of_them, path)


def draw_policies(archs: Sequence[str], series: Mapping[str, Sequence[float]], path: Path) -> None:
    """Writes figure 12. `series`: of each policy, what it costs on each architecture."""

    def bars(plt: Any) -> Any:
        figure, axis = plt.subplots(figsize=(7, 4))
        _bars(axis, archs, series, "cycles x words against the paper's policies (Figure 12)")
        return figure

    _mosaic(bars, path)


def draw_tilings(layers: Mapping[str, Mapping[str, Sequence[Spot]]], arch: str, path: Path) -> None:
    """Figure 1: of each layer, a point for each tiling by each kind of schedule."""

    def scatter(plt: Any) -> Any:
        figure, axes = plt.subplots(1, len(layers), figsize=(6 * len(layers), 4), squeeze=False)
        for axis, (name, series) in zip(axes[0], layers.items(), strict=True):
            for colour, (label, spots) in zip(_COLOURS, series.items(), strict=False):
                cycles, words = zip(*spots, strict=True)
                axis.scatter(cycles, words, s=4, color=colour, label=label)
            axis.set(xscale="log", yscale="log", xlabel="cycles (estimate)", ylabel="words from and to DRAM")
            axis.set_title(f"{name} on {arch}: one point a tiling (Figure 1)")
            axis.grid(alpha=0.3)
            axis.legend(fontsize=6)
        return figure

    _mosaic(scatter, path)
