"""PREMA (Choi, Rhu: "PREMA: A Predictive Multi-Task Scheduling Algorithm for Preemptible Neural Processing Units",
HPCA 2020): one network at a time has the whole chip, and is preempted at the end of a layer.

Every network has tokens, at first as many as its priority. On each arrival, each end and after each period, those that
wait gain priority * (time waited since / isolated time). Candidates are those with at least the threshold: the most
tokens that anybody has, rounded down to a level of priority. Of these the one with the shortest remaining time runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...schedulers.online.interface import Decision, Instance, View
from .launching import Launching

#: Tokens of the levels of priority: low, medium, high.
LEVELS = (1, 3, 9)


@dataclass
class Prema:
    """`period`: cycles after which the choice is made anew (0.25 ms at 700 MHz); `priority`: of all networks."""

    period: int = 175_000
    priority: int = 3
    name: str = "prema"
    _tokens: dict[int, float] = field(default_factory=dict[int, float])
    _since: dict[int, int] = field(default_factory=dict[int, int])
    _numbers: tuple[int, ...] = ()
    _current: int = -1
    _chosen: int = 0

    def decide(self, view: View) -> list[Decision]:
        """The next layer of the chosen network, when nothing runs."""
        if view.running:
            return []
        numbers = tuple(instance.number for instance in view.instances)
        if numbers != self._numbers or view.now >= self._chosen + self.period:
            self._choose(view)
            self._numbers = numbers
        chosen = next(instance for instance in view.instances if instance.number == self._current)
        self._since[chosen.number] = view.now
        launching = Launching(view)
        version = chosen.layer.fastest(launching.room)
        if version is None:
            return []
        launching.launch(chosen, version, f"{self._tokens[chosen.number]:.2f} tokens, shortest of the candidates")
        return launching.decisions

    def _choose(self, view: View) -> None:
        cores = len(view.platform.cores)
        for instance in view.instances:
            number = instance.number
            if number not in self._tokens:
                self._tokens[number], self._since[number] = float(self.priority), instance.arrival
            if number != self._current:
                waited = view.now - self._since[number]
                self._tokens[number] += self.priority * waited / max(1, instance.network.isolated(cores))
            self._since[number] = view.now

        most = max(self._tokens[instance.number] for instance in view.instances)
        threshold = max((level for level in LEVELS if level <= most), default=0)
        candidates = [instance for instance in view.instances if self._tokens[instance.number] >= threshold]

        def remaining(instance: Instance) -> tuple[int, int]:
            return instance.network.remaining(instance.next, cores), instance.number

        self._current, self._chosen = min(candidates, key=remaining).number, view.now
