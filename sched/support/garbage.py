"""Python's search for cycles among objects, where it only costs time."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Generator[None]:
    """No garbage collection meanwhile: for work that makes millions of objects (schedules), or is done beside
    as many (programs that are served), and leaves next to no cycles of references."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def cycles_freed() -> Generator[None]:
    """Frees the cycles among objects that were made meanwhile, without a look at all others. Inside of `uncollected`:
    around work that leaves many behind (the parts of a machine know each other). What somebody has frozen before stays
    so."""
    frozen = gc.get_freeze_count()
    gc.freeze()
    try:
        yield
    finally:
        gc.collect(0)
        if not frozen:
            gc.unfreeze()
