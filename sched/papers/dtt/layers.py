"""Tiled layers as programs of pages: an operation is a band of output rows times a block of output channels.

An activation's pages are bands of rows of some channel blocks, weights' pages some input channel blocks of an output
block. A band's sums over the channels are made by one core, task by task, in its accumulators, and leave as one page
that is delivered to memory. Layers that fit together are chained: what one has made the next one reads, from wherever
it is nearest.

Operations are placed by First Best Fit; planned starts are optimistic (nobody waits for the network), so that a plan is
as fast as its moves allow, and says what they cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.timing import GemmShape, gemm_cycles, gemm_occupancy, noc_arrival

from ...mapping.tiling.problem import MAX_PIXELS, Problem, pose
from ...routing.hardware import Actor, DttError
from ...routing.mesh import OPERAND_A, OPERAND_B, RESULT, mesh_of
from ...routing.program import Page, Program, Task
from ...workload.layers import ConvShape
from .placing import Affinity, Operation, cached, first_best_fit

#: Share of a memory that one page may take: two tasks' pages, and two that are on their way.
_SHARE = 4
#: Words of the largest page, so that a train does not hold a port for long.
_MOST_WORDS = 1024


@dataclass(frozen=True)
class Cut:
    """How a layer is cut: `rows` output rows to a band, `blocks` input channel blocks to a task."""

    rows: int
    blocks: int


@dataclass
class _Tensor:
    """Pages of an activation: bands of `rows` rows of `blocks` channel blocks; `pages` [image][band][group]."""

    rows: int
    blocks: int
    pages: list[list[list[int]]]

    def touching(self, image: int, first: int, end: int, low: int, high: int) -> list[int]:
        """Pages with any of rows [first, end) and channel blocks [low, high)."""
        bands = range(first // self.rows, ceil(end / self.rows))
        groups = range(low // self.blocks, ceil(high / self.blocks))
        return [self.pages[image][band][group] for band in bands for group in groups]


class _Read(NamedTuple):
    """A layer, how it is cut, and the tensor that it reads, of which it needs every `step`th row."""

    shape: ConvShape
    problem: Problem
    division: Cut
    source: _Tensor
    step: int


def flits_of(words: int, chip: ChipConfig) -> int:
    """Flits of a page that lies side by side from a packet's border on: its words, and a head for each packet."""
    return words + ceil(words / chip.packet_words)


