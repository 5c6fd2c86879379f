"""Functions compiled by numba. Import this, and whatever uses it, only when something is to be computed.

Compiled code is kept in `numba/` of the cache (`sched.store.cache`; or where NUMBA_CACHE_DIR says), so that only the
first run compiles; where nothing can be written every run does. numba looks for changes in the file of a function and
not in those it calls or takes constants from; so the folder is named after the sources of all modules with compiled
functions in the package of the function, and of all that these import. Processes that compile at once write in turn.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from numba import config, njit

from ..store import provenance
from ..store.kinds import NUMBA
from ..support.kept_code import keep

_P = ParamSpec("_P")
_R = TypeVar("_R")

_ROOT = Path(__file__).resolve().parents[2]


@cache
def _folder(package: Path) -> str | None:
    """Where the compiled form of a package's present sources is kept; None: nowhere."""
    name = f"{package.name}-{_digest(package)[:20]}"
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        return str(Path(named) / name)
    place = NUMBA.compiled(name)
    return None if place is None else str(place)


def _digest(package: Path, root: Path = _ROOT) -> str:
    """Of the modules with compiled functions in a package, with all that they import if it lies below `root`."""
    sources = [path for path in sorted(package.glob("*.py")) if b"jit" in path.read_bytes()]
    if package.is_relative_to(root):
        return provenance.of_files(root, (".".join(path.relative_to(root).with_suffix("").parts) for path in sources))
    digest = hashlib.sha256(provenance.digest(__name__.partition(".")[2]).encode())
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def jit(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function compiled at its first call; integers wrap, indices and divisors are not checked."""
    settings: Any = config
    before = settings.CACHE_DIR
    folder = _folder(Path(function.__code__.co_filename).parent)
    settings.CACHE_DIR = folder or before  # read when a function is decorated
    try:
        compiled: Any = njit(error_model="numpy")(function)
        if folder is not None:
            keep(compiled, function)
        return compiled
    finally:
        settings.CACHE_DIR = before
