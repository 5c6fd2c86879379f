# amaranth: UnusedElaboratable=no
"""The board's SDRAM: its controller against a part that knows its data sheet, and a chip's channels on top of it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import ClockSignal, Instance, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from meshloom.hw.assembly.verilog import optimised, to_rtlil
from meshloom.hw.board.link import MemoryBus, MemoryPort
from meshloom.hw.board.paced import PacedChannel
from meshloom.hw.board.sdram import Sdram, SdramTimes, request_layout
from meshloom.hw.board.simulation import SimulatedSdram
from meshloom.hw.board.store import PacedMemory, check_size
from meshloom.hw.spec.config import ChipConfig, DramConfig, load
from meshloom.hw.spec.contracts import RESPONSE_CYCLES
from meshloom.hw.wiring.axi import AXI4, AXI4Port

from ..tiers import slow_but

PART = Path(__file__).parents[2] / "tb" / "devices" / "board" / "sdram_model.v"
MODELS = Path(__file__).parents[2] / "tb" / "build" / "verilog"
CHIP = load("tiny").model_copy(update={"dram": DramConfig(words=64, bytes_per_cycle=4, latency=5)})


def simulated(gateware: Any, bench: str, folder: Path) -> str:
    """What a bench of the module `dut` prints."""
    (folder / "dut.v").write_text(optimised(to_rtlil(gateware, "dut"), "dut"))
    (folder / "bench.v").write_text(f"`timescale 1ps/1ps\n{bench}")
    sources = [folder / "bench.v", folder / "dut.v", PART, MODELS / "clock_gate.v"]
    sources.append(MODELS / "dram_model.v")
    subprocess.run(["iverilog", "-g2005-sv", "-s", "bench", "-o", folder / "sim", *sources], check=True)
    done = subprocess.run(["vvp", "-n", folder / "sim"], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout + done.stderr


class ControlledPart(wiring.Component):
    """The controller with a part."""

    request: stream.Interface
    answers: Signal
    word: Signal
    tag: Signal

    def __init__(self, columns: int, clock: float, times: SdramTimes) -> None:
        self._sdram, self._clock = Sdram(columns, clock, 4, times), clock
        layout = request_layout(columns, 4)
        super().__init__(
            {
                "request": In(stream.Signature(layout)),
                "answers": Out(1),
                "word": Out(16 * columns),
                "tag": Out(2),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.sdram = sdram = self._sdram
        m.submodules.part = part = SimulatedSdram(self._clock)
        wiring.connect(m, wiring.flipped(self.request), sdram.request)
        wiring.connect(m, sdram.pins, part.pins)
        m.d.comb += [self.answers.eq(sdram.answers), self.word.eq(sdram.word), self.tag.eq(sdram.tag)]
        return m


#: Random words, near and far, read and written in part, with gaps of up to {gap} cycles; all that is read is compared.
CONTROLLER = """
module bench;
  localparam COLUMNS = {columns}, BITS = 16 * COLUMNS, BYTES = 2 * COLUMNS, COUNT = 1500;
  localparam ADDRESS = 24 - $clog2(COLUMNS);
  reg clk = 0, rst = 1; always #({period} / 2) clk = ~clk;
  reg valid = 0; wire ready, answers; wire [1:0] tag; wire [BITS-1:0] word;
  reg [ADDRESS-1:0] address; reg [BYTES-1:0] store; reg [BITS-1:0] data; reg [1:0] sent;
  dut dut (.clk(clk), .rst(rst), .request__valid(valid), .request__ready(ready),
    .request__payload({sent, data, store, address}), .answers(answers), .word(word), .tag(tag));
  reg [BITS-1:0] kept [0:63]; reg [ADDRESS-1:0] places [0:63]; reg [63:0] whole = 0;
  reg [BITS-1:0] right [0:COUNT]; reg [1:0] tags [0:COUNT];
  integer seed = {seed}, i, j, n, gap = 0, asked = 0, heard = 0, wrong = 0, written = 0, cycles = 0;
  initial begin
    for (i = 0; i < 64; i = i + 1) places[i] = i < 32 ? $unsigned($random(seed)) : places[0] + i;
    repeat (3) @(posedge clk);
    #1 rst = 0;
    n = 0;
    while (n < COUNT) begin
      if (!valid && gap == 0) begin
        valid = 1;
        i = $unsigned($random(seed)) % 64;
        if (n % 100 < 50) i = 32 + n % 32;  // one behind the other
        for (j = 0; j < COLUMNS; j = j + 1) data[16*j +: 16] = $random(seed);
        address = places[i]; sent = $random(seed);
        store = whole[i] ? ($unsigned($random(seed)) % 3 ? 0 : $random(seed)) : -1;
        if (n % 100 >= 25 && n % 100 < 50 && whole[i]) store = 0;
        if (store == 0) begin right[asked] = kept[i]; tags[asked] = sent; asked = asked + 1; end
        else begin
          for (j = 0; j < BYTES; j = j + 1) if (store[j]) kept[i][8*j +: 8] = data[8*j +: 8];
          whole[i] = 1; written = written + 1;
        end
      end
      if (gap != 0) gap = gap - 1;
      @(negedge clk);
      if (valid && ready) begin
        n = n + 1;
        @(posedge clk); #1 valid = 0;
        if ($unsigned($random(seed)) % 4 == 0) gap = $unsigned($random(seed)) % {gap};
      end else begin @(posedge clk); #1; end
    end
    repeat (20) @(posedge clk);
    $display("%0d %0d %0d %0d %0d", written, asked, heard, wrong, cycles);
    $finish;
  end
  always @(negedge clk) begin
    if (valid) cycles = cycles + 1;
    if (answers) begin
      if (word !== right[heard] || tag !== tags[heard]) wrong = wrong + 1;
      heard = heard + 1;
    end
  end
