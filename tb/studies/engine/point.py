"""What a study measures: points. Each is a question that a worker process can answer by a row, whatever it takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from pydantic import TypeAdapter

from meshloom.sched.store import provenance
from meshloom.sched.store.described import described
from meshloom.sched.store.store import key

#: Hears what a point is at, in a word or two.
Report = Callable[[str], None]


@dataclass(frozen=True)
class Inputs:
    """What decides a row besides the fields of its point. `modules`: the code that makes it, named as in `provenance`;
    `more`: what else does, by name: digests of chips, of sources of a simulator, of a file; versions of tools."""

    modules: tuple[str, ...]
    more: tuple[tuple[str, str], ...] = field(default=())


class Point(ABC):
    """A question. Subclasses are frozen dataclasses of what JSON can say; all fields tell points apart.

    `row`: the type of the answer, a dataclass or model that JSON can say. `alone`: it measures time that others would
    change, so it is measured after all that workers do.
    """

    row: ClassVar[Any]
    alone: ClassVar[bool] = False

    @abstractmethod
    def measure(self, report: Report) -> Any:
        """The row, found in a worker process. What it raises becomes the reason why there is none."""

    @abstractmethod
    def inputs(self) -> Inputs:
        """What decides the row."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The point in words: of a table, of an error."""

    @classmethod
    def dump(cls, row: Any) -> Any:
        """A row as a JSON value."""
        return form(cls.row).dump_python(row, mode="json")

    @classmethod
    def load(cls, value: Any) -> Any:
        """The row of a JSON value. Raises ValidationError."""
        return form(cls.row).validate_python(value)

    @property
    def work(self) -> float:
        """How long it takes, roughly, in CPU-seconds: the longest begin first, and `--stale` adds them up."""
        return 1.0

    @property
    def key(self) -> str:
        """Digest of all that decides the row."""
        inputs = self.inputs()
        code = provenance.digest(*inputs.modules)
        return key(type(self).__name__, point=described(self), code=code, more=described(inputs.more))


def place_of(point: Point) -> str:
    """Where the class of a point is: `module:Class`."""
    return f"{type(point).__module__}:{type(point).__qualname__}"


@cache
def form(kind: Any) -> TypeAdapter[Any]:
    """How points and rows are written as JSON, and read."""
    return TypeAdapter(kind)
