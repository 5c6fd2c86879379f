"""An online scheduler: who has least time to spare comes first, and nobody takes more cores than an even share."""

from __future__ import annotations

from pydantic import Field

from meshloom.sched.schedulers.interface import Options
from meshloom.sched.schedulers.online.interface import Decision, Instance, View


class UrgentOptions(Options):
    """What can be said behind the scheduler's name: `urgent:least=2`."""

    least: int = Field(default=1, ge=1, description="cores that a network may take at least, however many wait")


def spare(instance: Instance, view: View) -> float:
    """Cycles until the deadline, less what the network still needs on the whole chip; infinite without a deadline."""
    if instance.deadline is None:
        return float("inf")
    return instance.deadline - view.now - instance.network.remaining(instance.next, len(view.platform.cores))


def decide(view: View, options: UrgentOptions) -> list[Decision]:
    """Launches the next layer of each waiting network, most urgent first, as long as there are cores and slots."""
    free, found = list(view.free), list[Decision]()
    share = max(options.least, len(view.platform.cores) // len(view.instances))
    for instance in sorted(view.pending, key=lambda each: (spare(each, view), each.arrival, each.number)):
        version = instance.layer.fastest(min(share, len(free)))
        if version is None and not view.running and not found:
            version = instance.layer.fastest(len(free))  # one that needs more than its share has its turn, too
        if version is None or len(found) == view.slots:
            continue
        cores, free = tuple(free[: version.cores]), free[version.cores :]
        reason = f"{spare(instance, view):,.0f} cycles to spare, share of {share} cores"
        found.append(Decision(instance.number, version, cores, reason))
    return found
