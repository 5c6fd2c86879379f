"""Where everything lies that can be made again, and how much of it is kept; `kinds` has what there is.

There is one root. In a checkout it is `sim_build/`; of an installed package, whose own folder may be read-only and is
nobody's place for output, it is the user's cache folder. MESHLOOM_CACHE names another one.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

#: Environment variable that names the root.
VARIABLE = "MESHLOOM_CACHE"
#: Environment variable that says how many megabytes are kept below the root, and what holds without it.
MEGABYTES = ("MESHLOOM_CACHE_MB", 20_000)
#: The folder of a checkout that is the root there.
OWN = "sim_build"
_PACKAGES = Path(__file__).resolve().parents[2]


class SettingError(ValueError):
    """An environment variable has a value that means nothing; the message names it and says what it must be."""


def setting(name: str, default: int) -> int:
    """The whole number in an environment variable. Raises SettingError."""
    text = os.environ.get(name, "").strip()
    if text and not (text.isascii() and text.isdecimal()):
        raise SettingError(f"{name} = {text!r} must be a whole number, 0 or more")
    return int(text) if text else default


def checkout() -> Path | None:
    """The repository that this code runs from; None if it has been installed."""
    return _PACKAGES if (_PACKAGES / "pyproject.toml").is_file() else None


def root() -> Path:
    """The folder below which everything is kept; it need not exist yet."""
    if named := os.environ.get(VARIABLE):
        return Path(named).expanduser().absolute()
    if home := checkout():
        return home / OWN
    from platformdirs import user_cache_path

    return user_cache_path("meshloom", appauthor=False)


def folder(*names: str) -> Path | None:
    """The folder of that name below the root, made if need be; None if nothing can be written there."""
    place = root().joinpath(*names)
    try:
        place.mkdir(parents=True, exist_ok=True)
        # what the permissions say is not the whole truth: file systems may be mounted read-only, or full
        with tempfile.TemporaryFile(dir=place):
            return place
    except OSError:
        return None
