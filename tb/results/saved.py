"""Saved schedules and program images: what `meshloom check` and `meshloom disasm` read."""

from __future__ import annotations

from pathlib import Path

from meshloom.hw.config import ChipConfig, ConfigError, built_in_chips, load
from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.lowering.programs import unchecked
from meshloom.sched.program import image
from meshloom.sched.program.program import Program


def read(path: Path, chip: str | None) -> tuple[ChipConfig, Program, Schedule | None]:
    """The chip, the program (that of an image, or of a schedule), unchecked, and the schedule if it is one.

    Without `chip` it is the built-in one whose digest the file holds. Raises ConfigError if that is none, and what
    reading a file and making a schedule's program raise.
    """
    named = None if chip is None else load(chip)
    if path.suffix == ".json":
        saved = Schedule.load(path)
        config = named or _built_in(saved.chip_digest, path)
        return config, unchecked(saved, config), saved
    program = image.load(path, named)
    return named or _built_in(program.chip_digest, path), program, None


def _built_in(digest: str, path: Path) -> ChipConfig:
    for config in map(load, built_in_chips()):
        if config.digest == digest:
            return config
    raise ConfigError(f"{path}: was made for a chip that is not (or no longer) a built-in one; name it with --chip")
