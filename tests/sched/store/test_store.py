"""Values of a store: whole or not there, found by all that decides them, whoever writes, dies or fills the disk."""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from meshloom.sched.store import store as store_module
from meshloom.sched.store.store import Store, key

NAME = key("x", of="something")


def visible(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def test_a_value_is_found_again(tmp_path: Path) -> None:
    value = bytes(range(256)) + b"\n\n"
    Store(tmp_path / "a" / "b").put(NAME, value)
    store = Store(tmp_path / "a" / "b")
    assert store.get(NAME) == value
    assert store.get(key("x", of="something else")) is None
    store.put(NAME, b"")
    assert store.get(NAME) == b""
    store.drop(NAME)
    store.drop(NAME)
    assert store.get(NAME) is None


def test_each_ingredient_decides_the_name() -> None:
    result = {"chip": "a", "code": "b", "asked": "c"}
    names = [key("x", **result), key("y", **result), key("x"), key("x", chipcode="ab", asked="c")]
    names += [key("x", **(result | {name: "other"})) for name in result]
    names += [key("x", **(result | {"chip": "ab", "code": ""})), key("x", **(result | {"chip": "b", "code": "a"}))]
    names += [key("x", **{name: result[name] for name in result if name != left}) for left in result]
    names += [key("x", **result, more="")]
    assert len(set(names)) == len(names)
    assert key("x", **dict(reversed(result.items()))) == key("x", **result)


def test_labels_become_names_of_files(tmp_path: Path) -> None:
    name = key("../gemm:8x8/ü\n" + "a" * 500)
    assert Path(name).name == name
    assert not name.startswith(".")
    Store(tmp_path).put(name, b"1")
    assert Store(tmp_path).get(name) == b"1"


@pytest.mark.parametrize("content", [b"", b"{damaged", b"\xff\n\xfe", b"0" * 64 + b"\nvalue"])
def test_damage_is_said_and_the_value_made_anew(content: bytes, tmp_path: Path) -> None:
    message: list[str] = []
    store = Store(tmp_path, on_progress=message.append)
    store.put(NAME, b"value")
    (path,) = visible(tmp_path)
    path.write_bytes(content)
    assert store.obtain(NAME, lambda: b"anew") == b"anew"
    assert message
    assert str(path) in message[0]
    assert "damaged" in message[0]
    message.clear()
    assert store.obtain(NAME, lambda: b"again") == b"anew"
    assert message == []


@pytest.mark.parametrize("cut", [1, 40, 66, 70])
def test_what_is_cut_short_is_damaged(cut: int, tmp_path: Path) -> None:
    store = Store(tmp_path, on_progress=lambda what: None)
    store.put(NAME, b"a long value")
    (path,) = visible(tmp_path)
    os.truncate(path, cut)
    assert store.get(NAME) is None


def test_damage_is_logged_unless_somebody_listens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Store(tmp_path).put(NAME, b"value")
    (path,) = visible(tmp_path)
    path.write_bytes(b"")
    with caplog.at_level(logging.WARNING, "meshloom.store"):
        assert Store(tmp_path).get(NAME) is None
    assert "is damaged" in caplog.text


def test_without_a_folder_nothing_is_kept() -> None:
    store = Store(None)
    store.put(NAME, b"value")
    store.drop(NAME)
    assert store.get(NAME) is None
    assert store.obtain(NAME, lambda: b"made") == b"made"


# -- where nothing can be written -------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_made_is_said_once_and_each_result_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message: list[str] = []
    for _ in range(2):
        store = Store(tmp_path / "file" / "below", on_progress=message.append)
        assert store.obtain(NAME, lambda: b"made") == b"made"
        assert store.get(NAME) is None
    assert len(message) == 1
    assert "are not kept" in message[0]
    assert "MESHLOOM_CACHE" in message[0]


def test_what_is_mounted_read_only_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(tmp_path).put(NAME, b"value")

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(tmp_path))

    for module, name in ((tempfile, "mkstemp"), (os, "utime"), (Path, "mkdir"), (Path, "unlink")):
        monkeypatch.setattr(module, name, refused)
    message: list[str] = []
    store = Store(tmp_path, limit=10**6, on_progress=message.append)
    assert store.get(NAME) == b"value"
    store.put(NAME, b"other")
    store.drop(NAME)
    assert store.get(NAME) == b"value"
    assert store.obtain(key("y"), lambda: b"made") == b"made"
    assert ["Read-only file system" in words for words in message] == [True]


