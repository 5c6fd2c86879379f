"""Runs layers with SCALE-Sim (PyPI: scalesim, in an environment of its own) on a core of a chip of Meshloom.

    python scripts/scalesim.py --out examples/mappings/scalesim mono16 resnet8

`OUT/CHIP/NAME/` has `CHIP.cfg` (`meshloom export-chip CHIP --as scalesim`), `layers.csv`, the topology with a line
for each layer that differs from those before it, and in `CHIP/` the reports that SCALE-Sim wrote, unchanged.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from meshloom.hw.spec.config import load
from meshloom.sched.schedulers.nest.schedule import sizes_of
from meshloom.sched.workload.catalog import find
from meshloom.sched.workload.layers import ConvShape
from meshloom.tb.exchange.scalesim import BYTES, CYCLES
from meshloom.tb.exchange.scalesim_chip import texts
from meshloom.tb.results.energy import load as load_energy
from meshloom.tb.studies.tools.scale_sim import install, topology

#: Runs inside the environment: configuration, topology, layout, folder.
RUN = """
import sys
from scalesim.scale_sim import scalesim
config, topology, layout, folder = sys.argv[1:]
scalesim(save_disk_space=True, verbose=False, config=config, topology=topology, layout=layout,
         input_type_gemm=False).run_scale(folder)
"""
HEAD = "Layer, IFMAP height, IFMAP width, Filter height, Filter width, Channels, Filters, Stride,\n"


def distinct(names: Sequence[str]) -> list[ConvShape]:
    """The layers of workloads, each once: some have the same sizes."""
    shapes: dict[tuple[object, ...], ConvShape] = {}
    for name in names:
        for workload in find(name):
            shape = workload.shape
            shapes.setdefault((*sizes_of(shape).values(), shape.stride_h, shape.in_h, shape.in_w), shape)
    return list(shapes.values())


def run(python: Path, chip: str, layers: Sequence[ConvShape], place: Path) -> Path:
    """SCALE-Sim's files on layers, in a folder."""
    place.mkdir(parents=True, exist_ok=True)
    for file, text in texts(load(chip), load_energy()).items():
        (place / file).write_text(text, encoding="utf-8")
    lines = [", ".join([re.sub(r"\W+", "_", shape.name), *map(str, topology(shape))]) + ",\n" for shape in layers]
    (place / "layers.csv").write_text(HEAD + "".join(lines), encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        layout = "name" + ",x" * 20 + ",\n" + ("layer" + ",1" * 20 + ",\n") * len(layers)
        (folder / "layout.csv").write_text(layout, encoding="utf-8")
        files = [str(path.absolute()) for path in (place / f"{chip}.cfg", place / "layers.csv", folder / "layout.csv")]
        subprocess.run([python, "-I", "-c", RUN, *files, "out"], check=True, cwd=folder, stdout=subprocess.DEVNULL)
        (place / chip).mkdir(exist_ok=True)
        for report in (CYCLES, BYTES):
            shutil.copyfile(folder / "out" / chip / report, place / chip / report)
    return place / "layers.csv"


def main() -> None:
    """Runs what the command line names."""
    parser = argparse.ArgumentParser(description="Run layers with SCALE-Sim on a core of a chip.")
    parser.add_argument("chip")
    parser.add_argument("workload", nargs="+")
    parser.add_argument("--out", type=Path, default=Path("mappings"))
    parser.add_argument("--name", help="of the folder; otherwise that of the first workload")
    options = parser.parse_args()
    python = install(print)
    title = options.name or re.sub(r"[^\w.-]+", "_", options.workload[0])
    print(run(python, options.chip, distinct(options.workload), options.out / options.chip / title))


if __name__ == "__main__":
    main()
