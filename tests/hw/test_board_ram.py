# amaranth: UnusedElaboratable=no
"""The board's block RAM against the simulators' DRAM: random bursts, every output in every cycle."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from meshloom.hw.assembly.verilog import optimised, to_rtlil
from meshloom.hw.board import channel
from meshloom.hw.board.channel import check
from meshloom.hw.board.ram import BlockRam
from meshloom.hw.spec.config import ChipConfig, DramConfig, load
from meshloom.hw.spec.contracts import RESPONSE_CYCLES

MODELS = Path(__file__).parents[2] / "tb" / "build" / "verilog"
CHIP = load("tiny").model_copy(update={"dram": DramConfig(words=64, bytes_per_cycle=4, latency=5)})

#: Random traffic for both at once. Addresses reach past the end; readiness and gaps change every 64 cycles.
BENCH = """
module bench;
  reg clk = 0, rst = 1; always #1 clk = ~clk;
  reg awvalid = 0, wvalid = 0, arvalid = 0, bready = 0, rready = 0, wlast = 0, awid = 0, arid = 0;
  reg [31:0] awaddr = 0, araddr = 0, wdata = 0;
  reg [7:0] awlen = 0, arlen = 0;
  reg [3:0] wstrb = 15;
  wire [1:0] awready, wready, arready, bvalid, rvalid, rlast, bid, rid;
  wire [31:0] rdata [0:1];
  wire [1:0] bresp [0:1], rresp [0:1];
  wire error;
  dram_model #(.LANES(4), .WORDS(64), .LATENCY({latency}), .RATE_NUM({rate}), .WRITE_LATENCY({response})) model (
    .clk(clk), .rst(rst), .protocol_error(error), .awsize(3'd2), .arsize(3'd2), .awburst(2'd1), .arburst(2'd1),
    .awid(awid), .awaddr(awaddr), .awlen(awlen), .awvalid(awvalid), .awready(awready[0]), .wdata(wdata), .wstrb(wstrb),
    .wlast(wlast), .wvalid(wvalid), .wready(wready[0]), .bid(bid[0]), .bresp(bresp[0]), .bvalid(bvalid[0]),
    .bready(bready), .arid(arid), .araddr(araddr), .arlen(arlen), .arvalid(arvalid), .arready(arready[0]),
    .rid(rid[0]), .rdata(rdata[0]), .rresp(rresp[0]), .rlast(rlast[0]), .rvalid(rvalid[0]), .rready(rready));
  block_ram ram (
    .clk(clk), .rst(1'b0), .reset(rst), .link__address(24'd0), .link__channel(8'd0), .link__write(1'b0),
    .link__read(1'b0), .link__data(32'd0), .axi__awsize(3'd2), .axi__arsize(3'd2), .axi__awburst(2'd1),
    .axi__arburst(2'd1), .axi__awid(awid), .axi__awaddr(awaddr), .axi__awlen(awlen), .axi__awvalid(awvalid),
    .axi__awready(awready[1]), .axi__wdata(wdata), .axi__wstrb(wstrb), .axi__wlast(wlast), .axi__wvalid(wvalid),
    .axi__wready(wready[1]), .axi__bid(bid[1]), .axi__bresp(bresp[1]), .axi__bvalid(bvalid[1]), .axi__bready(bready),
    .axi__arid(arid), .axi__araddr(araddr), .axi__arlen(arlen), .axi__arvalid(arvalid), .axi__arready(arready[1]),
    .axi__rid(rid[1]), .axi__rdata(rdata[1]), .axi__rresp(rresp[1]), .axi__rlast(rlast[1]), .axi__rvalid(rvalid[1]),
    .axi__rready(rready));
  integer seed = {seed}, cycle, mood = 0, beats = 0, reads = 0, writes = 0, wrong = 0, left = 0;
  reg [7:0] lengths [0:255]; reg [7:0] pushed = 0, begun = 0;
  function chance(input integer of); chance = $unsigned($random(seed)) % 4 < of; endfunction
  initial begin
    repeat (3) @(posedge clk);
    #0.5 rst = 0;
    for (cycle = 0; cycle < 6000; cycle = cycle + 1) begin
      if (cycle % 64 == 0) mood = $unsigned($random(seed)) % 16;
      if (cycle == 3000) rst = 1; else rst = 0;
      #0.4;
      // what both say in this cycle
      if (!rst && (awready[0] !== awready[1] || wready[0] !== wready[1] || arready[0] !== arready[1]
          || bvalid[0] !== bvalid[1] || rvalid[0] !== rvalid[1]
          || (bvalid[0] && (bid[0] !== bid[1] || bresp[0] !== bresp[1]))
          || (rvalid[0] && (rid[0] !== rid[1] || rdata[0] !== rdata[1] || rresp[0] !== rresp[1]
              || rlast[0] !== rlast[1]))))
      begin
        if (wrong < 5)
          $display("cycle %0d: %b %b %b %b %b, data %h %h", cycle, awready, wready, arready, bvalid, rvalid,
                   rdata[0], rdata[1]);
        wrong = wrong + 1;
      end
      if (rvalid[0] && rready) reads = reads + 1;
      if (wvalid && wready[0]) writes = writes + 1;
      @(posedge clk); #0.5;
      if (rst) begin
        awvalid = 0; arvalid = 0; wvalid = 0; pushed = 0; begun = 0; left = 0;
      end else begin
        if (awvalid && took_aw) awvalid = 0;
        if (arvalid && took_ar) arvalid = 0;
        if (wvalid && took_w) begin wvalid = 0; left = left - 1; end
      end
      if (!awvalid && pushed - begun < 8 && chance(mood[1:0])) begin
        awvalid = 1; awid = $random(seed); awlen = $unsigned($random(seed)) % 6;
        awaddr = ($unsigned($random(seed)) % 68) * 4; lengths[pushed] = awlen; pushed = pushed + 1;
      end
      if (!arvalid && chance(mood[3:2])) begin
        arvalid = 1; arid = $random(seed); arlen = $unsigned($random(seed)) % 6;
        araddr = ($unsigned($random(seed)) % 68) * 4;
      end
      if (!wvalid && left == 0 && begun != pushed) begin left = lengths[begun] + 1; begun = begun + 1; end
      if (!wvalid && left != 0 && chance(mood[1:0] + 1)) begin
        wvalid = 1; wdata = $random(seed); wstrb = chance(3) ? 15 : $random(seed); wlast = left == 1;
      end
      bready = chance(mood[2:1] + 1); rready = chance(mood[1:0] + 1);
    end
    $display("%0d reads, %0d writes, %0d cycles differ", reads, writes, wrong);
    $finish;
  end
  reg took_aw, took_ar, took_w;
  always @(posedge clk) begin
    took_aw <= awvalid && awready[0]; took_ar <= arvalid && arready[0]; took_w <= wvalid && wready[0];
  end
endmodule
"""


@pytest.fixture(
    scope="module", params=[(5, 4, 32), (2, 4, 32), (9, 1, 32), (5, 4, 10)],
    ids=["latency5", "latency2", "slow", "time begins again"],
)  # fmt: skip
def printed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the bench says of a chip's DRAM. The last one's time has 10 bits, so that it begins again and again."""
    latency, rate, bits = request.param
    chip = CHIP.model_copy(update={"dram": DramConfig(words=64, bytes_per_cycle=rate, latency=latency)})
    folder = tmp_path_factory.mktemp("ram")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(channel, "_TIME", bits)
        text = optimised(to_rtlil(BlockRam(chip), "block_ram"), "block_ram")
    values = {"latency": latency, "rate": rate, "response": RESPONSE_CYCLES, "seed": latency}
    bench = BENCH
    for name, value in values.items():
        bench = bench.replace(f"{{{name}}}", str(value))
    (folder / "bench.v").write_text(f"`timescale 1ns/1ps\n{bench}\n{text}")
    sources = [folder / "bench.v", MODELS / "dram_model.v", MODELS / "clock_gate.v"]
    subprocess.run(["iverilog", "-g2005-sv", "-s", "bench", "-o", folder / "sim", *sources], check=True)
    return subprocess.run(["vvp", "-n", folder / "sim"], capture_output=True, text=True, check=True).stdout


def test_it_is_the_simulators_dram_to_the_cycle(printed: str) -> None:
    *rest, last = printed.splitlines()
    reads, writes, wrong = (int(word) for word in last.split() if word.isdigit())
    assert (wrong, rest) == (0, [])
    assert min(reads, writes) > 200


def test_what_it_cannot_be_is_refused() -> None:
    chip: ChipConfig = CHIP.model_copy(update={"dram": DramConfig(words=64, latency=1)})
    with pytest.raises(ValueError, match=r"dram\.latency = 1: a board.s DRAM needs at least 2 cycles"):
        check(chip)
