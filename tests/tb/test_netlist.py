"""Netlists after synthesis: modules that are proven equal, one that is not, a bench that runs on gates."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshloom.tb.build.builder import BuildError
from meshloom.tb.verify import netlist
from meshloom.tb.verify.netlist import Verdict, equal, modules, part, printed, run_netlist

COUNTER = """
module part_0_1 (input clk, input up, output reg [3:0] level, output low);
  assign low = level < 4'd3 & ~up;
  always @(posedge clk) level <= up ? level + 1 : level ^ 4'd5;
endmodule
module part_1_0 (input clk);
endmodule
module twins (input clk, input ready, input wanted, input valid, output moves, output busy, output blocked);
  wire offers = wanted & valid;
  assign moves = busy ? offers : 1'h0;
  assign busy = ready & offers;
  assign blocked = wanted & ~busy;
endmodule
module queue (input clk, input [2:0] at, input [7:0] data, output reg [7:0] read);
  reg [7:0] words [0:7];
  always @(posedge clk) begin words[at] <= data; read <= words[at + 3'd1]; end
endmodule
"""


def test_modules_that_differ_in_their_place_alone_count_once() -> None:
    assert modules(COUNTER) == ["part_0_1", "queue", "twins"]


@pytest.mark.parametrize("module", ["part_0_1", "queue", "twins"])
def test_a_module_is_equal_to_its_netlist(module: str) -> None:
    """Also one whose outputs are the same net."""
    verdict = equal(COUNTER, module)
    assert verdict is not None
    assert verdict.passed
    assert verdict.bits > 4
    assert equal(COUNTER, module, most=2) is None


def test_a_module_is_read_with_those_that_it_is_made_of() -> None:
    text = COUNTER + "\nmodule both (input clk); queue first(.clk(clk)); endmodule\n"
    text = text.replace("; endmodule", ";\nendmodule")
    assert modules(part(text, "both")) == ["both", "queue"]
    assert modules(part(text, "queue")) == ["queue"]


def test_a_netlist_that_computes_something_else_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = netlist._PROOF.replace("design -stash gate", "chtype -set $_OR_ t:$_NAND_; design -stash gate")
    wrong = wrong.replace("synth -top {top}", "synth -top {top}; abc -g NAND")
    monkeypatch.setattr(netlist, "_PROOF", wrong)
    verdict = equal(COUNTER, "part_0_1")
    assert verdict is not None
    assert verdict.unproven > 0
    assert not verdict.passed


def test_a_bench_that_fails_is_named(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    program = tmp_path / "model" / "Vbench"
    program.write_text("#!/bin/sh\necho it broke; exit 3\n")
    program.chmod(0o755)
    with pytest.raises(BuildError, match=r"Vbench failed on the netlist: it broke"):
        printed(tmp_path)


def test_nothing_compared_is_nothing_proven() -> None:
    assert not Verdict("part", 3, 0, 0).passed


BENCH = """
module bench;
  reg clk = 0, up = 1;
  wire [3:0] level;
  wire low;
  reg [3:0] expected [0:0];
  chip dut(.clk(clk), .up(up), .level(level), .low(low));
  always #5 clk = ~clk;
  initial begin
    $readmemh("expected.hex", expected);
    force dut.level = 0;
    #1 release dut.level;
    #101 $display("%s", level == expected[0] ? "PASS" : "FAIL");
    $finish;
  end
endmodule
"""


@pytest.mark.slow  # compiles a simulator
def test_a_bench_runs_on_gates(tmp_path: Path) -> None:
    """Of something small: `make netlist` takes minutes to do so with a chip."""
    (tmp_path / "chip").mkdir()
    (tmp_path / "chip" / "small.v").write_text(COUNTER.replace("part_0_1", "chip"))
    (tmp_path / "bench.v").write_text(BENCH)
    (tmp_path / "expected.hex").write_text("a\n")
    for name in ("dram_model.v", "clock_gate.v"):
        (tmp_path / name).touch()
    assert run_netlist(tmp_path).startswith("PASS")
    (tmp_path / "expected.hex").write_text("b\n")
    assert printed(tmp_path).startswith("FAIL")
