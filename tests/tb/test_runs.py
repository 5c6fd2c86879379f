"""Folders of runs: the newest that are kept stay, and none that is in use goes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from meshloom.tb.devices.folders import Claim, RunsError, claim


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MESHLOOM_KEEP_RUNS", "2")
    monkeypatch.delenv("MESHLOOM_KEEP_MB", raising=False)
    return tmp_path / "runs"


def begun(runs: Path, age: int) -> Claim:
    """A folder that was used `age` seconds ago."""
    result = claim(f"a{age}", runs)
    (result.folder / "waves.fst").write_bytes(bytes(600_000))
    then = result.folder.stat().st_mtime - age
    os.utime(result.folder, (then, then))
    return result


def names(runs: Path) -> list[str]:
    return sorted(path.name.split("-")[0] for path in runs.iterdir() if path.is_dir())


def test_without_keep_nothing_stays(runs: Path) -> None:
    claim("a", runs).release(keep=False)
    assert names(runs) == []


def test_the_newest_stay(runs: Path) -> None:
    for age in (50, 30, 40, 20):
        begun(runs, age).release(keep=True)
    assert names(runs) == ["a20", "a30", "a40"]
    claim("now", runs).release(keep=False)
    assert names(runs) == ["a20", "a30"], "trimmed when the next one begins"


def test_by_size_too(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHLOOM_KEEP_MB", "1")
    for age in (50, 30):
        begun(runs, age).release(keep=True)
    claim("now", runs).release(keep=False)
    assert names(runs) == ["a30"]


def test_one_in_use_is_never_removed(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHLOOM_KEEP_RUNS", "0")
    used, other = begun(runs, 900), begun(runs, 800)
    other.release(keep=True)
    claim("now", runs).release(keep=False)
    assert names(runs) == ["a900"]
    used.release(keep=True)
    claim("now", runs).release(keep=False)
    assert names(runs) == []


def test_nor_one_of_another_process(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until that is killed."""
    monkeypatch.setenv("MESHLOOM_KEEP_RUNS", "0")
    code = (
        "import sys; from pathlib import Path; from meshloom.tb.devices.folders import claim\n"
        "held = claim('other', Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(runs)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    claim("now", runs).release(keep=False)
    assert names(runs) == ["other"]
    process.kill()
    process.communicate()
    claim("now", runs).release(keep=False)
    assert names(runs) == []


def test_what_cannot_be_is_one_error(runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunsError, match="name another folder in MESHLOOM_CACHE"):
        claim("a", tmp_path / "file")
    monkeypatch.setenv("MESHLOOM_KEEP_RUNS", "few")
    with pytest.raises(RunsError, match="MESHLOOM_KEEP_RUNS = 'few' must be a whole number, 0 or more"):
        claim("a", runs)
