"""How much is kept: what was used longest ago goes first, and nothing that a living process uses."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock

from meshloom.sched.store import cache, store, use
from meshloom.sched.store.cache import SettingError
from meshloom.sched.store.entries import Entry, entries, sweep, trim
from meshloom.sched.store.kinds import KINDS, NUMBA, RUNS, SCHEDULES, SIMULATORS
from meshloom.sched.store.store import Recipe, Store

HOLD = """
import sys
from pathlib import Path
from meshloom.sched.store import use
assert use.keep(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def made(folder: Path, name: str, size: int, age: float) -> Path:
    """A folder of `size` bytes that was used `age` seconds ago."""
    place = folder / name
    (place / "deep").mkdir(parents=True)
    (place / "deep" / "file").write_bytes(bytes(size))
    aged(place, age)
    return place


def aged(place: Path, age: float) -> None:
    then = time.time() - age
    os.utime(place, (then, then))


def names(folder: Path) -> list[str]:
    return [entry.path.name for entry in entries(folder)]


def test_entries_are_folders_and_files_with_their_logs(tmp_path: Path) -> None:
    made(tmp_path, "b", 100, 10)
    (tmp_path / "b.log").write_bytes(bytes(7))
    (tmp_path / "a.value").write_bytes(bytes(5))
    aged(tmp_path / "a.value", 20)
    (tmp_path / "failed.log").write_bytes(bytes(3))
    (tmp_path / ".new-c").mkdir()
    assert [(entry.path.name, entry.size) for entry in entries(tmp_path)] == [
        ("a.value", 5),
        ("b", 107),
        ("failed.log", 3),
    ]
    assert entries(tmp_path / "nowhere") == []
    assert entries(tmp_path)[1].remove()
    assert not (tmp_path / "b.log").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".new-c", "a.value", "failed.log"]


def test_the_oldest_go_until_the_rest_fits(tmp_path: Path) -> None:
    for age in (40, 10, 30, 20):
        made(tmp_path, f"a{age}", 1000, age)
    assert [entry.path.name for entry in trim(tmp_path, 2500)] == ["a40", "a30"]
    assert names(tmp_path) == ["a20", "a10"]
    assert trim(tmp_path, 2500) == []
    assert use.keep(tmp_path / "a20"), "which is a use"
    assert names(tmp_path) == ["a10", "a20"]


def test_what_another_process_uses_stays_until_that_ends(tmp_path: Path) -> None:
    used = made(tmp_path, "used", 1000, 100)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(used)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    made(tmp_path, "free", 1000, 50)
    aged(used, 100)
    assert use.in_use(used)
    assert not use.in_use(tmp_path / "free")
    assert [entry.path.name for entry in trim(tmp_path, 0)] == ["free"]
    assert not Entry(used, 0, 0).remove()
    process.kill()
    process.communicate()
    assert not use.in_use(used)
    assert [entry.path.name for entry in trim(tmp_path, 0)] == ["used"]


def test_what_this_process_has_built_stays(tmp_path: Path) -> None:
    def make(folder: Path, log: Path) -> None:
        (folder / "program").write_bytes(bytes(1000))

    store = Store(tmp_path, limit=1500)
    made(tmp_path, "old", 1000, 10)
    one, _ = store.build(Recipe("one", make, ("program",)))
    assert names(tmp_path) == ["one"]
    two, _ = store.build(Recipe("two", make, ("program",)))
    assert one.is_dir()
    assert two.is_dir(), "in use, both, though that is more than may be kept"


def test_a_use_ends_when_it_is_released(tmp_path: Path) -> None:
    place = made(tmp_path, "a", 1, 1)
    first, second = use.take(place), use.take(place)
    assert first is not None
    assert second is not None
    first.release()
    assert use.in_use(place)
    second.release()
    assert not use.in_use(place)
    assert use.take(tmp_path / "nowhere") is None
    assert not use.keep(tmp_path / "nowhere")


