"""The chip as a block of a system, with the ports that integrators' tools know, and the files with which two of them
take it.

`<name>_axi.v` is the module `chip_axi` around `chip`. It has no register: what it adds are names, constants and the
base address of each DRAM channel, as parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

from amaranth.hdl import Shape
from amaranth.lib.wiring import Out

from ..assembly.tile import dram_bus
from ..spec.config import BURST_BYTES, ChipConfig
from ..wiring.axi import AXI4Lite

TOP = "chip_axi"
#: Of each address channel, what the chip has no opinion of: width, value.
_CONSTANTS = {
    "lock": ("", "1'b0"), "cache": ("[3:0] ", "CACHE"), "prot": ("[2:0] ", "PROT"), "qos": ("[3:0] ", "4'd0"),
    "region": ("[3:0] ", "4'd0"),
}  # fmt: skip


def files(config: ChipConfig) -> dict[str, str]:
    """Name to content: `<name>_axi.v`, `<name>.core` (FuseSoC) and `<name>.tcl` (Vivado). They name the files of
    `hw.assembly.verilog.files`."""
    name = config.name
    return {f"{name}_axi.v": _module(config), f"{name}.core": _core(config), f"{name}.tcl": _vivado(config)}


def _module(config: ChipConfig) -> str:
    channels = range(len(config.channels))
    ports = [*_clock(config), *_registers()]
    pins = [".clk(aclk)", ".rst(~aresetn)", ".irq(irq)"]
    pins += [f".bus__{name}(s_axi_{name})" for name in AXI4Lite(address_bits=8).members]
    body: list[str] = []
    for index in channels:
        ports += _manager(config, index)
        pins += _pins(config, index)
        body += _addresses(index)
    size = config.dram.words * config.lanes
    bases = "".join(
        f"    parameter [63:0] BASE_{index} = 64'h0,  // byte address of channel {index}, a multiple of {BURST_BYTES}\n"
        for index in channels
    )
    return f"""\
// Chip {config.name} as a block of a system: AXI4 and AXI4-Lite by the names that tools look for.
// Made by Meshloom {version("meshloom")}; digest {config.digest[:16]}.
// Each manager is {config.lanes} bytes wide and reaches {size:,} bytes from its base on.
// Bursts are INCR, of whole words, and cross no multiple of {BURST_BYTES}.
// Answers come in order: their IDs are not looked at.
/* verilator lint_off DECLFILENAME */
/* verilator lint_off PINCONNECTEMPTY */
/* verilator lint_off UNUSEDSIGNAL */
module {TOP} #(
{bases}\
    parameter ADDRESS_BITS = 32,  // 32 to 64
    parameter ID_BITS = 1,
    parameter [ID_BITS-1:0] ID = 0,  // of all transactions
    parameter [3:0] CACHE = 4'b0011,  // AxCACHE: normal memory, not cached, writes may be buffered
    parameter [2:0] PROT = 3'b000  // AxPROT
) (
{_listed(ports)}
);
{_checks(config)}\
{_lines(body)}\
  chip chip (
{_listed(pins)}
  );
endmodule
"""


def _checks(config: ChipConfig) -> str:
    """What says in a simulation, at its begin, that a parameter cannot be."""
    last, size = BURST_BYTES - 1, config.dram.words * config.lanes
    rules = [("ADDRESS_BITS < 32 || ADDRESS_BITS > 64", "ADDRESS_BITS is %0d and must be 32 to 64", "ADDRESS_BITS")]
    for index in range(len(config.channels)):
        base = f"BASE_{index}"
        rules += [
            (f"({base} & 64'd{last}) != 0", f"{base} is 0x%0x and must be a multiple of {BURST_BYTES}", base),
            (
                f"ADDRESS_BITS < 64 && ({base} + 64'd{size - 1}) >> ADDRESS_BITS != 0",
                f"{base} is 0x%0x: {size} bytes from there on need more than ADDRESS_BITS",
                base,
            ),
        ]
    lines = "".join(
        f'    if ({wrong}) begin $display("{TOP}: {words}", {value}); $finish; end\n' for wrong, words, value in rules
    )
    return f"  // synthesis translate_off\n  initial begin\n{lines}  end\n  // synthesis translate_on\n"


def _clock(config: ChipConfig) -> Iterator[str]:
    managers = ":".join(f"m_axi_{index}" for index in range(len(config.channels)))
    yield f'(* X_INTERFACE_PARAMETER = "ASSOCIATED_BUSIF s_axi:{managers}, ASSOCIATED_RESET aresetn" *) input aclk'
    yield "input aresetn"
    yield "output irq"


def _registers() -> Iterator[str]:
    """The host's registers, as seen by who writes them."""
    for name, member in AXI4Lite(address_bits=8).members.items():
        way = "input" if member.flow is Out else "output"
        yield f"{way} {_width(Shape.cast(member.shape).width)}s_axi_{name}"


