"""A chip taken apart: its tiles and meshes as modules of their own, and the wires between them.

`hw.assembly.chip.Chip` is nothing but wires between tiles, meshes and the reset unit, whose outputs are functions of
registers (`hw.assembly.tile.Tile` names the exceptions; the reset follows its pin, which a bench sets between cycles).
So a simulator can compile each kind of tile once, however many of them there are, and carry the wires' values from one
to the other once a cycle.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..spec.config import TileKind
from ..wiring.clocking import GATE
from .verilog import MODULE, EmitError, by_yosys, merge, optimised, to_rtlil

if TYPE_CHECKING:
    from ..spec.config import ChipConfig

TOP = "chip"
_CELL = re.compile(r"^  cell \\(\S+) (\S+)$", re.MULTILINE)
_PORT = re.compile(r"^  wire (?:width (\d+) )?(input|output) \d+ +\\(\S+)$", re.MULTILINE)
_GATE = re.compile(rf"^  {GATE} (\w+) \(", re.MULTILINE)


@dataclass(frozen=True)
class Port:
    """A port of a module."""

    width: int
    output: bool


@dataclass(frozen=True)
class Block:
    """A module that is simulated by itself: its RTLIL with all that it needs, and its ports."""

    name: str
    rtlil: str
    ports: Mapping[str, Port]

    def verilog(self) -> str:
        """Its Verilog. Raises EmitError."""
        return optimised(self.rtlil, self.name)


@dataclass(frozen=True)
class Piece:
    """Bits that drive a part of an input: `width` bits from bit `first` of a port of `instance` (the chip's own port if
    that is empty), or if there is no port the constant `value`."""

    width: int
    instance: str = ""
    port: str = ""
    first: int = 0
    value: int = 0


@dataclass(frozen=True)
class Partition:
    """`blocks` by module; the `instances` of the chip, each with its module; `inputs`: what drives each input, by
    instance and port, lowest bits first."""

    blocks: Mapping[str, Block]
    instances: Mapping[str, str]
    inputs: Mapping[tuple[str, str], tuple[Piece, ...]]


def partition(
    config: ChipConfig,
    observed: bool = False,
    loops: bool = False,
    on_block: Callable[[Block], None] = lambda block: None,
) -> Partition:
    """The chip in parts, with gated clocks; `observed` and `loops`: see `hw.assembly.verilog.verilog`. `on_block` is
    called with each block as soon as it is there, cores first. Raises EmitError, also if the chip has logic of its
    own."""
    from .chip import tile_module, tiles_used

    blocks: dict[str, Block] = {}

    def add(name: str, modules: Mapping[str, str]) -> None:
        blocks[name] = _block(name, modules)
        on_block(blocks[name])

    with _beside(config, observed) as meshes:
        tiles = tiles_used(config, True, observed, loops)
        for kind in sorted(tiles, key=lambda kind: kind is not TileKind.CORE):
            name = tile_module(kind)
            add(name, _modules(to_rtlil(tiles[kind], name, contents=False)))
        modules = meshes()
    top = modules[TOP]
    instances = {name.removeprefix("\\"): kind for kind, name in _CELL.findall(top)}
    for name in dict.fromkeys(instances.values()):
        if name not in blocks:
            add(name, modules)
    return Partition(blocks, instances, _wires(top, instances, blocks))


@contextmanager
def _beside(config: ChipConfig, observed: bool) -> Generator[Callable[[], dict[str, str]]]:
    """Another process converts the chip with its meshes, which takes about as long as all tiles; the function waits for
    it and returns its modules. Raises EmitError."""
    code = "from meshloom.hw.assembly.partition import convert_meshes; convert_meshes()"
    with (
        tempfile.TemporaryFile("w+") as request,
        tempfile.TemporaryFile("w+") as answer,
        tempfile.TemporaryFile("w+") as errors,
    ):
        request.write(json.dumps({"config": config.model_dump(mode="json"), "observed": observed}))
        request.seek(0)
        with subprocess.Popen([sys.executable, "-c", code], stdin=request, stdout=answer, stderr=errors) as process:

            def modules() -> dict[str, str]:
                failed = process.wait()
                errors.seek(0)
                if failed:
                    raise EmitError(errors.read().strip()[-2000:])
                answer.seek(0)
                return _modules(answer.read())

            try:
                yield modules
            finally:
                process.kill()


def convert_meshes() -> None:
    """Reads {"config", "observed"} from standard input and writes the chip's RTLIL, without its tiles, to standard
    output."""
    from ..spec.config import ChipConfig
    from .chip import Chip

    request = json.load(sys.stdin)
    chip = Chip(ChipConfig.model_validate(request["config"]), True, request["observed"])
    sys.stdout.write(to_rtlil(chip, TOP, contents=False))


def _modules(text: str) -> dict[str, str]:
    return {match[1]: match[0] + "\n" for match in MODULE.finditer(merge(text))}


def gates(verilog: str, module: str) -> list[str]:
    """The instances of clock gates in a block's Verilog. Raises EmitError for one inside a submodule, or for a register
    of the block that no gate stands before: nobody could tell from outside whether the block is at rest."""
    body = re.search(rf"^module {module}\(.*?^endmodule", verilog, re.MULTILINE | re.DOTALL)
    own = _GATE.findall(body[0]) if body else []
    if len(own) != len(_GATE.findall(verilog)):
        raise EmitError(f"{module} has clock gates in its submodules: its own module must have them all")
    if body and re.search(r"@\(posedge clk\)", body[0]):
        raise EmitError(f"{module} has registers in the ungated domain: put them into a domain of `gated_domain`")
    return own


def _block(name: str, modules: Mapping[str, str]) -> Block:
    needed: dict[str, str] = {}
    waiting = [name]
    while waiting:
        if (one := waiting.pop()) in modules and one not in needed:
            needed[one] = modules[one]
            waiting += [kind for kind, _ in _CELL.findall(modules[one])]
    ports = {port: Port(int(width or 1), way == "output") for width, way, port in _PORT.findall(modules[name])}
    return Block(name, "".join(needed.values()), ports)


def _wires(
    top: str, instances: Mapping[str, str], blocks: Mapping[str, Block]
) -> dict[tuple[str, str], tuple[Piece, ...]]:
    """What drives each input of the instances."""
    module = _netlist(top)
    drivers: dict[int | str, tuple[str, str, int]] = {}  # net (a constant is a text) to (instance, port, bit)
    for name, port in module["ports"].items():
        if port["direction"] == "input":
            drivers |= {net: ("", name, bit) for bit, net in enumerate(port["bits"])}
    for name, cell in module["cells"].items():
        if name not in instances:
            raise EmitError(f"the chip has logic of its own, {cell['type']} {name}: it must be in a tile or a mesh")
        ports = blocks[cell["type"]].ports
        for port, nets in cell["connections"].items():
            if port in ports and ports[port].output:
                drivers |= {net: (name, port, bit) for bit, net in enumerate(nets)}
    return {
        (name, port): _pieces(nets, drivers)
        for name, cell in module["cells"].items()
        for port, nets in cell["connections"].items()
        if port in (ports := blocks[cell["type"]].ports) and not ports[port].output
    }


def _pieces(nets: Iterable[int | str], drivers: Mapping[int | str, tuple[str, str, int]]) -> tuple[Piece, ...]:
    """Nets, lowest bit first, as pieces that are as long as can be. Nets without a driver are 0."""
    pieces: list[Piece] = []
    for net in nets:
        driver = drivers.get(net)
        last = pieces[-1] if pieces else None
        if driver is None:
            bit = int(net == "1")
            if last is not None and not last.port:
                pieces[-1] = Piece(last.width + 1, value=last.value | bit << last.width)
            else:
                pieces.append(Piece(1, value=bit))
        elif last is not None and (last.instance, last.port, last.first + last.width) == driver:
            pieces[-1] = Piece(last.width + 1, last.instance, last.port, last.first)
        else:
            pieces.append(Piece(1, *driver))
    return tuple(pieces)


def _netlist(text: str) -> dict[str, Any]:
    """The chip's module as Yosys's JSON describes it. Raises as `by_yosys`."""
    script = "read_rtlil source; proc; opt_clean; write_json -selected target"
    return json.loads(by_yosys(text, script, "}"))["modules"][TOP]
