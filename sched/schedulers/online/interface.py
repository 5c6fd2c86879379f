"""The interface of an online scheduler: what it is shown while the chip runs, and what it answers.

A network is a chain of layers, each compiled in several versions. Whenever one arrives or a layer ends, the scheduler
sees a `View` and launches layers on free cores. What has been launched runs until its end; a network is preempted only
by not being continued. A layer that runs may be given a successor, the next layer of its network, which begins when it
ends without waiting for a decision. The same scheduler drives the RTL and the timeline model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

from meshloom.hw.spec.config import ChipConfig


class ServingError(ValueError):
    """A scenario that cannot be served, or a scheduler that decided what cannot be; the message says where and why."""


@dataclass(frozen=True)
class Platform:
    """What schedulers and models know of a chip.

    `cores`: tile addresses in floorplan order. `bandwidth`: words a cycle of all DRAM together, reads and writes.
    `link`: words a cycle into a core, and as many out of it. `lanes`: bytes of a word; `macs`: multiply-accumulates of
    a core in a cycle. `programs`: how many layers may run at the same time.
    """

    name: str
    cores: tuple[int, ...]
    bandwidth: float
    link: float = 1.0
    lanes: int = 32
    macs: int = 1024
    programs: int = 32

    @classmethod
    def of(cls, chip: ChipConfig) -> Platform:
        """The platform that a chip is."""
        bandwidth = len(chip.drams) * chip.dram.bytes_per_cycle / chip.lanes
        programs = chip.programs or 1
        return cls(chip.name, chip.cores, bandwidth, 1.0, chip.lanes, chip.rows * chip.cols, programs)


@dataclass(frozen=True)
class Version:
    """One way to run a layer. `cycles`: predicted, alone on the idle chip. `compute`: those in which arrays work.
    `read`, `written`: DRAM words of all cores. `utilisation`: of the PEs of its cores, 0..1, over `cycles`."""

    cores: int
    scheme: str
    cycles: int
    compute: int
    read: int
    written: int
    utilisation: float

    @cached_property
    def intensity(self) -> float:
        """DRAM words a cycle that it asks for when it runs alone."""
        return (self.read + self.written) / max(1, self.cycles)


@dataclass(frozen=True)
class Layer:
    """One layer and its versions, at least one, in order of cores. `macs`: multiply-accumulates of the whole batch."""

    name: str
    macs: int
    versions: tuple[Version, ...]

    def __post_init__(self) -> None:
        if not self.versions:
            raise ServingError(f"layer {self.name} has no version: nothing could run it; compile at least one")
        if list(self.versions) != sorted(self.versions, key=lambda version: version.cores):
            raise ServingError(f"layer {self.name}: versions must be in order of their cores")

    @cached_property
    def _fastest(self) -> dict[int, Version | None]:
        return {}

    def fastest(self, cores: int) -> Version | None:
        """The version with the fewest cycles on at most so many cores, of equal ones that with fewer cores; None if all
        need more."""
        if cores not in self._fastest:
            fitting = [version for version in self.versions if version.cores <= cores]
            # the first of equal ones has the fewest cores: they are in that order
            self._fastest[cores] = min(fitting, key=lambda version: version.cycles, default=None)
        return self._fastest[cores]


@dataclass(frozen=True)
class Network:
    """A network, compiled for one batch size. Its layers run one after the other."""

    name: str
    batch: int
    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        if not self.layers:
            raise ServingError(f"network {self.name} has no layers")

    @property
    def label(self) -> str:
        """Its name, and its batch size if that is not 1."""
        return self.name if self.batch == 1 else f"{self.name} x{self.batch}"

    @cached_property
    def macs(self) -> int:
        """Multiply-accumulates of all layers."""
        return sum(layer.macs for layer in self.layers)

    @cached_property
    def progress(self) -> tuple[float, ...]:
        """Expected progress (Layer-Puzzle, Eq. 1) when layer i is reached: the part of all operations before it."""
        shares, done, total = [0.0], 0, max(1, self.macs)
        for layer in self.layers:
            done += layer.macs
            shares.append(done / total)
        return tuple(shares)

    @cached_property
    def _remaining(self) -> dict[int, tuple[int, ...]]:
        return {}

    def remaining(self, layer: int, cores: int) -> int:
        """Predicted cycles from the start of a layer to the end, alone, on at most so many cores at a time. Raises
        ServingError when a layer needs more."""
        if cores not in self._remaining:
            after = [0]
            for one in reversed(self.layers):
                if (version := one.fastest(cores)) is None:
                    raise ServingError(f"layer {one.name} of {self.label} has no version for {cores} cores or fewer")
                after.append(after[-1] + version.cycles)
            self._remaining[cores] = tuple(reversed(after))
        return self._remaining[cores][layer]

    def isolated(self, cores: int) -> int:
        """Predicted cycles of the whole network, alone on so many cores."""
        return self.remaining(0, cores)

    @cached_property
    def _least(self) -> int:
        return max(layer.versions[0].cores for layer in self.layers)

    def least_cores(self) -> int:
        """Cores without which some layer has no version."""
        return self._least


@dataclass(frozen=True)
class Instance:
    """A network that somebody asked for, as it stands. `deadline`: absolute cycle. `next`: index of the layer to
    launch, or of the one that runs. `running`: whether a layer of it runs."""

    number: int
    network: Network
    arrival: int
    deadline: int | None
    next: int = 0
    running: bool = False

    @property
    def label(self) -> str:
        return f"{self.number}:{self.network.label}"

    @property
    def layer(self) -> Layer:
        """The layer to launch, or that runs."""
        return self.network.layers[self.next]

    @property
    def following(self) -> Layer | None:
        """The layer after that one; None if it is the last."""
        after = self.next + 1
        return self.network.layers[after] if after < len(self.network.layers) else None


@dataclass(frozen=True)
class Placement:
    """A layer that runs: index `layer` of instance `instance`, since cycle `start`. Of a successor that has not begun:
    not before `start`."""

    instance: int
    layer: int
    version: Version
    cores: tuple[int, ...]
    start: int


@dataclass(frozen=True)
class View:
    """What a scheduler sees. `free`: tiles of free cores that are kept for no successor, in floorplan order. `slots`:
    programs that may be launched. `instances`: those that have arrived, fit into memory and have not ended, by number.
    `running`: by number; `successors` of these: by number."""

    now: int
    platform: Platform
    free: tuple[int, ...]
    slots: int
    instances: tuple[Instance, ...]
    running: tuple[Placement, ...]
    successors: tuple[Placement, ...] = ()

    @cached_property
    def open(self) -> tuple[Instance, ...]:
        """Instances of which a layer runs that may be given a successor: it has none, and is not the last."""
        followed = {placement.instance for placement in self.successors}
        return tuple(one for one in self.instances if one.running and one.following and one.number not in followed)

    @cached_property
    def pending(self) -> tuple[Instance, ...]:
        """Instances of which no layer runs."""
        return tuple(instance for instance in self.instances if not instance.running)


@dataclass(frozen=True)
class Decision:
    """Launch the next layer of an instance. `cores`: free tiles, as many as the version has. `reason`: one line.

    For an instance of which a layer runs, or is launched by an earlier decision of the same call: the successor of that
    layer. Its cores are among those of the layer and free ones; the latter are kept for it."""

    instance: int
    version: Version
    cores: tuple[int, ...]
    reason: str = field(compare=False)


@runtime_checkable
class OnlineScheduler(Protocol):
    """Decides what runs. One object serves one run, and may remember what it likes.

    `decide` must be deterministic: the same views in the same order, the same decisions. It is called after each
    arrival and each end with which an instance is pending. Decisions hold in the order of the list, at most one for
    each instance and one for its successor. If it has an attribute `ahead` that is true, it is also called when nothing
    is pending, but some layer that runs may be given a successor."""

    @property
    def name(self) -> str: ...

    def decide(self, view: View) -> Sequence[Decision]: ...
