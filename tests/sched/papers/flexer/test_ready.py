"""Compiling the search: said while it happens, done by one process at a time, and kept where that can be."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from meshloom.hw.spec.config import load
from meshloom.sched.mapping.tiling.problem import pose
from meshloom.sched.papers.flexer import jit, ready
from meshloom.sched.papers.flexer import search as searching
from meshloom.sched.papers.flexer.policy import PAPER
from meshloom.sched.papers.flexer.search import Progress, search
from meshloom.sched.workload.shapes import parse


def test_what_is_compiled_is_heard_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of our functions, when it begins and when it is done; not when it is only called."""
    monkeypatch.setattr(jit, "folder", lambda: tmp_path)
    inside = jit.inner(lambda x: x + 1)
    outside = jit.compiled(lambda x: inside(x) + inside(2))
    heard: list[tuple[int, int]] = []
    with jit.hearing(lambda done, total: heard.append((done, total))):
        assert outside(3) == 7
        assert [done for done, _ in heard] == sorted(done for done, _ in heard)
        assert heard[0][0] == 0
        assert heard[-1][0] == 2
        count = len(heard)
        assert outside(5) == 9
        assert len(heard) == count
    assert len(inside.signatures) == 1, "constants make no version of their own"
    jit.compiled(lambda x: x)(1)
    assert len(heard) == count


def test_a_search_says_that_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiles(kind: str, heard: Any) -> None:
        heard(0, 40)
        heard(39, 40)

    monkeypatch.setattr(searching, "ready", compiles)
    message: list[Progress] = []
    chip = load("tiny")
    search(pose(parse("conv:4x4x8-8,k1"), chip), chip, PAPER, "x", on_progress=message.append, threads=1)
    assert [(one.done, one.total, one.compiling) for one in message[:2]] == [(0, 40, True), (39, 40, True)]
    assert not any(one.compiling for one in message[2:])


def test_processes_wait_for_the_one_that_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And say so; what was compiled before makes nobody wait."""
    played: list[object] = []
    monkeypatch.setattr(jit, "folder", lambda: tmp_path)
    monkeypatch.setattr(ready, "_ready", set())
    monkeypatch.setattr(ready, "play", lambda *arguments: played.append(arguments))
    heard: list[tuple[int, int]] = []
    with FileLock(tmp_path / ".lock"):
        waiting = threading.Event()

        def hear(done: int, total: int) -> None:
            heard.append((done, total))
            waiting.set()

        other = threading.Thread(target=ready.ready, args=("static", hear))
        other.start()
        assert waiting.wait(60)
        assert not played
    other.join(60)
    assert heard == [(0, 0)]
    assert len(played) == 2, "the kind itself, and nests"
    monkeypatch.setattr(ready, "_ready", set())
    with FileLock(tmp_path / ".lock"):
        ready.ready("static", hear)
    assert len(played) == 4
    assert heard == [(0, 0)]


def test_an_interrupted_compilation_is_not_taken_for_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "folder", lambda: tmp_path)
    monkeypatch.setattr(ready, "_ready", set())

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ready, "play", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ready.ready("nest")
    assert not list(tmp_path.glob("*.done"))
    assert not ready._ready


def test_where_nothing_can_be_written_every_process_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    assert jit.folder.__wrapped__() is None
    monkeypatch.setattr(jit, "folder", lambda: None)
    assert jit.compiled(lambda x: x + 1)(1) == 2
    with pytest.raises(SystemExit, match="nothing can be written"):
        ready.main()
