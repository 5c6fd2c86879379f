"""A language model in floating point: what its integers are compared with, and calibrated by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .activation import ACTIVATIONS
from .model import LanguageModel, Reals, check_reach
from .rotary import Rotary

Tokens = NDArray[np.int64]
#: What a value is called, and the value: for whoever wants to know how large values become.
Watch = Callable[[str, Reals], None]


#: Scores so far below 0 count for nothing beside one of 0.
_FAR = np.float32(8)


def _ignore(_name: str, _value: Reals) -> None:
    """For callers that want the scores only."""


def normalised(x: Reals, epsilon: float = 1e-6) -> Reals:
    """Each token over its root mean square."""
    return x / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + np.float32(epsilon))


def embedded(model: LanguageModel, tokens: Tokens, first: int = 0) -> Reals:
    """What goes into the first layer, [tokens, W]; `first`: position of the first token."""
    x = model.arrays["embedding"][tokens]
    return x + model.arrays["position"][first : first + len(tokens)] if "position" in model.arrays else x


def waves(model: LanguageModel, rotary: Rotary) -> tuple[str, str]:
    """What the cosine and the sine of rotary positions are called."""
    number = model.turns.index(rotary)
    return (f"cos{number}", f"sin{number}") if number else ("cos", "sin")


def turns(model: LanguageModel, count: int, first: int = 0) -> dict[str, Reals]:
    """The cosines and sines (`waves`) by which rotary positions turn each number of a head of so many tokens, [tokens,
    numbers]. Sines are of the angle by which a number turns towards its partner (`swapped`)."""
    result: dict[str, Reals] = {}
    for rotary in model.turns:
        angles = np.arange(first, first + count)[:, None] * np.array(rotary.frequencies)
        stays = ((0, 0), (0, model.head_width - rotary.turned))
        cos, sin = np.tile(np.cos(angles), (1, 2)), np.concatenate([-np.sin(angles), np.sin(angles)], axis=1)
        for name, wave, still in zip(waves(model, rotary), (cos, sin), (1, 0), strict=True):
            result[name] = np.pad(rotary.factor * wave, stays, constant_values=still).astype(np.float32)
    return result


def swapped(rotary: Rotary, heads: Reals) -> Reals:
    """Each number of a head that turns in the place of its partner, [..., numbers]; the others stay."""
    half = rotary.turned // 2
    return np.concatenate([heads[..., half : 2 * half], heads[..., :half], heads[..., 2 * half :]], axis=-1)


def _linear(model: LanguageModel, name: str, x: Reals) -> Reals:
    """The product of that name, with its bias."""
    return x @ model.arrays[f"{name}.weight"].T + model.arrays.get(f"{name}.bias", np.float32(0))


def scores(model: LanguageModel, tokens: Tokens, watch: Watch = _ignore) -> Reals:
    """Scores of the next token behind each token, [tokens, V]. `watch` is told each value by the name that
    `graph.step_graph` has for it. Raises LanguageError for a model whose numbers grow beyond what floats hold."""

    def checked(name: str, value: Reals) -> None:
        check_reach(f"model {model.name}", name, value)
        watch(name, value)

    with np.errstate(all="ignore"):  # what overflows is refused by its value, not by what a processor flags
        return _scores(model, tokens, checked)


def _scores(model: LanguageModel, tokens: Tokens, watch: Watch) -> Reals:
    x = embedded(model, tokens)
    count, by_head = len(tokens), (len(tokens), model.groups, -1, model.head_width)
    causal = np.triu(np.full((count, count), -np.inf, np.float32), 1)
    slopes = np.array(model.slopes, np.float32).reshape(-1, model.sharing, 1, 1)
    apart = slopes * np.minimum(np.arange(count) - np.arange(count)[:, None], 0).astype(np.float32)
    watch("x", x)
    for layer in range(model.layers):
        y = _read(model, f"{layer}/attend", x, watch)
        q, k = _placed(model, layer, "q", y, watch, model.score_gain), _placed(model, layer, "k", y, watch)
        v = _linear(model, f"{layer}/v", y)
        watch(f"{layer}/v", v)
        q, k, v = (value.reshape(by_head).transpose(1, 2, 0, 3) for value in (q, k, v))
        scored = q @ k.swapaxes(2, 3)
        seen = np.where(causal < 0, np.float32(0), scored).astype(np.float32)
        if model.score_cap:
            watch(f"{layer}/uncapped", seen)
            scored, seen = (capped(each, model.score_cap) for each in (scored, seen))
        watch(f"{layer}/scores", seen)
        if model.slopes:
            scored = scored + apart
            watch(f"{layer}/scores", np.maximum(np.where(causal < 0, np.float32(0), scored), -_FAR))
        e = np.exp(scored + causal - (scored + causal).max(axis=-1, keepdims=True))
        mixed = (e / e.sum(axis=-1, keepdims=True) @ v).transpose(2, 1, 0, 3).reshape(count, -1)
        watch(f"{layer}/mixed", mixed)
        x = x + _added(model, f"{layer}/o", mixed, watch)
        watch(f"{layer}/y", x)
        if not model.parallel:
            y = _read(model, f"{layer}/feed", x, watch)
        if model.experts(layer):
            x = x + _mixture(model, layer, y, watch)
        else:
            x = x + _added(model, f"{layer}/down", _hidden(model, layer, y, watch), watch)
        watch(f"{layer}/z", x)
    y = normalised(x, model.epsilon)
    watch("last", y)
    result = y @ model.arrays["output"].T + model.arrays.get("output.bias", np.float32(0))
    if model.output_cap:
        watch("uncapped", result)
        result = capped(result, model.output_cap)
    watch("scores", result)
    return result


def capped(x: NDArray[Any], cap: float) -> NDArray[Any]:
    """What comes near `cap` and minus that, and never beyond."""
    return (np.tanh(x / cap) * cap).astype(x.dtype)


def _read(model: LanguageModel, name: str, x: Reals, watch: Watch) -> Reals:
    """What the first products of half a layer read of the residual."""
    if model.bare:
        return x
    y = normalised(x, model.epsilon)
    watch(name, y)
    return y


def _placed(model: LanguageModel, layer: int, name: str, x: Reals, watch: Watch, gain: float = 1.0) -> Reals:
    """Queries or keys, normalised and turned by their positions if they are."""
    at, rotary = f"{layer}/{name}", model.turn(layer)
    value = _linear(model, at, x)
    if (gains := model.arrays.get(f"{at}.gain")) is not None:
        watch(f"{at}/long", value)
        parts = value.reshape(len(value), model.parts(name), -1)
        over = normalised(parts, model.epsilon).reshape(value.shape)
        watch(f"{at}/over", over)
        value = over * gains
    value = value * np.float32(gain)
    if rotary:
        watch(at, value)  # what is turned is in the step of what comes of it
        turn = turns(model, len(x))
        cos, sin = (turn[wave][:, None] for wave in waves(model, rotary))
        heads = value.reshape(len(x), -1, model.head_width)
        value = (heads * cos + swapped(rotary, heads) * sin).reshape(value.shape)
    watch(at, value)
    return value


def _added(model: LanguageModel, name: str, x: Reals, watch: Watch) -> Reals:
    """The product of that name as it is added to the residual: normalised, if it is."""
    value = _linear(model, name, x)
    if (gains := model.arrays.get(f"{name}.gain")) is None:
        return value
    watch(f"{name}/long", value)
    over = normalised(value, model.epsilon)
    watch(f"{name}/over", over)
    return over * gains


def _hidden(model: LanguageModel, layer: int, y: Reals, watch: Watch) -> Reals:
    """What is between the two products of a layer."""
    raised, act = _linear(model, f"{layer}/up", y), ACTIVATIONS[model.activation]
    if model.gated:
        gate = _linear(model, f"{layer}/gate", y)
        active = act(gate).astype(np.float32)
        watch(f"{layer}/gate", gate)
        watch(f"{layer}/active", active)
        watch(f"{layer}/raised", raised)
        hidden = active * raised
    else:
        if model.activation != "relu":
            watch(f"{layer}/raised", raised)
        hidden = act(raised).astype(np.float32)
    watch(f"{layer}/hidden", hidden)
    return hidden


def routed(scores: NDArray[Any], top: int) -> NDArray[np.int64]:
    """The experts that each token takes, [tokens, top], by number; of equal scores the first. `scores`: [tokens, E]."""
    return np.sort(np.argsort(-scores.astype(np.float64), axis=-1, kind="stable")[:, :top], axis=-1)


def gates(scores: NDArray[Any], chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    """A softmax of the scores of the `chosen` experts, [tokens, top]."""
    some = np.take_along_axis(scores, chosen, axis=-1).astype(np.float64)
    e = np.exp(some - some.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _mixture(model: LanguageModel, layer: int, y: Reals, watch: Watch) -> Reals:
    """What the experts of a layer add to the residual."""
    rated = y @ model.arrays[f"{layer}/router.weight"].T
    watch(f"{layer}/router", rated)
    chosen = routed(rated, model.top)
    weights = gates(rated, chosen).astype(np.float32)
    result = np.zeros_like(y)
    for expert in range(model.experts(layer)):
        rows, places = np.nonzero(chosen == expert)
        if len(rows):
            hidden = np.maximum(y[rows] @ model.arrays[f"{layer}/up.weight"][expert].T, 0)
            watch(f"{layer}/hidden", hidden)
            gated = hidden * weights[rows, places, None]
            watch(f"{layer}/gated", gated)
            result[rows] += gated @ model.arrays[f"{layer}/down.weight"][expert].T
    return result


def loss(rows: Reals, tokens: Tokens) -> float:
    """Sum of the cross-entropies, in nats, of each token after the first. `rows`: scores behind each, [tokens, V]."""
    before = rows[:-1].astype(np.float64)
    top = before.max(axis=-1)
    logs = top + np.log(np.exp(before - top[:, None]).sum(axis=-1))
    return float((logs - before[np.arange(len(before)), tokens[1:]]).sum())
