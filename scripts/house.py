"""The rooms of the house: packages, floors, arrows, and lines of code. Prints the tables of docs/architecture.md.

`python scripts/house.py [COMMIT]`: of the working tree or, beside it, of a commit. A room is a folder below a part of
the house, or a file that lies beside them; an arrow is "imports"; a floor is the longest way down.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
#: Whose rooms are counted.
PARTS = ("hw", "sched", "tb", "sched/workload/onnx", "sched/schedulers", "sched/mapping", "tb/studies")
#: Whose lines are counted.
FOLDERS = ("hw", "sched", "tb", "tests")


def tree(commit: str | None) -> dict[PurePosixPath, str]:
    """The text of every Python file, of a commit or of the working tree."""
    if commit is None:
        paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
        return {PurePosixPath(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}
    listing = ["git", "ls-tree", "-r", "--name-only", commit, *FOLDERS]
    names = [name for name in _output(listing).splitlines() if name.endswith(".py")]
    return {PurePosixPath(name): _output(["git", "show", f"{commit}:{name}"]) for name in names}


def _output(command: list[str]) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def imports(path: PurePosixPath, text: str) -> Iterator[PurePosixPath]:
    """The modules that a file imports from the house, as paths without a suffix."""
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                folder = path.parents[node.level - 1]
                base = ".".join((*folder.parts, base)).rstrip(".")
            names = [f"{base}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.removeprefix("meshloom.").split(".")
            if parts[0] in FOLDERS:
                yield PurePosixPath(*parts)


def room(part: PurePosixPath, path: PurePosixPath) -> str | None:
    """The room of a part in which a file or module lies; None if it lies elsewhere."""
    if not path.is_relative_to(part) or path == part:
        return None
    name = path.relative_to(part).parts[0].removesuffix(".py")
    return None if name == "__init__" else name


def arrows(part: PurePosixPath, files: Mapping[PurePosixPath, str]) -> dict[str, set[str]]:
    """Of each room of a part, the rooms that it imports."""
    rooms: defaultdict[str, set[str]] = defaultdict(set)
    for path, text in files.items():
        if (source := room(part, path)) is not None:
            goals = {room(part, module) for module in imports(path, text)}
            rooms[source] |= {goal for goal in goals if goal is not None and goal != source}
    return {source: {goal for goal in goals if goal in rooms} for source, goals in rooms.items()}


def floors(rooms: Mapping[str, set[str]]) -> int:
    """The number of floors: rooms on the longest way down. Raises ValueError for a circle."""
    height: dict[str, int] = {}

    def climb(name: str, above: tuple[str, ...]) -> int:
        if name in above:
            raise ValueError(f"a circle: {' -> '.join((*above, name))}")
        if name not in height:
            height[name] = 1 + max((climb(each, (*above, name)) for each in rooms[name]), default=0)
        return height[name]

    return max(climb(name, ()) for name in rooms)


def tables(commits: list[str]) -> Iterator[str]:
    """The lines of both tables, with a column for each commit and one for the working tree."""
    trees = [tree(commit) for commit in commits] + [tree(None)]
    heads = " | ".join([*commits, "now"])
    rule = "|---|" + "---|" * len(trees)
    yield from (f"| rooms, floors, arrows | {heads} |", rule)
    for name in PARTS:
        cells: list[str] = []
        for files in trees:
            rooms = arrows(PurePosixPath(name), files)
            cells.append(f"{len(rooms)}, {floors(rooms)}, {sum(map(len, rooms.values()))}" if rooms else "-")
        yield f"| {name} | {' | '.join(cells)} |"
    yield from ("", f"| lines of code | {heads} |", rule)
    for folder in FOLDERS:
        counts = [sum(text.count("\n") for path, text in each.items() if path.parts[0] == folder) for each in trees]
        yield f"| {folder} | {' | '.join(f'{count:,}' for count in counts)} |"


if __name__ == "__main__":
    sys.stdout.writelines(line + "\n" for line in tables(sys.argv[1:]))
