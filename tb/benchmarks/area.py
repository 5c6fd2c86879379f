"""Sizes of gateware: generic cells after synthesis by Yosys."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from meshloom.hw.config import ChipConfig
from meshloom.hw.isa import Unit
from meshloom.hw.routes import RouteField
from meshloom.sched.store.kinds import SYNTHESIS
from meshloom.sched.store.store import key

from ..build.builder import OUTPUT
from ..devices.noc.build import yosys

#: A data flit of a chip with 16 lanes.
BITS, DEPTH = 128, 4
#: Room for the diameter of a 6 x 6 mesh and detours.
ROUTES = RouteField(flag_bit=64, first_bit=65, turns=13)
_READ = "read_rtlil design.il; "
_COUNT = "tee -q -o area.json stat -json"
_SCRIPT = f"{_READ}synth -flatten -top design; {_COUNT}"
#: The same without what turns memories into flip-flops: an ASIC or FPGA has macros for them.
_UNIT_SCRIPT = (
    f"{_READ}synth -flatten -top design -run begin:fine; opt -fast -full; opt -undriven -fine; techmap; opt; "
    f"abc; opt_clean; {_COUNT}"
)


@dataclass(frozen=True)
class Area:
    """Generic cells: two-input gates, multiplexers and `flip_flops`."""

    cells: int
    flip_flops: int


def router_area(vcs: int, allocate: str = "same", bits: int = BITS, depth: int = DEPTH) -> Area:
    """A router with all five ports and source routes, its buffers as flip-flops. Takes a minute of CPU time, so results
    are cached by content.

    Raises BuildError.
    """

    from meshloom.hw.noc.link import Plane
    from meshloom.hw.noc.router import VcRouter

    router = VcRouter(1, 1, Plane(3, 3, bits, depth, vcs, allocate=allocate, routes=ROUTES))
    return _area(f"router-{vcs}vc-{allocate}", router, _SCRIPT)


def unit_area(config: ChipConfig, unit: Unit) -> Area:
    """The matrix or vector unit of a core without its memories; cached as `router_area`. Raises BuildError."""

    from meshloom.hw.core.matrix import MatrixUnit
    from meshloom.hw.core.vector import VectorUnit

    design = {Unit.MATRIX: MatrixUnit, Unit.VECTOR: VectorUnit}[unit](config)
    return _area(f"{unit.name.lower()}-{config.lanes}-{config.core.vec_windows}", design, _UNIT_SCRIPT)


def _area(name: str, component: Any, script: str) -> Area:
    """The area of a design, from the cache if its very netlist was synthesised before. Raises BuildError."""
    from meshloom.hw.verilog import to_rtlil

    text = to_rtlil(component, "design")
    tools = " ".join(f"{tool}={metadata.version(tool)}" for tool in ("pyosys", "amaranth"))
    entry = key(name, design=text, script=script, tools=tools)
    found = SYNTHESIS.store(OUTPUT).made(entry, lambda: json.dumps(asdict(_synthesise(text, script, name))).encode())
    return Area(**json.loads(found))


def _synthesise(text: str, script: str, name: str) -> Area:
    with tempfile.TemporaryDirectory(prefix="meshloom_") as made:
        folder = Path(made)
        (folder / "design.il").write_text(text)
        yosys(script, folder, name)
        design = json.loads((folder / "area.json").read_text())["design"]
    kinds: dict[str, int] = design["num_cells_by_type"]
    cells = sum(count for kind, count in kinds.items() if not kind.startswith("$mem"))
    return Area(cells, sum(count for kind, count in kinds.items() if "DFF" in kind))
