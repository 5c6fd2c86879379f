"""Random layers of the paper's networks, in the timeline model: alone, and beside others (Layer-Puzzle, section III).

A `Draw` is a layer, a batch size, a number of cores and a scheme for it. Draws are compiled in chunks. Each layer of a
chunk is played alone; then layers of it run beside others of it on random cores, each of which begins anew when it has
ended, until the one in question has. Nothing is drawn twice, and chunks that have been played are kept, so that an
interrupted series goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import PAGE_WORDS

from ...lowering.templates.compiling import compile_stage
from ...lowering.templates.network import ServedNetwork
from ...lowering.templates.relocate import place_program
from ...lowering.templates.schemes import LayerShape, Scheme, schemes
from ...lowering.templates.template import Measures, ProgramPlace, Template
from ...mapping.tiling.problem import DoesNotFit
from ...model.modelled import ModelSession
from ...model.session import Completion, Launch, Session
from ...program.program import Program
from ...store.findings import SearchCache
from ...store.kinds import SCHEDULES
from ...workload import zoo
from ...workload.workload_sets import BATCHES, NETWORKS

#: Draws of a chunk, and how many times a layer of it is played beside others.
CHUNK, MIXES = 50, 63
#: Chunks that the package's estimator is made of, and batch sizes of the draws beyond them: five networks at two batch
#: sizes have too few programs for thousands of draws without repetition, and the short ones run out first.
CHUNKS, WIDER = 34, (1, 2, 3, 4)
#: Cycles that such a layer takes alone at most: longer ones cost more and teach the same.
LONGEST = 8192
SEED = 15
#: Cycles from the end of a layer to its next launch, at least what the registers of a launch take.
PAUSE = 600
#: A layer is launched up to so many cycles (and `PAUSE`) after those beside it.
STAGGER = 4096


@dataclass(frozen=True)
class Draw:
    """Stage number `stage` of a network for a batch, by a scheme."""

    network: str
    batch: int
    stage: int
    scheme: Scheme


@dataclass(frozen=True)
class Alone:
    """A draw that fits, and its measures in the timeline model."""

    draw: Draw
    measures: Measures


@dataclass(frozen=True)
class Beside:
    """A layer (its number in the chunk) beside others (theirs), in `cycles` from launch to completion. Launches of a
    run depend on nothing but `seed`."""

    layer: int
    others: tuple[int, ...]
    seed: int
    cycles: int


@dataclass(frozen=True)
class Chunk:
    """What has been measured of a chunk: layers alone, and layers beside others."""

    alone: tuple[Alone, ...]
    beside: tuple[Beside, ...]


_CHUNK = TypeAdapter(Chunk)


_networks: dict[tuple[str, int, str], ServedNetwork] = {}


def network(name: str, batch: int, chip: ChipConfig) -> ServedNetwork:
    """A network of draws, made once."""
    key = name, batch, chip.digest
    if key not in _networks:
        _networks[key] = ServedNetwork(zoo.load(name), chip, batch)
    return _networks[key]


def shape_of(draw: Draw, chip: ChipConfig) -> LayerShape:
    """The shape of a draw's layer."""
    return network(draw.network, draw.batch, chip).shapes[draw.stage]


def draws(chip: ChipConfig, seed: int = SEED) -> Iterator[Draw]:
    """Draws without end, the same for a seed everywhere, no program twice: a network, a batch size (of `WIDER` beyond
    `CHUNKS` chunks), a layer, a number of cores, a scheme, each evenly."""
    random, seen = Random(seed), set[tuple[str, Scheme]]()
    while True:
        name = random.choice(NETWORKS)
        batch = random.choice(BATCHES if len(seen) < CHUNKS * CHUNK else WIDER)
        net = network(name, batch, chip)
        stage, cores = random.randrange(len(net.shapes)), random.randint(1, len(chip.cores))
        if every := schemes(net.shapes[stage], cores):
            draw = Draw(name, batch, stage, random.choice(every))
            drawn = net.form(stage), draw.scheme
            if drawn not in seen:
                seen.add(drawn)
                yield draw


def compiled(chunk: Sequence[Draw], chip: ChipConfig) -> list[tuple[Draw, Template]]:
    """The draws of a chunk that fit the cores, with their templates."""
    layers: list[tuple[Draw, Template]] = []
    for draw in chunk:
        try:
            net = network(draw.network, draw.batch, chip)
            layers.append((draw, compile_stage(net, draw.stage, draw.scheme)))
        except DoesNotFit:
            continue
    return layers


