"""Netlists after synthesis: modules that are proven equal, one that is not, a layer that runs on a whole chip's."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshloom.hw.spec.config import load
from meshloom.tb.verify import netlist
from meshloom.tb.verify.netlist import Verdict, equal, exported, modules, run_netlist

COUNTER = """
module part_0_1 (input clk, input up, output reg [3:0] level, output low);
  assign low = level < 4'd3 & ~up;
  always @(posedge clk) level <= up ? level + 1 : level ^ 4'd5;
endmodule
module part_1_0 (input clk); endmodule
module queue (input clk, input [2:0] at, input [7:0] data, output reg [7:0] read);
  reg [7:0] words [0:7];
  always @(posedge clk) begin words[at] <= data; read <= words[at + 3'd1]; end
endmodule
"""


def test_modules_that_differ_in_their_place_alone_count_once() -> None:
    assert modules(COUNTER) == ["part_0_1", "queue"]


@pytest.mark.parametrize("module", ["part_0_1", "queue"])
def test_a_module_is_equal_to_its_netlist(module: str) -> None:
    verdict = equal(COUNTER, module)
    assert verdict is not None
    assert verdict.passed
    assert verdict.gates > 0
    assert equal(COUNTER, module, most=2) is None


def test_a_netlist_that_computes_something_else_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = netlist._PROOF.replace("design -stash gate", "chtype -set $_OR_ t:$_NAND_; design -stash gate")
    wrong = wrong.replace("synth -top {top}", "synth -top {top}; abc -g NAND")
    monkeypatch.setattr(netlist, "_PROOF", wrong)
    verdict = equal(COUNTER, "part_0_1")
    assert verdict is not None
    assert verdict.unproven > 0
    assert not verdict.passed


def test_nothing_compared_is_nothing_proven() -> None:
    assert not Verdict("part", 3, 0, 0).passed


@pytest.mark.slow  # synthesises a chip, and compiles its gates
def test_a_layer_runs_on_the_netlist_of_a_chip(tmp_path: Path) -> None:
    chip = load(netlist.CHIP)
    exported(chip, netlist.WORKLOAD, tmp_path)
    assert run_netlist(tmp_path).startswith("PASS: 64 bytes, ")
    lines = (tmp_path / "expected.hex").read_text().split()
    lines[1] = f"{int(lines[1], 16) ^ 0x10:08x}"
    (tmp_path / "expected.hex").write_text("\n".join(lines))
    assert "FAIL" in netlist.printed(tmp_path)
