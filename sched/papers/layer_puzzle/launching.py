"""The decisions of one call, as they are made: what is left of the free cores."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...schedulers.online.choosing import together
from ...schedulers.online.interface import Decision, Instance, Version, View


@dataclass
class Launching:
    """Takes cores of a view. `free`: tiles left; `running`: versions that run, with those launched here."""

    view: View
    free: list[int] = field(init=False)
    slots: int = field(init=False)
    running: list[Version] = field(init=False)
    decisions: list[Decision] = field(default_factory=list[Decision])

    def __post_init__(self) -> None:
        self.free, self.slots = list(self.view.free), self.view.slots
        self.running = [placement.version for placement in self.view.running]

    @property
    def room(self) -> int:
        """Cores that the next launch may have; 0 when no more programs may run."""
        return len(self.free) if self.slots else 0

    def launch(self, instance: Instance, version: Version, reason: str) -> None:
        """Launches the next layer of an instance on free cores that lie together."""
        cores = together(self.free, version.cores)
        self.free = [tile for tile in self.free if tile not in cores]
        self.slots -= 1
        self.running.append(version)
        self.decisions.append(Decision(instance.number, version, cores, reason))
