"""The Verilog of a chip, as files: written once for a chip, its gateware and the tools, and kept."""

from __future__ import annotations

import json
from pathlib import Path

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.store import provenance
from meshloom.sched.store.kinds import SYNTHESIS
from meshloom.sched.store.store import key
from meshloom.sched.support.files import write_atomically

from .builder import OUTPUT
from .synthesis import tools


def emit_verilog(config: ChipConfig, folder: Path) -> tuple[Path, ...]:
    """Writes the synthesisable Verilog of a chip, its manifest and its registers (`hw.assembly.verilog.files`), which
    are kept: with this gateware and these tools they are the same to the byte. Returns their paths. Raises EmitError,
    SettingError, WriteError."""

    def make() -> bytes:
        from meshloom.hw.assembly.verilog import files

        return json.dumps(files(config)).encode()

    gateware = provenance.digest("hw.assembly.verilog")
    entry = key(f"verilog-{config.name}", chip=config.digest, gateware=gateware, tools=tools())
    paths: list[Path] = []
    for name, content in json.loads(SYNTHESIS.store(OUTPUT).obtain(entry, make)).items():
        paths.append(folder / name)
        write_atomically(paths[-1], content)
    return tuple(paths)
