"""The folder of an exported workload: written whole, or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from meshloom.sched.support.files import check_writable, write_error

from ...results.export import NAME, load
from ...results.record import ResultsError


class ExportError(ValueError):
    """A folder that must not be replaced; the message says why, and what would do."""


def check_place(folder: Path) -> None:
    """Looks whether a folder may be written: it is not there, empty, or an export in which nothing has been changed or
    added. Raises ExportError; WriteError if nobody may write there."""
    if not folder.exists():
        if folder.is_symlink():
            raise ExportError(f"{folder}: is a link that leads nowhere; name another folder")
        check_writable(folder / NAME)
        return
    if not folder.is_dir():
        raise ExportError(f"{folder}: is no folder; name another place")
    check_writable(folder / NAME)
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
    if not names:
        return
    try:
        files = load(folder).files
    except ResultsError:
        raise ExportError(
            f"{folder}: has files that `meshloom export` did not write; empty it, or name another folder"
        ) from None
    for name, path in names.items():
        if name == NAME:
            continue
        if name not in files:
            raise ExportError(f"{folder}: has {name}, which `meshloom export` did not write; move it away first")
        if path.is_symlink() or hashlib.sha256(path.read_bytes()).hexdigest() != files[name]:
            raise ExportError(f"{folder}: {name} has been changed since it was written; move it away first")


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Makes a folder of these files, in the place of one that `check_place` lets go: readers see the old one or the new
    one. Raises ExportError, WriteError; the old one is left then."""
    check_place(folder)
    place, failed = Path(os.path.realpath(folder)), folder
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{place.name[:50]}.", dir=place.parent) as work:
            new, old = Path(work) / "new", Path(work) / "old"
            for name, content in files.items():
                path, failed = new / name, folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            failed = folder
            _exchange(new, place, old)
    except OSError as error:
        raise write_error(error, failed) from error


def _exchange(new: Path, place: Path, old: Path) -> None:
    """Moves a folder to its place, and what is there to `old`; undone if it fails half way."""
    if place.exists():
        place.rename(old)
    try:
        new.rename(place)
    except BaseException:
        if old.exists():
            with contextlib.suppress(OSError):
                shutil.rmtree(place, ignore_errors=True)
                old.rename(place)
        raise
