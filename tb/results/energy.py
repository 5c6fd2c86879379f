"""What the energy of a run is estimated from, a table of picojoules, and the estimate, as data."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from math import exp, log
from pathlib import Path
from typing import Annotated, Self

from pydantic import ConfigDict, Field, ValidationError, computed_field, model_validator

from meshloom.hw.spec.config import Exact
from meshloom.hw.spec.mistakes import mistakes
from meshloom.sched.support.reading import read_toml

from .record import Count, Record, ResultsError

#: The table that holds without another one; it names its source.
DEFAULT = Path(__file__).with_name("energy_45nm.toml")
_Picojoules = Annotated[float, Field(ge=0, lt=1e9, allow_inf_nan=False)]


class EnergyError(ResultsError):
    """A table of energies that cannot be read; the message names the file and the field."""


class _Model(Exact):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SramEnergy(_Model):
    """A memory of `bytes`: picojoules for each byte that is read or written."""

    bytes: Annotated[int, Field(ge=1)]
    byte: _Picojoules


class EnergyTable(_Model):
    """Picojoules of a product with its addition, of a byte of DRAM, of a byte over a link between routers, and of a
    byte of SRAM by its size, in ascending order. `version`: of the table, in its author's words; `source`: where the
    numbers come from."""

    name: Annotated[str, Field(min_length=1)]
    version: str = ""
    source: str = ""
    product: _Picojoules
    dram_byte: _Picojoules
    link_byte: _Picojoules
    sram: Annotated[tuple[SramEnergy, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        for one, other in pairwise(self.sram):
            if one.bytes >= other.bytes:
                raise ValueError(f"sram: {other.bytes} bytes after {one.bytes}; list them from small to large")
        if len(self.sram) > 1 and not all(each.byte for each in self.sram):
            raise ValueError("sram: give energies above 0, or only one")
        return self

    @property
    def digest(self) -> str:
        """Of its numbers: tables of the same name may have others."""
        return hashlib.sha256(self.model_dump_json(exclude={"name", "version", "source"}).encode()).hexdigest()[:12]

    def sram_byte(self, size: int) -> float:
        """Picojoules of a byte of a memory of `size` bytes: a power law through the two nearest sizes."""
        if len(self.sram) == 1:
            return self.sram[0].byte
        pairs = list(pairwise(self.sram))
        low, high = next((pair for pair in pairs if size <= pair[1].bytes), pairs[-1])
        slope = log(high.byte / low.byte) / log(high.bytes / low.bytes)
        return low.byte * exp(slope * log(max(1, size) / low.bytes))


def load(path: Path = DEFAULT) -> EnergyTable:
    """Reads a table (TOML). Raises EnergyError with the file and the field."""
    values = read_toml(path, EnergyError)
    try:
        return EnergyTable.model_validate(values)
    except ValidationError as error:
        raise EnergyError(f"{path}: {mistakes(error, values, EnergyTable)}") from error


#: The part of DRAM.
DRAM = "DRAM"


class EnergyPart(Record):
    """Something that takes energy: how often (products; bytes read or written; bytes x links), and picojoules."""

    count: Count
    picojoules: Annotated[float, Field(ge=0)]


class EnergyFigures(Record):
    """An estimate of the energy of a run, by the energy table `table`, whose `version` its author names and whose
    numbers have the digest `table_digest`. `parts`: products; operand memories, result memories, scratchpads, DRAM
    (with the program); links. Clock, control, leakage, the vector unit and partial sums are not in it."""

    table: str
    version: str = ""
    table_digest: str = ""
    parts: dict[str, EnergyPart]

    @property
    def by(self) -> str:
        """The table, for people."""
        return f"{self.table}, version {self.version}" if self.version else self.table

    @computed_field
    @property
    def microjoules(self) -> float:
        """Of all parts."""
        return sum(part.picojoules for part in self.parts.values()) / 1e6
