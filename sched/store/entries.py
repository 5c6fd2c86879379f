"""What lies in a folder of the cache, how much that is, and which of it goes first.

Every file and every folder there is an entry, but for names that begin with a dot; `<name>.log` belongs to `<name>`.
Its time of modification says when it was used last.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import use

#: Prefix of what is being made.
NEW = ".new-"
#: Folder of the locks of what is being made.
LOCKS = ".locks"
_LOG = ".log"
#: Seconds after which what a killed process was making is removed.
_STALE = 3600
#: Lock of who trims a folder, and when that was; how many seconds ago is lately.
_TRIM, _LATELY = ".trim", 600


@dataclass(frozen=True)
class Entry:
    """`size` in bytes; `used`: seconds since the epoch."""

    path: Path
    size: int
    used: float

    def in_use(self) -> bool:
        """Whether a living process has taken it. Files are read at once, and never in use for longer."""
        return self.path.is_dir() and use.in_use(self.path)

    def remove(self) -> bool:
        """Removes it and its log unless it is in use; whether it did. Raises OSError if that is not allowed."""
        if self.path.is_dir():
            if not use.remove(self.path):
                return False
        else:
            try:
                self.path.unlink()
            except FileNotFoundError:
                return False
        self.path.with_name(self.path.name + _LOG).unlink(missing_ok=True)
        return True


def entries(folder: Path) -> list[Entry]:
    """All entries, those that were used longest ago first; none if there is no such folder."""
    result: dict[str, Entry] = {}
    try:
        paths = [Path(item) for item in os.scandir(folder) if not item.name.startswith(".")]
    except OSError:
        return []
    for path in paths:
        with contextlib.suppress(OSError):  # it has just been removed
            result[path.name] = Entry(path, _size(path), path.lstat().st_mtime)
    for name in [name for name in result if name.endswith(_LOG) and name.removesuffix(_LOG) in result]:
        log, owner = result.pop(name), result[name.removesuffix(_LOG)]
        result[owner.path.name] = Entry(owner.path, owner.size + log.size, owner.used)
    return sorted(result.values(), key=lambda entry: (entry.used, entry.path.name))


def trim(folder: Path, limit: int, most: int | None = None) -> list[Entry]:
    """Removes what was used longest ago, until no more than `limit` bytes, in `most` entries, are left or all that is
    left is in use; and what killed processes were making. Returns what was removed. Whoever comes while another process
    does this leaves it to that one."""
    from filelock import FileLock, Timeout

    gone: list[Entry] = []
    with contextlib.suppress(OSError, Timeout), FileLock(folder / _TRIM, timeout=0, thread_local=False):
        os.utime(folder / _TRIM)
        sweep(folder)
        stored = entries(folder)
        left, count = sum(entry.size for entry in stored), len(stored)
        for entry in stored:
            if left <= limit and (most is None or count <= most):
                break
            with contextlib.suppress(OSError):  # one that may not be removed does not keep the others
                if entry.remove():
                    left, count = left - entry.size, count - 1
                    gone.append(entry)
    return gone


def trimmed_lately(folder: Path) -> bool:
    """Whether a process has begun to trim a folder within the last minutes."""
    try:
        return abs(time.time() - (folder / _TRIM).stat().st_mtime) < _LATELY
    except OSError:
        return False


def sweep(folder: Path) -> None:
    """Removes what killed processes have left half made or half removed."""
    for path in list(folder.glob(f"{NEW}*")):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - _STALE:
                Entry(path, 0, 0).remove()
    for path in list(folder.glob(f"{use.GONE}*")):
        shutil.rmtree(path, ignore_errors=True)


def _size(path: Path) -> int:
    return sum(_sizes(path)) if path.is_dir() and not path.is_symlink() else path.lstat().st_size


def _sizes(folder: Path) -> Iterator[int]:
    for item in os.scandir(folder):
        with contextlib.suppress(OSError):
            if item.is_dir(follow_symlinks=False):
                yield from _sizes(Path(item))
            else:
                yield item.stat(follow_symlinks=False).st_size
