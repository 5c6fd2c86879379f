"""The files of a folder that transformers' `save_pretrained` has written: tables as JSON, tensors as safetensors."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from .instead import instead, pulled, weights_instead
from .model import LanguageError, Reals

CONFIG, GENERATION, TOKENIZER, INDEX, WEIGHTS = (
    "config.json", "generation_config.json", "tokenizer.json", "model.safetensors.index.json", "model.safetensors",
)  # fmt: skip
#: Bytes of tensors that are read, of all files together, and of a table.
_MOST_BYTES, _MOST_TABLE = 1 << 30, 1 << 26


def read_table(path: Path) -> dict[str, Any]:
    """A table of JSON. Raises LanguageError."""
    try:
        check_size(path)
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise LanguageError(f"{path}: is missing; {instead(path.parent)}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise LanguageError(f"{path}: cannot be read ({error}); save the model again") from error
    if not isinstance(content, dict):
        raise LanguageError(f"{path}: is no table; save the model again")
    return cast("dict[str, Any]", content)


def check_size(path: Path) -> None:
    """Raises LanguageError for a table that is too large, OSError."""
    if path.stat().st_size > _MOST_TABLE:
        raise LanguageError(f"{path}: has more than {_MOST_TABLE >> 20} MiB; save the model again")


class Weights(ABC):
    """The tensors of a model: `weights(name, *shape)` is one of that shape (0: any size), float32. `folder`: where they
    are; `sizes`: the table that says how large they must be; `again`: what to do with those that are not as they should
    be. What calls a tensor by its name raises LanguageError for one that is missing, of another shape, no floating
    point or not finite."""

    sizes, again = CONFIG, "save the model again"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def __contains__(self, name: str) -> bool: ...

    @abstractmethod
    def has_prefix(self, prefix: str) -> bool:
        """Whether the name of a tensor begins so."""

    @abstractmethod
    def _shape(self, name: str) -> tuple[int, ...]: ...

    @abstractmethod
    def _read(self, name: str) -> Reals: ...

    def __call__(self, name: str, *shape: int) -> Reals:
        if name not in self:
            raise LanguageError(f"{self.folder}: its weights have no {name!r}; {self.again}")
        have = self._shape(name)
        if len(have) != len(shape) or any(must not in (0, size) for size, must in zip(have, shape, strict=True)):
            raise LanguageError(
                f"{self.folder}: {name!r} is {list(have)}, must be [{', '.join(str(size or 'any') for size in shape)}] "
                f"by its {self.sizes}; {self.again}"
            )
        array = self._read(name)
        if not np.isfinite(array).all():
            raise LanguageError(f"{self.folder}: {name!r} holds other things than finite numbers; {self.again}")
        return array


class FolderWeights(Weights):
    """Those of a folder. Raises LanguageError for files that are missing or damaged."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        names = _files(folder)
        if missing := [name for name in names if not (folder / name).is_file()]:
            raise LanguageError(f"{folder}: has no {missing[0]}; {weights_instead(folder)}")
        if sum((folder / name).stat().st_size for name in names) > _MOST_BYTES:
            raise LanguageError(f"{folder}: has weights of more than {_MOST_BYTES >> 20} MiB; take a smaller model")
        self._tensors: dict[str, dict[str, Any]] = {}
        for name in names:
            self._tensors |= _tensors(folder / name)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def has_prefix(self, prefix: str) -> bool:
        return any(name.startswith(prefix) for name in self._tensors)

    def _shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name]["shape"])

    def _read(self, name: str) -> Reals:
        tensor = self._tensors[name]
        array: NDArray[Any] = np.frombuffer(tensor["data"], self._dtype(name, tensor["dtype"])).reshape(tensor["shape"])
        with np.errstate(over="ignore"):
            return array.astype(np.float32)

    def _dtype(self, tensor: str, name: str) -> np.dtype[Any]:
        import ml_dtypes

        types = {"F32": np.float32, "F16": np.float16, "F64": np.float64, "BF16": ml_dtypes.bfloat16}
        if name not in types:
            raise LanguageError(
                f"{self.folder}: {tensor!r} has numbers of type {name}; save it in floating point (F32, F16, BF16): "
                "weights are rounded here"
            )
        return np.dtype(types[name])


def _files(folder: Path) -> list[str]:
    """The files with tensors, by the index if there is one. Raises LanguageError."""
    index = folder / INDEX
    if not index.is_file():
        return [WEIGHTS]
    table: Any = read_table(index).get("weight_map")
    places = cast("dict[str, Any]", table) if isinstance(table, dict) else dict[str, Any]()
    names = sorted({str(place) for place in places.values()})
    if not names or any(Path(name).name != name for name in names):
        raise LanguageError(f"{index}: names no files beside it; save the model again")
    return names


def _tensors(path: Path) -> dict[str, dict[str, Any]]:
    """Raises LanguageError."""
    import safetensors

    try:
        pairs = safetensors.deserialize(path.read_bytes())
    except (OSError, safetensors.SafetensorError) as error:
        mend = pulled(path) or "save the model again"
        raise LanguageError(f"{path}: is no file of safetensors ({error}); {mend}") from error
    return dict(pairs)
