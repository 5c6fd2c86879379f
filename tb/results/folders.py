"""Folders in which simulators run: each belongs to one process while it runs; of those that are kept the newest stay.

What is kept (waves, logs of simulators that died) and what killed processes have left is removed, the oldest first,
when the next one begins: beyond MESHLOOM_KEEP_RUNS folders (20 by default) or MESHLOOM_KEEP_MB megabytes (4000). A
folder that is in use is locked and never removed, whoever uses it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .exits import ToolError

if TYPE_CHECKING:
    from filelock import BaseFileLock

#: Environment variables that say how much is kept, and what holds without them.
COUNT, MEGABYTES = ("MESHLOOM_KEEP_RUNS", 20), ("MESHLOOM_KEEP_MB", 4000)
_LOCK = ".lock"


class RunsError(ToolError):
    """No folder can be made, or a setting is no number; the message says which and what would help."""


@dataclass(frozen=True)
class Claim:
    """A folder in use; `release` it."""

    folder: Path
    _lock: BaseFileLock

    def release(self, keep: bool) -> None:
        """Ends its use; without `keep` it goes."""
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release()


def claim(label: str, runs: Path) -> Claim:
    """A new folder below `runs`, whose name begins with `label`. Raises RunsError."""
    from filelock import FileLock

    count, megabytes = _setting(*COUNT), _setting(*MEGABYTES)
    try:
        runs.mkdir(parents=True, exist_ok=True)
        # so that nobody takes a folder for an old one before it is locked
        with FileLock(runs / _LOCK, thread_local=False):
            _prune(runs, count, megabytes * 1_000_000)
            folder = Path(tempfile.mkdtemp(prefix=f"{label}-", dir=runs))
            lock = _lock(folder)
            lock.acquire()
            return Claim(folder, lock)
    except OSError as error:
        raise RunsError(
            f"{error.filename or runs}: {error.strerror or error}: simulators run below {runs}; make room or give the "
            "right to write there, or name another folder in MESHLOOM_CACHE"
        ) from error


def _prune(runs: Path, count: int, size: int) -> None:
    """Removes the oldest folders that nobody uses. The lock of `runs` is held."""
    ages: list[tuple[float, Path]] = []
    for path in runs.iterdir():
        with contextlib.suppress(FileNotFoundError):  # its user has just removed it
            if path.is_dir() and not path.is_symlink():
                ages.append((path.stat().st_mtime, path))
    left, room = count, size
    for _, path in sorted(ages, reverse=True):
        with contextlib.suppress(OSError):
            lock = _lock(path)
            lock.acquire(timeout=0)  # Timeout is an OSError: in use
            try:
                left -= 1
                room -= sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
                if left < 0 or room < 0:
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                lock.release()


def _lock(folder: Path) -> BaseFileLock:
    from filelock import FileLock

    return FileLock(folder / _LOCK, thread_local=False)


def _setting(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if text and not text.isdecimal():
        raise RunsError(f"{name} = {text!r} must be a whole number, 0 or more")
    return int(text) if text else default
