"""The papers whose schedulers ship: each has a folder below `sched/papers`, which nothing else in `sched` imports.

A folder declares what it adds in constants of its `__init__`: SCHEDULERS and ONLINE_SCHEDULERS, name to
`module:THING`, of a module in the folder. What is declared in a folder that is removed is listed nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Literal

ROOM = "meshloom.sched.papers"


@cache
def papers() -> tuple[str, ...]:
    """The names of the folders."""
    room = find_spec(ROOM)
    folders = iter_modules(room.submodule_search_locations if room else ())
    return tuple(folder.name for folder in folders if folder.ispkg)


def declared(constant: Literal["SCHEDULERS", "ONLINE_SCHEDULERS"]) -> dict[str, str]:
    """What all papers declare in a constant: name to `package.module:THING`."""
    places: dict[str, str] = {}
    for paper in papers():
        entries: Mapping[str, str] = getattr(import_module(f"{ROOM}.{paper}"), constant, {})
        places |= {name: f"{ROOM}.{paper}.{place}" for name, place in entries.items()}
    return places
