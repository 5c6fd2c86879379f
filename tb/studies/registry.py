"""Studies by name: those that ship, those of installed packages (entry points `meshloom.studies`), and any
`package.module:STUDY` and `FILE.py:STUDY`. Nothing is imported before it is asked for.

Each folder beside this file declares in STUDIES which of its modules are studies; a module's STUDY has the module's
name.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from meshloom.sched.schedulers.papers import papers
from meshloom.sched.support.plugins import PluginError, Registry

from .engine.study import Study

#: Entry points of other packages that are studies.
GROUP = "meshloom.studies"
#: Folders of studies, in the order of a run of all.
SUBJECTS = ("chip", "networks", "tools")
#: Folders of studies of a paper, named as its folder in `sched/papers`: without that they are not listed.
PAPERS = ("flexer", "layer_puzzle", "klotski", "dtt", "gradient")


class UnknownStudyError(PluginError):
    """A name that means no study; the message lists those there are."""


def _accept(name: str, thing: object) -> Study:
    if isinstance(thing, Study):
        return thing
    raise TypeError(f"is of type {type(thing).__name__}; it must be a Study")


def _shipped() -> dict[str, str]:
    here = Path(__file__).parent
    folders = [name for name in (*SUBJECTS, *PAPERS) if name in SUBJECTS or name in papers()]
    return {
        name: f"{__package__}.{folder}.{name}:STUDY"
        for folder in folders
        if (here / folder).is_dir()
        for name in import_module(f"{__package__}.{folder}").STUDIES
    }


SHIPPED = _shipped()
REGISTRY: Registry[Study] = Registry("study", GROUP, SHIPPED, _accept, UnknownStudyError)
