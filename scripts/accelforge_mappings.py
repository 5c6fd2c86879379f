"""Maps layers with AccelForge (PyPI: accelforge, in an environment of its own) onto chips of Meshloom.

    python scripts/accelforge_mappings.py --out examples/mappings/accelforge mono16 resnet8/conv3_1_2

For each layer `OUT/CHIP/LAYER.yaml` has its workload, and the mapping of least latency in the form in which AccelForge
reads mappings (its own writer fails in 1.0.467); `LAYER.totals.json` is what its mapper says of it. `--env`: the
environment, made if it is not there yet (versions in accelforge_requirements.txt); `--python`: what makes
it, 3.12 or later.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from meshloom.hw.spec.config import load
from meshloom.sched.workload.catalog import find
from meshloom.sched.workload.layers import ConvShape
from meshloom.tb.exchange.accelforge_chip import texts
from meshloom.tb.results.energy import load as load_energy

PINS = Path(__file__).with_name("accelforge_requirements.txt")
OLDEST = (3, 12)
#: Runs inside the environment: architecture, workload, results.
SEARCH = """
import json, sys
import accelforge as af
from accelforge.mapper.FFM.main import map_workload_to_arch
arch, workload, mapping, totals = sys.argv[1:]
af.set_n_parallel_jobs(1)
spec = af.Spec.from_yaml(arch, workload)
spec.mapper.metrics = af.mapper.Metrics.LATENCY
best = map_workload_to_arch(spec, eval_in_detail=False, print_progress=False).data.iloc[0]
fields = {"Storage": ("tensors", "component"), "Temporal": ("rank_variable", "tile_shape"),
          "Spatial": ("rank_variable", "tile_shape", "name", "component"), "Compute": ("einsum", "component")}
lines = ["mapping:", "  nodes:"]
for node in best["Total<SEP>mapping"]().nodes:
    names = fields.get(type(node).__name__, ())
    if names:
        values = {name: getattr(node, name) for name in names}
        if "tensors" in values:
            values["tensors"] = f"[{', '.join(sorted(map(str, values['tensors'])))}]"
        texts = [f"{name}: {value}" for name, value in values.items()]
        lines.append(f"  - !{type(node).__name__} {{{', '.join(texts)}}}")
open(mapping, "w").write("\\n".join(lines) + "\\n")
json.dump({name: float(best[name]) for name in best.index if name == "Total<SEP>latency"}, open(totals, "w"))
"""


def workload(shape: ConvShape) -> str:
    """A layer as AccelForge's workload file has it."""
    step = {"p": shape.stride_h, "q": shape.stride_w}
    tap = f"{shape.dilation} * " if shape.dilation > 1 else ""
    rows, columns = (
        f"{axis}: {f'{step[out]} * ' if step[out] > 1 else ''}{out} + {tap}{kernel}"
        for axis, out, kernel in (("H", "p", "r"), ("W", "q", "s"))
    )
    sizes = {
        "n": shape.batch,
        "p": shape.out_h,
        "q": shape.out_w,
        "c": shape.in_channels,
        "m": shape.out_channels,
        "r": shape.kernel_h,
        "s": shape.kernel_w,
    }
    bounds = "".join(f"    - 0 <= {name} < {size}\n" for name, size in sizes.items())
    return (
        "workload:\n"
        "  bits_per_value: {All: 8}\n"
        "  einsums:\n"
        f'  - einsum: "O[n, p, q, m] = I[n, c, {rows}, {columns}] * W[r, s, c, m]"\n'
        f"    iteration_space_shape:\n{bounds}"
        "    renames: {output: O, input: I, weight: W}\n"
    )


def environment(folder: Path, base: str) -> Path:
    """The interpreter of AccelForge's environment."""
    python = folder / "bin" / "python"
    if not python.is_file():
        subprocess.run([base, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", PINS], check=True)
    return python.absolute()


def search(python: Path, chip: str, layer: str, out: Path) -> Path:
    """AccelForge's mapping of a layer."""
    (one,) = find(layer)
    text = workload(one.shape)
    place = out / chip / (re.sub(r"[^\w.-]+", "_", layer) + ".yaml")
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, written in texts(load(chip), load_energy()).items():
            (folder / file).write_text(written, encoding="utf-8")
        (folder / "layer.yaml").write_text(text, encoding="utf-8")
        command = [python, "-c", SEARCH, f"{chip}.accelforge.yaml", "layer.yaml", "mapping.yaml", "totals.json"]
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        place.write_text(text + (folder / "mapping.yaml").read_text(encoding="utf-8"), encoding="utf-8")
        shutil.copyfile(folder / "totals.json", place.with_suffix(".totals.json"))
    return place


def main() -> None:
    """Maps what the command line names."""
    parser = argparse.ArgumentParser(description="Map layers onto a chip with AccelForge.")
    parser.add_argument("chip")
    parser.add_argument("layer", nargs="+")
    parser.add_argument("--out", type=Path, default=Path("mappings"))
    parser.add_argument("--env", type=Path, default=Path("sim_build/accelforge"))
    newer = sys.executable if sys.version_info >= OLDEST else "python3.12"
    parser.add_argument("--python", default=newer)
    options = parser.parse_args()
    python = environment(options.env, options.python)
    for layer in options.layer:
        print(search(python, options.chip, layer, options.out))


if __name__ == "__main__":
    main()
