"""A chip taken apart: the wires between its blocks, and what a simulator relies on at their boundaries."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meshloom.hw.assembly.partition import Block, Partition, Piece, gates, partition
from meshloom.hw.assembly.verilog import YOSYS, EmitError
from meshloom.hw.spec.config import ChipConfig, load
from meshloom.tb.build.assembly import Assembly, Following

from ..tiers import slow_but

BASE: dict[str, Any] = {"name": "small", "lanes": 4, "floorplan": ["dram core", "host spm"], "trace_records": 16}
#: Each choice that changes a block's ports is in one of them and missing in another.
CHIPS = {
    "one channel, a gap": BASE | {"floorplan": ["dram core .", "host spm core"]},
    "two channels, programs": BASE | {"noc": {"data_vcs": 2}, "programs": 2},
    "ahead of time": BASE
    | {"floorplan": ["dram core", "host dtt"], "noc": {"arrivals": True, "route_hops": 4, "data_vcs": 2}},
    "ahead of time, one channel": BASE
    | {"floorplan": ["dram core", "host dtt"], "noc": {"arrivals": True, "route_hops": 4}},
}
#: Inputs that never change, or between cycles only (the reset's pin), and those within a DRAM tile's block.
FIXED = {"tile", "host", "unit_rst"}
INSIDE = {"axi__awready"}


@pytest.fixture(scope="module", params=slow_but(CHIPS, "ahead of time"))
def assembly(request: pytest.FixtureRequest) -> Assembly:
    config = ChipConfig.model_validate(CHIPS[request.param])
    return Assembly(config, partition(config, observed=True, loops=True))


@pytest.mark.slow  # converts the tiles meanwhile
def test_meshes_that_cannot_be_converted_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the process that converts them, in its own words."""
    monkeypatch.setattr(ChipConfig, "model_dump", lambda self, **how: {"name": "none"})
    with pytest.raises(EmitError, match="floorplan"):
        partition(ChipConfig.model_validate(BASE), loops=True)


def test_every_input_is_driven_in_its_full_width(assembly: Assembly) -> None:
    parts = assembly.parts
    assert set(parts.instances) == {f"tile_{tile}" for tile in assembly.config.tiles} | {
        f"{plane}_plane" for plane in ("data", "request", "post")
    } | {"reset_unit"}
    for (name, port), pieces in parts.inputs.items():
        width = parts.blocks[parts.instances[name]].ports[port].width
        assert sum(piece.width for piece in pieces) <= width
        assert sum(piece.width for piece in pieces) == width or not any(piece.port for piece in pieces), (name, port)
        for piece in pieces:
            if piece.instance:
                source = parts.blocks[parts.instances[piece.instance]].ports[piece.port]
                assert source.output
                assert piece.first + piece.width <= source.width
    inputs = {
        (name, port)
        for name, kind in parts.instances.items()
        for port, what in parts.blocks[kind].ports.items()
        if not what.output
    }
    assert inputs - parts.inputs.keys() == set()


def test_links_join_what_the_floorplan_joins(assembly: Assembly) -> None:
    """Every tile is fed by its own router in each plane, and the clock of the host by the host."""
    config, parts = assembly.config, assembly.parts
    for tile in config.tiles:
        assert parts.inputs[f"tile_{tile}", "now"] == (Piece(32, f"tile_{config.host}", "now_out"),)
        assert parts.inputs[f"tile_{tile}", "tile"][0].value == tile
        for plane in ("data", "request", "post"):
            (piece,) = parts.inputs[f"tile_{tile}", f"{plane}_in__valid"]
            assert (piece.instance, piece.port) == (f"{plane}_plane", f"eject_{tile}__valid")


@pytest.mark.slow  # searches the netlists of all blocks
def test_outputs_are_functions_of_registers_but_for_those_that_are_named(assembly: Assembly, tmp_path: Path) -> None:
    """Searches the netlist of each block for paths from inputs to outputs."""
    result = {kind: paths(block, tmp_path) for kind, block in assembly.parts.blocks.items()}
    for name, kind in assembly.parts.instances.items():
        named = assembly.late.get(name, Following(frozenset(), frozenset()))
        for port, sources in result[kind].items():
            if sources - FIXED and not port.startswith("bus__"):
                assert port in named.outputs, f"{name}: {port} depends on {sources} of the same cycle"
                assert sources - FIXED - INSIDE <= named.inputs


def test_what_follows_inputs_follows_no_such_output(assembly: Assembly) -> None:
    """So that one more look at the blocks in question is enough."""
    late = {(name, port) for name, following in assembly.late.items() for port in following.outputs}
    for name, following in assembly.late.items():
        drivers = {
            (piece.instance, piece.port) for port in following.inputs for piece in assembly.parts.inputs[name, port]
        }
        assert drivers
        assert not drivers & late


def test_every_register_is_behind_a_gate(assembly: Assembly) -> None:
    for kind, block in assembly.parts.blocks.items():
        text = block.verilog()
        assert gates(text, kind)


