"""Modules from files that are in no package, each with what lies beside it.

Python knows a module by its name alone: of two schedulers in two folders that each have a `helper.py`, the second would
get the first one's. So the imports of such a file look beside it first, and what they load there is a module of that
file (`meshloom_file_….helper`); what that imports is, too. `from .helper import …` means the same. As in a script, a
file beside hides an installed package of its name; the standard library and Meshloom are never hidden.
"""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import walk_tb
from types import CodeType, ModuleType
from typing import Any

#: How the names of such modules begin.
_PREFIX = "meshloom_file_"
#: Names that a file beside does not hide.
_NEVER = sys.stdlib_module_names | {__name__.partition(".")[0]}


def load(path: Path) -> ModuleType:
    """The module of a file: the one that is loaded already, unless the file, or one beside it that it has imported, has
    changed. Raises OSError and what running the file raises."""
    path = path.expanduser().resolve()
    stem = re.sub(r"\W", "_", path.stem)
    name = f"{_PREFIX}{stem}_{sha256(str(path).encode() + path.read_bytes()).hexdigest()[:12]}"
    if (owner := _OWNERS.get(name)) is not None and owner.unchanged():
        return sys.modules[name]
    owner = _Owner(name, path)
    _forget(name)
    loader = _Loader(owner, name, str(path))
    spec = spec_from_file_location(name, path, loader=loader, submodule_search_locations=[str(path.parent)])
    if spec is None:
        raise ImportError(f"{path} is not a Python file")
    module = sys.modules[name] = module_from_spec(spec)
    _OWNERS[name] = owner
    try:
        loader.exec_module(module)
    except BaseException:
        _forget(name)
        raise
    return module


def is_of_file(name: str) -> bool:
    """Whether a module of that name is from such a file, or none at all."""
    return not name or name.startswith(_PREFIX)


def lies_beside(error: BaseException, path: str) -> str:
    """What to do about a module that was not found although it lies beside the file `path`; empty of other errors."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    if not path or not name or not Path(path).expanduser().with_name(f"{name}.py").exists():
        return ""
    return f"; only the statement `import {name}` looks beside the file, importlib does not"


def line_that_failed(error: BaseException) -> tuple[str, int] | None:
    """The file and line in which an error was raised, if that is in such a file, or in a library that it has called;
    None if Meshloom's own code raised it."""
    for frame, line in reversed(list(walk_tb(error.__traceback__))):
        name = str(frame.f_globals.get("__name__", ""))
        if name.startswith(_PREFIX):
            return frame.f_code.co_filename, line
        if name.partition(".")[0] == __name__.partition(".")[0]:
            return None
    return None


def _forget(name: str) -> None:
    _OWNERS.pop(name, None)
    for each in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
        del sys.modules[each]


class _Owner:
    """A file, and what it has loaded from beside it: `files` to digests of their contents."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.folder = name, path.parent
        self.files: dict[Path, str] = {}
        self.builtins = vars(builtins) | {"__import__": self._import}

    def unchanged(self) -> bool:
        """Whether all files are what they were."""
        return all(path.is_file() and _content(path.read_bytes()) == content for path, content in self.files.items())

    def _import(
        self,
        name: str,
        names: Mapping[str, object] | None = None,
        local: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """As `builtins.__import__`, for statements in the file and in what lies beside it."""
        top = name.partition(".")[0]
        if level or not self._has(top):
            return builtins.__import__(name, names, local, fromlist or (), level)
        module = import_module(f"{self.name}.{name}")
        if not fromlist:
            return sys.modules[f"{self.name}.{top}"]
        for each in fromlist if hasattr(module, "__path__") else ():  # may be modules in a package
            if each != "*" and not hasattr(module, each) and find_spec(f".{each}", module.__name__) is not None:
                import_module(f"{module.__name__}.{each}")
        return module

    def _has(self, top: str) -> bool:
        """Whether what an import begins with lies beside the file."""
        if top in _NEVER:
            return False
        if (self.folder / f"{top}.py").is_file() or (self.folder / top / "__init__.py").is_file():
            return True
        return (self.folder / top).is_dir() and _installed(top) is None


def _installed(top: str) -> ModuleSpec | None:
    try:
        spec = find_spec(top)
    except ValueError:  # of a module that was made by hand
        return None
    return spec if spec is not None and spec.origin is not None else None  # else a folder, as this one


class _Loader(SourceFileLoader):
    """Compiles a file's text whenever it is loaded, and gives it the imports of its owner.

    Python tells a kept .pyc from a later text by size and second of change alone: a number edited within one second
    would run the text before it.
    """

    def __init__(self, owner: _Owner, name: str, path: str) -> None:
        super().__init__(name, path)
        self._owner = owner

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        text = self.get_data(path)
        self._owner.files[Path(path)] = _content(text)
        return self.source_to_code(text, path)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = self._owner.builtins
        super().exec_module(module)


def _content(text: bytes) -> str:
    return sha256(text).hexdigest()


class _Finder:
    """Finds what lies beside such files, under the names of their modules."""

    @staticmethod
    def find_spec(fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        owner = _OWNERS.get(fullname.partition(".")[0])
        if owner is None or "." not in fullname:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(owner, fullname, spec.loader.path)
        return spec


_OWNERS: dict[str, _Owner] = {}
sys.meta_path.insert(0, _Finder)
