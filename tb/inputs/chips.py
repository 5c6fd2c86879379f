"""Chips that differ from another one in some fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from meshloom.hw.spec.config import ChipConfig, ConfigError, mistakes

#: Fields of banks that a chip may not have yet, and that which decides all others.
_BANKS = "dram.banks."
_PART = f"{_BANKS}part"


class UnknownFieldError(ConfigError):
    """A field that no chip has."""


def at_clock(chip: ChipConfig, megahertz: float | None) -> ChipConfig:
    """The same chip at another clock; None: at its own. Raises ConfigError for banks that cannot be at that clock."""
    if megahertz is not None and chip.dram.banks is not None:
        return changed(chip, {"clock_mhz": megahertz})
    return chip if megahertz is None else chip.model_copy(update={"clock_mhz": megahertz})


def changed(chip: ChipConfig, changes: Mapping[str, object]) -> ChipConfig:
    """The chip with other values in some fields, named as in a chip's file: `spm_words`, `core.a_words`.

    An array that is as large as `lanes` allows follows them. Raises ConfigError that names the field and the fix
    (UnknownFieldError if there is none of that name).
    """
    values: dict[str, Any] = chip.model_dump(mode="json")
    if "lanes" in changes:
        for field in ("rows", "cols"):
            if values[field] == chip.lanes:
                del values[field]
    if _PART in changes or (values["dram"]["banks"] is None and any(name.startswith(_BANKS) for name in changes)):
        values["dram"]["banks"] = {}  # a part brings all values of its own
    for name, value in changes.items():
        *tables, field = name.split(".")
        place = values
        for part in tables:
            if not isinstance(place.get(part), dict):
                raise UnknownFieldError(
                    f"chip {chip.name}: {name}: there is no table {part}; fields are named core.a_words"
                )
            place = place[part]
        place[field] = value
    try:
        return ChipConfig.model_validate(values)
    except ValidationError as error:
        kind = UnknownFieldError if any(e["type"] == "extra_forbidden" for e in error.errors()) else ConfigError
        raise kind(f"chip {chip.name} with other fields: {mistakes(error, values, ChipConfig)}") from error
