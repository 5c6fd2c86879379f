"""Synthesis for an ECP5: products in rows of sums, accumulators in their carry chains, what Yosys does by itself."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from meshloom.hw.spec.config import load
from meshloom.tb.build.builder import BuildError
from meshloom.tb.build.fpga import mapping
from meshloom.tb.build.fpga.boards import Room
from meshloom.tb.build.fpga.carries import without_feeds
from meshloom.tb.build.fpga.mapping import SUMS, _in_block_ram, _without_multiplier, synthesise
from meshloom.tb.build.synthesis import yosys

CHIP = load(Path(__file__).parents[2] / "examples" / "boards" / "fpga4_small.toml")
#: What cells of an ECP5 do, as Verilog for any simulator; block RAM and pads are left out.
_PLAIN = (
    "delete =A:blackbox =A:whitebox; read_verilog -overwrite +/lattice/cells_sim_ecp5.v; "
    "setattr -mod -unset lib_whitebox -unset abc9_box *; hierarchy -top {top}; proc; flatten; opt_clean; "
    "write_verilog -noattr {out}"
)


def _plain(folder: Path, netlist: str, top: str) -> None:
    """Writes `cells.v` with a module `netlist` of what its cells do."""
    design = json.loads((folder / netlist).read_text())
    for cell in design["modules"][top]["cells"].values():  # Yosys has another way to say that there is no net
        cell["connections"] = {port: bits for port, bits in cell["connections"].items() if bits != ["x"]}
    (folder / "read.json").write_text(json.dumps(design))
    yosys(f"read_json read.json; rename {top} netlist; {_PLAIN.format(top='netlist', out='cells.v')}", folder, "cells")


def _simulated(folder: Path, *sources: str) -> str:
    """What the module `bench` prints in Icarus Verilog."""
    subprocess.run(["iverilog", "-g2012", "-s", "bench", "-o", "sim", *sources], cwd=folder, check=True)
    return subprocess.run(["vvp", "-n", "sim"], cwd=folder, check=True, capture_output=True, text=True).stdout


PRODUCTS = """
module bench;
  reg signed [7:0] a, b;
  wire signed [15:0] y;
  integer i, wrong = 0;
  product product(.a(a), .b(b), .y(y));
  initial begin
    for (i = 0; i < 65536; i = i + 1) begin
      {a, b} = i;
      #1 if (y !== a * b) wrong = wrong + 1;
    end
    $display("%0d wrong of %0d", wrong, i);
  end
endmodule
"""


@pytest.mark.slow  # starts Yosys and Icarus
def test_a_product_in_rows_is_right_for_all_bytes(tmp_path: Path) -> None:
    (tmp_path / "bench.v").write_text(PRODUCTS)
    product = "module product(input signed [7:0] a, input signed [7:0] b, output signed [15:0] y); assign y = a * b; "
    (tmp_path / "product.v").write_text(f"{product} endmodule")
    read = f"read_verilog product.v; hierarchy -top product; proc; techmap -map {SUMS} t:$mul"
    yosys(f"{read}; select -assert-none t:$mul; {_PLAIN.format(top='product', out='cells.v')}", tmp_path, "a product")
    assert _simulated(tmp_path, "bench.v", "cells.v").strip() == "0 wrong of 65536"


SYSTEM = """
module system(input clk, input rst, input signed [15:0] a, input signed [15:0] b, input valid, input first, input done,
              input row, output signed [31:0] left, output signed [31:0] right);
  array_2x2 array (.clk(clk), .rst(rst), .a__0(a[7:0]), .a__1(a[15:8]), .b__0(b[7:0]), .b__1(b[15:8]), .valid(valid),
    .first(first), .done(done), .row(row), .result__0(left), .result__1(right));
