"""Verilator's runtime, compiled once: the same objects are linked into every simulator that is assembled of blocks."""

from __future__ import annotations

from pathlib import Path

from meshloom.sched.store.kinds import BLOCKS as KIND
from meshloom.sched.store.store import OnProgress, Recipe, key

from .compiling import SLOW, Compiler

#: What a simulator needs of the tool's own sources.
_SOURCES = ("verilated", "verilated_dpi", "verilated_vpi", "verilated_timing", "verilated_threads")
OBJECTS = tuple(f"{name}.o" for name in _SOURCES)


def runtime(root: Path, compiler: Compiler, shared: Path, on_progress: OnProgress) -> Path:
    """The folder with `OBJECTS`, from the cache if it is there. `shared`: the folder of `compiling.headers`. Nothing of
    it runs in each cycle of a chip in blocks. Raises CompilerError, StoreError."""

    def make(folder: Path, log: Path) -> None:
        with log.open("w") as printed:
            for name in _SOURCES:
                source = str(compiler.include / f"{name}.cpp")
                compiler.object(source, folder, SLOW, shared, printed, "Verilator's runtime")

    name = key("runtime", command=" ".join(compiler.command), include=str(compiler.include), **compiler.machine)
    recipe = Recipe(name, make, OBJECTS)
    return KIND.store(root, on_progress).build(recipe)[0]
