"""Readers of other tools' hardware files by name: those that ship, those of installed packages (entry points
`meshloom.chip_importers`), and `FILE.py:NAME`."""

from __future__ import annotations

from meshloom.sched.support.plugins import PluginError, Registry

from .hardware import ChipImporter

#: Entry points of other packages that read chips.
GROUP = "meshloom.chip_importers"


class UnknownChipImporterError(PluginError):
    """A reader of chips that does not exist or cannot be loaded."""


def _accept(name: str, thing: object) -> ChipImporter:
    if not isinstance(thing, ChipImporter):
        raise TypeError(f"is of type {type(thing).__name__}; it must be of type ChipImporter")
    return thing


CHIP_IMPORTERS: Registry[ChipImporter] = Registry(
    "chip importer",
    GROUP,
    {
        "zigzag": "meshloom.tb.exchange.zigzag_hardware:ZIGZAG_HARDWARE",
        "stream": "meshloom.tb.exchange.stream_hardware:STREAM_HARDWARE",
        "scalesim": "meshloom.tb.exchange.scalesim_hardware:SCALESIM_HARDWARE",
        "accelforge": "meshloom.tb.exchange.accelforge_hardware:ACCELFORGE_HARDWARE",
        "timeloop": "meshloom.tb.exchange.timeloop_hardware:TIMELOOP_HARDWARE",
    },
    _accept,
    UnknownChipImporterError,
)
