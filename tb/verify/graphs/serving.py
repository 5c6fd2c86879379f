"""A drawn network as `meshloom serve` has it: each stage by a random scheme, its images together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.checker.check import check
from meshloom.sched.ir.functional import Memories, execute
from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.lowering.templates.network import ServedNetwork
from meshloom.sched.lowering.templates.schemes import schemes
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.workload.graph import Graph

Arrays = dict[str, NDArray[Any]]


def served(random: Random, graph: Graph, chip: ChipConfig, inputs: Sequence[Arrays], golden: Sequence[Arrays]) -> str:
    """Serves images in one batch. `golden`: what each makes; returns what is wrong, in words, or nothing. Raises
    WorkloadError, DoesNotFit and ProgramError for what cannot be served."""
    net = ServedNetwork(graph, chip, len(inputs))
    memories = Memories(chip)
    images = {value.name: np.concatenate([each[value.name] for each in inputs]) for value in graph.inputs}
    for name, array in net.arrays(images).items():
        memories.write_tensor(net.tensors[name], array)
    for index in range(len(net.stages)):
        schedule = _stage(random, net, index)
        check(lower(schedule, chip), chip, schedule)
        execute(schedule.operations, memories)
    for name in graph.outputs:
        result = net.output(name, memories.read_tensor(net.tensors[name]))
        right = np.concatenate([each[name] for each in golden])
        if differ := int((result != right).sum()):
            return f"{differ} values of {name} differ, served in a batch of {len(inputs)} on {chip.name}"
    return ""


def _stage(random: Random, net: ServedNetwork, index: int) -> Schedule:
    """A stage by a random scheme of those that fit the cores' memories. Raises DoesNotFit if none does."""
    cores = net.chip.cores
    some = [scheme for count in range(1, len(cores) + 1) for scheme in schemes(net.shapes[index], count)]
    *more, last = random.sample(some, len(some))
    for scheme in more:
        with suppress(DoesNotFit):
            return net.schedule(index, scheme, cores[len(cores) - scheme.cores :])
    return net.schedule(index, last, cores[len(cores) - last.cores :])
