"""Programs that are a verilated model each, with all that is in it: a mesh in its bench, a board."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from meshloom.sched.store.store import OnProgress

from . import compiling
from .builder import OUTPUT, block_compiler
from .compiling import FAST, headers
from .runtime import OBJECTS, runtime

#: What decides what comes out of this beside sources and arguments.
AROUND = (Path(__file__), Path(compiling.__file__))


def build_program(
    program: Path,
    top: str,
    arguments: Sequence[str],
    sources: Sequence[Path],
    log: Path,
    main: Path | None = None,
    on_progress: OnProgress = lambda what: None,
) -> None:
    """Builds a program of the model of a module. `arguments`: Verilator's; `main`: the C++ that drives it, which
    includes `V<top>.h` (None: Verilator's own). What the tools print goes to `log`. Raises CompilerError, StoreError,
    WriteError."""
    compiler = block_compiler()
    shared = headers(OUTPUT, compiler, on_progress)
    folder = runtime(OUTPUT, compiler, shared, on_progress)
    work = program.parent / "model"
    work.mkdir()
    verilate = ["verilator", "--cc", "--exe", *([] if main else ["--main"]), "--top-module", top, "-Mdir", str(work)]
    with log.open("w") as printed:
        compiler.run([*verilate, *arguments, *map(str, sources)], work, printed, top)
        compiling.objects(work, f"V{top}", compiler, shared, printed, top)
        linked = [work / name for name in compiling.OBJECTS] + [folder / name for name in OBJECTS]
        if main is not None:
            linked.append(compiler.object(str(main), work, FAST, shared, printed, main.name))
        command = [*compiler.command, *map(str, linked), "-pthread", "-o", str(program)]
        compiler.run(command, work, printed, "the simulator")
    shutil.rmtree(work)
