"""Folders in which simulators run: each belongs to one process while it runs; of those that are kept the newest stay.

What is kept (waves, logs of simulators that died) and what killed processes have left is removed, the oldest first,
when the next one begins: beyond MESHLOOM_KEEP_RUNS folders (20 by default) or MESHLOOM_KEEP_MB megabytes (4000). A
folder that is in use is never removed, whoever uses it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from meshloom.sched.store.cache import SettingError, setting
from meshloom.sched.store.entries import entries
from meshloom.sched.store.kinds import RUNS
from meshloom.sched.store.room import full_place
from meshloom.sched.store.store import OnProgress
from meshloom.sched.store.use import Use, take
from meshloom.sched.support.files import FORBIDDEN, WriteError, is_full, write_error

from ..build.tools import ToolError

#: Environment variable that says how many are kept, and what holds without it.
COUNT = ("MESHLOOM_KEEP_RUNS", 20)
#: Hears what a caller need not handle: stderr, if nobody has set up logging.
_log = logging.getLogger("meshloom.runs")


class RunsError(ToolError):
    """No folder can be made, or a setting is not a number; the message says which and what would help."""


@dataclass(frozen=True)
class Claim:
    """A folder in use; `release` it."""

    folder: Path
    _use: Use | None

    def release(self, keep: bool) -> None:
        """Ends its use; without `keep` it goes."""
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)
        if self._use is not None:
            self._use.release()


def claim(label: str, runs: Path, on_progress: OnProgress = _log.warning) -> Claim:
    """A new folder whose name begins with `label`: below `runs` or, where nobody may write (a cache that is shared and
    read-only), among the system's temporary files, which `on_progress` hears. Raises RunsError."""
    try:
        count, size = setting(*COUNT), RUNS.limit()
    except SettingError as error:
        raise RunsError(str(error)) from error
    try:
        try:
            return _below(runs, label, count, size)
        except OSError as error:
            if error.errno not in FORBIDDEN:
                raise
            folder = Path(tempfile.mkdtemp(prefix=f"meshloom-{label}-"))
            on_progress(f"simulating in {folder}, because nothing can be written in {runs}")
            return Claim(folder, take(folder))
    except OSError as error:
        at = write_error(error, error.filename or full_place(runs) or runs)
        raise RunsError(
            f"{at.filename}: {at.strerror}: simulators run below {runs}; make room or give the right to write there, "
            "or name another folder in MESHLOOM_CACHE"
        ) from at


@contextlib.contextmanager
def room_in(folder: Path) -> Generator[None]:
    """Whatever fails inside because `folder` is on a full disk (what a simulator writes is cut off there, without a
    word) is a RunsError that says so."""
    try:
        yield
    except Exception as error:
        if isinstance(error, WriteError) or isinstance(error.__cause__, WriteError) or not is_full(folder):
            raise
        at = WriteError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder.parent))
        raise RunsError(f"{at} in MESHLOOM_CACHE") from at


def _below(runs: Path, label: str, count: int, size: int) -> Claim:
    """A new folder below `runs`, which is pruned. Raises OSError."""
    from filelock import FileLock

    runs.mkdir(parents=True, exist_ok=True)
    # so that nobody takes a folder for an old one before it is in use
    with FileLock(runs / ".lock", thread_local=False):
        _prune(runs, count, size)
        folder = Path(tempfile.mkdtemp(prefix=f"{label}-", dir=runs))
        return Claim(folder, take(folder))


def _prune(runs: Path, count: int, size: int) -> None:
    """Removes the oldest folders that nobody uses. The lock of `runs` is held."""
    left, room = count, size
    for entry in reversed(entries(runs)):
        if entry.in_use():
            continue
        left -= 1
        room -= entry.size
        if left < 0 or room < 0:
            with contextlib.suppress(OSError):
                entry.remove()
