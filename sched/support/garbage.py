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


def collect_young() -> None:
    """Frees cycles among objects that are new since the last time, without a look at all others. Inside of
    `uncollected`: for work in steps each of which leaves many behind (the parts of a machine know each other)."""
    gc.collect(0)
