"""The compiled timeline model says what Python says, and never belongs to other sources."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from meshloom.sched.model import native
from meshloom.sched.store import cache, provenance
from meshloom.sched.store.store import MANIFEST, Recipe, Store, damage

from ..processes import python

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def built() -> None:
    """The model is compiled: takes half a minute if nobody has done it before."""
    native.build()


# -- the same timeline ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_compiled_and_python_say_the_same(built: None) -> None:
    message = {}
    for pure in ("0", "1"):
        ran = python(str(Path(__file__).parents[1] / "timelines.py"), **{native.PURE: pure})
        assert ran.returncode == 0, ran.stderr
        message[pure] = json.loads(ran.stdout)
    assert message["0"]["compiled"]
    assert not message["1"]["compiled"]
    assert message["0"]["played"] == message["1"]["played"]
    ends = [result[0] for result in message["0"]["played"].values()]
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


def pretend(model: Path, version: str = "1.0", home: Path | None = None, content: bytes = b"code") -> Path:
    """As if `model` had been compiled."""

    def make(place: Path, log: Path) -> None:
        for name in native._files(model):
            (place / name).write_bytes(content)

    recipe = Recipe(f"{native._prefix(model)}{version}", make, native._files(model))
    return Store(home or next(native._homes(model))).build(recipe)[0]


def test_only_code_of_these_sources_is_used(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(native.PURE, raising=False)
    assert native.folder(model) is None
    result = pretend(model)
    assert native.folder(model) == result
    for path in sorted(model.glob("*.py")):
        text = path.read_text()
        path.write_text(text + "#\n")
        interpreted = path.stem in native._INTERPRETED
        assert native.folder(model) == (result if interpreted else None), path.name
        path.write_text(text)
    (model / "more.py").write_text("")
    assert native.folder(model) is None
    (model / "more.py").unlink()
    assert native.folder(model) == result
    monkeypatch.setenv(native.PURE, "1")
    assert native.folder(model) is None


def test_code_of_other_contracts_is_not_used(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mypyc compiles the numbers of `hw.spec.contracts` in."""
    monkeypatch.delenv(native.PURE, raising=False)
    copy = tmp_path / "contracts.py"
    shutil.copyfile(ROOT / "hw" / "spec" / "contracts.py", copy)
    result = pretend(model)
    monkeypatch.setattr(native, "_CONTRACTS", copy)
    assert native.folder(model) == result
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

    def compile_(model: Path, made: str, place: Path, log: Path) -> None:
        time.sleep(0.1)  # the other one waits meanwhile
        compiled.append(made)
        for name in native._files(model):
            (place / name).write_bytes(b"code")

    monkeypatch.setattr(native, "_compile", compile_)
    had_to: list[bool] = []
    threads = [threading.Thread(target=lambda: had_to.append(native.build(model))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert compiled == [native.digest(model)]
    assert sorted(had_to) == [False, False, True]


def test_the_digest_covers_all_constants_that_are_compiled_in() -> None:
    """mypyc takes the numbers of `Final` names from whatever a module imports."""
    beside = set(provenance.needed(ROOT, ["sched.model.timeline", "sched.model.modelled"]))
    beside -= {native._CONTRACTS, *native._sources(native.MODEL)}
    assert ROOT / "hw" / "spec" / "timing.py" in beside
    assert [path for path in beside if "Final" in path.read_text()] == []


# -- what can go wrong ------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder to import another `meshloom` from, whose model has not been compiled."""
    top = tmp_path / "tree" / "meshloom"
    (top / "sched" / "model").mkdir(parents=True)
    for name in ("hw", "tb"):
        (top / name).symlink_to(ROOT / name)
    (top / "__init__.py").symlink_to(ROOT / "meshloom" / "__init__.py")
    shutil.copytree(ROOT / "sched" / "store", top / "sched" / "store")  # by its own place it knows a checkout
    for path in (ROOT / "sched").iterdir():
        if path.name not in ("model", "store"):
            (top / "sched" / path.name).symlink_to(path)
    for path in native.MODEL.glob("*.py"):
        shutil.copyfile(path, top / "sched" / "model" / path.name)
    return top.parent


def of(tree: Path) -> dict[str, str]:
    """The environment in which Python finds that one, wherever it is called, with a cache of its own."""
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(tree), "MESHLOOM_CACHE": str(tree / "cache"), native.PURE: ""}


def home(tree: Path) -> Path:
    """Where its compiled code is looked for."""
    return tree / "cache" / "native"


WHAT_RUNS = "from meshloom.sched.model import native; print(native.MODEL, native.compiled())"
#: No compiler: nothing is compiled, so that tests take no minutes.
NO_COMPILER = {"CC": "no-such-compiler"}


def broken(tree: Path) -> Path:
    """Lets compiling fail, without waiting for mypyc; returns the file that says how it is compiled."""
    path = tree / "meshloom" / "sched" / "model" / "native.py"
    path.write_text(path.read_text().replace("from mypyc.build import mypycify", "raise SystemExit(1)"))
    return path


@pytest.mark.parametrize(
    ("command", "why"),
    [("no-such-compiler -O2", "there is no C compiler no-such-compiler"), ("false", "mypyc or the C compiler failed")],
)
def test_without_a_compiler_python_runs_it_and_the_command_says_so(tree: Path, command: str, why: str) -> None:
    if command == "false":
        broken(tree)
    ran = python("-m", "meshloom.sched.model", **of(tree), CC=command)
    assert ran.returncode == 1
    assert ran.stdout == ""
    line = ran.stderr.splitlines()[-1]
    assert line.startswith("timeline model: not compiled; Python runs it")
    assert why in line


def test_without_a_compiler_the_first_process_says_that_python_runs_it(tree: Path) -> None:
    """In one line with the mend; those that it starts need not say so again."""
    both = f"import subprocess, sys\n{WHAT_RUNS}\nsys.stdout.flush()\n"
    both += f"subprocess.run([sys.executable, '-c', '{WHAT_RUNS}'])"
    shown = python("-c", both, **of(tree), **NO_COMPILER)
    assert shown.stdout.split() == [str(tree / "meshloom" / "sched" / "model"), "False"] * 2
    (line,) = shown.stderr.splitlines()
    assert line.startswith("timeline model: Python runs it, several times slower: there is no C compiler")
    assert "install one" in line


def test_what_failed_once_is_not_compiled_at_each_command(tree: Path) -> None:
    broken(tree)
    first, second = (python("-c", WHAT_RUNS, **of(tree)) for _ in range(2))
    assert first.stdout.split()[-1] == second.stdout.split()[-1] == "False"
    begun, why = first.stderr.splitlines()
    assert begun.startswith("timeline model: compiling it, about a minute, once")
    assert "mypyc or the C compiler failed; see " in why
    (line,) = second.stderr.splitlines()
    assert "has failed; see " in line
    assert "-m meshloom.sched.model` tries again" in line


def test_pure_says_nothing(tree: Path) -> None:
    shown = python("-c", WHAT_RUNS, **of(tree) | {native.PURE: "1"})
    assert shown.stdout.split()[-1] == "False"
    assert shown.stderr == ""


def test_an_edited_source_is_another_model(built: None, tree: Path) -> None:
    """What was compiled of the sources before does not run in its place."""
    model = tree / "meshloom" / "sched" / "model"
    there = native.folder()
    assert there is not None
    home(tree).mkdir(parents=True)
    (home(tree) / there.name).symlink_to(there)
    run = of(tree) | NO_COMPILER
    assert python("-c", WHAT_RUNS, **run).stdout.split() == [str(model), "True"]
    (model / "flow.py").write_text((model / "flow.py").read_text() + "\nEDITED = True\n")
    edited = python("-c", f"{WHAT_RUNS}; from meshloom.sched.model import flow; print(flow.EDITED)", **run)
    assert edited.stdout.split() == [str(model), "False", "True"], edited.stderr


def test_a_new_cache_has_what_the_checkout_has_compiled(built: None, tmp_path: Path) -> None:
    """Also without a compiler; where nothing can be written it runs from the checkout."""
    shown = python("-c", WHAT_RUNS, **{cache.VARIABLE: str(tmp_path / "new"), native.PURE: ""}, **NO_COMPILER)
    assert (shown.stdout.split()[-1], shown.stderr) == ("True", "")
    (copy,) = (path for path in (tmp_path / "new" / "native").iterdir() if not path.name.startswith("."))
    assert damage(copy, native._files(native.MODEL)) is None
    (tmp_path / "file").touch()
    shown = python("-c", WHAT_RUNS, **{cache.VARIABLE: str(tmp_path / "file"), native.PURE: ""}, **NO_COMPILER)
    assert (shown.stdout.split()[-1], shown.stderr) == ("True", "")


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


#: The library is mapped into memory, so a file that is cut short ends the process that loads it.
SHARED = f"{native.SHARED}{native._SUFFIX}"
HARM: dict[str, Callable[[Path], object]] = {
    "cut": lambda place: os.truncate(place / SHARED, 100_000),
    "empty": lambda place: os.truncate(place / f"flow{native._SUFFIX}", 0),
    "gone": lambda place: (place / f"clock{native._SUFFIX}").unlink(),
    "flipped": lambda place: _flipped(place / SHARED),
    "no manifest": lambda place: (place / MANIFEST).unlink(),
    "empty manifest": lambda place: (place / MANIFEST).write_text('{"files": {}}'),
}


@pytest.mark.parametrize("harm", HARM)
def test_damage_is_said_and_the_code_made_anew(built: None, harm: str, tmp_path: Path) -> None:
    there = native.folder()
    assert there is not None
    place = tmp_path / "native" / there.name
    shutil.copytree(there, place)
    HARM[harm](place)
    assert damage(place, native._files(native.MODEL)) is not None
    shown = python("-c", WHAT_RUNS, **{cache.VARIABLE: str(tmp_path), native.PURE: ""}, **NO_COMPILER)
    assert shown.stdout.split()[-1:] == ["True"], shown.stderr
    (line,) = shown.stderr.splitlines()
    assert line.startswith("building it again, ")
    assert str(place) in line
    assert damage(place, native._files(native.MODEL)) is None


def test_code_that_does_not_load_is_left_alone_with_a_line(tree: Path) -> None:
    """Whole, but made for another machine."""
    result = pretend(tree / "meshloom" / "sched" / "model", home=home(tree))
    shown = python("-c", WHAT_RUNS, **of(tree))
    assert shown.stdout.split()[-1] == "False", shown.stderr
    (line,) = shown.stderr.splitlines()
    assert line.startswith(
        f"timeline model: Python runs it, several times slower: what is in {result} cannot be loaded"
    )
    assert line.endswith("remove that folder")
