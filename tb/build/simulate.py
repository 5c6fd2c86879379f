"""Entry point of a simulator process: `python -m meshloom.tb.build.simulate SIMULATOR BUILD RUN [waves] [serve]`.

It runs the jobs of `jobs` or, with `serve`, carries out orders as they come (`tb.build.serve`).

A process of its own, so that what the simulator prints goes to `sim.log` of the run and a crash ends nothing else. It
leads a session of its own and ends, with the simulator below it, when its standard input is closed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

#: File or pipe of a run with its jobs, and the pipe for what comes of them (`tb.build.cosim`).
JOBS, ANSWERS = "jobs", "answers"


def _end_with_input() -> None:
    """Watches standard input; the simulator gets an empty one in its place."""
    watched = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def watch() -> None:
        while os.read(watched, 1):
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _libraries() -> str:
    """Where the loader looks for cocotb's libraries. A simulator names the folder where they lay when it was built:
    a moved checkout, or another one that shares the cache, need not have it."""
    from cocotb_tools.config import libs_dir

    return os.pathsep.join(filter(None, (str(libs_dir), os.environ.get("LD_LIBRARY_PATH"))))


def main(simulator: str, build: str, folder: str, *options: str) -> None:
    from cocotb_tools.runner import get_runner

    _end_with_input()
    run = Path(folder)
    runner = get_runner(simulator)
    waves = "waves" in options
    with (run / "sim.log").open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        runner.test(
            test_module="meshloom.tb.build.serve" if "serve" in options else "meshloom.tb.build.cosim",
            hdl_toplevel="bench",
            hdl_toplevel_lang="verilog",
            build_dir=Path(build) / "model",
            test_dir=run,
            results_xml=str(run / "results.xml"),
            plusargs=[f"+jobs={run / JOBS}"],
            test_args=["--trace-file", str(run / "waves.fst")] if waves and simulator == "verilator" else [],
            extra_env={
                "COCOTB_REWRITE_ASSERTION_FILES": "",  # it asserts nothing, and pytest's plugins load slowly
                "LD_LIBRARY_PATH": _libraries(),
            },
            waves=waves,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
