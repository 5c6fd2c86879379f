"""The folders below the root of the cache: what lies in each, and how much of it is kept.

Each has a share of MESHLOOM_CACHE_MB to itself, so that a few large simulators never push out the results of long
searches. What was used longest ago goes first, and nothing that is in use.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from . import cache, use
from .entries import trim
from .store import OnProgress, Store


@dataclass(frozen=True)
class Kind:
    """A folder of the cache. `share`: of MESHLOOM_CACHE_MB, in percent; `variable`: of a kind with a limit of its own,
    its environment variable in megabytes and what holds without it."""

    name: str
    what: str
    share: int = 0
    variable: tuple[str, int] | None = None

    def folder(self, root: Path | None = None) -> Path:
        """Its folder, below the root of the cache or another one; it need not exist."""
        return (cache.root() if root is None else root) / self.name

    def limit(self) -> int:
        """The bytes that are kept. Raises SettingError."""
        if self.variable is not None:
            return cache.setting(*self.variable) * 1_000_000
        return cache.setting(*cache.MEGABYTES) * 1_000_000 * self.share // 100

    def store(self, root: Path | None = None, on_progress: OnProgress | None = None) -> Store:
        """The store in its folder. Raises SettingError."""
        return Store(self.folder(root), self.limit(), *([] if on_progress is None else [on_progress]))

    def compiled(self, name: str) -> Path | None:
        """The folder of that name for code that a compiler keeps there by itself, in use until this process ends; None
        if nothing can be written there. Raises SettingError."""
        place = self.folder() / name
        if not place.is_dir():
            trim(self.folder(), self.limit())
        if cache.folder(self.name, name) is None:
            return None
        use.keep(place)
        return place


SIMULATORS = Kind("simulators", "simulators of chips", 40)
BLOCKS = Kind("blocks", "their tiles and meshes, compiled", 20)
MESHES = Kind("meshes", "simulators of networks on chip", 8)
SCHEDULES = Kind("schedules", "what searches have found", 10)
SYNTHESIS = Kind("synthesis", "Verilog and sizes of gateware", 1)
SOAK = Kind("soak", "progress of interrupted soaks", 1)
TOOLS = Kind("tools", "simulators to compare with", 8)
PACKAGES = Kind("packages", "files out of packages", 2)
NUMBA = Kind("numba", "searches, compiled", 5)
NATIVE = Kind("native", "timeline model, compiled", 5)
RUNS = Kind("runs", "waves, logs of simulators that died", variable=("MESHLOOM_KEEP_MB", 4000))
ARTEFACTS = Kind("artefacts", "what ran and when, of each run", variable=("MESHLOOM_ARTEFACTS_MB", 2000))
KINDS = (SIMULATORS, BLOCKS, MESHES, SCHEDULES, SYNTHESIS, SOAK, TOOLS, PACKAGES, NUMBA, NATIVE, RUNS, ARTEFACTS)
