"""Where numba keeps what it has compiled, so that as many processes as like to may add to it, at once too.

numba 0.68 by itself gets three things wrong there, and what is found later computes something else, or ends the
process:

- The functions inside of its own (the halves of a sort) are told apart by numbers that begin anew in each process. Code
  that was compiled against kept code of another process can have its number for another function. Here numbers begin
  somewhere else in each process.
- Processes that keep new code at once can give it the same name (`_InTurn`).
- Files are unpickled, and machine code is run, whatever is in them. Here each carries its digest (`_Sealed`).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator
from hashlib import sha256
from io import BytesIO
from itertools import count
from pathlib import Path
from secrets import randbits
from typing import Any

from filelock import FileLock
from numba.core import bytecode, caching

#: numba's own modules say nothing of their types.
_FunctionCache: Any = caching.FunctionCache
_Files: Any = caching.IndexDataCacheFile
_FunctionIdentity: Any = bytecode.FunctionIdentity
_FunctionIdentity._unique_ids = count(1 + randbits(48))
_log = logging.getLogger("meshloom.store")
#: Folders of which it has been said that something in them is damaged.
_warned: set[Path] = set()


class _Sealed(_Files):
    """The files of a function: an index of its compiled forms, and each form. A digest follows what numba writes, which
    does not read that far. What is damaged counts as not there, so it is compiled and kept again."""

    def _load_index(self) -> Any:
        numbas: Any = super()
        return numbas._load_index() if _whole(Path(self._index_path)) else {}

    def _load_data(self, name: str) -> Any:
        numbas: Any = super()
        if not _whole(Path(self._data_path(name))):
            raise FileNotFoundError(name)  # as if the index named a file that somebody has removed
        return numbas._load_data(name)

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Generator[BytesIO]:
        numbas: Any = super()
        content = BytesIO()
        yield content
        with numbas._open_for_write(filepath) as file:
            file.write(content.getvalue() + sha256(content.getvalue()).digest())


def _whole(path: Path) -> bool:
    """Whether a file is there and as it was written. Says if it is not, once for each folder."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return False
    size = len(data) - sha256().digest_size
    if size > 0 and data[size:] == sha256(data[:size]).digest():
        return True
    if path.parent not in _warned:
        _warned.add(path.parent)
        _log.warning("%s is damaged: it is compiled again", path)
    return False


class _InTurn(_FunctionCache):
    """The compiled forms of a function, in files. numba reads the index, gives a new form the next number and writes
    both; of two processes that do so at once, one would find the other's form under its own types, and run it."""

    def __init__(self, function: Any) -> None:
        numbas: Any = super()
        numbas.__init__(function)
        files: Any = self._cache_file
        self._cache_file = _Sealed(self._cache_path, self._impl.filename_base, files._source_stamp)

    def _save_overload(self, sig: Any, data: Any) -> None:
        numbas: Any = super()
        with contextlib.suppress(OSError):  # a full disk: this process has what it compiled
            place = Path(self.cache_path)
            place.mkdir(parents=True, exist_ok=True)
            with FileLock(place / ".lock"):
                numbas._save_overload(sig, data)


def keep(dispatcher: Any, function: Any) -> None:
    """Has the compiled forms of a function kept in files, below numba's present CACHE_DIR."""
    dispatcher._cache = _InTurn(function)
