"""Language models: files that are refused, integers near the floats, the same numbers however a prompt is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.language import reference
from meshloom.sched.workload.language.graph import attended, step_graph
from meshloom.sched.workload.language.integers import integers
from meshloom.sched.workload.language.model import LanguageError, LanguageModel, load, model_of
from meshloom.tb.inputs.golden.graph import golden_values

from ..language_models import entries, random_model

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"vocabulary": None}, "has no tokenizer; add an entry `vocabulary`"),
    ({"vocabulary": np.array("abcdefg")}, "the vocabulary has 7 different characters, the embedding 8 rows"),
    ({"calibration": None}, "entry 'calibration' is missing or no string"),
    ({"held_out": np.array("a")}, "'calibration' and 'held_out' must have two characters at least"),
    ({"held_out": np.array("abz")}, "has no token for 'z', character 3 of the text"),
    ({"heads": np.array(0)}, "entry 'heads' is no number in 1..255"),
    ({"heads": np.array(3)}, "3 heads do not divide a width of 16"),
    ({"output": np.full((8, 16), np.nan)}, "entry 'output' holds other things than finite floats"),
    ({"0/up.weight": None}, "'0/up.weight' is missing or no matrix"),
    ({"0/q.weight": np.ones((16, 8))}, r"entry '0/q.weight' is \[16, 8\], must be \[16, 16\]"),
    ({"0/v.weight": None}, r"entry '0/v.weight' is missing, must be \[16, 16\]"),
    ({"more": np.ones(3)}, r"entry 'more' is \[3\], must be left out"),
    ({"position": np.ones((1 << 20, 17))}, "has more than 16777216 weights; take a smaller model"),
]


@pytest.mark.parametrize(("change", "text"), WRONG)
def test_wrong_files_are_refused_by_entry(change: dict[str, Any], text: str) -> None:
    arrays = {name: array for name, array in (entries() | change).items() if array is not None}
    with pytest.raises(LanguageError, match=text):
        model_of("m", arrays, "m.npz")


def test_what_is_no_file_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.npz").write_bytes(b"no archive")
    for name, text in (
        ("shakespear", r"unknown language model 'shakespear': .*shakespeare"),
        (str(tmp_path / "b.npz"), r"cannot be read .*; name a file that is there"),
        (str(tmp_path / "a.npz"), "is no NumPy archive"),
    ):
        with pytest.raises(LanguageError, match=text):
            load(name)
    monkeypatch.setattr("meshloom.sched.workload.language.model.MOST_BYTES", 5)
    with pytest.raises(LanguageError, match="has more than 0 MiB; take a smaller model"):
        load(str(tmp_path / "a.npz"))


def test_a_model_whose_numbers_cannot_be_said() -> None:
    dead = entries() | {"0/v.weight": np.zeros((16, 16))}
    with pytest.raises(LanguageError, match="all values of 0/v are 0 over its calibration text"):
        integers(model_of("m", dead, "m.npz"))
    numbers = integers(random_model())
    numbers.steps["0/scores"] = 1e9
    with pytest.raises(LanguageError, match=r"0/scores needs a multiplier of 0, which must be in 1..65535"):
        step_graph(numbers, 1)
    with pytest.raises(LanguageError, match=r"looks at 16 tokens; take 1..15 at once"):
        step_graph(numbers, 16)


def run(graph: Graph, model: LanguageModel, tokens: Any, caches: dict[str, Any]) -> Any:
    """A step in ONNX Runtime: its scores [tokens, V], and the caches behind it."""
    numbers, new = integers(model), len(tokens)
    before = next(iter(caches.values())).shape[1]
    inputs = numbers.entered(tokens, before) | attended(model.context, model.heads, new, before + new)
    for cache in graph.caches:
        inputs[cache.past] = np.full(graph.value(cache.past).shape, 77, np.int8)  # what does not count is not looked at
        if before:
            inputs[cache.past][0, :, 0, -before:] = caches[cache.new]
    values = golden_values(graph, inputs)
    after = {name: np.concatenate([array, values[name][0, :, 0]], axis=1) for name, array in caches.items()}
    return values["scores"][0, :, 0].T, after


def test_a_prompt_gives_the_same_numbers_however_it_is_cut() -> None:
    """One by one, in chunks, or at once: keys that do not count count for nothing at all."""
    model = random_model()
    numbers, tokens = integers(model), model.tokens("abcdefghhgfe")
    graphs = {count: step_graph(numbers, count) for count in (1, 4, 12)}
    found: list[Any] = []
    for count in graphs:
        caches: dict[str, Any] = {cache.new: np.zeros((16, 0), np.int8) for cache in graphs[1].caches}
        rows: list[Any] = []
        for first in range(0, len(tokens), count):
            scores, caches = run(graphs[count], model, tokens[first : first + count], caches)
            rows += list(scores)
        found.append((np.array(rows), caches))
    for scores, caches in found[1:]:
        np.testing.assert_array_equal(scores, found[0][0])
        for name, array in caches.items():
            np.testing.assert_array_equal(array, found[0][1][name])


def test_integers_are_near_the_floats() -> None:
    model = load("shakespeare")
    numbers, tokens = integers(model), model.tokens(model.held_out[:64])
    real = reference.scores(model, tokens)
    empty = {f"{layer}/{name}": np.zeros((model.width, 0), np.int8) for layer in range(model.layers) for name in "kv"}
    scores, _ = run(step_graph(numbers, 64), model, tokens, empty)
    near = scores * numbers.steps["scores"]
    assert 10 * np.log10(np.square(real).sum() / np.square(near - real).sum()) > 20  # dB
    assert np.mean(near.argmax(axis=1) == real.argmax(axis=1)) > 0.9
    # text that it was not trained with: guessing is 4.17
    assert reference.loss(near.astype(np.float32), tokens) / 63 < 1.7
    assert abs(reference.loss(near.astype(np.float32), tokens) - reference.loss(real, tokens)) / 63 < 0.05


def test_the_reference_looks_back_only() -> None:
    model = random_model()
    tokens = model.tokens("abcdefgh")
    whole = reference.scores(model, tokens)
    np.testing.assert_allclose(reference.scores(model, tokens[:5]), whole[:5], rtol=1e-5, atol=1e-6)
    even = np.zeros((9, 8), np.float32)
    assert reference.loss(even, np.arange(9) % 8) == pytest.approx(8 * np.log(8))
