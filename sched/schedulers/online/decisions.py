"""What a scheduler decided in a run, and where two runs begin to differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest


@dataclass(frozen=True)
class Logged:
    """One decision. `seen`: the cycle of the view; `cycle`: that of the launch. `order`: of the call among all calls of
    `decide`; `instance`: number; `network`, `layer`: names; `cores`: tiles; `reason`: the scheduler's words."""

    order: int
    seen: int
    cycle: int
    instance: int
    network: str
    layer: str
    scheme: str
    cores: tuple[int, ...]
    reason: str

    @property
    def choice(self) -> tuple[int, int, str, str, tuple[int, ...]]:
        """What was decided, without the cycle: two runs that differ only in cycles have the same choices."""
        return self.order, self.instance, self.layer, self.scheme, self.cores

    def __str__(self) -> str:
        cores = " ".join(f"({core % 16},{core // 16})" for core in self.cores)
        return (
            f"cycle {self.seen}: {self.instance}:{self.network} runs {self.layer} ({self.scheme}) on {cores}: "
            f"{self.reason}"
        )


@dataclass(frozen=True)
class Difference:
    """The first decision that two runs do not share; None where one has ended. `position`: index in both logs."""

    position: int
    one: Logged | None
    other: Logged | None

    def text(self, one: str, other: str) -> str:
        """Both decisions with their reasons; `one`, `other`: names of the runs."""
        width = max(len(one), len(other))
        lines = [
            f"  {name:<{width}}  {logged or 'decided nothing more'}"
            for name, logged in ((one, self.one), (other, self.other))
        ]
        return "\n".join([f"decision {self.position + 1} differs:", *lines])


def first_difference(one: Sequence[Logged], other: Sequence[Logged]) -> Difference | None:
    """The first decision in which two runs differ, cycles apart; None if there is none."""
    for position, (a, b) in enumerate(zip_longest(one, other)):
        if a is None or b is None or a.choice != b.choice:
            return Difference(position, a, b)
    return None
