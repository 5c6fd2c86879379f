"""Latency against offered load as a picture (SVG)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...report.plots import save_plot
from .noc_curves import FACTOR, LoadPoint, top
from .noc_peers import Figures, Peer

_COLOURS = {"same": "tab:blue", "free": "tab:orange"}
_LABELS = {"same": "RTL, packets keep their VC", "free": "RTL, any free VC"}


def draw(panels: Mapping[Peer, Mapping[str, Sequence[LoadPoint]]], path: Path) -> None:
    """Writes one panel for each pattern and length: a curve for each policy, and the peer's zero load and saturation.
    The same points give the same bytes."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    # fixed names of shapes, no date: the file changes only when a figure does
    settings: Any = {"svg.hashsalt": "meshloom", "font.size": 8, "svg.fonttype": "none"}
    with mpl.rc_context(settings):  # pyright: ignore[reportUnknownMemberType]  (names of settings are open)
        columns = 2
        rows = max(1, -(-len(panels) // columns))
        figure, axes = plt.subplots(rows, columns, figsize=(9, 2.9 * rows), squeeze=False)
        for axis, (peer, curves) in zip(axes.flat, panels.items(), strict=False):
            for policy, points in curves.items():
                shown = [point for point in points if point.latency <= 3 * top(peer)]
                axis.plot(
                    [point.offered for point in shown],
                    [point.latency for point in shown],
                    marker=".",
                    color=_COLOURS[policy],
                    label=_LABELS[policy],
                )
            for figures, name, colour in ((peer.four, "A4", "tab:gray"), (peer.two, "C2", "tab:green")):
                _peer(axis, figures, f"BookSim 2, {name}: zero load and saturation", colour)
            axis.set(title=title(peer), ylim=(0, top(peer)), xlim=(0, None))
            axis.grid(alpha=0.3)
        for axis in axes[-1]:
            axis.set_xlabel("offered load, flits per node and cycle")
        for axis in axes[:, 0]:
            axis.set_ylabel("mean packet latency, cycles")
        axes.flat[0].legend(loc="upper left")
        figure.tight_layout()
        save_plot(figure, path)


def title(peer: Peer) -> str:
    """Of a panel."""
    return f"{peer.side}x{peer.side}, {peer.pattern}, {peer.length}-flit packets"


def _peer(axis: Any, figures: Figures, label: str, colour: str) -> None:
    """The two points that are known of a peer; nothing is known between them."""
    axis.plot(
        [0, figures.saturation],
        [figures.zero_load, FACTOR * figures.zero_load],
        linestyle="",
        marker="x",
        color=colour,
        label=label,
    )
