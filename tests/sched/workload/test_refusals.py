"""Refusals that no test of their unit provokes on its way, each with what it names."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.contracts import SEMAPHORE_MAX
from meshloom.hw.spec.isa import Opcode, Unit
from meshloom.sched.lowering.templates.network import ServedNetwork
from meshloom.sched.lowering.timed.compile import compile_ahead
from meshloom.sched.lowering.timed.orders import emit
from meshloom.sched.lowering.timed.timetable import CodeTimes, Timetabler
from meshloom.sched.mapping.emit.task import LayerTask, TaskError
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.mapping.tiling.tiles import MTile
from meshloom.sched.model import native
from meshloom.sched.papers.dtt.routing import FreeRouteSearch
from meshloom.sched.papers.klotski import ilp
from meshloom.sched.papers.klotski.dag import GraphError
from meshloom.sched.papers.klotski.work import stages_of, works
from meshloom.sched.program.program import Instruction, place
from meshloom.sched.routing.hardware import DttError, Hardware
from meshloom.sched.routing.mesh import mesh_of
from meshloom.sched.schedulers.registry import find as scheduler
from meshloom.sched.workload import trainable, zoo
from meshloom.sched.workload.arrivals import read_trace
from meshloom.sched.workload.catalog import find
from meshloom.sched.workload.graph import Graph, Layer, PastePlace, Value, Window
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
    result = scheduler("loop_order")(workload.shape, chip, 1 << 15)
    with pytest.raises(DttError, match=r"chip changed: packets record no arrivals.* set noc\.arrivals = true"):
        compile_ahead(result, chip)


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


def test_layers_that_cores_to_serve_cannot_compute() -> None:
    whole = Layer("normalise", "y", ("a",), by="max", scale=1)
    graph = Graph("net", (Value("a", 4, 4, 4),), (whole,), ("y",))
    with pytest.raises(DoesNotFit, match="layer y normalises maps, and cores of lp9 cannot; take another chip"):
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


# -- what earlier checks refuse on every way from the command line ----------------------------------------------------


def one_layer(name: str, chip: str) -> LayerTask:
    (workload,) = find(name)
    return LayerTask(workload.shape, load(chip), 1 << 15)


def test_a_gemm_counts_no_further_than_its_fields() -> None:
    task = one_layer("gemm:70000x8x8", "quad8")
    with pytest.raises(TaskError, match=r"a GEMM has 16384 pixels, at most 16383 are possible; cut the tile"):
        task.gemm(task.cores[0], MTile(0, 0, 16384, 0, 1), (0, 1), (0, 1), a=0, b=0, bias=0, sums=0, out=0)


def test_only_a_chip_with_a_controller_times_anything() -> None:
    schedule = scheduler("loop_order")(find("gemm:4x4x4")[0].shape, load("tiny"), 1 << 15)
    with pytest.raises(DttError, match=r'chip tiny has no "dtt" tile to time anything; add one to its floorplan'):
        Timetabler(schedule, load("tiny"), CodeTimes(0, 0, 0))


def test_tags_number_no_more_operations_than_they_have_values() -> None:
    planner: Any = SimpleNamespace(chip=load("ahead8"))
    table: Any = SimpleNamespace(timed=[None] * (1 << 15))
    with pytest.raises(DttError, match="32768 operations, but tags for only 32768: plan fewer at once"):
        emit(planner, table, 0)


def test_data_that_lie_nowhere_have_no_route() -> None:
    hardware = Hardware()
    hardware.node(4, "A")
    with pytest.raises(DttError, match=r"operation \?: datum 3 is nowhere; load it, or compute it first"):
        FreeRouteSearch(hardware).route(3, "A", 5)


def test_a_program_that_no_numbers_solve() -> None:
    program = ilp.Model()
    x = program.variable(1)
    program.row([(x, 1.0)], 2.0, 3.0)
    with pytest.raises(GraphError, match=r"HiGHS found nothing in 10 nodes: "):
        program.solve(10)


def test_micro_ops_are_of_layers_that_stand_alone() -> None:
    w, bias = np.ones((4, 4, 1, 1), np.int8), np.zeros(4, np.int32)
    conv = Layer("conv", "c", ("a",), scale=9, w=w, bias=bias)
    graph = Graph("net", (Value("a", 4, 4, 4),), (conv, Layer("max_pool", "y", ("c",), Window(2, 2, 2, 2))), ("y",))
    chip = load("quad8")
    assert [work.whole.planes for work in works(stages_of(graph, chip), chip)] == [1, 1]
    with pytest.raises(DoesNotFit, match=r"layer .*: another layer is fused with it; cut the network with `stages_of`"):
        works(cut(graph, chip), chip)


# -- what is missing on the machine -----------------------------------------------------------------------------------


def test_the_model_is_compiled_with_the_headers_of_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(native.NativeError, match=r"the headers of Python are missing; install them .*python3-dev"):
        native._compiler()


def test_sources_that_change_while_they_are_compiled(tmp_path: Path) -> None:
    with pytest.raises(native.NativeError, match="its sources have just been changed; run the command again"):
        native._compile(native.MODEL, "another digest", tmp_path, tmp_path / "log")
    assert not list(tmp_path.iterdir())
