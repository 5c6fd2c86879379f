"""An online scheduler in a process of its own: whatever it does, its caller learns how it came to its end.

A view goes there and decisions come back. Networks, which hold all that was compiled, are sent once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection

from ...support import last_words
from ...support.apart import DiedError, Process
from ...support.limits import Limits
from ..failures import ended, failure
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


@dataclass(frozen=True)
class _Answer:
    """To a request, with the CPU seconds that it took; or the error that was raised."""

    decisions: list[Decision]
    seconds: float = 0.0
    error: BaseException | None = None


class Elsewhere:
    """An online scheduler that `make()` makes, and that decides, in another process. Raises SchedulerError with its
    name, and the cycle and the line of `source` where it failed. `seconds`: CPU time of the last decision."""

    def __init__(
        self, name: str, source: str, platform: Platform, make: Callable[[], OnlineScheduler], limits: Limits
    ) -> None:
        self.name, self.source, self.seconds = name, source, 0.0
        self._networks: dict[int, tuple[int, Network]] = {}
        explain = partial(failure, name, source, limits=limits)
        self._process = Process(partial(_serve, make, platform, explain), limits, source)
        self._answer(f"for {platform.name}")

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
        return self._answer(f"in cycle {view.now}", request)

    def _answer(self, where: str, request: _Request | None = None) -> list[Decision]:
        try:
            if request is not None:
                self._process.send(request)
            answer: _Answer = self._process.receive()
        except DiedError as death:
            raise ended(self.name, self.source, where, death) from None
        if answer.error is not None:
            self._process.close()
            raise answer.error
        self.seconds = answer.seconds
        return answer.decisions


def _serve(
    make: Callable[[], OnlineScheduler],
    platform: Platform,
    explain: Callable[[str, BaseException], BaseException],
    connection: Connection,
) -> None:
    """The other process. It first answers that it has made the scheduler."""
    networks: dict[int, Network] = {}
    where, seconds = f"for {platform.name}", 0.0
    decisions: list[Decision] = []
    try:
        scheduler = make()
        while True:
            connection.send(_Answer(decisions, seconds))
            try:
                request: _Request = connection.recv()
            except EOFError:
                return
            where = f"in cycle {request.now}"
            networks |= request.networks
            view = _view(request, platform, networks)
            before = time.thread_time()
            decisions = list(scheduler.decide(view))
            seconds = time.thread_time() - before
    except BaseException as error:
        last_words.lift_memory()
        connection.send(_Answer([], 0.0, explain(where, error)))


def _view(request: _Request, platform: Platform, networks: dict[int, Network]) -> View:
    instances = tuple(
        Instance(number, networks[network], arrival, deadline, following, running)
        for number, network, arrival, deadline, following, running in request.instances
    )
    return View(request.now, platform, request.free, request.slots, instances, request.running, request.successors)
