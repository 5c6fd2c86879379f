"""Groups that Stream has fused: tiles pass from core to core, every byte is right, and what cannot be is one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import yaml
from onnx import TensorProto, helper

from meshloom.hw.spec.config import load
from meshloom.hw.spec.isa import Region
from meshloom.sched.ir.functional import run
from meshloom.sched.ir.schedule import Gemm, Move
from meshloom.sched.schedulers.groups.flow import GroupFlow
from meshloom.sched.schedulers.groups.schedule import schedule
from meshloom.sched.schedulers.nest.mapping import MappingError
from meshloom.sched.schedulers.network.scheduler import NetworkSchedule
from meshloom.sched.workload.layers import WorkloadError
from meshloom.tb.exchange.interface import ImportFileError
from meshloom.tb.inputs.golden.graph import golden_values
from meshloom.tb.results.schema import load as load_results
from meshloom.tb.runs.kinds.grouped import MappedNetwork, read

from ..command_line import invoke

FUSED = Path(__file__).parents[3] / "examples" / "mappings" / "stream" / "fused"
SMALL = FUSED / "tiny" / "conv_8x8x8-8_k3_p1_conv_8x8x8-8_k3_p1" / "mapping.yaml"
TWICE = "conv:8x8x8-8,k3,p1+conv:8x8x8-8,k3,p1"
STRIDED = "conv:8x8x8-16,k3,p1,relu+conv:8x8x16-8,k3,s2,p1"
CONV3 = FUSED / "quad8" / "resnet8_conv3_1_1_resnet8_conv3_1_2" / "mapping.yaml"
OUT, MAIN = Region.OUT << 24, Region.MAIN << 24
#: Cores, and what they divide (dimension: parts), of each layer.
Cores = Sequence[tuple[Sequence[int], Mapping[str, int]]]


def mapping(folder: Path, cores: Cores, tiles: Mapping[str, int], groups: Sequence[Sequence[int]] = ()) -> Path:
    """A mapping.yaml of layers conv0, conv1, ... `groups`: numbers of their layers (empty: one of all)."""
    layers = [
        {
            "name": f"conv{number}",
            "core_allocation": [list(own)],
            "inter_core_tiling": [[{"dim": dim, "split": split} for dim, split in parts.items()]] if parts else [],
        }
        for number, (own, parts) in enumerate(cores)
    ]
    fused = [
        {
            "name": f"group{index}",
            "layers": [f"conv{number}" for number in members],
            "intra_core_tiling": [
                {"dim": dim, "tile": size}
                for dim, size in tiles.items()
                if int(dim.partition(".")[0].removeprefix("conv")) in members
            ],
        }
        for index, members in enumerate(groups or [range(len(cores))])
    ]
    path = folder / "mapping.yaml"
    path.write_text(yaml.safe_dump({"layers": layers, "fused_groups": fused}, sort_keys=False), encoding="utf-8")
    return path


def is_right(source: MappedNetwork, result: NetworkSchedule, chip: str) -> bool:
    """Whether a schedule, executed in order, computes all outputs."""
    golden = golden_values(source.graph, dict(source.feed.arrays))
    arrays = run(result.schedule, load(chip), result.arrays(source.feed.arrays))
    return all(np.array_equal(result.output(name, arrays[name]), golden[name]) for name in source.graph.outputs)


def test_the_layers_of_a_group_share_its_loops() -> None:
    source = read("stream", CONV3, "resnet8/conv3_1_1+resnet8/conv3_1_2")
    (group,) = source.mapped.groups
    assert source.mapped.claim.cycles == 14923
    assert group.loops == 2
    loops = {name: [str(loop) for loop in each.mapping.loops[-2:]] for name, each in group.layers.items()}
    assert loops == {"conv3_1_1": ["K 4", "OX 2"], "conv3_1_2": ["C 4", "OX 2"]}, "what one makes, the other sums"
    assert [each.loops for each in group.layers.values()] == [(0, 1), (0, 1)]


def test_tiles_pass_from_core_to_core_when_they_are_there() -> None:
    source, chip = read("stream", CONV3, "resnet8/conv3_1_1+resnet8/conv3_1_2"), load("quad8")
    result = schedule(source.graph, chip, source.mapped)
    assert is_right(source, result, "quad8")
    operations, cores = result.schedule.operations, set(chip.cores)
    passed = [op for op in operations if isinstance(op, Move) and op.label.endswith("to conv3_1_2")]
    assert {op.src.tile for op in passed} == cores
    assert any(op.src.tile != op.dst.tile for op in passed), "rows that windows of another core reach"
    assert all(op.src.address & OUT == OUT and op.dst.address >> 24 == Region.MAIN for op in passed)
    stores = [op.label for op in operations if isinstance(op, Move) and op.dst.tile in chip.drams]
    assert stores
    assert all(label.startswith("conv3_1_2: y ") for label in stores), "what stays in the group does not go to DRAM"
    gemms = [op.label.partition(":")[0] for op in operations if isinstance(op, Gemm)]
    first, last = gemms.index("conv3_1_2"), len(gemms) - gemms[::-1].index("conv3_1_1")
    assert first < last, "the second layer begins before the first one has ended"


@pytest.mark.parametrize(
    ("workload", "cores", "tiles"),
    [
        (TWICE, [((0, 1), {"D6": 2}), ((2, 3), {"D6": 2})], {"conv0.D2": 2}),  # a pipeline; K of 4 is half a word
        ("conv:8x8x16-16,k3,p1+conv:8x8x16-16", [((0, 1), {"D6": 2}), ((3, 2), {"D2": 2})], {"conv1.D2": 2}),
        (STRIDED, [((0, 1), {"D6": 2}), ((1, 2), {"D2": 2})], {"conv1.D2": 1}),
        ("conv:8x8x8-8,k3,p1+conv:8x8x8-8,s2", [((0,), {}), ((3,), {})], {"conv0.D2": 4, "conv0.D1": 4}),
        ("conv:9x9x3-8,k3,p1+conv:9x9x8-12,k3,p1", [((0, 2), {"D2": 2}), ((2,), {})], {"conv1.D1": 3}),
        (f"{TWICE}+conv:8x8x8-24", [((0,), {}), ((1,), {}), ((2, 3, 0), {"D6": 3})], {"conv2.D2": 2}),
        ("gemm:32x16x24+gemm:32x8x16", [((0, 1), {"D1": 2}), ((2,), {})], {"conv1.D5": 8, "conv0.D1": 8}),
    ],
)  # fmt: skip
def test_groups_of_many_forms_compute_their_layers(
    tmp_path: Path, workload: str, cores: Cores, tiles: Mapping[str, int]
) -> None:
    source = read("stream", mapping(tmp_path, cores, tiles), workload)
    nearest = cores[0][1] == {"D6": 2} and workload == TWICE
    result = schedule(source.graph, load("quad8"), source.mapped, nearest=nearest)
    assert is_right(source, result, "quad8")
    assert result.schedule.claim is not None
    assert (result.schedule.claim.changes != ()) == nearest


def test_groups_follow_each_other_through_dram(tmp_path: Path) -> None:
    path = mapping(tmp_path, [((0,), {}), ((1,), {}), ((0,), {})], {"conv0.D2": 4, "conv2.D2": 2}, [[0, 1], [2]])
    source = read("stream", path, f"{TWICE}+conv:8x8x8-8")
    result = schedule(source.graph, load("quad8"), source.mapped)
    assert is_right(source, result, "quad8")
    assert result.spilled == ("layer1",)


def test_the_nearest_runs_layer_by_layer_and_says_so(tmp_path: Path) -> None:
    """Windows of two rows of tiles are begun before the first one is complete."""
    wide = "conv:32x32x8-128,k1+conv:32x32x128-8,k3,p1"
    source = read("stream", mapping(tmp_path, [((0,), {}), ((1,), {})], {"conv0.D1": 2, "conv0.D2": 2}), wide)
    chip = load("quad8")
    says = r"A of a quad8 core has room for \d+ input tiles of layer1 \(\d+ words each\), and \d+ are needed at a time"
    with pytest.raises(MappingError, match=rf"{says}; take smaller tiles, .*run it layer by layer \(--nearest\)$"):
        schedule(source.graph, chip, source.mapped)
    result = schedule(source.graph, chip, source.mapped, nearest=True)
    assert is_right(source, result, "quad8")
    assert result.schedule.claim is not None
    (change,) = result.schedule.claim.changes
    assert change.startswith("layers run one after the other, with the tensors between them in DRAM: A of a quad8 core")


def test_a_group_that_waits_for_another_names_its_first_layer() -> None:
    parts = []
    for number, name in enumerate(("early", "late")):
        part = MagicMock(core=number, next=0, inputs=[0])
        part.layer = SimpleNamespace(name=name, source="nobody", number=number, task=MagicMock())
        part.windows.all[0].missing = 1
        part.step.turn = ()
        parts.append(part)
    with pytest.raises(MappingError, match=r"^early waits for what no layer of its group makes; cut the group there$"):
        GroupFlow(parts[::-1]).run()


PLAIN: Cores = [((0,), {}), ((1,), {})]


@pytest.mark.parametrize(
    ("workload", "cores", "tiles", "groups", "says"),
    [
        (f"{TWICE}+conv:8x8x8-8", PLAIN, {}, (), r"maps 2 layers \(conv0, conv1\), the workload has 3 \(layer0, lay"),
        (TWICE, PLAIN, {"conv0.D2": 3}, (), r"tiles of 3 of conv0.D2 do not divide the 8 of a core"),
        (TWICE, PLAIN, {"conv0.D2": 4, "conv1.D2": 2}, (), r"make 4 iterations of a loop that another"),
        (TWICE, PLAIN, {}, [[0]], r"layer layer1 is in 0 of its fused_groups, it must be in one"),
        (TWICE, PLAIN, {}, [[1], [0]], r"layer1 comes before layer0, which it reads; put the groups in order"),
        ("conv:9x9x8-8,k2+conv:8x8x8-8,k2", PLAIN, {"conv0.D2": 4}, (), r"2 tiles of OY of conv0 do not divide the 7"),
        (TWICE, [((0,), {}), ((9,), {})], {}, (), r"core 9 is used, quad8 has 0 to 3; name cores of the chip"),
        ("conv:8x8x3-8,k3,p1+conv:8x8x8-8", PLAIN, {"conv0.D3": 1}, (), r"layer0 has 3 input channels, whose w"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(
    tmp_path: Path, workload: str, cores: Cores, tiles: Mapping[str, int], groups: Sequence[Sequence[int]], says: str
) -> None:
    path = mapping(tmp_path, cores, tiles, groups)

    def planned() -> NetworkSchedule:
        source = read("stream", path, workload)
        return schedule(source.graph, load("quad8"), source.mapped)

    with pytest.raises((ImportFileError, MappingError), match=says) as refusal:
        planned()
    assert "\n" not in str(refusal.value)


def shapes_alone(path: Path, adding: bool, product: bool = False) -> Path:
    """A network as Stream reads it: 8 bits, no weights, a Relu of its own; `adding`: an Add at the end; `product`: the
    second layer is one of matrices."""
    sizes = [8, 8, 3, 3], [8, 8] if product else [8, 8, 3, 3]
    weights = [TensorProto(name=f"w{n}", data_type=TensorProto.INT8, dims=size) for n, size in enumerate(sizes)]
    last = helper.make_node("Conv", ["b", "w1"], ["c"], name="conv1", kernel_shape=[3, 3], pads=[1] * 4)
    if product:
        last = helper.make_node("MatMul", ["b", "w1"], ["c"], name="conv1")
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], name="conv0", kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        last,
        *([helper.make_node("Add", ["b", "c"], ["y"], name="add")] if adding else []),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.INT8, [1, 8, 8, 8]) for n in ("x", "y" if adding else "c")]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]).SerializeToString())
    return path


def test_a_network_by_the_names_of_its_nodes(tmp_path: Path) -> None:
    path = mapping(tmp_path, [((0, 1), {"D2": 2}), ((2, 3), {"D2": 2})], {"conv1.D2": 2})
    text = path.read_text(encoding="utf-8")
    relu = "- name: relu\n  core_allocation: [[0, 1]]\n  inter_core_tiling: [[{dim: D2, split: 2}]]\n"
    path.write_text(text.replace("- name: conv1\n", f"{relu}- name: conv1\n", 1), encoding="utf-8")
    net = str(shapes_alone(tmp_path / "net.onnx", adding=False))
    source = read("stream", path, net)
    assert [layer.relu for layer in source.graph.layers] == [True, False]
    result = schedule(source.graph, load("quad8"), source.mapped)
    assert is_right(source, result, "quad8")
    path.write_text(path.read_text(encoding="utf-8").replace("[[0, 1]]", "[[0, 2]]"), encoding="utf-8")
    with pytest.raises(ImportFileError, match="layer relu is computed with conv0 here, but has other cores or another"):
        read("stream", path, net)
    product = shapes_alone(tmp_path / "product.onnx", adding=False, product=True)
    with pytest.raises(WorkloadError, match=r"product.onnx: node conv1 is a MatMul, .*write it as a Conv of 1x1"):
        read("stream", path, str(product))
    path.write_text(text.replace("conv1", "conv7"), encoding="utf-8")
    with pytest.raises(ImportFileError, match=r"layer conv7 is no node of the workload, which has .*conv0"):
        read("stream", path, net)


def test_what_is_no_convolution_runs_layer_by_layer(tmp_path: Path) -> None:
    path = mapping(tmp_path, [((0, 1), {"D2": 2}), ((2, 3), {"D2": 2})], {"conv1.D2": 2})
    source, chip = read("stream", path, str(shapes_alone(tmp_path / "net.onnx", adding=True))), load("quad8")
    with pytest.raises(MappingError, match=r"y is a layer of kind add, groups of convolutions and products alone are"):
        schedule(source.graph, chip, source.mapped)
    assert is_right(source, schedule(source.graph, chip, source.mapped, nearest=True), "quad8")


def test_a_group_runs_on_the_rtl_beside_its_claim(tmp_path: Path) -> None:
    shown = invoke("run", f"stream:{SMALL}", "--workload", TWICE, "--chip", "tiny", "--json", tmp_path / "rows.json")
    assert shown.exit_code == 0, shown.output
    (row,) = load_results(tmp_path / "rows.json").rows
    assert (row.workload, row.scheduler, row.claimed_cycles) == (TWICE, "stream-dse", 4800)
    assert (row.mismatches, row.bytes_checked) == (0, 2 * 512 + 512), "both results as computed, the last one in DRAM"
    assert row.rtl_cycles == row.model_cycles
    assert row.beyond_claim_percent == pytest.approx(100 * (row.rtl_cycles - 4800) / 4800)
    alone = invoke("run", f"stream:{SMALL}", "--chip", "tiny")
    assert "layers conv0, conv1 are mapped together; name all of them with --workload" in alone.output


def test_tiles_of_what_is_no_layer_of_the_group_are_named(tmp_path: Path) -> None:
    path = mapping(tmp_path, [([0], {}), ([1], {})], {"conv1.OY": 4})
    text = path.read_text(encoding="utf-8")
    assert "conv1.OY" in text
    path.write_text(text.replace("conv1.OY", "conv9.OY"), encoding="utf-8")
    with pytest.raises(
        (ImportFileError, MappingError), match=r"tiles of conv9\.OY: conv9 is no convolution of its group"
    ):
        read("stream", path, TWICE)
