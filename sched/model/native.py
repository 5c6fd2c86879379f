"""The timeline model as machine code, compiled by mypyc from the source files of `sched/model/`.

There is one definition of the model. Compiled, it runs several times as fast with the same result to the cycle; if it
is not compiled, or if MESHLOOM_PURE is set, Python runs it. `python -m meshloom.sched.model` compiles it.

Compiled code cannot be stale: it is stored in `native/` of the cache (see `sched.store.cache`), in a folder named after
a digest of its sources (and of `hw/contracts.py`, whose constants it contains), and `sched/model/__init__.py` only uses
the folder of the current sources. An edited source runs as Python until it is compiled."""

from __future__ import annotations

import os
import sys
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from time import time

from ..store import cache

#: If set to anything but 0, Python runs the model.
PURE = "MESHLOOM_PURE"
MODEL = Path(__file__).parent
#: Constants that mypyc compiles in.
_CONTRACTS = Path(__file__).parents[2] / "hw" / "contracts.py"
#: The package decides which version runs. `records` and `latency` are values and closed forms, `native` is this file.
_INTERPRETED = ("__init__", "__main__", "latency", "native", "records")
#: The library shared by all compiled modules, as named by mypyc.
SHARED = "native__mypyc"
#: Names the interpreter and platform, as in `flow.cpython-311-x86_64-linux-gnu.so`.
_SUFFIX = EXTENSION_SUFFIXES[0]
#: Seconds for which code compiled from other sources is kept, because a process may have just begun to load it.
_KEEP = 24 * 3600
#: A script that compiles the modules named in its arguments, in its working directory.
_SETUP = """
import sys

from mypyc.build import mypycify
from setuptools import setup

options = ["--config-file=", "--follow-imports=silent", "--explicit-package-bases", "--namespace-packages"]
modules = mypycify([*options, *sys.argv[1:]], opt_level="3", debug_level="0", group_name="meshloom.sched.model.native")
setup(name="model", packages=[], ext_modules=modules, script_args=["--quiet", "build_ext", "--inplace"])
"""


class NativeError(RuntimeError):
    """The model cannot be compiled; the message gives the reason and the fix."""


def digest(model: Path = MODEL) -> str:
    """Of all inputs of compiled code: the modules in `model`, `hw.contracts`, how this module compiles them."""
    found = sha256(_SETUP.encode() + _CONTRACTS.read_bytes())
    for path in _sources(model):
        text = path.read_bytes()
        found.update(f"\0{path.stem}\0{len(text)}\0".encode())
        found.update(text)
    return found.hexdigest()[:20]


def folder(model: Path = MODEL) -> Path | None:
    """The folder of the compiled modules for the sources in `model`; None if Python is to run these."""
    if os.environ.get(PURE, "0") not in ("", "0"):
        return None
    try:
        made = [path for path in _home(model).iterdir() if path.name.startswith(f"{digest(model)}-")]
    except FileNotFoundError:
        return None
    return max(made, key=lambda path: path.stat().st_mtime, default=None)


def compiled() -> bool:
    """Whether this process runs the model as machine code."""
    from . import flow

    return not hasattr(flow.Link.evaluate, "__code__")


def build(model: Path = MODEL) -> bool:
    """Compiles the modules in `model` unless this version of mypy has done so; returns whether it had to.

    Concurrent processes wait for each other. Raises NativeError if it fails.
    """
    from filelock import FileLock

    version = _compiler()
    home = _home(model)
    try:
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / ".lock"):
            there = home / f"{digest(model)}-{version}"
            if there.is_dir():
                return False
            _compile(model, home, version)
            _forget(home, keep=there)
    except OSError as error:
        raise NativeError(f"{error.filename}: {error.strerror}") from None
    return True


def _sources(model: Path) -> list[Path]:
    return sorted(path for path in model.glob("*.py") if path.stem not in _INTERPRETED)


def _home(model: Path) -> Path:
    """The folder of all code compiled for this interpreter."""
    return (cache.root() / "native" if model == MODEL else model / "native") / _SUFFIX.removesuffix(".so").strip(".")


def _compiler() -> str:
    """The version of mypy. Raises NativeError if something needed for compiling is missing."""
    import shutil
    import sysconfig
    from importlib.metadata import PackageNotFoundError, version

    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(command) is None:
        raise NativeError(f"there is no C compiler {command}; install one (Debian: gcc), or name yours in CC")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        raise NativeError("the headers of Python are missing; install them (Debian: python3-dev)")
    try:
        version("setuptools")
        return version("mypy")
    except PackageNotFoundError as missing:
        raise NativeError(f"{missing.name} is not installed; install meshloom[dev]") from None


def _compile(model: Path, home: Path, version: str) -> None:
    """Compiles a copy of the sources elsewhere, and moves the result into place when it is complete."""
    import shutil
    import subprocess
    from tempfile import TemporaryDirectory

    from meshloom.hw import config

    with TemporaryDirectory(prefix="meshloom-native-") as name:
        at = Path(name)
        # the tree as importers see it, with a copy of the model, whose sources may change meanwhile
        copy = at / "meshloom" / "sched" / "model"
        copy.mkdir(parents=True)
        (at / "meshloom" / "hw").symlink_to(Path(config.__file__).resolve().parent)
        for path in model.parent.resolve().iterdir():
            if path.name not in ("model", "__pycache__"):
                (copy.parent / path.name).symlink_to(path)
        for path in model.glob("*.py"):
            shutil.copyfile(path, copy / path.name)
        (at / "setup.py").write_text(_SETUP)
        names = [str(path.relative_to(at)) for path in _sources(copy)]
        variables = {name: value for name, value in os.environ.items() if name != "MYPYPATH"}
        command = [sys.executable, "setup.py", *names]
        ran = subprocess.run(command, cwd=at, env=variables, capture_output=True, text=True, check=False)
        made = [*copy.glob(f"*{_SUFFIX}")]
        if ran.returncode or len(made) <= len(names):  # one for each module, and the shared library
            log = home / "failed.log"
            log.write_text(ran.stdout + ran.stderr)
            raise NativeError(f"mypyc or the C compiler failed; see {log}")
        place = home / f"{digest(copy)}-{version}"
        with TemporaryDirectory(prefix=".new-", dir=home) as new:
            whole = Path(new, place.name)
            whole.mkdir()
            for path in made:
                shutil.copyfile(path, whole / path.name)
            if not place.exists():  # the sources may have been changed back meanwhile
                whole.rename(place)


def _forget(home: Path, keep: Path) -> None:
    """Removes code that was compiled from other sources and is not recent."""
    import shutil

    for path in home.iterdir():
        if path.is_dir() and path != keep and path.stat().st_mtime < time() - _KEEP:
            shutil.rmtree(path, ignore_errors=True)


def main() -> None:
    """Compiles the model if need be and reports that, or why it could not (exit status 1)."""
    try:
        if build():
            sys.stdout.write("timeline model: compiled\n")
    except NativeError as error:
        sys.exit(f"timeline model: not compiled; Python runs it, several times slower: {error}")
