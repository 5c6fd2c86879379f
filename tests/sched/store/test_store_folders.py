"""Folders of the cache are whole or not there, whatever is killed, cut short, damaged or done at the same time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshloom.sched.store.store import MANIFEST, OnProgress, Recipe, Store, StoreError, damage, fingerprint

CONTENT = b"a program" * 1000


def kept(
    recipe: Recipe, folder: Path, on_progress: OnProgress = lambda what: None, instead_of: str | None = None
) -> tuple[Path, bool]:
    return Store(folder, on_progress=on_progress).build(recipe, instead_of)


def shown(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def recipe(made: list[Path], content: bytes = CONTENT) -> Recipe:
    def make(folder: Path, log: Path) -> None:
        made.append(folder)
        log.write_text("no complaints")
        (folder / "model").mkdir()
        (folder / "model" / "bench").write_bytes(content)
        (folder / "source").write_text("of no interest when it runs")

    return Recipe("chip-1234", make, ("model/bench",))


def test_it_is_made_once(tmp_path: Path) -> None:
    result: list[Path] = []
    place, fresh = kept(recipe(result), tmp_path)
    assert (place, fresh) == (tmp_path / "chip-1234", True)
    assert kept(recipe(result), tmp_path) == (place, False)
    assert len(result) == 1
    assert (place / "model" / "bench").read_bytes() == CONTENT
    assert shown(tmp_path) == ["chip-1234", "chip-1234.log"]


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda place: (place / "model" / "bench").unlink(), "model/bench is missing"),
        (lambda place: os.truncate(place / "model" / "bench", 5000), "model/bench has 5,000 bytes instead of 9,000"),
        (
            lambda place: (place / "model" / "bench").write_bytes(b"b" + CONTENT[1:]),
            "model/bench is not what was built",
        ),
        (lambda place: (place / MANIFEST).unlink(), "it is not finished"),
        (lambda place: (place / MANIFEST).write_text('{"files": {"mod'), "manifest.json cannot be read"),
        (lambda place: (place / MANIFEST).write_text("[]"), "manifest.json cannot be read"),
        (lambda place: (place / MANIFEST).write_text('{"files": {}}'), "manifest.json lacks model/bench"),
    ],
)
def test_damage_is_named_and_mended(harm: Callable[[Path], None], words: str, tmp_path: Path) -> None:
    text: list[str] = []
    place, _ = kept(recipe([]), tmp_path, text.append)
    assert text == []
    harm(place)
    assert kept(recipe([]), tmp_path, text.append) == (place, True)
    (message,) = text
    assert words in message
    assert str(place) in message
    assert damage(place) is None


def test_one_that_does_not_work_is_replaced_once(tmp_path: Path) -> None:
    """However many processes find that out."""
    result: list[Path] = []
    place, _ = kept(recipe(result), tmp_path)
    bad = fingerprint(place)
    assert kept(recipe(result), tmp_path, instead_of=bad) == (place, True)
    assert kept(recipe(result), tmp_path, instead_of=bad) == (place, False)
    assert len(result) == 2


def test_a_failure_leaves_its_log_and_nothing_else(tmp_path: Path) -> None:
    def make(folder: Path, log: Path) -> None:
        (folder / "half").touch()
        log.write_text("what the compiler said")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        kept(Recipe("x", make, ()), tmp_path)
    assert shown(tmp_path) == ["x.log"]


SLOW = """
import sys, time
from pathlib import Path
from meshloom.sched.store.store import Recipe, Store

def make(folder, log):
    (folder / "model").mkdir()
    (folder / "model" / "bench").write_bytes(b"half")
    print("half", flush=True)
    time.sleep(600)

