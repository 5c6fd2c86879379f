"""A small chip and small networks for tests of serving, without any compiler."""

from __future__ import annotations

from collections.abc import Sequence

from meshloom.sched.schedulers.online.drive import Drive, Run
from meshloom.sched.schedulers.online.interface import (
    Decision,
    Instance,
    Layer,
    Network,
    OnlineScheduler,
    Platform,
    Version,
    View,
)

from .fluid import Fluid, alone

PLATFORM = Platform("four", (17, 18, 33, 34), bandwidth=2.0, programs=4)


def version(cores: int, compute: int, words: int = 0) -> Version:
    cycles = alone(PLATFORM, cores, compute, words)
    return Version(cores, f"of{cores}", cycles, compute, words, 0, 0.5)


def layer(name: str, work: int, words: int = 0, cores: Sequence[int] = (1, 2, 4)) -> Layer:
    """A layer whose arrays work for `work` core cycles, divided evenly."""
    return Layer(name, work * PLATFORM.macs, tuple(version(count, work // count, words) for count in cores))


def network(name: str, *works: int, words: int = 0) -> Network:
    return Network(name, 1, tuple(layer(f"{name}{index}", work, words) for index, work in enumerate(works)))


def instances(*networks: Network, deadline: int | None = None) -> list[Instance]:
    return [Instance(number, one, 0, deadline) for number, one in enumerate(networks)]


def serve(
    scheduler: OnlineScheduler, asked: Sequence[Instance], decision_cycles: int = 0, patience: int = 10_000
) -> Run:
    return Drive(Fluid(PLATFORM), scheduler, decision_cycles, patience).run(asked)


class InTurn:
    """Every waiting network in order of its number, on one core."""

    name = "in_turn"

    def decide(self, view: View) -> list[Decision]:
        return [
            Decision(instance.number, instance.layer.versions[0], (core,), "its turn")
            for instance, core in zip(view.pending, view.free, strict=False)
        ]
