"""Reads traffic of any of the tools whose files are known: tt-npe (JSON), BookSim and Noxim (text)."""

from __future__ import annotations

from pathlib import Path

from . import booksim, noxim, tt_npe
from .interface import text_of
from .noc_traffic import NocWorkload, TrafficSettings


def read(path: Path, settings: TrafficSettings) -> NocWorkload:
    """The traffic of a file, by whoever wrote it. Raises ImportFileError with file and line, OSError."""
    if path.suffix == ".json":
        return tt_npe.read(path)
    return booksim.read(path, settings) if booksim.is_trace(text_of(path)) else noxim.read(path, settings)
