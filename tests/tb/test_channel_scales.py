"""Networks with a multiplier for each channel on the RTL: every byte, and every cycle of the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.workload.graph import Graph, Value
from meshloom.tb.build.builder import build
from meshloom.tb.devices.simulated import SimulatedDevice
from meshloom.tb.inputs.sources import Feed, NetworkSource, described
from meshloom.tb.results.schema import Settings, Status
from meshloom.tb.runs import network, runner
from meshloom.tb.runs.batch import simulate
from meshloom.tb.runs.kinds.networks import NetworkRun

from ..sched.network_graphs import Grower, every_kind, inputs_of, square
from ..sched.random_graphs import by_channel
from ..sched.workload.onnx.test_pairs import statically_quantised


def small() -> Graph:
    """A head of five channels on four lanes behind a depthwise layer; sums of the last in parts."""
    g = Grower(2, Value("x", 6, 9, 9, 0.5))
    g.conv("a", "x", 7, square(3, 1, 1), relu=True)
    g.depthwise("b", "a", square(3, 2, 1), clamp=90)
    g.conv("wide", "b", 40)
    g.conv("head", "wide", 5, square(5))
    return g.graph("head", "head")


@pytest.mark.parametrize("graph", [small(), every_kind(14, 9)], ids=["a head", "every kind of layer"])
def test_networks_on_the_rtl(graph: Graph) -> None:
    graph, config = by_channel(graph), load("tiny")
    prepared_network = network.prepare(graph, config)
    ours = [
        op
        for op in prepared_network.network_schedule.schedule.operations
        if getattr(op, "fields", {}).get("by_channel")
    ]
    assert ours
    item = NetworkRun(prepared_network, graph.name, Feed("noise", inputs_of(graph, 5)))
    settings = Settings(code="", scheduler="loop_order", simulator_version="")
    device = SimulatedDevice(build(config, "verilator"))
    (row,) = simulate([item], device, settings, lambda event: None)
    assert (row.status, row.mismatches) == (Status.PASSED, 0)
    assert row.rtl_cycles == prepared_network.timeline.cycles


def test_a_quantised_file_with_a_scale_for_each_filter(tmp_path: Path) -> None:
    """From the file to the RTL: the scheduler and the chip decide that its scales are kept."""
    model, data = statically_quantised(tmp_path, True, True)
    path = tmp_path / "qdq.onnx"
    onnx.save(model, path)
    inputs = tuple(tmp_path / f"x{index}.npy" for index in range(2))
    for name, array in zip(inputs, data, strict=False):
        np.save(name, array)
    rows = runner.run([NetworkSource(str(path), inputs[:1], inputs)], load("tiny"), "loop_order", lambda event: None)
    (row,) = list(rows)
    assert (row.status, row.mismatches) == (Status.PASSED, 0)
    assert row.rtl_cycles == row.model_cycles
    assert row.network is not None
    assert not any("other scales than in the file" in note for note in row.network.notes)
    assert "8 bits" in described(path, {}, by_channel=True)[0]
