"""The models of time. The timeline is machine code where `sched/model/native.py` has compiled it, and Python
elsewhere."""

from __future__ import annotations

from importlib import import_module
from warnings import warn

from . import native

if (_compiled := native.folder()) is not None:
    __path__.insert(0, str(_compiled))  # modules that are not there are found beside this file
    try:
        import_module(f"{__name__}.{native.SHARED}")
    except ImportError as error:  # made for another system with the same files
        del __path__[0]
        warn(f"the compiled timeline model does not load, Python runs it, several times slower: {error}", stacklevel=1)
