"""What a registry has, for commands that list it."""

from __future__ import annotations

from typing import TypeVar

from meshloom.sched.support.plugins import PluginError, Registry

T = TypeVar("T")


def loadable(registry: Registry[T], broken: list[str]) -> dict[str, T]:
    """All that a registry names; what is wrong with those that cannot be loaded, or that another
    one hides, is added to `broken`."""
    items: dict[str, T] = {}
    broken += registry.hidden()
    for name in registry.names():
        try:
            items[name] = registry.get(name)
        except PluginError as error:
            broken.append(str(error))
    return items
