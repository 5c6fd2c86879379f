"""What searches have found, kept in a file, so that a second run or one after an interruption need not search again."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from meshloom.hw.config import ChipConfig

from ...mapping.tiling import Candidate
from ...store import provenance

_FILE = TypeAdapter(dict[str, Candidate])
#: What finds them.
_SEARCH = "sched.schedulers.network.scheduler"


class Memory:
    """Candidates by what was asked for, in one file for each chip and version of the searching code below `folder`.

    A damaged file counts as an empty one: everything in it can be found again. So does what two processes that write at
    the same time lose.
    """

    def __init__(self, folder: Path, chip: ChipConfig) -> None:
        name = hashlib.sha256(f"{chip.digest} {provenance.digest(_SEARCH)}".encode()).hexdigest()[:16]
        self._path = folder / f"{chip.name}-{name}.json"
        self._found = self._read()

    def _read(self) -> dict[str, Candidate]:
        try:
            return _FILE.validate_json(self._path.read_bytes())
        except (OSError, ValidationError):
            return {}

    def get(self, asked: object) -> Candidate | None:
        """What was found for `asked`, which is known by its repr."""
        return self._found.get(repr(asked))

    def put(self, asked: object, candidate: Candidate) -> None:
        """Keeps a candidate beside what others have kept by now; the file is replaced at once or not at all."""
        self._found = self._read() | self._found | {repr(asked): candidate}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}.part")
        try:
            part.write_bytes(_FILE.dump_json(self._found))
            part.replace(self._path)
        finally:
            part.unlink(missing_ok=True)
