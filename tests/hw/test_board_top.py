# amaranth: UnusedElaboratable=no
"""A board as a host sees it on the UART, with a played chip between its registers and its two DRAM channels."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from meshloom.hw.board import top
from meshloom.hw.board.frames import ANSWER, ARGUMENTS, GREETING, Decoder, Frame, Kind, encode
from meshloom.hw.board.memory import BoardMemory
from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.registers import CONTROL, Register

MODELS = Path(__file__).parents[2] / "tb" / "build" / "verilog"
WORDS, DIVISOR = 64, 4
CHIP = ChipConfig.model_validate(
    {"name": "played", "lanes": 4, "rows": 4, "cols": 4, "floorplan": ["dram core", "dram host"]}
    | {"dram": {"words": WORDS, "bytes_per_cycle": 4, "latency": 5}}
)

#: Started, it reads words of the first channel from word 3 on, over and over until it is reset, so that SDRAM does not
#: keep up. The first of them plus PROGRAM_ADDR is written into word 5 of the second channel.
PLAYED = """
module chip (
  input clk, input rst, output reg irq,
  input [7:0] bus__awaddr, input [2:0] bus__awprot, input bus__awvalid, output bus__awready,
  input [31:0] bus__wdata, input [3:0] bus__wstrb, input bus__wvalid, output bus__wready,
  output [1:0] bus__bresp, output reg bus__bvalid, input bus__bready,
  input [7:0] bus__araddr, input [2:0] bus__arprot, input bus__arvalid, output bus__arready,
  output reg [31:0] bus__rdata, output [1:0] bus__rresp, output reg bus__rvalid, input bus__rready,
  {ports}
);
  reg [31:0] added;
  reg asks, has, sends, writes; reg [31:0] sum; wire first = axi_0__rvalid && !has;
  assign bus__awready = bus__awvalid && bus__wvalid && !bus__bvalid, bus__wready = bus__awready, bus__bresp = 0;
  assign bus__arready = !bus__rvalid, bus__rresp = 0;
  assign axi_0__awvalid = 0, axi_0__wvalid = 0, axi_0__bready = 1, axi_1__arvalid = 0, axi_1__rready = 1;
  assign axi_0__arvalid = asks, axi_0__araddr = 12, axi_0__arlen = 15, axi_0__arid = 0, axi_0__rready = 1;
  assign axi_1__awvalid = sends, axi_1__awaddr = 20, axi_1__awlen = 0, axi_1__awid = 0, axi_1__bready = 1;
  assign axi_1__wvalid = writes, axi_1__wdata = sum, axi_1__wstrb = 15, axi_1__wlast = 1;
  always @(posedge clk) if (rst) {irq, bus__bvalid, bus__rvalid, asks, has, sends, writes, added} <= 0;
    else begin
      bus__bvalid <= bus__awready || (bus__bvalid && !bus__bready);
      bus__rvalid <= (bus__arvalid && bus__arready) || (bus__rvalid && !bus__rready);
      bus__rdata <= bus__araddr == {address} ? added : irq;
      if (bus__awready && bus__awaddr == {address}) added <= bus__wdata;
      asks <= (bus__awready && bus__awaddr == {control} && bus__wdata[{start}]) || asks;
      has <= has || axi_0__rvalid;
      if (first) sum <= axi_0__rdata + added;
      sends <= first || (sends && !axi_1__awready);
      writes <= first || (writes && !axi_1__wready);
      irq <= irq || axi_1__bvalid;
    end
