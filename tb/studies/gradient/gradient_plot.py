"""The figures of the paper from our tables, as one picture (SVG): networks, longest layers, cores, bandwidth, batches.

J. Kim et al., "Improving Data Reuse in NPU On-chip Memory with Interleaved Gradient Order for DNN Training" (MICRO
2023), figures 12 to 16. Everything is relative to the paper's baseline, `plain`, on the same chip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from pathlib import Path
from typing import Any

from ...report.plots import save_plot
from ..engine.rows import Rows
from .gradient_cases import EDGE, NETWORKS, SERVERS, Case
from .gradient_sums import WAYS, NetworkSums, measured, network_sums
from .gradient_tables import LONGEST, PAPER, PAPER_BATCH, PAPER_BYTES

#: Ways to choose an order, each with the colour that it has in all panels.
_COLOURS = {
    "interleaved": "tab:blue",
    "algorithm 1": "tab:orange",
    "and the split": "tab:green",
    "sequential": "tab:gray",
    "best": "tab:red",
    "time": "tab:orange",
    "DRAM": "tab:purple",
}
_PAPER = "the paper"


@dataclass(frozen=True)
class Panel:
    """Bars around 1: of each of `groups` one of each of `series`, which say what it takes of `plain`'s; None where
    nothing is known. `paper`: by series, the paper's figures, drawn as dots on our bars."""

    title: str
    groups: Sequence[str]
    series: Mapping[str, Sequence[float | None]]
    paper: Mapping[str, Sequence[float | None]]


def panels(rows: Rows) -> list[list[Panel]]:
    """The panels, row by row, of what is measured."""
    servers = {f"{len(Case(chip).config.cores)}": Case(chip) for chip in SERVERS}
    widths = {f"{width} B": Case("server1", width) for width in PAPER_BYTES}
    batches = {f"batch {batch}": Case("server1", None, batch) for batch in PAPER_BATCH}
    return [
        *([_networks(rows, chip)] for chip in (EDGE, SERVERS[0])),
        [_longest(rows, SERVERS[0])],
        [
            _means(rows, "cores of server chips, mean of networks (figure 14)", servers,
                   [PAPER.get(chip, {}).get("and the split") for chip in SERVERS]),
            _means(rows, "server1, bytes of DRAM a cycle (figure 15)", widths, list(PAPER_BYTES.values())),
            _means(rows, "server1, examples of a batch (figure 16)", batches, list(PAPER_BATCH.values())),
        ],
    ]  # fmt: skip


def _shares(entry: NetworkSums, step: bool) -> dict[str, float | None]:
    """What a network takes by each way, of `plain`'s cycles."""
    less = {way: entry.less(way, step=step) for way in WAYS}
    return {way: None if value is None else 1 - value / 100 for way, value in less.items()}


def _counted(some: Sequence[NetworkSums]) -> tuple[bool, str]:
    """Whether cycles are of steps, as the paper's are, and a word for them: without forward passes they are not."""
    step = all(entry.forward is not None for entry in some)
    return step, "steps" if step else "both gradients"


