"""DRAM with banks, as an option of a chip: a part's rows and timings, in nanoseconds, and the same in a chip's cycles.

`[dram.banks]` names a part (`hw/parts/`), whose values it may override, or has all values itself. What they mean to the
cycle is in `tb/build/verilog/dram_banks.v`; names are those of JEDEC's data sheets (JESD79-3F, JESD209-4B).
"""

from __future__ import annotations

import tomllib
from functools import cache
from math import ceil, floor
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, cast

from pydantic import ConfigDict, Field, model_validator

from .exact import Exact
from .near import near_or_all

PART_FOLDER = Path(__file__).parent.parent / "parts"

Nanoseconds = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
#: Of what a double cannot hold, 14.4 being 18 * 800 / 1000: no cycle more for that.
_ROUNDING = 1e-9


def _optional(schema: dict[str, Any]) -> None:
    # a part may bring any of them
    schema.pop("required", None)


class BanksConfig(Exact):
    """The banks of each DRAM channel, and the time that their rows take.

    `part`: a built-in part, whose values are those that are not given. `count`: banks. `row_bytes`: of one row of one
    bank. `access_bytes`: the smallest burst of the data bus; a read or write of less takes as long. `bandwidth`: the
    most that the data bus moves, 10^9 bytes a second.

    Nanoseconds, from command to command: `t_rcd` activate to column, `t_rp` precharge to activate, `t_ras` activate to
    precharge (the row cycle is their sum), `t_cl` and `t_cwl` column to first data of a read and of a write, `t_rtp`
    read to precharge, `t_wr` and `t_wtr` last data of a write to precharge, and to a read, `t_rrd` and `t_faw` between
    two, and any five, activates, `t_refi` between refreshes, `t_rfc` refresh to activate; and from the last data of a
    read to the first of a write, `t_rtw`.

    `turn_after`: bursts of one kind, read or write, after which it is the other's turn if both wait.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=_optional)

    part: str | None = None
    count: Annotated[int, Field(ge=1, le=64)]
    row_bytes: Annotated[int, Field(ge=64, le=65536)]
    access_bytes: Annotated[int, Field(ge=1, le=4096)]
    bandwidth: Annotated[float, Field(gt=0, le=1e5, allow_inf_nan=False)]
    t_cl: Nanoseconds
    t_cwl: Nanoseconds
    t_rcd: Nanoseconds
    t_rp: Nanoseconds
    t_ras: Nanoseconds
    t_rtp: Nanoseconds
    t_wr: Nanoseconds
    t_wtr: Nanoseconds
    t_rtw: Nanoseconds
    t_rrd: Nanoseconds
    t_faw: Nanoseconds
    t_refi: Nanoseconds
    t_rfc: Nanoseconds
    turn_after: Annotated[int, Field(ge=1, le=255)] = 8

    @model_validator(mode="before")
    @classmethod
    def _of_part(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values
        table = cast("dict[str, object]", values)
        name = table.get("part")
        return part(name) | table if isinstance(name, str) else table

    @model_validator(mode="after")
    def _check(self) -> Self:
        for field in ("count", "row_bytes", "access_bytes"):
            if (value := getattr(self, field)) & (value - 1):
                raise ValueError(f"{field} = {value} must be a power of two")
        if self.access_bytes > self.row_bytes:
            raise ValueError(f"access_bytes = {self.access_bytes} is more than a row of {self.row_bytes} bytes")
        for least, most in (("t_rcd", "t_ras"), ("t_rrd", "t_faw")):
            if getattr(self, least) > getattr(self, most):
                raise ValueError(
                    f"{most} = {getattr(self, most)} is shorter than {least} = {getattr(self, least)}, which is a part "
                    "of it"
                )
        if (refresh := self.t_ras + self.t_rp + self.t_rfc) >= self.t_refi:
            raise ValueError(
                f"t_refi = {self.t_refi} leaves no time between refreshes: t_ras, t_rp and t_rfc are {refresh:g}"
            )
        return self


class BankCycles(NamedTuple):
    """`BanksConfig` in cycles of a chip, each rounded to the safe side. `row_words` of the chip; `block`: cycles in
    which the data bus moves `access_bytes`; `window`: the controller prepares a burst when the data bus is reserved for
    no more cycles than this, which hides a row that has to be closed and opened."""

    cl: int
    cwl: int
    rcd: int
    rp: int
    ras: int
    rtp: int
    wr: int
    wtr: int
    rtw: int
    rrd: int
    faw: int
    refi: int
    rfc: int
    row_words: int
    block: int
    window: int


def bank_cycles(banks: BanksConfig, lanes: int, bytes_per_cycle: int, clock_mhz: float) -> BankCycles:
    """Timings at a clock: cycles = nanoseconds * MHz / 1000, rounded up; those between refreshes rounded down."""

    def up(nanoseconds: float) -> int:
        return max(1, ceil(nanoseconds * clock_mhz / 1000 - _ROUNDING))

    names = ("cl", "cwl", "rcd", "rp", "ras", "rtp", "wr", "wtr", "rtw", "rrd", "faw")
    values: dict[str, int] = {name: up(getattr(banks, f"t_{name}")) for name in names}
    return BankCycles(
        **values,
        refi=floor(banks.t_refi * clock_mhz / 1000 + _ROUNDING),
        rfc=up(banks.t_rfc),
        row_words=banks.row_bytes // lanes,
        block=-(-banks.access_bytes // bytes_per_cycle),
        window=values["rp"] + values["rcd"] + values["cl"],
    )


def built_in_parts() -> tuple[str, ...]:
    """Names of the parts that ship with Meshloom."""
    return tuple(sorted(path.stem for path in PART_FOLDER.glob("*.toml")))


@cache
def part(name: str) -> dict[str, object]:
    """The values of a built-in part, without its name. Raises ValueError for a name that there is not."""
    if name not in built_in_parts():
        raise ValueError(f"part = {name!r} is not built in: {near_or_all(name, built_in_parts())}")
    return tomllib.loads((PART_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
