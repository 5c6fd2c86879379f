"""Folders of the cache: made once, and whole or not there.

A folder is made under a name of its own, gets a manifest when it is finished, and is then renamed: what was killed half
way looks like nothing, and what its orphaned compilers still write goes nowhere. The manifest holds size and SHA-256 of
the files that are run, so damage is noticed, and the folder is made anew.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..results.exits import ToolError

MANIFEST = "manifest.json"
Tell = Callable[[str], None]


class KeptError(ToolError):
    """The cache cannot be written; the message names the folder and says what would help."""


@dataclass(frozen=True)
class Recipe:
    """How a folder is made. `name`: says all that decides what is in it. `make`: fills the folder that it is given, and
    writes what its tools print to the file that it is given. `files`: those in it that are run."""

    name: str
    make: Callable[[Path, Path], None]
    files: Sequence[str]


def kept(
    recipe: Recipe, cache: Path, tell: Tell = lambda what: None, instead_of: str | None = None
) -> tuple[Path, bool]:
    """The folder of that name below `cache`, and whether this call has made it.

    `tell` hears why it is made anew, or that another process is making it. `instead_of`: the `fingerprint` of one that
    looks whole and does not work: it is replaced, unless somebody has done so. Raises KeptError, and what `make`
    raises.
    """
    from filelock import FileLock, Timeout

    place = cache / recipe.name
    if _serves(place, instead_of):  # also where nothing can be written
        return place, False
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = FileLock(cache / f"{recipe.name}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            tell("waiting for another run that is building it")
            lock.acquire()
    except OSError as error:
        raise _unwritable(cache, error) from error
    try:
        if _serves(place, instead_of):
            return place, False
        if place.exists():
            tell(f"building it anew, {damage(place) or 'the one that is there does not work'}: {place}")
        _make(recipe, cache, place)
        return place, True
    except OSError as error:
        raise _unwritable(cache, error) from error
    finally:
        lock.release()


def _serves(place: Path, instead_of: str | None) -> bool:
    return damage(place) is None and (instead_of is None or fingerprint(place) != instead_of)


def _make(recipe: Recipe, cache: Path, place: Path) -> None:
    for old in cache.glob(f".{recipe.name}.*"):  # nobody else makes one: what is there was killed
        shutil.rmtree(old, ignore_errors=True)
    new = Path(tempfile.mkdtemp(prefix=f".{recipe.name}.", dir=cache))
    try:
        new.chmod(0o755)
        recipe.make(new, cache / f"{recipe.name}.log")
        files = {name: _entry(new / name) for name in recipe.files}
        (new / MANIFEST).write_text(json.dumps({"made": uuid.uuid4().hex, "files": files}, indent=2))
        shutil.rmtree(place, ignore_errors=True)
        new.rename(place)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def _entry(path: Path) -> dict[str, object]:
    data = path.read_bytes()
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def damage(place: Path) -> str | None:
    """What is wrong with a folder, in words; None if it is as it was made."""
    try:
        files = json.loads((place / MANIFEST).read_text())["files"]
        for name, entry in files.items():
            if not (place / name).is_file():
                return f"{name} is missing"
            found = _entry(place / name)
            if found["bytes"] != entry["bytes"]:
                return f"{name} has {found['bytes']:,} bytes instead of {entry['bytes']:,}"
            if found != entry:
                return f"{name} is not what was built"
    except FileNotFoundError:
        return "it is not finished"
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return f"its {MANIFEST} cannot be read ({error})"
    return None


def fingerprint(place: Path) -> str:
    """Tells a folder from one that was made of the same recipe at another time; empty if there is none."""
    try:
        return (place / MANIFEST).read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _unwritable(cache: Path, error: OSError) -> KeptError:
    return KeptError(
        f"{error.filename or cache}: {error.strerror or error}: simulators are built below {cache}; make room or give "
        "the right to write there, or name another folder in MESHLOOM_CACHE"
    )
