"""The blocks of a chip, each compiled once to a library: cached by the content of its netlist.

Chips that have a block in common share its library, and a chip has one for all its equal tiles. In a library each
change of a clock is a cycle (so that a cycle is one evaluation and not two). Clock gates are outside: who carries out
a cycle changes the clocks of those that are open, which spares the model from finding out that they have changed.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from meshloom.hw.assembly.partition import Block, gates
from meshloom.hw.core.array_loops import verilog as array_loops
from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.wiring.clocking import GATE
from meshloom.sched.store.kinds import BLOCKS as KIND
from meshloom.sched.store.store import OnProgress, Recipe, key

from . import channel, compiling
from .assembly import AWAKE, CLOCKS, COUNT, LINKS, LOOK, LOOKS, MODEL, NOW, QUIET, TAKE, TICK, WAKE, pin, told
from .compiling import OBJECTS, Compiler, objects
from .tools import ToolError

#: The top module of a block.
TOP = "unit"
#: The gate of a tile's link to the host's reader of counters.
COUNTER = "counter_gate"
#: Where a DRAM tile's block has what a bench reads and writes.
PUBLIC = ("mem", "reach")

_GATE = f"module {GATE}(input clk, input enable, output gated); assign gated = clk; endmodule\n"


class BlockError(ToolError):
    """A block cannot be compiled as it is written; the message says why."""


def source(block: Block, config: ChipConfig) -> str:
    """The Verilog of a block for the simulator. Top module: `TOP`. Raises EmitError."""
    text = block.verilog()
    own = gates(text, block.name)
    text = "\n".join([clocked(text, block.name, own), *_around(block, config), _GATE, *_unit(block, config, own)])
    return re.sub(r"@\(posedge ", "@(edge ", text)


def clocked(text: str, module: str, own: Sequence[str]) -> str:
    """Each gate of a module gets a clock of its own, from a port `<gate>_clk`."""
    for gate in own:
        text, found = re.subn(rf"^(  {GATE} {gate} \(\n    \.clk)\(clk\)", rf"\1({gate}_clk)", text, flags=re.MULTILINE)
        if found != 1:
            raise BlockError(f"the gate {gate} of {module} is not written as it should be")
    ports = "".join(f"{gate}_clk, " for gate in own)
    declared = "".join(f"  input {gate}_clk;\n" for gate in own)
    return re.sub(rf"^(module {module}\()(.*?\);\n)", rf"\g<1>{ports}\g<2>{declared}", text, count=1, flags=re.M | re.S)


def _axi(block: Block) -> list[str]:
    return [port for port in block.ports if port.startswith("axi__")]


def _unit(block: Block, config: ChipConfig, own: Sequence[str]) -> Iterator[str]:
    """A module around the block, which has these gates, and the DRAM model if it has a bus for one."""
    axi = _axi(block)
    stops = [*(f"own.{gate}.enable" for gate in own), *([f"{MODEL}.gate.enable"] if axi else [])]
    last = len(stops) - 1
    outside = {name: port for name, port in block.ports.items() if name not in axi and name != "clk"}
    taken = [name for name, port in outside.items() if not port.output and name not in QUIET]
    known = [NOW] if told(block) else []
    seen = [LINKS] if LINKS in outside else []
    yield f"module {TOP}("
    for name, port in outside.items():
        yield f"  {'output' if port.output else 'input'} [{port.width - 1}:0] {pin(name)},"
    if axi:
        yield "  output protocol_error,"
    yield from (f"  input {WAKE}, input {TICK}," for _ in known)
    yield from (f"  input {LOOK}, output {LOOKS}," for _ in seen)
    yield f"  input {TAKE}, input [{last}:0] {CLOCKS}, output [{last}:0] {AWAKE}, output [7:0] {COUNT}"
    yield ");"
    yield from (f"  wire [{block.ports[name].width - 1}:0] {name};" for name in axi)
    yield from (f"  reg [{outside[name].width - 1}:0] taken_{pin(name)};" for name in [*taken, *seen, *known])
    yield f"  always @(edge {TAKE}) begin"
    yield from (f"    taken_{pin(name)} = {pin(name)};" for name in taken)
    yield "  end"
    for name in seen:  # the trace hands them out, and the link to the host's reader of counters takes them
        yield f"  always @(edge {LOOK}) taken_{pin(name)} = {pin(name)};"
        looking = [f"own.{gate}.enable" for gate in own if gate == COUNTER]
        looking += ["own.tracer.is_stat"] * bool(config.trace_records)
        yield f"  assign {LOOKS} = {' | '.join(looking) or 0};"
    for name in known:  # as a register of the block: what follows from it is known when the cycle has been done
        yield f"  always @(edge {WAKE} or edge {TICK}) taken_{pin(name)} <= {pin(name)};"
    held = {*taken, *seen, *known}
    wires = {name: f"taken_{pin(name)}" if name in held else pin(name) for name in outside}
    if NOW in wires and not known:  # it makes the number itself
        wires[NOW] = wires[f"{NOW}_out"]
    pins = [f".{gate}_clk({CLOCKS}[{number}])" for number, gate in enumerate(own)]
    pins += [".clk(1'b0)", *(f".{name}({wire})" for name, wire in wires.items()), *(f".{name}({name})" for name in axi)]
    yield f"  {block.name} own({', '.join(pins)});"
    if axi:
        pins = [f".clk({CLOCKS}[{last}])", f".rst({wires['rst']})", ".protocol_error(protocol_error)"]
        pins += [f".{name.removeprefix('axi__')}({name})" for name in axi]
        yield f"  {channel.instance(config)} {MODEL}({', '.join(pins)});"
    yield f"  assign {AWAKE} = {{{', '.join(reversed(stops))}}};"
    yield f"  assign {COUNT} = {len(stops)};"
    yield "endmodule\n"


def library(
    root: Path, block: Block, config: ChipConfig, compiler: Compiler, shared: Path, on_progress: OnProgress
) -> Path:
    """The folder with a block's object files (`compiling.OBJECTS`) and headers, from the cache if it is there.
    `shared`: the folder of `compiling.headers`. Raises BlockError, CompilerError, EmitError, StoreError."""

    def make(folder: Path, log: Path) -> None:
        text, prefix, work = source(block, config), f"V{block.name}", folder / "work"
        work.mkdir()
        (work / "unit.v").write_text(text)
        (work / "unit.vlt").write_text("`verilator_config\n" + "".join(_settings(text)))
        verilate = ["verilator", "--cc", "--no-timing", "--prefix", prefix, "--top-module", TOP, "-Mdir", "."]
        with log.open("w") as printed:
            compiler.run([*verilate, *compiler.arguments, "unit.vlt", "unit.v"], work, printed, block.name)
            single_pass(block, work)
            objects(work, prefix, compiler, shared, printed, block.name)
        for path in (*(work / name for name in OBJECTS), *work.glob("*.h")):
            path.rename(folder / path.name)
        shutil.rmtree(work)

    recipe = Recipe(name(block, config, compiler), make, (*OBJECTS, *_headers(block)))
    return KIND.store(root, on_progress).build(recipe)[0]


def single_pass(block: Block, work: Path) -> None:
    """Raises BlockError unless all that a block does in a cycle is one pass of Verilator's `eval_nba`."""
    if any("___eval_act(" in source.read_text() for source in work.glob("*.cpp")):
        raise BlockError(f"{block.name} has logic in Verilator's active region, which is left out of its cycles")


