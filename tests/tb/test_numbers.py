"""Models of text and what they are fed: numbers by input, from files; and files that hold several inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from meshloom.tb.inputs.numbers import read_numbers
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
