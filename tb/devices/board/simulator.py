"""A board under Verilator, built once: its UART pins are bridged to a TCP port."""

from __future__ import annotations

import hashlib
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from meshloom.hw.board.memory import BoardMemory
from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.store import provenance
from meshloom.sched.store.kinds import SIMULATORS as KIND
from meshloom.sched.store.store import OnProgress, Recipe, StoreError, key

from ...build import builder
from ...build.builder import OUTPUT, ROOT, BuildError, block_compiler
from ...build.compiling import CompilerError
from ...build.programs import AROUND, build_program
from ..interface import NoDeviceError

#: Cycles of a bit of the simulated UART: few, so that it is quick.
DIVISOR = 4
_MAIN = Path(__file__).with_name("board.cpp")
_GATEWARE = ("hw.board.top",)
#: What a board with SDRAM has beside its own Verilog.
_MODELS = _MAIN.with_name("sdram_model.v"), Path(builder.__file__).parent / "verilog" / "clock_gate.v"
_FLAGS = (
    *("--no-timing", "-O3", "--x-assign", "fast", "--x-initial", "fast", "--no-assert", "-Wno-lint", "-Wno-style"),
)


def ingredients(config: ChipConfig, memory: BoardMemory = BoardMemory.BLOCK) -> dict[str, str]:
    """All that decides what a board's simulator is: chip, where its DRAM lies, gateware, bridge, tools and flags."""
    sources = hashlib.sha256()
    for path in (*provenance.needed(ROOT, _GATEWARE), *AROUND, _MAIN, *_MODELS):
        text = path.read_bytes()
        sources.update(f"{path.name}\0{len(text)}\0".encode() + text)
    return {
        "chip": config.digest,
        "memory": memory,
        "sources": sources.hexdigest(),
        "tools": " ".join(f"{name}={metadata.version(name)}" for name in ("amaranth", "pyosys", "verilator")),
        "flags": f"{_FLAGS} {DIVISOR} {block_compiler().machine}",
    }


def simulator(
    config: ChipConfig, on_progress: OnProgress = lambda what: None, memory: BoardMemory = BoardMemory.BLOCK
) -> Path:
    """The program that simulates a board with this chip, from the cache if it is there. Raises BuildError."""
    name = key(f"{config.name}-board", **ingredients(config, memory))
    recipe = Recipe(name, lambda folder, log: _compile(config, memory, folder, log), ("board",))
    try:
        return KIND.store(OUTPUT, on_progress).build(recipe)[0] / "board"
    except StoreError as error:
        raise BuildError(str(error)) from error


def _compile(config: ChipConfig, memory: BoardMemory, folder: Path, log: Path) -> None:
    from meshloom.hw.board.top import board_verilog

    try:
        (folder / "board.v").write_text(board_verilog(config, DIVISOR, memory))
    except ValueError as error:
        raise BuildError(f"chip {config.name} has no board: {error}") from error
    models = _MODELS if memory is BoardMemory.SDRAM else ()
    try:
        build_program(folder / "board", "board", _FLAGS, [folder / "board.v", *models], log, _MAIN)
    except CompilerError as error:
        raise BuildError(f"verilator did not build the board of {config.name}: {error}") from error


def check_port(port: int) -> None:
    """Raises NoDeviceError for a port on which a board could not listen."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
            trial.listen()
        except OSError as error:
            raise _taken(port) from error


def _taken(port: int) -> NoDeviceError:
    return NoDeviceError(f"port {port} of this machine is taken, or not ours; name another with --port")


@contextmanager
def running(program: Path, port: int = 0) -> Generator[tuple[int, subprocess.Popen[bytes]]]:
    """A board in a process that ends with this block: its port (0: any that is free), and the process. Raises
    NoDeviceError if the port is taken."""
    check_port(port)
    process = subprocess.Popen(
        [program, str(port), str(DIVISOR)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise _taken(port)
        yield int(line), process
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
