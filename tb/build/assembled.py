"""A simulator put together of its blocks: what is compiled for the chip alone is its wiring and the bench."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TextIO

from meshloom.hw.assembly.partition import Block, Partition, partition
from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.store.store import OnProgress

from . import bench, blocks, compiling
from .assembly import FUNCTIONS, Assembly
from .compiling import FAST, Compiler
from .runtime import OBJECTS, runtime

#: C++ of all assembled simulators.
SOURCES = Path(__file__).with_name("cpp")
#: The program, in the folder of the bench's model.
PROGRAM = "bench"
#: After how long somebody who waits hears how far it is.
_REPORT_SECONDS = 10.0
#: How the bench's names begin in C++; cocotb's main program wants it.
PREFIX = "Vtop"


def assemble(
    folder: Path,
    config: ChipConfig,
    root: Path,
    compiler: Compiler,
    arguments: Sequence[str],
    log: Path,
    on_progress: OnProgress,
) -> None:
    """Builds the simulator of a chip in an empty folder, the blocks that are not there yet in the cache below `root`.
    `arguments`: Verilator's for the bench. Raises EmitError, StoreError, ToolError."""
    parts, places, objects, shared = _parts(config, root, compiler, on_progress)
    places = [_linked(folder / f"part{number}", place) for number, place in enumerate(places)]
    objects = _linked(folder / "runtime", objects)
    model = folder / "model"
    (folder / "assembly.cpp").write_text(Assembly(config, parts).text())
    (folder / "bench.v").write_text(bench.apart(config, FUNCTIONS))
    (folder / "public.vlt").write_text("".join(bench.public(config)))
    around = Compiler(
        arguments,
        [*compiler.command, *(f"-I{place}" for place in (*places, SOURCES))],
        compiler.environment,
        compiler.include,
        compiler.machine,
    )
    with log.open("w") as printed:
        wiring = around.object("assembly.cpp", folder, FAST, shared, printed, config.name)
        verilate = ["verilator", "--cc", "--vpi", "--prefix", PREFIX, "--top-module", "bench", "-Mdir", model.name]
        compiler.run([*verilate, *arguments, "public.vlt", "bench.v"], folder, printed, "the bench")
        compiling.objects(model, PREFIX, compiler, shared, printed, "the bench")
        program = main_object(model, compiler, shared, printed)
        linked = [
            *(model / name for name in (program, *compiling.OBJECTS)),
            wiring,
            *(place / name for place in places for name in compiling.OBJECTS),
            *(objects / name for name in OBJECTS),
        ]
        link(linked, model, compiler, printed)


def _parts(
    config: ChipConfig, root: Path, compiler: Compiler, on_progress: OnProgress
) -> tuple[Partition, list[Path], Path, Path]:
    """The chip in blocks, the folder of each block's library, the runtime's, and that of the compiled headers."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        libraries: list[Future[Path]] = []
        shared = pool.submit(compiling.headers, root, compiler, on_progress)
        common = pool.submit(lambda: runtime(root, compiler, shared.result(), on_progress))

        def begin(block: Block) -> None:
            libraries.append(
                pool.submit(lambda: blocks.library(root, block, config, compiler, shared.result(), on_progress))
            )

        try:
            parts = partition(config, observed=True, loops=True, on_block=begin)
            _report(libraries, on_progress)
            return parts, [future.result() for future in libraries], common.result(), shared.result()
        except BaseException:  # interrupted, or one has failed: none of the others begins any more
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _report(libraries: Sequence[Future[Path]], on_progress: OnProgress) -> None:
    """Says from time to time how many blocks are there, until all are. Raises what making one raises."""
    last = time.monotonic()
    for count, future in enumerate(as_completed(libraries), 1):
        future.result()
        if time.monotonic() - last > _REPORT_SECONDS and count < len(libraries):
            last = time.monotonic()
            on_progress(f"building the simulator: {count} of {len(libraries)} blocks compiled")


def main_object(model: Path, compiler: Compiler, shared: Path | None, printed: TextIO) -> str:
    """Compiles cocotb's main program, which begins with the model's header; the name of the object."""
    from cocotb_tools.config import share_dir

    source = str(Path(share_dir) / "lib" / "verilator" / "verilator.cpp")
    return compiler.object(source, model, FAST, shared, printed, "cocotb's main program").name


def link(
    linked: Iterable[Path], model: Path, compiler: Compiler, printed: TextIO, libraries: Sequence[str] = ()
) -> None:
    """Links `PROGRAM`, with `libraries` of the system. Where cocotb's libraries lie is said when it is started
    (`simulate`), not here."""
    from cocotb_tools.config import lib_name_path

    library = Path(lib_name_path("vpi", "verilator"))
    names = [f"-L{library.parent}", f"-l{library.stem.removeprefix('lib')}", *libraries, "-pthread"]
    command = [*compiler.command, *(str(path) for path in linked), *names, "-o", PROGRAM]
    compiler.run(command, model, printed, "the simulator")


def _linked(link: Path, place: Path) -> Path:
    """Another name of a folder of the cache, so that a simulator names what it was made of."""
    link.symlink_to(place, target_is_directory=True)
    return link
