"""A file in the format of GGML (GGUF): its metadata and its tensors. The library `gguf` reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .model import LanguageError, Reals

SUFFIX = ".gguf"
#: Bytes of a file, and numbers and strings of its metadata, at most: the library takes microseconds for each.
_MOST_BYTES, _MOST_ENTRIES = 1 << 30, 3 << 19
#: What a damaged file makes the library raise.
_DAMAGE = (ValueError, KeyError, IndexError, TypeError, OverflowError, MemoryError, RecursionError)


class GgufFile:
    """A file: `values`, its metadata by key, and `tensors`, the names of its tensors. `where` names it in errors.

    Raises LanguageError for a file that is damaged, too large, or one of several.
    """

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        try:
            size = path.stat().st_size
        except OSError as error:
            raise LanguageError(f"{path}: cannot be read ({error.strerror}); name a file that is there") from error
        if size > _MOST_BYTES:
            raise LanguageError(f"{path}: has more than {_MOST_BYTES >> 20} MiB; take a smaller model")
        try:
            reader = _reader(path)
            self.values: dict[str, Any] = {key: field.contents() for key, field in reader.fields.items()}
        except OSError as error:
            raise LanguageError(f"{path}: cannot be read ({error.strerror}); name a file that is there") from error
        except _DAMAGE as error:
            raise LanguageError(f"{path}: is no whole GGUF file ({error}); download or convert it again") from error
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        if self.values.get("split.count", 1) != 1:
            raise LanguageError(
                f"{path}: is one of {self.values['split.count']} files; put them together first "
                f"(llama-gguf-split --merge {path.name} whole{SUFFIX})"
            )

    @property
    def tensors(self) -> frozenset[str]:
        """The names of its tensors."""
        return frozenset(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor, outputs first."""
        return tuple(map(int, self._tensors[name].shape[::-1]))

    def tensor(self, name: str) -> Reals:
        """A tensor in floating point, whatever it is stored as. Raises LanguageError."""
        from gguf import dequantize

        tensor = self._tensors[name]
        try:
            array: NDArray[Any] = dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as error:
            raise LanguageError(
                f"{self.where}: {name!r} is stored as {tensor.tensor_type.name}, which the library gguf does not read; "
                "take the model in another precision, best F16 or Q8_0"
            ) from error
        with np.errstate(over="ignore"):
            return np.array(array, np.float32).reshape(self.shape(name))


def _reader(path: Path) -> Any:
    """The library's reader, which by itself reads on behind the end of a file that promises more than it has, and
    counts for as long as that says."""
    from gguf import GGUFReader, GGUFValueType

    class Reader(GGUFReader):
        entries = 0

        def _get_field_parts(self, orig_offs: Any, raw_type: Any) -> Any:
            if raw_type == GGUFValueType.ARRAY:
                count = int(self._get(int(orig_offs) + 4, np.uint64)[0])
                if count > min(_MOST_ENTRIES, len(self.data) - int(orig_offs)):
                    raise ValueError(f"a list has {count:,} numbers or strings, more than it can have")
            return super()._get_field_parts(orig_offs, raw_type)

        def _get(self, offset: Any, dtype: Any, count: Any = 1, override_order: Any = None) -> NDArray[Any]:
            self.entries += 1
            if self.entries > _MOST_ENTRIES:
                raise ValueError(f"its metadata have more than {_MOST_ENTRIES:,} entries")
            if int(offset) + int(count) * np.dtype(dtype).itemsize > len(self.data):
                raise ValueError("it ends in the middle")
            return super()._get(offset, dtype, count, override_order)

    return Reader(path)  # tests hold that it still reads by these functions
