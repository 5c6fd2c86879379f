"""The Verilog around the chip: clock, DRAM channels, and a host that carries out one job at a time.

Around the chip as one module (`verilog`), or around a simulator that is assembled of its blocks (`apart`), which brings
clock and channels along. Everything that happens in a cycle happens here or there; Python sets `job` and friends,
toggles `request` and waits for `loaded`, `ran` and `finished` to toggle back, one after the other. A job: reset, clear
the DRAM channels of what the job before has left (not if it is to `stay`), load them from `job<n>_<channel>.bin`, run
the boot program and dump the ranges of data that were asked for, then (if `trace_count` is not zero) run the program
that moves traces to DRAM, and dump these.

An image is a list of segments: first word and number of words (two big-endian 32-bit numbers), then the words, highest
lane first. A job with `observe` logs to `job<n>_observed.bin` what the cores' units write while the program runs, in
the order of the cycles, a record for each word: 32 bits (number of the core in [31:24], region in [23:20], offset in
[19:0]), then the word, all little-endian. After a watchdog what the tiles report is read from the host's registers into
`job<n>_states.out`, a line for each: REPORT_HIGH, then REPORT_LOW, 16 hexadecimal digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from meshloom.hw.assembly.verilog import manifest
from meshloom.hw.host_link.reporter import report_cycles
from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import clear_cycles
from meshloom.hw.spec.isa import Cause, Format, Region
from meshloom.hw.spec.registers import CONTROL, FAULT_WHO, STATUS, Register

from . import channel
from .ports import INPUTS, KINDS, OUTPUTS, Act

#: What the chip shows of its cores' units when it is built to be observed, and the memory that each writes.
TAPS = {"out": Region.OUT, "vec": Region.VEC}
#: Bits of the offset in a record of the log; the region and the core stand above.
LOG_OFFSET_BITS = 20
#: Bytes of the head of a segment of an image.
SEGMENT_BYTES = 8
#: Cycles that the bench waits after reset once the semaphores are clear.
_SPARE = 16


def channel_inputs(config: ChipConfig) -> dict[str, int]:
    """Registers for each channel: the word range to dump, first and last; first > last dumps nothing."""
    return {
        f"{kind}_{edge}_{i}": 32 for i in range(len(config.channels)) for kind in KINDS for edge in ("first", "last")
    }


def public(config: ChipConfig) -> Iterator[str]:
    """Verilator settings: what Python reads and sets."""
    yield "`verilator_config\n"
    for name in (*INPUTS, *channel_inputs(config), *OUTPUTS):
        yield f'public_flat_rw -module "bench" -var "{name}"\n'


#: Cycles between two looks at the rest of the simulation, in a simulator that is assembled of blocks.
STRIDE = 4096


def verilog(config: ChipConfig, waves: bool) -> str:
    """The bench of a chip that is one module. Top module: `bench`. `waves`: it writes `waves.fst`."""
    facts = manifest(config, observed=True)
    channels = range(len(config.channels))
    axi = [port for port in facts["ports"] if port["name"].startswith("axi_")]
    bus = {port["name"].removeprefix("bus__"): port for port in facts["ports"] if port["name"].startswith("bus__")}
    lines = [*_registers(config), "  reg rst = 1;", "  reg clk = 0;", "  always #1 clk = ~clk;"]
    for port in axi:
        lines.append(f"  wire [{port['width'] - 1}:0] {port['name']};")
    for name, port in bus.items():
        kind = "reg" if port["direction"] == "input" else "wire"
        lines.append(f"  {kind} [{port['width'] - 1}:0] {name}{' = 0' if kind == 'reg' else ''};")
    taps = [port for port in facts["ports"] if port["name"].startswith("seen_")]
    lines += [f"  wire [{port['width'] - 1}:0] {port['name']};" for port in taps]
    lines.append("  wire irq;")
    pins = [".clk(clk)", ".rst(rst)", ".irq(irq)"]
    pins += [f".{port['name']}({port['name']})" for port in (*axi, *taps)]
    pins += [f".{port['name']}({name})" for name, port in bus.items()]
    lines.append(f"  chip dut ({', '.join(pins)});")
    for i in channels:
        own = [port["name"] for port in axi if port["name"].startswith(f"axi_{i}__")]
        lines.append(f"  wire protocol_error_{i};")
        pins = [".clk(clk)", ".rst(rst)", f".protocol_error(protocol_error_{i})"]
        pins += [f".{name.removeprefix(f'axi_{i}__')}({name})" for name in own]
        lines.append(f"  {channel.instance(config, i)} dram_{i} ({', '.join(pins)});")
    lines += _log({port["name"]: port["width"] for port in taps})
    if waves:
        lines.append('  initial begin $dumpfile("waves.fst"); $dumpvars(0, bench); end')
    load = "".join(_load(config, i) for i in channels)
    dumps = {
        kind: "\n".join(
            f"      if ({kind}_first_{i} <= {kind}_last_{i}) begin\n"
            f'        $sformat(path, "job%0d_{i}_{kind}.out", job);\n'
            f"        $writememh(path, dram_{i}.mem, {kind}_first_{i}, {kind}_last_{i});\n      end"
            for i in channels
        )
        for kind in KINDS
    }
    lines += [_BUS_TASKS, *_tasks(config, load, dumps, " | ".join(f"protocol_error_{i}" for i in channels))]
    return "\n".join(lines) + "\nendmodule\n"


def apart(config: ChipConfig, functions: Sequence[tuple[str, str, str]]) -> str:
    """The bench of a chip that is simulated in blocks, behind these `functions` (`assembly.FUNCTIONS`). Top module:
    `bench`."""
    channels = range(len(config.channels))
    lines = [*_registers(config)]
    lines += [f'  import "DPI-C" function {result} {name}({inputs});' for result, name, inputs in functions]
    load = "".join(
        f"""
      if (!chip_load({i}, $sformatf("job%0d_{i}.bin", job), fresh)) begin
        $display("memory image job%0d_{i}.bin is missing or cut short", job);
        $finish;
      end"""
        for i in channels
    )
    dumps = {
        kind: "\n".join(
            f"      if ({kind}_first_{i} <= {kind}_last_{i} && !chip_dump({i}, "
            f'$sformatf("job%0d_{i}_{kind}.out", job), {kind}_first_{i}, {kind}_last_{i})) $finish;'
            for i in channels
        )
        for kind in KINDS
    }
    lines += [_CALL_TASKS, *_tasks(config, load, dumps, "chip_protocol() != 0")]
    return "\n".join(lines) + "\nendmodule\n"


def _registers(config: ChipConfig) -> list[str]:
    """The head of the module, with what Python sets and reads."""
    registers = INPUTS | channel_inputs(config) | OUTPUTS
    return ["`timescale 1ns/1ns", "module bench;"] + [f"  reg [{n - 1}:0] {name} = 0;" for name, n in registers.items()]


def _log(taps: dict[str, int]) -> list[str]:
    """Writes the log while `logging`. `taps`: ports `seen_<core>__<unit>_en`, `.._addr`, `.._data` and widths."""
    lines = ["  integer log_file;", "  reg logging = 0;", "  always @(posedge clk) if (logging) begin"]
    for name in taps:
        match = re.fullmatch(r"seen_(\d+)__(\w+)_en", name)
        if match is not None:
            core, unit = match.groups()
            at, word = (f"seen_{core}__{unit}_{field}" for field in ("addr", "data"))
            region = f"8'd{core}, 4'd{int(TAPS[unit])}, {LOG_OFFSET_BITS - taps[at]}'d0"
            lines.append(f'    if ({name}) $fwrite(log_file, "%u", {{{word}, {region}, {at}}});')
    return [*lines, "  end"]


def _load(config: ChipConfig, channel: int) -> str:
    """Loads the image of a channel into empty memory; a file that is missing or cut short ends the simulation."""
    return f"""
      if (fresh) dram_{channel}.forget;
      $sformat(path, "job%0d_{channel}.bin", job);
      file = $fopen(path, "rb");
      bytes = {SEGMENT_BYTES};
      while (file != 0 && bytes == {SEGMENT_BYTES}) begin
        bytes = $fread(segment, file);
        if (bytes == {SEGMENT_BYTES} && $fread(dram_{channel}.mem, file, segment[63:32], segment[31:0])
            != {config.lanes} * segment[31:0]) bytes = -1;
        if (bytes == {SEGMENT_BYTES} && segment[63:32] + segment[31:0] > dram_{channel}.reach)
          dram_{channel}.reach = segment[63:32] + segment[31:0];
      end
      if (file == 0 || bytes != 0) begin
        $display("memory image %0s is missing or cut short", path);
        $finish;
      end
      $fclose(file);"""


def _bits(value: str, layout: Format, name: str) -> str:
    """A field of a register that has been read, as Verilog."""
    at, width = layout.offsets[name]
    return f"{value}[{at + width - 1}:{at}]"


#: What `_tasks` uses, around a chip that is one module ...
_BUS_TASKS = """
  reg [8*64-1:0] path;
  reg [63:0] segment;
  integer file, bytes;
  task set_reset(input on);
    rst <= on;
  endtask
  task wait_cycles(input integer count);
    repeat (count) @(posedge clk);
  endtask
  task wait_irq;
    if (!irq) @(posedge irq);
  endtask
  task run_cycles(input integer count);
    begin
      while (count > 0 && !irq) begin @(posedge clk); count = count - 1; end
      answer = irq;
    end
  endtask
  task csr_write(input [31:0] address, input [31:0] data);
    begin
      awaddr <= address; awvalid <= 1; wdata <= data; wvalid <= 1; wstrb <= 4'hf; bready <= 1;
      @(posedge clk);
      while (!(awready && wready)) @(posedge clk);
      awvalid <= 0; wvalid <= 0;
      while (!bvalid) @(posedge clk);
      @(posedge clk);
    end
  endtask
  task csr_read(input [31:0] address);
    begin
      araddr <= address; arvalid <= 1; rready <= 1;
      @(posedge clk);
      while (!arready) @(posedge clk);
      arvalid <= 0;
      while (!rvalid) @(posedge clk);
      value = rdata;
      @(posedge clk);
    end
  endtask
  task start_log;
    begin
      $sformat(path, "job%0d_observed.bin", job);
      log_file = $fopen(path, "wb");
      logging = 1;
    end
  endtask
  task end_log;
    begin
      if (logging) $fclose(log_file);
      logging = 0;
    end
  endtask"""
#: ... and around one that is simulated in blocks, where simulated time only counts the bench's steps.
_CALL_TASKS = f"""
  initial chip_reset(1);  // makes the blocks, which may only be while no time has passed
  task set_reset(input on);
    chip_reset(on);
  endtask
  task wait_cycles(input integer count);
    begin chip_wait(count); #1; end
  endtask
  task wait_irq;
    while (!chip_run({STRIDE})) #1;
  endtask
  task run_cycles(input integer count);
    begin answer = chip_run(count); #1; end
  endtask
  task csr_write(input [31:0] address, input [31:0] data);
    chip_write(address, data);
  endtask
  task csr_read(input [31:0] address);
    value = chip_read(address);
  endtask
  task start_log;
    if (!chip_log($sformatf("job%0d_observed.bin", job))) $finish;
  endtask
  task end_log;
    if (!chip_log("")) $finish;
  endtask"""


def _tasks(config: ChipConfig, load: str, dumps: Mapping[str, str], protocol: str) -> list[str]:
    """What a job is, in Verilog, read from top to bottom. `load` fills the channels, `dumps` writes ranges of them by
    kind; `protocol`: whether one has seen a breach."""
    r = {register.name: f"32'h{int(register):x}" for register in Register}
    traced, untraced = CONTROL.pack({"start": 1, "trace": 1}), CONTROL.pack({"start": 1})
    failed, cause = _bits("status", STATUS, "fault"), _bits("fault_who", FAULT_WHO, "cause")
    return [
        f"""
  reg [31:0] value;
  // What every part of the chip waits for, after a watchdog.
  reg [31:0] low;
  integer states, left;
  reg [8*64-1:0] states_path;
  task autopsy;
    begin
      wait_cycles({report_cycles(config)});
      $sformat(states_path, "job%0d_states.out", job);
      states = $fopen(states_path, "wb");
      csr_read({r["REPORTS"]});
      for (left = value; left != 0; left = left - 1) begin
        csr_read({r["REPORT_LOW"]}); low = value;
        csr_read({r["REPORT_HIGH"]});
        $fdisplay(states, "%08x%08x", value, low);
      end
      $fclose(states);
    end
  endtask
  task boot(input [31:0] tile, input [31:0] address, input [31:0] count, input [31:0] limit, input [31:0] control);
    begin
      csr_write({r["PROGRAM_TILE"]}, tile);
      csr_write({r["PROGRAM_ADDR"]}, address);
      csr_write({r["PROGRAM_COUNT"]}, count);
      csr_write({r["WATCHDOG"]}, limit);
      csr_write({r["STALL_LIMIT"]}, stall_limit);
      csr_write({r["CONTROL"]}, control);
      wait_cycles(1);
      wait_irq;
      wait_cycles(1);
    end
  endtask
  reg fresh;
  task load_images;
    begin
{load}
    end
  endtask
  always @(order) begin
    if (order != ordered) begin
      case (act)
        {int(Act.OPEN)}: begin
          set_reset(1);
          wait_cycles(4);
          set_reset(0);
          wait_cycles({clear_cycles(config) + _SPARE});
          csr_read({r["CONFIG"]}); answer = value;
        end
        {int(Act.WRITE)}: csr_write(place, given);
        {int(Act.READ)}: begin csr_read(place); answer = value; end
        {int(Act.RUN)}: run_cycles(place);
        {int(Act.LOAD)}: begin fresh = job == 0; load_images; end
        {int(Act.DUMP)}: begin
{dumps["data"]}
        end
      endcase
      protocol = {protocol};
      ordered = order;
    end
  end
  always @(request) begin
    if (request != finished) begin
      set_reset(1);  // first: a chip that has raised a fault may still be writing
      wait_cycles(4);
      fresh = !stay;
      load_images;
      loaded = request;
      set_reset(0);
      wait_cycles({clear_cycles(config) + _SPARE});
      csr_read({r["CONFIG"]}); chip_id = value;
      if (observe) start_log;
      boot(program_tile, program_addr, program_count, watchdog, {traced});
      end_log;
      ran = request;
      wait_cycles(1);  // whoever waits for `ran` must see it before `finished`
      // at once: a program that has ended too early goes on while its records are moved
{dumps["data"]}
      csr_read({r["STATUS"]}); status = value;
      csr_read({r["CYCLES"]}); cycles = value;
      csr_read({r["FAULT_WHO"]}); fault_who = value;
      csr_read({r["FAULT_VALUE"]}); fault_value = value;
      csr_read({r["QUIET"]}); quiet = value;
      if (trace_count != 0 && !{failed}) begin
        boot(trace_tile, trace_addr, trace_count, 32'd50000000, {untraced});
        csr_read({r["STATUS"]}); status = value;
        csr_read({r["FAULT_WHO"]}); fault_who = value;
        csr_read({r["FAULT_VALUE"]}); fault_value = value;
      end
      if ({failed} && ({cause} == {int(Cause.WATCHDOG)} || {cause} == {int(Cause.STALLED)})) autopsy;
      if (!{failed}) begin
{dumps["records"]}
      end
      protocol = {protocol};
      finished = request;
    end
  end""",
    ]
