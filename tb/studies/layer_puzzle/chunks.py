"""Random layers in chunks: in the timeline model, once more by other launches, and on the RTL by the same launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from random import Random
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.lowering.templates.template import Template
from meshloom.sched.model.modelled import ModelSession
from meshloom.sched.model.session import Session
from meshloom.sched.papers.layer_puzzle import samples
from meshloom.sched.papers.layer_puzzle.estimator import CHIP
from meshloom.sched.papers.layer_puzzle.samples import CHUNK, Alone, Chunk, Draw, Runs, compiled, mixes

from ...build.builder import build
from ...devices.serving import ServedChip
from ...runs.online.rtl_session import RtlSession
from ..engine.point import Inputs, Point, Report
from ..points.runs import DEVICE, chip_of, gateware

#: Layers of a chunk that run beside others on the RTL, and cycles of the longest that runs there at all (a few take
#: millions).
MIXES, LONGEST = 4, 32_768
#: Chunks of the chip, and of another one whose layers nothing was trained on.
CHUNKS, OTHER_CHUNKS, OTHER = 168, 1, "lp25"
#: Added to the seed of a run: other cores, other distances between launches.
OTHERWISE = 1 << 32


@cache
def drawn(chip: str) -> list[list[Draw]]:
    """The layers of each chunk, the same for everybody."""
    every = samples.draws(chip_of(chip))
    return [list(islice(every, CHUNK)) for _ in range(CHUNKS if chip == CHIP else OTHER_CHUNKS)]


class _Chunked(Point):
    """A point about a chunk."""

    chip: str
    number: int

    @property
    def name(self) -> str:
        return f"chunk {self.number} of {self.chip} ({type(self).__name__})"

    def inputs(self) -> Inputs:
        modules = ("sched.papers.layer_puzzle.samples", "tb.studies.layer_puzzle.chunks")
        return Inputs(modules, (("chip", chip_of(self.chip).digest),))


@dataclass(frozen=True)
class ChunkPoint(_Chunked):
    """A chunk in the timeline model: layers alone, and beside others."""

    chip: str
    number: int
    row: ClassVar[Any] = Chunk

    @property
    def work(self) -> float:
        return 30.0

    def measure(self, report: Report) -> Chunk:
        return samples.measured(chip_of(self.chip), self.number, drawn(self.chip)[self.number])


@dataclass(frozen=True)
class AgainPoint(_Chunked):
    """The layers of a chunk beside others once more, by the same programs on other cores, launched at other distances:
    their cycles."""

    chip: str
    number: int
    row: ClassVar[Any] = tuple[int, ...]

    @property
    def work(self) -> float:
        return 30.0

    def measure(self, report: Report) -> tuple[int, ...]:
        chip = chip_of(self.chip)
        layers = compiled(drawn(self.chip)[self.number], chip)
        return tuple(
            Runs(ModelSession(chip), layers).beside(layer, others, OTHERWISE + self.number * samples.MIXES + index)
            for index, (layer, others) in enumerate(mixes(layers, chip, Random(self.number)))
        )


@dataclass(frozen=True)
class Pair:
    """A layer on both. `expected`: its cycles as compiled, alone; `rtl`, `model`: cycles from launch to completion
    here; `others`: that run beside it, as `draws` of theirs."""

    draw: Draw
    expected: int
    rtl: int
    model: int
    others: tuple[Draw, ...] = ()


@dataclass(frozen=True)
class RtlChunk:
    """What has been measured of a chunk. `programs`: completions that were compared, of the others too; `differ`: of
    these, how many came in another cycle; `cycles`: simulated."""

    alone: tuple[Pair, ...]
    beside: tuple[Pair, ...]
    programs: int
    differ: int
    cycles: int


@dataclass(frozen=True)
class RtlChunkPoint(_Chunked):
    """A chunk on the RTL: its layers of at most LONGEST cycles one after another, then MIXES of them beside others."""

    chip: str
    number: int
    row: ClassVar[Any] = RtlChunk

    @property
    def work(self) -> float:
        return 40.0

    def inputs(self) -> Inputs:
        inputs = super().inputs()
        return Inputs(inputs.modules, (*inputs.more, ("gateware", gateware())))

    def measure(self, report: Report) -> RtlChunk:
        """Raises BuildError, DeviceError."""
        chip = chip_of(self.chip)
        layers = compiled(drawn(self.chip)[self.number], chip)
        return on_both(chip, self.number, [Alone(draw, template.measures) for draw, template in layers], report)


def on_both(chip: ChipConfig, number: int, alone: Sequence[Alone], report: Report = lambda what: None) -> RtlChunk:
    """Layers on the RTL and in the model, by the same launches. Raises BuildError, DeviceError."""
    layers = compiled([one.draw for one in alone if one.measures.cycles <= LONGEST], chip)
    with ServedChip(build(chip, DEVICE, False, report)) as served:
        rtl = _runs(RtlSession(served), layers, number)
    model = _runs(ModelSession(chip), layers, number)
    pairs = [
        Pair(layers[layer][0], layers[layer][1].measures.cycles, there, here, tuple(layers[one][0] for one in others))
        for (layer, others, there), (_, _, here) in zip(rtl.cycles, model.cycles, strict=True)
    ]
    return RtlChunk(
        tuple(pair for pair in pairs if not pair.others),
        tuple(pair for pair in pairs if pair.others),
        len(rtl.completions),
        sum(one != other for one, other in zip(rtl.completions, model.completions, strict=True)),
        rtl.session.now,
    )


class _Timed(Runs):
    """`cycles`: (layer, others, cycles) of each run."""

    cycles: list[tuple[int, list[int], int]]


def _runs(session: Session, layers: Sequence[tuple[Draw, Template]], number: int) -> _Timed:
    """The runs of a chunk on one session, each when nothing is left of the one before."""
    runs = _Timed(session, layers)
    runs.cycles = [(layer, [], runs.alone(layer)) for layer in range(len(layers))]
    for index, (layer, others) in enumerate(mixes(layers, session.chip, Random(number))):
        if index == MIXES:
            break
        runs.cycles.append((layer, others, runs.beside(layer, others, number * MIXES + index)))
        runs.drain()
    return runs
