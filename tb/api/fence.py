"""What an agent may name: built-in things, and files below one folder. Nothing else is read, written or executed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from meshloom.hw.spec.config import built_in_chips
from meshloom.sched.schedulers.registry import REGISTRY, options_of
from meshloom.sched.workload import topology

from ..results.recorder import RESULTS_FOLDER
from ..runs.kinds import table

#: Kinds of workload whose names are no files.
_NAMED = ("network", "layer", "conv", "gemm", "gradient", "chain")


class FenceError(ValueError):
    """Something that an agent may not name; the message says what it may."""


@dataclass(frozen=True)
class Fence:
    """A folder. `schedulers`: scheduler files below it may be executed."""

    folder: Path
    schedulers: bool = False

    def path(self, text: str) -> Path:
        """A file below the folder, behind links and `..`. Raises FenceError."""
        try:
            place = (self.folder / text).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise FenceError(f"{text!r} is no path: {error}") from error
        if not self.holds(place):
            raise FenceError(f"{text!r} leads out of the folder of this server; name a file inside it")
        return place

    def holds(self, place: Path) -> bool:
        """Whether a path is below the folder, behind links."""
        return place.resolve().is_relative_to(self.folder.resolve())

    def chip(self, name: str) -> str:
        """A built-in chip, or a file of one. Raises FenceError."""
        if name in built_in_chips():
            return name
        if not name.endswith(".toml"):
            raise FenceError(f"unknown chip {name!r}; there are {', '.join(built_in_chips())}, and .toml files")
        return str(self.path(name))

    def scheduler(self, name: str) -> str:
        """A scheduler that is installed, or if that is allowed one in a file. Raises FenceError, SchedulerError."""
        base = options_of(name)[0]
        if base in REGISTRY.names():
            return name
        file, _, rest = name.partition(":")
        if not file.endswith(".py"):
            raise FenceError(f"unknown scheduler {name!r}; there are {', '.join(REGISTRY.names())}")
        if not self.schedulers:
            raise FenceError(f"scheduler {name!r} is a file, and this server executes none (--allow-schedulers)")
        return f"{self.path(file)}:{rest}"

    def workload(self, name: str) -> str:
        """A workload by name or shape, or a file of one. Raises FenceError, WorkloadError."""
        if (file := topology.split(name)) is not None:
            return str(self.path(str(file[0]))) + (f"/{file[1]}" if file[1] else "")
        kind = table.kind_of(name)
        if kind in _NAMED:
            return name
        if kind in (".onnx", ".json", ".bin"):
            return str(self.path(name))
        raise FenceError(f"workload {name!r} is none that this server takes; mappings have a tool of their own")

    def run(self, name: str) -> str:
        """A run of this server by its name, or a file. Raises FenceError."""
        if "/" not in name and (self.folder / RESULTS_FOLDER / f"{name}.json").is_file():
            return str(self.path(str(RESULTS_FOLDER / f"{name}.json")))
        return str(self.path(name))
