"""What searches have found, kept so that a second run need not search again, and an interrupted one goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from meshloom.hw.spec.config import ChipConfig

from . import provenance
from .described import described
from .kinds import SCHEDULES
from .store import Store, key

T = TypeVar("T")


class SearchCache:
    """Values by what was asked for, on one chip, as JSON in a store below `folder` (None: in this process only).

    `kind`: names the search; `modules`: what makes what is kept, so that nothing is found again that other code has
    made (see `provenance`). A damaged entry counts as none, and so does one of the wrong form: everything can be found
    again. Each value is an entry of its own, so no process loses what another writes. Raises SettingError.
    """

    def __init__(self, folder: Path | None, chip: ChipConfig, kind: str, *modules: str) -> None:
        self._store = Store(folder, SCHEDULES.limit())
        self._label = f"{kind}-{chip.name}"
        self._made_by = {"kind": kind, "chip": chip.digest, "code": provenance.digest(*modules)}
        self._entries: dict[str, bytes] = {}

    def get(self, question: object, form: TypeAdapter[T]) -> T | None:
        """What was found for `question`, which is known by all of its fields (`described`)."""
        name = self._name(question)
        text = self._entries.get(name) or self._store.get(name)
        try:
            return None if text is None else form.validate_json(text)
        except ValidationError:
            return None

    def put(self, question: object, form: TypeAdapter[T], value: T) -> None:
        """Keeps a value."""
        name = self._name(question)
        self._entries[name] = form.dump_json(value)
        self._store.put(name, self._entries[name])

    def drop(self, question: object) -> None:
        """Forgets a value."""
        name = self._name(question)
        self._entries.pop(name, None)
        self._store.drop(name)

    def _name(self, question: object) -> str:
        return key(self._label, asked=described(question), **self._made_by)
