"""Importers and exporters by name: those that ship, those of installed packages (entry points `meshloom.importers`
and `meshloom.chip_exporters`), and `FILE.py:NAME`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from meshloom.sched.support.plugins import PluginError, Registry

from .interface import ChipExporter, Importer

T = TypeVar("T")
#: Entry points of other packages that are importers, and of those that write chips.
GROUP, CHIP_GROUP = "meshloom.importers", "meshloom.chip_exporters"


class UnknownImporterError(PluginError):
    """An importer that does not exist or cannot be loaded."""


class UnknownExporterError(PluginError):
    """An exporter that does not exist or cannot be loaded."""


def _only(kind: type[T]) -> Callable[[str, object], T]:
    """What accepts things of a kind alone."""

    def accept(name: str, thing: object) -> T:
        if not isinstance(thing, kind):
            raise TypeError(f"is of type {type(thing).__name__}; it must be of type {kind.__name__}")
        return thing

    return accept


IMPORTERS: Registry[Importer] = Registry(
    "importer",
    GROUP,
    {
        "zigzag": "meshloom.tb.exchange.zigzag:ZIGZAG",
        "timeloop": "meshloom.tb.exchange.timeloop:TIMELOOP",
        "scalesim": "meshloom.tb.exchange.scalesim:SCALESIM",
        "stream": "meshloom.tb.exchange.stream:STREAM",
        "accelforge": "meshloom.tb.exchange.accelforge:ACCELFORGE",
        "maestro": "meshloom.tb.exchange.maestro:MAESTRO",
    },
    _only(Importer),
    UnknownImporterError,
)


CHIP_EXPORTERS: Registry[ChipExporter] = Registry(
    "chip exporter",
    CHIP_GROUP,
    {
        "zigzag": "meshloom.tb.exchange.zigzag_chip:ZIGZAG_CHIP",
        "scalesim": "meshloom.tb.exchange.scalesim_chip:SCALESIM_CHIP",
        "stream": "meshloom.tb.exchange.stream_chip:STREAM_CHIP",
        "accelforge": "meshloom.tb.exchange.accelforge_chip:ACCELFORGE_CHIP",
        "timeloop": "meshloom.tb.exchange.timeloop_chip:TIMELOOP_CHIP",
    },
    _only(ChipExporter),
    UnknownExporterError,
)
