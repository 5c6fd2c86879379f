"""Which folders are in use: none that a living process has taken is removed.

A process takes a folder with a shared lock on the folder itself. That needs no file beside it, works where nothing can
be written, and ends with the process, however that ends. (filelock has the exclusive side; its own shared lock is a
SQLite database, which a fork makes useless.)
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import uuid
from collections.abc import Generator
from pathlib import Path

#: Prefix of folders that are being removed: whoever finds one finishes that.
GONE = ".gone-"
#: What this process has taken until it ends.
_uses: dict[Path, Use] = {}
_guard = threading.Lock()


class Use:
    """A folder that is in use until `release`, or until the process ends."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def release(self) -> None:
        """Ends the use, also for processes that were forked meanwhile."""
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.flock(self._handle, fcntl.LOCK_UN)
        os.close(self._handle)

    def is_of(self, place: Path) -> bool:
        """Whether `place` is still the folder that was taken, and not another of its name."""
        return _is(self._handle, place)


def take(place: Path) -> Use | None:
    """Takes a folder, and notes that it has been used now; None if there is none.

    On a file system without locks it is only noted.
    """
    try:
        handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    import fcntl

    with contextlib.suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_SH)
    if not _is(handle, place):  # it was removed before the lock was had
        os.close(handle)
        return None
    touch(place)
    return Use(handle)


def keep(place: Path) -> bool:
    """Takes a folder for as long as this process lives; whether there is one."""
    with _guard:
        before = _uses.get(place)
        if before is not None and before.is_of(place):
            touch(place)
            return True
        if before is not None:
            _uses.pop(place).release()
        if (use := take(place)) is None:
            return False
        _uses[place] = use
        return True


def touch(place: Path) -> None:
    """Notes that something has been used now, where that can be written."""
    with contextlib.suppress(OSError):
        os.utime(place)


def in_use(place: Path) -> bool:
    """Whether a living process has taken a folder (or that cannot be found out)."""
    with _alone(place) as free:
        return not free


def remove(place: Path) -> bool:
    """Removes a folder that nobody uses; whether it has been. Raises OSError if it may not be."""
    with _alone(place) as free:
        if not free:
            return False
        gone = place.with_name(f"{GONE}{uuid.uuid4().hex}")
        place.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
    return True


@contextlib.contextmanager
def _alone(place: Path) -> Generator[bool]:
    """Whether nobody else uses a folder, and nobody can take it meanwhile."""
    from filelock import lock_descriptor

    try:
        handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield False
        return
    try:
        try:
            free = lock_descriptor(handle, blocking=False) and _is(handle, place)
        except OSError:  # no locks here: nobody knows
            free = False
        yield free
    finally:
        os.close(handle)


def _is(handle: int, place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), place.stat())
    except OSError:
        return False
