"""The instances of a scenario: its requests with compiled networks and deadlines in cycles."""

from __future__ import annotations

from collections.abc import Mapping

from ...workload.scenario import Scenario
from .interface import Instance, Network


def instances_of(scenario: Scenario, networks: Mapping[tuple[str, int], Network]) -> tuple[Instance, ...]:
    """One instance for each request, numbered in order of arrival. `networks`: by name and batch size.

    Deadlines that are factors are of the predicted time alone on one core (on as few as the network needs, if it does
    not fit one). Raises ServingError when that cannot be.
    """
    instances: list[Instance] = []
    for number, request in enumerate(scenario.requests):
        network = networks[request.network, request.batch]
        deadline = request.deadline
        if request.factor is not None:
            deadline = round(request.factor * network.isolated(network.least_cores()))
        absolute = None if deadline is None else request.arrival + deadline
        instances.append(Instance(number, network, request.arrival, absolute))
    return tuple(instances)
