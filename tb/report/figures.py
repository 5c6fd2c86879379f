"""Figures of a run's page, as Plotly takes them: data and layout, plain JSON."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from meshloom.hw.spec.config import ChipConfig, TileKind, tile_position
from meshloom.hw.spec.routes import NEIGHBOURS

from ..results.explanation import Waterfall
from ..results.legend import CycleCause
from ..results.tracks import LayerPoint, LinkLoad, Occupancy, RunPictures

Figure = dict[str, Any]


def figures(falls: Waterfall, pictures: RunPictures, chip: ChipConfig, prefix: str = "") -> list[Figure]:
    """All figures of a workload; `id`: of the element that each is drawn in, which begins with `prefix`."""
    values = [
        _figure(f"{prefix}waterfall", *_waterfall(falls)),
        _figure(f"{prefix}by-layer", *_by_layer(falls)),
        _figure(f"{prefix}roofline", *_roofline(pictures.points, pictures.peak_macs, pictures.peak_bytes)),
        _figure(f"{prefix}memory", *_memory(pictures.memories)),
    ]
    for what in ("busy", "blocked") if pictures.links else ():
        values.append(_figure(f"{prefix}links-{what}", *_links(pictures.links, what, chip)))
    return values


def _figure(name: str, data: list[Figure], layout: Figure) -> Figure:
    common = {"margin": {"l": 70, "r": 20, "t": 34, "b": 50}, "font": {"size": 12}, "hovermode": "closest"}
    return {"id": name, "data": data, "layout": common | layout}


def _waterfall(falls: Waterfall) -> tuple[list[Figure], Figure]:
    spent = falls.in_cycles(falls.total)
    bars: Figure = {
        "type": "waterfall",
        "x": [*spent, "all"],
        "y": [*spent.values(), falls.cycles],
        "measure": [*("relative" for _ in spent), "total"],
        "text": [*(f"{value:,.0f}" for value in spent.values()), f"{falls.cycles:,}"],
        "textposition": "outside",
        "increasing": {"marker": {"color": "#c75b39"}},
        "totals": {"marker": {"color": "#3b4a5e"}},
    }
    return [bars], {"title": {"text": "from the ideal to the measured cycles"}, "yaxis": {"title": {"text": "cycles"}}}


def _by_layer(falls: Waterfall) -> tuple[list[Figure], Figure]:
    names = [_plain(each.layer) for each in falls.layers]
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
        "title": {"text": "cycles by layer and cause"},
        "height": max(260, 110 + 22 * len(names)),
        "margin": {"l": 180, "r": 20, "t": 34, "b": 40},
        "yaxis": {"autorange": "reversed"},
        "xaxis": {"title": {"text": "cycles"}},
    }
    return bars, layout


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
        "text": [_plain(point.layer) for point in shown],
        "textposition": "bottom center",
        "marker": {"size": 9, "color": "#c75b39"},
    }
    axes: Figure = {
        "title": {"text": f"roofline: {peak:,} products and {bandwidth:,} bytes of DRAM a cycle"},
        "xaxis": {"type": "log", "title": {"text": "products per byte of DRAM"}},
        "yaxis": {"type": "log", "title": {"text": "products a cycle"}},
        "showlegend": False,
    }
    return [roof, layers], axes


def _memory(occupancies: Sequence[Occupancy]) -> tuple[list[Figure], Figure]:
    lines: list[Figure] = [
        {
            "type": "scatter",
            "mode": "lines",
            "line": {"shape": "hv", "width": 1.2},
            "name": each.name,
            "x": each.cycles.tolist(),
            "y": [round(100 * words / each.room, 2) for words in each.words.tolist()],
        }
        for each in occupancies
    ]
    axes: Figure = {
        "title": {"text": "words that somebody will still read, in % of each memory"},
        "xaxis": {"title": {"text": "cycle"}},
        "yaxis": {"title": {"text": "%"}, "rangemode": "tozero"},
    }
    return lines, axes


def _links(loads: Sequence[LinkLoad], what: str, chip: ChipConfig) -> tuple[list[Figure], Figure]:
    """The floorplan, with each link in the colour of its share."""
    most = max([*(getattr(link, what) for link in loads), 1e-9])
    traces: list[Figure] = []
    for link in loads:
        share: float = getattr(link, what)
        x, y = tile_position(link.tile)
        dx, dy = NEIGHBOURS.get(link.port, (0, 0))
        # both directions of a line are beside each other; the way into a tile is a mark in it
        across = 0.09 * dy, -0.09 * dx
        ends = [(x + part * dx + across[0], y + part * dy + across[1]) for part in (0.3, 0.7)]
        local = link.port not in NEIGHBOURS
        trace: Figure = {
            "type": "scatter",
            "mode": "markers" if local else "lines",
            "x": [x + 0.2] if local else [each[0] for each in ends],
            "y": [y + 0.2] if local else [each[1] for each in ends],
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
        shapes.append({"type": "rect", "layer": "below", "fillcolor": "#f3f5f8", **box})
        words.append({"x": x - 0.04, "y": y - 0.06, "text": f"{kind.value}<br>({x},{y})", "showarrow": False})
    hidden: Figure = {"visible": False}
    title = "flits left by it" if what == "busy" else "a flit waited and none left"
    layout: Figure = {
        "title": {"text": f"links: share of cycles in which {title}"},
        "shapes": shapes,
        "annotations": words,
        "showlegend": False,
        "margin": {"l": 10, "r": 10, "t": 34, "b": 10},
        "xaxis": {**hidden, "range": [-0.6, chip.width - 0.4]},
        "yaxis": {**hidden, "range": [chip.height - 0.4, -0.6], "scaleanchor": "x"},
    }
    return [*traces, scale], layout


def _plain(name: str) -> str:
    """A layer's name as Plotly shows it as it is: it reads tags in texts."""
    return escape(name, quote=False)


def _shade(part: float) -> str:
    """From light grey over orange to dark red."""
    stops = ((222, 226, 232), (253, 174, 97), (165, 0, 38))
    low, high, at = (stops[0], stops[1], 2 * part) if part < 0.5 else (stops[1], stops[2], 2 * part - 1)
    return "rgb({},{},{})".format(*(round(a + (b - a) * at) for a, b in zip(low, high, strict=True)))
