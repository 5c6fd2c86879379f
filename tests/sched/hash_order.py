"""Digests of what must be the same in every process, whatever the order of its sets: `python -m tests.sched.hash_order
[whole]` prints them as JSON; `whole`: also those that take seconds.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from random import Random
from typing import Any

from meshloom.hw.spec.config import load
from meshloom.sched.lowering.programs import program_of
from meshloom.sched.lowering.timed.compile import compile_ahead
from meshloom.sched.papers.klotski.flexibility import levels
from meshloom.sched.papers.klotski.listing import searched
from meshloom.sched.program.image import to_bytes
from meshloom.sched.schedulers.network.scheduler import schedule as schedule_network
from meshloom.sched.schedulers.online.drive import Drive
from meshloom.sched.schedulers.online.registry import online_scheduler
from meshloom.sched.schedulers.registry import find, find_gradient
from meshloom.sched.workload import training
from meshloom.sched.workload.catalog import find as workloads
from meshloom.tb.verify.random_programs import random_program

from .fluid import Fluid
from .network_graphs import random_network
from .papers.klotski.test_listing import random_dag
from .serving_world import PLATFORM, instances, network

#: Schedulers of layers, of which each schedules a layer on a small chip.
LAYERS = ("loop_order:effort=0.05", "flexer:budget=100k", "klotski", "atomic", "zigzag")
ONLINE = ("prema", "planaria", "veltair:estimator=fair", "layer_puzzle:estimator=fair", "lookahead")


def _layer(scheduler: str, chip: str = "quad8") -> bytes:
    (workload,) = workloads("conv:7x7x24-20,k3,p1")
    chosen = load(chip)
    result = find(scheduler)(workload.shape, chosen, workload.data().scale)
    return result.model_dump_json().encode() + to_bytes(program_of(result, chosen))


def _ahead() -> bytes:
    (workload,), chip = workloads("gemm:9x16x20"), load("ahead8")
    result = find("dtt")(workload.shape, chip, workload.data().scale)
    return to_bytes(compile_ahead(result, chip).program)


def _network() -> bytes:
    return schedule_network(random_network(5, 5), load("quad8")).schedule.model_dump_json().encode()


def _gradient() -> bytes:
    (layer,) = training.find("gradient:gemm:8x8x6", training.Setting(False, training.EDGE_BATCH))
    return find_gradient("gradient:effort=0.01")(layer, load("edge6")).schedule.model_dump_json().encode()


def _served(scheduler: str) -> bytes:
    request = instances(network("a", 400, 100), network("b", 300, 200, 90), network("c", 150), deadline=900)
    return repr(Drive(Fluid(PLATFORM), online_scheduler(scheduler, PLATFORM)).run(request)).encode()


def _listed() -> bytes:
    graph = random_dag(Random(3), 120, longest=50, density=0.02)
    return searched(graph, 7, [-levels(graph)], 60, seed=4).starts.tobytes()


def _random() -> bytes:
    return to_bytes(random_program(Random(5), load("tiny"), 3, threads=2))


#: By name what is made, and whether it takes seconds.
MADE: dict[str, tuple[Callable[[], bytes], bool]] = {
    **{f"layer {name}": (lambda name=name: _layer(name), name in LAYERS[1:4]) for name in LAYERS},
    **{f"served by {name}": (lambda name=name: _served(name), False) for name in ONLINE},
    "ahead": (_ahead, True),
    "network": (_network, False),
    "gradient": (_gradient, False),
    "listed": (_listed, False),
    "random program": (_random, False),
}


def digests(whole: bool) -> dict[str, Any]:
    return {
        name: hashlib.sha256(make()).hexdigest() for name, (make, takes_long) in MADE.items() if whole or not takes_long
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(digests("whole" in sys.argv)))
