"""Verilator's runtime, compiled once: the same objects are linked into every simulator that is assembled of blocks."""

from __future__ import annotations

from pathlib import Path

from meshloom.sched.store.kinds import BLOCKS as KIND
from meshloom.sched.store.store import OnProgress, Recipe, key

from .compiling import SLOW, Compiler

#: What a simulator needs of the tool's own sources, and one that writes waves.
SOURCES = ("verilated", "verilated_dpi", "verilated_vpi", "verilated_timing", "verilated_threads")
TRACED = (*SOURCES, "verilated_fst_c")
OBJECTS = tuple(f"{name}.o" for name in SOURCES)


def runtime(
    root: Path, compiler: Compiler, shared: Path | None, on_progress: OnProgress, sources: tuple[str, ...] = SOURCES
) -> Path:
    """The folder with the objects of `sources`, from the cache if it is there. `shared`: the folder of
    `compiling.headers`, if they are compiled. Nothing of it runs in each cycle of a chip in blocks. Raises
    CompilerError, StoreError."""

    def make(folder: Path, log: Path) -> None:
        with log.open("w") as printed:
            for name in sources:
                source = str(compiler.include / f"{name}.cpp")
                compiler.object(source, folder, SLOW, shared, printed, "Verilator's runtime")

    command = " ".join((*compiler.command, *sources))
    name = key("runtime", command=command, include=str(compiler.include), **compiler.machine)
    recipe = Recipe(name, make, tuple(f"{source}.o" for source in sources))
    return KIND.store(root, on_progress).build(recipe)[0]