endmodule
"""
PORTS = """
  output axi_{i}__awid, output [31:0] axi_{i}__awaddr, output [7:0] axi_{i}__awlen, output [2:0] axi_{i}__awsize,
  output [1:0] axi_{i}__awburst, output axi_{i}__awvalid, input axi_{i}__awready,
  output [31:0] axi_{i}__wdata, output [3:0] axi_{i}__wstrb, output axi_{i}__wlast, output axi_{i}__wvalid,
  input axi_{i}__wready, input axi_{i}__bid, input [1:0] axi_{i}__bresp, input axi_{i}__bvalid, output axi_{i}__bready,
  output axi_{i}__arid, output [31:0] axi_{i}__araddr, output [7:0] axi_{i}__arlen, output [2:0] axi_{i}__arsize,
  output [1:0] axi_{i}__arburst, output axi_{i}__arvalid, input axi_{i}__arready,
  input axi_{i}__rid, input [31:0] axi_{i}__rdata, input [1:0] axi_{i}__rresp, input axi_{i}__rlast,
  input axi_{i}__rvalid, output axi_{i}__rready"""

#: Sends a request, prints the bytes of its answer until the second flag, and so on.
BENCH = """
module bench;
  reg clk = 0, rst = 1; always #16666 clk = ~clk;
  reg rx = 1; wire tx, busy;
  board board (.clk(clk), .rst(rst), .rx(rx), .tx(tx), .busy(busy));
  reg [8:0] sent [0:{count} - 1]; reg [7:0] heard;
  integer i, j, k, flags = 0, asked = 0, begun = 0, ended = 0;
  always @(posedge busy) begun = begun + 1;
  always @(negedge busy) ended = ended + 1;
  initial begin
    $readmemh("sent", sent);
    repeat (3) @(posedge clk);
    #1 rst = 0;
    for (i = 0; i < {count}; i = i + 1) begin
      rx = 0; repeat ({divisor}) @(posedge clk);
      for (j = 0; j < 8; j = j + 1) begin #1 rx = sent[i][j]; repeat ({divisor}) @(posedge clk); end
      #1 rx = 1; repeat ({divisor}) @(posedge clk);
      if (sent[i][8]) begin  // the last byte of a request
        asked = asked + 1;
        wait (flags == 2 * asked);
        repeat (200) @(posedge clk);
      end
    end
    $display("busy %0d %0d", begun, ended);
    $finish;
  end
  initial forever begin
    @(negedge tx) repeat ({divisor} + {divisor} / 2) @(posedge clk);
    for (k = 0; k < 8; k = k + 1) begin heard[k] = tx; repeat ({divisor}) @(posedge clk); end
    $display("%02x", heard);
    flags = flags + (heard == 8'h7e);
  end
  initial #2000000000 begin $display("stands"); $finish; end
endmodule
"""


def filled(text: str, **values: int | str) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


@pytest.mark.parametrize("memory", list(BoardMemory))
def test_a_host_runs_a_chip_through_a_board(
    memory: BoardMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = ",".join(filled(PORTS, i=index) for index in range(2))
    addresses = {"address": int(Register.PROGRAM_ADDR), "control": int(Register.CONTROL)}
    bit = CONTROL.offsets["start"][0]
    played = filled(PLAYED, ports=ports, start=bit, **addresses)
    monkeypatch.setattr(top, "verilog", lambda config: played)
    start, there = 1 << bit, 1 << 24  # a place in the second channel
    talk = [
        (Kind.HELLO, 0, 0, b"", GREETING.pack(512, 4, 2, WORDS)),
        (Kind.POKE, 3, 1, b"\x01\x02\x03\x04", b""),
        (Kind.POKE, there + 4, 3, b"four----six.", b""),
        (Kind.WRITE, Register.PROGRAM_ADDR, 0x10203, b"", b""),
        (Kind.WRITE, Register.CONTROL, start, b"", b""),
        (Kind.READ, Register.STATUS, 0, b"", b"\x01\x00\x00\x00"),
        (Kind.READ, Register.PROGRAM_ADDR, 0, b"", b"\x03\x02\x01\x00"),
        (Kind.RESET, 0, 0, b"", b""),
        (Kind.PEEK, there + 4, 3, b"", b"four\x04\x04\x04\x04six."),
        (Kind.READ, Register.PROGRAM_ADDR, 0, b"", b"\x00\x00\x00\x00"),
        (Kind.POKE, 3, 1, b"FIVE", b""),
        (Kind.WRITE, Register.CONTROL, start, b"", b""),
        (Kind.RESET, 0, 0, b"", b""),
        (Kind.PEEK, there + 4, 3, b"", b"fourFIVEsix."),
    ]
    requests = [
        encode(Frame(kind, 1, number, ARGUMENTS.pack(place, value) + data))
        for number, (kind, place, value, data, _) in enumerate(talk)
    ]
    words = [f"{byte + 256 * (at == len(each) - 1):x}" for each in requests for at, byte in enumerate(each)]
    (tmp_path / "sent").write_text("\n".join(words))
    (tmp_path / "board.v").write_text(top.board_verilog(CHIP, DIVISOR, memory))
    (tmp_path / "bench.v").write_text("`timescale 1ps/1ps\n" + filled(BENCH, count=len(words), divisor=DIVISOR))
    models = [MODELS.parents[1] / "devices" / "board" / "sdram_model.v", MODELS / "clock_gate.v"]
    command = ["iverilog", "-g2005-sv", "-s", "bench", "-o", "sim", "bench.v", "board.v", *models]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(["vvp", "-n", "sim"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    *heard, last = done.stdout.splitlines()
    assert last == "busy 2 2", done.stdout[-300:]
    answers = Decoder().feed(bytes.fromhex("".join(heard)))
    assert answers == [Frame(kind | ANSWER, 1, number, body) for number, (kind, _, _, _, body) in enumerate(talk)]
