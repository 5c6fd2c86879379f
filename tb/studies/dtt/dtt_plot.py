"""The picture of ahead-of-time routing (SVG)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...report.plots import save_plot
from ..engine.rows import Rows
from .flows import BothFlows, Flows
from .routing_points import BesideNetworkx, PlanTimed

_COLOURS = ("tab:blue", "tab:orange", "tab:green")


def draw(rows: Rows, path: Path) -> None:
    """Writes two panels: moves per second against moves, beside networkx's, of plans at the least load of the ports;
    and the gain of the pushed flow over the best pulled one, chip by chip. The same rows give the same bytes."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    # fixed names of shapes, no date: the file changes only when a figure does
    settings: Any = {"svg.hashsalt": "meshloom", "font.size": 8, "svg.fonttype": "none"}
    with mpl.rc_context(settings):  # pyright: ignore[reportUnknownMemberType]  (names of settings are open)
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
        _growth(left, rows)
        _gains(right, rows)
        figure.tight_layout()
        save_plot(figure, path)


def _growth(axes: Any, rows: Rows) -> None:
    plans = [point for point in rows if isinstance(point, PlanTimed)]
    least = min((point.port_load for point in plans), default=0.0)
    for colour, side in zip(_COLOURS, dict.fromkeys(point.side for point in plans), strict=False):
        some = sorted(
            (rows[point].moves, rows[point].rate) for point in plans if point.side == side and point.port_load == least
        )
        axes.loglog(*zip(*some, strict=True), marker="o", color=colour, label=f"{side}x{side}, compiled")
        peers = [
            rows[point].networkx.rate for point in rows if isinstance(point, BesideNetworkx) and point.side == side
        ]
        if peers:
            axes.axhline(min(peers), color=colour, linestyle=":", label=f"{side}x{side}, networkx")
    axes.set(xlabel="page moves planned", ylabel="page moves per CPU-second", title="Growth")
    axes.grid(alpha=0.3)
    if plans:
        axes.legend(loc="center right")


def _gains(axes: Any, rows: Rows) -> None:
    flows: list[tuple[str, str, Flows]] = [
        (point.chip, point.workload, rows[point]) for point in rows if isinstance(point, BothFlows)
    ]
    chips = list(dict.fromkeys(chip for chip, _, _ in flows))
    names = list(dict.fromkeys(name for _, name, _ in flows))
    for number, chip in enumerate(chips):
        shown = [(names.index(name), row.gain) for at, name, row in flows if at == chip]
        high = 0.8 / len(chips)
        axes.barh(
            [at + high * (number - (len(chips) - 1) / 2) for at, _ in shown],
            [gain for _, gain in shown],
            height=high,
            color=_COLOURS[number],
            label=chip,
        )
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set(title="Cycles pulled / pushed", xlabel="above 1: pushed is faster")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    if flows:
        axes.legend()
