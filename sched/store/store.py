"""What takes long to make is made once, and found by what it is made from.

An entry is a value (bytes) or a folder, and its name says all that decides what is in it (`key`). It is written under
another name and then renamed: readers see all of it or nothing, what was killed half way looks like nothing, and what
its orphaned compilers still write goes nowhere. It carries its digest; what does not match is made anew, and that is
said. Processes that need the same folder at the same time wait for the one that makes it; writers of values need not,
since each replaces a whole entry by another that says the same. (diskcache and joblib pickle
by default, and have no entries that are folders.)
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..support.files import FORBIDDEN, FULL, write_error
from . import use
from .entries import LOCKS, NEW, trim, trimmed_lately
from .room import full_place

MANIFEST = "manifest.json"
OnProgress = Callable[[str], None]
#: Where a store says what its caller need not handle: stderr, if nobody has set up logging.
_log = logging.getLogger("meshloom.store")
_VALUE = ".value"
#: Hexadecimal digits of a digest in a name.
_DIGITS = 24
#: Paths that mean themselves wherever tools write them.
_PLAIN = re.compile(r"[A-Za-z0-9._/+-]+")
#: A store that grows by this part of its limit is trimmed.
_PART = 64
#: Folders of which it has been said that nothing is kept there.
_warned: set[Path] = set()
#: Bytes that this process has kept in each folder since it has trimmed it, or since the first ones.
_written: dict[Path, int] = {}


class StoreError(RuntimeError):
    """Nothing can be kept where something must be; the message names the place and says what would help."""


def key(label: str, **ingredients: str) -> str:
    """The name of an entry: a label for people, and a digest of the whole label and of all ingredients with their
    names."""
    total = hashlib.sha256()
    for name, text in [("", label), *sorted(ingredients.items())]:
        content = text.encode(errors="surrogatepass")
        total.update(f"{name}\0{len(content)}\0".encode())
        total.update(content)
    return f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', label)[:120].lstrip('.')}-{total.hexdigest()[:_DIGITS]}"


@dataclass(frozen=True)
class Recipe:
    """How a folder is made. `name`: its `key`. `make`: fills the folder that it is given, and writes what its tools
    print to the file that it is given. `files`: those in it that are read or run."""

    name: str
    make: Callable[[Path, Path], None]
    files: Sequence[str]


class Store:
    """The entries in one folder, of which `limit` bytes are kept (None: all).

    Without a folder nothing is kept, and where nothing can be written values are not: they can be made again.
    `on_progress` hears what is damaged, and once that nothing can be written."""

    def __init__(self, folder: Path | None, limit: int | None = None, on_progress: OnProgress = _log.warning) -> None:
        self.folder, self._limit, self._tell = folder, limit, on_progress

    def get(self, name: str) -> bytes | None:
        """The value of that name; None if there is none, or only a damaged one."""
        if self.folder is None:
            return None
        path = self._value(name)
        try:
            value = _unsealed(path.read_bytes())
        except OSError:
            return None
        if value is None:
            self._tell(f"{path} is damaged: it is made again")
            return None
        use.touch(path)
        return value

    def put(self, name: str, value: bytes) -> None:
        """Keeps a value, instead of any other of that name."""
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, part = tempfile.mkstemp(prefix=NEW, dir=self.folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_sealed(value))
                Path(part).chmod(0o644)
                os.replace(part, self._value(name))
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(part)
                raise
        except OSError as error:
            if self.folder not in _warned:
                _warned.add(self.folder)
                self._tell(
                    f"{error.filename or self.folder}: {error.strerror or error}: results are not kept; free disk "
                    "space or permit writing there, or set MESHLOOM_CACHE to another folder"
                )
            return
        self._grown(len(value))

    def drop(self, name: str) -> None:
        """Forgets a value."""
        if self.folder is not None:
            with contextlib.suppress(OSError):
                self._value(name).unlink()

    def obtain(self, name: str, make: Callable[[], bytes]) -> bytes:
        """The value of that name, made if need be, by one process at a time. Raises what `make` raises."""
        if (stored := self.get(name)) is not None:
            return stored
        with contextlib.ExitStack() as stack:
            if self.folder is not None:
                with contextlib.suppress(OSError):  # where nothing can be written everybody makes it
                    stack.enter_context(self._making(name, lambda what: None))
                    if (stored := self.get(name)) is not None:
                        return stored
            entry = make()
            self.put(name, entry)
            return entry

    def build(self, recipe: Recipe, instead_of: str | None = None) -> tuple[Path, bool]:
        """The folder of that name, and whether this call has made it. It is in use until this process ends.

        `instead_of`: the `fingerprint` of one that looks whole and does not work: it is replaced, unless somebody has
        done so. Raises StoreError, and what `make` raises.
        """
        if self.folder is None:
            raise StoreError(f"{recipe.name} is a folder, and this store keeps none")
        place = self.folder / recipe.name
        if _serves(recipe, place, instead_of):  # also where nothing can be written
            return place, False
        try:
            with self._making(recipe.name, self._tell):
                if _serves(recipe, place, instead_of):
                    return place, False
                if place.exists():
                    why = damage(place, recipe.files) or "the one there does not work"
                    self._tell(f"building it again, {why}: {place}")
                self._make(recipe, place)
            if self._limit is not None:
                trim(self.folder, self._limit)
        except OSError as error:
            at = write_error(error, error.filename or full_place(self.folder) or self.folder)
            raise StoreError(self._mended(at)) from (at if error.errno in (*FULL, *FORBIDDEN) else error)
        return place, True

    def _mended(self, error: OSError) -> str:
        """What has stopped a build, and what to do."""
        assert self.folder is not None
        place = Path(error.filename)
        if error.errno == errno.ENOENT and place.name == str(place):  # a program, which is looked for in PATH
            return f"{place}, which builds {self.folder.name}, is not there; `meshloom doctor` says what to install"
        where, variable = f"{self.folder.name} are built in {self.folder}", "MESHLOOM_CACHE"
        if place.is_relative_to(other := Path(tempfile.gettempdir())) and not self.folder.is_relative_to(other):
            where, variable = f"builds have files in {other}, too", "TMPDIR"
        return (
            f"{place}: {error.strerror}: {where}; free disk space or permit writing there, or set {variable} to "
            "another folder"
        )

    def _value(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{name}{_VALUE}"

    @contextlib.contextmanager
    def _making(self, name: str, on_progress: OnProgress) -> Generator[None]:
        """Lets one process, and one thread of it, make an entry. Raises OSError where nothing can be written."""
        from filelock import FileLock, Timeout

        assert self.folder is not None
        locks = self.folder / LOCKS
        locks.mkdir(parents=True, exist_ok=True)
        lock = FileLock(locks / name)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            on_progress("waiting for another run that is building it")
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def _make(self, recipe: Recipe, place: Path) -> None:
        assert self.folder is not None
        for old in self.folder.glob(f"{NEW}{recipe.name}.*"):  # nobody else makes one: what is there was killed
            shutil.rmtree(old, ignore_errors=True)
        new = Path(tempfile.mkdtemp(prefix=f"{NEW}{recipe.name}.", dir=self.folder))
        making = use.take(new)
        try:
            new.chmod(0o755)
            with _plain(new) as work:
                recipe.make(work, self.folder / f"{recipe.name}.log")
                if work != new:
                    shutil.copytree(work, new, symlinks=True, dirs_exist_ok=True)
            files = {name: _entry(new / name) for name in recipe.files}
            (new / MANIFEST).write_text(json.dumps({"made": uuid.uuid4().hex, "files": files}, indent=2))
            with contextlib.suppress(FileNotFoundError):
                place.rename(self.folder / f"{use.GONE}{uuid.uuid4().hex}")
            new.rename(place)
            use.keep(place)  # while `making` holds it still: nobody removes it in between
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        finally:
            if making is not None:
                making.release()
            for old in self.folder.glob(f"{use.GONE}*"):
                shutil.rmtree(old, ignore_errors=True)

    def _grown(self, size: int) -> None:
        """Trims the folder when this process may have let it grow by a part of its limit, and at the first value that
        it keeps there if nobody has trimmed it lately: looking at thousands of entries takes longer than a schedule."""
        if self._limit is None or self.folder is None:
            return
        first = self.folder not in _written
        _written[self.folder] = _written.get(self.folder, 0) + size
        if _written[self.folder] > self._limit // _PART or (first and not trimmed_lately(self.folder)):
            _written[self.folder] = 0
            trim(self.folder, self._limit)


@contextlib.contextmanager
def _plain(folder: Path) -> Generator[Path]:
    """A folder, or an empty one elsewhere if makefiles cannot name it: in them, blanks part names, and $ and # mean
    something. Raises StoreError if there is no other place."""
    if _PLAIN.fullmatch(str(folder.resolve())):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="meshloom-") as elsewhere:
        if not _PLAIN.fullmatch(str(Path(elsewhere).resolve())):
            raise StoreError(
                f"nothing can be built in {folder.parent}, nor in {tempfile.gettempdir()}: makefiles cannot name them; "
                "set MESHLOOM_CACHE or TMPDIR to a folder whose path has letters, digits and ./_+- alone"
            )
        yield Path(elsewhere)


def damage(place: Path, needed: Iterable[str] = ()) -> str | None:
    """What is wrong with a folder, in words; None if it is as it was made. `needed`: files that it must have."""
    try:
        files = json.loads((place / MANIFEST).read_text())["files"]
        if unlisted := set(needed) - set(files):
            return f"its {MANIFEST} lacks {min(unlisted)}"
        for name, entry in files.items():
            if not (place / name).is_file():
                return f"{name} is missing"
            actual = _entry(place / name)
            if actual["bytes"] != entry["bytes"]:
                return f"{name} has {actual['bytes']:,} bytes instead of {entry['bytes']:,}"
            if actual != entry:
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


def _serves(recipe: Recipe, place: Path, instead_of: str | None) -> bool:
    if not use.keep(place):
        return False
    return damage(place, recipe.files) is None and (instead_of is None or fingerprint(place) != instead_of)


def _entry(path: Path) -> dict[str, object]:
    data = path.read_bytes()
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _sealed(value: bytes) -> bytes:
    """A value behind its digest."""
    return hashlib.sha256(value).hexdigest().encode() + b"\n" + value


def _unsealed(data: bytes) -> bytes | None:
    """The value in what `_sealed` has made; None if it is damaged."""
    value = data.partition(b"\n")[2]
    return value if data == _sealed(value) else None
