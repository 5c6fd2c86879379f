"""Puts the packages of a copy of the checkout in place of those that are installed: written beside the copy as
`sitecustomize.py`, which Python reads when it starts. The folder of the copy is in `MESHLOOM_COPY`."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path


class CopiedPackages:
    """Finds `meshloom` and its three packages, whose folders have other names; all below them is found as ever."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """What Python asks."""
        top, _, rest = name.partition(".")
        if top != "meshloom" or "." in rest:
            return None
        folder = Path(os.environ["MESHLOOM_COPY"], rest or top)
        file = folder / "__init__.py"
        if not file.is_file():
            return None
        return spec_from_file_location(name, file, submodule_search_locations=[str(folder)])


if __name__ == "sitecustomize":
    sys.meta_path.insert(0, CopiedPackages)
