"""What searches have found, kept in a file, so that a second run or one after an interruption need not search again."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from functools import cache
from pathlib import Path

from meshloom.hw.config import ChipConfig
from meshloom.sched.loop_order.tiling import Candidate


@cache
def _code() -> str:
    """Hash of the sources that decide what a search finds."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted([*here.glob("*.py"), *(here.parent / "loop_order").glob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


class Memory:
    """Candidates by what was asked for, in one file for each chip and version of the searching code below `folder`.

    A damaged file counts as an empty one: everything in it can be found again.
    """

    def __init__(self, folder: Path, chip: ChipConfig) -> None:
        name = hashlib.sha256(f"{chip.digest} {_code()}".encode()).hexdigest()[:16]
        self._path = folder / f"{chip.name}-{name}.json"
        self._found: dict[str, dict[str, object]] = {}
        try:
            read = json.loads(self._path.read_text(encoding="utf-8"))
            self._found = {key: asdict(Candidate(**value)) for key, value in read.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            self._found = {}

    def get(self, asked: object) -> Candidate | None:
        """What was found for `asked`, which is known by its repr."""
        found = self._found.get(repr(asked))
        return None if found is None else Candidate(**found)  # type: ignore[arg-type]

    def put(self, asked: object, candidate: Candidate) -> None:
        """Keeps a candidate; the file is replaced at once or not at all."""
        self._found[repr(asked)] = asdict(candidate)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}.part")
        try:
            part.write_text(json.dumps(self._found), encoding="utf-8")
            part.replace(self._path)
        finally:
            part.unlink(missing_ok=True)
