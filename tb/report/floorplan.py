"""A chip on a page: its parameters, and its floorplan as a picture."""

from __future__ import annotations

from meshloom.hw.spec.config import ChipConfig, TileKind, tile_position
from meshloom.hw.spec.routes import NEIGHBOURS

from .markup import escape, table, whole

#: Pixels of a tile and from one tile to the next.
_TILE, _PITCH = 64, 84


def chip_section(chip: ChipConfig) -> str:
    """The picture beside the table."""
    return f'<div class="pair">{floorplan(chip)}<div>{_parameters(chip)}</div></div>'


def floorplan(chip: ChipConfig) -> str:
    """An SVG: tiles, and the links between their routers."""
    links: list[str] = []
    boxes: list[str] = []
    for y, row in enumerate(chip.floorplan):
        for x, kind in enumerate(row):
            middle = _TILE // 2 + _PITCH * x, _TILE // 2 + _PITCH * y
            for right, down in ((1, 0), (0, 1)):
                if x + right < chip.width and y + down < chip.height:
                    end = middle[0] + _PITCH * right, middle[1] + _PITCH * down
                    links.append(f'<line x1="{middle[0]}" y1="{middle[1]}" x2="{end[0]}" y2="{end[1]}"/>')
            boxes.append(_tile(kind, x, y, middle))
    size = _PITCH * chip.width - _PITCH + _TILE, _PITCH * chip.height - _PITCH + _TILE
    words = f"floorplan of {chip.name}: {chip.width} x {chip.height} tiles"
    return (
        f'<svg class="floorplan" role="img" aria-label="{escape(words)}" viewBox="-2 -2 {size[0] + 4} {size[1] + 4}" '
        f'width="{size[0]}">{"".join(links)}{"".join(boxes)}</svg>'
    )


def _tile(kind: TileKind, x: int, y: int, middle: tuple[int, int]) -> str:
    if kind is TileKind.NONE:
        return f'<circle cx="{middle[0]}" cy="{middle[1]}" r="5"/>'
    left, top = _PITCH * x, _PITCH * y
    return (
        f'<rect class="{kind.value}" x="{left}" y="{top}" width="{_TILE}" height="{_TILE}" rx="6"/>'
        f'<text x="{middle[0]}" y="{middle[1] - 2}">{kind.value}</text>'
        f'<text class="place" x="{middle[0]}" y="{middle[1] + 14}">({x},{y})</text>'
    )


def _parameters(chip: ChipConfig) -> str:
    """What one compares chips by; a chip's TOML file has all fields."""
    core, lanes = chip.core, chip.lanes

    def kib(words: int, width: int = lanes) -> str:
        return f"{words * width / 1024:,.1f} KiB"

    rows = [
        ("cores", f"{len(chip.cores)}, each with an array of {chip.rows} x {chip.cols} PEs"),
        ("PEs", whole(len(chip.cores) * chip.rows * chip.cols)),
        ("memory word", f"{lanes} bytes"),
        ("A, B (operands) of a core", f"{kib(core.a_words)}, {kib(core.b_words)}"),
        ("ACC (sums), OUT (results)", f"{kib(core.acc_words, 4 * lanes)}, {kib(core.out_words)}"),
        ("VEC (vector unit)", f"{kib(core.vec_words)}, {core.vec_windows} windows at once"),
        ("scratchpad banks", f"{len(chip.spms)} of {kib(chip.spm_words)}" if chip.spms else "none"),
        ("DRAM channels", f"{len(chip.channels)}, {chip.dram.bytes_per_cycle} bytes a cycle each"),
        (
            "DRAM latency",
            f"{chip.dram.latency} cycles" + ("" if chip.dram.banks is None else " and what its rows take"),
        ),
        ("DRAM of a channel", kib(chip.dram.words)),
        (
            "NoC",
            f"{chip.width} x {chip.height} mesh, {lanes} bytes a cycle and link, {chip.noc.data_vcs} virtual "
            f"channel{'s' * (chip.noc.data_vcs > 1)}, {chip.noc.data_routing.value} routing",
        ),
        ("router buffers", f"{chip.noc.data_depth} flits an input"),
        ("programs at once", str(chip.programs or 1)),
        ("digest", chip.digest[:12]),
    ]
    return table(("", ""), rows, left=2)


def link_points(tile: int, port: str) -> tuple[tuple[float, float], ...]:
    """Where a link is drawn on a floorplan of unit pitch: the ends of a line, or one point if it leads into its tile.
    Both directions between two tiles are beside each other."""
    x, y = tile_position(tile)
    if port not in NEIGHBOURS:
        return ((x + 0.2, y + 0.2),)
    dx, dy = NEIGHBOURS[port]
    across = 0.09 * dy, -0.09 * dx
    return tuple((x + part * dx + across[0], y + part * dy + across[1]) for part in (0.3, 0.7))
