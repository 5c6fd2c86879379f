"""Copies of a process: what they do beside it, and that nothing of them stays."""

from __future__ import annotations

import io
import os
import signal
import time
from pathlib import Path

import pytest

from meshloom.sched.support import spare
from meshloom.sched.support.spare import Copies


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the copies that this process makes."""
    numbers: list[int] = []
    fork = os.fork

    def noted() -> int:
        numbers.append(fork())
        return numbers[-1]

    monkeypatch.setattr(os, "fork", noted)
    return numbers


def assert_ended(numbers: list[int]) -> None:
    for number in numbers:
        with pytest.raises(ChildProcessError):
            os.waitpid(number, os.WNOHANG)


def search(folder: Path, outcomes: list[bool], most: int) -> tuple[list[int], list[int]]:
    """Steps of which each leaves its number in a file; those with an effect begin a new count. Returns the steps that
    this process has done itself, and what is best after each."""
    own: list[int] = []
    bests: list[int] = []
    best = 0
    copies = Copies(most)
    try:
        for step, better in enumerate(outcomes):
            kept = folder / f"{step} after {best}"
            if not kept.exists():
                if copies.leaves_out():
                    continue
                copied = copies.wait()
                if not (copied and kept.exists()):
                    if copies.start():
                        continue
                    with copies.step():
                        own.append(step)
                        kept.write_text(str(os.getpid()))
            if better:
                copies.drop()
                best = step
            bests.append(best)
    finally:
        copies.end()
    return own, bests


@pytest.mark.parametrize("most", [0, 1, 3])
def test_copies_change_nothing_but_who_does_a_step(tmp_path: Path, most: int, copied: list[int]) -> None:
    outcomes = [False, False, True, False, False, False, False, True, True, False]
    own, bests = search(tmp_path, outcomes, most)
    assert bests == [0, 0, 2, 2, 2, 2, 2, 7, 8, 8]
    assert (len(own) == len(outcomes)) == (most == 0)
    # what this process has not done is there all the same, by another one
    written = {int(path.name.split()[0]): path for path in tmp_path.iterdir()}
    assert all(written[step].read_text() != str(os.getpid()) for step in range(len(outcomes)) if step not in own)
    assert bool(copied) == (most > 0)
    assert_ended(copied)


def test_a_copy_that_dies_leaves_its_step_to_the_process() -> None:
    copies = Copies(1)
    if copies.start():  # the copy
        os.kill(os.getpid(), signal.SIGKILL)
    assert copies.wait()
    assert not copies.wait()  # there is none any more
    copies.end()


def test_an_error_in_a_copy_stays_there(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    copies = Copies(1)
    try:
        if copies.start():
            with copies.step():
                raise RuntimeError("of the copy")
        with copies.step():
            (tmp_path / "own").touch()
        assert copies.wait()
    finally:
        copies.end()
    assert "of the copy" not in capfd.readouterr().err


def test_dropped_copies_end_at_once(copied: list[int]) -> None:
    copies = Copies(2)
    if copies.start():
        time.sleep(600)
    copies.drop()
    assert len(copied) == 2
    assert_ended(copied)


def test_processors_are_what_is_set_or_what_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(spare.VARIABLE, "2")
    assert spare.spare() == 2
    with spare.limited(1):
        assert spare.spare() == 1
    monkeypatch.setenv(spare.VARIABLE, "99")
    assert spare.spare() == spare.MOST
    monkeypatch.delenv(spare.VARIABLE)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(3)))
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.5, 0.0, 0.0))
    assert spare.spare() == 2
    monkeypatch.setattr(os, "getloadavg", lambda: (3.5, 0.0, 0.0))
    assert spare.spare() == 0
    monkeypatch.setattr(os, "getloadavg", lambda: (0.5, 0.0, 0.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert spare.spare() == 0


def test_a_copy_needs_memory(monkeypatch: pytest.MonkeyPatch, copied: list[int]) -> None:
    """As much as this process has, and as much again."""
    files = {"/proc/self/statm": "9 1000 3 4 5 0 0 0", "/proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 8000 kB\n"}
    monkeypatch.setattr(spare.Path, "open", lambda path, **_: io.StringIO(files[str(path)]))
    monkeypatch.setattr(os, "sysconf", lambda name: 4096)
    copies = Copies(2)
    assert not copies.start()
    assert not copied
    files["/proc/meminfo"] = "MemAvailable: 8001 kB\n"
    if copies.start():
        time.sleep(600)
    assert len(copied) == 0, "who had no memory once does without"
    other = Copies(2)
    if other.start():
        time.sleep(600)
    other.drop()
    assert len(copied) == 2
    assert_ended(copied)
