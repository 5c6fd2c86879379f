"""What a core has of a layer of a fused group: its GEMMs in order, and where their tiles lie in its memories, which it
shares with the other layers on that core."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from meshloom.hw.spec.config import ChipConfig

from ...mapping.emit.task import LayerTask
from ...mapping.tiling.arena import assign
from ...mapping.tiling.plan import box
from ...mapping.tiling.problem import Taps
from ...mapping.tiling.tiles import MTile, Range
from ..nest.fit import CoreNest
from ..nest.mapping import MappingError
from ..nest.schedule import BIAS_PART, TilePlaces, places_of, sizes_of
from ..nest.walk import NestStep, steps_of, visits


class Input(NamedTuple):
    """A tile of inputs: the pixels of results that it is for, input blocks, the part of the kernel."""

    tile: MTile
    k: Range
    taps: Taps | None


@dataclass(frozen=True, eq=False)
class FusedLayer:
    """A layer of a group. `source`: the layer of the group that makes its input (empty: it lies in DRAM); `stored`:
    whether its result goes to DRAM; `cores`: tiles; `loops`, `depth`: see `GroupLayer` and `FusedGroup.loops`."""

    name: str
    number: int
    task: LayerTask
    nest: CoreNest
    cores: Sequence[int]
    loops: tuple[int, ...]
    depth: int
    source: str
    stored: bool


class FusedStep(NamedTuple):
    """A GEMM, and the iteration of the group in which it is planned: counts of its loops, outermost first."""

    gemm: NestStep
    turn: tuple[int, ...]
    number: int


@dataclass
class TileShelf:
    """Tiles of one kind in a memory of a core: what each GEMM needs (None: nothing), and the words of the largest."""

    memory: str
    what: str
    needs: list[Hashable | None]
    words: int
    most: int = 0
    slots: int = 1
    base: int = 0

    def __post_init__(self) -> None:
        different = len({each for each in self.needs if each is not None})
        self.most = min(different, self.most) if self.most else different

    def places(self, once: bool) -> TilePlaces:
        """Where each GEMM finds its tile, and which brings it. `once`: it cannot come again. Raises MappingError."""
        uses = [(index, name) for index, name in enumerate(self.needs) if name is not None]
        if not self.words or not uses:
            return TilePlaces([self.base] * len(self.needs), [False] * len(self.needs))
        stays = assign(uses, self.slots)
        if once and len(stays) > len({name for _, name in uses}):
            raise MappingError(
                f"{self.memory} has room for {self.slots} of the {self.most} tiles of {self.what} that are summed at "
                "a time; let fewer loops lie between those that are summed"
            )
        return places_of(stays, uses, self.words, self.base, len(self.needs))


class FusedPart:
    """A layer's part on one core. `next`: the number of its next GEMM."""

    def __init__(self, layer: FusedLayer, part: int) -> None:
        self.layer, self.core, self.next = layer, layer.cores[part], 0
        task = layer.task
        self.steps = _steps(layer, part)
        gemms = [step.gemm for step in self.steps]
        self.inputs = [Input(each.tile, each.k, each.taps) for each in gemms]
        blocks = max((g.n[1] - g.n[0] for g in gemms), default=1)
        partial = any(task.ends(g.k, g.taps) != (True, True) for g in gemms)

        def shelf(memory: str, what: str, need: Callable[[NestStep], Hashable], words: int, most: int = 0) -> TileShelf:
            return TileShelf(memory, f"{what} of {layer.name}", [need(g) for g in gemms], words, most)

        inputs = max((task.input_words(g.tile, g.k, g.taps) for g in gemms), default=0)
        weights = max((task.weight_words(g.n, g.k, g.taps) for g in gemms), default=0)
        sums = max((task.result_words(g.tile, g.n) for g in gemms), default=0)
        biases = max(2, task.chip.core.acc_words // BIAS_PART // blocks)
        self.shelves = {
            "a": shelf("A", "inputs", lambda g: Input(g.tile, g.k, g.taps), inputs),
            "b": shelf("B", "weights", lambda g: (g.n, g.k, g.taps), weights),
            "bias": shelf("ACC", "biases", lambda g: g.n if task.ends(g.k, g.taps)[0] else None, blocks, biases),
            "sums": shelf("ACC", "sums", lambda g: (g.tile, g.n), sums if partial else 0),
        }
        self.places: dict[str, TilePlaces] = {}
        self.windows: InputWindows | None = None

    def place(self) -> None:
        """Where its tiles lie, once its shelves have their words. Raises MappingError."""
        for name, shelf in self.shelves.items():
            if name == "a" and self.layer.source:
                self.windows = InputWindows(self, shelf)
            else:
                self.places[name] = shelf.places(once=name == "sums")

    @property
    def step(self) -> FusedStep | None:
        """Its next GEMM; None when all have been added."""
        return self.steps[self.next] if self.next < len(self.steps) else None


def _steps(layer: FusedLayer, part: int) -> list[FusedStep]:
    steps: list[FusedStep] = []
    for visit in visits(layer.nest, sizes_of(layer.task.shape), part):
        turn = [0] * layer.depth
        for loop, count in zip(layer.loops, visit.counts, strict=True):
            turn[layer.depth - 1 - loop] = count
        steps += [FusedStep(gemm, tuple(turn), index) for index, gemm in enumerate(steps_of(visit, layer.task))]
    return steps


@dataclass
class InputWindow:
    """A tile of inputs that comes from other cores: `planes`, `rows` (of those that are fetched) and `columns` of the
    tensor. `missing`: words that nobody has sent yet; `uses`: GEMMs that still need it; `at`: its slot, if it has one.
    """

    planes: Range
    rows: Range
    columns: Range
    missing: int
    uses: int
    at: int | None = None


@dataclass
class InputWindows:
    """The input tiles of a part, which take slots of A when their first words come, and leave them after their last
    GEMM."""

    part: FusedPart
    shelf: TileShelf
    all: dict[Input, InputWindow] = field(default_factory=dict[Input, InputWindow])

    def __post_init__(self) -> None:
        for need in self.part.inputs:
            if need in self.all:
                self.all[need].uses += 1
                continue
            problem = self.part.layer.task.problem
            rows, columns, _, _ = box(problem if need.taps is None else problem.part(need.taps), need.tile)
            words = (rows[1] - rows[0]) * (columns[1] - columns[0]) * (need.k[1] - need.k[0])
            self.all[need] = InputWindow(need.k, rows, columns, words, 1)
        self._free = [self.shelf.base + slot * self.shelf.words for slot in reversed(range(self.shelf.slots))]

    @property
    def free(self) -> int:
        """How many slots are free."""
        return len(self._free)

    def take(self, window: InputWindow) -> None:
        """Gives a window a slot, if it has none yet."""
        if window.at is None:
            window.at = self._free.pop()

    def used(self, need: Input) -> None:
        """A GEMM has been added that needs it."""
        window = self.all[need]
        window.uses -= 1
        if not window.uses and window.at is not None:
            self._free.append(window.at)

    def touched(self, planes: Range, rows: Range, columns: Range) -> list[InputWindow]:
        """Windows that need some of these words of the tensor."""
        step = self.part.layer.task.problem.row_step
        return [
            window
            for window in self.all.values()
            if _meet(window.planes, planes)
            and _meet(window.columns, columns)
            and rows_of(window, rows, step)[0] < rows_of(window, rows, step)[1]
        ]


def _meet(a: Range, b: Range) -> bool:
    return max(a[0], b[0]) < min(a[1], b[1])


def rows_of(window: InputWindow, rows: Range, step: int) -> Range:
    """Which of a window's rows, every `step`-th one of the tensor, are among these rows of the tensor."""
    return max(window.rows[0], -(-rows[0] // step)), min(window.rows[1], -(-rows[1] // step))


def share(parts: Sequence[FusedPart], chip: ChipConfig) -> None:
    """Divides the memories of one core among the layers that it has: a tile of each kind, then one more of each in
    turn, while there is room and use for it. Raises MappingError."""
    for memory, words in (("A", chip.core.a_words), ("B", chip.core.b_words), ("ACC", chip.core.acc_words)):
        shelves = [shelf for part in parts for shelf in part.shelves.values() if shelf.memory == memory and shelf.words]
        used = sum(shelf.words for shelf in shelves)
        if used > words:
            what = ", ".join(f"{shelf.words} for {shelf.what}" for shelf in shelves)
            raise MappingError(
                f"a tile of each layer is too large for {memory} of a {chip.name} core, which has {words} words: "
                f"{what}; take smaller tiles, or cut the group"
            )
        growing = True
        while growing:
            growing = False
            for shelf in shelves:
                if shelf.slots < shelf.most and used + shelf.words <= words:
                    shelf.slots, used, growing = shelf.slots + 1, used + shelf.words, True
        base = 0
        for shelf in shelves:
            shelf.base, base = base, base + shelf.slots * shelf.words
    for part in parts:
        part.place()
