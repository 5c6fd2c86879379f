"""Texts of errors: what provokes each, as a page (`table`), and those that no test mentions
(`python -m tests.error_texts [FOLDER...]` lists them).

A text counts as mentioned if three of its words in a row, or all if it has fewer, stand in some string of a test. What
provokes it is what that test does there: the statements that are to raise it, or the other values of its case.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
#: Packages whose errors are looked at.
PACKAGES = ("hw", "sched", "tb")
#: What raises with a text: exceptions by their names, and short names for them in a function.
_RAISES = re.compile(r"(Error|Refused|Fault|Malformed|NotSupported|DoesNotFit|BadParameter|no|wrong|refused)$")
_WORDS = 3
#: What part of a text is many of its words.
_LEAST = 0.2
#: Letters of a string of a test at which it is no text of an error, and of a cell of the table at most.
_LONGEST, _CELL = 2000, 220
_HEAD = """\
# Texts of errors

Every text with which Meshloom refuses something, with an input that provokes it and the test that does so; an ellipsis
stands for a value. The site makes this page from the sources. Where no test is named, none spells the text
out: most of these only a broken tool or library would bring about, or what stands before them refuses already.
"""


def words(text: str) -> list[str]:
    """Words in small letters; backslashes are those of regular expressions."""
    return re.findall(r"[a-z0-9_]+", text.replace("\\", "").lower())


def strings(node: ast.AST) -> Iterator[str]:
    """The constant strings below a node; those that are written one after the other are one."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


class ErrorText(NamedTuple):
    """A text that a file raises: its constant parts as words, and as one reads it, with an ellipsis for each value."""

    path: Path
    line: int
    parts: list[list[str]]
    text: str


class Provocation(NamedTuple):
    """What a test does to see a text."""

    test: str
    source: str


def raised(path: Path) -> Iterator[ErrorText]:
    """Every text that a file raises."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Raise):
            continue
        call = node.exc
        if not isinstance(call, ast.Call) or not call.args:
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        parts = [words(text) for text in strings(call.args[0])]
        if _RAISES.search(name) and any(len(part) > 1 for part in parts):
            yield ErrorText(path, node.lineno, parts, _text_of(call.args[0]))


def _text_of(node: ast.expr) -> str:
    """A text as one reads it."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_text_of(value) for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text_of(left) + _text_of(right)
        case _:
            return "…"


def _windows(part: list[str]) -> set[str]:
    size = min(_WORDS, len(part))
    return {" ".join(part[at : at + size]) for at in range(len(part) - size + 1)}


def texts(folders: tuple[str, ...] = PACKAGES) -> list[ErrorText]:
    """All, by file and line."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [text for path in paths for text in sorted(raised(path), key=lambda text: text.line)]


def provocations() -> dict[str, list[Provocation]]:
    """What may provoke a text, by each window of two or three words in a string of a test, in the order of files."""
    known: dict[str, list[Provocation]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        above = _above(ast.parse(path.read_text(encoding="utf-8")))
        file = path.relative_to(ROOT).as_posix()
        for node in above:
            if not (isinstance(node, ast.Constant) and isinstance(node.value, str)) or len(node.value) >= _LONGEST:
                continue
            mentioned = words(node.value)
            if len(mentioned) < 2:
                continue
            source, test = _source(node, above)
            provocation = Provocation(f"{file}::{test}", source)
            for window in {" ".join(mentioned[at : at + size]) for size in (2, _WORDS) for at in range(len(mentioned))}:
                known.setdefault(window, []).append(provocation)
    return known


def _above(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    """The node above each of a tree."""
    above: dict[ast.AST, ast.AST] = {}
    rest = [tree]
    while rest:
        node = rest.pop()
        for child in ast.iter_child_nodes(node):
            above[child] = node
            rest.append(child)
    return above


def _source(node: ast.AST, above: dict[ast.AST, ast.AST]) -> tuple[str, str]:
    """What a test does where a string of it stands, and the name of the test."""
    source = ""
    here = node
    while here in above and not isinstance(here, ast.FunctionDef):
        outer = above[here]
        match outer:
            case _ if source:
                pass
            case ast.With(items=items, body=body) if here in items:
                source = "; ".join(ast.unparse(statement) for statement in body)
            case ast.Tuple(elts=values) if len(values) > 1:
                source = ", ".join(ast.unparse(value) for value in values if value is not here)
            case ast.Dict(keys=keys, values=values) if here in values:
                key = next(key for key, value in zip(keys, values, strict=True) if value is here)
                source = "" if key is None else ast.unparse(key)
            case ast.Call(func=function, args=values) if len(values) > 1 and here in values:
                rest = ", ".join(ast.unparse(value) for value in values if value is not here)
                source = f"{ast.unparse(function)}({rest})"
            case ast.FunctionDef(body=[*body]) if isinstance(here, ast.Assert):
                before = body[: body.index(here)]
                source = ast.unparse(before[-1]) if before else ""
            case _:
                pass
        here = outer
    return " ".join(source.split()), getattr(here, "name", "")


def _provocation(text: ErrorText, known: dict[str, list[Provocation]], sure: bool = False) -> Provocation | None:
    """The one whose string has most of the text's words; of several such, one that says what raises it. `sure`: only if
    it has four in a row, or many of a short text, or three that no other string has."""
    windows = {window for part in text.parts if len(part) > 1 for window in _windows(part)}
    count = Counter[Provocation]()
    for window in windows:
        count.update(set(known.get(window, ())))
    if not count:
        return None
    best = max(count, key=lambda each: (count[each], bool(each.source), each))
    rare = any(set(known.get(window, ())) == {best} for window in windows)
    return best if not sure or rare or count[best] > 1 or count[best] > _LEAST * len(windows) else None


def untested(folders: tuple[str, ...] = PACKAGES) -> list[str]:
    """`file:line: text` of each."""
    known = provocations()
    return [
        f"{text.path.relative_to(ROOT)}:{text.line}: {' … '.join(' '.join(part) for part in text.parts if part)}"
        for text in texts(folders)
        if _provocation(text, known) is None
    ]


def table() -> str:
    """A page: each text with the input that provokes it, by the file that raises it."""
    known = provocations()
    lines = [_HEAD]
    file = None
    for text in texts():
        if text.path != file:
            file = text.path
            lines += [f"\n## {file.relative_to(ROOT).as_posix()}\n", "| error | input | test |", "|---|---|---|"]
        cause = _provocation(text, known, sure=True)
        source, test = ("", "none") if cause is None else (_code(cause.source), _code(cause.test))
        lines.append(f"| {_code(text.text)} | {source} | {test} |")
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """Text as code in a cell."""
    flat = " ".join(text.replace("`", "'").split())
    short = flat if len(flat) <= _CELL else flat[: _CELL - 1] + "…"
    return f"`{short}`" if short else ""


if __name__ == "__main__":
    for row in untested(tuple(sys.argv[1:]) or PACKAGES):
        sys.stdout.write(f"{row}\n")
