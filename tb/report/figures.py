"""Figures of a run's page, as Plotly takes them: data and layout, plain JSON."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from meshloom.hw.spec.config import ChipConfig, TileKind, tile_position

from ..results.explanation import Waterfall
from ..results.legend import CycleCause
from ..results.tracks import Ints, LayerPoint, LinkLoad, Occupancy, RunPictures
from .floorplan import link_points

Figure = dict[str, Any]
#: Columns of the picture of memories.
_COLUMNS = 300
#: Ticks of an axis that grows by factors: powers of ten, as numbers.
_DECADES: Figure = {"dtick": 1, "tickformat": ",~r"}


def figures(falls: Waterfall, pictures: RunPictures, chip: ChipConfig, prefix: str = "") -> list[Figure]:
    """All figures of a workload; `id`: of the element that each is drawn in, which begins with `prefix`. Titles stand
    on the page; colours of text and lines are page.js's, which knows whether the page is dark."""
    values = [
        figure(f"{prefix}by-layer", *_by_layer(falls)),
        figure(f"{prefix}roofline", *_roofline(pictures.points, pictures.peak_macs, pictures.peak_bytes)),
        figure(f"{prefix}memory", *_memory(pictures.memories, falls.cycles)),
    ]
    for what in ("busy", "blocked") if pictures.links else ():
        values.append(figure(f"{prefix}links-{what}", *_links(pictures.links, what, chip)))
    return values


def figure(name: str, data: list[Figure], layout: Figure) -> Figure:
    """A figure of the element `name`; what all have in common."""
    common = {"margin": {"l": 10, "r": 16, "t": 30, "b": 10}, "font": {"size": 12}, "hovermode": "closest"}
    return {"id": name, "data": data, "layout": common | layout}


def _by_layer(falls: Waterfall) -> tuple[list[Figure], Figure]:
    names = [plain(each.layer) for each in falls.layers]
    colours = {str(cause): cause.colour for cause in CycleCause}
    bars: list[Figure] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": cause,
            "y": names,
            "x": [each.pe_cycles.get(cause, 0) / falls.pes for each in falls.layers],
            "marker": {"color": colours.get(cause, "#607d8b")},
        }
        for cause in falls.total
    ]
    layout: Figure = {
        "barmode": "stack",
        "height": max(200, 90 + 20 * len(names)),
        "showlegend": False,
        "yaxis": {"autorange": "reversed", "automargin": True, "ticksuffix": " ", "dtick": 1},
        "xaxis": cycles_axis(),
    }
    return bars, layout


def cycles_axis() -> Figure:
    """An axis of cycles, which are written as everywhere on the page."""
    return {"title": {"text": "cycles"}, "tickformat": ",d", "hoverformat": ",.0f", "automargin": True}


def _roofline(points: Sequence[LayerPoint], peak: int, bandwidth: int) -> tuple[list[Figure], Figure]:
    """Products a cycle over products a byte. Layers that move no byte are left out."""
    shown = [point for point in points if point.dram_bytes and point.cycles]
    ridge = peak / bandwidth
    x = [point.macs / point.dram_bytes for point in shown]
    ends = [min([*x, ridge]) / 2, ridge, max([*x, ridge]) * 2]
    roof: Figure = {
        "type": "scatter",
        "mode": "lines",
        "name": "roof",
        "x": ends,
        "y": [min(peak, bandwidth * each) for each in ends],
        "line": {"color": "#3b4a5e"},
    }
    layers: Figure = {
        "type": "scatter",
        "mode": "markers+text",
        "name": "layers",
        "x": x,
        "y": [point.macs / point.cycles for point in shown],
        "text": ["" for _ in shown],
        "hovertext": [plain(point.layer) for point in shown],
        "hovertemplate": "%{hovertext}<br>%{y:,.1f} products a cycle, %{x:,.2f} per byte<extra></extra>",
        "marker": {"size": 9, "color": "#c75b39"},
    }
    axes: Figure = {
        "height": 440,
        "xaxis": {"type": "log", "title": {"text": "products per byte of DRAM"}, "automargin": True, **_DECADES},
        "yaxis": {"type": "log", "title": {"text": "products a cycle"}, "automargin": True, **_DECADES},
        "showlegend": False,
    }
    return [roof, layers], axes