class Runs:
    """Layers that run on a session of a chip, one for each slot: in the model or on the RTL.

    All have the same words for their tensors, whose values nobody looks at, and each slot has pages for its code.
    `completions`: all that have come, in order.
    """

    def __init__(self, session: Session, layers: Sequence[tuple[Draw, Template]]) -> None:
        self.session, self.layers = session, layers
        self.completions: list[Completion] = []
        chip = session.chip
        self._pages = chip.dram.words // PAGE_WORDS
        self._data = max((network(each.network, each.batch, chip).code_page for each, _ in layers), default=0)
        self._code = (self._pages - self._data) // chip.programs
        self._latest = 0
        self._running = set[int]()
        self._placed: dict[tuple[int, int, tuple[int, ...]], Program] = {}

    def launch(self, slot: int, layer: int, cores: Sequence[int], at: int) -> int:
        """Launches a layer; returns the cycle, which is no earlier than that of the launch before."""
        key = slot, layer, tuple(cores)
        if key not in self._placed:  # else it begins anew
            place = ProgramPlace(tuple(cores), 0, self._data + slot * self._code, self._pages, slot)
            self._placed[key] = place_program(self.layers[layer][1], self.session.chip, place)
        at = self._latest = max(at, self._latest)
        self.session.launch(Launch(slot, self._placed[key]), at)
        self._running.add(slot)
        return at

    def advance(self, until: int | None) -> tuple[Completion, ...]:
        """See `Session.advance`."""
        done = self.session.advance(until)
        self.completions += done
        self._running -= {one.slot for one in done}
        return done

    def alone(self, layer: int) -> int:
        """Cycles of a layer that has the chip to itself, from launch to completion."""
        cores = self.session.chip.cores[: len(self.layers[layer][1].cores)]
        at = self.launch(0, layer, cores, self.session.now + PAUSE)
        return self.advance(None)[-1].cycle - at

    def beside(self, layer: int, others: Sequence[int], seed: int) -> int:
        """Cycles of a layer beside others, each on random cores, from launch to completion; what is left of the others
        then runs to its end only when somebody advances the session."""
        random, chip = Random(seed), self.session.chip
        free = list(chip.cores)
        random.shuffle(free)
        spots: list[list[int]] = []
        for one in (layer, *others):
            count = len(self.layers[one][1].cores)
            spots.append(free[:count])
            free = free[count:]
        at = self.session.now + PAUSE * (1 + len(others))
        for slot, one in enumerate(others, start=1):
            self.launch(slot, one, spots[slot], at)
        start = at + PAUSE + random.randrange(STAGGER)
        while done := self.advance(start - PAUSE):
            self._again(done, others, spots)
        start = self.launch(0, layer, spots[0], start)
        while True:
            done = self.advance(None)
            if ended := [one.cycle for one in done if one.slot == 0]:
                return ended[0] - start
            self._again(done, others, spots)

    def drain(self) -> None:
        """Advances until nothing runs."""
        while self._running:
            self.advance(None)

    def _again(self, done: Sequence[Completion], others: Sequence[int], spots: Sequence[Sequence[int]]) -> None:
        for one in done:
            self.launch(one.slot, others[one.slot - 1], spots[one.slot], one.cycle + PAUSE)


def mixes(layers: Sequence[tuple[Draw, Template]], chip: ChipConfig, random: Random) -> Iterator[tuple[int, list[int]]]:
    """`MIXES` times a random layer that leaves cores free, and others on a random number of those, as far as they fit.

    None when no layer of the chunk is small and short enough."""
    total = len(chip.cores)
    sizes = [len(template.cores) for _, template in layers]
    small = [layer for layer, size in enumerate(sizes) if size < total]
    short = [layer for layer in small if layers[layer][1].measures.cycles <= LONGEST]
    for _ in range(MIXES if short else 0):
        layer = random.choice(short)
        left, slots = random.randint(1, total - sizes[layer]), chip.programs - 1
        others: list[int] = []
        while slots and (fitting := [other for other in small if sizes[other] <= left]):
            others.append(random.choice(fitting))
            left -= sizes[others[-1]]
            slots -= 1
        if others:  # the smallest other may be larger than what is left
            yield layer, others


def measured(chip: ChipConfig, number: int, drawn: Sequence[Draw], memory: SearchCache | None = None) -> Chunk:
    """Chunk `number` in the timeline model, from `memory` if it has been played before."""
    key = (number, tuple(drawn))
    if memory is not None and (chunk := memory.get(key, _CHUNK)) is not None:
        return chunk
    layers = compiled(drawn, chip)
    beside: list[Beside] = []
    for index, (layer, others) in enumerate(mixes(layers, chip, Random(number))):
        seed = number * MIXES + index
        cycles = Runs(ModelSession(chip), layers).beside(layer, others, seed)
        beside.append(Beside(layer, tuple(others), seed, cycles))
    chunk = Chunk(tuple(Alone(draw, template.measures) for draw, template in layers), tuple(beside))
    if memory is not None:
        memory.put(key, _CHUNK, chunk)
    return chunk


def sample_cache(chip: ChipConfig) -> SearchCache:
    """Where chunks are kept. Raises SettingError."""
    return SearchCache(SCHEDULES.folder(), chip, "layer samples", __name__.partition(".")[2])
