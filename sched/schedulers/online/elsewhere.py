"""An online scheduler in a process of its own. A view goes there and decisions come back. Networks, which hold all that
was compiled, are sent once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...support.limits import Limits
from ..elsewhere import Ask, Elsewhere
from .interface import Decision, Instance, Network, OnlineScheduler, Placement, Platform, View

#: Number, network (as sent before), arrival, deadline, next, running.
_Instance = tuple[int, int, int, int | None, int, bool]


@dataclass(frozen=True)
class _Request:
    """A view without what the other process knows. `networks`: new ones, by the numbers that instances name."""

    now: int
    free: tuple[int, ...]
    slots: int
    instances: tuple[_Instance, ...]
    running: tuple[Placement, ...]
    successors: tuple[Placement, ...]
    networks: dict[int, Network]


class OnlineElsewhere:
    """An online scheduler that `make()` makes, and that decides, in another process. Raises SchedulerError with its
    name, and the cycle and the line of `source` where it failed."""

    def __init__(
        self, name: str, source: str, platform: Platform, make: Callable[[], OnlineScheduler], limits: Limits
    ) -> None:
        self.name = name
        self._networks: dict[int, tuple[int, Network]] = {}

        def begin() -> Callable[[_Request, Ask], list[Decision]]:
            scheduler, networks = make(), dict[int, Network]()

            def decide(request: _Request, ask: Ask) -> list[Decision]:
                networks.update(request.networks)
                return list(scheduler.decide(_view(request, platform, networks)))

            return decide

        self._elsewhere = Elsewhere(name, source, f"for {platform.name}", begin, limits)

    @property
    def seconds(self) -> float:
        """CPU time of the last decision."""
        return self._elsewhere.seconds

    def decide(self, view: View) -> list[Decision]:
        new: dict[int, Network] = {}
        networks: list[_Instance] = []
        for one in view.instances:
            if id(one.network) not in self._networks:
                number = len(self._networks)
                self._networks[id(one.network)] = number, one.network  # which thereby stays where it is
                new[number] = one.network
            number = self._networks[id(one.network)][0]
            networks.append((one.number, number, one.arrival, one.deadline, one.next, one.running))
        request = _Request(view.now, view.free, view.slots, tuple(networks), view.running, view.successors, new)
        decisions: Any = self._elsewhere.answer(f"in cycle {view.now}", request)
        return decisions


def _view(request: _Request, platform: Platform, networks: dict[int, Network]) -> View:
    instances = tuple(
        Instance(number, networks[network], arrival, deadline, following, running)
        for number, network, arrival, deadline, following, running in request.instances
    )
    return View(request.now, platform, request.free, request.slots, instances, request.running, request.successors)
