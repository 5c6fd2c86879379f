"""Models of text and what they are fed: numbers by input, from files; and files that hold several inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from meshloom.tb.inputs.arrays import Declared, declared
from meshloom.tb.inputs.numbers import numbers_in, read_numbers
from meshloom.tb.inputs.pictures import InputError, inputs_in
from meshloom.tb.inputs.sources import NetworkSource, described, ready

from ..sched.float_models import FloatModel
from ..sched.workload.onnx.test_attention import sentences, text


def saved(folder: Path, count: int = 2) -> tuple[Path, tuple[Path, ...]]:
    model, files = folder / "text.onnx", tuple(folder / f"s{index}.npz" for index in range(count))
    onnx.save(text(), model)
    for path, sentence in zip(files, sentences(count), strict=True):
        np.savez(path, ids=sentence["ids"], mask=sentence["mask"])
    return model, files


def test_a_model_of_text_is_fed_what_the_host_makes_of_numbers(tmp_path: Path) -> None:
    model, files = saved(tmp_path)
    graph, feeds = ready(NetworkSource(str(model), files))
    assert [feed.name for feed in feeds] == ["s0.npz", "s1.npz"]
    for feed in feeds:
        assert {name: array.shape for name, array in feed.arrays.items()} == {"rows": graph.inputs[0].shape}
        assert list(feed.floats) == ["y"]
        assert feed.notes[0].startswith("Gather words and 4 more at the beginning run on the host")
    assert not np.array_equal(feeds[0].arrays["rows"], feeds[1].arrays["rows"])


def test_what_would_run_of_a_model_of_text(tmp_path: Path) -> None:
    model, _ = saved(tmp_path)
    first, note = described(model, {"sequence": 6})
    assert "input rows [1, 6, 8]; float; it is quantised with text" in first
    assert note.endswith("term must be the same for all inputs.")


def test_a_file_of_several_samples_of_numbers(tmp_path: Path) -> None:
    model = text(features=4)
    for value in model.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, (1, 6), strict=True):
            dim.dim_value = size
    onnx.save(model, tmp_path / "text.onnx")
    ids, ones = np.arange(18).reshape(3, 6), np.ones((3, 6), np.int64)
    np.savez(tmp_path / "three.npz", ids=ids, mask=ones)
    _, feeds = ready(NetworkSource(str(tmp_path / "text.onnx"), (tmp_path / "three.npz",)))
    assert [feed.name for feed in feeds] == ["three.npz[0]", "three.npz[1]", "three.npz[2]"]
    _, feeds = ready(NetworkSource(str(tmp_path / "text.onnx"), calibration=(tmp_path / "three.npz",)))
    assert [feed.name for feed in feeds] == ["three.npz"]
    declareds = declared(model, "text")
    np.savez(tmp_path / "wide.npz", ids=ids[:1, :5], mask=ones[:1])
    np.savez(tmp_path / "few.npz", ids=ids, mask=ones[:2])
    for name, message in (
        ("wide.npz", r"holds int64\[1, 5\]; input ids of network text is int64 \[1, 6\]"),
        ("few.npz", "holds other numbers of samples: 3 of ids, 2 of mask"),
    ):
        with pytest.raises(InputError, match=message):
            numbers_in(tmp_path / name, declareds)


def test_a_number_and_real_ones_without_their_batch(tmp_path: Path) -> None:
    inputs = (Declared("t", np.dtype(np.int64), (1,), "n"), Declared("x", np.dtype(np.float32), (1, 4, 2), "n"))
    for name, count, t, real in (
        ("one", 1, np.arange(1), np.zeros((4, 2))),
        ("two", 2, np.arange(2), np.zeros((2, 4, 2))),
        ("single", 1, np.int64(3), np.zeros((1, 4, 2))),
    ):
        np.savez(tmp_path / f"{name}.npz", t=t, x=real)
        assert len(numbers_in(tmp_path / f"{name}.npz", inputs, {"x"})) == count


def test_numbers_by_input_and_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.arange(5))
    arrays = read_numbers(tmp_path / "ids.npy", ("ids", "attention_mask", "kinds"))
    assert {name: array.tolist() for name, array in arrays.items()} == {
        "ids": [[0, 1, 2, 3, 4]],
        "attention_mask": [[1] * 5],
        "kinds": [[0] * 5],
    }
    np.savez(tmp_path / "both.npz", ids=np.arange(4), mask=np.ones(4, np.int64))
    assert list(read_numbers(tmp_path / "both.npz", ("ids", "mask"))) == ["ids", "mask"]


def test_files_of_numbers_that_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", words=np.arange(4))
    np.savez(tmp_path / "real.npz", ids=np.ones(4))
    (tmp_path / "broken.npz").write_bytes(b"no archive")
    for name, message in (
        ("other.npz", "has arrays words; the model's inputs are ids"),
        ("real.npz", "ids is float64, must be whole numbers"),
        ("broken.npz", "cannot be read as an .npz file"),
        ("absent.npy", "cannot be read as an .npy file"),
    ):
        with pytest.raises(InputError, match=message):
            read_numbers(tmp_path / name, ("ids",))


def test_a_file_of_several_inputs_is_one_run_each(tmp_path: Path) -> None:
    m = FloatModel()
    onnx.save(m.build(m.conv("x", "y", (4, 3, 3, 3))), tmp_path / "m.onnx")
    batch = np.concatenate(m.data(3))
    np.save(tmp_path / "batch.npy", batch)
    graph, feeds = ready(NetworkSource(str(tmp_path / "m.onnx"), (tmp_path / "batch.npy",)))
    assert inputs_in(tmp_path / "batch.npy") == 3
    assert inputs_in(tmp_path / "m.onnx") == inputs_in(tmp_path / "absent.npy") == 1
    assert [feed.name for feed in feeds] == ["batch.npy[0]", "batch.npy[1]", "batch.npy[2]"]
    step = graph.inputs[0].step
    for feed, one in zip(feeds, batch, strict=True):
        np.testing.assert_array_equal(feed.arrays["x"][0], np.clip(np.rint(one.astype(np.float64) / step), -128, 127))
        assert feed.floats["y"].shape == graph.value("y").shape
