"""The C++ of verilated models, compiled: in two pieces, behind headers that are compiled once for all of them.

Verilator's own makefile compiles a dozen files of a model one by one, and the headers that they share for each model
anew: two thirds of what a small block costs.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from meshloom.sched.store.kinds import BLOCKS as KIND
from meshloom.sched.store.store import OnProgress, Recipe, fingerprint, key

from .tools import ToolError, check_room

#: The two pieces of a model: what runs in each cycle, and what runs once.
FAST, SLOW = "fast", "slow"
#: How hard the compiler works at them.
EFFORT = {FAST: "-O3", SLOW: "-O0"}
#: The object files of a model.
OBJECTS = (f"{FAST}.o", f"{SLOW}.o")
#: The header that all models share, with those that it includes.
_SHARED = "verilated.h"
#: Beside a compiled header: the files that went into it as they were.
_STATE = "state"


class CompilerError(ToolError):
    """A compiler failed; the message names it and says where its output is."""


@dataclass(frozen=True)
class Compiler:
    """What blocks are compiled with: Verilator's `arguments`, the C++ compiler's `command` with its flags, the tools'
    `environment`, where Verilator's headers are (`include`), all else that decides what comes out (`machine`), and how
    hard the compiler works at the pieces of a model (`effort`)."""

    arguments: Sequence[str]
    command: Sequence[str]
    environment: Mapping[str, str]
    include: Path
    machine: Mapping[str, str]
    effort: Mapping[str, str] = field(default_factory=lambda: EFFORT)

    def run(self, command: Sequence[str], folder: Path, printed: TextIO, what: str) -> None:
        """Runs a tool in a folder; it prints to `printed`. Raises CompilerError, WriteError."""
        done = subprocess.run(command, cwd=folder, env=dict(self.environment), stdout=printed, stderr=subprocess.STDOUT)
        if done.returncode:
            check_room(folder, Path(printed.name))
            name = "verilator" if command[0] == "verilator" else "the compiler"
            raise CompilerError(f"{name} failed on {what}; its output is in {printed.name}")

    def object(self, source: str, folder: Path, piece: str, shared: Path | None, printed: TextIO, what: str) -> Path:
        """Compiles a file of a folder to an object beside it, with the effort of that piece, and says where it is.
        `shared`: the folder of `headers`, if they are compiled. Raises CompilerError, WriteError."""
        place = folder / Path(source).with_suffix(".o").name
        before = [] if shared is None else ["-include", str(shared / f"{piece}.h")]
        command = [*self._command(piece), *before, "-I.", "-c", source, "-o", place.name]
        self.run(command, folder, printed, what)
        return place

    def header(self, piece: str, folder: Path, printed: TextIO) -> None:
        """Compiles Verilator's header for that piece to `<piece>.h.gch`; `<piece>.d` lists the files that went into it,
        and a compiler that does not want the compiled one reads `<piece>.h`. Raises CompilerError, WriteError."""
        (folder / f"{piece}.h").write_text(f'#include "{_SHARED}"\n')
        out = ["-o", f"{piece}.h.gch", "-MD", "-MF", f"{piece}.d"]
        command = [*self._command(piece), "-x", "c++-header", str(self.include / _SHARED), *out]
        self.run(command, folder, printed, "Verilator's headers")

    def _command(self, piece: str) -> list[str]:
        return [*self.command, self.effort[piece], f"-I{self.include}", f"-I{self.include / 'vltstd'}"]


def headers(root: Path, compiler: Compiler, on_progress: OnProgress) -> Path:
    """The folder with the compiled headers, from the cache if it is there and the headers are those that it was made
    of: a compiler refuses others. Raises CompilerError, StoreError."""

    def make(folder: Path, log: Path) -> None:
        with log.open("w") as printed:
            for piece in (FAST, SLOW):
                compiler.header(piece, folder, printed)
        (folder / _STATE).write_text(_state(folder))

    name = key("headers", command=" ".join(compiler.command), include=str(compiler.include), **compiler.machine)
    recipe = Recipe(name, make, (_STATE, *(f"{piece}.h.gch" for piece in (FAST, SLOW))))
    store = KIND.store(root, on_progress)
    folder = store.build(recipe)[0]
    before = fingerprint(folder)
    if (folder / _STATE).read_text() != _state(folder):
        folder = store.build(recipe, before)[0]
    return folder


def _state(folder: Path) -> str:
    """Size and date of each file that the compiled headers of a folder were made of."""
    names: set[str] = set()
    for piece in (FAST, SLOW):
        text = (folder / f"{piece}.d").read_text().replace("\\\n", " ").partition(":")[2]
        names |= {name.replace("\\ ", " ") for name in re.split(r"(?<!\\)\s+", text) if name}
    return "".join(f"{name} {_stat(name)}\n" for name in sorted(names))


def _stat(name: str) -> str:
    try:
        stat = Path(name).stat()
    except OSError:
        return "gone"
    return f"{stat.st_size} {stat.st_mtime_ns}"


def objects(work: Path, prefix: str, compiler: Compiler, shared: Path | None, printed: TextIO, what: str) -> None:
    """Compiles the C++ that Verilator has written to a folder, for the model of that prefix, to `OBJECTS` there.
    `shared`: as of `Compiler.object`. Raises CompilerError, WriteError."""
    sources = sorted(path.name for path in work.glob(f"{prefix}*.cpp"))
    pieces = {
        FAST: [name for name in sources if not name.endswith("Slow.cpp")],
        SLOW: [name for name in sources if name.endswith("Slow.cpp")],
    }
    for piece, names in pieces.items():
        (work / f"{piece}.cc").write_text(_included(names))
        compiler.object(f"{piece}.cc", work, piece, shared, printed, what)


def _included(names: Iterable[str]) -> str:
    return "".join(f'#include "{name}"\n' for name in names)
