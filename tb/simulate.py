"""Entry point of a simulator process: `python -m meshloom.tb.simulate SIMULATOR BUILD RUN [waves]`.

A process of its own, so that what the simulator prints goes to `sim.log` of the run and a crash takes nobody along.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(simulator: str, build: str, folder: str, *options: str) -> None:
    from cocotb_tools.runner import get_runner

    run = Path(folder)
    runner = get_runner(simulator)
    arguments = [] if simulator == "verilator" else [f"+dumpfile_path={run / 'waves.fst'}"]
    with (run / "sim.log").open("wb") as log:
        import os

        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        runner.test(
            test_module="meshloom.tb.cosim",
            hdl_toplevel="bench",
            hdl_toplevel_lang="verilog",
            build_dir=Path(build) / "model",
            test_dir=run,
            results_xml=str(run / "results.xml"),
            plusargs=[f"+jobs={run / 'jobs.json'}", *arguments],
            waves="waves" in options and simulator == "icarus",
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
