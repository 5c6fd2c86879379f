"""What decides what a module computes: its source, and those of all modules that it imports, and so on.

What is kept in files is named after this digest, so that nothing can be found again that other code has made. Imports
are followed wherever they stand, in functions too; the packages of others are not, nor are imports for types only. Of
what somebody else has written (`of_file`, `of_module`) it is the file, and what it imports that lies beside it, or in
its package.
Docstrings, and comments on lines of their own, decide nothing: whoever mends a sentence loses no search of an hour.

Reading a hundred sources takes longer than many a command has work to do. So a digest is kept, with the files that it
is of: it holds as long as these are the same to the byte, and no file of ours has come or gone.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from .cache import SettingError
from .kinds import SCHEDULES
from .store import Store, key

#: The folder of the packages, which is `meshloom` to importers, and the first part of all our names.
_ROOT, _PACKAGE = Path(__file__).resolve().parents[2], __name__.partition(".")[0]

#: Folders that have all of our modules.
_TOPS = ("hw", "sched", "tb")


@cache
def digest(*modules: str) -> str:
    """Of the sources of modules (names below `meshloom`: `sched.papers.flexer.search`) and of what they need."""
    try:
        store = SCHEDULES.store()
    except SettingError:  # who keeps something says so
        store = Store(None)
    return of_files_stored(_ROOT, modules, store)


def of_files_stored(root: Path, modules: Iterable[str], store: Store) -> str:
    """The same as `of_files`, from `store` where it has it."""
    names = tuple(modules)
    # another version of Python may read a source in another way, and so may other code here
    reader = sha256(Path(__file__).read_bytes()).hexdigest()
    entry = key(
        "provenance", modules=" ".join(names), files=_listing(root), python=str(sys.version_info), reader=reader
    )
    if (text := store.get(entry)) is not None and (total := _confirmed(root, text)) is not None:
        return total
    paths = needed(root, names)
    files = {path.relative_to(root).as_posix(): _content(path) for path in paths}
    total = _of(root, paths)
    text = json.dumps({"digest": total, "files": files}).encode()
    if _confirmed(root, text) is not None:  # else somebody has just changed one
        store.put(entry, text)
    return total


def _listing(root: Path) -> str:
    """The names of all files that an import could mean."""
    folders = (each for top in _TOPS for each in os.walk(root / top))
    return "\n".join(sorted(f"{folder}/{name}" for folder, _, names in folders for name in names if name[-3:] == ".py"))


def _content(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _confirmed(root: Path, text: bytes) -> str | None:
    """The digest that was kept, if all of its files are what they were."""
    value: dict[str, Any] = json.loads(text)
    same = all(_content(root / name) == content for name, content in value["files"].items())
    return value["digest"] if same else None


def of_files(root: Path, modules: Iterable[str]) -> str:
    """The same for the packages in another folder."""
    return _of(root, needed(root, modules))


def of_file(path: Path) -> str:
    """Of a file that is in no package, and of all that it imports from beside it. Raises OSError."""
    path = path.expanduser().resolve()

    def beside(parts: tuple[str, ...]) -> tuple[str, ...] | None:
        return None if parts[0] in sys.stdlib_module_names or parts[0] == _PACKAGE else parts

    return _of_others(_Tree(path.parent, beside), (path.name,))


def of_module(module: str) -> str:
    """Of a module of an installed package, and of all that it imports from its package. Raises OSError; ValueError if
    it has no file."""
    try:
        spec = find_spec(module)
    except ImportError:
        spec = None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise ValueError(f"module {module} has no file")
    path, parts = Path(spec.origin), tuple(module.split("."))
    if path.name == "__init__.py":
        parts += ("__init__",)
    root = path.parents[len(parts) - 1]

    def own(others: tuple[str, ...]) -> tuple[str, ...] | None:
        return others if others[0] == parts[0] else None

    return _of_others(_Tree(root, own), (*parts[:-1], path.name))


def _of_others(tree: _Tree, path: tuple[str, ...]) -> str:
    try:
        return _of(tree.root, _needed(tree, [path]))
    except SyntaxError:  # who runs it says so
        return _content(tree.root.joinpath(*path))


def _of(root: Path, paths: Iterable[Path]) -> str:
    total = sha256()
    for path in paths:
        text = executed(path.read_bytes())
        total.update(f"{path.relative_to(root)}\0{len(text)}\0".encode())
        total.update(text)
    return total.hexdigest()


class _Source(NamedTuple):
    """What a file says: the lines that are `executed`, and what it `imports`, as packages and names: (how many folders
    up, 0 for absolute; parts)."""

    executed: bytes
    imports: tuple[tuple[int, tuple[str, ...]], ...]


def executed(source: bytes) -> bytes:
    """The lines of a source that are executed: without docstrings, comments and empty lines where these have lines of
    their own; in doubt a line stays. (Not the syntax tree, whose text differs between versions of Python.)

    Raises SyntaxError.
    """
    return _read(source).executed


@cache  # several digests need the same files
def _read(source: bytes) -> _Source:
    statements = list(_statements(ast.parse(source).body))
    return _Source(_executed(source, statements), tuple(_imported(statements)))


def _executed(source: bytes, statements: Iterable[ast.stmt]) -> bytes:
    lines: list[bytes | None] = list(source.splitlines())
    for node in statements:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            before, after = (lines[first] or b"")[: node.col_offset], (lines[last] or b"")[node.end_col_offset :]
            if not before.strip() and not after.strip():
                lines[first : last + 1] = [None] * (last + 1 - first)
    code = [line for line in lines if line is not None]
    if any(quotes in line for line in code for quotes in (b'"""', b"'''")):
        return b"\n".join(code)  # what looks like a comment may be inside a string
    parts: list[bytes] = []
    continued = False
    for line in code:
        if continued or line.lstrip()[:1] not in (b"", b"#"):
            parts.append(line)
        continued = line.endswith(b"\\")
    return b"\n".join(parts)


