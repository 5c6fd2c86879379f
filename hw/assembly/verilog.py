"""A chip as Verilog: optimised RTLIL, one module per kind of tile.

Each kind of tile is elaborated once and instantiated by name; modules that come out identical (array blocks, buffers)
are merged. Optimising the RTLIL before Verilog is written turns next-state copies into enabled registers, which is what
makes the simulation fast.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from ..spec.config import ChipConfig
from ..wiring.ecc import COLLISIONS
from .readable import NAMING, contracts_of, readable, waivers

if TYPE_CHECKING:
    from amaranth.hdl import Value

SCRIPT = "read_rtlil source; hierarchy -top {top}; proc; opt_clean; opt; wreduce; opt_clean; write_verilog target"
#: What Yosys writes of a choice whose cases exclude each other, as an attribute; tools read the older comment, too.
_PARALLEL = re.compile(r"^ *\(\* parallel_case \*\)\n( *case.*)$", re.MULTILINE)
#: Yosys's attributes, but those of memories, which `hw.wiring.ecc` has set.
_ATTRIBUTE = re.compile(rf"(?:^ *)?\(\* (?!(?:{'|'.join(COLLISIONS)})\b)[^*]*\*\)(?:\n| )", re.MULTILINE)
#: Runs a script of Yosys, in a process of its own: an internal error of the tool ends the process it runs in.
YOSYS = """
import contextlib, ctypes, signal, sys
with contextlib.suppress(Exception):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # Linux: ends with whoever has started it
from pyosys import libyosys
libyosys.run_pass(sys.argv[1], libyosys.Design())
"""
#: A module of RTLIL text.
MODULE = re.compile(r"^module \\(\S+)\n(.*?)^end$", re.MULTILINE | re.DOTALL)
# One conversion at a time: what the emitter does with memories depends on who asks.
_converting = threading.Lock()
_CELL = re.compile(r"^(\s+cell \\)(\S+)( )", re.MULTILINE)


class EmitError(RuntimeError):
    """The gateware could not be turned into Verilog."""


def rtlil(
    config: ChipConfig,
    gated: bool = False,
    observed: bool = False,
    loops: bool = False,
    contracts: dict[str, str] | None = None,
) -> str:
    """The chip as RTLIL text, before optimisation. Top module: `chip`. With `loops` the arrays' module is left out.
    `contracts` is filled with what each module is, in the words of its source."""
    from ..core.array import blocks
    from .chip import Chip, tile_module, tiles_used

    gateware: dict[str, Any] = {"chip": Chip(config, gated, observed)}
    gateware |= {tile_module(kind): tile for kind, tile in tiles_used(config, gated, observed, loops).items()}
    if not loops:
        gateware |= blocks(config)
    # Memories start unknown, as they do on a board; their words, one by one, also take most of the conversion's time.
    texts = (to_rtlil(part, name, contents=False, contracts=contracts) for name, part in gateware.items())
    return merge("\n".join(texts))


def to_rtlil(
    gateware: Any,
    name: str,
    ports: Sequence[Value] | None = None,
    contents: bool = True,
    contracts: dict[str, str] | None = None,
) -> str:
    """Gateware as RTLIL text whose top module is `name`. `ports` are those of a component unless they are given.
    Without `contents` memories start unknown. `contracts`: as of `rtlil`."""
    from amaranth.back import rtlil as backend  # pyright: ignore[reportAttributeAccessIssue]  (missing in the stubs)

    convert: Any = backend.convert_fragment

    def described(fragment: Any, *arguments: Any, **options: Any) -> Any:
        if contracts is not None:
            contracts.update(contracts_of(fragment, name))
        return convert(fragment, *arguments, **options)

    with _converting, _no_collection(), contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(backend, "convert_fragment", described))
        if not contents:
            stack.enter_context(mock.patch.object(backend.ModuleEmitter, "emit_memory"))
        return backend.convert(gateware, name=name, ports=ports, emit_src=False)


@contextlib.contextmanager
def _no_collection() -> Generator[None]:
    """No garbage collection meanwhile: a netlist is millions of objects, all of them in use."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def merge(text: str) -> str:
    """Gives modules plain names and keeps one of each set of identical ones."""
    bodies = {match[1].replace(".", "__"): match[2] for match in MODULE.finditer(text)}
    names = set(bodies)

    def plain(match: re.Match[str]) -> str:
        name = match[2].replace(".", "__")
        return f"{match[1]}{name if name in names else match[2]}{match[3]}"

    def renamed(body: str, names: dict[str, str]) -> str:
        return _CELL.sub(lambda match: f"{match[1]}{names.get(match[2], match[2])}{match[3]}", body)

    bodies = {name: _CELL.sub(plain, body) for name, body in bodies.items()}
    while True:
        first: dict[str, str] = {}
        same: dict[str, str] = {}
        for name, body in bodies.items():
            if first.setdefault(body, name) != name:
                same[name] = first[body]
        if not same:
            break
        bodies = {name: renamed(body, same) for name, body in bodies.items() if name not in same}
    return "".join(f"module \\{name}\n{body}end\n" for name, body in bodies.items())


