"""What benchmarks have measured, kept on the machine that did and in the repository as text, a line each, so that no
other machine need find it again: `docs/results/NAME.jsonl`.

A line says by its key what decided it. That of another key was measured on older code: it is shown as such, and
measured anew when its part is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.store import provenance
from meshloom.sched.store.described import described
from meshloom.sched.store.findings import SearchCache
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.store.store import key
from meshloom.sched.support.files import write_atomically

from .interface import BenchmarkError

#: Results of older code that a remark names, at most.
NAMED = 24

A = TypeVar("A")
F = TypeVar("F")


@dataclass(frozen=True)
class Record(Generic[A, F]):
    """What was `asked` and `found`; `key`: a digest of all that decided it."""

    asked: A
    found: F
    key: str


class Decided(NamedTuple):
    """What decides a result, besides what is asked: the chip, the `modules` that make it and `more` (for the RTL, the
    simulator's sources)."""

    chip: ChipConfig
    modules: tuple[str, ...]
    more: str = ""


class Kept(Generic[A, F]):
    """Results of a `kind`, by what was asked, in the store and in a file, which need not exist. A question is known by
    all of its fields, and must be hashable.

    `line`, `form`: of a record and of what was found; `decided`: by what is asked. Raises BenchmarkError where the file
    is damaged.
    """

    def __init__(
        self, path: Path, kind: str, line: TypeAdapter[Record[A, F]], form: TypeAdapter[F],
        decided: Callable[[A], Decided],
    ) -> None:  # fmt: skip
        self.path = path
        self._kind, self._line, self._form, self._decided = kind, line, form, decided
        self._memories: dict[tuple[str, tuple[str, ...]], SearchCache] = {}

    def memory(self, decided: Decided) -> SearchCache:
        """The part of this machine's store that results of a chip and of some code are in."""
        where = decided.chip.digest, decided.modules
        if where not in self._memories:
            self._memories[where] = SearchCache(SCHEDULES.folder(), decided.chip, self._kind, *decided.modules)
        return self._memories[where]

    def put(self, asked: A, found: F) -> None:
        """Keeps a result on this machine; `collected` writes it down."""
        decided = self._decided(asked)
        self.memory(decided).put((asked, decided.more), self._form, found)

    def found(self, some: Iterable[A]) -> tuple[dict[A, F], set[A]]:
        """What is kept of all that is asked, and what of it older code has found."""
        known, older, _ = self._look(some)
        return known, older

    def collected(self, some: Iterable[A]) -> tuple[dict[A, F], set[A]]:
        """The same; what this machine has found goes into the file."""
        known, older, unwritten = self._look(some)
        if unwritten:
            records = self._records()
            records.update((one.asked, one) for one in unwritten)
            lines = sorted(self._line.dump_json(one) for one in records.values())  # few of them change so
            write_atomically(self.path, b"".join(line + b"\n" for line in lines))
        return known, older

    def missing(self, some: Iterable[A]) -> list[A]:
        """What the present code has yet to find of all that is asked, each once."""
        asked = list(dict.fromkeys(some))
        known, older = self.found(asked)
        return [one for one in asked if one not in known or one in older]

    def _look(self, some: Iterable[A]) -> tuple[dict[A, F], set[A], list[Record[A, F]]]:
        """What is kept, what of it is older, and records of what the file lacks."""
        records = self._records()
        known: dict[A, F] = {}
        older: set[A] = set()
        unwritten: list[Record[A, F]] = []
        for one in dict.fromkeys(some):
            decided = self._decided(one)
            mine = self.memory(decided).get((one, decided.more), self._form)
            record, present = records.get(one), self._key(one, decided)
            if mine is not None:
                known[one] = mine
                if record is None or record.key != present:
                    unwritten.append(Record(one, mine, present))
            elif record is not None:
                known[one] = record.found
                if record.key != present:
                    older.add(one)
        return known, older, unwritten

    def _key(self, asked: A, decided: Decided) -> str:
        code = provenance.digest(*decided.modules)
        return key(self._kind, asked=described((asked, decided.more)), chip=decided.chip.digest, code=code)

    def _records(self) -> dict[A, Record[A, F]]:
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


def told(older: Collection[str]) -> tuple[str, ...]:
    """A remark on what older code has found."""
    if not older:
        return ()
    names = ", ".join(sorted(older)[:NAMED])
    if len(older) > NAMED:
        names += f" and {len(older) - NAMED} more"
    return (f"Measured on older code, what decides it has changed since ({len(older)} results): {names}.",)
