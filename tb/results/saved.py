"""Saved schedules and program images: what `meshloom check`, `disasm` and `run` read."""

from __future__ import annotations

from pathlib import Path

from meshloom.hw.spec.config import ChipConfig, ConfigError, built_in_chips, load
from meshloom.sched.ir.schedule import Schedule, ScheduleError
from meshloom.sched.lowering.lifted import Metadata, lifted, read_metadata
from meshloom.sched.lowering.programs import unchecked
from meshloom.sched.program import image
from meshloom.sched.program.image import ImageError
from meshloom.sched.program.program import Program

#: How the names of files end: of schedules, and of program images.
SUFFIXES = (".json", ".bin")


def read(path: Path, chip: str | ChipConfig | None) -> tuple[ChipConfig, Program, Schedule | None]:
    """The chip, the program (that of an image, or of a schedule), unchecked, and the schedule if it is one.

    Without `chip` it is the built-in one whose digest the file holds. Raises ConfigError if that is none, and what
    reading a file and making a schedule's program raise.
    """
    named = load(chip) if isinstance(chip, str) else chip
    if path.suffix == ".json":
        saved = Schedule.load(path)
        config = named or _built_in(saved.chip_digest, path)
        return config, unchecked(saved, config), saved
    program = image.load(path, named)
    return named or _built_in(program.chip_digest, path), program, None


def chip_of(path: Path) -> ChipConfig:
    """The built-in chip that a file was made for. Raises as `read` does."""
    digest = Schedule.load(path).chip_digest if path.suffix == ".json" else image.load(path).chip_digest
    return _built_in(digest, path)


def read_to_run(path: Path, chip: ChipConfig) -> tuple[Schedule, Program | None]:
    """A saved schedule, or the program of an image with the schedule that it carries out (`lifted`).

    Raises ScheduleError, ImageError for a file that is damaged or of another chip than `chip`, naming both.
    """
    if path.suffix == ".json":
        return of_chip(Schedule.load(path), path, chip), None
    program, text = image.load_with_metadata(path)
    metadata: Metadata = read_metadata(text, str(path))
    if program.chip_digest != chip.digest:
        raise ImageError(_other_chip(path, metadata.chip, program.chip_digest, chip))
    try:
        return lifted(program, metadata, chip)
    except ValueError as error:  # of ours, or a value that no operation has
        raise ImageError(f"{path}: {error}") from error


def of_chip(saved: Schedule, path: Path, chip: ChipConfig) -> Schedule:
    """The schedule if it was made for `chip`. Raises ScheduleError, naming both chips, if not."""
    if saved.chip_digest != chip.digest:
        raise ScheduleError(_other_chip(path, saved.chip, saved.chip_digest, chip))
    return saved


def _other_chip(path: Path, name: str, digest: str, chip: ChipConfig) -> str:
    return (
        f"{path}: was made for chip {name or 'without a name'} ({digest[:12]}), not for {chip.name} "
        f"({chip.digest[:12]}); name its own with --chip, or make it again for this one"
    )


def _built_in(digest: str, path: Path) -> ChipConfig:
    for config in map(load, built_in_chips()):
        if config.digest == digest:
            return config
    raise ConfigError(
        f"{path}: was made for a chip that is not (or no longer) a built-in one; name it with --chip (and --set)"
    )
