"""Whether a disk is full, where an error does not say which."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ..support.files import FULL, SCARCE, WriteError, is_full, write_error
from . import cache


def unwritten(error: BaseException | None) -> WriteError | None:
    """The WriteError that an error is, or comes from; also made of a full disk that was met elsewhere. None if it has
    another reason."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # an error may be said to be its own cause
        seen.add(id(error))
        if isinstance(error, WriteError):
            return error
        if isinstance(error, OSError) and error.errno in FULL:
            return write_error(error, error.filename or full_place() or "standard output")
        error = error.__cause__
    return None


def full_place(*folders: Path, scarce: int = SCARCE) -> Path | None:
    """The first of these folders, or of those that every command writes to (the working directory, the cache, that of
    temporary files), on whose disk fewer than `scarce` bytes are free; None if there is none."""
    places = (*folders, Path.cwd(), cache.root(), Path(tempfile.gettempdir()))
    return next((folder for folder in places if is_full(folder, scarce)), None)
