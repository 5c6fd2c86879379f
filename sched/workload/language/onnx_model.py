"""A language model in an ONNX file, beside the configuration of transformers': as optimum and ONNX Runtime GenAI write
it.

The configuration says what the family computes, the file has the weights (`onnx_file`). Whether the file computes that
is seen by running it: ONNX Runtime's scores of a few tokens must be those of what was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from . import reference
from .checkpoint import CONFIG, INDEX, WEIGHTS, Weights, read_table
from .layout import TensorLayout
from .model import LanguageError, LanguageModel, Reals
from .onnx_file import TOKENS, DecoderFile, DecoderTensor
from .onnx_witness import scores
from .stored import ModelFolder, end_tokens

if TYPE_CHECKING:
    from .family import Family

SUFFIX = ".onnx"
#: Names that a decoder has in a folder, the most exact first.
_NAMES = (
    "model", "decoder_model", "decoder_model_merged", "decoder_with_past_model", "model_fp16", "model_int8",
    "model_uint8", "model_quantized", "model_q8", "model_q4", "model_q4f16", "model_bnb4",
)  # fmt: skip
_GENAI = "genai_config.json"
#: Where that has what a configuration of transformers' says.
_SIZES = {
    "model_type": "type", "hidden_size": "hidden_size", "num_hidden_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads", "num_key_value_heads": "num_key_value_heads",
    "head_dim": "head_size", "max_position_embeddings": "context_length",
}  # fmt: skip
#: Tokens whose scores are compared, and how far these may be apart, in parts of their spread: of weights as they are,
#: of 16 bits, and of integers, with which ONNX Runtime rounds what they multiply, too.
_COMPARED, _FAR = 12, {"float": 2e-3, "half": 5e-2, "integer": 0.3}


def file_of(path: Path) -> Path | None:
    """The ONNX file that a path names, or that its folder has instead of other weights; None if there is none. Raises
    LanguageError where it is not clear which."""
    if path.suffix.lower() == SUFFIX and not path.is_dir():
        return path
    folder = path if path.is_dir() else path.parent
    if any((folder / name).exists() for name in (WEIGHTS, INDEX)) or any(folder.glob("*.safetensors")):
        return None
    files = [file for place in (folder, folder / "onnx") for file in sorted(place.glob(f"*{SUFFIX}"))]
    if (folder / _GENAI).is_file():
        name = _tables(folder / _GENAI).get("filename")
        files = [file for file in files if file.name == name] or files
    if any(file.name.startswith("encoder_model") for file in files):
        raise LanguageError(
            f"{folder}: is an encoder with a decoder, and a step of a text reads what it has written alone; take a "
            "decoder, or run each of its files (`meshloom run`)"
        )
    first = next((file for name in _NAMES for file in files if file.stem == name), None)
    if first is None and len(files) > 1:
        names = ", ".join(str(file.relative_to(folder)) for file in files)
        raise LanguageError(f"{folder}: has {names}; name the one that is the language model")
    return first or next(iter(files), None)


def _tables(path: Path) -> dict[str, Any]:
    """What GenAI says of a model, and of its decoder. Raises LanguageError."""
    model: Any = read_table(path).get("model")
    decoder: Any = cast("dict[str, Any]", model).get("decoder") if isinstance(model, dict) else None
    return {name: value for each in (decoder, model) if isinstance(each, dict) for name, value in each.items()}  # pyright: ignore[reportUnknownVariableType]  (JSON)


class OnnxModel(ModelFolder):
    """A model in a file: see `stored.StoredModel`."""

    def __init__(self, path: Path) -> None:
        places = (path.parent, path.parent.parent)
        tables = (CONFIG, _GENAI)
        folder = next((place for table in tables for place in places if (place / table).is_file()), None)
        if folder is None:
            raise LanguageError(
                f"{path}: has no {CONFIG} beside it, which says what the model computes; put that of the model there "
                f"that it was made of, and its tokenizer.json (`hf download NAME {CONFIG} tokenizer.json`), or run the "
                "file as a network (`meshloom run`)"
            )
        super().__init__(folder)
        self._path = path

    @property
    def place(self) -> str:
        return str(self._path)

    @property
    def table(self) -> str:
        return super().table if (self.folder / CONFIG).is_file() else str(self.folder / _GENAI)

    def configuration(self) -> dict[str, Any]:
        """That of GenAI has sizes; what else the family decides is usual, or its nodes have it."""
        if (self.folder / CONFIG).is_file():
            return super().configuration()
        own = _tables(self.folder / _GENAI)
        values = {name: own.get(key) for name, key in _SIZES.items()}
        values |= {"rms_norm_eps": self._file.epsilon, "rope_theta": self._file.base, "tie_word_embeddings": True}
        return {name: value for name, value in values.items() if value is not None}

    def ends(self) -> tuple[int, ...]:
        if (self.folder / CONFIG).is_file():
            return super().ends()
        return end_tokens(self.table, _tables(self.folder / _GENAI).get("eos_token_id"))

    @cached_property
    def _file(self) -> DecoderFile:
        return DecoderFile(self._path)

    def weights(self, family: Family) -> Weights:
        return _OnnxWeights(self._file, family)

    def check(self, model: LanguageModel) -> None:
        """Raises LanguageError for a file whose scores are not the model's."""
        tokens = model.tokens(model.calibration)[: min(_COMPARED, model.context)]
        own = scores(self._path, tokens)
        read = reference.scores(model, tokens)[-len(own) :]
        kind = "integer" if self._file.quantised else "half" if self._file.half else "float"
        spread = float((read - read.mean(axis=-1, keepdims=True)).std())
        apart = float(np.sqrt(np.mean(np.square(own - read)))) if own.shape == read.shape else np.inf
        if not apart <= _FAR[kind] * spread:
            raise LanguageError(
                f"{self._path}: ONNX Runtime's scores of {len(tokens)} tokens are {apart:.2g} from those of the "
                f"weights that were read, of a spread of {spread:.2g}: the file does not compute what {self.table} "
                "says; take the folder that it was exported from, or run it as a network (`meshloom run`)"
            )