endmodule
"""
BENCH = """
module bench;
  reg clk = 0, rst = 1, valid, first, done, row;
  reg [15:0] a, b;
  wire [31:0] left, right, netlist_left, netlist_right;
  integer i, wrong = 0, moves = 0;
  system system(clk, rst, a, b, valid, first, done, row, left, right);
  netlist netlist(.clk(clk), .rst(rst), .a(a), .b(b), .valid(valid), .first(first), .done(done), .row(row),
                  .left(netlist_left), .right(netlist_right));
  initial begin
    for (i = 0; i < 4000; i = i + 1) begin
      a = i % 7 == 0 ? 16'h8080 : $random;
      b = i % 5 == 0 ? 16'h8080 : $random;
      {valid, row} = {i % 11 != 0, i[0]};
      first = i % 13 == 1;
      done = i % 13 == 0;
      #1 clk = 1;
      rst = i < 2;
      #1 clk = 0;
      #1 if (i > 40) begin
        wrong = wrong + (left !== netlist_left) + (right !== netlist_right);
        moves = moves + (left !== 0);
      end
    end
    $display("%0d wrong, %0d", wrong, moves > 2000);
  end
endmodule
"""


def _multiplier(cell: dict[str, Any]) -> str:
    """A multiplier without registers, of which the Verilog of the cells has the ports alone."""
    inputs, outputs = (
        [port for port, way in cell["port_directions"].items() if way == each] for each in ("input", "output")
    )
    words = {
        name: ", ".join(f"{name}{bit}" for bit in reversed(range(bits)))
        for name, bits in (("A", 18), ("B", 18), ("P", 36))
    }
    return dedent(f"""\
        module MULT18X18D(input {", ".join(inputs)}, output {", ".join(outputs)});
          {" ".join(f'parameter {name} = "";' for name in cell["parameters"])}
          wire signed [18:0] a = {{SIGNEDA & A17, {words["A"]}}}, b = {{SIGNEDB & B17, {words["B"]}}};
          assign {{{words["P"]}}} = a * b;
        endmodule
        """)


@pytest.mark.slow  # seconds of Yosys
@pytest.mark.parametrize(("multipliers", "rest"), [(None, 4), (3, 3), (0, 0)])
def test_the_cells_of_an_array_compute_what_it_does(multipliers: int | None, rest: int, tmp_path: Path) -> None:
    from amaranth.back import verilog

    from meshloom.hw.core.array import ArrayBlock, sum_bits

    array = verilog.convert(ArrayBlock(2, 2, True, sum_bits(CHIP)), name="array_2x2", emit_src=False)
    (tmp_path / "array.v").write_text(array)
    (tmp_path / "system.v").write_text(SYSTEM)
    (tmp_path / "bench.v").write_text(BENCH)
    synthesise(
        CHIP,
        "read_verilog array.v system.v",
        "system",
        "system.json",
        tmp_path,
        None if multipliers is None else Room(24288, 56, multipliers),
    )
    cells = json.loads((tmp_path / "system.json").read_text())["modules"]["system"]["cells"]
    kinds = Counter(cell["type"] for cell in cells.values())
    assert kinds["MULT18X18D"] == rest
    # the switch of an accumulator is in its carry chain: no LUT for each of its bits
    assert kinds["LUT4"] < 4 * sum_bits(CHIP) + (4 - rest) * 20
    assert kinds["CCU2C"] >= 4 * (sum_bits(CHIP) + 1) // 2
    multiplier = next((cell for cell in cells.values() if cell["type"] == "MULT18X18D"), None)
    (tmp_path / "multiplier.v").write_text(_multiplier(multiplier) if multiplier else "")
    _plain(tmp_path, "system.json", "system")
    files = ["bench.v", "system.v", "array.v", "cells.v", "multiplier.v"]
    assert _simulated(tmp_path, *files).strip() == "0 wrong, 1"


SUMS_OF_ALL_WIDTHS = [5, 6, 7, 8, 17, 24]
CARRIES = """
module bench;
  reg signed [23:0] a, b;
  reg c;
  wire [{total}:0] plain, netlist;
  integer i, wrong = 0;
  sums sums(.a(a), .b(b), .c(c), .y(plain));
  netlist cells(.a(a), .b(b), .c(c), .y(netlist));
  initial begin
    for (i = 0; i < 20000; i = i + 1) begin
      a = $random >>> (i % 20);
      b = i % 3 ? $random >>> (i % 23) : i % 2 ? a : ~a;
      c = $random;
      #1 if (plain !== netlist) wrong = wrong + 1;
    end
    $display("%0d wrong of %0d", wrong, i);
  end
