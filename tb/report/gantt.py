"""A picture of a scenario: which network each core worked for, cycle by cycle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meshloom.hw.spec.config import tile_position

from ..results.scenario import InstanceRow, ScenarioResults
from .plots import save_plot

#: How the file's name may end.
SUFFIXES = (".svg", ".png", ".pdf")
#: Colours before they repeat.
_COLOURS = 20
#: Instances that the legend names at most.
_NAMED = 40


def gantt(results: ScenarioResults, path: Path) -> None:
    """Draws cores over time, coloured by instance; a dotted line is an arrival. Raises WriteError."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.patches import Patch

    figures, palette = results.scenario, mpl.colormaps["tab20"]
    cores = sorted({core for row in results.programs for core in row.cores})
    rank = {core: number for number, core in enumerate(cores)}
    settings: Any = {"svg.hashsalt": "meshloom", "svg.fonttype": "none", "font.size": 8, "text.parse_math": False}
    with mpl.rc_context(settings):  # pyright: ignore[reportUnknownMemberType]  (names of settings are open)
        figure, drawn = plt.subplots(figsize=(11, 1.4 + 0.3 * max(4, len(cores), min(_NAMED, len(results.instances)))))
        axes: Any = drawn  # its methods take any keyword
        for row in results.programs:
            end = row.model_end if figures.rtl_cycles is None else row.rtl_end
            if end is None:
                continue
            for core in row.cores:
                axes.barh(
                    rank[core],
                    end - row.launched,
                    left=row.launched,
                    height=0.86,
                    color=palette(row.instance % _COLOURS),
                    edgecolor="white",
                    linewidth=0.2,
                    hatch="//" if row.fault else None,
                )
        for instance in results.instances:
            axes.axvline(instance.arrival, color=palette(instance.number % _COLOURS), linewidth=0.8, linestyle=":")
        axes.set_yticks(range(len(cores)), ["({},{})".format(*tile_position(core)) for core in cores])
        axes.invert_yaxis()
        where = "timeline model" if figures.rtl_cycles is None else "RTL"
        axes.set(
            xlabel="cycle", ylabel="core", title=f"{figures.name} on {figures.chip} by {figures.scheduler} ({where})"
        )
        named = results.instances[:_NAMED]
        handles = [Patch(color=palette(one.number % _COLOURS), label=_label(one)) for one in named]
        if more := len(results.instances) - len(named):
            handles.append(Patch(color="none", label=f"and {more} more, same colours"))
        axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        figure.tight_layout()
        save_plot(figure, path)


def _label(one: InstanceRow) -> str:
    name = f"{one.number}: {one.network}" + f" x{one.batch}" * (one.batch > 1)
    if one.lost:
        return f"{name}, lost"
    return name if one.met is None else f"{name}, {'in time' if one.met else 'too late'}"
