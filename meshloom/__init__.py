"""Meshloom from Python: chips, workloads, schedules and runs, without the command line.

    import meshloom

    chip = meshloom.load_chip("quad16")
    plan = meshloom.schedule("resnet8/conv1", chip)          # a Schedule, with its predicted cycles
    result = meshloom.run([plan, "gemm:64x64x64"], chip)     # on the RTL: bytes and cycles compared
    result.frame()                                           # a polars table, a row for each workload

Names are imported when they are first used, so `import meshloom` alone costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshloom.hw.spec.config import ChipConfig
    from meshloom.sched.ir.schedule import Schedule
    from meshloom.sched.mapping.emit.task import LayerTask
    from meshloom.tb.api.calls import load_chip, run, schedule
    from meshloom.tb.api.result import Result
    from meshloom.tb.api.sweeping import Swept, sweep
    from meshloom.tb.api.workload import Workload

__all__ = [
    "ChipConfig",
    "LayerTask",
    "Result",
    "Schedule",
    "Swept",
    "Workload",
    "load_chip",
    "run",
    "schedule",
    "sweep",
]

_PLACES = {
    "ChipConfig": "hw.spec.config",
    "LayerTask": "sched.mapping.emit.task",
    "Result": "tb.api.result",
    "Schedule": "sched.ir.schedule",
    "Swept": "tb.api.sweeping",
    "Workload": "tb.api.workload",
    "load_chip": "tb.api.calls",
    "run": "tb.api.calls",
    "schedule": "tb.api.calls",
    "sweep": "tb.api.sweeping",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_PLACES[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
