"""Counts the words of the code: class names that stand in two or more modules, and names that are participles.

    python scripts/words.py [--list] [FOLDER ...]

prints both for each folder (hw, sched, tb and tests by default); `--list` shows the places instead. A class name counts
in each folder that defines it. A participle counts wherever a variable, argument, field, function or class has it as
its name, leading underscores and capitals aside; names that come from other packages (hypothesis has a `given`) don't.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("hw", "sched", "tb", "tests")
PARTICIPLES = frozenset({"asked", "found", "given", "kept", "known", "made", "said", "taken", "told", "wanted"})


def modules(folders: Sequence[str]) -> dict[str, ast.Module]:
    """The syntax tree of every module below folders, by its path."""
    files = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in files}


def identifiers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that a module defines or uses, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno


def foreign(tree: ast.AST) -> set[str]:
    """The names that a module imports from other packages."""
    froms = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    others = (node for node in froms if not node.level and not (node.module or "").startswith("meshloom"))
    return {alias.asname or alias.name for node in others for alias in node.names}


def participles(trees: dict[str, ast.Module]) -> Iterator[tuple[str, int, str]]:
    """Where a name is a participle: module, line, name."""
    for path, tree in trees.items():
        others = foreign(tree)
        for name, line in identifiers(tree):
            if name.strip("_").lower() in PARTICIPLES and name not in others:
                yield path, line, name


def shared_classes(trees: dict[str, ast.Module]) -> dict[str, list[tuple[str, int]]]:
    """The class names that stand in two or more modules, with the modules and lines."""
    places: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append((path, node.lineno))
    return {name: where for name, where in sorted(places.items()) if len({path for path, _ in where}) > 1}


def room(path: str) -> str:
    """The folder in which a module is counted: one below the top."""
    return "/".join(path.split("/")[:-1][:2])


def places(trees: dict[str, ast.Module]) -> Iterator[str]:
    """The lines of `--list`."""
    for name, where in shared_classes(trees).items():
        yield f"class {name}: {', '.join(f'{path}:{line}' for path, line in where)}"
    for path, line, name in sorted(participles(trees)):
        yield f"{path}:{line}: {name}"


def counts(trees: dict[str, ast.Module]) -> Iterator[str]:
    """The table of both counts."""
    classes, names = shared_classes(trees), list(participles(trees))
    by_class = Counter(folder for where in classes.values() for folder in {room(path) for path, _ in where})
    by_name = Counter(room(path) for path, _, _ in names)
    yield f"{'folder':<24}{'class names in 2+ modules':>28}{'participles as names':>24}"
    for folder in sorted(by_class | by_name):
        yield f"{folder:<24}{by_class[folder]:>28}{by_name[folder]:>24}"
    yield f"{'all':<24}{len(classes):>28}{len(names):>24}"
    words = Counter(name.strip("_").lower() for _, _, name in names)
    yield f"participles: {', '.join(f'{word} {count}' for word, count in words.most_common())}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folders", nargs="*", default=FOLDERS, metavar="FOLDER")
    parser.add_argument("--list", action="store_true", help="show the places")
    options = parser.parse_args()
    trees = modules(options.folders)
    sys.stdout.writelines(f"{line}\n" for line in (places if options.list else counts)(trees))


if __name__ == "__main__":
    main()
