"""The compiled timeline model says what Python says, and never belongs to other sources."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from meshloom.sched.model import native

from .processes import python

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built() -> None:
    """The model is compiled: takes half a minute if nobody has done it before."""
    native.build()


# -- the same timeline ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_compiled_and_python_say_the_same(built: None) -> None:
    said = {}
    for pure in ("0", "1"):
        ran = python(str(Path(__file__).with_name("timelines.py")), **{native.PURE: pure})
        assert ran.returncode == 0, ran.stderr
        said[pure] = json.loads(ran.stdout)
    assert said["0"]["compiled"]
    assert not said["1"]["compiled"]
    assert said["0"]["played"] == said["1"]["played"]
    ends = [found[0] for found in said["0"]["played"].values()]
    assert ends.count("late") > 5
    assert ends.count("never ends") > 5
    assert sum(isinstance(cycles, int) for cycles in ends) > 30


# -- which code belongs to which sources ------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of the sources that has not been compiled."""
    copy = tmp_path / "model"
    copy.mkdir()
    for path in native.MODEL.glob("*.py"):
        shutil.copyfile(path, copy / path.name)
    return copy


def pretend(model: Path, version: str = "1.0") -> Path:
    """As if `model` had been compiled."""
    made = native._home(model) / f"{native.digest(model)}-{version}"
    made.mkdir(parents=True)
    return made


def test_only_code_of_these_sources_is_used(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(native.PURE, raising=False)
    assert native.folder(model) is None
    made = pretend(model)
    assert native.folder(model) == made
    for path in sorted(model.glob("*.py")):
        text = path.read_text()
        path.write_text(text + "#\n")
        interpreted = path.stem in native._INTERPRETED
        assert native.folder(model) == (made if interpreted else None), path.name
        path.write_text(text)
    (model / "more.py").write_text("")
    assert native.folder(model) is None
    (model / "more.py").unlink()
    assert native.folder(model) == made
    monkeypatch.setenv(native.PURE, "1")
    assert native.folder(model) is None


def test_code_of_other_contracts_is_not_used(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mypyc compiles the numbers of `hw.contracts` in."""
    monkeypatch.delenv(native.PURE, raising=False)
    copy = tmp_path / "contracts.py"
    shutil.copyfile(ROOT / "hw" / "contracts.py", copy)
    made = pretend(model)
    monkeypatch.setattr(native, "_CONTRACTS", copy)
    assert native.folder(model) == made
    text = copy.read_text()
    copy.write_text(text.replace("LOCAL_FIFO: Final = 4", "LOCAL_FIFO: Final = 5"))
    assert copy.read_text() != text
    assert native.folder(model) is None


def test_of_two_compilers_the_later_one_counts(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(native.PURE, raising=False)
    old, new = pretend(model, "2.9"), pretend(model, "2.10")
    os.utime(old, (1000, 1000))
    assert native.folder(model) == new


def test_processes_that_build_at_once_compile_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    old = native._home(model) / "0123-1.0"
    old.mkdir(parents=True)
    os.utime(old, (1000, 1000))
    young = native._home(model) / "4567-1.0"
    young.mkdir()

    def compile_(model: Path, home: Path, version: str) -> None:
        time.sleep(0.1)  # the other one waits meanwhile
        compiled.append(version)
        pretend(model, version)

    monkeypatch.setattr(native, "_compile", compile_)
    had_to: list[bool] = []
    threads = [threading.Thread(target=lambda: had_to.append(native.build(model))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled) == 1
    assert sorted(had_to) == [False, False, True]
    assert young.is_dir(), "somebody may be loading it"
    assert not old.exists()


# -- what can go wrong ------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder to import another `meshloom` from, whose model has not been compiled."""
    top = tmp_path / "tree" / "meshloom"
    (top / "sched" / "model").mkdir(parents=True)
    for name in ("hw", "tb"):
        (top / name).symlink_to(ROOT / name)
    (top / "__init__.py").symlink_to(ROOT / "meshloom" / "__init__.py")
    for path in (ROOT / "sched").iterdir():
        if path.name != "model":
            (top / "sched" / path.name).symlink_to(path)
    for path in native.MODEL.glob("*.py"):
        shutil.copyfile(path, top / "sched" / "model" / path.name)
    return top.parent


def of(tree: Path) -> dict[str, str]:
    """The environment in which Python finds that one, wherever it is called, with a cache of its own."""
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(tree), "MESHLOOM_CACHE": str(tree / "cache"), native.PURE: ""}


def home(tree: Path) -> Path:
    """Where its compiled code is looked for."""
    return tree / "cache" / "native" / native._home(native.MODEL).name


WHAT_RUNS = "from meshloom.sched.model import native; print(native.MODEL, native.compiled())"


@pytest.mark.parametrize(
    ("command", "why"),
    [("no-such-compiler -O2", "there is no C compiler no-such-compiler"), ("false", "mypyc or the C compiler failed")],
)
def test_without_a_compiler_python_runs_it_and_the_command_says_so(tree: Path, command: str, why: str) -> None:
    if command == "false":  # do not wait for mypyc: it would fail behind it in the same way
        path = tree / "meshloom" / "sched" / "model" / "native.py"
        path.write_text(path.read_text().replace("from mypyc.build import mypycify", "raise SystemExit(1)"))
    ran = python("-m", "meshloom.sched.model", **of(tree), CC=command)
    assert ran.returncode == 1
    assert ran.stdout == ""
    (line,) = ran.stderr.splitlines()
    assert line.startswith("timeline model: not compiled; Python runs it")
    assert why in line
    shown = python("-c", WHAT_RUNS, **of(tree))
    assert shown.stdout.split() == [str(tree / "meshloom" / "sched" / "model"), "False"], shown.stderr


def test_compiled_code_follows_its_sources_and_not_those_of_another(built: None, tree: Path) -> None:
    model = tree / "meshloom" / "sched" / "model"
    there = native.folder()
    assert there is not None
    home(tree).mkdir(parents=True)
    (home(tree) / there.name).symlink_to(there)
    run = of(tree)
    assert python("-c", WHAT_RUNS, **run).stdout.split() == [str(model), "True"]
    (model / "flow.py").write_text((model / "flow.py").read_text() + "\nEDITED = True\n")
    edited = python("-c", f"{WHAT_RUNS}; from meshloom.sched.model import flow; print(flow.EDITED)", **run)
    assert edited.stdout.split() == [str(model), "False", "True"], edited.stderr


def test_code_that_does_not_load_is_left_alone_with_a_warning(tree: Path) -> None:
    made = pretend(tree / "meshloom" / "sched" / "model")
    home(tree).mkdir(parents=True)
    made = made.rename(home(tree) / made.name)
    (made / f"{native.SHARED}{native._SUFFIX}").write_bytes(b"made for another machine")
    shown = python("-c", WHAT_RUNS, **of(tree))
    assert shown.stdout.split()[-1] == "False", shown.stderr
    assert "cannot load the compiled timeline model; Python runs it" in shown.stderr
