"""Functions compiled by numba. Import this, and whatever uses it, only when something is to be computed.

Compiled code is kept in `numba/` of the cache (`sched.store.cache`; or where NUMBA_CACHE_DIR says), so that only the
first run compiles; where nothing can be written every run does. numba looks for changes in the file of a function and
not in those it calls or takes constants from; so the folder's name is a hash of all modules with compiled functions,
here and in the package of the function, and of `hw.contracts`. Processes that compile at once write in turn.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from numba import config, njit

from meshloom.hw import contracts

from ..store.kinds import NUMBA
from ..support.kept_code import keep

_P = ParamSpec("_P")
_R = TypeVar("_R")

_HERE = Path(__file__).parent


@cache
def _folder(package: Path) -> str | None:
    """Where the compiled form of a package's present sources is kept; None: nowhere."""
    digest = hashlib.sha256(Path(contracts.__file__).read_bytes())
    for path in sorted({*_HERE.glob("*.py"), *package.glob("*.py")}):
        source = path.read_bytes()
        if b"jit" in source:
            digest.update(path.name.encode() + b"\0" + source)
    name = f"{package.name}-{digest.hexdigest()[:20]}"
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        return str(Path(named) / name)
    place = NUMBA.compiled(name)
    return None if place is None else str(place)


def jit(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function compiled at its first call; integers wrap, indices and divisors are not checked."""
    settings: Any = config
    before = settings.CACHE_DIR
    folder = _folder(Path(function.__code__.co_filename).parent)
    settings.CACHE_DIR = folder or before  # read when a function is decorated
    try:
        made: Any = njit(error_model="numpy")(function)
        if folder is not None:
            keep(made, function)
        return made
    finally:
        settings.CACHE_DIR = before
