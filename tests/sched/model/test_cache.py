"""One root for everything that can be made again: in a checkout, installed, and where the user says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from meshloom.sched.model import native
from meshloom.sched.store import cache

ROOT = Path(__file__).parents[3]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """As if the packages lay in site-packages; returns the home folder of the user."""
    for name in (cache.VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cache, "_PACKAGES", tmp_path / "site-packages" / "meshloom")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_checkout_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cache.VARIABLE, raising=False)
    assert cache.checkout() == ROOT
    assert cache.root() == ROOT / "sim_build"


def test_an_installed_package_has_the_users(installed: Path) -> None:
    assert cache.checkout() is None
    assert cache.root().is_relative_to(installed)
    assert cache.root().name == "meshloom"
    assert list(native._homes(native.MODEL)) == [cache.root() / "native", native.COMPILED], "and what a wheel brings"
    assert not installed.exists(), "asking makes nothing"


def test_the_variable_names_another(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "there"))
    assert cache.root() == tmp_path / "there"
    monkeypatch.setenv(cache.VARIABLE, "~/mine")
    assert cache.root() == installed / "mine"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(cache.VARIABLE, "beside")
    assert cache.root() == tmp_path / "beside", "also for processes in other folders"


def test_a_folder_that_cannot_be_written_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file"))
    assert cache.folder("schedules") is None
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "there"))
    assert cache.folder("a", "b") == tmp_path / "there" / "a" / "b"
    assert list((tmp_path / "there" / "a" / "b").iterdir()) == []


def test_everything_lies_below_it(tmp_path: Path) -> None:
    """Simulators, schedules, runs and what numba compiles, in a process with the variable set."""
    code = (
        "from pathlib import Path\nfrom meshloom.sched.routing.compiled import _folder\n"
        "from meshloom.tb.build.builder import OUTPUT\n"
        "print(OUTPUT, _folder(Path('x')), sep='\\n')"
    )
    variables = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=variables | {cache.VARIABLE: str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    output, numba = map(Path, done.stdout.split())
    assert output == tmp_path
    assert numba.parent == tmp_path / "numba"
