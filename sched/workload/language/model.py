"""A language model: a decoder, as a file of this project has it or as a folder of transformers' does (`pretrained`).

Each layer is attention and two products with a ReLU between, both behind a division by the root mean square and beside
a residual. A folder's may have another activation, a gate (the second product is then of `act(gate x) * up x`), biases,
and rotary positions instead of `position`. Instead of the two products a layer may have E experts of such products,
and a router: a token takes the `top` experts with the highest scores, by gates that are a softmax of these scores (a
mixture of experts, as in Jiang et al., "Mixtral of Experts", 2024, section 2.1, with ReLU).

A file is a NumPy archive without pickles; `scripts/train_language.py` writes one.

| entry | shape |
|---|---|
| `embedding`, `output` | [V, W], 16-bit floats like all weights |
| `position` | [C, W]: C is the context |
| `N/q.weight`, `N/k.weight`, `N/v.weight`, `N/o.weight` | [W, W], of layer N = 0, 1, ... |
| `N/up.weight`, `N/up.bias`, `N/down.weight`, `N/down.bias` | [F, W], [F], [W, F], [W] |
| `N/router.weight`, `N/up.weight`, `N/down.weight` | [E, W], [E, F, W], [E, W, F]: of a layer with experts |
| `top` | 1..E, if a layer has experts |
| `heads` | a number that divides W |
| `vocabulary` | V characters, in the order of the tokens |
| `calibration`, `held_out` | text: for the steps of the integers, and for the perplexity |
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import near_or_all

from ...support.archives import DAMAGE, read_archive
from ..layers import WorkloadError
from ..zoo import DATA
from .instead import name_instead
from .rotary import Rotary
from .tokenizer import Characters, Tokenizer

#: Models that ship, by name.
SHIPPED = ("shakespeare", "shakespeare_experts")
#: Largest file and number of weights that are read.
MOST_BYTES, MOST_NUMBERS = 1 << 28, 1 << 24
#: How far numbers of a model may be from 0: the mean square of a token's is then far from what a float holds.
FARTHEST = 1e15

Reals = NDArray[np.float32]


class LanguageError(WorkloadError):
    """A file that is no language model, or a text that a model cannot take; the message names the mend."""


class TokenError(LanguageError):
    """A text that a model's tokenizer has no tokens for."""


