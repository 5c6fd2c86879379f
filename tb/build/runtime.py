"""Verilator's runtime, compiled once: the same objects are linked into every simulator that is assembled of blocks."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from meshloom.sched.store.kinds import BLOCKS as KIND
from meshloom.sched.store.store import OnProgress, Recipe, key

from .blocks import Compiler
from .tools import ToolError, check_room

#: What Verilator's makefile for a simulator compiles of the tool's own sources, where the simulator needs it.
OBJECTS = tuple(
    f"{name}.o" for name in ("verilated", "verilated_dpi", "verilated_vpi", "verilated_timing", "verilated_threads")
)
#: Variables for that makefile: it leaves them out, because they are linked from here.
MADE = "VM_GLOBAL_FAST= VM_GLOBAL_SLOW="


class RuntimeLibraryError(ToolError):
    """The runtime could not be compiled; the message names the tool and where its output is."""


def runtime(root: Path, arguments: Sequence[str], compiler: Compiler, on_progress: OnProgress) -> Path:
    """The folder with `OBJECTS`, compiled as in a simulator that is verilated with these arguments; from the cache if
    it is there. Raises RuntimeLibraryError, StoreError."""

    def make(folder: Path, log: Path) -> None:
        work = folder / "work"
        work.mkdir()
        (work / "empty.v").write_text("module empty(input clk); endmodule\n")
        verilate = ["verilator", "--cc", "--vpi", "--prefix", "Vempty", "-Mdir", ".", *arguments, "empty.v"]
        with log.open("w") as printed:
            for command in (verilate, ["make", "-f", "Vempty.mk", *OBJECTS]):
                done = subprocess.run(
                    command, cwd=work, env=dict(compiler.environment), stdout=printed, stderr=subprocess.STDOUT
                )
                if done.returncode:
                    check_room(log.parent, log)
                    raise RuntimeLibraryError(f"{command[0]} failed on its own runtime; its output is in {log}")
        for name in OBJECTS:
            (work / name).rename(folder / name)
        shutil.rmtree(work)

    recipe = Recipe(key("runtime", arguments=" ".join(arguments), **compiler.machine), make, OBJECTS)
    return KIND.store(root, on_progress).build(recipe)[0]
