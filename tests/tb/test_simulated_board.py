"""A simulated board through its UART pins: every device against the same jobs, hosts that come and go, the page."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from meshloom.hw.board.frames import ARGUMENTS, Frame, Kind, encode
from meshloom.hw.board.memory import BoardMemory
from meshloom.hw.spec.config import DramConfig, load
from meshloom.tb.build.builder import BuildError, build
from meshloom.tb.devices.board import simulator as board_simulator
from meshloom.tb.devices.board.transport import LinkError
from meshloom.tb.devices.interface import Device, NoDeviceError, Run
from meshloom.tb.devices.registry import find
from meshloom.tb.devices.simulated import SimulatedDevice
from meshloom.tb.results.exits import Exit
from meshloom.tb.runs import runner
from meshloom.tb.runs.options import RunOptions

from ..transcripts import files as page_files
from ..transcripts import missing, shell, transcript
from .command_line import invoke
from .hand_made import CHIP, Case, endless, illegal, product, there_and_back
from .test_board import pseudo_terminal

PAGE = Path(__file__).parents[2] / "docs" / "board.md"
EXAMPLE = Path(__file__).parents[2] / "examples" / "boards" / "fpga4.toml"
CASES = {
    "moves": there_and_back(1),
    "product": product(2),
    "fault": illegal(),
    "product again": product(2),
    "hang": endless(1500),
    "moves again": there_and_back(1),
    "large product": product(4, pixels=33, k_blocks=5),
}


#: A chip whose two channels share an SDRAM, which is much slower than they; a word is eight columns of it.
TWO = """
name = "two"
lanes = 16
rows = 4
cols = 4
floorplan = ["dram core", "dram host"]
[dram]
words = 4096
latency = 2
bytes_per_cycle = 16
"""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a simulated board with `tiny`."""
    with board_simulator.running(board_simulator.simulator(CHIP)) as (place, _):
        yield place


@pytest.fixture(scope="module")
def sdram_port() -> Iterator[int]:
    """The same with DRAM in SDRAM."""
    with board_simulator.running(board_simulator.simulator(CHIP, memory=BoardMemory.SDRAM)) as (place, _):
        yield place


@pytest.fixture(scope="module")
def rtl() -> dict[str, Run]:
    """The same jobs in the simulator without a board around it."""
    jobs = [case.job if isinstance(case, Case) else case for case in CASES.values()]
    return dict(zip(CASES, SimulatedDevice(build(CHIP, "verilator")).run(jobs, "cases"), strict=True))


@contextmanager
def opened(kind: str, port: int) -> Iterator[Device]:
    """A device of each kind."""
    if kind == "tcp":
        yield find(f"tcp:localhost:{port}").open(CHIP, False, lambda what: None)
    elif kind == "serial":
        with pseudo_terminal(port) as path:
            yield find(f"serial:{path}").open(CHIP, False, lambda what: None)
    else:
        yield SimulatedDevice(build(CHIP, kind))


def test_a_simulated_board_that_does_not_listen_or_ends_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Path("/bin/true")
    with pytest.raises(NoDeviceError, match="is taken, or not ours; name another"), board_simulator.running(silent, 0):
        pass
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        shown = invoke("board", "--simulate", "--chip", "tiny", "--port", port)
    assert (shown.exit_code, f"error: port {port} of this machine is taken" in shown.stderr) == (Exit.TOOL, True)

    @contextmanager
    def played(program: Path, port: int) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
        yield 5, subprocess.Popen(["/bin/false"])

    monkeypatch.setattr(board_simulator, "simulator", lambda chip, on_progress, memory: silent)
    monkeypatch.setattr(board_simulator, "running", played)
    shown = invoke("board", "--simulate", "--chip", "tiny")
    assert (shown.exit_code, "the simulated board has ended with status 1" in shown.output) == (Exit.TOOL, True)


def test_a_board_that_cannot_be_is_refused(folder: Any) -> None:
    shown = invoke("board", "--chip", "tiny")
    assert (shown.exit_code, "is needed: boards of hardware need no server" in shown.output) == (2, True)
    fast = CHIP.model_copy(update={"dram": DramConfig(latency=1)})
    with pytest.raises(BuildError, match=r"chip tiny has no board: dram\.latency = 1: a board's DRAM needs"):
        board_simulator._compile(fast, BoardMemory.BLOCK, folder, folder / "log")


@pytest.mark.slow  # a simulator of a board, and one of its chip
@pytest.mark.parametrize("kind", ["tcp", "serial", "icarus"])
def test_every_device_runs_the_same_jobs_alike(kind: str, port: int, rtl: dict[str, Run]) -> None:
    check_all_alike(kind, port, rtl)


