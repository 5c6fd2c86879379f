"""A drawn network as `meshloom serve` has it: each stage by a random scheme, its images together."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.checker.check import check
from meshloom.sched.ir.functional import Memories, execute
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.lowering.templates.network import ServedNetwork
from meshloom.sched.lowering.templates.schemes import schemes
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.workload.graph import Graph

Arrays = dict[str, NDArray[Any]]


def served(random: Random, graph: Graph, chip: ChipConfig, inputs: Sequence[Arrays], golden: Sequence[Arrays]) -> str:
    """Serves images in one batch. `golden`: what each makes; returns what is wrong, in words, or nothing. Raises
    WorkloadError and DoesNotFit for what cannot be served."""
    net = ServedNetwork(graph, chip, len(inputs))
    memories = Memories(chip)
    images = {value.name: np.concatenate([each[value.name] for each in inputs]) for value in graph.inputs}
    for name, array in net.arrays(images).items():
        memories.write_tensor(net.tensors[name], array)
    for index, shape in enumerate(net.shapes):
        some = [scheme for cores in range(1, len(chip.cores) + 1) for scheme in schemes(shape, cores)]
        random.shuffle(some)
        for scheme in some:  # some are too coarse or too fine for the cores' memories
            try:
                schedule = net.schedule(index, scheme, chip.cores[len(chip.cores) - scheme.cores :])
                break
            except DoesNotFit:
                if scheme is some[-1]:
                    raise
        check(lower(schedule, chip), chip, schedule)
        execute(schedule.operations, memories)
    for name in graph.outputs:
        result = net.output(name, memories.read_tensor(net.tensors[name]))
        right = np.concatenate([each[name] for each in golden])
        if differ := int((result != right).sum()):
            return f"{differ} values of {name} differ, served in a batch of {len(inputs)} on {chip.name}"
    return ""
