"""The schedule of a layer by its mapping: what its loops say is loaded, computed and stored, by each core in turn.

A tile is loaded when the loops have changed it and its GEMM comes up, so each GEMM waits for its own part alone; where
a memory has room for a second one, that is loaded meanwhile. Results are stored after the next GEMM's loads: a core's
moves go in order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import ceil, prod

from meshloom.hw.spec.config import ChipConfig

from ...ir.schedule import Schedule, ToolClaim
from ...mapping.emit.task import LayerTask
from ...mapping.tiling.arena import TileResidency, assign
from ...mapping.tiling.tiles import MTile, Range
from ...workload.layers import ConvShape
from .fit import CoreNest, Leeway, core_nest
from .mapping import PIXELS, REDUCTIONS, Dimension, LayerMapping, MappingError
from .walk import MOST_GEMMS, NestStep, count_visits, is_flat, steps

#: The part of ACC that biases take at most, unless a single one needs more.
BIAS_PART = 8


def sizes_of(shape: ConvShape) -> dict[Dimension, int]:
    """The dimensions of a layer."""
    return {
        Dimension.B: shape.batch, Dimension.K: shape.out_channels, Dimension.C: shape.in_channels,
        Dimension.OY: shape.out_h, Dimension.OX: shape.out_w, Dimension.FY: shape.kernel_h,
        Dimension.FX: shape.kernel_w,
    }  # fmt: skip


def schedule(
    shape: ConvShape, chip: ChipConfig, scale: int, mapping: LayerMapping, claim: ToolClaim, *, nearest: bool = False
) -> Schedule:
    """The schedule of a layer on a chip by a mapping of its sizes. `claim`: what the tool says of it; the schedule has
    it, with the changes that `nearest` allows.

    Raises MappingError for what the chip cannot do, in one line that says what would do; DoesNotFit.
    """
    leeway = Leeway(nearest)
    nest = core_nest(mapping, chip, leeway)
    if (count := count_visits(nest) * prod(each.size for each in nest.cores)) > MOST_GEMMS:
        raise MappingError(f"it makes {count:,} GEMMs, at most {MOST_GEMMS:,} are planned; let more lie in the core")
    task = LayerTask(shape, chip, scale, packed=None if is_whole(nest, shape) else False, flat=is_flat(nest, shape))
    add_operations(task, nest, core_tiles(mapping, chip, prod(f.size for f in nest.cores)), leeway)
    remarks = filter(None, (remark(claim, chip), left_idle(mapping, nest, chip)))
    own = claim.model_copy(update={"changes": tuple(leeway.changes), "remark": "; ".join(remarks)})
    return task.schedule(claim.tool).model_copy(update={"claim": own, "sites": None})


def is_whole(nest: CoreNest, shape: ConvShape) -> bool:
    """Whether a core sums all of a result at once: the host may pack inputs of few channels."""
    return all(nest.at_once[dimension] >= sizes_of(shape)[dimension] for dimension in REDUCTIONS)


def add_operations(task: LayerTask, nest: CoreNest, cores: Sequence[int], leeway: Leeway) -> None:
    """Adds all operations of a layer to its task, for these tiles of cores. Raises MappingError."""
    lists = [
        _CoreOperations(task, core, steps(nest, sizes_of(task.shape), number, task), leeway).each()
        for number, core in enumerate(cores)
    ]
    for turn in zip_longest(*lists):
        for add in turn:
            if add is not None:
                add()


def core_tiles(mapping: LayerMapping, chip: ChipConfig, count: int) -> list[int]:
    """The tiles of the cores that take part. Raises MappingError."""
    numbers = mapping.core_list or range(count)
    if beyond := [number for number in numbers if not 0 <= number < len(chip.cores)]:
        raise MappingError(
            f"core {beyond[0]} is used, {chip.name} has 0 to {len(chip.cores) - 1}; name cores of the chip"
        )
    return [chip.cores[number] for number in numbers][:count]


def remark(claim: ToolClaim, chip: ChipConfig) -> str:
    """That a claim is for another array, if it is; rows and columns may be the other way round."""
    own = (chip.rows, chip.cols, len(chip.cores))
    other = (*claim.array, 1, 1, 1)[:3] if claim.array else own
    if sorted(other[:2]) == sorted(own[:2]) and other[2] == own[2] and len(claim.array) < 4:
        return ""
    theirs, ours = ("x".join(map(str, array)) for array in (claim.array, own))
    return f"the claim is for an array of {theirs}, {chip.name} has {ours} (rows, columns, cores)"


def left_idle(mapping: LayerMapping, nest: CoreNest, chip: ChipConfig) -> str:
    """That a mapping leaves processing elements idle that the chip uses, if it does: an array always computes as much
    of a GEMM side by side as it can."""
    if not mapping.tells_array:
        return ""
    groups = (PIXELS, frozenset({Dimension.K}), REDUCTIONS)
    tiles = [prod(nest.at_once[dimension] for dimension in group) for group in groups]
    unrolled = [prod(f.size for f in mapping.array if f.dimension in group) for group in groups]
    turns, own = (
        prod(ceil(tile / beside) for tile, beside in zip(tiles, some, strict=True))
        for some in (unrolled, (chip.rows, chip.cols, 1))
    )
    if turns <= own:
        return ""
    theirs, ours = (f"{rows}x{columns}" for rows, columns in (unrolled[:2], (chip.rows, chip.cols)))
    return (
        f"the mapping unrolls {theirs} over the array (pixels, output channels); {chip.name} computes up to {ours} "
        "side by side, so it is faster than the mapping says"
    )


def _refuse(problem: str, mend: str, instead: str) -> None:
    """Raises MappingError: sums that leave ACC before they are complete cannot be loaded again."""
    raise MappingError(f"{problem}; {mend}")


@dataclass(frozen=True)
class TilePlaces:
    """Tiles of one kind in a memory of a core: where each GEMM has its own, and which it is the first to use."""

    at: list[int]
    fresh: list[bool]


class _CoreOperations:
    """The operations of one core, and where its tiles lie."""

    def __init__(self, task: LayerTask, core: int, steps: Sequence[NestStep], leeway: Leeway) -> None:
        self.task, self.core, self.steps = task, core, steps
        has = task.chip.core
        self.a = self._place(
            "A",
            "inputs",
            has.a_words,
            lambda s: (s.inputs, s.tile, s.k, s.taps),
            lambda s: task.input_words(s.tile, s.k, s.taps),
            leeway.change,
        )
        self.b = self._place(
            "B",
            "weights",
            has.b_words,
            lambda s: (s.weights, s.n, s.k, s.taps),
            lambda s: task.weight_words(s.n, s.k, s.taps),
            leeway.change,
        )
        blocks = max((step.n[1] - step.n[0] for step in steps), default=1)
        distinct = len({step.n for step in steps})
        room = min(distinct, max(2, has.acc_words // BIAS_PART // blocks)) * blocks
        self.bias = self._place(
            "ACC", "biases", room, lambda s: s.n if task.ends(s.k, s.taps)[0] else None, lambda s: blocks, None
        )
        partial = any(task.ends(step.k, step.taps) != (True, True) for step in steps)
        self.sums = self._place(
            "ACC", "sums", has.acc_words - room, lambda s: (s.tile, s.n),
            lambda s: task.result_words(s.tile, s.n) if partial else 0, _refuse, room,
        )  # fmt: skip
        self.out = self._turns()

    def _place(
        self,
        memory: str,
        what: str,
        words: int,
        key: Callable[[NestStep], Hashable | None],
        size: Callable[[NestStep], int],
        again: Callable[[str, str, str], object] | None,
        base: int = 0,
    ) -> TilePlaces:
        """Slots in `words` words of a memory from `base` on for the tiles of all steps. `again`: hears that a tile
        would have to come more than once, what would do, and what it comes to; None: it may. Without a key a step
        has no use for it."""
        largest = max(map(size, self.steps), default=0)
        if not largest:
            return TilePlaces([base] * len(self.steps), [False] * len(self.steps))
        slots = words // largest
        uses = [(index, name) for index, step in enumerate(self.steps) if (name := key(step)) is not None]
        core = f"{memory} of a {self.task.chip.name} core"
        if not slots:
            raise MappingError(
                f"a tile of {what} is too large: {largest} words, {core} has {words} for them; let fewer loops lie in "
                "the core"
            )
        residencies = assign(uses, slots)
        once = len({name for _, name in uses})
        if again is not None and len(residencies) > once:
            again(
                f"tiles of {what} that stay together are too large for {core}, which holds {slots} of {largest} words",
                "let fewer loops lie in the core",
                f"tiles of {what} are loaded {len(residencies)} times instead of {once}",
            )
        return places_of(residencies, uses, largest, base, len(self.steps))

    def _turns(self) -> list[int]:
        """Where each step's results lie in OUT: the slots take turns."""
        task = self.task
        largest = max((task.result_words(step.tile, step.n) for step in self.steps), default=1)
        slots, turn, at = max(1, task.chip.core.out_words // largest), 0, list[int]()
        for step in self.steps:
            at.append(turn % slots * largest)
            turn += task.ends(step.k, step.taps)[1]
        return at

    def each(self) -> Iterator[Callable[[], None]]:
        """A call for each step, which adds its operations; then those for what is left to be stored."""
        waiting: list[tuple[MTile, Range, int]] = []
        for index, step in enumerate(self.steps):
            yield lambda index=index, step=step: self._add(index, step, waiting)
        yield lambda: self._store(waiting)

    def _add(self, index: int, step: NestStep, waiting: list[tuple[MTile, Range, int]]) -> None:
        task, core = self.task, self.core
        if self.bias.fresh[index]:
            task.load_bias(core, step.n, self.bias.at[index])
        if self.b.fresh[index]:
            task.load_weights(core, step.n, step.k, self.b.at[index], step.taps)
        if self.a.fresh[index]:
            task.load_input(core, step.tile, step.k, self.a.at[index], step.taps)
        task.gemm(
            core, step.tile, step.n, step.k, a=self.a.at[index], b=self.b.at[index], bias=self.bias.at[index],
            sums=self.sums.at[index], out=self.out[index], taps=step.taps,
        )  # fmt: skip
        self._store(waiting)
        if task.ends(step.k, step.taps)[1]:
            waiting.append((step.tile, step.n, self.out[index]))

    def _store(self, waiting: list[tuple[MTile, Range, int]]) -> None:
        for tile, n, at in waiting:
            self.task.store(self.core, tile, n, at)
        waiting.clear()


def places_of(
    residencies: Sequence[TileResidency], uses: Sequence[tuple[int, Hashable]], size: int, base: int, steps: int
) -> TilePlaces:
    """Where each of so many steps has its tile, in slots of `size` words from `base` on."""
    places: dict[Hashable, int] = {}
    starts = {(stay.first, stay.key): stay.slot for stay in residencies}
    memory = TilePlaces([base] * steps, [False] * steps)
    for use in uses:
        index, name = use
        if use in starts:
            places[name] = base + starts[use] * size
            memory.fresh[index] = True
        memory.at[index] = places[name]
    return memory