def name(block: Block, config: ChipConfig, compiler: Compiler) -> str:
    """What a block's library is kept under: chips in which it is the same share it."""
    code = [Path(file).read_text() for file in (__file__, compiling.__file__)]
    around = [*code, *_around(block, config), *_unit(block, config, ["?"])]
    return key(block.name, rtlil=block.rtlil, around="\n".join(around), **compiler.machine)


def _headers(block: Block) -> tuple[str, ...]:
    """Those that an assembly includes."""
    return f"V{block.name}.h", f"V{block.name}___024root.h"


def _around(block: Block, config: ChipConfig) -> Iterator[str]:
    """Verilog that a block needs besides its own."""
    if "array_loops" in block.rtlil:
        yield array_loops(config)
    if _axi(block):
        yield from ((channel.FOLDER / name).read_text() for name in channel.sources(config))


def _settings(text: str) -> Iterator[str]:
    """Verilator settings: arrays keep a function of their own, and the bench reaches a DRAM model's memory."""
    for match in re.finditer(r"^module (array_loops_\w+)\(", text, re.MULTILINE):
        yield f'no_inline -module "{match[1]}"\n'
    if re.search(r"^module dram_model\b", text, re.MULTILINE):
        yield from (f'public_flat_rw -module "dram_model" -var "{name}"\n' for name in PUBLIC)
