"""The test bench of an exported workload, in plain Verilog (2005)."""

from __future__ import annotations

import re

from meshloom.hw.assembly.verilog import manifest as chip_manifest
from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.registers import ID_VALUE

from ...build import channel
from ...results.export import ExportManifest

#: Cycles that a run may take beyond its watchdog, which ends it, before the bench gives up.
_BEYOND = 10_000


def modules(config: ChipConfig) -> dict[str, str]:
    """Name to text of the Verilog beside the bench: the DRAM channels, as simulators have them."""
    names = (*channel.sources(config), "clock_gate.v")
    return {name: (channel.FOLDER / name).read_text(encoding="utf-8") for name in names}


def bench(manifest: ExportManifest, config: ChipConfig) -> str:
    """The bench, which expects the folder's files in the folder where it runs. Top module: `bench`."""
    ports = chip_manifest(config)["ports"]
    lines = [_HEAD.format(chip=config.name), *_wires(ports)]
    lines.append(f"  chip dut ({_pins(ports)});")
    lines += [_channel(config, ports, index) for index in range(len(config.channels))]
    lines += [_TASKS, *_checks(manifest), _sequence(manifest)]
    return "\n".join(lines) + "\nendmodule\n"


_HEAD = """\
// Runs the workload of this folder on chip {chip}: fills DRAM, starts the chip by its registers, compares the outputs.
// Prints PASS, or FAIL and the first wrong address.
module bench;
  reg clk = 0;
  reg rst = 1;
  always #1 clk = ~clk;"""

_TASKS = """
  reg failed = 0;
  reg go = 0;
  reg [31:0] value;
  reg [31:0] status;
  reg [31:0] waited;
  task write_register(input [31:0] address, input [31:0] data);
    begin
      bus__awaddr <= address; bus__awvalid <= 1; bus__wdata <= data; bus__wstrb <= 4'hf; bus__wvalid <= 1;
      bus__bready <= 1;
      @(posedge clk);
      while (!(bus__awready && bus__wready)) @(posedge clk);
      bus__awvalid <= 0; bus__wvalid <= 0;
      while (!bus__bvalid) @(posedge clk);
      @(posedge clk);
    end
  endtask
  task read_register(input [31:0] address);
    begin
      bus__araddr <= address; bus__arvalid <= 1; bus__rready <= 1;
      @(posedge clk);
      while (!bus__arready) @(posedge clk);
      bus__arvalid <= 0;
      while (!bus__rvalid) @(posedge clk);
      value = bus__rdata;
      @(posedge clk);
    end
  endtask"""


def _wires(ports: list[dict[str, str | int]]) -> list[str]:
    """A register for each input of the host's bus, a wire for each other port."""
    lines: list[str] = []
    for port in ports:
        if port["name"] in ("clk", "rst"):
            continue
        driven = str(port["name"]).startswith("bus__") and port["direction"] == "input"
        kind, start = ("reg", " = 0") if driven else ("wire", "")
        lines.append(f"  {kind} [{int(port['width']) - 1}:0] {port['name']}{start};")
    return lines


def _pins(ports: list[dict[str, str | int]]) -> str:
    return ", ".join(f".{port['name']}({port['name']})" for port in ports)


def _channel(config: ChipConfig, ports: list[dict[str, str | int]], index: int) -> str:
    """The DRAM channel behind `axi_<index>`."""
    prefix = f"axi_{index}__"
    own = [str(port["name"]) for port in ports if str(port["name"]).startswith(prefix)]
    pins = [".clk(clk)", ".rst(rst)", f".protocol_error(protocol_error_{index})"]
    pins += [f".{name.removeprefix(prefix)}({name})" for name in own]
    return f"  wire protocol_error_{index};\n  {channel.instance(config, index)}\n    dram_{index} ({', '.join(pins)});"


