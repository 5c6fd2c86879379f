"""Where numba keeps what it has compiled, so that as many processes as like to may add to it, at once too.

numba 0.68 by itself gets two things wrong there, and what is found later computes something else:

- The functions inside of its own (the halves of a sort) are told apart by numbers that begin anew in each process. Code
  that was compiled against kept code of another process can have its number for another function. Here numbers begin
  somewhere else in each process.
- Processes that keep new code at once can give it the same name (`_InTurn`).
"""

from __future__ import annotations

import contextlib
from itertools import count
from pathlib import Path
from secrets import randbits
from typing import Any

from filelock import FileLock
from numba.core import bytecode, caching

#: numba's own modules say nothing of their types.
_FunctionCache: Any = caching.FunctionCache
_FunctionIdentity: Any = bytecode.FunctionIdentity
_FunctionIdentity._unique_ids = count(1 + randbits(48))


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
