"""A scheduler that misbehaves costs one row, with its name, what became of it, and the line where it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import meshloom
from meshloom.sched.schedulers.registry import SchedulerError
from meshloom.sched.workload import catalog
from meshloom.tb.runs import runner

from .command_line import invoke

SCHEDULERS = '''
import ctypes, os, socket, time
from meshloom.sched.schedulers.interface import Maker, Scheduler

def good(task):
    core, tile = task.cores[0], task.tiles(task.rows)[0]
    n, k = (0, task.n_blocks), (0, task.k_blocks)
    task.load_bias(core, n, at=0)
    task.load_weights(core, n, k, at=0)
    task.load_input(core, tile, k, at=0)
    task.gemm(core, tile, n, k, a=0, b=0, bias=0, sums=0, out=0)
    task.store(core, tile, n, at=0)

def only(action):
    """Misbehaves on gemm:4x4x4 alone."""
    def schedule(task):
        if task.shape.name == "gemm:4x4x4":
            action()
        good(task)
    return schedule

def _quits(): raise SystemExit("I quit")  # quits
def _leaves(): os._exit(0)  # leaves
def _crashes(): ctypes.string_at(0)  # crashes
def _interrupts(): raise KeyboardInterrupt  # interrupts
def _hangs(): time.sleep(60)  # hangs
def _calls(): socket.create_connection(("127.0.0.1", 9))  # calls
def _eats(): return [bytearray(10**8) for _ in range(100)]  # eats
class Mute(Exception):
    def __str__(self): raise ValueError
def _mutes(): raise Mute  # mutes
def _prints(): print("x" * 300_000); os.chdir("/")

quits, leaves, crashes, interrupts = only(_quits), only(_leaves), only(_crashes), only(_interrupts)
hangs, eats, prints, mutes, calls = only(_hangs), only(_eats), only(_prints), only(_mutes), only(_calls)
made = Scheduler("made", layers=Maker(lambda *given: os._exit(3)))  # made
'''

ENDS = [
    ("quits", "SystemExit", "SystemExit: I quit"),
    ("leaves", "ProcessExit", "ended its process with exit status 0"),
    ("crashes", "SIGSEGV", "its process was ended by SIGSEGV (Segmentation fault)"),
    ("mutes", "Mute", "Mute: (its text cannot be made: ValueError)"),
    ("interrupts", "KeyboardInterrupt", "KeyboardInterrupt"),
    ("calls", "NetworkLimit", "it may not use the network, and asked for 127.0.0.1:9 (--network)"),
    ("hangs", "TimeLimit", "no result within 1 seconds (--time-limit)"),
    ("eats", "MemoryLimit", "it needs more memory than 200 MB (--memory-limit)"),
]
LIMITS = ("--time-limit", "1", "--memory-limit", "200")


@pytest.fixture
def bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file; the folder of it is where commands run."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bad.py"
    path.write_text(SCHEDULERS, encoding="utf-8")
    return path


def line_of(words: str) -> int:
    lines = SCHEDULERS.splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {words}"))


def error_of(scheduler: str, what: str) -> str:
    line = line_of(scheduler)
    return f"scheduler bad.py:{scheduler} failed on gemm:4x4x4: {what} (line {line} of bad.py)"


@pytest.mark.parametrize(("scheduler", "kind", "what"), ENDS)
def test_schedule_says_how_it_ended(bad: Path, scheduler: str, kind: str, what: str) -> None:
    limits = LIMITS if kind in ("TimeLimit", "MemoryLimit") else ()
    shown = invoke("schedule", "gemm:4x4x4", "--chip", "tiny", "--scheduler", f"bad.py:{scheduler}", *limits)
    assert (shown.exit_code, shown.stdout) == (3, "")
    assert shown.stderr == f"error: {error_of(scheduler, what)}\n"


@pytest.mark.parametrize(
    "command",
    [
        ("schedule", "gemm:4x4x4", "--chip", "tiny", "--scheduler"),
        ("run", "gemm:4x4x4", "--scheduler"),
        ("schedulers",),
    ],
)
def test_limits_hold_while_its_file_is_loaded_too(bad: Path, command: tuple[str, ...]) -> None:
    bad.write_text("while True:\n    pass\n", encoding="utf-8")
    shown = invoke(*command, "bad.py:made", "--time-limit", "0.3")
    assert shown.exit_code == 2
    assert shown.stderr.startswith(
        "error: scheduler bad.py:made cannot be loaded: no result within 0.3 seconds (--time"
    )


def test_the_options_of_a_file_are_those_of_a_scheduler_in_it(bad: Path) -> None:
    shown = invoke("schedulers", "bad.py")
    assert (shown.exit_code, "bad.py is not a scheduler; name the one in it" in shown.stderr) == (2, True)


def test_run_makes_a_row_of_it_and_the_others_run(bad: Path) -> None:
    options = ("--chip", "tiny", "--scheduler", "bad.py:crashes", "--jobs", "1", "--json", "-")
    shown = invoke("run", "gemm:4x4x4", "gemm:5x6x7", *options)
    assert shown.exit_code == 3
    crashed, good = json.loads(shown.stdout)["rows"]
    assert crashed["error"]["kind"] == "SIGSEGV"
    assert crashed["error"]["message"] == error_of("crashes", "its process was ended by SIGSEGV (Segmentation fault)")
    assert good["status"] == "passed"


def test_what_it_prints_is_no_part_of_the_results(bad: Path) -> None:
    shown = invoke("run", "gemm:4x4x4", "--chip", "tiny", "--scheduler", "bad.py:prints", "--jobs", "1", "--json", "-")
    assert shown.exit_code == 0, shown.stderr
    assert json.loads(shown.stdout)["summary"]["ok"]


def test_layers_that_can_be_scheduled_are(bad: Path) -> None:
    bad.write_text(SCHEDULERS.replace('name == "gemm:4x4x4"', 'name.endswith("fc")'), encoding="utf-8")
    shown = invoke("schedule", "resnet8/*", "--chip", "quad8", "--scheduler", "bad.py:quits", "--out", "made")
    assert shown.exit_code == 3
    assert "error: scheduler bad.py:quits failed on resnet8/fc: SystemExit: I quit (line " in shown.stderr
    assert "│resnet8/conv" in shown.stdout
    assert "resnet8/fc" not in shown.stdout


def test_python_gets_an_error_and_goes_on(bad: Path) -> None:
    here: list[int] = []

    def remembers(task: object) -> None:
        here.append(1)
        raise SystemExit

    with pytest.raises(SchedulerError, match=r"^scheduler remembers failed on gemm:4x4x4: SystemExit"):
        meshloom.schedule("gemm:4x4x4", "tiny", remembers)
    assert not here
    with pytest.raises(SchedulerError, match=r"^scheduler remembers failed on gemm:4x4x4: SystemExit"):
        meshloom.schedule("gemm:4x4x4", "tiny", remembers, apart=False)
    assert here
    with pytest.raises(SchedulerError, match=r"no result within 0\.3 seconds"):
        meshloom.schedule("gemm:4x4x4", "tiny", f"{bad}:hangs", time_limit=0.3)


def test_a_scheduler_that_ships_is_held_to_a_limit_that_is_asked_for() -> None:
    runner.prepare(catalog.find("gemm:5x6x7")[0], meshloom.load_chip("tiny"), "loop_order")
    with pytest.raises(SchedulerError, match=r"^scheduler loop_order failed on .*: no result within 1e-09 seconds"):
        meshloom.schedule("gemm:5x6x7", "tiny", time_limit=1e-9)
    assert meshloom.schedule("gemm:5x6x7", "tiny", time_limit=60, memory_limit=1000).predicted


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("raise SystemExit(0)", "SystemExit: 0 (line 1 of bad.py)"),
        ("import os; os._exit(0)", "ended its process with exit status 0 (line 1 of bad.py)"),
        (
            "import socket\nsocket.create_connection(('127.0.0.1', 9))",
            "NetworkRefused: it may not use the network, and asked for 127.0.0.1:9 (--network) (line 2 of bad.py)",
        ),
        ("import os\nos.abort()", "its process was ended by SIGABRT (Aborted) (line 2 of bad.py)"),
    ],
)
@pytest.mark.parametrize("command", ["run", "schedule"])
def test_one_that_ends_while_it_is_loaded_is_bad_input(bad: Path, command: str, text: str, error: str) -> None:
    bad.write_text(text, encoding="utf-8")
    shown = invoke(command, "gemm:4x4x4", "--chip", "tiny", "--scheduler", "bad.py:good")
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert shown.stderr == f"error: scheduler bad.py:good cannot be loaded: {error}\n"
