"""Texts of errors that no test mentions: `python -m tests.error_texts [FOLDER...]` lists them.

A text counts as mentioned if three of its words in a row, or all if it has fewer, stand in some string of a test.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Packages whose errors are looked at.
PACKAGES = ("hw", "sched", "tb")
#: What raises with a text: exceptions by their names, and short names for them in a function.
_RAISES = re.compile(r"(Error|Refused|Fault|Malformed|NotSupported|DoesNotFit|BadParameter|no|wrong|refused)$")
_WORDS = 3


def words(text: str) -> list[str]:
    """Words in small letters; backslashes are those of regular expressions."""
    return re.findall(r"[a-z0-9_]+", text.replace("\\", "").lower())


def strings(node: ast.AST) -> Iterator[str]:
    """The constant strings below a node; those that are written one after the other are one."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def raised(path: Path) -> Iterator[tuple[int, list[list[str]]]]:
    """Line and constant parts, as words, of every text that a file raises."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Raise):
            continue
        call = node.exc
        if not isinstance(call, ast.Call) or not call.args:
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        parts = [words(text) for text in strings(call.args[0])]
        if _RAISES.search(name) and any(len(part) > 1 for part in parts):
            yield node.lineno, parts


def _windows(part: list[str]) -> set[str]:
    size = min(_WORDS, len(part))
    return {" ".join(part[at : at + size]) for at in range(len(part) - size + 1)}


def untested(folders: tuple[str, ...] = PACKAGES) -> list[str]:
    """`file:line: text` of each."""
    known = "\n".join(
        f" {' '.join(words(text))} "
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for text in strings(ast.parse(path.read_text(encoding="utf-8")))
        if len(text) < 2000
    )
    found: list[str] = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for line, parts in raised(path):
                if not any(f" {window} " in known for part in parts if len(part) > 1 for window in _windows(part)):
                    text = " … ".join(" ".join(part) for part in parts if part)
                    found.append(f"{path.relative_to(ROOT)}:{line}: {text}")
    return found


if __name__ == "__main__":
    for row in untested(tuple(sys.argv[1:]) or PACKAGES):
        sys.stdout.write(f"{row}\n")
