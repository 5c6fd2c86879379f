"""What takes the Verilog of a chip into a system of others."""

from __future__ import annotations

from pathlib import Path

from meshloom.hw.board.system import files
from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.support.files import write_atomically


def emit_system(config: ChipConfig, folder: Path) -> tuple[Path, ...]:
    """Writes `hw.board.system.files` beside the Verilog of a chip; returns the paths. Raises WriteError."""
    paths: list[Path] = []
    for name, content in files(config).items():
        paths.append(folder / name)
        write_atomically(paths[-1], content)
    return tuple(paths)