def check_reach(where: str, name: str, value: NDArray[Any]) -> None:
    """Raises LanguageError for numbers that are not finite, or that are beyond `FARTHEST`."""
    if not value.size or np.abs(value).max() <= FARTHEST:  # which says no for nan
        return
    raise LanguageError(
        f"{where}: its numbers reach beyond {FARTHEST:.0e} in {name!r}, whose squares floats of 32 bits do not hold; "
        "the file may be damaged: write or fetch it again"
    )


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A model: `arrays` are its weights by name, as in the file, float32; beside the file's there may be
    `N/gate.weight`, and a bias of any product. `activation`: between a layer's products (`activation.ACTIVATIONS`).
    `rotary`: of each layer, None for one in which positions turn nothing; () without: a model with rotary positions
    has no `position`, and looks at `longest` tokens. `parallel`: a layer's products read what its attention reads;
    `bare`: they read the residual as it is. `reach`: tokens that it could look at with another context, 0 for no more.
    `gain`: of scores, 0 for one over the root of a head's width; `slopes`: by head, by how much the score of a key is
    less with each token that it is farther away (ALiBi), () for none; `epsilon`: beside a mean of squares. `ends`:
    tokens behind which a text is over.

    `N/k.weight` and `N/v.weight` may have fewer rows than `N/q.weight`, whose heads then share keys and values: those
    of a group follow each other. `N/o.weight` reads the first head of each group, then the second of each, ...

    With `N/q.gain` and `N/k.gain` queries and keys are normalised before positions turn them, queries in `normed` parts
    (all of them, or heads), and multiplied by that. With `N/o.gain` and `N/down.gain` that is done with what is added
    to the residual. `score_cap`, `output_cap`: c of c tanh(x / c), which scores of keys and of tokens become; 0 for
    none."""

    name: str
    arrays: dict[str, Reals]
    heads: int
    tokenizer: Tokenizer
    calibration: str
    held_out: str
    top: int = 0
    activation: str = "relu"
    rotary: tuple[Rotary | None, ...] = ()
    parallel: bool = False
    bare: bool = False
    normed: int = 0
    longest: int = 0
    reach: int = 0
    gain: float = 0.0
    score_cap: float = 0.0
    output_cap: float = 0.0
    epsilon: float = 1e-6
    ends: tuple[int, ...] = ()
    slopes: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """Numbers of a token between layers."""
        return self.arrays["embedding"].shape[1]

    @property
    def context(self) -> int:
        """Tokens that it can look at."""
        return len(self.arrays["position"]) if "position" in self.arrays else self.longest

    @property
    def head_width(self) -> int:
        """Numbers of a head."""
        return len(self.arrays["0/q.weight"]) // self.heads

    @property
    def key_width(self) -> int:
        """Numbers of all keys of a token, and of its values."""
        return len(self.arrays["0/k.weight"])

    @property
    def groups(self) -> int:
        """How many keys and values a token has: those of a group are for several heads."""
        return self.key_width // self.head_width

    @property
    def sharing(self) -> int:
        """Heads of a group."""
        return self.heads // self.groups

    def parts(self, name: str) -> int:
        """In how many parts queries ("q") or keys ("k") are normalised."""
        return min(self.normed, self.groups) if name == "k" else self.normed

    @property
    def gated(self) -> bool:
        """Whether its layers have gates."""
        return "0/gate.weight" in self.arrays

    @property
    def decisive(self) -> str:
        """What decides its tokens besides `arrays`, and is not usual: empty for a model of an archive."""
        usual = {field.name: field.default for field in fields(self)}
        names = usual.keys() - {"name", "arrays", "heads", "tokenizer", "calibration", "held_out", "top", "reach"}
        own = {name: getattr(self, name) for name in sorted(names) if getattr(self, name) != usual[name]}
        more = {"heads": self.heads, "calibration": self.calibration, "tokenizer": self.tokenizer.digest}
        return str(own | more) if own else ""

    @property
    def turns(self) -> tuple[Rotary, ...]:
        """The rotary positions of its layers, each once."""
        return tuple(dict.fromkeys(rotary for rotary in self.rotary if rotary))

    def turn(self, layer: int) -> Rotary | None:
        """How positions turn queries and keys of a layer."""
        return self.rotary[layer] if self.rotary else None

    @cached_property
    def score_gain(self) -> float:
        """What scores are multiplied by."""
        return self.gain or self.head_width**-0.5

    @property
    def layers(self) -> int:
        """How many layers it has."""
        return sum(name.endswith("/q.weight") for name in self.arrays)

    def experts(self, layer: int) -> int:
        """Experts of a layer; 0 for one that is dense."""
        router = self.arrays.get(f"{layer}/router.weight")
        return 0 if router is None or router.ndim != 2 else len(router)

    @property
    def mixtures(self) -> tuple[int, ...]:
        """The layers with experts."""
        return tuple(layer for layer in range(self.layers) if self.experts(layer))

    @property
    def weights(self) -> int:
        """Weights of all products."""
        return sum(array.size for name, array in self.arrays.items() if name == "output" or name.endswith(".weight"))

    def shortened(self, context: int) -> LanguageModel:
        """The model, which looks at so many tokens, no more than before."""
        positions = {"position": self.arrays["position"][:context]} if "position" in self.arrays else {}
        return replace(self, arrays=self.arrays | positions, longest=context)

    def tokens(self, text: str) -> NDArray[np.int64]:
        """The tokens of a text. Raises LanguageError for a character without one."""
        try:
            tokens = self.tokenizer.tokens(text)
        except ValueError as error:
            raise TokenError(f"model {self.name} {error}") from error
        if (largest := max(tokens, default=0)) >= len(self.arrays["embedding"]):
            raise LanguageError(
                f"model {self.name} has no embedding for token {largest} of its tokenizer; take the tokenizer that it "
                "was trained with"
            )
        return np.array(tokens, np.int64)

    def ended(self, tokens: list[int]) -> bool:
        """Whether a text is over behind these tokens."""
        return bool(tokens) and tokens[-1] in self.ends

    def until_end(self, tokens: list[int]) -> list[int]:
        """The tokens up to the first behind which a text is over."""
        end = next((at for at, token in enumerate(tokens) if token in self.ends), len(tokens))
        return tokens[: end + 1]

    def text(self, tokens: list[int]) -> str:
        """The text of tokens."""
        return self.tokenizer.text(tokens)


def load(name: str) -> LanguageModel:
    """A model that ships, or one in a file. Raises LanguageError, with the nearest names or the mend."""
    path = DATA / f"{name}.npz" if name in SHIPPED else Path(name)
    if name not in SHIPPED and path.suffix != ".npz":
        raise LanguageError(
            f"unknown language model {name!r}: {near_or_all(name, SHIPPED)}, or an .npz file as "
            f"scripts/train_language.py writes it; {name_instead(name)}"
        )
    try:
        if path.stat().st_size > MOST_BYTES:
            raise LanguageError(f"{path}: has more than {MOST_BYTES >> 20} MiB; take a smaller model")
        entries = read_archive(path)
    except OSError as error:
        raise LanguageError(f"{path}: cannot be read ({error.strerror}); name a file that is there") from error
    except DAMAGE as error:
        raise LanguageError(f"{path}: is no NumPy archive ({error}); write it again") from error
    return model_of(path.stem, entries, str(path))


def model_of(name: str, entries: dict[str, NDArray[Any]], where: str) -> LanguageModel:
    """The model of an archive's entries. Raises LanguageError that names the entry; `where`: the file."""
    if "vocabulary" not in entries:
        raise LanguageError(
            f"{where}: has no tokenizer; add an entry `vocabulary`, a string with the character of each token"
        )
    texts: dict[str, str] = {}
    for entry in ("vocabulary", "calibration", "held_out"):
        array = entries.pop(entry, np.array(0))
        if array.dtype.kind != "U" or array.ndim:
            raise LanguageError(f"{where}: entry {entry!r} is missing or no string; write the model again")
        texts[entry] = str(array)
    heads = entries.pop("heads", np.array(0))
    if heads.dtype.kind not in "iu" or heads.ndim or not 1 <= int(heads) <= 255:
        raise LanguageError(f"{where}: entry 'heads' is no number in 1..255; write the model again")
    top = entries.pop("top", np.array(0))
    if top.dtype.kind not in "iu" or top.ndim or not 0 <= int(top) <= 255:
        raise LanguageError(f"{where}: entry 'top' is no number in 1..255; write the model again")
    arrays: dict[str, Reals] = {}
    for entry, array in entries.items():
        if array.dtype.kind != "f" or not np.isfinite(array).all():
            raise LanguageError(
                f"{where}: entry {entry!r} holds other things than finite floats; write the model again"
            )
        arrays[entry] = array.astype(np.float32)
    if sum(array.size for array in arrays.values()) > MOST_NUMBERS:
        raise LanguageError(f"{where}: has more than {MOST_NUMBERS} weights; take a smaller model")
    vocabulary = texts.pop("vocabulary")
    tokenizer, calibration, held_out = Characters(vocabulary), texts["calibration"], texts["held_out"]
    model = LanguageModel(name, arrays, int(heads), tokenizer, calibration, held_out, int(top))
    _check(model, vocabulary, where)
    return model