@pytest.mark.slow  # another board
def test_a_board_with_sdram_runs_them_alike_and_outlives_its_hosts(sdram_port: int, rtl: dict[str, Run]) -> None:
    check_all_alike("tcp", sdram_port, rtl)
    check_hosts_that_leave(sdram_port)


def check_all_alike(kind: str, port: int, rtl: dict[str, Run]) -> None:
    jobs = [case.job if isinstance(case, Case) else case for case in CASES.values()]
    with opened(kind, port) as device:
        runs = dict(zip(CASES, device.run(jobs, "cases"), strict=True))
    for name, run in runs.items():
        right, case = rtl[name], CASES[name]
        assert (run.cycles, run.fault, run.quiet) == (right.cycles, right.fault, right.quiet), name
        assert (run.records, run.counters, run.trace_shortage) == (right.records, right.counters, ""), name
        assert run.blocked_status == right.blocked_status, name
        if isinstance(case, Case):
            assert all((got == array).all() for got, array in zip(run.memory, case.expected, strict=True)), name


@pytest.mark.slow  # a board with two channels
def test_two_channels_in_one_sdram_are_the_models_to_the_cycle(folder: Path) -> None:
    (folder / "two.toml").write_text(TWO)
    program = board_simulator.simulator(load("two.toml"), memory=BoardMemory.SDRAM)
    with board_simulator.running(program) as (place, _):
        options = RunOptions(device=f"tcp:localhost:{place}", here=True)
        (row,) = runner.run(["gemm:64x96x80,relu"], "two.toml", "loop_order", lambda event: None, options)
    assert (row.status.value, row.mismatches, row.rtl_cycles) == ("passed", 0, row.model_cycles)


@pytest.mark.slow  # a board of the page's chip, as the page has it
def test_the_page_is_right(folder: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, content in page_files(text).items():
        (folder / name).write_text(content)
    assert load("fpga4.toml").digest == load(EXAMPLE).digest
    with socket.create_server(("localhost", 0)) as free:
        number = str(free.getsockname()[1])
    first, *others = transcript(text.replace("5000", number))
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with (folder / "board.log").open("wb") as log:
        command = shlex.split(first.line.removesuffix("&"))
        board = subprocess.Popen(
            command,
            cwd=folder,
            stdout=log,
            stderr=log,
            env=environment,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # whoever runs the tests may ignore it
        )
        try:
            while not (said := (folder / "board.log").read_text().splitlines()) or "tcp" not in said[-1]:
                assert board.poll() is None, said
                time.sleep(0.1)
            assert missing(first.lines, "\n".join(said)) is None
            for each in others:
                done = shell(each.line, folder)
                assert done.returncode == 0, done.stdout
                assert missing(each.lines, done.stdout) is None, done.stdout
            board.send_signal(signal.SIGINT)
            assert board.wait(timeout=20) == Exit.INTERRUPTED
        finally:
            board.kill()
            board.wait()


@pytest.mark.slow  # the simulated board
def test_a_workload_passes_on_the_board_by_name(port: int) -> None:
    options = RunOptions(device=f"tcp:localhost:{port}", here=True)
    (row,) = runner.run(["gemm:16x16x16"], "tiny", "loop_order", lambda event: None, options)
    assert (row.simulator, row.status.value, row.mismatches) == (f"tcp:localhost:{port}", "passed", 0)
    assert row.rtl_cycles == row.model_cycles == 654
    assert row.bytes_checked == 256


@pytest.mark.slow  # the simulated board
def test_a_board_outlives_its_hosts(port: int) -> None:
    check_hosts_that_leave(port)


def check_hosts_that_leave(port: int) -> None:
    """Garbage, a host that leaves in mid-transfer, a second host: the next run is right."""
    case = product(2)
    with socket.create_connection(("localhost", port)) as one:
        one.sendall(bytes(range(256)) * 3)
    with socket.create_connection(("localhost", port)) as one:
        half = encode(Frame(Kind.POKE, 1, 1, ARGUMENTS.pack(0, 16) + bytes(64)))
        one.sendall(half[: len(half) // 2])
    device = find(f"tcp:localhost:{port}").open(CHIP, False, lambda what: None)
    running = device.run([case.job, case.job])
    first = next(running)
    with pytest.raises((LinkError, NoDeviceError), match=r"another host may have the board|connection is cut"):
        list(device.run([case.job]))
    second = next(running)
    running.close()
    assert (second.cycles, second.records) == (first.cycles, first.records)
    (third,) = device.run([case.job])
    assert (third.memory[0] == case.expected[0]).all()
    other = load("mono16")
    with pytest.raises(NoDeviceError, match="the chip there is another one than mono16"):
        list(find(f"tcp:localhost:{port}").open(other, False, lambda what: None).run([case.job]))
