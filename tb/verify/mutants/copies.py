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

#: What of the cache is compiled.
COMPILED = (*(kind.name for kind in (SIMULATORS, BLOCKS, MESHES, SYNTHESIS)), "artefacts", "native", "numba")
#: What of it tests may use again: all that is named by its content. A copy's own entries go with it.
_SHARED = (*COMPILED, SCHEDULES.name)
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
            _link(tree)
        yield tree


def renew(tree: Path) -> None:
    """A copy with a cache of its own is as it was, but for bytecode, which the next tests need not compile again.
    Raises MutantError, OSError."""
    shutil.rmtree(tree / OWN, ignore_errors=True)
    shutil.rmtree(tree.parent / "tmp", ignore_errors=True)
    if _git(tree, "status", "--porcelain"):
        _git(tree, "checkout", "-q", "--force", "HEAD", "--", ".")
        _git(tree, "clean", "-q", "-d", "--force")
    _link(tree)


def write(file: Path, text: str) -> None:
    """A source of a copy, which is executed whatever bytecode there is: that of a change of the same size in the same
    second looks like its own."""
    for old in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        old.unlink()
    file.write_text(text, encoding="utf-8")


def _link(tree: Path) -> None:
    for name in _SHARED:
        if (OUTPUT / name).is_dir():
            shutil.copytree(OUTPUT / name, tree / OWN / name, copy_function=_linked, symlinks=True)


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