def test_one_that_was_replaced_is_taken_anew(tmp_path: Path) -> None:
    place = made(tmp_path, "a", 1, 1)
    assert use.keep(place)
    place.rename(tmp_path / "before")
    made(tmp_path, "a", 1, 1)
    assert not use.in_use(place)
    assert use.keep(place)
    assert use.in_use(place)
    assert not use.in_use(tmp_path / "before")


def test_one_that_may_not_be_removed_does_not_keep_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for age in (30, 20, 10):
        made(tmp_path, f"a{age}", 1000, age)
    rename = Path.rename

    def refused(path: Path, target: Path) -> Path:
        if path.name == "a30":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refused)
    assert [entry.path.name for entry in trim(tmp_path, 1500)] == ["a20", "a10"]
    assert names(tmp_path) == ["a30"]


def test_one_process_trims_at_a_time(tmp_path: Path) -> None:
    made(tmp_path, "a", 1000, 1)
    with FileLock(tmp_path / ".trim"):
        assert trim(tmp_path, 0) == []
    assert len(trim(tmp_path, 0)) == 1


def test_what_killed_processes_leave_goes_and_what_is_being_made_stays(tmp_path: Path) -> None:
    for name in (".new-young", ".new-old", ".new-busy", ".gone-1"):
        made(tmp_path, name, 10, 0 if name == ".new-young" else 10_000)
    busy = use.take(tmp_path / ".new-busy")
    assert busy is not None
    aged(tmp_path / ".new-busy", 10_000)
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".new-busy", ".new-young"]
    busy.release()


# -- limits -----------------------------------------------------------------------------------------------------------


def test_shares_are_all_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum(kind.share for kind in KINDS) == 100
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    monkeypatch.delenv("MESHLOOM_CACHE_MB", raising=False)
    monkeypatch.delenv("MESHLOOM_KEEP_MB", raising=False)
    assert SIMULATORS.limit() == 8_000_000_000
    monkeypatch.setenv("MESHLOOM_CACHE_MB", "100")
    assert SIMULATORS.limit() == 40_000_000
    assert RUNS.limit() == 4_000_000_000
    monkeypatch.setenv("MESHLOOM_KEEP_MB", "0")
    assert RUNS.limit() == 0


@pytest.mark.parametrize("text", ["many", "-1", "1.5", "²"])
def test_a_setting_that_is_no_number_is_named(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHLOOM_CACHE_MB", text)
    with pytest.raises(SettingError, match=f"MESHLOOM_CACHE_MB = '{text}' must be a whole number, 0 or more"):
        SCHEDULES.limit()


def test_compiled_code_is_in_use_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    monkeypatch.setenv("MESHLOOM_CACHE_MB", "1")
    old = made(tmp_path / "numba", "old", 200_000, 100)
    place = NUMBA.compiled("new")
    assert place is not None
    assert place == tmp_path / "numba" / "new"
    assert not old.exists()
    assert use.in_use(place)
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "numba" / "new" / "file"))
    (tmp_path / "numba" / "new" / "file").touch()
    assert NUMBA.compiled("new") is None


def test_a_large_folder_is_not_looked_through_for_each_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever keeps the first value of a process trims, if nobody has lately; then so many bytes must have come."""
    trimmed: list[int] = []

    def count(folder: Path, limit: int) -> list[Entry]:
        trimmed.append(limit)
        return trim(folder, limit)

    monkeypatch.setattr(store, "trim", count)
    for number in range(20):  # each asks for a store of its own
        Store(tmp_path, 64_000).put(f"v{number}", bytes(100))
    assert len(trimmed) == 1 + 19 * 100 // 1000
    store._written.clear()  # another process
    Store(tmp_path, 64_000).put("other", bytes(100))
    assert len(trimmed) == 2
    store._written.clear()
    aged(tmp_path / ".trim", 3600)
    Store(tmp_path, 64_000).put("later", bytes(100))
    assert len(trimmed) == 3