def _check(model: LanguageModel, characters: str, where: str) -> None:
    """Raises LanguageError for entries that are missing, left over or of another shape, and for texts that do not go
    with the vocabulary."""
    embedding, position, up = (model.arrays.get(name) for name in ("embedding", "position", "0/up.weight"))
    if embedding is None or position is None or up is None or not embedding.ndim == position.ndim == 2 <= up.ndim <= 3:
        raise LanguageError(
            f"{where}: 'embedding', 'position' or '0/up.weight' is missing or no matrix; write it again"
        )
    (vocabulary, width), context, hidden = embedding.shape, len(position), up.shape[-2]
    shapes = {"embedding": (vocabulary, width), "output": (vocabulary, width), "position": (context, width)}
    for layer in range(model.layers):
        shapes |= {f"{layer}/{name}.weight": (width, width) for name in "qkvo"}
        if experts := model.experts(layer):
            shapes |= {f"{layer}/router.weight": (experts, width), f"{layer}/up.weight": (experts, hidden, width)}
            shapes[f"{layer}/down.weight"] = experts, width, hidden
            continue
        shapes |= {f"{layer}/up.weight": (hidden, width), f"{layer}/up.bias": (hidden,)}
        shapes |= {f"{layer}/down.weight": (width, hidden), f"{layer}/down.bias": (width,)}
    for name in sorted(shapes.keys() | model.arrays.keys()):
        have, must = model.arrays.get(name), shapes.get(name)
        if have is None or must is None or have.shape != must or not have.size:
            raise LanguageError(
                f"{where}: entry {name!r} is {'missing' if have is None else list(have.shape)}, must be "
                f"{'left out' if must is None else list(must)}"
            )
    if len(set(characters)) != vocabulary or len(characters) != vocabulary:
        raise LanguageError(
            f"{where}: the vocabulary has {len(set(characters))} different characters, the embedding "
            f"{vocabulary} rows; give each row one"
        )
    fewest = min(map(model.experts, model.mixtures), default=0)
    if model.top > fewest or (fewest and not model.top):
        have = f"layers with {fewest} experts" if fewest else "no layer with experts"
        raise LanguageError(
            f"{where}: top = {model.top}, and it has {have}; "
            + (f"say how many a token takes: 1..{fewest}" if fewest else "leave `top` out")
        )
    if width % model.heads:
        raise LanguageError(f"{where}: {model.heads} heads do not divide a width of {width}; write the model again")
    for text in (model.calibration, model.held_out):
        if len(model.tokens(text)) < 2:
            raise LanguageError(f"{where}: 'calibration' and 'held_out' must have two characters at least")
