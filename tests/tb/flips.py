"""A chip whose network flips bits: one of a flit, chosen for each job. The gateware that ships knows nothing of it.

Behind every output of every router (and before its tile's input) stands a `flipper`, a module of this file. It reads
`flips.hex`, a line for each job: which flipper, which packet, which flit of it, which bit.
"""

from __future__ import annotations

import functools
import itertools
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal
from amaranth.lib import wiring

from meshloom.hw.assembly import chip as chip_module
from meshloom.hw.assembly import verilog as verilog_module
from meshloom.hw.assembly.tile import PLANES
from meshloom.hw.noc import mesh as mesh_module
from meshloom.hw.noc.link import Plane
from meshloom.hw.noc.mesh import VcMesh
from meshloom.hw.noc.router import Router
from meshloom.hw.spec.config import ChipConfig, tile_address
from meshloom.hw.spec.routes import LOCAL, NEIGHBOURS
from meshloom.sched.store.kinds import SIMULATORS
from meshloom.sched.store.store import Recipe, key
from meshloom.tb.build import builder as build_module
from meshloom.tb.build.builder import Build
from meshloom.tb.devices.simulated import SimulatedDevice

#: Where a bit can flip at a router: on the way in from its tile, or on the way out.
PLACES = ("inject", *NEIGHBOURS, LOCAL)
#: Number of the bit that says that a flit is the last of its packet, and of the lowest of its virtual channel.
LAST, CHANNEL = 0xFFFF, 0xFFF0

FLIPPER = """
module flipper #(parameter PLANE = 0, parameter PLACE = 0, parameter BITS = 64, parameter VCS = 1,
                 parameter WIDTH = 65) (
  input clk, input rst, input valid, input [VCS-1:0] ready, input [WIDTH-1:0] from, output [WIDTH-1:0] to
);
  reg [63:0] flips [0:1023];
  initial $readmemh("flips.hex", flips);
  wire [63:0] wanted = flips[bench.job];
  wire [1:0] vc = VCS > 1 ? from >> (BITS + 1) : 0;
  // flits of a packet may have those of other channels between them
  reg [15:0] packets; reg [15:0] packet_of [0:3]; reg [7:0] flit_of [0:3]; integer file, i;
  wire [7:0] flit = flit_of[vc];
  wire [15:0] packet = flit == 0 ? packets : packet_of[vc];
  wire here = wanted[63:56] == PLANE && wanted[55:40] == PLACE && wanted[39:24] == packet && wanted[23:16] == flit;
  wire [15:0] bit_ = wanted[15:0] == 16'hffff ? BITS :
                     wanted[15:0] >= 16'hfff0 ? BITS + 1 + wanted[3:0] : wanted[15:0];
  assign to = here ? from ^ ({{(WIDTH-1){1'b0}}, 1'b1} << bit_) : from;
  always @(posedge clk) begin
    if (rst) begin packets <= 0; for (i = 0; i < 4; i = i + 1) flit_of[i] <= 0; end
    else if (valid && ready[vc]) begin
      flit_of[vc] <= from[BITS] ? 0 : flit + 1;
      packet_of[vc] <= packet;
      packets <= packets + (flit == 0);
      if (here) begin
        file = $fopen("flipped.txt", "a");
        $fdisplay(file, "%0d", bench.job);
        $fclose(file);
      end
    end
  end
endmodule
"""


@dataclass(frozen=True)
class Flip:
    """Bit `bit` of flit `flit` (0 = the head) of packet number `packet` (from 0, in the order of heads) at a place of a
    tile's router."""

    plane: str
    tile: int
    place: str
    packet: int
    flit: int
    bit: int

    def code(self) -> str:
        """A line of `flips.hex`."""
        place = self.tile * 8 + PLACES.index(self.place)
        return f"{PLANES.index(self.plane):02x}{place:04x}{self.packet:04x}{self.flit:02x}{self.bit:04x}"


class _FlippingRouter(Router):
    """A router with flippers around it."""

    def __init__(self, number: int, x: int, y: int, plane: Plane) -> None:
        super().__init__(x, y, plane)
        self._number = number

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = Router(self.x, self.y, self.plane)
        m.d.comb += [self.fault.eq(inner.fault), self.fault_tile.eq(inner.fault_tile), self.active.eq(inner.active)]
        for port in self.ports:
            m.d.comb += [out.eq(inside) for out, inside in zip(self.counters(port), inner.counters(port), strict=True)]
            if port == LOCAL:
                self._flip(m, "inject", self.input(port), inner.input(port))
            else:
                wiring.connect(m, wiring.flipped(self.input(port)), inner.input(port))
            self._flip(m, port, inner.output(port), self.output(port))
        return m

    def _flip(self, m: Module, place: str, source: Any, target: Any) -> None:
        m.d.comb += [target.valid.eq(source.valid), source.ready.eq(target.ready)]
        m.submodules[f"flip_{place}"] = Instance(
            "flipper",
            p_PLANE=self._number,
            p_PLACE=tile_address(self.x, self.y) * 8 + PLACES.index(place),
            p_BITS=self.plane.bits,
            p_VCS=self.plane.vcs,
            p_WIDTH=len(source.payload.as_value()),
            i_clk=ClockSignal(),
            i_rst=ResetSignal(),
            i_valid=source.valid,
            i_ready=target.ready,
            i_from=source.payload.as_value(),
            o_to=target.payload.as_value(),
        )


class _FlippingMesh(VcMesh):
    def __init__(self, number: int, plane: Plane, *gates: Any, **named: Any) -> None:
        with mock.patch.object(mesh_module, "Router", functools.partial(_FlippingRouter, number)):
            super().__init__(plane, *gates, **named)


def build(config: ChipConfig) -> Build:
    """The chip with flippers for Icarus, from the cache if it is there."""
    made_of = build_module.ingredients(config, "icarus", False)
    name = key(f"{config.name}-flips", flipper=Path(__file__).read_text(), **made_of)
    emit = verilog_module.verilog

    def make(folder: Path, log: Path) -> None:
        numbers = itertools.count()
        with (
            mock.patch.object(
                chip_module,
                "VcMesh",
                lambda *args, **named: _FlippingMesh(next(numbers) % len(PLANES), *args, **named),
            ),
            mock.patch.object(verilog_module, "verilog", lambda *args, **named: emit(*args, **named) + FLIPPER),
        ):
            build_module.compile_into(folder, config, "icarus", False, log)

    folder, _ = SIMULATORS.store().build(Recipe(name, make, build_module.PROGRAMS["icarus"]))
    return Build(config, "icarus", False, folder, False)


@dataclass
class FlippingDevice(SimulatedDevice):
    """Flips `flips[n]` in job n (None: nothing). `flipped`: jobs in which it has happened."""

    flips: Sequence[Flip | None] = ()
    flipped: set[int] = field(default_factory=set)

    def _start(self, folder: Path) -> subprocess.Popen[bytes]:
        nothing = "f" * 16
        (folder / "flips.hex").write_text("\n".join(flip.code() if flip else nothing for flip in self.flips) + "\n")
        return super()._start(folder)

    def _collect(self, number: int, job: Any, plan: Any, needed: Any, result: dict[str, float], folder: Path) -> Any:
        happened = folder / "flipped.txt"
        if happened.exists():
            self.flipped |= {int(line) for line in happened.read_text().split()}
        return super()._collect(number, job, plan, needed, result, folder)
