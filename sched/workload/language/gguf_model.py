"""What a GGUF file says of a model, as transformers would say it: the configuration, and tensors by its names.

llama.cpp stores the same models with other names and keys; the library `gguf` knows which tensor is which. Some it
stores another way round, which is undone here.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .checkpoint import Weights
from .gguf_architectures import ARCHITECTURES, transposed
from .gguf_file import GgufFile
from .gguf_tokens import ends, tokenizer
from .model import LanguageError, LanguageModel, Reals
from .tokenizer import Pieces

if TYPE_CHECKING:
    from .family import Family

#: Factors of frequencies, of all texts or of those no longer than the training's.
_FACTORS = ("rope_freqs.weight", "rope_factors_short.weight")
#: How the names of other tensors end that say how positions turn: of longer texts, and what follows from the metadata.
_TURNING = ("rope_factors_long.weight", "attn_rot_embd.weight", "rope_freqs.weight")


class GgufModel:
    """A model in a file: see `stored.StoredModel`. Raises LanguageError for an architecture that is not read."""

    def __init__(self, file: GgufFile) -> None:
        self.file, self.place = file, file.where
        self.name, self.table = Path(file.where).stem, f"{file.where}: metadata"
        name: Any = file.values.get("general.architecture")
        if name not in ARCHITECTURES:
            raise LanguageError(
                f"{file.where}: general.architecture is {name!r}; those that are read are "
                f"{', '.join(sorted(ARCHITECTURES))}. Others may run from the folder of transformers' that the file "
                "was converted from, or as an ONNX file (`meshloom run`)"
            )
        self._prefix, self._own = str(name), ARCHITECTURES[name]
        self._read: set[str] = set()
        if self._value("expert_count"):
            raise LanguageError(f"{file.where}: its layers have experts, which are not read; take another model")
        if self._value("attention.causal") is False:
            raise LanguageError(f"{file.where}: its tokens look at those behind them; take a model that writes text")

    def configuration(self) -> dict[str, Any]:
        result: dict[str, Any] = {"model_type": self._own.kind, **self._turned()}
        result["tie_word_embeddings"] = "output.weight" not in self.file.tensors
        if scaling := self._scaling():
            result["rope_scaling"] = scaling
        for name, key in self._own.keys.items():
            if (value := self._value(key)) is not None:
                table, _, field = name.rpartition(".")
                (result.setdefault(table, {}) if table else result)[field] = value
        return result

    def _scaling(self) -> dict[str, Any] | None:
        """How positions are stretched."""
        kind, own = self._value("rope.scaling.type"), next((n for n in _FACTORS if n in self.file.tensors), None)
        grown = self._value("rope.scaling.attn_factor") or 1.0
        trained = self._value("rope.scaling.original_context_length") or self._value("context_length")
        if own:
            factors = self.file.tensor(own).reshape(-1).tolist()
            longest = {"original_max_position_embeddings": trained, "short_factor": factors}
            return {"rope_type": "longrope", "attention_factor": grown, **longest}
        if kind in (None, "none"):
            return None
        if grown != 1:
            raise LanguageError(
                f"{self.table}: {self._prefix}.rope.scaling.attn_factor is {grown}, which is read beside factors of "
                "frequencies alone; take another model"
            )
        return {
            "rope_type": kind,
            "factor": self._value("rope.scaling.factor"),
            "original_max_position_embeddings": trained,
        }

    def _turned(self) -> dict[str, Any]:
        """What of each head turns by its position, if not all of it."""
        turned, heads = self._value("rope.dimension_count"), self._value("attention.head_count")
        width = self._value("embedding_length")
        numbers = isinstance(width, int) and isinstance(heads, int) and heads > 0
        each = self._value("attention.key_length") or (width // heads if numbers else None)
        if turned is None or each is None or turned == each:
            return {}
        if not self._own.partial:
            raise LanguageError(
                f"{self.table}: {self._prefix}.rope.dimension_count is {turned} of {each} numbers of a head, which "
                "models of this kind do not have; convert the model again"
            )
        whole = isinstance(turned, int) and isinstance(each, int) and each > 0
        return {"partial_rotary_factor": turned / each if whole else turned}

    def field(self, name: str) -> str:
        return f"{self._prefix}.{self._own.keys.get(name, name)}"

    def weights(self, family: Family) -> Weights:
        return _GgufWeights(self)

    def check(self, model: LanguageModel) -> None:
        """A file with a tensor that the family does not have is of a model that computes something else."""
        known = {*self._read, *(name for name in self.file.tensors if name.endswith((*_FACTORS, *_TURNING)))}
        if own := min(self.file.tensors - known, default=None):
            raise LanguageError(
                f"{self.place}: has a tensor {own!r}, which models of {self._prefix} do not have here; take another "
                "model"
            )

    def tokenizer(self) -> Pieces:
        return tokenizer(self.file)

    def ends(self) -> tuple[int, ...]:
        return ends(self.file)

    @property
    def prefixed(self) -> bool:
        """Whether the library knows names with what transformers' begin with."""
        return not self._own.bare

    def tensor(self, name: str) -> str | None:
        """What the file calls a tensor of transformers', None if it has none of that name."""
        own = self._names.get_name(name, try_suffixes=(".weight", ".bias"))
        return own if own in self.file.tensors else None

    @cached_property
    def _names(self) -> Any:
        """The library's table of names."""
        from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, get_tensor_name_map

        architecture = next(each for each in MODEL_ARCH if MODEL_ARCH_NAMES[each] == self._prefix)
        return get_tensor_name_map(architecture, self._value("block_count"))  # which the configuration has bounded

    def shape(self, name: str, own: str) -> tuple[int, ...]:
        """Of a tensor as transformers has it; `own`: what the file calls it."""
        shape = self.file.shape(own)
        return shape[::-1] if self._own.turn(name) is transposed else shape

    def read(self, name: str, own: str) -> Reals:
        """A tensor as transformers has it."""
        array, turn = self.file.tensor(own), self._own.turn(name)
        self._read.add(own)
        heads = self._value("attention.head_count")
        return turn(array, self._value("attention.head_count_kv") or heads if "k_proj" in name else heads)

    def _value(self, key: str) -> Any:
        return self.file.values.get(f"{self._prefix}.{key}")


class _GgufWeights(Weights):
    """Its tensors, by transformers' names."""

    sizes, again = "metadata", "convert the model again"

    def __init__(self, model: GgufModel) -> None:
        super().__init__(Path(model.place))
        self._model = model

    def __contains__(self, name: str) -> bool:
        return self._model.tensor(name) is not None

    def has_prefix(self, prefix: str) -> bool:
        return self._model.prefixed

    def _shape(self, name: str) -> tuple[int, ...]:
        return self._model.shape(name, self._own(name))

    def _read(self, name: str) -> Reals:
        return self._model.read(name, self._own(name))

    def _own(self, name: str) -> str:
        own = self._model.tensor(name)
        assert own is not None, "only what is here is read"
        return own
