"""Language models: files that are refused, integers near the floats, the same numbers however a prompt is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshloom.hw.spec.config import load as load_chip
from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.language import reference
from meshloom.sched.workload.language.distance import slopes
from meshloom.sched.workload.language.graph import attended, step_graph
from meshloom.sched.workload.language.integers import COVERED, LargestSizes, integers
from meshloom.sched.workload.language.model import LanguageError, LanguageModel, load, model_of
from meshloom.sched.workload.stages import all_lanes, constant, filters
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


def test_the_sizes_that_cover_nearly_all_values() -> None:
    """Those of NumPy, of which only the largest are kept."""
    draw = np.random.default_rng(0)
    for count in (1, 2, 3, 100, 10_000, 20_003, 200_001):
        values = np.abs(draw.standard_cauchy(count)).astype(np.float32)
        largest, parts = LargestSizes(), np.array_split(values, min(count, 7))
        for number, part in enumerate(parts, start=1):
            largest.add([part], len(parts) - number)
        assert largest.covered() == float(np.quantile(values, COVERED))
        assert len(largest.largest) <= 3 + count // 5_000
    largest = LargestSizes()
    largest.add([np.zeros(5, np.float32), np.ones(4, np.float32)], 0)
    assert (largest.count, largest.covered()) == (9, 1.0)


@pytest.mark.parametrize("bits", [4, 8])
def test_weights_are_rounded_some_at_a_time(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a copy of 64 bits of all; where the blocks end changes nothing."""
    whole, parts = integers(random_model(), bits), integers(random_model(), bits)
    names = ("0/up", "0/feed", "0/hidden", 0.3)
    expected = whole.filters(*names)
    monkeypatch.setattr("meshloom.sched.workload.language.integers._BLOCK", 40)
    blocks = parts.filters(*names)
    np.testing.assert_array_equal(blocks.w, expected.w)
    np.testing.assert_array_equal(blocks.bias, expected.bias)
    assert blocks.scale == expected.scale


def test_weights_of_a_schedule_are_those_of_the_model() -> None:
    """Where words have no lane without a channel."""
    graph, chip = step_graph(integers(random_model()), 1), load_chip("tiny")
    lanes = all_lanes(graph, chip)
    (layer,) = (layer for layer in graph.layers if layer.output == "0/q")
    used = filters(lanes[layer.output], chip)
    assert layer.w is not None
    assert np.shares_memory(constant(layer, "w", lanes[layer.inputs[0]], filter_lanes=used), layer.w)
    wide = np.append(lanes[layer.inputs[0]], [-1] * 4)
    assert constant(layer, "w", wide, filter_lanes=used).shape[1] == 4 + layer.w.shape[1]


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
    inputs = numbers.entered(tokens, before) | attended(model.context, model.heads, new, before + new, numbers.slopes)
    for cache in graph.caches:
        inputs[cache.past] = np.full(graph.value(cache.past).shape, 77, np.int8)  # what does not count is not looked at
        if before:
            inputs[cache.past][0, :, 0, -before:] = caches[cache.new]
    values = golden_values(graph, inputs)
    after = {name: np.concatenate([array, values[name][0, :, 0]], axis=1) for name, array in caches.items()}
    return values["scores"][0, :, 0].T, after


def test_scores_are_less_with_the_distance() -> None:
    """By as many steps as the slope of a head says, down to the least number; of the first token behind others."""
    mask = attended(4, 2, 2, 3, (1.5, 60.0))["mask"]
    assert mask[0, :, 0].tolist() == [
        [-128, -2, 0, -128], [-128, -3, -2, 0],
        [-128, -60, 0, -128], [-128, -120, -60, 0],
    ]  # fmt: skip
    assert attended(4, 1, 1, 4, (60.0,))["mask"].ravel().tolist() == [-128, -120, -60, 0]
    assert slopes(4) == (1 / 4, 1 / 16, 1 / 64, 1 / 256)
    assert slopes(6) == (*slopes(4), 2**-1, 2**-3)
    assert integers(random_model()).slopes == ()


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
