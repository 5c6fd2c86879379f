"""Refusals that no test of their unit provokes on its way, each with what it names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.contracts import SEMAPHORE_MAX
from meshloom.hw.spec.isa import Opcode, Unit
from meshloom.sched.lowering.templates.network import ServedNetwork
from meshloom.sched.lowering.timed.compile import compile_ahead
from meshloom.sched.program.program import Instruction, place
from meshloom.sched.routing.hardware import DttError, Hardware
from meshloom.sched.routing.mesh import mesh_of
from meshloom.sched.schedulers.registry import find as scheduler
from meshloom.sched.workload import trainable, zoo
from meshloom.sched.workload.arrivals import read_trace
from meshloom.sched.workload.catalog import find
from meshloom.sched.workload.graph import Graph, Layer, PastePlace, Value
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.onnx.errors import OnnxError
from meshloom.sched.workload.onnx.metadata import Metadata
from meshloom.sched.workload.scenario import ScenarioError
from meshloom.sched.workload.stages import cut


def changed(name: str, group: str, **values: object) -> ChipConfig:
    chip = load(name).model_dump()
    return ChipConfig.model_validate(chip | {"name": "changed", group: chip[group] | values})


def test_programs_ahead_of_time_need_arrivals() -> None:
    chip = changed("ahead8", "noc", arrivals=False)
    (workload,) = find("gemm:4x4x4")
    made = scheduler("loop_order")(workload.shape, chip, 1 << 15)
    with pytest.raises(DttError, match=r"chip changed: packets record no arrivals.* set noc\.arrivals = true"):
        compile_ahead(made, chip)


def test_channels_that_wait_for_whole_packets_are_not_planned() -> None:
    chip = changed("ahead8", "dram", whole_packets=True)
    with pytest.raises(DttError, match=r"chip changed: dram\.whole_packets is for channels slower than a link"):
        mesh_of(chip)


def test_a_wire_leads_somewhere() -> None:
    hardware = Hardware()
    hardware.node(4, "A")
    with pytest.raises(DttError, match="wire A -> A leads nowhere; waiting wires are there by themselves"):
        hardware.wire("A", "A", 1, 1, 1)


@pytest.mark.parametrize("streams", [SEMAPHORE_MAX - 1, SEMAPHORE_MAX, SEMAPHORE_MAX + 1])
def test_as_many_streams_as_a_semaphore_counts_and_more(streams: int) -> None:
    codes = {(tile, Unit.MOVER): (Instruction(Opcode.SYNC, {"n": 1}),) for tile in range(streams)}
    placed, boot = place(codes, {}, load("tiny"))
    assert len(placed) == streams == sum(one.opcode is Opcode.FETCH for one in boot.instructions)


PASTED = Graph(
    "net",
    (Value("a", 4, 2, 4), Value("b", 4, 2, 4)),
    (Layer("paste", "y", ("a", "b"), places=(PastePlace(0, 0, 1, 1, 2, 4), PastePlace(2, 0, 1, 1, 2, 4))),),
    ("y",),
)


def test_maps_put_together_are_not_for_every_scheduler() -> None:
    with pytest.raises(WorkloadError, match=r"network net: layer y \(paste\): this scheduler places whole maps only"):
        cut(PASTED, load("quad8"))


def test_layers_that_have_no_program_to_serve() -> None:
    table = Layer("normalise", "y", ("a",), by="max", scale=1)
    graph = Graph("net", (Value("a", 4, 4, 4),), (table,), ("y",))
    with pytest.raises(WorkloadError, match=r"network net: layer y .* has no program to serve; there are programs for"):
        ServedNetwork(graph, load("lp9"), 1)


def test_only_some_networks_can_be_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    w, bias = np.ones((3, 4, 1, 1), np.int8), np.zeros(3, np.int32)
    conv = Layer("conv", "y", ("a",), scale=9, w=w, bias=bias)
    monkeypatch.setattr(zoo, "load", lambda name: Graph(name, (Value("a", 4, 1, 1, 1.0),), (conv,), ("y",)))
    with pytest.raises(WorkloadError, match="network resnet8 has no examples to train with; there are some for"):
        trainable.load("resnet8")
    with pytest.raises(WorkloadError, match="unknown network 'digit'"):
        trainable.load("digit")


def test_a_trace_is_a_csv_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(b"cycle,network\n\xff\xfe")
    with pytest.raises(ScenarioError, match=r"trace\.csv: is no CSV file: "):
        read_trace(path)
    with pytest.raises(ScenarioError, match=r"none\.csv: cannot be read: "):
        read_trace(tmp_path / "none.csv")


def test_metadata_that_make_no_sense_name_their_place() -> None:
    with pytest.raises(OnnxError, match=r"m: metadata 'meshloom': .*; write the model again"):
        Metadata.parse('{"version": 1, "name": "n", "real": 3}', "m")
    with pytest.raises(OnnxError, match="write the model again"):
        Metadata.parse("[", "m")
