"""Runs layers on SCALE-Sim v3. Started by `scale_sim.py` with the Python of SCALE-Sim's own environment, which has
nothing of Meshloom's.

`python -I scale_sim_driver.py JOB FOLDER`: JOB is a JSON file {"rows", "cols", "layers": [[name, height, width, filter
height, filter width, channels, filters, stride], ...]}. Prints a JSON line for each layer as soon as it has run, and
first one with versions.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

#: Bandwidth CALC: the memories always keep up, so that no cycle is lost outside the array.
_CONFIG = """[general]
run_name = layer
[run_presets]
InterfaceBandwidth = CALC
UseRamulatorTrace = False
[architecture_presets]
ArrayHeight = {rows}
ArrayWidth = {cols}
IfmapSramSzkB = 512
FilterSramSzkB = 512
OfmapSramSzkB = 512
IfmapOffset = 0
FilterOffset = 10000000
OfmapOffset = 20000000
Dataflow = os
ReadRequestBuffer = 64
WriteRequestBuffer = 64
[layout]
IfmapCustomLayout = False
FilterCustomLayout = False
IfmapSRAMBankBandwidth = 10
IfmapSRAMBankNum = 10
IfmapSRAMBankPort = 2
FilterSRAMBankBandwidth = 10
FilterSRAMBankNum = 10
FilterSRAMBankPort = 2
[sparsity]
SparsitySupport = false
"""
#: Layers that take less run so many times, and the fastest run counts.
_SHORT_SECONDS, _REPEATS = 0.2, 3
_WARM_UP = ["warm_up", 1, 8, 1, 1, 8, 8, 1]


def run_layer(simulator: Any, folder: Path, layer: list[Any]) -> dict[str, Any]:
    """Cycles and CPU-seconds of one layer; reading its three input files is part of what is timed."""
    name, *shape = layer
    (folder / "layer.csv").write_text("name,h,w,fh,fw,c,n,s,\nlayer," + ",".join(map(str, shape)) + ",\n")
    (folder / "layout.csv").write_text("name" + ",x" * 20 + ",\nlayer" + ",1" * 20 + ",\n")
    before = time.process_time()
    run = simulator(
        save_disk_space=True,  # no traces
        verbose=False,
        config=str(folder / "chip.cfg"),
        topology=str(folder / "layer.csv"),
        layout=str(folder / "layout.csv"),
        input_type_gemm=False,
    )
    run.run_scale(str(folder / "out"))
    spent = time.process_time() - before
    _, cycles, stalls, utilisation, *_ = run.runner.single_layer_sim_object_list[0].get_compute_report_items()
    return {
        "name": name,
        "cycles": int(cycles),
        "stalls": int(stalls),
        "utilisation": float(utilisation) / 100,
        "cpu_seconds": spent,
    }


def main(job: str, where: str) -> None:
    """Runs the job; what SCALE-Sim itself prints is dropped."""
    work, folder = json.loads(Path(job).read_text()), Path(where)
    (folder / "chip.cfg").write_text(_CONFIG.format(rows=work["rows"], cols=work["cols"]))

    def say(what: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()

    simulator = import_module("scalesim.scale_sim").scalesim
    say({"versions": {name: metadata.version(name) for name in ("scalesim", "numpy")}})
    for number, layer in enumerate([_WARM_UP, *work["layers"]]):
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            best = run_layer(simulator, folder, layer)
            for _ in range(_REPEATS - 1 if best["cpu_seconds"] < _SHORT_SECONDS else 0):
                best = min(best, run_layer(simulator, folder, layer), key=lambda one: one["cpu_seconds"])
        if number:
            say(best)


if __name__ == "__main__":
    main(*sys.argv[1:])
