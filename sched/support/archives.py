"""NumPy archives: read whole, without pickles, and no more than fits."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Bytes of all entries, unpacked: a thousandth of them may be in the file.
MOST_BYTES = 1 << 31
#: What reading a damaged archive, or one with other entries than expected, may raise besides OSError.
DAMAGE = (ValueError, EOFError, KeyError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error)


def read_archive(path: Path) -> dict[str, NDArray[Any]]:
    """All entries of an `.npz` file by name. Raises OSError, and `DAMAGE` for what is none, or holds too much."""
    content = io.BytesIO(path.read_bytes())
    with zipfile.ZipFile(content) as archive:
        total = sum(entry.file_size for entry in archive.infolist())  # no more is read of an entry
    if total > MOST_BYTES:
        raise ValueError(f"holds {total:,} bytes unpacked, more than {MOST_BYTES:,}")
    content.seek(0)
    try:
        with np.load(content, allow_pickle=False) as file:
            entries: dict[str, object] = {name: file[name] for name in file.files}
    except MemoryError:  # a header may claim any shape
        raise ValueError("an array of it is larger than memory") from None
    arrays: dict[str, NDArray[Any]] = {name: entry for name, entry in entries.items() if isinstance(entry, np.ndarray)}
    if len(arrays) < len(entries):  # NumPy hands out other entries as bytes
        raise ValueError(f"holds {next(name for name in entries if name not in arrays)}, which is no array")
    return arrays
