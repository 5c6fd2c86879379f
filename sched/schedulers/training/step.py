"""The programs of a training step: forwards, and both gradients of every layer.

They depend on the shapes alone. What changes from step to step is data, and the multipliers with which sums become
int8: immediate fields that are put into the finished programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Region, address

from ...ir.schedule import Gemm, Piece, Schedule, Tensor
from ...lowering.programs import planned
from ...mapping.memory.placement import Dram
from ...mapping.tiling.problem import DoesNotFit
from ...model.timeline import Timeline
from ...program.program import Instruction, Program
from ...workload.layout import ActivationLayout, BiasLayout, Layout, WeightLayout
from ...workload.training_net import TrainedLayer, TrainingNet
from .across import Across, ranks_of, reordered
from .backward import Backward, backward
from .core import Core, OperationList, Place
from .forward import forward
from .geometry import Geometry, geometry
from .orders import Order
from .pair import check_sums
from .update import updates


@dataclass(frozen=True)
class Half:
    """One of the two programs. `multipliers`: for the operations that requantise, by index, the name of theirs."""

    schedule: Schedule
    program: Program
    timeline: Timeline
    multipliers: dict[int, str]

    def program_with(self, multipliers: Mapping[str, int]) -> Program:
        """The program with multipliers m, 1..65535 (y = sat8(RNE(sum * m / 2^17))), by name."""
        streams = [
            replace(
                stream,
                instructions=tuple(
                    Instruction(one.opcode, one.fields | {"scale": multipliers[self.multipliers[index]]})
                    if index in self.multipliers
                    else one
                    for index, one in zip(self.program.operations_of(stream), stream.instructions, strict=True)
                ),
            )
            for stream in self.program.streams
        ]
        return replace(self.program, streams=tuple(streams))

    def schedule_with(self, multipliers: Mapping[str, int]) -> Schedule:
        """The same for the schedule, whose operations say what they compute."""
        operations = list(self.schedule.operations)
        for index, name in self.multipliers.items():
            one = operations[index]
            assert isinstance(one, Gemm)
            operations[index] = one.model_copy(update={"fields": one.fields | {"scale": multipliers[name]}})
        return self.schedule.model_copy(update={"operations": tuple(operations)})


@dataclass(frozen=True)
class TrainingStep:
    """A training step of a network on a chip. `across`: what it does across layers; `update`: the chip updates the
    weights, which are int8 alone; `shares`: the first image of each core, and the one after its last."""

    net: TrainingNet
    chip: ChipConfig
    batch: int
    order: Order
    across: frozenset[Across]
    update: bool
    shares: tuple[tuple[int, int], ...]
    layers: tuple[Geometry, ...]
    forward: Half
    backward: Half

    @property
    def cycles(self) -> int:
        """Predicted cycles of both programs."""
        return self.forward.timeline.cycles + self.backward.timeline.cycles


def shares_of(batch: int, chip: ChipConfig) -> tuple[tuple[int, int], ...]:
    """The images of each core, as evenly as possible; cores without any are left out."""
    cores = len(chip.cores)
    ends = [batch * (index + 1) // cores for index in range(cores)]
    return tuple((first, end) for first, end in zip([0, *ends], ends, strict=False) if end > first)


class _Tensors:
    """Hands out places in DRAM and lists what lies there."""

    def __init__(self, chip: ChipConfig, dram: Dram) -> None:
        self.chip, self.dram, self.listed = chip, dram, list[Tensor]()

    def put(self, name: str, role: str, layout: Layout, tile: int) -> Place:
        words = layout.words(self.chip.lanes)
        at = self.dram.take(tile, words)
        piece = Piece(tile=tile, address=address(Region.MAIN, at), first=0, words=words)
        self.listed.append(Tensor.model_validate({"name": name, "role": role, "layout": layout, "pieces": (piece,)}))
        return tile, piece.address

    def maps(self, name: str, role: str, core: Core, shape: tuple[int, int, int]) -> Place:
        """A map of a core's images; `shape`: channels, rows, columns."""
        channels, height, width = shape
        layout = ActivationLayout(
            batch=core.images, channels=channels, height=height, width=width, block=self.chip.cols
        )
        return self.put(f"{name}@{core.index}", role, layout, core.home)

    def sums(self, name: str, core: Core, rows: int) -> Place:
        """Rows of ACC, an int32 for each column of the array."""
        layout = BiasLayout(out_channels=rows * self.chip.cols, cols=self.chip.cols)
        return self.put(f"{name}@{core.index}", "output", layout, core.home)

    def rows(self, name: str, role: str, rows: int, number: int) -> Place:
        """Rows of dW, int8 (`arrays.weight_rows`)."""
        cols = self.chip.cols
        layout = ActivationLayout(batch=1, channels=cols, height=1, width=rows, block=cols)
        return self.put(name, role, layout, self.chip.drams[number % len(self.chip.drams)])

    def weights(self, layer: TrainedLayer, number: int) -> Place:
        s, cols = layer.shape, self.chip.cols
        layout = WeightLayout(
            out_channels=s.out_channels, in_channels=s.in_channels, kernel_h=s.kernel_h, kernel_w=s.kernel_w,
            cols=cols, block=cols,
        )  # fmt: skip
        return self.put(f"w:{layer.name}", "constant", layout, self.chip.drams[number % len(self.chip.drams)])


