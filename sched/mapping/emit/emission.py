"""From a candidate to a Schedule: the operations of all cores and of the SPM tiles in one order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshloom.hw.spec.config import ChipConfig

from ...ir.schedule import Schedule, Tensor
from ...workload.layers import ConvShape
from ..memory.staging import Staging
from ..memory.tensors import Tensors, ramp_edges
from ..nodes import Node
from ..tiling.plan import CorePlan, plan
from ..tiling.problem import pose
from ..tiling.tiles import Candidate, parts
from .core import Core

NAME = "loop_order"


@dataclass
class Emission:
    """A schedule without its prediction: operations in order with what they wait for, and tensors."""

    candidate: Candidate
    nodes: list[Node]
    tensors: tuple[Tensor, ...]


def emit(
    shape: ConvShape, chip: ChipConfig, candidate: Candidate, scale: int = 0, plans: Sequence[CorePlan] | None = None
) -> Emission:
    """All operations of a candidate. `plans`: of its parts, if they are known. Raises DoesNotFit when some tile of it
    does not fit its memory."""
    problem = pose(shape, chip)
    if plans is None:
        plans = [plan(problem, chip, candidate, part) for part in parts(problem, chip, candidate)]
    work = [one.part for one in plans]
    pieces = plans[0].pieces if len(plans[0].pieces) > 1 else []
    tensors = Tensors(problem, chip, candidate, work, ramp_edges(problem, pieces))
    fixed = {"scale": scale, "relu": int(shape.relu), "clamp": shape.clamp}
    cores = [Core(chip, tensors, one, candidate, fixed) for one in plans]
    staging = Staging(chip, tensors, [pull for core in cores for pull in core.pulls()])
    for core in cores:
        core.emit(staging)
    return Emission(candidate, merge(cores, staging), tensors.tensors(shape, chip))


def merge(cores: list[Core], staging: Staging) -> list[Node]:
    """The operations of all cores, and of the SPM tiles, step by step; for `fair` candidates what all cores need first,
    then what they need next, otherwise core by core."""
    nodes: list[Node] = []
    staged = staging.by_position()
    for position in range(max(len(core.before) for core in cores)):
        for stage in staged.get(position, ()):
            nodes += stage.nodes
        entries = [entry for core in cores if position < len(core.before) for entry in core.before[position]]
        if cores[0].candidate.fair:
            entries.sort(key=lambda entry: entry[0])
        nodes += [node for _, node in entries]
        for core in cores:
            if position < len(core.gemms):
                nodes.append(core.gemms[position])
        nodes += [core.vecs[position] for core in cores if position in core.vecs]
    return nodes


def build(shape: ConvShape, chip: ChipConfig, candidate: Candidate, scale: int = 0) -> Schedule:
    """The schedule of one candidate, without a prediction. Raises DoesNotFit."""
    return to_schedule(emit(shape, chip, candidate, scale), shape, chip)


def to_schedule(emission: Emission, shape: ConvShape, chip: ChipConfig) -> Schedule:
    """The emission as the intermediate form that everything downstream takes."""
    return Schedule(
        chip=chip.name,
        chip_digest=chip.digest,
        workload=shape.name,
        scheduler=NAME,
        operations=tuple(node.operation() for node in emission.nodes),
        tensors=emission.tensors,
    )
