"""Files of users on the RTL, from the command line to the row: integer operators, masked attention, a detector."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from meshloom.hw.config import load
from meshloom.sched.workload.onnx.quantise import quantise_with_report
from meshloom.tb.build.builder import build
from meshloom.tb.cli.main import app
from meshloom.tb.devices.simulated import SimulatedDevice
from meshloom.tb.inputs.pictures import quantise_input
from meshloom.tb.inputs.sources import Feed
from meshloom.tb.results.schema import Row, Status
from meshloom.tb.results.schema import load as load_results
from meshloom.tb.runs import network

from ..sched.float_models import FloatModel
from ..sched.qdq_files import QdqFile
from ..sched.test_onnx_attention import attention
from ..sched.test_onnx_dequantised import product
from .test_arrays import two_inputs
from .test_sources import detector_file

CHIP = "tiny"


def invoke(*arguments: str) -> Result:
    found = CliRunner().invoke(app, list(arguments))
    assert found.exit_code == 0, found.output
    return found


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
    np.savez("xz.npz", **{name: random.normal(0, 1, (1, 3, 8, 8)).astype(np.float32) for name in ("x", "z")})
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
    found = row.network.detector
    assert found is not None
    assert found.alike > 0.8 * len(found.exact)
    assert Path(found.picture or "").suffix == ".png"
    assert Path(found.picture or "").is_file()
    assert row.network.answer.split()[1].strip(",") in ("cat", "dog")


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["infinite", "where", "slopes"])
def test_masked_attention(mask: str) -> None:
    """Causal masks and additive ones, two heads of 6: what a mask takes out has no share."""
    m = FloatModel((1, 7, 12), opset=17)
    attention(m, "x", 7, 12, 2, mask)
    report, chip, data = quantise_with_report(m.build("attended"), m.data()), load(CHIP), m.data(2)
    made = network.prepare(report.graph, chip)
    (value,) = report.graph.inputs
    feeds = [Feed("noise", {value.name: quantise_input(report.sources["x"].value(x), value)}) for x in data]
    jobs = [network.job(made, feed.arrays, chip, 4, 20_000) for feed in feeds]
    for feed, run in zip(feeds, SimulatedDevice(build(chip, "verilator")).run(jobs), strict=True):
        row = network.row(made, "attention", feed, run, chip)
        assert (row.status, row.reason, row.mismatches) == (Status.PASSED, "", 0)
        assert row.rtl_cycles == row.model_cycles > 0
        assert row.network is not None
        assert row.network.tensors_checked == len(report.graph.layers)
