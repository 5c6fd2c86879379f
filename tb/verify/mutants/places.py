"""A campaign of some folders or files alone. Its changes are among those of the campaign of all folders with the same
seed, so neither tries again what the other has tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path, PurePosixPath

from ...build.builder import ROOT
from .drawing import SIDES, Draw, folders


class PlaceError(ValueError):
    """A path has no source that a campaign changes; the message says which."""


def plan_of(paths: Sequence[str], counts: dict[str, int], seed: int, root: Path = ROOT) -> list[Draw]:
    """So many draws of each side, in turn from the places of these paths: a source, or a folder and those below it.
    Raises PlaceError."""
    result: dict[Draw, None] = {}
    sources = [source for path in paths for source in _places(path, root)]
    for side, number in counts.items():
        draws = [_draws(place, seed, root) for place in dict.fromkeys(sources) if place.startswith(SIDES[side])]
        for turn in range(-(-number // len(draws)) if draws else 0):
            for each in draws[: number - turn * len(draws)]:
                result[next(each)] = None
    return list(result)


def _places(path: str, root: Path) -> list[str]:
    name, changed = PurePosixPath(path), [folder for side in SIDES for folder in folders(side, root)]
    if name.suffix == ".py":
        places = [name.as_posix()] if name.parent.as_posix() in changed and name.name != "__init__.py" else []
        places = [place for place in places if (root / place).is_file() and (root / place).stat().st_size]
    else:
        places = [folder for folder in changed if PurePosixPath(folder).is_relative_to(name)]
    if not places:
        raise PlaceError(f"{path} has no source that is changed; give a folder or a file below hw, sched or tb")
    return places


def _draws(place: str, seed: int, root: Path) -> Iterator[Draw]:
    """Those of a folder, or of its draws those that change a file."""
    folder = PurePosixPath(place).parent.as_posix() if place.endswith(".py") else place
    draws = (Draw(folder, number, seed) for number in count())
    return (draw for draw in draws if place == folder or draw.file(root) == place)
