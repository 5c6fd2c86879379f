"""The size of one router: generic cells after synthesis by Yosys."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from meshloom.hw.routes import RouteField
from meshloom.sched.store.kinds import SYNTHESIS
from meshloom.sched.store.store import key

from ..build.builder import OUTPUT, ROOT
from ..devices.noc.build import yosys

#: A data flit of a chip with 16 lanes.
BITS, DEPTH = 128, 4
#: Room for the diameter of a 6 x 6 mesh and detours.
ROUTES = RouteField(flag_bit=64, first_bit=65, turns=13)
_SCRIPT = "read_rtlil router.il; synth -flatten -top router; tee -q -o area.json stat -json"


@dataclass(frozen=True)
class Area:
    """Generic cells of one router: two-input gates, multiplexers and, buffers included, `flip_flops`."""

    cells: int
    flip_flops: int


def router_area(vcs: int, allocate: str = "same", bits: int = BITS, depth: int = DEPTH) -> Area:
    """A router with all five ports and source routes. Takes a minute of CPU time, so results are cached by content.

    Raises BuildError.
    """
    sources = sorted((ROOT / "hw" / "noc").glob("*.py"))
    name = key(
        f"router-{vcs}vc-{allocate}",
        router=f"{vcs} {allocate} {bits} {depth} {ROUTES}",
        script=_SCRIPT,
        tools=" ".join(f"{tool}={metadata.version(tool)}" for tool in ("pyosys", "amaranth")),
        sources="".join(f"{path.name}\0{path.read_text()}\0" for path in sources),
    )
    found = SYNTHESIS.store(OUTPUT).made(
        name, lambda: json.dumps(asdict(_synthesise(vcs, allocate, bits, depth))).encode()
    )
    return Area(**json.loads(found))


def _synthesise(vcs: int, allocate: str, bits: int, depth: int) -> Area:
    from meshloom.hw.noc.link import Plane
    from meshloom.hw.noc.router import VcRouter
    from meshloom.hw.verilog import to_rtlil

    router = VcRouter(1, 1, Plane(3, 3, bits, depth, vcs, allocate=allocate, routes=ROUTES))
    with tempfile.TemporaryDirectory(prefix="meshloom_") as name:
        folder = Path(name)
        (folder / "router.il").write_text(to_rtlil(router, "router"))
        yosys(_SCRIPT, folder, f"the router with {vcs} channels")
        design = json.loads((folder / "area.json").read_text())["design"]
    kinds = design["num_cells_by_type"]
    return Area(design["num_cells"], sum(count for kind, count in kinds.items() if "DFF" in kind))
