"""Maps layers with ZigZag (PyPI: zigzag-dse, in an environment of its own) onto chips of Meshloom.

    python scripts/zigzag.py --out examples/mappings/zigzag mono16 gemm:64x64x64 resnet8/conv2_1_1

For each layer `OUT/CHIP/LAYER_complete.json` is what ZigZag wrote, unchanged. `--env`: the environment, made if it is
not there yet (Python 3.11 or later; versions in zigzag_requirements.txt).
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from meshloom.hw.spec.config import load
from meshloom.sched.workload.catalog import find
from meshloom.sched.workload.layers import ConvShape
from meshloom.tb.exchange.zigzag_chip import texts
from meshloom.tb.results.energy import load as load_energy

PINS = Path(__file__).with_name("zigzag_requirements.txt")
#: Runs inside the environment: workload, hardware, mapping, folder. The search is exhaustive for so many loops.
SEARCH = """
import sys
from zigzag.api import get_hardware_performance_zigzag as search
workload, hardware, mapping, folder = sys.argv[1:]
search(workload, hardware, mapping, opt="latency", dump_folder=folder, lpf_limit=6, loma_show_progress_bar=False)
"""


def file_name(layer: str) -> str:
    """A layer's name in names of files."""
    return re.sub(r"[^\w.-]+", "_", layer)


def workload(shape: ConvShape, name: str) -> list[dict[str, Any]]:
    """A layer as ZigZag's workload file has it."""
    return [
        {
            "id": 0,
            "name": name,
            "operator_type": "Conv",
            "equation": "O[b][k][oy][ox]+=W[k][c][fy][fx]*I[b][c][iy][ix]",
            "dimension_relations": [
                f"ix={shape.stride_w}*ox+{shape.dilation}*fx",
                f"iy={shape.stride_h}*oy+{shape.dilation}*fy",
            ],
            "loop_dims": ["B", "K", "C", "OY", "OX", "FY", "FX"],
            "loop_sizes": [
                shape.batch, shape.out_channels, shape.in_channels, shape.out_h, shape.out_w, shape.kernel_h,
                shape.kernel_w,
            ],
            "pr_loop_dims": ["IX", "IY"],
            "pr_loop_sizes": [shape.in_w, shape.in_h],
            "padding": [[shape.pad_left, shape.pad_right], [shape.pad_top, shape.pad_bottom]],
            "operand_precision": {"O": 32, "O_final": 8, "W": 8, "I": 8},
            "operand_source": {"I": 0, "W": 0},
        }
    ]  # fmt: skip


def environment(folder: Path) -> Path:
    """The interpreter of ZigZag's environment."""
    python = folder / "bin" / "python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", PINS], check=True)
    return python.absolute()


def search(python: Path, chip: str, layer: str, out: Path) -> Path:
    """ZigZag's file on a layer."""
    (one,) = find(layer)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in texts(load(chip), load_energy()).items():
            (folder / file).write_text(text, encoding="utf-8")
        title = file_name(layer)
        (folder / "layer.yaml").write_text(json.dumps(workload(one.shape, title)), encoding="utf-8")
        command = [python, "-c", SEARCH, "layer.yaml", f"{chip}.yaml", f"{chip}.mapping.yaml", "out"]
        subprocess.run(command, check=True, cwd=folder, stderr=subprocess.DEVNULL)
        place = out / chip / f"{title}_complete.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / "out" / place.name, place)
    return place


def main() -> None:
    """Maps what the command line names."""
    parser = argparse.ArgumentParser(description="Map layers onto a chip with ZigZag.")
    parser.add_argument("chip")
    parser.add_argument("layer", nargs="+")
    parser.add_argument("--out", type=Path, default=Path("mappings"))
    parser.add_argument("--env", type=Path, default=Path("sim_build/zigzag"))
    options = parser.parse_args()
    python = environment(options.env)
    for layer in options.layer:
        print(search(python, options.chip, layer, options.out))


if __name__ == "__main__":
    main()
