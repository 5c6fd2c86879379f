"""The rows of studies as text, a line each: `docs/results/rows/NAME.jsonl`. So a reader needs no hours to look at them,
and whoever is interrupted goes on.

A line says what decided its row by a key. A row of another key was made by other code (or another chip, or another
version of a tool): it is shown as older, and measured anew when its point is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from meshloom.sched.support.files import write_atomically, write_error

from .point import Point, form

P = TypeVar("P", bound=Point)
#: What a function makes of rows.
T = TypeVar("T")


class StudyError(RuntimeError):
    """A study that cannot be measured or printed; the message says why, and what would help."""


@dataclass(frozen=True)
class Line:
    """A line of the file. `kind`: the point's class; `point` and `row` as JSON values. `error`: why there is no row,
    then `row` is null. `code`: what made it, `date`: when (UTC), `seconds`: of the processor, that it took."""

    kind: str
    point: dict[str, Any]
    row: Any
    key: str
    error: str = ""
    code: str = ""
    date: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Measurement:
    """What is known of a point. `row`: None if there is none, `error` says why; `current`: of the present code."""

    point: Point
    row: Any
    line: Line
    current: bool

    @property
    def error(self) -> str:
        """Why there is no row; empty if there is one."""
        return self.line.error


_LINE = TypeAdapter(Line)


def _name(kind: str, point: Mapping[str, Any]) -> tuple[str, str]:
    return kind, repr(sorted(point.items()))


def name_of(point: Point) -> tuple[str, str]:
    """What a point is known by in a file."""
    return _name(type(point).__name__, form(type(point)).dump_python(point, mode="json"))


class RowFile:
    """The lines of one file, which need not exist. Raises StudyError for a damaged line, naming it.

    Lines are added at its end as they come, so an interrupt loses none; `tidy` sorts them. The last line of a process
    that was killed while it wrote is dropped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: dict[tuple[str, str], Line] | None = None

    @property
    def lines(self) -> dict[tuple[str, str], Line]:
        """By the names of their points; of two of the same point the later one."""
        if self._lines is None:
            self._lines = {_name(line.kind, line.point): line for line in self._read()}
        return self._lines

    def _read(self) -> Iterator[Line]:
        try:
            texts = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        except OSError as error:
            raise StudyError(f"{self.path}: cannot be read: {error.strerror}") from error
        if texts[-1]:  # its writer was killed
            texts[-1] = b""
        for number, text in enumerate(texts, start=1):
            if not text:
                continue
            try:
                yield _LINE.validate_json(text)
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(map(str, first["loc"])) or "line"
                raise StudyError(
                    f"{self.path}, line {number}: {where}: {first['msg']}; remove the line, its point is measured anew"
                ) from None

    def look(self, points: Iterable[Point]) -> dict[Point, Measurement]:
        """What is known of points, in their order; of others it has nothing. A row of an older form counts as none."""
        known: dict[Point, Measurement] = {}
        for point in dict.fromkeys(points):
            line = self.lines.get(name_of(point))
            if line is None:
                continue
            row = None
            if not line.error:
                try:
                    row = point.load(line.row)
                except ValidationError:
                    continue
            known[point] = Measurement(point, row, line, line.key == point.key)
        return known

    def missing(self, points: Iterable[Point]) -> list[Point]:
        """Those that the present code has not measured, each once."""
        request = list(dict.fromkeys(points))
        known = self.look(request)
        return [point for point in request if point not in known or not known[point].current]

    def add(self, lines: Sequence[Line]) -> None:
        """Adds lines. Raises WriteError."""
        text = b"".join(_LINE.dump_json(line) + b"\n" for line in lines)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            whole = self.path.exists() and not self.path.read_bytes().endswith(b"\n") and self.path.stat().st_size
            if whole:  # half a line of a process that was killed
                content = self.path.read_bytes()
                write_atomically(self.path, content[: content.rfind(b"\n") + 1])
            with self.path.open("ab") as file:
                file.write(text)
        except OSError as error:
            raise write_error(error, self.path) from error
        for line in lines:
            self.lines[_name(line.kind, line.point)] = line

    def has(self, line: Line) -> bool:
        """Whether this very line has been added."""
        return self.lines.get(_name(line.kind, line.point)) is line

    def tidy(self) -> None:
        """Each point once, sorted: few lines change when some are measured anew. Raises WriteError."""
        if self.lines:
            texts = sorted(_LINE.dump_json(line) for line in self.lines.values())
            content = b"".join(text + b"\n" for text in texts)
            if not self.path.exists() or self.path.read_bytes() != content:
                write_atomically(self.path, content)


class Rows(Mapping[Point, Any]):
    """The rows of points, good ones only, in the order of the points. `all`: also those that came to an error."""

    def __init__(self, points: Iterable[Point], measurements: Mapping[Point, Measurement]) -> None:
        self.points = tuple(dict.fromkeys(points))
        self.all = {point: measurements[point] for point in self.points if point in measurements}
        self._rows = {point: each.row for point, each in self.all.items() if not each.error}
        self._results: dict[Callable[[Rows], Any], Any] = {}

    def __getitem__(self, point: Point) -> Any:
        return self._rows[point]

    def __iter__(self) -> Iterator[Point]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def missing(self) -> list[Point]:
        """Points of which nothing is known."""
        return [point for point in self.points if point not in self.all]

    @property
    def older(self) -> list[Point]:
        """Points whose row other code has made."""
        return [point for point, each in self.all.items() if not each.current]

    @property
    def errors(self) -> dict[Point, str]:
        """Points that came to an error, and which."""
        return {point: each.error for point, each in self.all.items() if each.error}

    def once(self, make: Callable[[Rows], T]) -> T:
        """What a function makes of the rows, computed for the first who asks: several tables and figures need it."""
        if make not in self._results:
            self._results[make] = make(self)
        return self._results[make]

    def of(self, *kinds: type[Point]) -> Rows:
        """Those of some kinds of points."""
        return Rows((point for point in self.points if isinstance(point, kinds)), self.all)

    def pairs(self, kind: type[P]) -> list[tuple[P, Any]]:
        """Points of one kind, typed so, with their rows."""
        return [(point, row) for point, row in self.items() if isinstance(point, kind)]
