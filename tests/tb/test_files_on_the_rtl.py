"""Files of users on the RTL, from the command line to the row: integer operators, masked attention, a detector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from meshloom.hw.spec.config import load
from meshloom.sched.workload.onnx.quantise import quantise_with_report
from meshloom.tb.build.builder import build
from meshloom.tb.cli.main import app
from meshloom.tb.devices.simulated import SimulatedDevice
from meshloom.tb.inputs.pictures import quantise_input
from meshloom.tb.inputs.sources import Feed
from meshloom.tb.results.schema import Row, Status
from meshloom.tb.results.schema import load as load_results
from meshloom.tb.runs import network

from ..sched.float_models import FloatModel, decibels, run_float
from ..sched.qdq_files import QdqFile
from ..sched.workload.onnx.test_attention import attention, encoder
from ..sched.workload.onnx.test_contributed import fused
from ..sched.workload.onnx.test_dequantised import product
from ..sched.workload.onnx.test_settling import detector as open_detector
from .test_arrays import two_inputs
from .test_sources import detector_file

CHIP = "tiny"


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result


def passed(*arguments: str) -> Row:
    """The row of a run that passes, to the cycle."""
    invoke("run", *arguments, "--chip", CHIP, "--no-artefacts", "--json", "out.json")
    (row,) = load_results(Path("out.json")).rows
    assert (row.status, row.mismatches, row.rtl_cycles) == (Status.PASSED, 0, row.model_cycles)
    return row


def test_integer_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A QLinearConv whose zero points are not in the middle: `check` says what it becomes, `run` how near that is."""
    monkeypatch.chdir(tmp_path)
    onnx.save(product((0.02, 101), (0.011, 0), (0.3, 140)), "q.onnx")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (6, 6, 3)).astype(np.uint8)).save("p.png")
    shown = " ".join(invoke("check", "q.onnx").output.split())
    assert "q.onnx: 1 nodes can run as 1 layers (1 conv)" in shown
    assert "8 bits, with the chip's scales nearest to its own" in shown
    row = passed("q.onnx", "--input", "p.png")
    assert row.network is not None
    assert any("at most" in note for note in row.network.notes), row.network.notes
    (output,) = row.network.outputs
    assert output.snr_db is not None
    assert output.snr_db > 30


def test_bytes_of_a_quantised_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """uint8 in a file of opset 13, with zero points by channel and biases of 32 bits: its own array, as it is."""
    monkeypatch.chdir(tmp_path)
    file = QdqFile(opset=13, bytes_in=True, bytes_out=True, per_channel=True, zeros=True)
    onnx.save(file.build(), "q.onnx")
    np.save("x.npy", file.x())
    row = passed("q.onnx", "--input", "x.npy")
    assert row.network is not None
    (output,) = row.network.outputs
    assert output.snr_db is not None
    assert output.snr_db > 20


@pytest.mark.slow
def test_two_inputs_and_a_rank_of_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    first, second = (random.normal(0, 1, (1, 3, 8, 8)).astype(np.float32) for _ in range(2))
    np.savez("xz.npz", x=first, z=second)
    passed(two_inputs(tmp_path).name, "--input", "xz.npz")
    m = FloatModel((1, 5, 16))
    onnx.save(m.build(m.node("Conv", ["x", m.normal(4, 5, 3)], "y")), "c.onnx")
    np.save("c.npy", m.data(1)[0])
    passed("c.onnx", "--input", "c.npy")


def test_a_detector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = detector_file(tmp_path, named=True)
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)).save("p.png")
    row = passed(path.name, "--input", "p.png", "--min-score", "0.05")
    assert row.network is not None
    figures = row.network.detector
    assert figures is not None
    assert figures.alike > 0.8 * len(figures.exact)
    assert Path(figures.picture or "").suffix == ".png"
    assert Path(figures.picture or "").is_file()
    assert row.network.answer.split()[1].strip(",") in ("cat", "dog")


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["infinite", "where", "slopes"])
def test_masked_attention(mask: str) -> None:
    """Causal masks and additive ones, two heads of 6: what a mask takes out has no share."""
    m = FloatModel((1, 7, 12), opset=17)
    attention(m, "x", 7, 12, 2, mask)
    on_the_rtl(m, "attended", CHIP, 2)