def test_a_full_disk_keeps_what_was_there_and_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when the bytes are written, or when the file is closed."""
    Store(tmp_path).put(NAME, b"before")
    fdopen = os.fdopen

    def full(handle: int, *arguments: Any, **more: Any) -> Any:
        file = fdopen(handle, *arguments, **more)

        class Full:
            def __enter__(self) -> Full:
                return self

            def __exit__(self, *_: object) -> None:
                file.close()

            def write(self, data: bytes) -> None:
                file.write(data[: len(data) // 2])
                file.flush()
                raise OSError(errno.ENOSPC, "No space left on device")

        return Full()

    monkeypatch.setattr(os, "fdopen", full)
    told: list[str] = []
    store = Store(tmp_path, on_progress=told.append)
    store.put(NAME, b"after" * 1000)
    store.put(NAME, b"after" * 1000)
    assert store.get(NAME) == b"before"
    assert len(told) == 1
    assert "No space left on device" in told[0]
    assert not list(tmp_path.glob(".new-*"))


LIMITED = """
import resource, sys
from pathlib import Path
from meshloom.sched.store.store import Store, key

resource.setrlimit(resource.RLIMIT_FSIZE, (64_000, 64_000))
told = []
store = Store(Path(sys.argv[1]), on_progress=told.append)
store.put(key("small"), b"fits")
store.put(key("big"), bytes(200_000))
print(store.get(key("small")), store.get(key("big")), len(told), "File too large" in told[0])
"""


def test_the_system_stops_a_writer(tmp_path: Path) -> None:
    """Not an injected error but a real one, in the middle of writing."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "b'fits' None 1 True\n"
    assert not list(tmp_path.glob(".new-*"))


# -- processes at the same time ---------------------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from meshloom.sched.store.store import Store, key

store, mine = Store(Path(sys.argv[1]), limit=10**9), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for number in range(60):
    store.put(key("own", who=mine, number=str(number)), f"{mine} {number} ".encode() * 500)
    store.put(key("shared"), f"{mine} ".encode() * 20_000)
    found = store.get(key("shared"))
    assert found is not None and len(set(found.split())) == 1, "half of one and half of another"
"""


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        assert process.communicate(timeout=120) == ("", "")
    message: list[str] = []
    store = Store(tmp_path, on_progress=message.append)
    for who in range(4):
        for number in range(60):
            value = store.get(key("own", who=str(who), number=str(number)))
            assert value == f"{who} {number} ".encode() * 500
    assert message == []
    assert not list(tmp_path.glob(".new-*"))


def _made(folder: Path, times: Any) -> None:
    def make() -> bytes:
        begun = time.monotonic()
        time.sleep(0.5)
        times.put((begun, time.monotonic()))
        return b"made"

    assert Store(folder).obtain(NAME, make) == b"made"


def test_what_several_need_at_the_same_time_is_made_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    times = context.Queue()
    processes = [context.Process(target=_made, args=(tmp_path, times)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    times.get(timeout=10)
    assert times.empty()


KILLED = """
import os, sys
from pathlib import Path
from meshloom.sched.store import store as module
from meshloom.sched.store.store import Store, key

replace = os.replace
def halt(*arguments):
    print("written", flush=True)
    sys.stdin.read()
module.os.replace = halt
Store(Path(sys.argv[1])).put(key("x", of="something"), b"half")
"""


def test_one_that_is_killed_while_it_writes_leaves_what_was_there(tmp_path: Path) -> None:
    Store(tmp_path).put(NAME, b"before")
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert Store(tmp_path).get(NAME) == b"before"
    (part,) = tmp_path.glob(".new-*")
    then = time.time() - 7200
    os.utime(part, (then, then))
    store = Store(tmp_path, limit=10**6)
    store.put(NAME, b"after")
    assert store.get(NAME) == b"after"
    assert not part.exists(), "and the next one tidies up"


# -- growth -----------------------------------------------------------------------------------------------------------


def test_the_values_used_longest_ago_go_first(tmp_path: Path) -> None:
    store = Store(tmp_path, limit=100 * 1065 // 10)
    for number in range(10):
        store.put(key(str(number)), bytes(1000))
        then = time.time() - 10_000 + number
        os.utime(tmp_path / f"{key(str(number))}.value", (then, then))
    assert store.get(key("0")) is not None, "which is a use"
    store.put(key("new"), bytes(2000))
    left = [number for number in range(10) if (tmp_path / f"{key(str(number))}.value").exists()]
    assert left == [0, 3, 4, 5, 6, 7, 8, 9]
    assert store.get(key("new")) is not None


def test_a_store_is_never_much_above_its_limit(tmp_path: Path) -> None:
    limit = 64_000
    store = Store(tmp_path, limit)
    sizes = []
    for number in range(200):
        store.put(key(str(number)), bytes(900))
        sizes.append(sum(path.stat().st_size for path in visible(tmp_path)))
    assert max(sizes) <= limit + limit // store_module._PART + 1000
    assert sizes[-1] > limit // 2
    assert any(after < before for before, after in pairwise(sizes))