def _checks(manifest: ExportManifest) -> list[str]:
    """A task for each channel that compares words of it with the expected ones."""
    width = 8 * manifest.lanes
    words = sum(each.words for output in manifest.outputs for each in output.ranges)
    tasks = [
        f"""
  reg [{width - 1}:0] expected [0:{words - 1}];
  reg [{width - 1}:0] compared [0:{words - 1}];
  reg [{width - 1}:0] wrong;
  integer i, lane;"""
    ]
    for image in manifest.channels:
        memory = f"dram_{image.channel}.mem[address + i]"
        tasks.append(
            f"""\
  task check_{image.channel}(input [31:0] address, input [31:0] words, input [31:0] offset);
    for (i = 0; i < words && !failed; i = i + 1) begin
      wrong = ({memory} ^ expected[offset + i]) & compared[offset + i];
      for (lane = 0; lane < {manifest.lanes} && !failed; lane = lane + 1)
        if (wrong[8*lane +: 8] !== 8'd0) begin
          failed = 1;
          $display("FAIL: channel {image.channel}, byte address 0x%0x is 0x%0x, expected 0x%0x",
                   (address + i) * {manifest.lanes} + lane, ({memory} >> (8 * lane)) & 8'hff,
                   (expected[offset + i] >> (8 * lane)) & 8'hff);
        end
    end
  endtask"""
        )
    return tasks


def _sequence(manifest: ExportManifest) -> str:
    """What the host does."""
    r = {name: f"32'h{address:02x}" for name, address in manifest.registers.items()}
    loads = "\n".join(
        f'      $readmemh("{image.text}", dram_{image.channel}.mem);' for image in manifest.channels if image.ranges
    )
    compared = manifest.expected.compared_text
    count = (
        f'$readmemh("{compared}", compared);'
        if compared
        else f"for (i = 0; i < {sum(each.words for one in manifest.outputs for each in one.ranges)}; i = i + 1) "
        f"compared[i] = {{{8 * manifest.lanes}{{1'b1}}}};"
    )
    boot = "\n".join(
        f"    write_register({r[name]}, 32'd{value});  // {name}" for name, value in manifest.boot.model_dump().items()
    )
    checks = "\n".join(
        f"    if (!failed) begin // {_word(output.name)}\n"
        + "\n".join(
            f"      check_{each.channel}({each.address}, {each.words}, {each.offset});" for each in output.ranges
        )
        + "\n    end"
        for output in manifest.outputs
    )
    size = sum(each.words for output in manifest.outputs for each in output.ranges) * manifest.lanes
    return f"""
  initial begin
    #1;  // the channels clear themselves at time 0
    i = $fopen("{manifest.expected.text}", "r");
    if (i == 0) begin
      $display("FAIL: {manifest.expected.text} is not here; run the bench in its own folder");
      $finish;
    end else begin
      $fclose(i);
{loads}
      $readmemh("{manifest.expected.text}", expected);
      {count}
      go = 1;
    end
  end
  always @(posedge go) begin  // in an initial block Verilator would not delay assignments
    repeat (4) @(posedge clk);
    rst <= 0;
    repeat ({manifest.clear_cycles} + 16) @(posedge clk);
    read_register({r["ID"]});
    if (value != 32'h{ID_VALUE:08x}) begin
      $display("FAIL: register ID is 0x%0x", value);
      $finish;
    end
    read_register({r["CONFIG"]});
    if (value != 32'h{manifest.config:08x}) begin
      $display("FAIL: register CONFIG is 0x%0x, expected 0x{manifest.config:x}: another chip", value);
      $finish;
    end
{boot}
    write_register({r["CONTROL"]}, 32'd{manifest.start});  // CONTROL
    waited = 0;
    while (!irq && waited < {manifest.boot.WATCHDOG + _BEYOND}) begin
      @(posedge clk);
      waited = waited + 1;
    end
    read_register({r["STATUS"]}); status = value;
    if (status & {manifest.status["fault"]}) begin
      read_register({r["FAULT_WHO"]}); waited = value;
      read_register({r["FAULT_VALUE"]});
      $display("FAIL: the chip stopped with a fault: FAULT_WHO 0x%0x, FAULT_VALUE 0x%0x", waited, value);
      $finish;
    end
    if (!(status & {manifest.status["done"]})) begin
      $display("FAIL: the chip does not end");
      $finish;
    end
    read_register({r["CYCLES"]});
{checks}
    if (!failed) $display("PASS: {size} bytes, %0d cycles (predicted {manifest.cycles})", value);
    $finish;
  end"""


def _word(name: str) -> str:
    """A name as a comment can have it."""
    return re.sub(r"[^\w.:/'-]", "_", name, flags=re.ASCII)
