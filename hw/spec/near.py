"""Names that somebody may have meant by one that there is not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: How alike two names must be, 0..1, and how many are offered.
_ALIKE, _OFFERED = 0.7, 3


def near(name: str, known: Iterable[str]) -> str:
    """`did you mean squeezenet?`, with up to three of the known names, the nearest first; empty if none is near."""
    matches = difflib.get_close_matches(name, list(known), n=_OFFERED, cutoff=_ALIKE)
    return f"did you mean {', '.join(matches)}?" if matches else ""


def near_or_all(name: str, known: Iterable[str]) -> str:
    """The same, but all known names if none is near: `there are squeezenet, resnet8`."""
    names = list(known)
    return near(name, names) or f"there are {', '.join(names)}"