def test_a_gate_or_a_register_in_the_wrong_place_is_refused() -> None:
    gate = "  clock_gate a_gate (\n    .clk(clk)\n  );\n"
    own = f"module box(clk);\n{gate}endmodule\n"
    assert gates(own, "box") == ["a_gate"]
    with pytest.raises(EmitError, match="box has clock gates in its submodules"):
        gates(own + f"module inner(clk);\n{gate}endmodule\n", "box")
    with pytest.raises(EmitError, match="box has registers in the ungated domain"):
        gates(own.replace("endmodule", "  always @(posedge clk)\n    x <= y;\nendmodule"), "box")


@pytest.mark.slow
def test_a_chip_has_one_block_for_equal_tiles_whatever_the_floorplan() -> None:
    """The netlist of a core depends on its own parameters only, so chips can share its library."""
    first, second = (
        _blocks(ChipConfig.model_validate(BASE | {"floorplan": floorplan}))
        for floorplan in (["dram core", "host spm"], ["core core", "host dram"])
    )
    assert first["tile_core"].rtlil == second["tile_core"].rtlil
    other = _blocks(ChipConfig.model_validate(BASE | {"spm_words": 64}))
    assert {name for name in first if first[name].rtlil != other[name].rtlil} == {"tile_spm", "tile_host"}, "CONFIG"


@pytest.mark.slow
def test_cores_come_first() -> None:
    """They take longest to compile."""
    heard: list[str] = []
    partition(load("tiny"), on_block=lambda block: heard.append(block.name))
    assert heard[0] == "tile_core"
    assert len(heard) == len(set(heard)) == 8


def _blocks(config: ChipConfig) -> dict[str, Block]:
    result: Partition = partition(config, observed=True, loops=True)
    return dict(result.blocks)


def paths(block: Block, folder: Path) -> dict[str, set[str]]:
    """The inputs on which each output of a block depends without a register in between."""
    (folder / "block.il").write_text(block.rtlil)
    script = (
        f"read_rtlil block.il; hierarchy -top {block.name}; proc; flatten; opt; memory_collect; "
        "opt_clean; write_json block.json"
    )
    subprocess.run([sys.executable, "-c", YOSYS, script], cwd=folder, check=True, capture_output=True)
    module = json.loads((folder / "block.json").read_text())["modules"][block.name]
    drivers: dict[int, list[int | str]] = {}
    for cell in module["cells"].values():
        drivers |= dict(_drivers(cell))
    inputs = {
        net: name for name, port in module["ports"].items() if port["direction"] == "input" for net in port["bits"]
    }
    return {
        name: _reach(port["bits"], drivers, inputs)
        for name, port in module["ports"].items()
        if port["direction"] == "output"
    }


def _reach(nets: list[int | str], drivers: dict[int, list[int | str]], inputs: dict[int, str]) -> set[str]:
    waiting, seen, result = list(nets), set[int | str](), set[str]()
    while waiting:
        net = waiting.pop()
        if isinstance(net, str) or net in seen:
            continue
        seen.add(net)
        if net in inputs:
            result.add(inputs[net])
        else:
            waiting += drivers.get(net, [])
    return result


def _drivers(cell: dict[str, Any]) -> Iterator[tuple[int, list[int | str]]]:
    """Each net that a cell drives, with those on which it depends; bit by bit where the cell works so."""
    kind, nets = cell["type"].lstrip("$"), cell["connections"]
    if "dff" in kind or kind == "clock_gate":
        return  # registers
    if kind.startswith("array_loops"):  # but for the row that is read, registers are between inputs and outputs
        yield from ((net, nets["row"]) for port, some in nets.items() if port == "result" for net in some)
        return
    assert cell["type"].startswith("$"), f"what is between the inputs and outputs of {kind} is not known"
    if kind in ("mem", "mem_v2"):
        size, width = (int(cell["parameters"][name], 2) for name in ("ABITS", "WIDTH"))
        for port, clocked in enumerate(reversed(cell["parameters"]["RD_CLK_ENABLE"])):
            for net in nets["RD_DATA"][port * width : (port + 1) * width]:
                if clocked == "0":
                    yield net, nets["RD_ADDR"][port * size : (port + 1) * size]
    elif re.fullmatch("mux|pmux|and|or|xor|not", kind):
        select = nets.get("S", [])
        for bit, net in enumerate(nets["Y"]):
            operands = [*nets["A"][bit : bit + 1], *nets.get("B", [])[bit :: len(nets["Y"])]]
            yield net, [*(operands if bit < len(nets["A"]) else nets["A"][-1:] + nets.get("B", [])[-1:]), *select]
    else:
        sources = [net for port, some in nets.items() if cell["port_directions"][port] == "input" for net in some]
        for port, some in nets.items():
            if cell["port_directions"][port] == "output":
                yield from ((net, sources) for net in some)