def cut(problem: Problem, chip: ChipConfig) -> Cut:
    """The largest bands and tasks whose pages leave room for others, with work for every core twice if there is enough.

    Raises DttError naming the memory in which not even a row of one channel block fits.
    """
    core = chip.core
    most_a, most_b = (min(words // _SHARE, _MOST_WORDS) for words in (core.a_words, core.b_words))
    # two results in OUT, and sums of one band in ACC
    pixels = min(core.out_words // 2, core.acc_words, MAX_PIXELS, _MOST_WORDS)
    blocks = min(problem.k_blocks, most_b // (problem.taps * chip.cols))
    enough = ceil(problem.out_rows * problem.images * problem.n_blocks / (2 * len(chip.cores)))
    while blocks >= 1:
        rows = min(problem.out_rows, pixels // problem.out_w, max(enough, 1))
        while rows >= 1:
            first, end, _ = problem.input_rows(0, rows) if rows == problem.out_rows else _inner(problem, rows)
            if (end - first) * problem.in_w * blocks <= most_a:
                return Cut(rows, blocks)
            rows -= 1
        blocks = blocks // 2
    raise DttError(
        f"a page of one row and one channel block does not fit: a row of results takes {problem.out_w} of {pixels} "
        f"words of OUT and ACC, its inputs {problem.kernel_h * problem.in_w} of {most_a} words of A, its weights "
        f"{problem.taps * chip.cols} of {most_b} words of B; use a chip with larger memories"
    )


def _inner(problem: Problem, rows: int) -> tuple[int, int, int]:
    """Input rows of a band of `rows` rows without padding."""
    reach = (problem.kernel_h - 1) * problem.dilation + (rows - 1) * problem.stride_h + 1
    return 0, min(reach, problem.in_rows), 0


class _Builder:
    def __init__(self, chip: ChipConfig, name: str) -> None:
        self.chip, self.name, self.mesh = chip, name, mesh_of(chip)
        self.pages: list[Page] = []
        self.operations: list[Operation] = []
        #: Of each operation: (cycles, pages) of its tasks, and its result.
        self.parts: list[list[tuple[int, tuple[int, ...]]]] = []
        limits = dict.fromkeys(chip.drams, chip.dram.words) | dict.fromkeys(chip.spms, chip.spm_words)
        self.limits, self.room = limits, dict(limits)
        self.turn = 0

    def home(self, words: int, scratchpad: bool) -> int:
        """A memory tile with room for a page: scratchpads in turn for activations, DRAM channels for the rest."""
        tiles = [*(self.chip.spms if scratchpad else ()), *self.chip.drams]
        spms = len(self.chip.spms) if scratchpad else 0
        self.turn += 1
        for group in (tiles[:spms], tiles[spms:]):
            for step in range(len(group)):
                tile = group[(self.turn + step) % len(group)]
                if self.room[tile] >= words:
                    self.room[tile] -= words
                    return tile
        raise DttError(
            f"program {self.name}: no memory of chip {self.chip.name} has {words} words left; enlarge its DRAM"
        )

    def page(self, name: str, words: int, region: int, home: bool, scratchpad: bool = False) -> int:
        homes = (self.home(words, scratchpad),) if home else ()
        self.pages.append(Page(name, flits_of(words, self.chip), homes, words, region, RESULT))
        return len(self.pages) - 1

    def layer(self, shape: ConvShape, source: _Tensor | None) -> _Tensor:
        """Adds a layer that reads `source` (None: an input of its own, in memory); its result's pages."""
        problem = pose(shape, self.chip, packed=False if source else None, flatten=shape.out_h == 1)
        division = cut(problem, self.chip)
        # rows of a result are all there; of an input of its own those that no stride skips
        step = problem.row_step if source else 1
        source = source or self._input(shape, problem, division)
        weights = self._weights(shape, problem, division)
        read = _Read(shape, problem, division, source, step)
        bands = ceil(problem.out_rows / division.rows)
        tensor = _Tensor(division.rows, 1, [[[] for _ in range(bands)] for _ in range(problem.images)])
        for image in range(problem.images):
            for band in range(bands):
                for block in range(problem.n_blocks):
                    result = self._operation(read, weights[block], image, band, block)
                    tensor.pages[image][band].append(result)
        return tensor

    def _input(self, shape: ConvShape, problem: Problem, division: Cut) -> _Tensor:
        rows = max(1, division.rows * problem.stride_h)
        pages: list[list[list[int]]] = []
        for image in range(problem.images):
            bands: list[list[int]] = []
            for first in range(0, problem.in_rows, rows):
                height = min(rows, problem.in_rows - first)
                groups: list[int] = []
                for low in range(0, problem.k_blocks, division.blocks):
                    words = height * problem.in_w * min(division.blocks, problem.k_blocks - low)
                    groups.append(self.page(f"{shape.name} x[{image},{first},{low}]", words, OPERAND_A, True, True))
                bands.append(groups)
            pages.append(bands)
        return _Tensor(rows, division.blocks, pages)

    def _weights(self, shape: ConvShape, problem: Problem, division: Cut) -> list[list[int]]:
        each = problem.taps * self.chip.cols
        return [
            [
                self.page(
                    f"{shape.name} w[{block},{low}]",
                    each * min(division.blocks, problem.k_blocks - low),
                    OPERAND_B,
                    home=True,
                )
                for low in range(0, problem.k_blocks, division.blocks)
            ]
            for block in range(problem.n_blocks)
        ]

    def _operation(
        self,
        read: _Read,
        weights: list[int],
        image: int,
        band: int,
        block: int,
    ) -> int:
        shape, problem, division, source, step = read
        top = band * division.rows
        rows = min(division.rows, problem.out_rows - top)
        first, end, _ = problem.input_rows(top, top + rows)
        first, end = first * step, (end - 1) * step + 1
        tasks: list[tuple[int, tuple[int, ...]]] = []
        for group, low in enumerate(range(0, problem.k_blocks, division.blocks)):
            high = min(low + division.blocks, problem.k_blocks)
            gemm = GemmShape(rows * problem.out_w, 1, high - low, problem.kernel_h, problem.kernel_w)
            # the last one ends when its results are written; others run into the next
            cycles = (gemm_cycles if high == problem.k_blocks else gemm_occupancy)(self.chip, gemm)
            inputs = (*source.touching(image, first, end, low, high), weights[group])
            tasks.append((cycles, inputs))
        result = self.page(f"{shape.name} y[{image},{top},{block}]", rows * problem.out_w, OPERAND_A, home=False)
        data = tuple(dict.fromkeys(page for _, inputs in tasks for page in inputs))
        label = f"{shape.name}[{image},{top},{block}]"
        self.operations.append(Operation(result, data, cycles=sum(cycles for cycles, _ in tasks), label=label))
        self.parts.append(tasks)
        return result

    def program(self, affinity: Affinity) -> Program:
        """Places the operations, and turns them into tasks."""
        longest = max((page.flits for page in self.pages), default=1)
        distribution = noc_arrival(self.mesh.width + self.mesh.height, longest) + self.mesh.launch
        cores: dict[str, tuple[int, Actor]] = {}
        for core in self.chip.cores:
            name = f"{core:#04x}"
            cores[name] = (core, Actor(name, "", "", latency=1))
        parts = dict(zip((operation.result for operation in self.operations), self.parts, strict=True))
        actors = {name: actor for name, (_, actor) in cores.items()}
        placed = first_best_fit(self.operations, actors, distribution, affinity)
        groups: list[tuple[int, list[Task]]] = []
        for one in placed:
            operation, tile, start = one.operation, cores[one.actor][0], one.cycle
            some: list[Task] = []
            todo = parts[operation.result]
            for number, (cycles, inputs) in enumerate(todo):
                outputs = (operation.result,) if number + 1 == len(todo) else ()
                some.append(Task(f"{operation.label}.{number}", tile, cycles, inputs, outputs, start))
                start += cycles
            home = self.home(self.pages[operation.result].words, scratchpad=True)
            some.append(Task(f"{operation.label} stored", home, 0, (operation.result,)))
            groups.append((one.cycle, some))
        # operations in the order of their starts; tasks of one stay together, each with its stores behind it
        ordered = sorted(groups, key=lambda group: group[0])
        tasks = tuple(task for _, some in ordered for task in some)
        return Program(self.mesh, tuple(self.pages), tasks, self.name, self.limits)


def fits(before: ConvShape, after: ConvShape) -> bool:
    """Whether one layer can read the other's result as it is."""
    return (before.batch, before.out_channels, before.out_h, before.out_w) == (
        after.batch,
        after.in_channels,
        after.in_h,
        after.in_w,
    )


def layer_program(
    shapes: Sequence[ConvShape], chip: ChipConfig, affinity: Affinity = cached, name: str = "", chain: bool = True
) -> Program:
    """Layers in their order on a chip. `chain`: a layer that fits the one before it reads that one's result, others
    have an input of their own in memory. Raises DttError or `DoesNotFit` where a layer does not fit the chip.
    """
    if not shapes:
        raise DttError("a program needs at least one layer")
    builder = _Builder(chip, name or shapes[0].name)
    tensor: _Tensor | None = None
    for before, shape in zip((None, *shapes), shapes, strict=False):
        chained = chain and before is not None and tensor is not None and shape.out_h > 1 and fits(before, shape)
        # channel blocks of a result are as wide as the array, those of an operand as a word
        tensor = builder.layer(shape, tensor if chained and chip.cols == chip.lanes else None)
    return builder.program(affinity)
