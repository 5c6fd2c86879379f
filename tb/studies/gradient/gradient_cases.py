"""Where the layers of the networks that the paper trains are measured: chips, bytes of DRAM a cycle, batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from meshloom.hw.spec.config import OFFSET_BITS, ChipConfig, load
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.papers.gradient.scheduler import ways
from meshloom.sched.schedulers.training.pair import MOST_PRODUCTS, GradientPair, Split
from meshloom.sched.workload.training import TrainingLayer, find, setting_of

#: The paper's small NPU, and its large one with more and more cores (table 3).
EDGE, SERVERS = "edge45", ("server1", "server2", "server4", "server8")
#: The paper's networks (table 4); three of them are smaller on the small NPU.
NETWORKS = ("rcnn", "goo", "ncf", "res", "dlrm", "mob", "yolo", "bert", "t5")
#: Bytes of DRAM a cycle, and examples of a batch, on one core of the large NPU; bytes on the small one, and networks
#: whose layers are searched in seconds there.
BYTES, BATCHES = (128, 64, 32), (8, 16, 32)
EDGE_BYTES, EDGE_SWEPT = (22, 11), ("ncf", "dlrm", "bert")


@dataclass(frozen=True)
class Case:
    """Where networks are measured: a chip, with other `bytes` of DRAM a cycle, or another `batch`, than usual if those
    are given (the batch is the whole chip's)."""

    chip: str
    bytes: int | None = None
    batch: int | None = None

    @property
    def plain(self) -> bool:
        """Whether a chip is as it usually is."""
        return self.bytes is None and self.batch is None

    @property
    def config(self) -> ChipConfig:
        """The chip."""
        return chip_with(self.chip, self.bytes)

    def layers(self, network: str) -> tuple[TrainingLayer, ...]:
        """The layers with weights of a network, for the batch of the case.

        Where sums over all pixels of a batch may leave int32, a layer is trained in as many parts of its batch as they
        have to be, whose gradients the host adds up; it counts as often. It is left out where those of one picture may.
        """
        return tuple(layer for layer in _layers(self.chip, self.batch, network) if layer.m <= MOST_PRODUCTS)

    def left_out(self, network: str) -> tuple[TrainingLayer, ...]:
        """Those that are left out."""
        return tuple(layer for layer in _layers(self.chip, self.batch, network) if layer.m > MOST_PRODUCTS)


@cache
def chip_with(name: str, bytes_per_cycle: int | None, roomy: bool = False) -> ChipConfig:
    """A chip with other bytes of DRAM a cycle, unless they are None. `roomy`: with as much DRAM as there can be."""
    config = load(name)
    if bytes_per_cycle is None and not roomy:
        return config
    values = config.model_dump()
    values["dram"]["bytes_per_cycle"] = bytes_per_cycle or config.dram.bytes_per_cycle
    if roomy:
        values["dram"]["words"] = 1 << OFFSET_BITS
    return ChipConfig.model_validate(values)


@cache
def fits(layer: TrainingLayer, chip: str, bytes_per_cycle: int | None = None) -> bool:
    """Whether the chip's DRAM has room for a layer."""
    try:
        GradientPair(layer, chip_with(chip, bytes_per_cycle))
    except DoesNotFit:
        return False
    return True


def config_for(layer: TrainingLayer, chip: str, bytes_per_cycle: int | None = None) -> ChipConfig:
    """The chip, for layers that its DRAM has no room for with as much of that as there can be: no cycle depends on
    it."""
    return chip_with(chip, bytes_per_cycle, not fits(layer, chip, bytes_per_cycle))


def shared(layer: TrainingLayer, config: ChipConfig) -> list[tuple[int, Split]]:
    """The ways to share a layer among the cores."""
    return ways(layer, config, len(config.cores), tuple(Split))


@cache
def _layers(chip: str, batch: int | None, network: str) -> tuple[TrainingLayer, ...]:
    setting = setting_of(load(chip))
    if batch is not None:
        setting = replace(setting, batch=batch)
    layers: list[TrainingLayer] = []
    for layer in find(f"gradient:{network}", setting):
        parts, name = 1, layer.name.rpartition(",")[0]
        one = layer
        while one.m > MOST_PRODUCTS and setting.batch % (2 * parts) == 0:
            parts *= 2
            (one,) = find(f"{name},b{setting.batch // parts}", setting)
        layers.append(replace(one, count=parts * one.count))
    return tuple(layers)
