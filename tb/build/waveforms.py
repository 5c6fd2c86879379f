"""A simulator that writes waves: the chip as one module, so that a viewer shows it as it is, compiled in two pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from meshloom.sched.store.store import OnProgress

from . import compiling
from .assembled import PREFIX, link, main_object
from .compiling import FAST, Compiler
from .runtime import TRACED, runtime

#: What Verilator's own makefile defines where a model writes waves.
_DEFINES = ("-DVM_TRACE=1", "-DVM_TRACE_FST=1")
#: Writing the waves takes longer than the cycles: the compiler needs not work harder at these.
_EFFORT = {FAST: "-O1"}
#: Libraries of what writes the files.
_LIBRARIES = ("-llz4", "-lz")


def build_with_waves(
    folder: Path,
    sources: Sequence[Path],
    root: Path,
    compiler: Compiler,
    arguments: Sequence[str],
    log: Path,
    on_progress: OnProgress,
) -> None:
    """Builds, in an empty folder, a simulator that can write waves. `sources`: settings and Verilog of the chip and its
    bench; `arguments`: Verilator's. Raises CompilerError, StoreError, WriteError."""
    compiler = replace(compiler, command=[*compiler.command, *_DEFINES], effort={**compiler.effort, **_EFFORT})
    objects = runtime(root, compiler, None, on_progress, TRACED)
    model = folder / "model"
    model.mkdir()
    verilate = ["verilator", "--cc", "--vpi", "--trace-fst", "--prefix", PREFIX, "--top-module", "bench"]
    with log.open("w") as printed:
        command = [*verilate, "-Mdir", str(model), *arguments, *map(str, sources)]
        compiler.run(command, folder, printed, "the chip")
        compiling.objects(model, PREFIX, compiler, None, printed, "the chip")
        program = main_object(model, compiler, None, printed)
        linked = [model / name for name in (program, *compiling.OBJECTS)] + [objects / f"{name}.o" for name in TRACED]
        link(linked, model, compiler, printed, _LIBRARIES)
