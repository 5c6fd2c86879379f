"""What a chip takes of an FPGA, and how fast it may be, without placing: Yosys' cells, and typical delays of them."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path

from pydantic import ConfigDict

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.exact import Exact
from meshloom.sched.store import provenance
from meshloom.sched.store.kinds import SYNTHESIS
from meshloom.sched.store.store import OnProgress, key

from ..builder import OUTPUT
from ..synthesis import tools
from . import carries, layout, mapping, timing
from .layout import FpgaPart, parts_of
from .timing import TimedPath, longest_paths

_TOP = "chip"
_CODE = (*(Path(str(module.__file__)) for module in (carries, layout, mapping, timing)), mapping.SUMS)


class FpgaEstimate(Exact):
    """Of a chip without its board: `cells` by Yosys' kinds; `parts` as `FpgaLayout` has them, the chip first; `paths`:
    the longest between two parts each, longest first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cells: dict[str, int]
    parts: tuple[FpgaPart, ...]
    paths: tuple[TimedPath, ...]

    @property
    def megahertz(self) -> float:
        """The clock that the longest path allows."""
        return 1000 / self.paths[0].delay


def estimate(chip: ChipConfig, on_progress: OnProgress = lambda what: None) -> FpgaEstimate:
    """From the cache if it is there, otherwise in minutes of CPU time. Raises BuildError, EmitError."""
    name = key(
        f"fpga-{chip.name}",
        chip=chip.digest,
        gateware=provenance.digest("hw.assembly.verilog"),
        code="".join(path.read_text(encoding="utf-8") for path in (*_CODE, Path(__file__))),
        tools=tools(),
    )
    return FpgaEstimate.model_validate_json(
        SYNTHESIS.store(OUTPUT).obtain(name, lambda: _synthesised(chip, on_progress).model_dump_json().encode())
    )


def _synthesised(chip: ChipConfig, on_progress: OnProgress) -> FpgaEstimate:
    from meshloom.hw.assembly.verilog import verilog

    with tempfile.TemporaryDirectory(prefix="meshloom_") as result:
        folder = Path(result)
        (folder / f"{_TOP}.v").write_text(verilog(chip), encoding="utf-8")
        on_progress("synthesising for an FPGA (minutes)")
        mapping.synthesise(chip, f"read_verilog {_TOP}.v", _TOP, f"{_TOP}.json", folder)
        netlist = json.loads((folder / f"{_TOP}.json").read_text(encoding="utf-8"))
    cells = netlist["modules"][_TOP]["cells"]
    kinds = Counter(str(cell["type"]) for cell in cells.values())
    return FpgaEstimate(
        cells={kind: kinds[kind] for kind in sorted(kinds) if not kind.startswith("$")},
        parts=tuple(parts_of(cells, _TOP)),
        paths=longest_paths(netlist, _TOP),
    )
