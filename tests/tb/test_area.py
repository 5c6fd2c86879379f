"""Areas of chips: each module is synthesised once and counted as often as it is there; nothing is made unless asked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from meshloom.hw.assembly import verilog
from meshloom.hw.spec.config import TileKind, load
from meshloom.tb.build import area as measured
from meshloom.tb.build import synthesis
from meshloom.tb.build.builder import BuildError
from meshloom.tb.compare.area import area_of
from meshloom.tb.results.area import AreaFigures
from meshloom.tb.studies.points.areas import TileArea
from meshloom.tb.studies.points.runs import chip_of

TINY = load("tiny")


def module(name: str, *, gates: int = 0, flops: int = 0, memory: str = "", cells: tuple[str, ...] = ()) -> str:
    """RTLIL of a module with an output for each of its gates, flip-flops and cells, and with a memory."""
    lines = [f"module \\{name}", "  wire input 1 \\clk", "  wire width 8 input 2 \\b"]
    lines += [f"  wire output {3 + each} \\y{each}" for each in range(max(1, gates + flops + len(cells)))]
    if memory:
        lines.append(f"  memory {memory} \\m")
    for each in range(gates):
        lines += [f"  cell $xor $x{each}", *(f"    parameter \\{side}_SIGNED 0" for side in "AB")]
        lines += [*(f"    parameter \\{side}_WIDTH 1" for side in "ABY"), f"    connect \\A \\b [{each}]"]
        lines += ["    connect \\B \\b [7]", f"    connect \\Y \\y{each}", "  end"]
    for each in range(gates, gates + flops):
        lines += [f"  cell $dff $f{each}", "    parameter \\WIDTH 1", "    parameter \\CLK_POLARITY 1'1"]
        lines += ["    connect \\CLK \\clk", f"    connect \\D \\b [{6 - each}]", f"    connect \\Q \\y{each}", "  end"]
    for each, kind in enumerate(cells, gates + flops):
        other = " ".join(f"\\b [{(bit + each) % 8}]" for bit in range(8))  # alike, they would be merged
        lines += [f"  cell \\{kind} \\i{each}", "    connect \\clk \\clk", f"    connect \\b {{ {other} }}"]
        lines += [f"    connect \\y0 \\y{each}", "  end"]
    return "\n".join((*lines, "end", ""))


CHIP = "".join(
    (
        module("chip", cells=("chip__data_plane", "tile_core", "tile_core", "tile_dram")),
        module("chip__data_plane", cells=("chip__data_plane__router_0_0", "chip__data_plane__router_1_0")),
        module("chip__data_plane__router_0_0", gates=3, memory="width 10 size 4"),
        module("chip__data_plane__router_1_0", gates=3, memory="width 10 size 4"),
        module("tile_core", gates=1, flops=1, cells=("queue", "queue", "array_2x2", "array_2x2")),
        module("queue", flops=1, memory="width 8 size 16"),
        module("array_2x2", gates=5, flops=1),
        module("tile_dram", gates=2),
    )
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (measured, synthesis):
        monkeypatch.setattr(place, "OUTPUT", tmp_path)


@pytest.mark.usefixtures("store")
def test_each_module_is_counted_as_often_as_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verilog, "rtlil", lambda config: CHIP)
    assert area_of(TINY, measure=False) is None
    texts: list[str] = []
    figures = area_of(TINY, measure=True, on_progress=texts.append)
    assert figures is not None
    parts = {part.name: (part.count, part.cells, part.flip_flops, part.memory_bits) for part in figures.parts}
    assert parts == {
        "core tile": (2, 1 + 1 + 2, 1 + 2, 2 * 128),
        "array block 2x2": (4, 6, 1, 0),
        "data plane": (1, 2 * 3, 0, 2 * 40),
        "dram tile": (1, 2, 0, 0),
    }
    assert (figures.cells, figures.flip_flops, figures.memory_bits) == (40, 10, 592)
    assert sum("router" in line for line in texts) == 1  # both have the same ports
    monkeypatch.setattr(measured, "_measured", None)
    assert area_of(TINY, measure=False) == area_of(TINY, measure=True) == figures
    assert area_of(load("quad8"), measure=False) is None
    with pytest.raises(ValidationError, match="is not 40, the sum over the parts"):
        AreaFigures.model_validate(figures.model_dump() | {"cells": 41})


@pytest.mark.usefixtures("store")
def test_what_the_tool_says_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verilog, "rtlil", lambda config: CHIP.replace("cell $xor", "cell $nor_such"))
    with pytest.raises(BuildError, match=r"yosys failed on tiny-"):
        area_of(TINY, measure=True)
    assert area_of(TINY, measure=False) is None


#: The smallest chip that computes anything.
CHANGES = (("floorplan", ("dram core host",)), ("rows", 2), ("cols", 2))


def without(text: str, module: str) -> str:
    """RTLIL in which a module has ports and nothing in it."""
    match = next(each for each in verilog.MODULE.finditer(text) if each[1] == module)
    ports = re.findall(r"^  wire .*(?:in|out)put .*$", match[2], re.MULTILINE)
    return text.replace(match[0], "\n".join((f"module \\{module}", *ports, "end")))


@pytest.mark.slow
def test_a_tile_is_what_it_is_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """As part of a chip, whose core, which takes minutes to synthesise, is empty here."""
    small, real = chip_of("tiny", CHANGES), verilog.rtlil
    monkeypatch.setattr(verilog, "rtlil", lambda config: without(real(config), "tile_core"))
    figures = area_of(small, measure=True)
    assert figures is not None
    parts = {part.name: part for part in figures.parts}
    alone = TileArea(TileKind.DRAM, "tiny", CHANGES).measure(lambda what: None)
    assert parts["dram tile"].cells == pytest.approx(alone.cells, rel=0.02)
    assert parts["dram tile"].flip_flops == pytest.approx(alone.flip_flops, rel=0.02)
    assert parts["core tile"].cells == 0
    assert parts["data plane"].cells > 500
