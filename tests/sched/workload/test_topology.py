"""Topology files of SCALE-Sim: the forms that they have, and the layers that they mean."""

from __future__ import annotations

import sys
from math import ceil
from pathlib import Path

import pytest

from meshloom.sched.workload import topology
from meshloom.sched.workload.catalog import find
from meshloom.sched.workload.layers import ConvShape, WorkloadError
from meshloom.sched.workload.shapes import describe

HEAD = "Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides,\n"


def layers(folder: Path, text: str, layer: str = "") -> list[ConvShape]:
    (folder / "net.csv").write_text(text, encoding="utf-8")
    return [result.shape for result in find(f"{folder}/net.csv" + (f"/{layer}" if layer else ""))]


def test_a_convolution_has_the_outputs_and_products_that_scale_sim_counts(tmp_path: Path) -> None:
    # the first layers of its alexnet.csv, with its spaces
    text = HEAD + "Conv1     ,224         ,224        ,11           ,11          ,3       ,96        ,4      ,\n"
    (first,) = layers(tmp_path, text)
    assert first.name == f"{tmp_path}/net.csv/Conv1"
    assert first.y_shape == (1, 96, 55, 55)
    assert (first.pad_top, first.pad_left, first.pad_bottom, first.pad_right) == (0, 0, 3, 3)


@pytest.mark.parametrize("size", [(9, 8), (10, 9), (11, 10), (12, 7)])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_partial_windows_count(size: tuple[int, int], stride: int, tmp_path: Path) -> None:
    (result,) = layers(tmp_path, f"{HEAD}c,{size[0]},{size[1]},3,2,5,7,{stride},\n")
    # topo_calc_hyperparams of SCALE-Sim 3.0.0
    out_h, out_w = (ceil((given - taps + stride) / stride) for given, taps in zip(size, (3, 2), strict=True))
    assert (result.out_h, result.out_w) == (out_h, out_w)
    assert result.macs == out_h * out_w * 3 * 2 * 5 * 7


def test_filters_as_large_as_their_inputs_are_matrix_products(tmp_path: Path) -> None:
    text = (
        HEAD + "FC,7,7,7,7,512,4096,1,\nLinear,1024,1600,1,1600,1,4800,1,\nCol,9,4,9,1,2,3,2,\nPoint,1,1,1,1,64,10,1\n"
    )
    assert [describe(shape) for shape in layers(tmp_path, text)] == [
        "gemm:1x4096x25088", "gemm:1024x4800x1600", "gemm:3x3x18", "gemm:1x10x64",
    ]  # fmt: skip


def test_products_batches_and_channels_one_by_one(tmp_path: Path) -> None:
    assert [describe(shape) for shape in layers(tmp_path, "Layer,M,N,K,\n1,256,128,2048,\nTest 1,3,5,7,1:1,")] == [
        "gemm:256x128x2048", "gemm:3x5x7",
    ]  # fmt: skip
    (bare,) = layers(tmp_path, HEAD.strip().rstrip(",") + "\na,8,8,1,1,4,4,2\n")
    assert (bare.stride_h, bare.stride_w) == (2, 2), "lines need not end with a comma"
    (batch,) = layers(tmp_path, HEAD.strip() + " Batch Size,\na,8,8,1,1,4,4,1,3,\n")
    assert batch.batch == 3
    depthwise = layers(tmp_path, HEAD + "DP1,8,8,3,3,2,1,1,\n")
    assert [(shape.name.rpartition("/")[2], shape.in_channels) for shape in depthwise] == [
        ("DP1Channel_0", 1), ("DP1Channel_1", 1),
    ]  # fmt: skip


