"""What searches have found, kept in files, so that a second run need not search again, and an interrupted one goes
on."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from meshloom.hw.config import ChipConfig

from ...store import provenance

T = TypeVar("T")
_FILE = TypeAdapter(dict[str, str])


class Store:
    """JSON texts by what was asked for, in one file for each chip and version of the code below `folder`.

    `kind`: name of the file; `modules`: what makes what is kept, so that nothing is found again that other code has
    made (see `provenance`). Without a folder nothing is kept. A damaged
    file counts as an empty one, and an entry of the wrong form as none: everything can be found again. Processes that
    write at the same time wait for each other.
    """

    def __init__(self, folder: Path | None, chip: ChipConfig, kind: str, *modules: str) -> None:
        name = sha256(f"{chip.digest} {provenance.digest(*modules)}".encode()).hexdigest()[:16]
        self._path = folder / f"{kind}-{chip.name}-{name}.json" if folder else None
        self._lock = threading.Lock()
        self._found = self._read()

    def _read(self) -> dict[str, str]:
        if self._path is None:
            return {}
        try:
            return _FILE.validate_json(self._path.read_bytes())
        except (OSError, ValidationError):
            return {}

    def get(self, asked: object, form: TypeAdapter[T]) -> T | None:
        """What was found for `asked`, which is known by its repr."""
        text = self._found.get(repr(asked))
        try:
            return None if text is None else form.validate_json(text)
        except ValidationError:
            return None

    def put(self, asked: object, form: TypeAdapter[T], value: T) -> None:
        """Keeps a value beside what others have kept by now."""
        with self._alone():
            self._found = self._read() | self._found | {repr(asked): form.dump_json(value).decode()}
            self._write()

    def drop(self, asked: object) -> None:
        """Forgets a value."""
        with self._alone():
            self._found = self._read() | self._found
            if self._found.pop(repr(asked), None) is not None:
                self._write()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lets one thread of one process at a time change the file."""
        with self._lock:
            if self._path is None:
                yield
                return
            from filelock import FileLock

            self._path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self._path.with_suffix(".lock")):
                yield

    def _write(self) -> None:
        """Replaces the file at once or not at all."""
        if self._path is None:
            return
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}.{threading.get_ident()}.part")
        try:
            part.write_bytes(_FILE.dump_json(self._found))
            part.replace(self._path)
        finally:
            part.unlink(missing_ok=True)