endmodule
"""


@pytest.mark.slow  # seconds of Yosys
def test_sums_differences_and_comparisons_are_right_in_carry_chains(tmp_path: Path) -> None:
    results: list[str] = []
    for width in SUMS_OF_ALL_WIDTHS:
        a, b = f"a[{width - 1}:0]", f"b[{width - 1}:0]"
        results += [
            f"{{1'b0, {a}}} + {b} + c",
            f"{{1'b0, {a}}} - {b}",
            f"c ? {a} - {b} : {a} + {b}",
            f"{{{width}'d0, {a} < {b}}}",
        ]
        results += [f"{{{width}'d0, $signed({a}) < $signed({b})}}", f"{{{width}'d0, {a} >= {b}}}", f"{{1'b0, {a}}} + 1"]
    bits = [width + 1 for width in SUMS_OF_ALL_WIDTHS for _ in range(7)]
    wires = "".join(
        f"wire [{size - 1}:0] w{i} = {text};\n" for i, (size, text) in enumerate(zip(bits, results, strict=True))
    )
    whole = ", ".join(f"w{i}" for i in range(len(bits)))
    text = f"module sums(input signed [23:0] a, input signed [23:0] b, input c, output [{sum(bits) - 1}:0] y);\n{wires}"
    (tmp_path / "read.v").write_text(f"{text}assign y = {{{whole}}};\nendmodule\n")
    (tmp_path / "bench.v").write_text(CARRIES.format(total=sum(bits) - 1))
    synthesise(CHIP, "read_verilog read.v", "sums", "cells.json", tmp_path)
    cells = json.loads((tmp_path / "cells.json").read_text())["modules"]["sums"]["cells"]
    carries = [cell["connections"] for cell in cells.values() if cell["type"] == "CCU2C"]
    come, go = ([each[port][0] for each in carries] for port in ("CIN", "COUT"))
    # a chain ends without a carry that nextpnr would lead out of it, and those of odd lengths begin by themselves
    assert go.count("x") >= len(bits) // 2
    assert {each for each in come if isinstance(each, int)} == {each for each in go if each != "x"}
    assert come.count("x") >= len(SUMS_OF_ALL_WIDTHS)
    _plain(tmp_path, "cells.json", "sums")
    assert _simulated(tmp_path, "bench.v", "read.v", "cells.v").strip() == "0 wrong of 20000"


def _carry(**changes: Any) -> dict[str, Any]:
    """A pair of bits of a chain: its sums are 10 and 11, nothing reads the second."""
    inputs, outputs = [f"{port}{half}" for port in "ABCD" for half in range(2)] + ["CIN"], ["S0", "S1", "COUT"]
    wires: dict[str, list[Any]] = {port: [number] for number, port in enumerate(inputs, 2)}
    wires |= {"CIN": ["0"], "S0": [10], "S1": [11], "COUT": ["x"]}
    parameters = {"INIT0": "10" * 8, "INIT1": "01" * 8, "INJECT1_0": "NO", "INJECT1_1": "NO"}
    return {
        "type": "CCU2C",
        "port_directions": dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output"),
        "connections": wires | {name: bits for name, bits in changes.items() if name in wires},
        "parameters": parameters | {name: text for name, text in changes.items() if name in parameters},
    }


def _shown(*bits: Any) -> dict[str, Any]:
    return {"ports": {"sum": {"bits": list(bits)}}}


@pytest.mark.parametrize("carry", ["0", "1"])
def test_an_odd_chain_makes_its_carry_by_itself(carry: str) -> None:
    cell = _carry(CIN=[carry])
    module = _shown(10) | {"cells": {"sum": cell}}
    without_feeds(module)
    wires, texts = cell["connections"], cell["parameters"]
    assert (wires["CIN"], wires["S0"], wires["S1"]) == (["x"], ["x"], [10])
    assert [wires[f"{port}0"] for port in "ABCD"] == [["1"]] * 4
    assert [wires[f"{port}1"] for port in "ABCD"] == [[2], [4], [6], [8]]
    # a carry is made if the whole function of ones is 0 and that of the first two is 1
    assert (texts["INIT0"][0], texts["INIT0"][-4], texts["INIT1"]) == ("0", carry, "10" * 8)


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({}, (10, 11)),  # two bits: there is no place
        ({"CIN": [30]}, (10,)),  # the carry is no constant
        ({"INJECT1_0": "YES"}, (10,)),
        ({"COUT": [31]}, (10, 31)),  # the last carry is read
    ],
)
def test_other_chains_stay_as_they_are(change: dict[str, Any], shown: tuple[int, ...]) -> None:
    cell = _carry(**change)
    module = _shown(*shown) | {"cells": {"sum": cell}}
    without_feeds(module)
    assert cell == _carry(**change)


def test_a_chain_stays_whose_carry_is_read_on_its_way() -> None:
    cells = {"low": _carry(COUT=[31]), "high": _carry(CIN=[31], S0=[12], S1=[13])}
    before = json.loads(json.dumps(cells))
    without_feeds(_shown(10, 11, 12, 31) | {"cells": cells})
    assert cells == before
    without_feeds(_shown(10, 11, 12) | {"cells": cells})
    low, high = cells["low"]["connections"], cells["high"]["connections"]
    assert [low["S1"], high["S0"], high["S1"]] == [[10], [11], [12]]
    assert (low["COUT"], high["CIN"]) == ([31], [31])


RING = """
module ring(input clk, input [3:0] to, input [3:0] from, input [71:0] word, output reg [71:0] read);
  (* no_rw_check = 1 *) reg [71:0] words [0:15];
  always @(posedge clk) begin words[to] <= word; read <= words[from]; end
