"""Latency against offered load as a picture (SVG)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..report.plots import save_plot
from .noc_curves import FACTOR, Curve
from .noc_peers import Figures

#: Points of a curve, as shares of the load at which it leaves the picture.
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.94, 0.97, 1.0)
_COLOURS = {"same": "tab:blue", "free": "tab:orange"}
_LABELS = {"same": "RTL, packets keep their VC", "free": "RTL, any free VC"}


def draw(panels: Mapping[str, Sequence[Curve]], path: Path) -> None:
    """Writes one panel for each title: curves of one pattern and length, and the peer's zero load and saturation.

    Measures points as it needs them; the same points give the same bytes. Raises what `traffic.run` raises.
    """
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    # fixed names of shapes, no date: the file changes only when a figure does
    settings: Any = {"svg.hashsalt": "meshloom", "font.size": 8, "svg.fonttype": "none"}
    with mpl.rc_context(settings):  # pyright: ignore[reportUnknownMemberType]  (names of settings are open)
        columns = 2
        rows = -(-len(panels) // columns)
        figure, axes = plt.subplots(rows, columns, figsize=(9, 2.9 * rows), squeeze=False)
        for axis, (title, curves) in zip(axes.flat, panels.items(), strict=True):
            peer = curves[0].peer
            top = 1.15 * FACTOR * peer.four.zero_load
            for curve in curves:
                end = curve.load_at(top)
                points = [curve.at(round(share * end * 512) / 512) for share in _SHARES]
                shown = [point for point in points if point.latency <= 3 * top]
                colour = _COLOURS[curve.mesh.allocate]
                axis.plot(
                    [point.offered for point in shown],
                    [point.latency for point in shown],
                    marker=".",
                    color=colour,
                    label=_LABELS[curve.mesh.allocate],
                )
            for figures, name, colour in ((peer.four, "A4", "tab:gray"), (peer.two, "C2", "tab:green")):
                _peer(axis, figures, f"BookSim 2, {name}: zero load and saturation", colour)
            axis.set(title=title, ylim=(0, top), xlim=(0, None))
            axis.grid(alpha=0.3)
        for axis in axes[-1]:
            axis.set_xlabel("offered load, flits per node and cycle")
        for axis in axes[:, 0]:
            axis.set_ylabel("mean packet latency, cycles")
        axes.flat[0].legend(loc="upper left")
        figure.tight_layout()
        save_plot(figure, path)


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