def _imported(statements: Iterable[ast.stmt]) -> Iterator[tuple[int, tuple[str, ...]]]:
    for node in statements:
        if isinstance(node, ast.Import):
            yield from ((0, tuple(name.name.split("."))) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = (node.module or "").split(".") if node.module else []
            yield from ((node.level, (*base, name.name)) for name in node.names)  # a module, or something in one


def needed(root: Path, modules: Iterable[str]) -> list[Path]:
    """The files of modules and of what they import, in the order of their names. Raises ValueError if one of
    `modules` has no file."""
    tree = _Tree(root, _ours)
    first: list[tuple[str, ...]] = []
    for name in modules:
        path = tree.file(tuple(name.split(".")))
        if path is None:
            raise ValueError(f"there is no module {name} below {root}")
        first.append(path)
    return _needed(tree, first)


def _ours(parts: tuple[str, ...]) -> tuple[str, ...] | None:
    return parts[1:] if parts[0] == _PACKAGE else None


def _needed(tree: _Tree, first: Iterable[tuple[str, ...]]) -> list[Path]:
    """Those files and all that they import, in the order of their names."""
    paths, left = set[tuple[str, ...]](), [*first]
    while left:
        path = left.pop()
        if path not in paths:
            paths.add(path)
            left += tree.imports(path)
    return sorted(tree.root.joinpath(*path) for path in paths)


class _Tree:
    """The sources below a folder, as parts of their paths. Each folder is read once: that a name is none is asked a
    hundred thousand times. `below`: where below the folder what an import names would be; None: elsewhere."""

    def __init__(self, root: Path, below: Callable[[tuple[str, ...]], tuple[str, ...] | None]) -> None:
        self.root, self._below = root, below
        self._folders: dict[tuple[str, ...], frozenset[str]] = {}

    def _names(self, folder: tuple[str, ...]) -> frozenset[str]:
        if folder not in self._folders:
            try:
                with os.scandir(self.root.joinpath(*folder)) as entries:
                    names = frozenset(entry.name for entry in entries)
            except (FileNotFoundError, NotADirectoryError):
                names = frozenset[str]()
            self._folders[folder] = names
        return self._folders[folder]

    def file(self, parts: tuple[str, ...]) -> tuple[str, ...] | None:
        """The file of a module or package; None if there is none."""
        if not parts:
            return None
        *folder, last = parts
        if f"{last}.py" in self._names(tuple(folder)):
            return (*folder, f"{last}.py")
        if last in self._names(tuple(folder)) and "__init__.py" in self._names(parts):
            return (*parts, "__init__.py")
        return None

    def imports(self, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """The files that a file imports, of packages also the files that they begin with."""
        here = path[:-1]
        for level, parts in _read(self.root.joinpath(*path).read_bytes()).imports:
            place = (*here[: len(here) - level + 1], *parts) if level else self._below(parts)
            for end in range(1, len(place or ()) + 1):
                if (file := self.file((place or ())[:end])) is not None:
                    yield file


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