def _networks(rows: Rows, chip: str) -> Panel:
    some = [entry for name in NETWORKS if (entry := network_sums(rows, Case(chip), name)) is not None]
    step, counted = _counted(some)
    shares = [_shares(entry, step) for entry in some]
    series = {way: [each[way] for each in shares] for way in WAYS[1:]}
    means = {way: [_mean(values)] for way, values in series.items() if values}
    paper = PAPER[chip]
    return Panel(
        f"{chip}: cycles of {counted} (figure 12)",
        [*(entry.network for entry in some), *(["mean"] if some else [])],
        {way: values + means.get(way, []) for way, values in series.items()},
        {way: [*[None] * len(some), 1 - paper[way] / 100] for way in WAYS if way in paper},
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _longest(rows: Rows, chip: str) -> Panel:
    """Algorithm 1's order, as the paper's figure has it."""
    some = measured(rows, chip)[:LONGEST]
    pairs = [[entry.by(way) for way in ("algorithm 1", "plain")] for entry in some]
    return Panel(
        f"{chip}: algorithm 1 on the longest layers (figure 13)",
        [entry.layer.name.removeprefix("gradient:").rpartition(",")[0] for entry in some],
        {
            "time": [entry.cycles / plain.cycles for entry, plain in pairs],
            "DRAM": [entry.words / plain.words for entry, plain in pairs],
        },
        {},
    )


def _means(rows: Rows, title: str, cases: Mapping[str, Case], paper: Sequence[float | None]) -> Panel:
    """All of the paper's techniques, and the best, over the networks that are measured in each of the cases."""
    sums = {name: {network: network_sums(rows, case, network) for network in NETWORKS} for name, case in cases.items()}
    common = [network for network in NETWORKS if all(some[network] for some in sums.values())]
    by_case = {name: [entry for network in common if (entry := sums[name][network])] for name in cases}
    step, counted = _counted([entry for some in by_case.values() for entry in some])
    ways = ("and the split", "sequential", "best")

    def mean(way: str, name: str) -> float | None:
        return _mean([_shares(entry, step)[way] for entry in by_case[name]])

    return Panel(
        f"{title}, {counted}: {len(common)} networks",
        list(cases) if common else [],
        {way: [mean(way, name) for name in cases] for way in ways} if common else {},
        {"and the split": [None if less is None else 1 - less / 100 for less in paper]},
    )


def draw(rows: Rows, path: Path) -> None:
    """Writes the panels that have anything to show; the same rows give the same bytes."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    shown = [there for row in panels(rows) if (there := [panel for panel in row if panel.groups])]
    if not shown:
        return
    wide = lcm(*map(len, shown))
    names = [[f"{number} {at * len(row) // wide}" for at in range(wide)] for number, row in enumerate(shown)]
    # fixed names of shapes, no date: the file changes only when a figure does
    settings: Any = {"svg.hashsalt": "meshloom", "font.size": 7, "svg.fonttype": "none"}
    with mpl.rc_context(settings):  # pyright: ignore[reportUnknownMemberType]  (names of settings are open)
        drawing: Any = plt  # what it says of mosaics does not take lists of names
        figure, axes = drawing.subplot_mosaic(names, figsize=(12, 3.2 * len(shown)))
        for number, row in enumerate(shown):
            for at, panel in enumerate(row):
                _bars(axes[f"{number} {at}"], panel)
        figure.tight_layout()
        save_plot(figure, path)


def _bars(axis: Any, panel: Panel) -> None:
    width = 0.8 / max(1, len(panel.series))
    for number, (name, values) in enumerate(panel.series.items()):
        shift = (number - (len(panel.series) - 1) / 2) * width
        there = [(index + shift, value) for index, value in enumerate(values) if value is not None]
        if there:
            at, shares = zip(*there, strict=True)
            axis.bar(at, [share - 1 for share in shares], width, bottom=1, label=name, color=_COLOURS[name])
        dots = [(index + shift, value) for index, value in enumerate(panel.paper.get(name, ())) if value is not None]
        if dots:
            axis.plot(*zip(*dots, strict=True), linestyle="", marker="o", markersize=3, color="black")
    if any(value is not None for values in panel.paper.values() for value in values):
        axis.plot([], [], linestyle="", marker="o", markersize=3, color="black", label=_PAPER)
    axis.axhline(1.0, color="black", linewidth=0.6)
    turned = sum(map(len, panel.groups)) > 80
    at, side = (60, "right") if turned else (0, "center")
    axis.set_xticks(range(len(panel.groups)), panel.groups, rotation=at, ha=side)
    axis.set_ylabel("of plain's")
    axis.set_title(panel.title)
    axis.grid(axis="y", alpha=0.3)
    axis.legend(fontsize=6, ncols=3)
