"""The chip of tests of serving, and chips like it."""

from __future__ import annotations

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.config import load as load_chip

#: As lp9, with fewer and smaller cores: built in seconds.
CHIP = ChipConfig.model_validate(
    load_chip("lp9").model_dump()
    | {
        "name": "lp4",
        "lanes": 8,
        "rows": 8,
        "cols": 8,
        "floorplan": ["dram core core dram", "host core core ."],
        "programs": 8,
        "dram": {"words": 1 << 18, "bytes_per_cycle": 7, "latency": 20},
    }
)


def chip_with(name: str, **changes: object) -> ChipConfig:
    """The chip with other values."""
    return ChipConfig.model_validate(CHIP.model_dump() | {"name": name} | changes)
