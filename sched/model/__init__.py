"""The models of time. The timeline runs as machine code, compiled at first use (`sched/model/native.py`), or as Python
where that is not possible or not wanted."""

from __future__ import annotations

import sys
from importlib import import_module

from . import native

# `python -m meshloom.sched.model` compiles by itself, and says what came of it
if __name__ not in sys.orig_argv and (_compiled := native.ready()) is not None:
    __path__.insert(0, str(_compiled))  # modules that are missing there are found beside this file
    try:
        import_module(f"{__name__}.{native.SHARED}")
    except ImportError as error:  # compiled for another system that shares these files
        del __path__[0]
        native.as_python(f"what is in {_compiled} cannot be loaded here ({error}); remove that folder")
