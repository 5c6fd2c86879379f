"""Models with experts: files that are refused, the same numbers however a step is cut and whoever computes beside."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from meshloom.hw.spec.config import load as load_chip
from meshloom.sched.schedulers.network.scheduler import schedule
from meshloom.sched.workload.language import reference
from meshloom.sched.workload.language.experts import (
    Part,
    even_chosen,
    expert_weights,
    gates_of,
    most_chosen,
    parts_of,
    regions_of,
    whole_graph,
)
from meshloom.sched.workload.language.graph import step_graph
from meshloom.sched.workload.language.integers import integers
from meshloom.sched.workload.language.model import LanguageError, load, model_of
from meshloom.tb.runs.language.walk import Golden, Walk, Walked

from ..language_models import entries, model_with_experts

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"top": np.array(5)}, "top = 5, and it has layers with 4 experts; say how many a token takes: 1..4"),
    ({"top": None}, "top = 0, and it has layers with 4 experts; say how many a token takes: 1..4"),
    ({"top": np.array(-1)}, "entry 'top' is no number in 1..255"),
    ({"1/router.weight": np.ones((3, 16))}, r"entry '1/down.weight' is \[4, 16, 32\], must be \[3, 16, 32\]"),
    ({"0/down.weight": np.ones((4, 16, 8))}, r"entry '0/down.weight' is \[4, 16, 8\], must be \[4, 16, 32\]"),
    ({"0/router.weight": np.array(1.0)}, r"entry '0/down.bias' is missing, must be \[16\]"),
    ({"0/up.bias": np.ones((4, 32))}, r"entry '0/up.bias' is \[4, 32\], must be left out"),
]


@pytest.mark.parametrize(("change", "text"), WRONG)
def test_wrong_files_are_refused_by_entry(change: dict[str, Any], text: str) -> None:
    mixed = entries(layers=2, experts=4, top=2) | change
    with pytest.raises(LanguageError, match=text):
        model_of("m", {name: array for name, array in mixed.items() if array is not None}, "m.npz")


def test_a_dense_model_has_no_top_and_a_mixed_one_no_single_network() -> None:
    with pytest.raises(LanguageError, match=r"top = 2, and it has no layer with experts; leave `top` out"):
        model_of("m", entries() | {"top": np.array(2)}, "m.npz")
    numbers = integers(model_with_experts())
    with pytest.raises(LanguageError, match="model mixed has experts, which the host chooses between programs"):
        step_graph(numbers, 1)
    with pytest.raises(LanguageError, match=r"looks at 16 tokens; take 1..15 at once"):
        Part((16,), 0).graph(numbers)


def empty(model: Any) -> dict[str, Any]:
    return {f"{layer}/{name}": np.zeros((model.width, 0), np.int8) for layer in range(model.layers) for name in "kv"}


def after(caches: dict[str, Any], walked: Walked) -> dict[str, Any]:
    return {name: np.concatenate([array, walked.new[0][name]], axis=1) for name, array in caches.items()}


def test_a_prompt_gives_the_same_numbers_however_it_is_cut() -> None:
    """One by one, in chunks, or at once; with the experts that were chosen, or with all of them."""
    model = model_with_experts()
    walk, golden, tokens = Walk.of(integers(model)), Golden(integers(model)), model.tokens("abcdefghhgfe")
    results: list[Any] = []
    for count, every in ((1, False), (4, False), (12, False), (4, True)):
        caches, rows, chosen = empty(model), list[Any](), list[Any]()
        for first in range(0, len(tokens), count):
            walked = walk.step([(tokens[first : first + count], caches)], golden, every=every)
            caches = after(caches, walked)
            rows += list(walked.scores[0])
            chosen.append(np.stack(walked.chosen, axis=1))
        results.append([np.array(rows), np.concatenate(chosen), *caches.values()])
    for other in results[1:]:
        for ours, theirs in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert len({tuple(each) for each in results[0][1][:, 0].tolist()}) > 1, "not all tokens choose alike"


def test_texts_of_a_step_have_nothing_to_do_with_each_other() -> None:
    """Two texts at once, of which one has a place too many: each reads what it reads alone."""
    model = model_with_experts()
    walk, golden = Walk.of(integers(model)), Golden(integers(model))
    one, other = model.tokens("abc"), model.tokens("h")
    alone = [walk.step([(tokens, empty(model))], golden) for tokens in (one, other)]
    both = walk.step([(one, empty(model)), (other, empty(model))], golden, (4, 1))
    for text, walked in enumerate(alone):
        np.testing.assert_array_equal(both.scores[text], walked.scores[0])
        for name, array in walked.new[0].items():
            np.testing.assert_array_equal(both.new[text][name], array)
    for mixture, chosen in enumerate(both.chosen):
        np.testing.assert_array_equal(chosen, np.concatenate([walked.chosen[mixture] for walked in alone]))


def test_the_host_chooses_by_scores() -> None:
    numbers = integers(model_with_experts())
    scores = np.array([[3, 9, 9, 1], [-5, -5, -5, -5], [127, 0, -128, 0]], np.int8)
    chosen, gates = gates_of(numbers, 0, scores)
    assert chosen.tolist() == [[1, 2], [0, 1], [0, 1]], "of equal ones the first"
    assert gates[0].tolist() == [0, 64, 64, 0]
    assert gates[1].tolist() == [64, 64, 0, 0]
    share = 1 / (1 + np.exp(-127 * numbers.steps["0/router"]))
    assert gates[2].tolist() == [round(127 * share), round(127 * (1 - share)), 0, 0]


def test_networks_of_a_step_have_their_regions_in_common() -> None:
    """Whatever the network, and wherever its own begins: caches, experts and what is handed on lie alike."""
    chip, numbers = load_chip("tiny"), integers(model_with_experts())
    places: dict[str, set[Any]] = {}
    for part, begin in ((Part((2,), 0), 1), (Part((1,), 0, 2), 3000), (Part((1,), 1), 5000), (Part((2,), 1, 4), 6000)):
        graph = part.graph(numbers, begin)
        room = {region.name: region.positions for region in graph.regions}
        width = {value.name: value.width for value in graph.inputs}
        assert all(0 <= view.first <= room[view.region] - width.get(view.value, 1) for view in graph.views)
        assert {view.first for view in graph.views if "@" not in view.value} == {0}
        plan = schedule(graph, chip).schedule
        for tensor in plan.tensors:
            if tensor.name in ("0/feed", "1/feed", "0/z", "1/z/rescaled", "0/z/rescaled", "1/z"):
                places.setdefault(tensor.name.partition("/")[2], set()).update(p.address for p in tensor.pieces[:1])
            elif "/up@" in tensor.name or "/down@" in tensor.name:
                layer, number = tensor.name[0], int(tensor.name[-1])
                width = tensor.layout.shape[3]
                first = tensor.pieces[0].address - number * width
                places.setdefault(f"{layer}/{tensor.name[2:-2]}", set()).add(first)
            elif tensor.role == "constant":
                assert min(piece.address for piece in tensor.pieces) >= begin
    assert {name: len(found) for name, found in places.items()} == dict.fromkeys(places, 1)
    assert len(places) == 7


def test_parts_regions_and_how_many_experts_are_chosen() -> None:
    model = model_with_experts()
    assert [each.slots for each in parts_of(model, (3,), partial(most_chosen, (3,)))] == [0, 4, 0, 4, 0]
    assert [most_chosen((1, 1), 8, 2), even_chosen((1,), 8, 2), even_chosen((16,), 8, 2)] == [4, 2, 8]
    assert even_chosen((4,), 8, 2) == round(8 * (1 - 0.75**4))
    regions = regions_of(model, 2)
    names = [region.name for region in regions]
    assert {region.positions for region in regions if "@" in region.name} == {2 * model.context}
    assert names[:3] == ["0/k@0", "0/v@0", "1/k@0"]
    assert names[-7:] == ["0/up", "0/down", "1/up", "1/down", "residual", "feed", "sum"]
    up = expert_weights(integers(model), 1)["up"]
    assert (up.shape, np.abs(up).max()) == ((4, 16, 32), 127)
    assert whole_graph(integers(model), (1,), partial(most_chosen, (1,))).outputs[:3] == (
        "scores",
        "0/router",
        "1/router",
    )


@pytest.mark.slow
def test_integers_are_near_the_floats() -> None:
    model = load("shakespeare_experts")
    numbers, tokens = integers(model), model.tokens(model.held_out[:64])
    real = reference.scores(model, tokens)
    walked = Walk.of(numbers).step([(tokens, empty(model))], Golden(numbers))
    near = walked.scores[0] * numbers.steps["scores"]
    assert 10 * np.log10(np.square(real).sum() / np.square(near - real).sum()) > 15  # dB
    assert np.mean(near.argmax(axis=1) == real.argmax(axis=1)) > 0.9
    # text that it was not trained with: guessing is 4.17
    assert reference.loss(near.astype(np.float32), tokens) / 63 < 1.8
    assert all(len(np.unique(chosen)) > 5 for chosen in walked.chosen), "eight experts, and most of them needed"
