"""Results of networks by schedulers that the repository keeps as text, a line each, so that no other machine need find
them again: `docs/results/network_runs.jsonl`.

A line says by its key what decided it. That of another key was measured on older code: it is shown as such, and
measured anew when its part is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from ..results.files import write_atomically
from .interface import BenchmarkError

NAME = "network_runs.jsonl"

A = TypeVar("A")
F = TypeVar("F")


@dataclass(frozen=True)
class Record(Generic[A, F]):
    """What was `asked` and `found`; `key`: a digest of all that decided it."""

    asked: A
    found: F
    key: str


class Records(Generic[A, F]):
    """The lines of a file, which need not exist, as the form `line` says. Raises BenchmarkError where it is damaged."""

    def __init__(self, path: Path, line: TypeAdapter[Record[A, F]]) -> None:
        self.path, self._line = path, line

    def read(self) -> dict[A, Record[A, F]]:
        """The records by what was asked."""
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return {}
        found: dict[A, Record[A, F]] = {}
        for number, text in enumerate(lines, start=1):
            try:
                one = self._line.validate_json(text)
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(map(str, first["loc"])) or "line"
                raise BenchmarkError(
                    f"{self.path}, line {number}: {where}: {first['msg']}; remove the line, its result is measured anew"
                ) from None
            found[one.asked] = one
        return found

    def write(self, some: Iterable[Record[A, F]]) -> None:
        """Adds records, in place of those of the same question; the lines are sorted, so that few of them change."""
        found = self.read()
        found.update((one.asked, one) for one in some)
        lines = sorted(self._line.dump_json(one) for one in found.values())
        write_atomically(self.path, b"".join(line + b"\n" for line in lines))
