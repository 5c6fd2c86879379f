"""Where everything lies that can be made again: simulators, found schedules, compiled code, folders of runs.

There is one root. In a checkout it is `sim_build/`; of an installed package, whose own folder may be read-only and is
nobody's place for output, it is the user's cache folder. MESHLOOM_CACHE names another one.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

#: Environment variable that names the root.
VARIABLE = "MESHLOOM_CACHE"
_PACKAGES = Path(__file__).resolve().parents[2]


def checkout() -> Path | None:
    """The repository that this code runs from; None if it has been installed."""
    return _PACKAGES if (_PACKAGES / "pyproject.toml").is_file() else None


def root() -> Path:
    """The folder below which everything is kept; it need not exist yet."""
    if named := os.environ.get(VARIABLE):
        return Path(named).expanduser().absolute()
    if home := checkout():
        return home / "sim_build"
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
