"""Convolutions of a network by out-of-order schedules: each layer has the scratchpad for itself, and the tensors
between layers lie in DRAM, as in the paper.

Source: Min, Kwon, Egger, "Flexer" (CGO 2023), section 5 (end to end: layer after layer).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from meshloom.hw.config import ChipConfig
from meshloom.sched.loop_order.placement import Allocator
from meshloom.sched.loop_order.problem import DoesNotFit
from meshloom.sched.network.conv import ConvNodes, ConvTask

from .layer import Decision, Layer
from .order import Orderer
from .policy import Policy
from .search import Tell
from .striping import Places
from .tiles import Tiles


class Planner:
    """Makes the operations of a network's convolutions: the best that any of the policies finds (see `Layer`).

    `policies`: by what decides between their choices; the first of equals is taken.
    """

    def __init__(
        self,
        chip: ChipConfig,
        policies: Mapping[Policy, Policy],
        folder: Path | None = None,
        budget: float | None = None,
        tell: Tell | None = None,
        threads: int | None = None,
    ) -> None:
        self.chip, self.policies = chip, policies
        self.folder, self.budget, self.tell, self.threads = folder, budget, tell, threads

    def emit(self, task: ConvTask, dram: Allocator) -> ConvNodes:
        """All operations of a convolution. Raises DoesNotFit."""
        chip, x, y = self.chip, task.x, task.y
        layer = Layer(task.shape, chip, task.scale, self.folder, self.budget, self.tell, self.threads)
        assert layer.problem.packed == task.packed, "who packs the input decides how the layer is posed"
        if layer.problem.flat:
            x, y = x.flattened(), y.flattened()
        policy, decision = self.decide(layer)
        places = Places(Tiles(layer.problem, decision.choice.tiling), chip, dram, x, y)
        made = layer.emitted(decision.choice, policy, places, task.made)
        order = Orderer(made.nodes, made.steps, chip).run(decision.ahead).order
        constants = {"w": places.w.pieces(), "bias": places.bias.pieces()}
        return ConvNodes([made.nodes[index] for index in order], constants)

    def decide(self, layer: Layer) -> tuple[Policy, Decision]:
        """The policy whose schedule is shortest, and that schedule. Raises DoesNotFit if none fits."""
        best: tuple[Policy, Decision] | None = None
        error: DoesNotFit | None = None
        for policy, rank in self.policies.items():
            try:
                found = layer.decided(policy, rank)
            except DoesNotFit as short:
                error = error or short
                continue
            if best is None or found.cycles < best[1].cycles:
                best = policy, found
        if best is None:
            assert error is not None
            raise error
        return best
