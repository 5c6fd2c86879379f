"""Which versions of a layer are worth compiling (section III-A of "Layer-Puzzle", C. Gao et al., DATE 2023).

For each number of cores and each level of congestion the scheme with the highest utilisation is chosen; of these, for
each level, the ones on the Pareto front of (speed-up over one core, utilisation) are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from meshloom.hw.spec.config import ChipConfig

from ...lowering.templates.compiling import compile_stage
from ...lowering.templates.network import ServedNetwork
from ...lowering.templates.schemes import LayerShape, Scheme, schemes
from ...lowering.templates.template import Template
from ...mapping.tiling.problem import DoesNotFit
from ...program.program import ProgramError
from ...store.findings import SearchCache
from .interface import Layer, Network, Version
from .latency import Predictor, carried, queued

#: One parallelisation for all layers, by name: the factor of a scheme that varies.
FIXED = {"fmap": "feature", "output": "output"}
#: mem_factor of low, medium and high congestion.
LEVELS = (0.8, 0.5, 0.2)


@dataclass(frozen=True)
class SchemeChoice:
    """The best scheme for a number of cores at a level of congestion, as predicted. `speedup`: over one core."""

    level: float
    cores: int
    scheme: Scheme
    cycles: float
    speedup: float
    utilisation: float


@dataclass(frozen=True)
class Selection:
    """What is kept of a layer. `all`: a choice for each level and number of cores that has a scheme; `front`: those on
    the Pareto front of their level."""

    all: tuple[SchemeChoice, ...]
    front: tuple[SchemeChoice, ...]

    @property
    def schemes(self) -> tuple[Scheme, ...]:
        """What has to be compiled: the schemes of the front, each once, fewest cores first."""
        return tuple(sorted({choice.scheme for choice in self.front}, key=lambda scheme: (scheme.cores, scheme)))


def choices(
    shape: LayerShape, chip: ChipConfig, nodes: Iterable[int], level: float, predict: Predictor = queued
) -> tuple[SchemeChoice, ...]:
    """The best scheme for each number of cores in `nodes`; numbers that no scheme can use are left out.

    Equally good schemes: the first in the order of `schemes`. Raises DoesNotFit when not even one core can do it.
    """
    alone = predict(shape, Scheme(), chip, level).cycles
    chosen: list[SchemeChoice] = []
    for cores in nodes:
        best: SchemeChoice | None = None
        for scheme in schemes(shape, cores):
            try:
                latency = predict(shape, scheme, chip, level)
            except DoesNotFit:  # uneven cuts may leave a core without rows
                continue
            if best is None or latency.utilisation > best.utilisation:
                speedup = alone / latency.cycles
                best = SchemeChoice(level, cores, scheme, latency.cycles, speedup, latency.utilisation)
        if best is not None:
            chosen.append(best)
    return tuple(chosen)


def pareto(candidates: Sequence[SchemeChoice]) -> tuple[SchemeChoice, ...]:
    """Those that no other one beats in speed-up or utilisation without losing in the other; of equals the first."""
    front: list[SchemeChoice] = []
    for one in candidates:
        beaten = any(
            other.speedup >= one.speedup
            and other.utilisation >= one.utilisation
            and (other.speedup, other.utilisation) != (one.speedup, one.utilisation)
            for other in candidates
        )
        same = any((other.speedup, other.utilisation) == (one.speedup, one.utilisation) for other in front)
        if not beaten and not same:
            front.append(one)
    return tuple(front)


def select_choices(
    shape: LayerShape,
    chip: ChipConfig,
    nodes: Sequence[int] | None = None,
    levels: Sequence[float] = LEVELS,
    predict: Predictor = queued,
) -> Selection:
    """What is kept of a layer. `nodes`: numbers of cores that it may get (None: 1 to all of them)."""
    numbers = range(1, len(chip.cores) + 1) if nodes is None else nodes
    by_level = [choices(shape, chip, numbers, level, predict) for level in levels]
    return Selection(
        tuple(choice for level in by_level for choice in level),
        tuple(choice for level in by_level for choice in pareto(level)),
    )


@dataclass(frozen=True)
class Saving:
    """Versions of a network: one for each layer, level and number of cores (`all`), those on the fronts (`front`), and
    programs that differ among all and among those (`programs`, `compiled`)."""

    all: int
    front: int
    programs: int
    compiled: int

    @property
    def share(self) -> float:
        """Share of versions that need not be stored, by the paper's count."""
        return 1 - self.front / self.all