endmodule
"""


@pytest.mark.slow  # seconds of Yosys
@pytest.mark.parametrize(("room", "blocks"), [(Room(83640, 208, 156), 0), (Room(70, 2, 0), 2), (Room(70, 1, 0), 0)])
def test_rings_are_in_block_ram_where_luts_are_short(room: Room, blocks: int, tmp_path: Path) -> None:
    (tmp_path / "ring.v").write_text(RING)
    synthesise(CHIP, "read_verilog ring.v", "ring", "ring.json", tmp_path, room)
    cells = json.loads((tmp_path / "ring.json").read_text())["modules"]["ring"]["cells"]
    kinds = Counter(cell["type"] for cell in cells.values())
    assert (kinds["DP16KD"], kinds["TRELLIS_DPR16X4"]) == (blocks, 0 if blocks else 18)


def test_small_memories_that_need_nothing_around_a_block_ram_move_there() -> None:
    def memory(width: int, size: int, **attributes: str) -> dict[str, Any]:
        return {"width": width, "size": size, "attributes": attributes}

    free = {"no_rw_check": f"{1:032b}"}
    memories = {
        "first": memory(256, 16, **free),
        "old": memory(256, 16),
        "false": memory(256, 16, no_rw_check=f"{0:032b}"),
        "narrow": memory(8, 16, **free),
        "large": memory(256, 128, **free),
        "second": memory(256, 16, **free),
        "third": memory(36, 8, **free),
    }
    assert _in_block_ram(memories, 16) == ["first", "second"]
    assert _in_block_ram(memories, 15) == ["first", "third"]
    assert _in_block_ram(memories, 0) == []


def _products(*widths: tuple[int, int, int]) -> dict[str, Any]:
    return {
        f"product_{index}": {
            "type": "$mul",
            "parameters": {f"{port}_WIDTH": f"{each:b}" for port, each in zip("ABY", widths, strict=True)},
        }
        for index, widths in enumerate(widths)
    } | {"sum": {"type": "$add"}}


@pytest.mark.parametrize(
    ("most", "names"),
    [
        (None, []),
        (8, []),  # two for 32 x 17 bits, one for each other product that is worth one
        (7, ["product_0"]),
        (5, ["product_0", "product_1", "product_3"]),
        (0, ["product_0", "product_1", "product_2", "product_3", "product_4"]),
    ],
)
def test_products_of_an_array_do_without_multipliers_evenly(most: int | None, names: list[str]) -> None:
    element = (8, 8, 16)
    cells = _products(*[element] * 5, (32, 17, 48), (3, 10, 13), (1, 30, 30), (3, 4, 7))
    assert _without_multiplier(cells, most) == names


def test_luts_that_compute_something_else_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def says(script: str, folder: Path, name: str) -> str:
        (folder / "contents.json").write_text('{"modules": {}}')
        return "ABC: Networks are NOT EQUIVALENT.  Time = 0.02 sec"

    monkeypatch.setattr(mapping, "yosys", says)
    with pytest.raises(BuildError, match="ABC says that its LUTs do not compute what they were made of"):
        synthesise(CHIP, "read_verilog chip.v", "chip", "chip.json", tmp_path)
