"""Longest paths of a netlist of ECP5 cells: what they join, how long they are, by delays that are added up by hand."""

from __future__ import annotations

from typing import Any

import pytest

from meshloom.tb.build.fpga import timing
from meshloom.tb.build.fpga.timing import NET, longest_paths, part

#: A cell: its kind, what comes in, and what goes out, by port; nets by number.
Cell = tuple[str, dict[str, int], dict[str, int]]
CLOCK = 99


def netlist(cells: dict[str, Cell], names: dict[str, int]) -> dict[str, Any]:
    """As Yosys writes it."""
    modules = {
        name: {
            "type": kind,
            "parameters": {},
            "port_directions": dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output"),
            "connections": {port: [net] for port, net in (inputs | outputs).items()},
        }
        for name, (kind, inputs, outputs) in cells.items()
    }
    return {"modules": {"top": {"cells": modules, "netnames": {name: {"bits": [net]} for name, net in names.items()}}}}


def flip_flop(d: int, q: int) -> Cell:
    return "TRELLIS_FF", {"CLK": CLOCK, "DI": d}, {"Q": q}


def lut(a: int, z: int) -> Cell:
    return "LUT4", {"A": a, "B": a}, {"Z": z}


FROM_CLOCK, THROUGH_LUT, THROUGH_MUX = 0.52, 0.24, 0.2


def test_a_path_goes_from_register_to_register_by_the_longer_way() -> None:
    """Two LUTs one way, one the other; the name of a register is that of its output."""
    cells = {
        "a.x_LUT4_Z": lut(1, 2), "a.y_LUT4_Z": lut(2, 3), "b.z_LUT4_Z": ("LUT4", {"A": 1, "B": 3}, {"Z": 4}),
        "ff0": flip_flop(4, 1), "ff1": flip_flop(4, 5),
    }  # fmt: skip
    paths = longest_paths(netlist(cells, {"a.first": 1, "b.second": 5}), "top", depth=1)
    assert [(path.start, path.end, path.cells, path.through) for path in paths] == [
        ("a.first", "a.first", 3, ("a", "b", "a")),
        ("a.first", "b.second", 3, ("a", "b")),
    ]
    assert paths[0].delay == pytest.approx(FROM_CLOCK + 3 * (NET + THROUGH_LUT) + NET)


def test_wires_inside_a_slice_take_no_time() -> None:
    """LUTs and the multiplexer behind them; the multiplexer's own choice comes over a net."""
    cells: dict[str, Cell] = {
        "l0": lut(1, 2), "l1": lut(1, 3), "m": ("PFUMX", {"ALUT": 2, "BLUT": 3, "C0": 6}, {"Z": 4}),
        "f0": flip_flop(4, 1), "f1": flip_flop(1, 6),
    }  # fmt: skip
    (path,) = longest_paths(netlist(cells, {"q": 1, "choice": 6}), "top")
    assert path.delay == pytest.approx(FROM_CLOCK + NET + THROUGH_LUT + THROUGH_MUX + NET)


@pytest.mark.parametrize("pairs", [1, 2, 5])
def test_carries_are_fast(pairs: int) -> None:
    cells: dict[str, Cell] = {"f0": flip_flop(50, 1)}
    for number in range(pairs):
        carry = {"CIN": 9 + number} if number else {}
        cells[f"c{number}"] = "CCU2C", {"A0": 1, **carry}, {"COUT": 10 + number, "S1": 30 + number}
    cells["f1"] = flip_flop(30 + pairs - 1, 8)
    (path,) = longest_paths(netlist(cells, {"q": 1, "sum": 8}), "top")
    into, along, out = 0.45, 0.07, 0.44
    assert path.delay == pytest.approx(FROM_CLOCK + NET + into + along * max(0, pairs - 2) + out + NET)


def test_memories_and_multipliers_end_and_begin_paths() -> None:
    """A block RAM is a register at both sides; LUTs as memory are read through, and written at the clock."""
    cells: dict[str, Cell] = {
        "ram": ("DP16KD", {"CLKA": CLOCK, "ADA0": 3}, {"DOA0": 1}),
        "small": ("TRELLIS_DPR16X4", {"WCK": CLOCK, "RAD": 1, "DI": 1}, {"DO": 2}),
        "product": ("MULT18X18D", {"CLK0": CLOCK, "A0": 2}, {"P0": 3}),
    }
    paths = longest_paths(netlist(cells, {"r.ram": 1, "s.small": 2, "p.product": 3}), "top")
    assert [(path.start, path.end) for path in paths] == [("r.ram", "r.ram"), ("r.ram", "s.small")]
    assert paths[0].delay == pytest.approx(5.6 + NET + THROUGH_LUT + NET + 3.9 + NET)
    assert paths[1].delay == pytest.approx(5.6 + NET)


def test_a_loop_without_a_register_is_an_error() -> None:
    cells = {"l0": lut(1, 2), "l1": lut(2, 1), "f": flip_flop(1, 3)}
    with pytest.raises(ValueError, match=r"a loop without a register: .*first"):
        longest_paths(netlist(cells, {"first": 1, "second": 2}), "top")


def test_names_that_tools_gave_are_the_last_choice() -> None:
    text = netlist({"f0": flip_flop(1, 1)}, {"a.b.$auto$1": 1, "a.b.x_LUT4_Z": 1, "a.word[3]": 1})
    (path,) = longest_paths(text, "top")
    assert (path.start, path.end) == ("a.word", "a.word")
    assert part("tile_1.mover.words.level", 2) == "tile_1.mover"
    assert timing.part("level", 2) == ""
