"""The picture of the ahead-of-time routing benchmark (SVG)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..report.plots import save_plot
from .dtt_flows import Flows

_COLOURS = ("tab:blue", "tab:orange", "tab:green")


def draw(
    speeds: Mapping[int, Sequence[tuple[int, float]]],
    yardsticks: Mapping[int, float],
    flows: Sequence[Flows],
    path: Path,
) -> None:
    """Writes two panels: moves per second against moves (side to points, and networkx's rate), and the gain of the
    pushed flow over the best pulled one, chip by chip. The same figures give the same bytes."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    # fixed names of shapes, no date: the file changes only when a figure does
    settings: Any = {"svg.hashsalt": "meshloom", "font.size": 8, "svg.fonttype": "none"}
    with mpl.rc_context(settings):  # pyright: ignore[reportUnknownMemberType]  (names of settings are open)
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
        for colour, (side, points) in zip(_COLOURS, speeds.items(), strict=False):
            left.loglog(*zip(*points, strict=True), marker="o", color=colour, label=f"{side}x{side}, compiled")
            left.axhline(yardsticks[side], color=colour, linestyle=":", label=f"{side}x{side}, networkx")
        left.set(xlabel="page moves planned", ylabel="page moves per CPU-second", title="Growth")
        left.grid(alpha=0.3)
        left.legend(loc="center right")
        chips = list(dict.fromkeys(one.chip for one in flows))
        names = list(dict.fromkeys(one.workload for one in flows))
        for number, chip in enumerate(chips):
            shown = [(names.index(one.workload), one.gain) for one in flows if one.chip == chip]
            high = 0.8 / len(chips)
            right.barh(
                [at + high * (number - (len(chips) - 1) / 2) for at, _ in shown],
                [gain for _, gain in shown],
                height=high,
                color=_COLOURS[number],
                label=chip,
            )
        right.axvline(1, color="black", linewidth=0.8)
        right.set(title="Cycles pulled / pushed", xlabel="above 1: pushed is faster")
        right.set_yticks(range(len(names)), names)
        right.invert_yaxis()
        right.legend()
        figure.tight_layout()
        save_plot(figure, path)
