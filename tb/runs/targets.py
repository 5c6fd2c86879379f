"""What workloads are scheduled for: a chip and a scheduler."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from meshloom.hw.spec.config import ChipConfig

#: Characters of the name of a target's folder.
_LONGEST = 80


@dataclass(frozen=True)
class Target:
    """A chip and a scheduler, both by name or the chip itself."""

    chip: str | ChipConfig
    scheduler: str

    @property
    def folder(self) -> str:
        """The name of a folder for what it leaves."""
        chip = self.chip.name if isinstance(self.chip, ChipConfig) else Path(self.chip).stem
        return re.sub(r"[^\w-]+", "_", f"{chip}-{self.scheduler}", flags=re.ASCII)[:_LONGEST]
