"""Maps layers with Stream (PyPI: stream-dse, in an environment of its own) onto chips of Meshloom.

    python scripts/stream_mappings.py --out examples/mappings/stream quad8 resnet8/conv3_1_2
    python scripts/stream_mappings.py quad8 resnet8/conv2_1_1+resnet8/conv2_1_2

Layers that `+` joins are a network, each reads what the one before it makes, and Stream fuses them. For each layer or
network `OUT/CHIP/LAYER/` has what Stream wrote, unchanged: `mapping.yaml`, under `allocation` its report of
cycles and, with `--trace`, when it planned what. `--env`: the environment, made
if it is not there yet (versions in stream_requirements.txt); `--python`: what makes it, 3.12 or later.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from math import prod
from pathlib import Path

from meshloom.hw.spec.config import load
from meshloom.sched.workload.catalog import find
from meshloom.sched.workload.layer_chain import JOIN
from meshloom.sched.workload.layers import ConvShape
from meshloom.tb.exchange.stream import REPORT
from meshloom.tb.exchange.stream_chip import texts
from meshloom.tb.results.energy import load as load_energy

PINS = Path(__file__).with_name("stream_requirements.txt")
OLDEST = (3, 12)
#: Runs inside the environment: hardware, workload, folder.
SEARCH = """
import sys
from stream.api import SolveOptions, evaluate_mapping
hardware, workload, folder = sys.argv[1:]
evaluate_mapping(hardware, workload, folder, options=SolveOptions(time_limit_s=60))
"""
TRACE = Path("allocation", "traces", "steady_state_trace_compact.json")


def workload(shapes: Sequence[ConvShape], path: Path) -> None:
    """Writes layers as a network of a Conv each; Stream reads the sizes of their weights, not the weights."""
    import onnx
    from onnx import TensorProto, helper

    nodes, weights = [], []
    several = len(shapes) > 1
    for number, shape in enumerate(shapes):
        own = str(number) if several else ""
        sizes = list(shape.w_shape)
        weights.append(helper.make_tensor(f"w{own}", TensorProto.INT8, sizes, bytes(prod(sizes)), raw=True))
        node = helper.make_node(
            "Conv",
            [f"y{number - 1}" if number else "x", f"w{own}"],
            ["y" if number == len(shapes) - 1 else f"y{own}"],
            name=f"conv{own}",
            kernel_shape=sizes[2:],
            pads=[shape.pad_top, shape.pad_left, shape.pad_bottom, shape.pad_right],
            strides=[shape.stride_h, shape.stride_w],
            dilations=[shape.dilation] * 2,
            group=1,
        )
        nodes.append(node)
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.INT8, list(size))
        for name, size in (("x", shapes[0].x_shape), ("y", shapes[-1].y_shape))
    )
    graph = helper.make_graph(nodes, "layers" if several else "layer", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)


def environment(folder: Path, base: str) -> Path:
    """The interpreter of Stream's environment."""
    python = folder / "bin" / "python"
    if not python.is_file():
        subprocess.run([base, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", PINS], check=True)
    return python.absolute()


def search(python: Path, chip: str, layer: str, out: Path, trace: bool) -> Path:
    """Stream's files on a layer, or on layers in a row."""
    shapes: list[ConvShape] = []
    for part in layer.split(JOIN):
        (one,) = find(part)
        shapes.append(one.shape)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in texts(load(chip), load_energy()).items():
            (folder / file).write_text(text, encoding="utf-8")
        workload(shapes, folder / "layer.onnx")
        command = [python, "-c", SEARCH, f"{chip}.stream.yaml", "layer.onnx", "out"]
        subprocess.run(command, check=True, cwd=folder, stderr=subprocess.DEVNULL)
        place = out / chip / re.sub(r"[^\w.-]+", "_", layer)
        for file in (Path("mapping.yaml"), REPORT, *([TRACE] if trace else [])):
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / "out" / "group_0" / file, place / file)
    return place / "mapping.yaml"


def main() -> None:
    """Maps what the command line names."""
    parser = argparse.ArgumentParser(description="Map layers onto a chip with Stream.")
    parser.add_argument("chip")
    parser.add_argument("layer", nargs="+")
    parser.add_argument("--out", type=Path, default=Path("mappings"))
    parser.add_argument("--env", type=Path, default=Path("sim_build/stream"))
    parser.add_argument("--trace", action="store_true")
    newer = sys.executable if sys.version_info >= OLDEST else "python3.12"
    parser.add_argument("--python", default=newer)
    options = parser.parse_args()
    python = environment(options.env, options.python)
    for layer in options.layer:
        print(search(python, options.chip, layer, options.out, options.trace))


if __name__ == "__main__":
    main()
