"""A simulator that counts which lines, branches and bits of the chip's Verilog a run reaches (`tb.verify.coverage`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.store.kinds import SIMULATORS as KIND
from meshloom.sched.store.store import OnProgress, Recipe, key

from . import bench, compiling
from .assembled import PREFIX, link, main_object
from .builder import OUTPUT, PROGRAMS, Build, BuildError, block_compiler, ingredients
from .compiling import FAST, SLOW
from .runtime import SOURCES, runtime
from .tools import ToolError

#: What a run leaves in its folder.
COUNTS = "coverage.dat"
#: Counted are lines with their branches, and each bit that rises or falls. A wider signal than this is left out.
_COUNTED = ("--coverage-line", "--coverage-toggle", "--coverage-max-width", "64")
#: Declarations of nets that the gateware has no name for: two of five, and nobody's contract.
_NAMELESS = re.compile(r"^  (?:wire|reg)\b.* (?:_\d+_|\\\S*\$\S* ?);$", re.MULTILINE)
#: The main program writes `COUNTS` where this is defined.
_DEFINES = ("-DVM_COVERAGE=1",)
_SOURCES = (*SOURCES, "verilated_cov")
#: Counting takes longer than the cycles, so the compiler needs not work harder; what writes the counts is the runtime.
_EFFORT, _RUNTIME = {FAST: "-O1", SLOW: "-O0"}, {FAST: "-O1", SLOW: "-O1"}


def build_with_coverage(config: ChipConfig, on_progress: OnProgress = lambda what: None) -> Build:
    """The simulator of a chip that counts, from the cache if it is there. Raises BuildError, StoreError."""

    def make(folder: Path, log: Path) -> None:
        from meshloom.hw.assembly.verilog import EmitError

        try:
            _compile(folder, _sources(folder, config), log, on_progress)
        except (EmitError, ToolError) as error:
            raise BuildError(f"verilator did not build {config.name}: {error}") from error

    parts = ingredients(config, "verilator", False) | {"coverage": Path(__file__).read_text(encoding="utf-8")}
    folder, fresh = KIND.store(OUTPUT, on_progress).build(
        Recipe(key(f"{config.name}-coverage", **parts), make, PROGRAMS["verilator"])
    )
    return Build(config, "verilator", False, folder, fresh)


def _sources(folder: Path, config: ChipConfig) -> list[Path]:
    """Writes the chip to a folder, without clock gates and loops, as it goes to an FPGA; all Verilog, the settings
    first. Raises EmitError."""
    from meshloom.hw.assembly import verilog as chip_verilog

    chip, top, control = folder / "chip.v", folder / "bench.v", folder / "public.vlt"
    text = chip_verilog.verilog(config, gated=False, observed=True, loops=False)
    chip.write_text(_NAMELESS.sub(r"/*verilator coverage_off*/\g<0>\n/*verilator coverage_on*/", text))
    top.write_text(bench.verilog(config, False))
    others = [*sorted((Path(__file__).parent / "verilog").glob("*.v")), top]
    control.write_text("".join([*bench.public(config), *(f'coverage_off -file "{path}"\n' for path in others)]))
    return [control, chip, *others]


def _compile(folder: Path, sources: Sequence[Path], log: Path, on_progress: OnProgress) -> None:
    usual = block_compiler()
    compiler = replace(usual, command=[*usual.command, *_DEFINES], effort=_EFFORT)
    objects = runtime(OUTPUT, replace(compiler, effort=_RUNTIME), None, on_progress, _SOURCES)
    model = folder / "model"
    model.mkdir()
    verilate = ["verilator", "--cc", "--vpi", "--timing", "--no-public-flat-rw", "--timescale", "1ns/1ns"]
    with log.open("w") as printed:
        command = [*verilate, *_COUNTED, "--prefix", PREFIX, "--top-module", "bench", "-Mdir", str(model)]
        compiler.run([*command, *compiler.arguments, *map(str, sources)], folder, printed, "the chip")
        compiling.objects(model, PREFIX, compiler, None, printed, "the chip")
        program = main_object(model, compiler, None, printed)
        linked = [model / name for name in (program, *compiling.OBJECTS)] + [objects / f"{name}.o" for name in _SOURCES]
        link(linked, model, compiler, printed)