def _memory(occupancies: Sequence[Occupancy], cycles: int) -> tuple[list[Figure], Figure]:
    """A line of the picture for each memory, darker the fuller it is."""
    count = min(_COLUMNS, max(1, cycles))
    edges = np.arange(count + 1) * cycles // count
    rows = [_fullest(each, edges) for each in occupancies]
    names = [f"{each.name}, most {max(row, default=0.0):.1f} %" for each, row in zip(occupancies, rows, strict=True)]
    heat: Figure = {
        "type": "heatmap",
        "x": edges[:-1].tolist(),
        "y": names,
        "z": rows,
        "zmin": 0,
        "zmax": 100,
        "ygap": 2,
        "colorscale": [[0, "rgba(128,140,160,0.10)"], [0.02, "rgba(240,150,80,0.35)"], [1, "rgb(165,0,38)"]],
        "colorbar": {"title": {"text": "% full"}, "thickness": 12},
        "hovertemplate": "%{y}<br>from cycle %{x:,d}: %{z:.1f} %<extra></extra>",
    }
    axes: Figure = {
        "height": 110 + 18 * len(names),
        "xaxis": {**cycles_axis(), "showgrid": False},
        "yaxis": {"autorange": "reversed", "showgrid": False, "automargin": True, "ticksuffix": " ", "dtick": 1},
    }
    return [heat], axes


def _fullest(memory: Occupancy, edges: Ints) -> list[float]:
    """How full a memory is at most between each two of some cycles, in percent."""
    first = np.searchsorted(memory.cycles, edges[:-1], side="right") - 1  # what holds when the stretch begins
    last = np.searchsorted(memory.cycles, edges[1:], side="left")
    parts = [memory.words[max(0, low) : max(high, low + 1, 1)] for low, high in zip(first, last, strict=True)]
    return [round(100 * float(part.max()) / memory.room, 1) if len(part) else 0.0 for part in parts]


def _links(loads: Sequence[LinkLoad], what: str, chip: ChipConfig) -> tuple[list[Figure], Figure]:
    """The floorplan, with each link in the colour of its share."""
    most = max([*(getattr(link, what) for link in loads), 1e-9])
    traces: list[Figure] = []
    for link in loads:
        share: float = getattr(link, what)
        x, y = tile_position(link.tile)
        points = link_points(link.tile, link.port)
        trace: Figure = {
            "type": "scatter",
            "mode": "lines" if len(points) > 1 else "markers",
            "x": [each[0] for each in points],
            "y": [each[1] for each in points],
            "line": {"color": _shade(share / most), "width": 6},
            "marker": {"color": _shade(share / most), "size": 11, "symbol": "square"},
            "hoverinfo": "text",
            "text": f"({x},{y}) {link.port}: {100 * share:.1f} % {what}",
        }
        traces.append(trace)
    scale: Figure = {
        "type": "scatter", "mode": "markers", "x": [None], "y": [None], "hoverinfo": "skip",
        "marker": {"color": [0], "cmin": 0, "cmax": 100 * most, "showscale": True,
                   "colorscale": [[part / 4, _shade(part / 4)] for part in range(5)],
                   "colorbar": {"title": {"text": "%"}, "thickness": 12}},
    }  # fmt: skip
    shapes: list[Figure] = []
    words: list[Figure] = []
    for tile, kind in chip.tiles.items():
        x, y = tile_position(tile)
        if kind is TileKind.NONE:
            continue
        box = {"x0": x - 0.3, "x1": x + 0.3, "y0": y - 0.3, "y1": y + 0.3, "line": {"color": "#8894a5"}}
        shapes.append({"type": "rect", "layer": "below", "fillcolor": "rgba(128,140,160,0.12)", **box})
        words.append({"x": x - 0.04, "y": y - 0.06, "text": f"{kind.value}<br>({x},{y})", "showarrow": False})
    hidden: Figure = {"visible": False}
    layout: Figure = {
        "shapes": shapes,
        "annotations": words,
        "showlegend": False,
        "xaxis": {**hidden, "range": [-0.6, chip.width - 0.4]},
        "yaxis": {**hidden, "range": [chip.height - 0.4, -0.6], "scaleanchor": "x"},
    }
    return [*traces, scale], layout


def plain(name: str) -> str:
    """A layer's name as Plotly shows it as it is: it reads tags in texts."""
    return escape(name, quote=False)


def _shade(part: float) -> str:
    """From a faint grey over orange to dark red, on light and on dark pages."""
    stops = ((128, 140, 160, 0.35), (253, 174, 97, 1.0), (165, 0, 38, 1.0))
    low, high, at = (stops[0], stops[1], 2 * part) if part < 0.5 else (stops[1], stops[2], 2 * part - 1)
    red, green, blue, alpha = (a + (b - a) * at for a, b in zip(low, high, strict=True))
    return f"rgba({red:.0f},{green:.0f},{blue:.0f},{alpha:.2f})"
