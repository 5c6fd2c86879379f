"""Code in a process of its own: what it makes comes back, and however it ends, its caller learns of it and goes on."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshloom.sched.support import apart, sockets
from meshloom.sched.support.apart import DiedError, Report
from meshloom.sched.support.limits import Guard, Limits, guard, guard_of, guarded

LIMITS = Limits(seconds=20, megabytes=200)


def call(
    work: Callable[[Report], Any], limits: Limits = LIMITS, hear: Callable[[Any], None] = lambda report: None
) -> Any:
    return apart.call(work, limits, lambda error: ValueError(f"{type(error).__name__}: {error}"), hear, __file__)


def line_of(words: str) -> int:
    """The line of this file that ends so."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {words}"))


def test_a_caller_that_would_say_where_it_hangs_is_copied() -> None:
    """The thread of `faulthandler.dump_traceback_later` is not in the copy: who waits for it there, waits for ever."""
    active = subprocess.run(
        [
            sys.executable, "-c",
            "import faulthandler; faulthandler.dump_traceback_later(600)\n"
            "from meshloom.sched.support import apart; from meshloom.sched.support.limits import Limits\n"
            "print(apart.call(lambda report: 3, Limits(20, None), lambda error: error))",
        ],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert active.stdout == "3\n", active.stderr


def test_what_it_makes_and_reports_comes_back() -> None:
    heard: list[Any] = []
    here = os.getpid()

    def work(report: Report) -> tuple[bool, np.ndarray]:
        report("one")
        report({"two": 2})
        report(lambda: None)  # cannot be sent, and is not missed
        return os.getpid() != here, np.arange(1 << 20)

    elsewhere, array = call(work, hear=heard.append)
    assert elsewhere
    assert array.sum() == ((1 << 20) - 1) * (1 << 19)
    assert heard == ["one", {"two": 2}]


def test_what_it_changes_stays_there(tmp_path: Path) -> None:
    mine, before = [1], Path.cwd()

    def work(report: Report) -> list[int]:
        mine.append(2)
        os.chdir(tmp_path)
        os.environ["CHANGED"] = "yes"
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return mine

    assert call(work) == [1, 2]
    assert (mine, Path.cwd(), "CHANGED" in os.environ) == ([1], before, False)
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN


@pytest.mark.parametrize(
    "error",
    [SystemExit(), SystemExit("bye"), KeyboardInterrupt(), GeneratorExit(), BaseException("x"), KeyError(1)],
)
def test_whatever_it_raises_is_an_error_here(error: BaseException) -> None:
    def work(report: Report) -> None:
        raise error

    with pytest.raises(ValueError, match=f"^{type(error).__name__}: "):
        call(work)


def test_what_cannot_be_sent_is_an_error() -> None:
    with pytest.raises(ValueError, match="pickle"):
        call(lambda report: lambda: None)


def test_recursion_without_end_is_an_error() -> None:
    def work(report: Report) -> None:
        work(report)

    with pytest.raises(ValueError, match=r"^RecursionError: "):
        call(work)


def _exit(report: Report) -> None:
    os._exit(7)  # exit


def _crash(report: Report) -> None:
    ctypes.string_at(0)  # crash


def _abort(report: Report) -> None:
    os.abort()  # abort


def _terminate(report: Report) -> None:
    os.kill(os.getpid(), signal.SIGTERM)  # terminate


def _kill(report: Report) -> None:
    os.kill(os.getpid(), signal.SIGKILL)  # kill


def _c_exit(report: Report) -> None:
    ctypes.CDLL(None).exit(5)  # c_exit


def _close(report: Report) -> None:
    os.closerange(3, 256)


@pytest.mark.parametrize(
    ("work", "kind", "what"),
    [
        (_exit, "ProcessExit", "ended its process with exit status 7"),
        (_c_exit, "ProcessExit", "ended its process with exit status 5"),
        (_crash, "SIGSEGV", r"its process was ended by SIGSEGV \(Segmentation fault\)"),
        (_abort, "SIGABRT", "its process was ended by SIGABRT"),
        (_terminate, "SIGTERM", "its process was ended by SIGTERM"),
        (_kill, "SIGKILL", "its process was ended by SIGKILL"),
    ],
)
def test_one_that_ends_its_process_leaves_its_line(work: Callable[[Report], Any], kind: str, what: str) -> None:
    with pytest.raises(DiedError, match=f"^{what}") as death:
        call(work)
    assert death.value.kind == kind
    assert next(line for path, line in death.value.frames if path == __file__) == line_of(work.__name__.strip("_"))


def test_one_that_closes_all_its_files_is_told_too() -> None:
    with pytest.raises(DiedError, match=r"^ended its process with exit status 1$"):
        call(_close)


def test_one_that_is_killed_from_outside_may_have_lacked_memory() -> None:
    def work(report: Report) -> None:
        subprocess.run([sys.executable, "-c", f"import os; os.kill({os.getpid()}, 9)"], check=False)
        time.sleep(20)

    with pytest.raises(DiedError, match=r"was killed .* when memory runs out"):
        call(work)


def _loop(report: Report) -> None:
    while True:
        pass  # loop


def _sleep(report: Report) -> None:
    time.sleep(60)  # sleep


def _stop(report: Report) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)  # stop