class _OnnxWeights(Weights):
    """The tensors of a file, by transformers' names."""

    again = "take the file that optimum exports (model.onnx), or the folder of safetensors that it was made of"

    def __init__(self, file: DecoderFile, family: Family) -> None:
        super().__init__(file.path)
        self._layout, self._form = family.names, family.decoder
        layout, shape, named = self._layout, self._form.shape, _by_name(file.tensors)
        sizes = {shape.width, shape.each, shape.heads * shape.each, shape.groups * shape.each}
        products = [tensor for tensor in file.tensors if tensor.product]
        gains = [tensor for tensor in file.tensors if tensor.whole and tensor.array.size in sizes]
        self._tensors = (
            named
            | _by_order(named, products, _in_order(layout, shape.layers, _PRODUCTS, "lm_head"))
            | _by_order(named, gains, _in_order(layout, shape.layers, _GAINS, layout.last))
        )

    def __contains__(self, name: str) -> bool:
        return self._tensor(name) is not None

    def has_prefix(self, prefix: str) -> bool:
        return True  # names are looked for by their ends

    def _shape(self, name: str) -> tuple[int, ...]:
        return self._read(name).shape

    def _read(self, name: str) -> Reals:
        array = self._tensor(name)
        assert array is not None, "only what is here is read"
        return array

    def _tensor(self, name: str) -> Reals | None:
        """A tensor as transformers has it."""
        own = name.removeprefix(self._layout.prefix)
        prefix = self._layout.prefix.split(".")
        ends = (".".join(prefix[first:]) + own for first in range(len(prefix)))  # a layer's may end like another one
        for each in (*ends, *self._others(own)):
            if (tensor := self._tensors.get(each)) is not None:
                if tensor.product:
                    return tensor.array.T if self._layout.transposed and own.startswith(self._stem) else tensor.array
                return tensor.array - np.float32(self._form.more) if tensor.whole else tensor.array
        return self._part(own) if own.startswith(self._stem) else None

    @property
    def _stem(self) -> str:
        """What names of layers begin with."""
        return self._layout.layer.partition("{}")[0]

    def _others(self, name: str) -> Iterator[str]:
        """What ONNX Runtime GenAI calls a tensor, whose names are those of Llama."""
        layout, (place, kind) = self._layout, name.rsplit(".", 1)
        last = f"layers.{self._form.shape.layers}.final_norm_layernorm"
        if place in (layout.last, layout.embedding):
            yield from (f"{last}.{kind}",) if place == layout.last else (f"embed_tokens.{kind}", TOKENS)
        if not name.startswith(self._stem):
            return
        number, _, own = place.removeprefix(self._stem).partition(".")
        fields = tuple(field for field in _GENAI_NAMES if own and own == getattr(layout, field))
        names = _GENAI_NAMES[fields[0]] if len(fields) == 1 else _FUSED.get(fields, ())
        yield from (f"layers.{number}.{each}.{kind}" for each in names)

    def _part(self, name: str) -> Reals | None:
        """A product whose rows are some of another's here, or that has those of several: of queries, keys and values,
        of gates and what they are for."""
        layout, shape = self._layout, self._form.shape
        place, kind = name.rsplit(".", 1)
        number, _, own = place.removeprefix(self._stem).partition(".")
        if layout.gate and layout.gate == layout.up == own:
            return self._joined(f"layers.{number}.mlp.{each}_proj.{kind}" for each in ("gate", "up"))
        if layout.q == layout.k == own and not layout.by_group:
            return self._joined(f"layers.{number}.attn.{each}_proj.{kind}" for each in "qkv")
        packed = self._tensors.get(f"layers.{number}.attn.qkv_proj.{kind}")
        rows = [0, shape.heads, shape.heads + shape.groups, shape.heads + 2 * shape.groups]
        if packed is None or own not in (layout.q, layout.k, layout.v) or len(packed.array) != rows[-1] * shape.each:
            return None
        at = (layout.q, layout.k, layout.v).index(own)
        return packed.array[rows[at] * shape.each : rows[at + 1] * shape.each]

    def _joined(self, names: Iterator[str]) -> Reals | None:
        parts = [self._tensors.get(name) for name in names]
        return np.concatenate([part.array for part in parts if part]) if all(parts) else None


