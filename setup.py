"""What pyproject.toml cannot say: a wheel that brings the timeline model compiled, for one Python and one platform.

`MESHLOOM_COMPILED` names the folder of the compiled model (`meshloom.sched.model.native.folder()`); scripts/wheels.sh
sets it. Without it the wheel is for every Python, and who installs it compiles the model, or has Python run it.

A wheel is the same bytes wherever, whenever and by whomever it is built from the same sources: its files have one date,
that of SOURCE_DATE_EPOCH if that is set, and rights that do not depend on the umask. The compiled model has no path in
it, as it is compiled without what debuggers read.
"""

import json
import os
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

COMPILED = os.environ.get("MESHLOOM_COMPILED", "")
#: The first second that the date of a file in an archive can say (1980-01-01).
os.environ.setdefault("SOURCE_DATE_EPOCH", "315532800")
os.umask(0o022)


class WithModel(build_py):
    """Puts the compiled model beside its sources. Every file is for all to read, and code for all to run."""

    def run(self) -> None:
        super().run()
        if COMPILED and not self.editable_mode:
            place = Path(self.build_lib) / "meshloom" / "sched" / "model" / "compiled"
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(COMPILED, place / Path(COMPILED).name)
            _without_its_time(place / Path(COMPILED).name / "manifest.json")
        if not self.editable_mode:
            _readable(Path(self.build_lib))


class Alike(bdist_wheel):
    """Gives the files that tell of the wheel the same rights, too."""

    def write_wheelfile(self, wheelfile_base: str, *arguments: Any, **named: Any) -> None:
        super().write_wheelfile(wheelfile_base, *arguments, **named)
        _readable(Path(wheelfile_base))


def _readable(folder: Path) -> None:
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.suffix == ".so" else 0o644)


def _without_its_time(manifest: Path) -> None:
    """An entry of the store has a number for the time when it was made; here one for what is in it."""
    entry = json.loads(manifest.read_text())
    entry["made"] = sha256(json.dumps(entry["files"], sort_keys=True).encode()).hexdigest()[:32]
    manifest.write_text(json.dumps(entry, indent=2))


class ForPlatform(Distribution):
    """Has machine code if there is a compiled model, so that the wheel names Python and platform."""

    def has_ext_modules(self) -> bool:
        return bool(COMPILED)


setup(distclass=ForPlatform, cmdclass={"build_py": WithModel, "bdist_wheel": Alike})
