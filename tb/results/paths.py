"""Paths that results files have: relative to the file's folder, so that they hold wherever the file is read, and where
all of it is moved. In this process they are relative to the working directory."""

from __future__ import annotations

import os
from pathlib import Path


def for_file(path: str, file: Path) -> str:
    """A path as `file` has it. An absolute one stays as it is, and so do all in what is no file (a pipe, a device)."""
    if Path(path).is_absolute() or (file.exists() and not file.is_file()):
        return path
    return os.path.relpath(os.path.realpath(path), _folder(file))


def from_file(path: str, file: Path) -> str:
    """A path that `file` has. If there is no such file or folder it stays as it is: an older version wrote it relative
    to the working directory of then."""
    place = _folder(file) / path
    return os.path.relpath(place) if not Path(path).is_absolute() and place.exists() else path


def _folder(file: Path) -> Path:
    return Path(os.path.realpath(file)).parent