def _manager(config: ChipConfig, index: int) -> Iterator[str]:
    """The ports of a DRAM channel."""
    for name, member in dram_bus(config).members.items():
        way = "output" if member.flow is Out else "input"
        width = {"addr": "[ADDRESS_BITS-1:0] ", "id": "[ID_BITS-1:0] "}.get(name[2:] if name[0] == "a" else name[1:])
        yield f"{way} {width or _width(Shape.cast(member.shape).width)}m_axi_{index}_{name}"
        if name in ("awburst", "arburst"):
            yield from (f"output {bits}m_axi_{index}_{name[:2]}{what}" for what, (bits, _) in _CONSTANTS.items())


def _pins(config: ChipConfig, index: int) -> Iterator[str]:
    for name, member in dram_bus(config).members.items():
        wire = f"m_axi_{index}_{name}"
        if name in ("awaddr", "araddr"):
            wire = f"{name[:2]}_{index}"
        elif name in ("awid", "arid", "bid", "rid"):
            wire = "" if member.flow is Out else "1'b0"
        yield f".axi_{index}__{name}({wire})"


def _addresses(index: int) -> Iterator[str]:
    """What the chip's own signals lack."""
    for channel in ("aw", "ar"):
        prefix = f"m_axi_{index}_{channel}"
        yield f"wire [31:0] {channel}_{index};"
        yield f"wire [63:0] {channel}_{index}_based = BASE_{index} + {{32'd0, {channel}_{index}}};"
        yield f"assign {prefix}addr = {channel}_{index}_based[ADDRESS_BITS-1:0];"
        yield f"assign {prefix}id = ID;"
        yield from (f"assign {prefix}{name} = {value};" for name, (_, value) in _CONSTANTS.items())


def _width(bits: int) -> str:
    return f"[{bits - 1}:0] " if bits > 1 else ""


def _listed(items: list[str]) -> str:
    return ",\n".join(f"    {item}" for item in items)


def _lines(items: list[str]) -> str:
    return "".join(f"  {item}\n" for item in items)


def _core(config: ChipConfig) -> str:
    name, release = config.name, ".".join(version("meshloom").split(".")[:3])
    bases = "".join(
        f"""\
  BASE_{index}:
    datatype: str
    paramtype: vlogparam
    description: byte address of DRAM channel {index}, such as 64'h8000_0000
"""
        for index in range(len(config.channels))
    )
    used = ", ".join(f"BASE_{index}" for index in range(len(config.channels)))
    return f"""\
CAPI=2:
# fusesoc --cores-root . run --target lint meshloom:chips:{name}:{release}
name: meshloom:chips:{name}:{release}
description: chip {name} with AXI4 and AXI4-Lite ports
filesets:
  rtl:
    files: [{name}.v, {name}_axi.v]
    file_type: verilogSource
  waivers:
    files: [{name}.vlt]
    file_type: vlt
targets:
  default: &default
    filesets: [rtl]
    toplevel: {TOP}
    parameters: [{used}]
  lint:
    <<: *default
    filesets: [waivers, rtl]
    default_tool: verilator
    tools:
      verilator:
        mode: lint-only
        verilator_options: [-Wall]
parameters:
{bases}"""


def _vivado(config: ChipConfig) -> str:
    name, clock = config.name, config.clock_mhz or 100
    return f"""\
# Chip {name} by itself in Vivado, out of context: how large and how fast it is.
#     vivado -mode batch -source {name}.tcl -tclargs xc7a200tfbg484-1 {clock:g}
# To take it into a block design, add {name}.v and {name}_axi.v as sources, then the module {TOP}.
if {{$argc < 1}} {{
    puts stderr "name the part, and the clock in MHz ({clock:g} if it is left out)"
    exit 1
}}
set part [lindex $argv 0]
set megahertz [expr {{$argc > 1 ? [lindex $argv 1] : {clock:g}}}]
set here [file dirname [file normalize [info script]]]
read_verilog [file join $here {name}.v] [file join $here {name}_axi.v]
synth_design -top {TOP} -part $part -mode out_of_context
create_clock -name aclk -period [expr {{1000.0 / $megahertz}}] [get_ports aclk]
opt_design
place_design
route_design
report_utilization -hierarchical -file [file join $here {name}_utilization.txt]
report_timing_summary -file [file join $here {name}_timing.txt]
"""