def training_step(
    net: TrainingNet,
    chip: ChipConfig,
    batch: int,
    order: Order = Order.SEQUENTIAL,
    on_progress: Callable[[str], None] = lambda what: None,
    across: frozenset[Across] = frozenset(),
    update: bool = False,
) -> TrainingStep:
    """Compiles the programs of a step: scheduled, lowered, checked and predicted.

    Raises DoesNotFit, with what is too large for which memory or instruction, and what lowering and checking raise.
    """
    for layer in net.layers:
        s = layer.shape
        for what, products in (("y", s.depth), ("dx", s.out_channels * s.kernel_h * s.kernel_w)):
            check_sums(f"{layer.name} {what}", products, "take fewer channels")
        check_sums(f"{layer.name} dw", batch * s.out_h * s.out_w, "take a smaller batch")
    layers, shares = tuple(geometry(layer, chip) for layer in net.layers), shares_of(batch, chip)
    try:
        half = _backward(net, chip, shares, layers, order, Across.KEEP in across, update)
        first = _half(_forward(net, chip, shares, layers), net, chip, "forward", across, on_progress)
        second = _half(half, net, chip, "backward", across, on_progress)
    except DoesNotFit as error:
        raise DoesNotFit(
            f"a batch of {batch} of {net.name} does not fit {chip.name}: {error}; take a smaller batch, another order "
            "or a larger chip"
        ) from error
    return TrainingStep(net, chip, batch, order, across, update, shares, layers, first, second)


_Draft = tuple[OperationList, list[Tensor]]
_Shares = tuple[tuple[int, int], ...]


def _half(
    draft: _Draft, net: TrainingNet, chip: ChipConfig, what: str, across: frozenset[Across],
    on_progress: Callable[[str], None],
) -> Half:  # fmt: skip
    step, tensors = draft
    multipliers = step.multipliers
    schedule = Schedule(
        chip=chip.name,
        chip_digest=chip.digest,
        workload=f"{net.name} {what}",
        scheduler="training",
        operations=tuple(step.operations),
        tensors=tuple(tensors),
    )
    if ranks := ranks_of(across):
        on_progress(f"{what}: ordering its operations")
        other = reordered(schedule, multipliers, chip, ranks)
        schedule, multipliers = other.schedule, other.multipliers
    plan = planned(schedule, chip, lambda message: on_progress(f"{what}: {message}"))
    return Half(plan.schedule, plan.program, plan.timeline, multipliers)


def _forward(net: TrainingNet, chip: ChipConfig, shares: _Shares, layers: tuple[Geometry, ...]) -> _Draft:
    dram = Dram(chip)
    step, tensors = OperationList(chip, dram), _Tensors(chip, dram)
    weights = {f"w:{layer.name}": tensors.weights(layer, number) for number, layer in enumerate(net.layers)}
    for index, (first, end) in enumerate(shares):
        core = Core(step, index, end - first)
        places = weights | {"x": tensors.maps("x", "input", core, net.x_shape)}
        for layer in net.layers[:-1]:
            places[f"y:{layer.name}"] = tensors.maps(f"y:{layer.name}", "output", core, layer.y_shape)
            if layer.pool > 1:
                places[f"p:{layer.name}"] = tensors.maps(f"p:{layer.name}", "output", core, layer.pooled_shape)
        places["sums"] = tensors.sums("sums", core, layers[-1].nb * core.images)
        forward(core, list(layers), places)
    return step, tensors.listed


def _backward(
    net: TrainingNet,
    chip: ChipConfig,
    shares: _Shares,
    layers: tuple[Geometry, ...],
    order: Order,
    keep: bool,
    update: bool,
) -> _Draft:
    dram = Dram(chip)
    step, tensors = OperationList(chip, dram), _Tensors(chip, dram)
    weights = {f"w:{layer.name}": tensors.weights(layer, number) for number, layer in enumerate(net.layers) if number}
    gradients, rows = list[list[Backward]](), dict[str, Place]()
    for number, (layer, sizes) in enumerate(zip(net.layers, layers, strict=True) if update else ()):
        for name, role in (("v", "input"), ("w'", "output")):
            rows[f"{name}:{layer.name}"] = tensors.rows(f"{name}:{layer.name}", role, sizes.sums, number)
    for index, (first, end) in enumerate(shares):
        core = Core(step, index, end - first)
        places = weights | {"dy": tensors.maps("dy", "input", core, net.layers[-1].y_shape)}
        for number, (layer, sizes) in enumerate(zip(net.layers, layers, strict=True)):
            name, shape = layer.name, layer.shape.x_shape[1:]
            place = tensors.maps(f"x:{name}", "input", core, shape)
            places[f"x:{name}"] = place
            if not update:
                places[f"dw:{name}"] = tensors.sums(f"dw:{name}", core, sizes.sums)
            if not number:
                continue
            places[f"dx:{name}"] = tensors.maps(f"dx:{name}", "output", core, shape)
            before = net.layers[number - 1]
            places[f"{'p' if before.pool > 1 else 'y'}:{before.name}"] = place
            if before.pool > 1:
                places[f"y:{before.name}"] = tensors.maps(f"y:{before.name}", "input", core, before.y_shape)
            if not keep:
                places[f"g:{before.name}"] = tensors.maps(f"g:{before.name}", "output", core, before.y_shape)
        gradients.append(backward(core, list(layers), places, order, keep, update))
    if update:
        updates(gradients, rows)
    return step, tensors.listed