#: What GenAI calls the products and normalisations of a layer, by the fields of a layout.
_GENAI_NAMES: dict[str, tuple[str, ...]] = {
    **{name: (f"attn.{name}_proj",) for name in "qkvo"},
    "q_norm": ("attn.q_norm",), "k_norm": ("attn.k_norm",),
    "gate": ("mlp.gate_proj",), "up": ("mlp.up_proj", "mlp.fc1"), "down": ("mlp.down_proj", "mlp.fc2"),
    "attend": ("input_layernorm",), "feed": ("post_attention_layernorm", "input_layernorm"),
}  # fmt: skip
#: The same of products that are one in the model.
_FUSED: dict[tuple[str, ...], tuple[str, ...]] = {
    ("q", "k", "v"): ("attn.qkv_proj",),
    ("gate", "up"): ("mlp.gate_up_proj",),
}


_PRODUCTS = ("q", "k", "v", "o", "gate", "up", "down")
_GAINS = ("attend", "q_norm", "k_norm", "o_norm", "feed", "down_norm")


def _in_order(layout: TensorLayout, layers: int, fields: tuple[str, ...], last: str) -> list[str]:
    """The weights of these fields of a layout in the order in which a decoder comes to them."""
    own = dict.fromkeys(name for name in (getattr(layout, field) for field in fields) if name)
    names = (f"{layout.layer.format(layer)}{name}" for layer in range(layers) for name in own)
    return [f"{name}.weight" for name in (*names, last) if name]


def _by_name(tensors: Sequence[DecoderTensor]) -> dict[str, DecoderTensor]:
    """Tensors by the ends of their names, the surest first."""
    result: dict[str, DecoderTensor] = {}
    ordered = sorted(tensors, key=lambda tensor: not tensor.product)  # scales stand where their product does
    for rank in range(3):
        for tensor in ordered:
            parts = tensor.names[rank].split(".") if rank < len(tensor.names) else []
            for first in range(max(1, len(parts) - 1)):
                result.setdefault(".".join(parts[first:]), tensor)
    return result


def _by_order(
    named: Mapping[str, DecoderTensor], tensors: list[DecoderTensor], expected: list[str]
) -> dict[str, DecoderTensor]:
    """Tensors by their order, if there are as many as the family has, and those with names have theirs."""
    own = {id(tensor) for tensor in tensors}
    pairs = dict(zip(expected, tensors, strict=False))
    others = (name for name in expected if id(named.get(name)) in own and named[name] is not pairs.get(name))
    return {} if len(tensors) != len(expected) or any(others) else pairs
