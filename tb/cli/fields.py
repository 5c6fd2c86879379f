"""`--set FIELD=VALUE`: a chip with another value in a field."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from meshloom.hw.spec.config import ChipConfig

WeightBits = Annotated[
    int,
    typer.Option(
        "--weight-bits",
        min=4,
        max=8,
        metavar="4|8",
        help="Bits of a weight. 4: with a scale for each group of 32; half the bytes on chips with core.int4.",
    ),
]


def check_weight_bits(bits: int) -> None:
    """Raises BadParameter for what weights cannot have."""
    if bits not in (4, 8):
        raise typer.BadParameter(f"{bits}: weights have 4 or 8 bits", param_hint="--weight-bits")


def saved_chip(chip: str | None, texts: Iterable[str] | None) -> ChipConfig | None:
    """The chip that a file was made for, if it is named. Raises ConfigError; BadParameter for fields of no chip."""
    from meshloom.hw.spec.config import load

    if chip is None:
        if texts:
            raise typer.BadParameter("changes a chip; name it with --chip", param_hint="--set")
        return None
    return with_fields(load(chip), texts)


def with_fields(chip: ChipConfig, texts: Iterable[str] | None) -> ChipConfig:
    """The chip with other values in some fields. Raises ConfigError."""
    from ..inputs.chips import changed

    changes = dict(map(_field, texts or ()))
    return changed(chip, changes) if changes else chip


def _field(text: str) -> tuple[str, Any]:
    """Name and value. Raises ConfigError without a name or a value."""
    from meshloom.hw.spec.config import ConfigError

    name, _, value = (part.strip() for part in text.partition("="))
    if not name or not value:
        raise ConfigError(f"--set {text}: give FIELD=VALUE, such as dram.arbitration=round_robin")
    try:
        return name, _value(value)
    except RecursionError:
        raise ConfigError(f"--set {name}: its value is nested too deeply") from None


def _value(text: str) -> Any:
    """What stands there, as in a file. Words may lack their quotation marks, which shells take away, and lists of them
    their brackets."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        inside = text[1:-1] if text.startswith("[") and text.endswith("]") else text
        parts = [part.strip() for part in inside.split(",")]
        if not all(parts) or any(mark in inside for mark in "[]{}") or (inside == text and len(parts) == 1):
            return text
        return [_value(part) for part in parts]
