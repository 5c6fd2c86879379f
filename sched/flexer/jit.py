"""Compiled functions, kept on disk so that only the first run of a version of this package compiles.

The compiler's own check looks at the file that a function is in, not at those that it calls, so the folder is named
after all sources together.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config as numba_config

F = TypeVar("F", bound=Callable[..., Any])


@cache
def _folder() -> str | None:
    """Where compiled code is kept: below NUMBA_CACHE_DIR or sim_build; None if nothing can be written there."""
    here = Path(__file__).resolve().parent
    digest = hashlib.sha256()
    for path in sorted(here.glob("*.py")):
        digest.update(path.read_bytes())
    base = os.environ.get("NUMBA_CACHE_DIR") or here.parents[1] / "sim_build" / "numba"
    folder = Path(base) / f"flexer-{digest.hexdigest()[:12]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return str(folder) if os.access(folder, os.W_OK) else None


def _compile(function: F, **options: bool) -> F:
    config: Any = numba_config
    njit: Any = numba.njit
    before, folder = config.CACHE_DIR, _folder()
    config.CACHE_DIR = folder or before
    try:
        return njit(nogil=True, cache=folder is not None, **options)(function)
    finally:
        config.CACHE_DIR = before


def compiled(function: F) -> F:
    """Compiles a function when it is first called; it then runs without the interpreter's lock."""
    return _compile(function)


def inner(function: F) -> F:
    """The same for a function that only compiled ones call, which spares what makes it callable from outside."""
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)
