"""A copy of the checkout: a repository of its own, in which tests run as in the first one."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from meshloom.sched.store import use
from meshloom.sched.store.cache import OWN
from meshloom.sched.store.kinds import BLOCKS, MESHES, SCHEDULES, SIMULATORS, SYNTHESIS

from ...build.builder import OUTPUT
from .drawing import MutantError

#: What of the cache tests may use again: all that is named by its content. A copy's own entries go with it.
_SHARED = (*(kind.name for kind in (SIMULATORS, BLOCKS, MESHES, SCHEDULES, SYNTHESIS)), "artefacts", "native", "numba")
#: Seconds in which a folder has been taken by whoever has made it.
_NEW = 60
_WHO = ("-c", "user.name=mutants", "-c", "user.email=mutants@localhost", "-c", "commit.gpgsign=false")


@contextmanager
def copied(root: Path, linked: bool) -> Generator[Path]:
    """A copy of a checkout, gone afterwards, and with it those that killed processes have left. `linked`: with a cache
    of its own, which begins with links to what is compiled. Raises MutantError, OSError."""
    place = OUTPUT / "mutants"
    place.mkdir(parents=True, exist_ok=True)
    for old in place.glob("tree_*"):
        with suppress(OSError):  # another process may be at it, or about to take one that it has just made
            if time.time() - old.stat().st_mtime > _NEW:
                use.remove(old)
    with TemporaryDirectory(prefix="tree_", dir=place, ignore_cleanup_errors=True) as folder, _in_use(Path(folder)):
        tree = Path(folder, "checkout")
        _copy(root, tree)
        if linked:
            for name in _SHARED:
                if (OUTPUT / name).is_dir():
                    shutil.copytree(OUTPUT / name, tree / OWN / name, copy_function=_linked, symlinks=True)
        yield tree


@contextmanager
def _in_use(folder: Path) -> Generator[None]:
    hold = use.take(folder)
    try:
        yield
    finally:
        if hold is not None:
            hold.release()


def _copy(root: Path, tree: Path) -> None:
    """Its files, as the only commit of a repository: some tests ask which commit they are of."""
    names = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    tree.mkdir()
    for name in filter(None, names):
        source, target = root / name, tree / name
        if source.is_file() or source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    _git(tree, "init", "-q")
    _git(tree, "add", "--all")
    _git(tree, *_WHO, "commit", "-q", "--allow-empty", "-m", "a copy")


def _git(place: Path, *arguments: str) -> str:
    """What Git says. Raises MutantError."""
    done = subprocess.run(["git", "-C", str(place), *arguments], capture_output=True, check=False)
    if done.returncode:
        raise MutantError(f"git {arguments[0]} in {place} fails: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode()


def _linked(source: str, target: str, *, follow_symlinks: bool = True) -> None:
    with suppress(FileNotFoundError):  # an entry that another process has just removed
        try:
            os.link(source, target, follow_symlinks=follow_symlinks)
        except OSError:
            shutil.copy2(source, target, follow_symlinks=follow_symlinks)
