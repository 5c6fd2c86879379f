"""Online schedulers by name: those that ship, those of installed packages (entry points
`meshloom.online_schedulers`), and any `package.module:THING` or `FILE.py:THING`. Options follow a colon:
`layer_puzzle:starvation=5`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pydantic import BaseModel

from ..serving.scheduler import OnlineScheduler, Platform
from ..support.plugins import Registry
from .interface import Options
from .registry import SchedulerError, options_of, typed_options


@dataclass(frozen=True)
class OnlineMaker:
    """How an online scheduler is made. `make(platform, options)`, or `module:function`, which is imported on the first
    call, makes one for one run. `summary`: one line for lists."""

    name: str
    summary: str
    make: Callable[[Platform, Any], OnlineScheduler] | str
    options: type[BaseModel] = Options

    def __call__(self, platform: Platform, options: BaseModel) -> OnlineScheduler:
        make: Any = self.make
        if isinstance(make, str):
            module, _, name = make.partition(":")
            make = getattr(import_module(module), name)
        return make(platform, options)


def _accept(name: str, thing: object) -> OnlineMaker:
    if not isinstance(thing, OnlineMaker):
        raise TypeError(f"must be an OnlineMaker, and is a {type(thing).__name__}")
    return thing


_FOLDER = "meshloom.sched.schedulers.layer_puzzle"
ONLINE: Registry[OnlineMaker] = Registry(
    "online scheduler",
    "meshloom.online_schedulers",
    {
        "prema": f"{_FOLDER}.entry:PREMA",
        "planaria": f"{_FOLDER}.entry:PLANARIA",
        "veltair": f"{_FOLDER}.entry:VELTAIR",
        "layer_puzzle": f"{_FOLDER}.entry:LAYER_PUZZLE",
        "lookahead": f"{_FOLDER}.entry:LOOKAHEAD",
    },
    _accept,
    SchedulerError,
)


def online_scheduler(name: str, platform: Platform) -> OnlineScheduler:
    """A new scheduler for one run. Raises SchedulerError that lists what there is, or says which option is wrong."""
    maker, options = chosen(name)
    return maker(platform, options)


def chosen(name: str) -> tuple[OnlineMaker, BaseModel]:
    """The maker and the options that a name asks for, without making anything. Raises SchedulerError as above."""
    base, options = options_of(name, ONLINE)
    maker = ONLINE.get(base)
    return maker, typed_options(base, "serving", maker.options, options)