endmodule
"""


def controller_bench(columns: int, clock: float, **values: int) -> str:
    text = CONTROLLER
    period = 2 * round(500_000 / clock)
    for name, value in ({"columns": columns, "period": period, "gap": 40, "seed": columns} | values).items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


@pytest.mark.parametrize("word", slow_but([(2, 30.0), (4, 50.0), (8, 12.5), (64, 10.0)], (2, 30.0)))
def test_words_come_back_and_the_part_has_nothing_to_say(word: tuple[int, float], tmp_path: Path) -> None:
    (columns, clock), times = word, SdramTimes()
    text = simulated(ControlledPart(columns, clock, times), controller_bench(columns, clock), tmp_path)
    written, asked, heard, wrong, cycles = (int(each) for each in text.split())
    assert (heard, wrong) == (asked, 0)
    assert min(written, asked) > 300
    assert cycles / 1500 < columns + 12


@pytest.mark.parametrize(
    "fault",
    slow_but(
        [
            ("ras", 21.0, "PRECHARGE before RAS"),
            ("rfc", 45.0, "before RFC"),
            ("refi", 80_000.0, "rows are not refreshed"),
            ("start", 50_000.0, "a command before START"),
        ],
        ("rfc", 45.0, "before RFC"),
    ),
)
def test_the_part_notices_a_controller_that_is_too_fast(fault: tuple[str, float, str], tmp_path: Path) -> None:
    name, time, words = fault
    times = SdramTimes()._replace(**{name: time})
    text = simulated(ControlledPart(2, 50.0, times), controller_bench(2, 50.0, gap=400), tmp_path)
    assert words in text


def test_a_controller_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="a clock of 5 MHz: SDRAM works with 10 to 50 MHz"):
        Sdram(2, 5.0)
    with pytest.raises(ValueError, match="a word of 3 columns: it must be a power of two, 2 to 512"):
        Sdram(3, 25.0)
    large = CHIP.model_copy(update={"dram": DramConfig(words=1 << 24)})
    with pytest.raises(ValueError, match="67,108,864 bytes of DRAM, and SDRAM has 33,554,432 for all: take a smaller"):
        check_size(large)


class Paced(wiring.Component):
    """A chip's channels on SDRAM. `run`, `tick`: whether the chip's clock ticks at the end of this cycle, and that
    clock."""

    axi: AXI4Port
    link: MemoryPort
    reset: Signal
    run: Signal
    tick: Signal

    def __init__(self, config: ChipConfig, clock: float) -> None:
        self.config, self._clock = config, clock
        super().__init__(
            {"axi": In(AXI4(address_bits=32, data_bits=config.word_bits)), "reset": In(1)}
            | {"link": In(MemoryBus(config.lanes)), "run": Out(1), "tick": Out(1)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = PacedMemory(self.config, self._clock)
        m.submodules.part = part = SimulatedSdram(self._clock)
        wiring.connect(m, wiring.flipped(self.axi), memory.axi(0))
        wiring.connect(m, wiring.flipped(self.link), memory.link)
        wiring.connect(m, memory.pins, part.pins)
        m.submodules.gate = Instance("clock_gate", i_clk=ClockSignal(), i_enable=memory.run, o_gated=self.tick)
        m.d.comb += [self.run.eq(memory.run), memory.reset.eq(self.reset)]
        return m


#: Random traffic of a chip for both at once, in cycles of its clock. Reads and writes go to the two halves of the
#: channel, which change places; addresses reach past the end; readiness and gaps change every 64 cycles.
CHANNEL = """
module bench;
  reg clk = 0, rst = 1; always #({period} / 2) clk = ~clk;
  wire run, tick;
  reg awvalid = 0, wvalid = 0, arvalid = 0, bready = 0, rready = 0, wlast = 0, awid = 0, arid = 0, reset = 0;
  reg [31:0] awaddr = 0, araddr = 0, wdata = 0;
  reg [7:0] awlen = 0, arlen = 0;
  reg [3:0] wstrb = 15;
  reg peeks = 0, pokes = 0; reg [23:0] place = 0; reg [31:0] value = 0; wire [31:0] answer; wire done;
  wire [1:0] awready, wready, arready, bvalid, rvalid, rlast, bid, rid;
  wire [31:0] rdata [0:1];
  wire [1:0] bresp [0:1], rresp [0:1];
  dram_model #(.LANES(4), .WORDS(64), .LATENCY({latency}), .RATE_NUM({rate}), .WRITE_LATENCY({response})) model (
    .clk(tick), .rst(rst | reset), .protocol_error(), .awsize(3'd2), .arsize(3'd2), .awburst(2'd1), .arburst(2'd1),
    .awid(awid), .awaddr(awaddr), .awlen(awlen), .awvalid(awvalid), .awready(awready[0]), .wdata(wdata), .wstrb(wstrb),
    .wlast(wlast), .wvalid(wvalid), .wready(wready[0]), .bid(bid[0]), .bresp(bresp[0]), .bvalid(bvalid[0]),
    .bready(bready), .arid(arid), .araddr(araddr), .arlen(arlen), .arvalid(arvalid), .arready(arready[0]),
    .rid(rid[0]), .rdata(rdata[0]), .rresp(rresp[0]), .rlast(rlast[0]), .rvalid(rvalid[0]), .rready(rready));
  dut dut (
    .clk(clk), .rst(rst), .reset(reset), .run(run), .tick(tick), .link__address(place), .link__channel(8'd0),
    .link__write(pokes), .link__read(peeks), .link__data(value), .link__answer(answer), .link__ready(done),
    .axi__awsize(3'd2), .axi__arsize(3'd2), .axi__awburst(2'd1), .axi__arburst(2'd1), .axi__awid(awid),
    .axi__awaddr(awaddr), .axi__awlen(awlen), .axi__awvalid(awvalid), .axi__awready(awready[1]), .axi__wdata(wdata),
    .axi__wstrb(wstrb), .axi__wlast(wlast), .axi__wvalid(wvalid), .axi__wready(wready[1]), .axi__bid(bid[1]),
    .axi__bresp(bresp[1]), .axi__bvalid(bvalid[1]), .axi__bready(bready), .axi__arid(arid), .axi__araddr(araddr),
    .axi__arlen(arlen), .axi__arvalid(arvalid), .axi__arready(arready[1]), .axi__rid(rid[1]), .axi__rdata(rdata[1]),
    .axi__rresp(rresp[1]), .axi__rlast(rlast[1]), .axi__rvalid(rvalid[1]), .axi__rready(rready));
  integer seed = {seed}, cycle, mood = 0, beats = 0, reads = 0, writes = 0, wrong = 0, left = 0, half = 0, stood = 0;
  integer i, words = 0, rests = 0;
  reg [7:0] lengths [0:255]; reg [7:0] pushed = 0, begun = 0;
  function chance(input integer of); chance = $unsigned($random(seed)) % 4 < of; endfunction
  function [31:0] somewhere(input integer upper);
    somewhere = 4 * (upper ? 32 + $unsigned($random(seed)) % 36 : $unsigned($random(seed)) % 27);
  endfunction
  initial begin
    repeat (3) @(posedge clk);
    #1 rst = 0;
    for (i = 0; i < 64; i = i + 1) begin  // the link fills the channel, and looks at it
      @(negedge clk); place = i; pokes = 1; value = $random(seed); model.mem[i] = value;
      #1 while (!done) begin @(negedge clk); #1; end
      @(posedge clk); #1 pokes = 0;
    end
    for (cycle = 0; cycle < 16384; cycle = cycle + 1) begin
      rests = cycle % 2048 >= 1300;
      if (cycle % 64 == 0) mood = $unsigned($random(seed)) % 16;
      if (rests) mood = 0;
      if (cycle % 2048 == 2047) half = !half;
      reset = cycle >= 6900 && cycle < 6916;
      @(negedge clk);
      while (!run) begin stood = stood + 1; @(negedge clk); end
      // what both say in this cycle of the chip
      if (!reset && (awready[0] !== awready[1] || wready[0] !== wready[1] || arready[0] !== arready[1]
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
      @(posedge clk); #1;
      if (reset) begin
        awvalid = 0; arvalid = 0; wvalid = 0; pushed = 0; begun = 0; left = 0;
      end else begin
        if (awvalid && took_aw) awvalid = 0;
        if (arvalid && took_ar) arvalid = 0;
        if (wvalid && took_w) begin wvalid = 0; left = left - 1; end
      end
      if (!reset && !awvalid && pushed - begun < 8 && chance(mood[1:0])) begin
        awvalid = 1; awid = $random(seed); awlen = $unsigned($random(seed)) % 6; awaddr = somewhere(half);
        lengths[pushed] = awlen; pushed = pushed + 1;
      end
      if (!reset && !arvalid && chance(mood[3:2])) begin
        arvalid = 1; arid = $random(seed); arlen = $unsigned($random(seed)) % 6; araddr = somewhere(!half);
      end
      if (!wvalid && left == 0 && begun != pushed) begin left = lengths[begun] + 1; begun = begun + 1; end
      if (!wvalid && left != 0 && (rests || chance(mood[1:0] + 1))) begin
        wvalid = 1; wdata = $random(seed); wstrb = chance(3) ? 15 : $random(seed); wlast = left == 1;
      end
      bready = rests || chance(mood[2:1] + 1); rready = rests || chance(mood[1:0] + 1);
    end
    wvalid = 0;
    for (i = 0; i < 64; i = i + 1) begin  // behind all that has been written
      @(negedge clk); place = i; peeks = 1;
      #1 while (!done) begin @(negedge clk); #1; end
      @(posedge clk); #1 peeks = 0;
      @(negedge clk);
      if (answer !== model.mem[i]) words = words + 1;
    end
    $display("%0d reads, %0d writes, %0d cycles differ, %0d words, %0d cycles", reads, writes, wrong, words, stood);
    $finish;
  end
  initial #20000000000 begin $display("stands in cycle %0d", cycle); $finish; end
  reg took_aw, took_ar, took_w;
  always @(posedge tick) begin
    took_aw <= awvalid && awready[0]; took_ar <= arvalid && arready[0]; took_w <= wvalid && wready[0];
  end
endmodule
"""


@pytest.mark.parametrize("dram", slow_but([(5, 4, 30.0), (2, 4, 50.0), (9, 1, 10.0)], (5, 4, 30.0)))
def test_a_channel_on_sdram_is_the_simulators_to_the_cycle(dram: tuple[int, int, float], tmp_path: Path) -> None:
    latency, rate, clock = dram
    chip = CHIP.model_copy(update={"dram": DramConfig(words=64, bytes_per_cycle=rate, latency=latency)})
    bench = CHANNEL
    values = {"latency": latency, "rate": rate, "response": RESPONSE_CYCLES, "seed": latency}
    for name, value in (values | {"period": 2 * round(500_000 / clock)}).items():
        bench = bench.replace(f"{{{name}}}", str(value))
    *rest, last = simulated(Paced(chip, clock), bench, tmp_path).splitlines()
    reads, writes, wrong, words, stood = (int(word) for word in last.split() if word.isdigit())
    assert (wrong, words, rest) == (0, 0, [])
    assert min(reads, writes) > 800
    assert stood > 20


def test_the_longest_burst() -> None:
    """Of 256 words, more than are read ahead."""
    chip = CHIP.model_copy(update={"dram": DramConfig(words=300, bytes_per_cycle=4, latency=5)})
    dut, words = PacedChannel(chip), list[int]()
    axi, request = dut.axi, dut.request

    async def memory(ctx: Any) -> None:
        ctx.set(request.ready, 1)
        while True:
            asked, address = ctx.get(request.valid), ctx.get(request.payload.address)
            await ctx.tick()
            ctx.set(dut.answers, asked)
            ctx.set(dut.word, address)

    async def chip_reads(ctx: Any) -> None:
        ctx.set(axi.arvalid, 1)
        ctx.set(axi.araddr, 4 * 40)
        ctx.set(axi.arlen, 255)
        ctx.set(axi.rready, 1)
        last, runs = 0, 1
        while not last:
            ctx.set(dut.run, runs)
            if runs and ctx.get(axi.rvalid):
                words.append(ctx.get(axi.rdata))
                last = ctx.get(axi.rlast)
            ticks, runs = runs, ctx.get(dut.may_run)
            await ctx.tick()
            if ticks:
                ctx.set(axi.arvalid, 0)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(memory, background=True)
    simulator.add_testbench(chip_reads)
    simulator.run_until(1e-3)
    assert words == list(range(40, 296))
