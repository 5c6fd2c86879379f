"""The models of time. The timeline runs as machine code if `sched/model/native.py` has compiled it, otherwise as
Python."""

from __future__ import annotations

from importlib import import_module
from warnings import warn

from . import native

if (_compiled := native.folder()) is not None:
    __path__.insert(0, str(_compiled))  # modules that are missing there are found beside this file
    try:
        import_module(f"{__name__}.{native.SHARED}")
    except ImportError as error:  # compiled for another system that shares these files
        del __path__[0]
        warn(f"cannot load the compiled timeline model; Python runs it, several times slower: {error}", stacklevel=1)