@pytest.mark.slow
def test_what_an_optimiser_of_transformers_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the file to the RTL: normalised sums and biased activations in one node each."""
    monkeypatch.chdir(tmp_path)
    onnx.save(fused(17), "fused.onnx")
    np.savez("x.npz", x=encoder().data(1)[0])
    row = passed("fused.onnx", "--input", "x.npz")
    assert row.network is not None
    assert row.bytes_checked > 1000


def on_the_rtl(m: FloatModel, output: str, name: str, count: int = 1) -> None:
    """Every tensor of a model on a chip, byte for byte and to the cycle."""
    report, chip, data = quantise_with_report(m.build(output), m.data()), load(name), m.data(count)
    prepared_network = network.prepare(report.graph, chip)
    (value,) = report.graph.inputs
    feeds = [Feed("noise", {value.name: quantise_input(report.sources["x"].value(x), value)}) for x in data]
    jobs = [network.job(prepared_network, feed.arrays, chip, 4, 500_000) for feed in feeds]
    for feed, run in zip(feeds, SimulatedDevice(build(chip, "verilator")).run(jobs), strict=True):
        row = network.row(prepared_network, "model", feed, run, chip)
        assert (row.status, row.reason, row.mismatches) == (Status.PASSED, "", 0)
        assert row.rtl_cycles == row.model_cycles > 0
        assert row.network is not None
        placed = {"concat", "paste"}  # whose operands are checked where they lie
        computed = sum(layer.kind not in placed for layer in report.graph.layers)
        assert row.network.tensors_checked == computed


def test_a_stride_beyond_an_instruction() -> None:
    """A patch embedding: 8x9 patches, next to each other."""
    m = FloatModel((1, 3, 16, 18))
    m.conv("x", "y", (4, 3, 8, 9), strides=[8, 9])
    on_the_rtl(m, "y", CHIP)


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["tiny", "quad16"])
@pytest.mark.parametrize(
    ("shape", "operator", "attributes"),
    [
        ((3, 64, 64), "Conv", {"kernel_shape": [32, 32], "strides": [32, 32]}),
        ((3, 40, 20), "Conv", {"kernel_shape": [15, 3], "strides": [13, 1], "pads": [3, 1, 2, 1]}),
        ((3, 24, 24), "Conv", {"kernel_shape": [3, 3], "strides": [2, 2], "dilations": [9, 9], "pads": [9] * 4}),
        ((9, 24, 24), "Conv", {"kernel_shape": [8, 8], "strides": [8, 8], "group": 9}),
        ((3, 36, 9), "Conv", {"kernel_shape": [33, 3], "pads": [16, 1, 16, 1], "group": 3}),
        ((5, 28, 30), "MaxPool", {"kernel_shape": [9, 3], "strides": [9, 10], "pads": [4, 0, 4, 1]}),
        ((3, 20, 20), "MaxPool", {"kernel_shape": [2, 2], "strides": [1, 2], "dilations": [8, 8]}),
        ((5, 24, 24), "AveragePool", {"kernel_shape": [8, 8], "strides": [8, 8]}),
        ((3, 37, 37), "GlobalAveragePool", {}),
    ],
)
def test_windows_beyond_an_instruction(
    shape: tuple[int, int, int], operator: str, attributes: dict[str, Any], chip: str
) -> None:
    m, group = FloatModel((1, *shape), opset=19), attributes.get("group", 1)
    weights: list[str] = []
    if operator == "Conv":
        outputs = shape[0] if group > 1 else 4
        weights = [m.normal(outputs, shape[0] // group, *attributes["kernel_shape"])]
    m.node(operator, ["x", *weights], "y", **attributes)
    on_the_rtl(m, "y", chip)


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["tiny", "quad16"])
def test_a_detector_with_open_sizes(chip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes, strides and anchors are computed in the file; what the chip and the host make is what the file makes."""
    monkeypatch.chdir(tmp_path)
    model = open_detector().build("y")
    onnx.save(model, "net.onnx")
    x = np.random.default_rng(1).normal(0, 1, (1, 3, 16, 24)).astype(np.float32)
    np.save("x.npy", x)
    invoke("check", "net.onnx", "--bind", "height=16", "--bind", "width=24")
    bind = ("--bind", "height=16", "--bind", "width=24")
    invoke("run", "net.onnx", "--input", "x.npy", "--chip", chip, *bind, "--no-artefacts", "--json", "out.json")
    (row,) = load_results(Path("out.json")).rows
    assert (row.status, row.mismatches, row.rtl_cycles) == (Status.PASSED, 0, row.model_cycles)
    assert row.network is not None
    saved = {output.name: np.load(output.file) for output in row.network.outputs if output.file}
    exact = run_float(model, x)["y"]
    assert saved["y"].shape == exact.shape
    assert decibels(exact, saved["y"]) > 30
