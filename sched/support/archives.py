"""NumPy archives: read whole, without pickles."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: What reading a damaged archive, or one with other entries than expected, may raise besides OSError.
DAMAGE = (ValueError, EOFError, KeyError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error)


def read_archive(path: Path) -> dict[str, NDArray[Any]]:
    """All entries of an `.npz` file by name. Raises OSError, and `DAMAGE` for what is none."""
    with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}
