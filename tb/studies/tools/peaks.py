"""How much memory a command has in use at its peak, with all processes that it starts."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ..engine.rows import StudyError

#: Seconds between two looks at the processes.
EVERY = 0.05
#: Bytes of a unit of `ru_maxrss`.
_UNIT = 1024
#: A small process that runs a command and says what it took: the kernel counts to a process, and thereby to those that
#: it has waited for, the memory of who started it, until it became another program.
_BESIDE = """
import os, sys
out, *command = sys.argv[1:]
child = os.fork()
if child == 0:
    os.execvp(command[0], command)
_, status, used = os.wait4(child, 0)
with open(out, "w") as file:
    print(used.ru_maxrss, used.ru_utime + used.ru_stime, file=file)
sys.exit(os.waitstatus_to_exitcode(status) % 256)
"""


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
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as words,
        tempfile.TemporaryFile("w+") as read,
        tempfile.NamedTemporaryFile("r") as figures,
    ):
        read.write(stdin)
        read.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BESIDE, figures.name, *command],
            stdin=read, stdout=subprocess.DEVNULL, stderr=words, env=environment,
        )  # fmt: skip
        watch = _Watch(process.pid)
        watch.start()
        status = process.wait()
        watch.over.set()
        watch.join()
        if status:
            words.seek(0)
            lines = [line.strip("│╭╮╰╯─ \n") for line in words]
            last = next((line for line in reversed(lines) if line), "it died without a word")
            raise StudyError(f"{' '.join(command[:4])}: exit status {status}: {last}")
        most, seconds = figures.read().split()
    largest = int(most) * _UNIT
    return Peak(largest, max(watch.most, largest), float(seconds))


class _Watch(threading.Thread):
    """Looks at those that a process has started until it is `over`; `most`: bytes at one time."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self.process, self.over, self.most = process, threading.Event(), 0

    def run(self) -> None:
        while not self.over.wait(EVERY):
            started = islice(_descendants(self.process), 1, None)
            self.most = max(self.most, sum(map(_bytes, started)))


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
