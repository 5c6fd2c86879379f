"""What pyproject.toml cannot say: a wheel that brings the timeline model compiled, for one Python and one platform.

`MESHLOOM_COMPILED` names the folder of the compiled model (`meshloom.sched.model.native.folder()`); scripts/wheels.sh
sets it. Without it the wheel is for every Python, and who installs it compiles the model, or has Python run it.
"""

import os
import shutil
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

COMPILED = os.environ.get("MESHLOOM_COMPILED", "")


class WithModel(build_py):
    """Puts the compiled model beside its sources."""

    def run(self) -> None:
        super().run()
        if COMPILED and not self.editable_mode:
            place = Path(self.build_lib) / "meshloom" / "sched" / "model" / "compiled"
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(COMPILED, place / Path(COMPILED).name)


class ForPlatform(Distribution):
    """Has machine code if there is a compiled model, so that the wheel names Python and platform."""

    def has_ext_modules(self) -> bool:
        return bool(COMPILED)


setup(distclass=ForPlatform, cmdclass={"build_py": WithModel})
