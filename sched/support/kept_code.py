"""Where numba keeps what it has compiled: as many processes as like to may compile at once."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from filelock import FileLock
from numba.core import caching

#: numba's own modules say nothing of their types.
_FunctionCache: Any = caching.FunctionCache


class _InTurn(_FunctionCache):
    """The compiled forms of a function, in files. numba reads the index, gives a new form the next number and writes
    both; of two processes that do so at once, one would find the other's form under its own types, and run it."""

    def _save_overload(self, sig: Any, data: Any) -> None:
        numbas: Any = super()
        with contextlib.suppress(OSError):  # a full disk: this process has what it compiled
            place = Path(self.cache_path)
            place.mkdir(parents=True, exist_ok=True)
            with FileLock(place / ".lock"):
                numbas._save_overload(sig, data)


def keep(made: Any, function: Any) -> None:
    """Has the compiled forms of a function kept in files, below numba's present CACHE_DIR."""
    made._cache = _InTurn(function)
