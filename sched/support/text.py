"""Text from files, made fit to be shown: short, and without characters that a terminal or a page would obey."""

from __future__ import annotations

import unicodedata

#: Characters of a bad value that an error shows.
SHOWN = 60
#: Categories of Unicode that do something instead of showing something: controls, marks of direction and the like,
#: halves of pairs, private ones, line and paragraph separators.
_UNSHOWN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: str, but: str = "\n\t") -> str:
    """The text with all control characters as escapes: `\\x1b`. `but`: those that stay."""
    if text.isprintable():
        return text
    return "".join(c if c in but or unicodedata.category(c) not in _UNSHOWN else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def shortened(value: object, most: int = SHOWN) -> str:
    """A value as an error shows it: its beginning, and how long it is if there is more."""
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"