def test_what_surrounds_layers_is_left_out(tmp_path: Path) -> None:
    text = (
        "\ufeff"
        + HEAD
        + ",,,,,,,,\n\nAlphaGoZero,,,,,,,,\nConv2_dw,12,12,3,3,1,1,1,#dw\n\tx,5,5,1,1,2,3,1\nx,6,6,1,1,2,3,1,\n"
    )
    result = layers(tmp_path, text)
    assert [shape.name.rpartition("/")[2] for shape in result] == ["Conv2_dw", "x", "x#2"]
    assert [layers(tmp_path, text, "x#2")[0].in_h, layers(tmp_path, text, "x")[0].in_h] == [6, 5]
    tabs = (HEAD + "x,5,5,1,1,2,3,1,\n").replace(",", "\t")
    assert [shape.in_h for shape in layers(tmp_path, tabs)] == [5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "c,8,B,3,3,1,1,1,\n", r"net.csv, line 2: layer c: ifmap width = 'B' must be a whole number"),
        (HEAD + "c,8,8,3,3,1,\n", r"line 2: layer c: num filter = '' must be"),
        (HEAD + "c,8,8,41,3,1,1,1,\n", r"a filter of 41x3 is larger than its input of 8x8"),
        (
            HEAD + "c,80,80,41,3,1,1,1,\n",
            r"kernel_h = 41, a GEMM instruction holds at most 15; name the others one by one",
        ),
        (HEAD + "c,8,8,3,3,1,1,1,2:4,\n", r"layer c has sparse weights \(2:4\)"),
        (HEAD, "has no layers"),
        ("cycles,3\n", "is no topology of SCALE-Sim"),
        ("", "is no topology of SCALE-Sim"),
        (HEAD + "n" * 140_000, "is no CSV: field larger than field limit"),
    ],
)
def test_mistakes_name_file_and_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=message):
        layers(tmp_path, text)


def test_one_wrong_layer_leaves_the_others(tmp_path: Path) -> None:
    text = HEAD + "good,8,8,3,3,1,1,1,\nbad,80,80,41,3,1,1,1,\n"
    assert layers(tmp_path, text, "good")[0].out_h == 6
    with pytest.raises(WorkloadError, match=r"line 3: layer bad: kernel_h"):
        layers(tmp_path, text, "bad")
    with pytest.raises(WorkloadError, match=r"has no layer 'god'; did you mean good"):
        layers(tmp_path, text, "god")
    with pytest.raises(WorkloadError, match=r"none.csv: cannot be read: No such file"):
        find(f"{tmp_path}/none.csv")


def test_data_is_that_of_the_shape_wherever_the_file_lies(tmp_path: Path) -> None:
    (tmp_path / "net.csv").write_text("Layer,M,N,K,\na,5,6,7,\n")
    (mine,) = find(f"{tmp_path}/net.csv")
    (same,) = find("gemm:5x6x7")
    assert (mine.data().x == same.data().x).all()
    assert mine.scale == same.scale
    assert mine.data().shape.name == mine.name


def test_names_that_come_again_are_numbered_and_never_lost(tmp_path: Path) -> None:
    path = tmp_path / "n.csv"
    path.write_text(HEAD + "".join(f"{name},8,8,3,3,2,2,1,\n" for name in ("a", "a#2", "a", "a", "b")))
    names = [shape.name.rpartition("/")[2] for shape in topology.layers(path)]
    assert names == ["a", "a#2", "a#3", "a#4", "b"]


def test_many_layers_take_time_for_each_and_no_more(tmp_path: Path) -> None:
    """Twice as many layers of one name need no more than about twice the steps of Python."""

    def steps(count: int) -> int:
        path = tmp_path / f"{count}.csv"
        path.write_text(HEAD + "a,8,8,3,3,2,2,1,\n" * count)
        taken = 0

        def count_call(*_: object) -> None:
            nonlocal taken
            taken += 1

        before = sys.getprofile()
        sys.setprofile(count_call)
        try:
            topology.layers(path)
        finally:
            sys.setprofile(before)
        return taken

    assert steps(800) < 2.5 * steps(400)


def test_the_most_layers_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "MOST", 3)
    path = tmp_path / "m.csv"
    path.write_text(HEAD + "a,8,8,3,3,2,2,1,\n" * 3)
    assert len(topology.layers(path)) == 3
    path.write_text(HEAD + "a,8,8,3,3,2,2,1,\n" * 4)
    with pytest.raises(WorkloadError, match="line 5: the file has more than 3 layers; cut it into several"):
        topology.layers(path)
    path.write_text(HEAD + "aDP,8,8,3,3,3,2,1,\n")
    assert len(topology.layers(path)) == 3
    path.write_text(HEAD + "aDP,8,8,3,3,4,2,1,\n")
    with pytest.raises(WorkloadError, match="line 2: layer aDP: 4 channels would be as many layers, 3 are possible"):
        topology.layers(path)


def test_endless_numbers_are_refused_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    path.write_text(HEAD + f"a,{'9' * 100_000},8,3,3,4,2,1,\n")
    with pytest.raises(WorkloadError, match=r"99\.\.\. \(100,000 characters\)' must be a whole number") as error:
        topology.layers(path)
    assert len(str(error.value)) < 400
