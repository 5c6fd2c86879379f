"""Simulators that wait for jobs: what runs in one is what runs in a new one, and none outlives its owner."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from meshloom.tb.build.builder import build
from meshloom.tb.devices.interface import DeviceError, Job, Run
from meshloom.tb.devices.pool import Pool, pooled
from meshloom.tb.devices.simulated import VERILATOR, SimulatedDevice

from .hand_made import CHIP, endless, illegal, product, there_and_back

#: Each of another kind: moves, products, a fault, a watchdog's.
JOBS = [there_and_back(1).job, product(4, pixels=33, k_blocks=5).job, illegal(), endless(1500)]


@pytest.fixture
def pool() -> Generator[Pool]:
    one = Pool()
    yield one
    one.close()


def device(pool: Pool | None) -> SimulatedDevice:
    return SimulatedDevice(build(CHIP, "verilator"), pool=pool)


def run(pool: Pool | None, *jobs: Job) -> list[Run]:
    return list(device(pool).run(jobs))


def alive(process: int) -> bool:
    """Whether a process runs: one that has ended and that nobody has waited for does not."""
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def ended(process: int) -> bool:
    """Whether a process ends soon."""
    end = time.monotonic() + 20
    while alive(process) and time.monotonic() < end:
        time.sleep(0.01)
    return not alive(process)


def waiting(pool: Pool) -> Any:
    """The simulator that waits."""
    ((_, simulator),) = pool._waiting
    return simulator


def facts(run: Run) -> tuple[object, ...]:
    """All of a run but how long it took."""
    memory = [words.tobytes() for words in run.memory]
    return run.cycles, run.fault, memory, run.records, run.counters, run.blocked_status, run.quiet, run.trace_shortage


def test_a_run_in_one_that_waits_is_a_run_in_a_new_one(pool: Pool) -> None:
    """To the cycle, the record and the byte, whatever has run before: all jobs one after another in one process, there
    and back; and each in a process of its own."""
    alone = [facts(run(None, job)[0]) for job in JOBS]
    for order in (JOBS, JOBS[::-1]):
        for job in order:
            (one,) = run(pool, job)
            assert facts(one) == alone[JOBS.index(job)]
    assert next(waiting(pool).numbers) == 2 * len(JOBS), "one process has run them all"
    assert len(list(waiting(pool).folder.glob("job[0-9]*"))) == 0, "a job leaves no files"


def test_one_that_is_killed_while_it_waits_is_replaced(pool: Pool) -> None:
    (first,) = run(pool, JOBS[0])
    before = waiting(pool)
    os.killpg(before.process.pid, signal.SIGKILL)
    before.process.wait()
    (second,) = run(pool, JOBS[0])
    assert facts(second) == facts(first)
    assert waiting(pool).process.pid != before.process.pid
    assert not before.folder.exists()


def test_one_that_dies_is_an_error_and_never_used_again(pool: Pool) -> None:
    run(pool, JOBS[0])
    simulator = waiting(pool)
    running = device(pool).run([JOBS[0], endless(50_000_000)])
    next(running)
    os.killpg(simulator.process.pid, signal.SIGKILL)
    with pytest.raises(DeviceError, match=r"verilator ended before job 2 was done; see .*sim\.log"):
        next(running)
    assert pool.take("any") is None
    assert pool._waiting == []
    assert simulator.folder.exists(), "its log is named"
    shutil.rmtree(simulator.folder)


def test_who_stops_listening_ends_it(pool: Pool) -> None:
    run(pool, JOBS[0])
    simulator = waiting(pool)
    running = device(pool).run([JOBS[0], endless(50_000_000)])
    next(running)
    running.close()
    assert (pool._waiting, simulator.folder.exists()) == ([], False)
    assert ended(simulator.process.pid)


def test_no_more_wait_than_may(pool: Pool) -> None:
    """Those that have run side by side: the first that is done goes."""
    running = [device(pool).run([JOBS[0]]) for _ in range(2)]
    runs = [next(each) for each in running]
    assert facts(runs[0]) == facts(runs[1])
    assert [list(each) for each in running] == [[], []]
    simulator = waiting(pool)
    pool.close()
    assert ended(simulator.process.pid)
    assert not simulator.folder.exists()


def test_devices_that_are_opened_with_a_pool_use_it(pool: Pool) -> None:
    with pooled(pool):
        inside: Any = VERILATOR.open(CHIP, False, lambda what: None)
    outside: Any = VERILATOR.open(CHIP, False, lambda what: None)
    assert (inside.pool, inside.beside(lambda what: None).pool, outside.pool) == (pool, pool, None)


@pytest.mark.parametrize("end", ["pass", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_none_outlives_its_owner(end: str) -> None:
    """However that ends."""
    code = (
        "import os, signal\nfrom tests.tb.test_pool import JOBS, Pool, run, waiting\n"
        f"pool = Pool()\nrun(pool, JOBS[0])\nprint(waiting(pool).process.pid, flush=True)\n{end}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert ended(int(done.stdout)), done.stderr


def in_a_copy(pool: Pool, pipe: Any) -> None:
    """Two jobs of a process that is a copy of another, and which simulators they ran in."""
    some: list[int] = []
    for job in JOBS[:2]:
        run(pool, job)
        some.append(waiting(pool).process.pid)
    pipe.send(some)


@pytest.mark.parametrize("used", [False, True])
def test_a_copy_of_the_process_has_simulators_of_its_own(pool: Pool, used: bool) -> None:
    """As workers are that are copied from one process: they begin with none, one serves all jobs and ends with them.
    That of the process that they are copied from is left alone."""
    own = None
    if used:
        run(pool, JOBS[0])
        own = waiting(pool).process.pid
    here, there = multiprocessing.Pipe()
    copy = multiprocessing.get_context("fork").Process(target=in_a_copy, args=(pool, there))
    copy.start()
    copy.join(60)
    first, second = here.recv()
    assert first == second != own
    assert ended(first)
    assert own is None or alive(own)
    run(pool, JOBS[1])
    assert own is None or waiting(pool).process.pid == own
