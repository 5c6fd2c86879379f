"""Importers and exporters by name: those that ship, those of installed packages (entry points `meshloom.importers`
and `meshloom.chip_exporters`), and `FILE.py:NAME`."""

from __future__ import annotations

from meshloom.sched.support.plugins import PluginError, Registry

from .interface import ChipExporter, Importer

#: Entry points of other packages that are importers, and of those that write chips.
GROUP, CHIP_GROUP = "meshloom.importers", "meshloom.chip_exporters"


class UnknownImporterError(PluginError):
    """An importer that does not exist or cannot be loaded."""


def _accept(name: str, thing: object) -> Importer:
    if not isinstance(thing, Importer):
        raise TypeError(f"is of type {type(thing).__name__}; it must be an Importer")
    return thing


IMPORTERS: Registry[Importer] = Registry(
    "importer",
    GROUP,
    {
        "zigzag": "meshloom.tb.exchange.zigzag:ZIGZAG",
        "timeloop": "meshloom.tb.exchange.timeloop:TIMELOOP",
    },
    _accept,
    UnknownImporterError,
)


class UnknownExporterError(PluginError):
    """An exporter that does not exist or cannot be loaded."""


def _accept_exporter(name: str, thing: object) -> ChipExporter:
    if not isinstance(thing, ChipExporter):
        raise TypeError(f"is of type {type(thing).__name__}; it must be a ChipExporter")
    return thing


CHIP_EXPORTERS: Registry[ChipExporter] = Registry(
    "chip exporter",
    CHIP_GROUP,
    {"zigzag": "meshloom.tb.exchange.zigzag_chip:ZIGZAG_CHIP"},
    _accept_exporter,
    UnknownExporterError,
)
