"""What a network says: the best classes of a vector, other tensors in files, what is left of the float model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshloom.sched.workload.graph import Graph, Layer, Value, Window
from meshloom.sched.workload.onnx.floats import Source
from meshloom.tb.inputs.sources import Feed
from meshloom.tb.report import answers
from meshloom.tb.results.figures import DetectionFigures, DetectorFigures, NetworkFigures, OutputFigures
from meshloom.tb.results.schema import Row

SCORES = np.array([3, 9, -128, 9, 127, 0, 3], np.int8).reshape(1, 7, 1, 1)
MAP = np.arange(-8, 8, dtype=np.int8).reshape(1, 1, 4, 4)
COMPUTED = {"scores": SCORES, "map": MAP}


def graph(*outputs: str, **changes: Any) -> Graph:
    """A vector of 7 scores with a step of 0.25 and a map of 4 x 4 with one of 0.5, both pools of one pixel."""
    layers = (Layer("max_pool", "scores", ("x",), Window()), Layer("max_pool", "map", ("y",), Window()))
    inputs = (Value("x", 7, 1, 1), Value("y", 1, 4, 4))
    return Graph("net", inputs, layers, outputs, **({"steps": {"scores": 0.25, "map": 0.5}, "real": True} | changes))


def outputs(net: Graph, folder: Path | None = None, **more: Any) -> tuple[OutputFigures, ...]:
    return answers.outputs(net, COMPUTED, Feed("a cat.png", {}, **more), "my net", folder)


def test_a_vector_names_its_five_best_classes() -> None:
    (figures,) = outputs(graph("scores"))
    assert (figures.name, figures.shape, figures.file, figures.snr_db) == ("scores", (1, 7, 1, 1), None, None)
    best = [(each.index, each.label, each.score) for each in figures.top]
    assert best == [(4, "", 31.75), (1, "", 2.25), (3, "", 2.25), (0, "", 0.75), (6, "", 0.75)], "the first of equals"
    assert answers.answer(graph("scores"), (figures,)) == "class 4"


def test_classes_have_their_labels() -> None:
    named = graph("scores", labels=tuple("abcdefg"))
    figures = outputs(named)
    assert [each.label for each in figures[0].top] == list("ebdag")
    assert answers.answer(named, figures) == "e"


def test_labels_are_those_of_the_first_output() -> None:
    named = graph("map", "scores", labels=tuple("abcdefg"))
    figures = outputs(named)
    assert answers.answer(named, figures) == "class 4", "of the first output with scores"
    assert {each.label for each in figures[1].top} == {""}


def test_scores_without_a_step_are_those_of_the_tensor() -> None:
    assert outputs(graph("scores", steps={}))[0].top[0].score == 127


def test_what_the_host_makes_of_the_outputs(tmp_path: Path) -> None:
    """Scores, the number of a class, and a tensor in a file; from real values."""

    def finish(values: Any) -> dict[str, Any]:
        np.testing.assert_array_equal(values["scores"], SCORES * np.float32(0.25))
        scores = values["scores"].reshape(1, 7)
        boxes = scores.reshape(7, 1) * np.ones((1, 4))
        return {"twice": 2 * scores, "best": np.array([4]), "boxes": boxes, "order": np.arange(7)[None]}

    named = graph("scores", labels=tuple("abcdefg"))
    _, twice, best, boxes, order = outputs(named, tmp_path, finish=finish)
    assert (twice.shape, twice.top[0].label, twice.top[0].score) == ((1, 7), "e", 63.5)
    assert [(each.index, each.label) for each in best.top] == [(4, "e")]
    assert order.top == (), "whole numbers are no scores"
    assert boxes.file is not None
    assert np.load(boxes.file).shape == boxes.shape == (7, 4)


def test_how_far_the_host_s_results_are_from_the_file_s() -> None:
    """Of real numbers, wherever the two have one shape."""

    def finish(values: Any) -> dict[str, Any]:
        scores = values["scores"].reshape(1, 7)
        chosen = scores[:, scores[0] > 0.5]
        return {"twice": 2 * scores, "best": scores.argmax(1), "chosen": chosen, "infinite": scores / np.zeros(1)}

    exact = SCORES * 0.25 + np.array([0.25, 0, 0, 0, 0, 1, 0]).reshape(SCORES.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        scores, twice, *others = outputs(graph("scores"), finish=finish, floats={"scores": exact})
    assert twice.snr_db == scores.snr_db == pytest.approx(10 * np.log10((exact**2).sum() / (0.25**2 + 1)))
    assert [each.snr_db for each in others] == [None] * 3


def test_a_map_of_the_file_is_no_vector_of_scores(tmp_path: Path) -> None:
    """However it lies in the network; and scores are in the file's order."""
    backwards = np.arange(7)[::-1].copy()
    (figures,) = outputs(graph("scores"), tmp_path, ends={"scores": Source((7, 1, 1), (1, 1, 7, 1), backwards)})
    assert [each.index for each in figures.top] == [2, 3, 5, 0, 6]
    padded = {"scores": Source((7, 1, 1), (7, 2), np.arange(7).repeat(2))}
    (figures,) = outputs(graph("scores"), tmp_path, ends=padded)
    assert (figures.top, figures.shape) == ((), (7, 2))
    assert np.load(str(figures.file)).shape == (7, 2)


def test_the_name_of_a_class(tmp_path: Path) -> None:
    """Texts that are none are kept as such."""
    named = graph("scores", labels=tuple("abcdefg"))
    both = {"name": np.array(["c"], object), "words": np.array(["to", "be"], object)}
    _, name, words = outputs(named, tmp_path, finish=lambda values: both)
    assert [(each.index, each.label) for each in name.top] == [(2, "c")]
    assert (name.file, words.top, np.load(str(words.file)).tolist()) == (None, (), ["to", "be"])


