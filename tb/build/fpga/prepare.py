"""`python prepare.py REQUEST`, in a process that has amaranth-boards: writes the netlist of a board's top and where its
pins are into the current folder. The request is JSON: the chip's parameters, the platform, the UART's divisor, and the
clock if DRAM is SDRAM."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from meshloom.hw.board.fpga import Fpga
from meshloom.hw.spec.config import ChipConfig

#: The top module, and the start of the names of what is written.
TOP = "fpga"


def prepare(request: dict[str, Any], folder: Path) -> None:
    """Writes `fpga.il` and `fpga.lpf`, and a few files that nothing reads."""
    module, _, kind = request["platform"].partition(":")
    platform: Any = getattr(import_module(f"amaranth_boards.{module}"), kind)()
    top = Fpga(ChipConfig.model_validate(request["chip"]), request["divisor"], request["sdram"])
    plan: Any = platform.prepare(top, TOP)
    for name, content in plan.files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / Path(name).name).write_bytes(data)


if __name__ == "__main__":
    prepare(json.loads(sys.argv[1]), Path.cwd())
