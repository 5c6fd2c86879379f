"""Text from files, made fit to be shown: short, and without characters that a terminal or a page would obey."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from pathlib import Path

#: Words of an error that are longer than paths are, and characters of one of its lines.
_ENDLESS, _LINE = re.compile(r"\S{400,}"), 4000
#: Digits of a number that any of ours could be.
_DIGITS = 18
#: Characters of a bad value that an error shows.
SHOWN = 60
#: Categories of Unicode that do something instead of showing something: controls, marks of direction and the like,
#: halves of pairs, private ones, line and paragraph separators.
_UNSHOWN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
#: Zero-width joiner, non-joiner and soft hyphen: parts of words.
_JOINERS = "\u200c\u200d\u00ad"


def printable(text: str, stays: str = "\n\t") -> str:
    """The text with its control characters as escapes (`\\x1b`), but for those in `stays` and joiners of letters."""
    if text.isprintable():
        return text
    return "".join(c if c in stays or unicodedata.category(c) not in _UNSHOWN else _escape(c) for c in text)


def one_line(text: str) -> str:
    """The text as a part of a line: line breaks are escapes, too."""
    return printable(text, "")


@lru_cache(maxsize=1 << 12)
def line_of(path: str, line: int) -> str:
    """A line of a Python file, for messages: `line 12 of first.py`, or of `in_turn/__init__.py`. Empty for a place that
    is no file, such as a cell of a notebook: nobody could look there."""
    file = Path(path)
    if not file.is_file():
        return ""
    return f"line {line} of {f'{file.parent.name}/' if file.stem == '__init__' else ''}{file.name}"


def _escape(character: str) -> str:
    return character if character in _JOINERS else character.encode("unicode_escape").decode("ascii")


def bounded(text: str) -> str:
    """A message without the endless: words that are no path's length are cut, and lines that nobody would read."""
    text = _ENDLESS.sub(lambda word: shortened(word[0]), text)
    lines = text.split("\n")
    return "\n".join(line if len(line) <= _LINE else f"{line[:_LINE]}... ({len(line):,} characters)" for line in lines)


def whole_number(text: str) -> int | None:
    """The number that digits say, of which there are at most 18; None for another text."""
    return int(text) if len(text) <= _DIGITS and text.isascii() and text.isdecimal() else None


def shortened(value: object, most: int = SHOWN) -> str:
    """A value as an error shows it: its beginning, and how long it is if there is more."""
    text = one_line(value if isinstance(value, str) else str(value))
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"