def verilog(config: ChipConfig, gated: bool = False, observed: bool = False, loops: bool = False) -> str:
    """Synthesisable Verilog of the chip. Top module: `chip`. Raises EmitError with the tool's last words.

    `gated`: idle blocks have their clocks stopped by instances of `clock_gate` (`hw.wiring.clocking`), a cell that the
    user brings. `observed`: with the ports `seen_<i>__*`, one result word of each of the i-th core's memories per cycle
    (`hw.assembly.core_tile.ProbePort`), for benches. `loops`: with arrays as `hw.core.array_loops` writes them, in
    SystemVerilog, for compiled simulators.
    """
    from ..core import array_loops

    try:
        text = optimised(rtlil(config, gated, observed, loops), "chip")
    except EmitError as error:
        raise EmitError(f"Verilog of {config.name} failed: {error}") from error
    return text + (array_loops.verilog(config) if loops else "")


def optimised(text: str, top: str) -> str:
    """RTLIL as Verilog, with next-state copies turned into enabled registers. Raises as `by_yosys`."""
    return _with_few_attributes(by_yosys(text, SCRIPT.format(top=top), "endmodule"))


def _with_few_attributes(text: str) -> str:
    return _ATTRIBUTE.sub("", _PARALLEL.sub(r"\1 // synopsys parallel_case", text))


def by_yosys(text: str, script: str, end: str) -> str:
    """What a script of Yosys writes to the file `target`, which ends with `end`, of the RTLIL in `source`. Raises
    EmitError with the tool's last words; OSError, with the file, for a full disk."""
    with tempfile.TemporaryDirectory(prefix="meshloom_") as folder:
        source, target = Path(folder) / "source", Path(folder) / "target"
        try:
            source.write_text(text)
        except OSError as error:  # of a file that is open the system does not say which it is
            raise OSError(error.errno, error.strerror, str(source)) from error
        done = subprocess.run([sys.executable, "-c", YOSYS, script], cwd=folder, capture_output=True, text=True)
        if done.returncode or not target.exists():
            raise EmitError((done.stderr or done.stdout).strip()[-2000:])
        result = target.read_text()
        if not result.rstrip().endswith(end):  # it does not notice when what it writes is cut off
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)
        return result


def manifest(config: ChipConfig, observed: bool = False) -> dict[str, Any]:
    """What a user of the Verilog needs to know: ports with width and direction, parameters, tiles, registers.

    `observed`: of the Verilog that has been written so.
    """
    from amaranth.hdl import Shape
    from amaranth.lib.wiring import Out

    from ..spec.registers import registers_of
    from .chip import chip_ports

    signature = chip_ports(config, observed)
    members: Any = signature.flatten(signature.create())  # `Any`: the stubs take members for their flow
    ports = [{"name": "clk", "direction": "input", "width": 1}, {"name": "rst", "direction": "input", "width": 1}]
    ports += [
        {
            "name": "__".join(str(part) for part in path),
            "direction": "output" if member.flow is Out else "input",
            "width": Shape.cast(member.shape).width,
        }
        for path, member, _ in members
    ]
    return {
        "format": 1,
        "top": "chip",
        "digest": config.digest,
        "ports": ports,
        "parameters": config.model_dump(mode="json", exclude={"clock_mhz"}),  # the same files at any clock
        "tiles": {str(tile): kind.value for tile, kind in config.tiles.items()},
        "axi": {f"axi_{index}": tile for index, tile in enumerate(config.channels)},
        "clock": "clk",
        "reset": {"port": "rst", "active": "high", "synchronous": True},
        "registers": {register.name: int(register) for register in registers_of(config)},
    }


def files(config: ChipConfig) -> dict[str, str]:
    """Name to content: `<name>.v` (for people, `hw.assembly.readable`), `<name>.json` (the manifest), `<name>.rdl` (the
    registers) and `<name>.vlt` (which warnings of Verilator are as meant, and why). Raises EmitError."""
    from .system_rdl import system_rdl

    contracts: dict[str, str] = {}
    try:
        named = SCRIPT.format(top="chip").replace("write_verilog", NAMING)
        text = _with_few_attributes(by_yosys(rtlil(config, contracts=contracts), named, "endmodule"))
    except EmitError as error:
        raise EmitError(f"Verilog of {config.name} failed: {error}") from error
    return {
        f"{config.name}.v": readable(text, config, contracts),
        f"{config.name}.json": json.dumps(manifest(config), indent=2) + "\n",
        f"{config.name}.rdl": system_rdl(config),
        f"{config.name}.vlt": waivers(config),
    }
