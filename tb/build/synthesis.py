"""What gateware comes to after synthesis by Yosys: generic cells, flip-flops, instances that are counted elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path

from meshloom.sched.store.kinds import SYNTHESIS
from meshloom.sched.store.store import key

from .builder import OUTPUT, BuildError
from .tools import check_room

_READ = "read_rtlil design.il; "
#: Flattening leaves a cell for each module that was there, which is no gate.
_COUNT = "delete */t:$scopeinfo; tee -q -o area.json stat -json"
#: Everything is gates and flip-flops, memories too.
WHOLE = f"{_READ}synth -flatten -top design; {_COUNT}"
#: The same without what turns memories into flip-flops: an ASIC or FPGA has macros for them.
LOGIC = (
    f"{_READ}synth -flatten -top design -run begin:fine; opt -fast -full; opt -undriven -fine; techmap; opt; "
    f"abc; opt_clean; {_COUNT}"
)


@dataclass(frozen=True)
class Area:
    """Generic cells: two-input gates, multiplexers and `flip_flops`. `instances`: of modules without contents."""

    cells: int
    flip_flops: int
    instances: dict[str, int] = field(default_factory=dict[str, int])


def tools() -> str:
    """The versions that decide what comes out."""
    return " ".join(f"{tool}={metadata.version(tool)}" for tool in ("pyosys", "amaranth"))


def area(name: str, text: str, script: str = LOGIC) -> Area:
    """The area of the module `design` in a text of RTLIL, from the cache if its very netlist was synthesised before.
    Raises BuildError."""
    entry = key(name, design=text, script=script, tools=tools())
    data = SYNTHESIS.store(OUTPUT).obtain(entry, lambda: json.dumps(asdict(_synthesise(text, script, name))).encode())
    return Area(**json.loads(data))


def _synthesise(text: str, script: str, name: str) -> Area:
    with tempfile.TemporaryDirectory(prefix="meshloom_") as result:
        folder = Path(result)
        (folder / "design.il").write_text(text)
        yosys(script, folder, name)
        design = json.loads((folder / "area.json").read_text())["design"]
    kinds: dict[str, int] = design["num_cells_by_type"]
    logic = {kind: count for kind, count in kinds.items() if kind.startswith("$") and not kind.startswith("$mem")}
    return Area(
        cells=sum(logic.values()),
        flip_flops=sum(count for kind, count in logic.items() if "DFF" in kind),
        instances={kind.removeprefix("\\"): count for kind, count in kinds.items() if not kind.startswith("$")},
    )


def yosys(script: str, folder: Path, name: str) -> str:
    """Runs a script in `folder`; returns what the tool printed. Raises BuildError with its last words."""
    from meshloom.hw.assembly.verilog import YOSYS

    done = subprocess.run([sys.executable, "-c", YOSYS, script], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        check_room(folder)
        raise BuildError(f"yosys failed on {name}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout
