"""What decides what a module computes: its source, and those of all modules that it imports, and so on.

What is kept in files is named after this digest, so that nothing can be found again that other code has made. Imports
are followed wherever they stand, in functions too; the packages of others are not, nor are imports for types only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

#: The folder of the packages, which is `meshloom` to importers, and the first part of all our names.
_ROOT, _PACKAGE = Path(__file__).resolve().parents[2], __name__.partition(".")[0]


@cache
def digest(*modules: str) -> str:
    """Of the sources of modules (names below `meshloom`: `sched.schedulers.flexer.search`) and of what they need."""
    return of_files(_ROOT, modules)


def of_files(root: Path, modules: Iterable[str]) -> str:
    """The same for the packages in another folder."""
    found = sha256()
    for path in needed(root, modules):
        text = path.read_bytes()
        found.update(f"{path.relative_to(root)}\0{len(text)}\0".encode())
        found.update(text)
    return found.hexdigest()


def needed(root: Path, modules: Iterable[str]) -> list[Path]:
    """The files of modules and of what they import, in the order of their names. Raises ValueError if one of
    `modules` has no file."""
    found: set[Path] = set()
    left: list[Path] = []
    for name in modules:
        path = _file(root, name.split("."))
        if path is None:
            raise ValueError(f"there is no module {name} below {root}")
        left.append(path)
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += _imports(root, path)
    return sorted(found)


def _file(root: Path, parts: list[str]) -> Path | None:
    """The file of a module or package; None if there is none."""
    place = root.joinpath(*parts)
    for path in (place.with_suffix(".py"), place / "__init__.py"):
        if parts and path.is_file():
            return path
    return None


def _imports(root: Path, path: Path) -> Iterator[Path]:
    """The files that a file imports, of packages also the files that they begin with."""
    here = list(path.relative_to(root).parent.parts)
    for node in _statements(ast.parse(path.read_bytes()).body):
        targets: list[list[str]] = []
        if isinstance(node, ast.Import):
            targets = [name.name.split(".")[1:] for name in node.names if name.name.split(".")[0] == _PACKAGE]
        elif isinstance(node, ast.ImportFrom):
            base = (node.module or "").split(".") if node.module else []
            if node.level:
                base = here[: len(here) - node.level + 1] + base
            elif base[0] == _PACKAGE:
                base = base[1:]
            else:
                continue
            targets = [[*base, name.name] for name in node.names]  # a module, or something in one
        for parts in targets:
            for end in range(1, len(parts) + 1):
                if (found := _file(root, parts[:end])) is not None:
                    yield found


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements and those inside them, but for what only type checkers read."""
    for node in body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            yield from _statements(node.orelse)
            continue
        yield node
        for inside in ("body", "orelse", "finalbody", "handlers", "cases"):
            for child in getattr(node, inside, ()):
                if isinstance(child, ast.stmt):
                    yield from _statements([child])
                else:
                    yield from _statements(child.body)
