"""How much memory a command has in use at its peak, with all processes that it starts."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..engine.rows import StudyError

#: Seconds between two looks at the processes.
EVERY = 0.05
#: Bytes of a unit of `ru_maxrss`.
_UNIT = 1024


@dataclass(frozen=True)
class Peak:
    """`largest`: bytes of the largest process, to the page; `together`: of all at one time, what they share counted
    once, as it was seen every `EVERY` seconds (where the kernel tells: otherwise `largest`); `seconds` of the
    processor."""

    largest: int
    together: int
    seconds: float


def peak_of(command: Sequence[str], environment: Mapping[str, str], stdin: str = "") -> Peak:
    """Runs a command. Raises StudyError with its last words if it fails."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as words, tempfile.TemporaryFile("w+") as read:
        read.write(stdin)
        read.seek(0)
        process = subprocess.Popen(command, stdin=read, stdout=subprocess.DEVNULL, stderr=words, env=environment)
        watch = _Watch(process.pid)
        watch.start()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        watch.over.set()
        watch.join()
        if process.returncode:
            words.seek(0)
            lines = [line.strip("│╭╮╰╯─ \n") for line in words]
            last = next((line for line in reversed(lines) if line), "it died without a word")
            raise StudyError(f"{' '.join(command[:4])}: exit status {process.returncode}: {last}")
    largest = used.ru_maxrss * _UNIT
    return Peak(largest, max(watch.most, largest), used.ru_utime + used.ru_stime)


class _Watch(threading.Thread):
    """Looks at a process and those that it has started until it is `over`; `most`: bytes at one time."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self.process, self.over, self.most = process, threading.Event(), 0

    def run(self) -> None:
        while not self.over.wait(EVERY):
            self.most = max(self.most, sum(map(_bytes, _descendants(self.process))))


def _descendants(process: int) -> Iterator[int]:
    """A process and those that it has started, and they."""
    yield process
    for thread in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            children = thread.read_text(encoding="ascii").split()
        except OSError:  # it has ended meanwhile
            continue
        for child in children:
            yield from _descendants(int(child))


def _bytes(process: int) -> int:
    """Memory of a process, of shared pages its part; 0 if it has ended, or the kernel does not tell."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder, without locks."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