@pytest.mark.parametrize("kind", [np.bool_, np.uint8])
def test_scores_of_numbers_without_a_sign(kind: type) -> None:
    """A file that compares its scores at the end answers each class with true or false."""
    answered = np.array([[0, 0, 1, 0, 1, 0, 0]], kind)
    _, given = outputs(graph("scores"), finish=lambda values: {"given": answered})
    assert [(each.index, each.score) for each in given.top] == [(2, 1), (4, 1), (0, 0), (1, 0), (3, 0)]


def test_the_answer_is_the_file_s_own() -> None:
    """Neither a vector from which the host makes a distance is scores of classes, nor what the file has put in
    order."""
    ordered = np.array([[0.9, 0.5, 0.1]])
    for made, scores, right in (
        ({"distance": np.ones(1)}, ("distance",), ""),
        ({"ordered": ordered}, (), ""),
        ({"turned": SCORES.reshape(1, 7)[:, ::-1]}, ("turned",), "class 2"),
    ):
        figures = outputs(graph("scores"), finish=lambda values, made=made: made, scores=scores)
        assert bool(figures[-1].top) == bool(right)
        assert answers.answer(graph("scores"), figures, scores) == right


def test_random_weights_say_nothing() -> None:
    assert outputs(graph("scores", "map", real=False)) == ()
    assert answers.answer(graph("scores", real=False), ()) == ""


@pytest.mark.parametrize(("steps", "right"), [({"map": 0.5}, (MAP * 0.5).astype(np.float32)), ({}, MAP)])
def test_other_outputs_are_saved(
    steps: dict[str, float], right: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (figures,) = outputs(graph("map", steps=steps), Path("results") / "run")
    assert (figures.shape, figures.top, figures.file) == ((1, 1, 4, 4), (), "results/run/my_net-a_cat.png-map.npy")
    saved = np.load(tmp_path / (figures.file or ""))
    assert saved.dtype == right.dtype
    np.testing.assert_array_equal(saved, right)
    assert len(list(tmp_path.rglob("*.*"))) == 1, "nothing half-written is left"
    assert outputs(graph("map"))[0].file is None


def test_the_noise_of_quantisation_is_told() -> None:
    exact = SCORES * 0.25 + np.array([0, 0, 0.5, 0, 0, 0, 0]).reshape(1, 7, 1, 1)
    (figures,) = outputs(graph("scores"), floats={"scores": exact})
    assert figures.snr_db == pytest.approx(10 * np.log10((exact**2).sum() / 0.25))
    assert outputs(graph("scores"), floats={"scores": SCORES * 0.25})[0].snr_db is None, "no noise, no ratio"


def test_lines_for_people() -> None:
    row = Row(
        workload="my_net", chip="tiny", scheduler="network", simulator="verilator",
        network=NetworkFigures(
            picture="cat.png", macs=1, tensors_checked=1, dram_bytes=1, layers=(), shares={},
            notes=("Softmax s is left out.",),
            outputs=(
                *outputs(graph("scores", labels=("hat", "", *"cdefg")), floats={"scores": SCORES * 0.25 + 0.5}),
                *outputs(graph("map")),
                outputs(graph("map"))[0].model_copy(update={"file": "results/x.npy"}),
            ),
        ),
    )  # fmt: skip
    assert answers.lines(row) == [
        "my_net, cat.png: best of scores: e 31.75, class 1 2.25, d 2.25, hat 0.75, g 0.75; SNR against the float model "
        f"{row.network.outputs[0].snr_db:.1f} dB",  # pyright: ignore[reportOptionalMemberAccess]
        "my_net, cat.png: output map [1, 1, 4, 4] was not saved",
        "my_net, cat.png: output map [1, 1, 4, 4] is in results/x.npy",
        "my_net, cat.png: Softmax s is left out.",
    ]
    assert answers.lines(row.model_copy(update={"network": None})) == []


def test_lines_of_a_detector() -> None:
    def box(index: int, score: float, label: str = "") -> DetectionFigures:
        return DetectionFigures(index=index, label=label, score=score, box=(1.2, 2.0, 30.7, 4.0))

    some = (box(1, 0.9, "dog"), box(0, 0.8), *(box(1, 0.5, "dog"),) * 20)
    figures = DetectorFigures(
        form="y: boxes", min_score=0.25, max_iou=0.45, found=some, exact=some[:2], alike=1, picture="run/boxes.png"
    )
    network = NetworkFigures(picture="p.png", macs=1, tensors_checked=1, dram_bytes=1, layers=(), shares={})
    row = Row(workload="d", chip="tiny", scheduler="s", simulator="verilator",
              network=network.model_copy(update={"detector": figures}))  # fmt: skip
    lines = answers.lines(row)
    assert lines[0] == ("d, p.png: 22 boxes with scores of 0.25 or more (21 dog, 1 class 0); drawn in run/boxes.png")
    assert lines[1:3] == [
        "d, p.png: dog 0.90 at columns 1..31, rows 2..4",
        "d, p.png: class 0 0.80 at columns 1..31, rows 2..4",
    ]
    assert lines[21:] == [
        "d, p.png: 2 more with lower scores, in the results",
        "d, p.png: 1 of the 2 boxes that the float model finds are among them",
        "d, p.png: the host has read y: boxes; suppressed at an IoU of 0.45.",
    ]
    assert Row.model_validate_json(row.model_dump_json()) == row
    assert answers.counted(()) == "nothing"
