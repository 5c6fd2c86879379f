"""The timeline model as machine code, compiled by mypyc from the source files of `sched/model/`.

There is one definition of the model. Compiled, it runs several times as fast with the same result to the cycle; if
MESHLOOM_PURE is set, or if it cannot be compiled, Python runs it. The first process that needs it compiles it, and so
does `python -m meshloom.sched.model`.

Compiled code can be neither stale nor damaged: it is an entry of the store in `native/` of the cache (see
`sched.store.store`), named after a digest of its sources (and of `hw/spec/contracts.py`, whose constants it contains),
and its own digest is compared before it is loaded. With another cache, a checkout's own entry serves too, and so does
the one that a wheel brings (`COMPILED`)."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from ..store import cache, use
from ..store.kinds import NATIVE
from ..store.store import Recipe, Store, StoreError, damage

#: If set to anything but 0, Python runs the model.
PURE = "MESHLOOM_PURE"
MODEL = Path(__file__).parent
#: Where a wheel for one Python and one platform has its entry.
COMPILED = MODEL / "compiled"
#: Constants that mypyc compiles in.
_CONTRACTS = Path(__file__).parents[2] / "hw" / "spec" / "contracts.py"
#: The package decides which version runs. `records` and `latency` are values and closed forms, `native` is this file.
_INTERPRETED = ("__init__", "__main__", "latency", "native", "records")
#: The library shared by all compiled modules, as named by mypyc.
SHARED = "native__mypyc"
#: Names the interpreter and platform, as in `flow.cpython-311-x86_64-linux-gnu.so`.
_SUFFIX = EXTENSION_SUFFIXES[0]
#: How long it takes, for people.
_TAKES = "about a minute, once"
#: The command that compiles it.
_COMMAND = f"{Path(sys.executable).name} -m {__package__}"
#: Its lines go to stderr, if nobody has set up logging.
_log = logging.getLogger("meshloom.model")
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
    """Of all inputs of compiled code: the modules in `model`, `hw.spec.contracts`, how this module compiles them."""
    total = sha256(_SETUP.encode() + _CONTRACTS.read_bytes())
    for path in _sources(model):
        text = path.read_bytes()
        total.update(f"\0{path.stem}\0{len(text)}\0".encode())
        total.update(text)
    return total.hexdigest()[:20]


def pure() -> bool:
    """Whether the user wants Python to run the model."""
    return os.environ.get(PURE, "0") not in ("", "0")


def folder(model: Path = MODEL) -> Path | None:
    """The folder of the compiled modules for the sources in `model`, every byte of it as compiled, in use until this
    process ends; None if there is none, or Python is to run these."""
    return None if pure() else _whole(next(_homes(model)), model)


def ready() -> Path | None:
    """The same, compiled now if need be. What this does, or why Python runs the model, is logged in one line."""
    if pure():
        return None
    if (there := folder()) is not None:
        return there
    try:
        build(again=False)
        return folder()
    except NativeError as error:
        if (there := _elsewhere(MODEL)) is not None:  # where nothing can be written
            return there
        as_python(str(error))
        return None


def as_python(why: str) -> None:
    """Logs that Python runs the model, in this process and, without a further word, in those that it starts."""
    _log.warning("timeline model: Python runs it, several times slower: %s", why)
    os.environ[PURE] = "1"


def compiled() -> bool:
    """Whether this process runs the model as machine code."""
    from . import flow

    return not hasattr(flow.Link.evaluate, "__code__")


def build(model: Path = MODEL, again: bool = True) -> bool:
    """Compiles the modules in `model` unless this version of mypy has done so; returns whether it had to.

    Not `again`: takes what any version has compiled in a checkout, and raises if compiling these sources has failed
    before. Concurrent processes wait for each other. Raises NativeError if it fails.
    """
    home, sources = next(_homes(model)), digest(model)
    copied = None if again else _elsewhere(model)
    name = copied.name if copied is not None else f"{_prefix(model)}{_compiler()}"
    failed = home / f"{name}.log"
    if not again and copied is None and failed.is_file():
        raise NativeError(f"mypyc or the C compiler has failed; see {failed}; `{_COMMAND}` tries again")

    def make(place: Path, log: Path) -> None:
        if copied is None:
            _log.warning("timeline model: compiling it, %s (%s=1: Python runs it, several times slower)", _TAKES, PURE)
            _compile(model, sources, place, log)
        else:
            _copy(copied, place, _files(model))

    try:
        return Store(home, NATIVE.limit(), _log.warning).build(Recipe(name, make, _files(model)))[1]
    except (StoreError, cache.SettingError) as error:
        raise NativeError(str(error)) from None


def _whole(home: Path, model: Path) -> Path | None:
    """The latest folder of compiled modules in `home` that is whole, in use until this process ends."""
    try:
        places = [path for path in home.iterdir() if path.name.startswith(_prefix(model)) and path.is_dir()]
    except OSError:
        return None
    for place in sorted(places, key=lambda path: path.stat().st_mtime, reverse=True):
        if damage(place, _files(model)) is None and use.keep(place):
            return place
    return None


def _elsewhere(model: Path) -> Path | None:
    """The same in a checkout, whose cache is not the present one, or in the package, as a wheel has brought it."""
    first, *others = _homes(model)
    return next((place for home in others if home != first and (place := _whole(home, model)) is not None), None)


def _sources(model: Path) -> list[Path]:
    return sorted(path for path in model.glob("*.py") if path.stem not in _INTERPRETED)


def _files(model: Path) -> list[str]:
    """The compiled modules, and the library that they share."""
    return [f"{name}{_SUFFIX}" for name in (SHARED, *(path.stem for path in _sources(model)))]


def _prefix(model: Path) -> str:
    """Of the names of all code compiled from these sources for this interpreter; the version of mypy follows."""
    return f"{_SUFFIX.removesuffix('.so').strip('.')}-{digest(model)}-"


def _homes(model: Path) -> Iterator[Path]:
    """The folder of compiled code, and others where it may be found."""
    if model != MODEL:
        yield model / "native"
        return
    yield NATIVE.folder()
    if (checkout := cache.checkout()) is not None:
        yield NATIVE.folder(checkout / cache.OWN)
    else:
        yield COMPILED


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


def _compile(model: Path, sources: str, place: Path, log: Path) -> None:
    """Compiles a copy of the sources elsewhere, and puts the result into `place`. Raises NativeError, also if the
    sources have another digest than `sources` by now."""
    import shutil
    import subprocess
    from tempfile import TemporaryDirectory

    from meshloom.hw.spec import config

    with TemporaryDirectory(prefix="meshloom-native-") as name:
        at = Path(name)
        # the tree as importers see it, with a copy of the model, whose sources may change meanwhile
        copy = at / "meshloom" / "sched" / "model"
        copy.mkdir(parents=True)
        (at / "meshloom" / "hw").symlink_to(Path(config.__file__).resolve().parents[1])
        for path in model.parent.resolve().iterdir():
            if path.name not in ("model", "__pycache__"):
                (copy.parent / path.name).symlink_to(path)
        for path in model.glob("*.py"):
            shutil.copyfile(path, copy / path.name)
        if digest(copy) != sources:
            raise NativeError("its sources have just been changed; run the command again")
        (at / "setup.py").write_text(_SETUP)
        names = [str(path.relative_to(at)) for path in _sources(copy)]
        variables = {name: value for name, value in os.environ.items() if name != "MYPYPATH"}
        command = [sys.executable, "setup.py", *names]
        ran = subprocess.run(command, cwd=at, env=variables, capture_output=True, text=True, check=False)
        if ran.returncode or not all((copy / file).is_file() for file in _files(copy)):
            log.write_text(ran.stdout + ran.stderr)
            raise NativeError(f"mypyc or the C compiler failed; see {log}")
        _copy(copy, place, _files(copy))
        log.unlink(missing_ok=True)


def _copy(source: Path, place: Path, files: Iterable[str]) -> None:
    import shutil

    for name in files:
        shutil.copyfile(source / name, place / name)


def main() -> None:
    """Compiles the model if need be and reports that, or why it could not (exit status 1)."""
    try:
        if build():
            sys.stdout.write("timeline model: compiled\n")
    except NativeError as error:
        sys.exit(f"timeline model: not compiled; Python runs it, several times slower: {error}")