@pytest.mark.parametrize("work", [_loop, _sleep, _stop])
def test_one_that_never_ends_is_ended(work: Callable[[Report], Any]) -> None:
    began = time.monotonic()
    with pytest.raises(DiedError, match=r"^no result within 0\.2 seconds \(--time-limit\)$") as death:
        call(work, Limits(seconds=0.2))
    assert time.monotonic() - began < 10
    assert death.value.kind == "TimeLimit"
    assert line_of(work.__name__.strip("_")) - 1 <= death.value.frames[0][1] <= line_of(work.__name__.strip("_"))


def test_one_that_talks_without_end_is_ended_too() -> None:
    def work(report: Report) -> None:
        while True:
            report("more")
            time.sleep(0.001)

    with pytest.raises(DiedError, match=r"^no result within 0\.2 seconds"):
        call(work, Limits(seconds=0.2))


@pytest.fixture(scope="module")
def listener() -> Generator[int]:
    """The port of somebody on this machine who can be called."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_it_reaches_nobody(listener: int) -> None:
    def connect(report: Report) -> str:
        with socket.create_connection(("127.0.0.1", listener), 2):
            return "connected"

    def fetch(report: Report) -> None:
        urllib.request.urlopen("http://example.org", timeout=2)

    def pair(report: Report) -> bytes:
        one, other = socket.socketpair()
        one.sendall(b"x")
        return other.recv(1)

    text = r"^NetworkRefused: it may not use the network, and asked for 127\.0\.0\.1:\d+ \(--network\)$"
    with pytest.raises(ValueError, match=text):
        call(connect)
    with pytest.raises(ValueError, match=r"^URLError: .*asked for example\.org"):
        call(fetch)
    assert call(pair) == b"x"
    assert call(connect, Limits(20, 200, network=True)) == "connected"


@pytest.mark.skipif(not sockets.namespaces(), reason="the system keeps no process from the network")
def test_nor_does_a_program_that_it_starts(listener: int) -> None:
    program = f"import socket; socket.create_connection(('127.0.0.1', {listener}), 2)"

    def work(report: Report) -> str:
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        return ran.stderr.splitlines()[-1] if ran.returncode else ""

    assert call(work).endswith("Network is unreachable")
    assert call(work, Limits(20, 200, network=True)) == ""


def test_that_a_system_cannot_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(sockets, "namespaces", lambda: False)
    apart._say_if_half.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert [call(lambda report: 3), call(lambda report: 4)] == [3, 4]
    assert [record.getMessage() for record in caplog.records] == [f"code that is not Meshloom's: {sockets.HALF}"]


def test_long_waits_are_told_now_and_then(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(apart, "_SAID", 0.1)
    for name, most in (("scheduler slow", 2), ("", 0)):
        caplog.clear()
        apart.call(lambda report: time.sleep(0.6), LIMITS, lambda error: error, name=name)
        told = [text for text in caplog.messages if text.startswith("scheduler slow")]
        assert bool(most) <= len(told) <= most
        assert all("seconds; it is ended after 20 (a --time-limit of less ends it sooner)" in text for text in told)


def test_memory_is_bounded_beside_what_there_was() -> None:
    tight = Limits(megabytes=40)
    before = np.ones(60 << 17)  # 60 MB, which count for nothing

    def work(report: Report) -> float:
        return float(before.sum() + np.ones(20 << 17).sum())

    def greedy(report: Report) -> None:
        bytearray(500 << 20)  # far more than what the caller may have freed

    assert call(work, tight) == 80 << 17
    with pytest.raises(ValueError, match=r"^MemoryError"):
        call(greedy, tight)
    call(greedy, Limits(megabytes=None))


def test_what_it_prints_goes_to_stderr_and_it_reads_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    def work(report: Report) -> str:
        sys.stdout.write("by Python")
        os.write(1, b"by the system\n")
        subprocess.run(["echo", "by another"], check=False)
        return sys.stdin.read() if sys.stdin and not sys.stdin.closed and sys.stdin.fileno() == 0 else ""

    sys.stdout.write("mine")
    with contextlib.suppress(ValueError):  # pytest's stdin refuses to be read
        assert call(work) == ""
    out, err = capfd.readouterr()
    assert out == "mine"
    assert "by Python" in err
    assert "by the system" in err
    assert "by another" in err


def test_many_workers_end_one_after_the_other() -> None:
    """Their ends are no last words of the process: these have room for a few dozen."""

    def work(report: Report) -> int:
        for _ in range(60):
            if (worker := os.fork()) == 0:
                os._exit(0)
            os.waitpid(worker, 0)
        os._exit(7)  # the process itself

    with pytest.raises(DiedError, match="exit status 7") as death:
        call(work)
    assert death.value.frames[0] == (__file__, line_of("the process itself"))


def test_threads_and_processes_that_it_leaves_behind_end_with_it(tmp_path: Path) -> None:
    def work(report: Report) -> int:
        threading.Thread(target=time.sleep, args=(60,)).start()
        return subprocess.Popen(["sleep", "60"]).pid

    began = time.monotonic()
    left = call(work)
    assert time.monotonic() - began < 10
    for _ in range(100):
        if not Path(f"/proc/{left}").exists() or " Z " in Path(f"/proc/{left}/stat").read_text():
            return
        time.sleep(0.05)
    pytest.fail("the process that it started lives on")


def test_it_ends_with_its_caller() -> None:
    script = (
        "import os, sys, time\n"
        "from meshloom.sched.support.apart import Process\n"
        "from meshloom.sched.support.limits import Limits\n"
        "process = Process(lambda connection: (connection.send(os.getpid()), time.sleep(60)), Limits())\n"
        "print(process.receive(), flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == -signal.SIGKILL, result.stderr
    other = Path(f"/proc/{result.stdout.strip()}/stat")
    for _ in range(100):
        if not other.exists() or " Z " in other.read_text():
            return
        time.sleep(0.05)
    pytest.fail("it lives on")


def test_limits_hold_as_they_are_asked_for() -> None:
    assert guard() == Guard(None, Limits(600.0, 4096))
    assert guard_of(5, None) == Guard(Limits(5, None), Limits(5, 4096))
    assert guard_of(None, 100) == Guard(Limits(None, 100), Limits(600.0, 100))
    assert guard_of(5, network=True) == Guard(Limits(5, None, True), Limits(5, 4096, True))
    assert guard_of(0, 0) == Guard(None, Limits(None, None))
    with guarded(guard_of(5, 7)):
        assert guard().foreign == Limits(5, 7)
        with guarded(Guard(None, None)):
            assert guard().foreign is None
        assert guard().foreign == Limits(5, 7)
    assert guard() == Guard()


def test_there_is_memory_left_to_say_that_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = [None] * 1_000_000

    def work(report: Report) -> None:
        monkeypatch.setattr(resource, "setrlimit", lambda *values: None)  # no bound is lifted
        number = 0
        for size in (1 << 20, 1 << 12, *range(480, 0, -16)):  # to the last byte of every size
            try:
                while True:
                    kept[number] = bytes(size)
                    number += 1
            except MemoryError:
                continue
        raise MemoryError

    with pytest.raises(ValueError, match="MemoryError"):
        call(work, Limits(seconds=20, megabytes=50))


class Unflushed:
    """A stream that ends its process when it is flushed."""

    def flush(self) -> None:
        raise SystemExit


def test_nothing_of_its_caller_goes_on_there() -> None:
    def body(connection: Any) -> None:
        sys.stdout = Unflushed()

    with contextlib.closing(apart.Process(body, LIMITS)) as process, pytest.raises(DiedError, match="exit status 0"):
        process.receive()