def saving(shapes: Iterable[LayerShape], chip: ChipConfig, predict: Predictor = queued) -> Saving:
    """What Pareto fronts save of the versions of these layers."""
    layers = [select_choices(shape, chip, predict=predict) for shape in shapes]
    return Saving(
        sum(len(each.all) for each in layers),
        sum(len(each.front) for each in layers),
        sum(len({choice.scheme for choice in each.all}) for each in layers),
        sum(len(each.schemes) for each in layers),
    )


def fixed(shape: LayerShape, kind: str, cores: int) -> tuple[Scheme, ...]:
    """The schemes of a layer that is held to one parallelisation (of `FIXED`), on 1 to `cores` cores: one that has
    fewer parts than there are cores takes as many cores as it has parts."""
    cuts = (Scheme(**{FIXED[kind]: parts}) for parts in range(1, cores + 1))
    return tuple(scheme for scheme in cuts if scheme in schemes(shape, scheme.cores))


_schemes: dict[tuple[LayerShape, str, Predictor], tuple[Scheme, ...]] = {}


def _worth(shape: LayerShape, chip: ChipConfig, predict: Predictor) -> tuple[Scheme, ...]:
    """The schemes that are kept of a layer, found once: many layers have one shape."""
    key = shape, chip.digest, predict
    if key not in _schemes:
        _schemes[key] = select_choices(shape, chip, predict=predict).schemes
    return _schemes[key]


def compiled(
    net: ServedNetwork,
    index: int,
    memory: SearchCache | None = None,
    predict: Predictor = queued,
    kind: str = "all",
) -> tuple[Template, ...]:
    """The templates that are kept of stage `index`, fewest cores first; schemes whose tiles fit no core, or whose code
    has too few words or semaphores, are left out.

    `kind`: "all", or the parallelisation of `FIXED` that all layers are held to; nothing is left out then for being
    slow. Raises DoesNotFit when nothing is left.
    """
    templates: list[Template] = []
    why = ""  # one core is always among the schemes
    shape, chip = net.shapes[index], net.chip
    worth = _worth(shape, chip, predict) if kind == "all" else fixed(shape, kind, len(chip.cores))
    for scheme in worth:
        try:
            templates.append(compile_stage(net, index, scheme, memory))
        except (DoesNotFit, ProgramError) as short:
            why = str(short)
    if not templates:
        raise DoesNotFit(f"{net.graph.name}/{net.stages[index].y}: {why}")
    return tuple(templates)


def predicted(net: ServedNetwork, predict: Predictor = queued) -> Network:
    """A network whose versions are predicted and not compiled: what is kept of each layer."""
    layers: list[Layer] = []
    by_shape: dict[LayerShape, tuple[Version, ...]] = {}
    for stage, shape in zip(net.stages, net.shapes, strict=True):
        if shape not in by_shape:
            worth = _worth(shape, net.chip, predict)
            by_shape[shape] = tuple(_version(shape, scheme, net.chip, predict) for scheme in worth)
        layers.append(Layer(stage.y, shape.macs, by_shape[shape]))
    return Network(net.graph.name, net.batch, tuple(layers))


def _version(shape: LayerShape, scheme: Scheme, chip: ChipConfig, predict: Predictor) -> Version:
    latency = predict(shape, scheme, chip, 1.0)
    x, weights, y = carried(shape, scheme, chip)
    read, written = (ceil(scheme.cores * words) for words in (x + weights + y * shape.residual, y))
    compute = ceil(latency.compute * scheme.cores)
    return Version(scheme.cores, str(scheme), ceil(latency.cycles), compute, read, written, latency.utilisation)