Store(Path(sys.argv[1])).build(Recipe("chip-1234", make, ("model/bench",)))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_what_was_killed_half_way_looks_like_nothing(number: int, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    process.send_signal(number)
    process.communicate(timeout=60)
    assert not (tmp_path / "chip-1234").exists()
    assert bool(list(tmp_path.glob(".new-chip-1234.*"))) == (number == signal.SIGKILL), "an interrupt tidies up"
    message: list[str] = []
    assert kept(recipe([]), tmp_path, message.append)[1]
    assert message == []
    assert not list(tmp_path.glob(".new-chip-1234.*")), "and so does the next one"


def _make(cache: Path, told: Any) -> None:
    def make(folder: Path, log: Path) -> None:
        time.sleep(1)
        (folder / "program").touch()

    told.put(("made", kept(Recipe("x", make, ("program",)), cache, lambda what: told.put(("told", what)))[1]))


def test_two_at_once_make_it_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    message = context.Queue()
    processes = [context.Process(target=_make, args=(tmp_path, message)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=60)
    heard = sorted(message.get(timeout=10) for _ in range(3))
    assert heard == [("made", False), ("made", True), ("told", "waiting for another run that is building it")]


def test_a_place_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"Not a directory|File exists") as error:
        kept(recipe([]), tmp_path / "file")
    assert "MESHLOOM_CACHE" in str(error.value)


def test_a_full_disk_is_one_error(tmp_path: Path) -> None:
    def make(folder: Path, log: Path) -> None:
        raise OSError(28, "No space left on device", str(folder / "chip.v"))

    with pytest.raises(StoreError, match=r"chip\.v: No space left on device: .* are built in .*; free disk space"):
        kept(replace(recipe([]), make=make), tmp_path)


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    def make(folder: Path, log: Path) -> None:
        subprocess.run(["g++-of-nobody"], cwd=folder, check=True)

    words = r"g\+\+-of-nobody, which builds blocks, is not there; `meshloom doctor` says what to install"
    with pytest.raises(StoreError, match=words):
        kept(replace(recipe([]), make=make), tmp_path / "blocks")


def test_a_place_of_temporary_files_has_a_variable_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(folder: Path, log: Path) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "temporary" / "chip.v"))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    words = r"No space left on device: builds have files in .*temporary, too; .* or set TMPDIR to another folder"
    with pytest.raises(StoreError, match=words):
        kept(replace(recipe([]), make=make), tmp_path / "blocks")


def test_a_folder_that_was_replaced_while_it_was_used_is_the_new_one(tmp_path: Path) -> None:
    place, _ = kept(recipe([]), tmp_path)
    bad = fingerprint(place)
    with (place / "model" / "bench").open("rb") as running:
        kept(recipe([], b"new"), tmp_path, instead_of=bad)
        assert running.read() == CONTENT
    assert (place / "model" / "bench").read_bytes() == b"new"
    assert not list(tmp_path.glob(".gone-*"))


def test_a_folder_that_may_not_be_written_serves_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, _ = kept(recipe([]), tmp_path)

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(30, "Read-only file system", str(tmp_path))

    for name in ("mkdir", "rename", "write_text"):
        monkeypatch.setattr(Path, name, refused)
    monkeypatch.setattr(os, "utime", refused)
    assert kept(recipe([]), tmp_path) == (place, False)


# -- where makefiles cannot build -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a b", "it's", 'a"b', "a$(b)", "a#b", "a:b", "a%b", "é", "a;b", "a\\b"])
def test_tools_never_see_a_path_that_they_cannot_name(name: str, tmp_path: Path) -> None:
    """It is built elsewhere, and then it is where it belongs, links too."""
    result: list[Path] = []

    def make(folder: Path, log: Path) -> None:
        recipe(result).make(folder, log)
        (folder / "link").symlink_to(tmp_path)

    place, fresh = kept(Recipe("chip-1234", make, ("model/bench",)), tmp_path / name)
    assert (place, fresh) == (tmp_path / name / "chip-1234", True)
    assert name not in str(result[0])
    assert not result[0].exists()
    assert damage(place) is None
    assert (place / "link").readlink() == tmp_path
    assert kept(recipe(result), tmp_path / name) == (place, False)
    assert shown(tmp_path / name) == ["chip-1234", "chip-1234.log"]


def test_a_plain_path_is_built_where_it_is(tmp_path: Path) -> None:
    result: list[Path] = []
    kept(recipe(result), tmp_path / "a.b_c-d+1")
    assert result[0].is_relative_to(tmp_path)


def test_a_link_with_a_plain_name_does_not_help(tmp_path: Path) -> None:
    """make asks the system where it is."""
    result: list[Path] = []
    (tmp_path / "a b").mkdir()
    (tmp_path / "plain").symlink_to(tmp_path / "a b")
    kept(recipe(result), tmp_path / "plain")
    assert not result[0].is_relative_to(tmp_path)


def test_where_there_is_no_other_place_nothing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result: list[Path] = []
    (tmp_path / "no good").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no good"))
    with pytest.raises(
        StoreError, match=r"nothing can be built in .*a b, nor in .*no good: .*MESHLOOM_CACHE or TMPDIR"
    ):
        kept(recipe(result), tmp_path / "a b")
    assert result == []
    assert shown(tmp_path / "a b") == []
    assert list((tmp_path / "no good").iterdir()) == []
