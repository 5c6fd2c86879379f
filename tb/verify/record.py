"""What a soak has done, so that one that was interrupted can continue."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from meshloom.sched.store.kinds import SOAK
from meshloom.sched.store.store import Store

from ..build.builder import OUTPUT

T = TypeVar("T")


class SoakRecord(Generic[T]):
    """Results of runs, each an entry of its own, so that soaks at the same time lose nothing of each other.

    `keys`: the runs of the plan, and what each is kept under. What is damaged or of another form counts as not done.
    """

    def __init__(self, keys: Mapping[str, str], form: TypeAdapter[T], folder: Path | None = None) -> None:
        self._keys, self._form = keys, form
        self._store = Store(folder, SOAK.limit()) if folder else SOAK.store(OUTPUT)
        self.done: dict[str, T] = {}
        for name, stored in keys.items():
            if (text := self._store.get(stored)) is not None:
                try:
                    self.done[name] = form.validate_json(text)
                except ValidationError:
                    continue

    def add(self, name: str, item: T) -> None:
        """Keeps the result of a finished run, on disk too."""
        self.done[name] = item
        self._store.put(self._keys[name], self._form.dump_json(item))

    def forget(self) -> None:
        """The next soak begins anew."""
        self.done = {}
        for stored in self._keys.values():
            self._store.drop(stored)
