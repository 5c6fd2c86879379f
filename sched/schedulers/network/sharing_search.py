"""A search over whole schedules of one network: the best so far, and what is compared with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.timing import GemmShape, gemm_occupancy

from ...ir.schedule import Gemm, Move, Prediction
from ...lowering.predict import lowered, prediction
from ...mapping.tiling.problem import DoesNotFit
from ...program.program import ProgramError
from ...store.findings import SearchCache
from ...support.garbage import cycles_freed
from ...workload.graph import Graph
from .form import form
from .fusing import FusionDepth, with_room
from .reuse import Reuse
from .scheduler import NetworkSchedule, Progress, layer_of, schedule
from .sharing import Change, SharingOptions

#: What progress calls the network when it is scheduled once more.
ANOTHER = "the whole another way"
#: The estimate of what has no room.
FOREVER = 1 << 60
#: Schedules whose estimate is so much longer than that of the best are not played. Estimates are wrong by more, but by
#: about as much for all schedules of a network.
HOPELESS = 1.03
#: The same for networks of so many operations, which take long to play.
LARGE, HOPELESS_LARGE = 5_000, 1.01
#: How many changes are tried at once when single ones do not help any more, and draws for each schedule that is left:
#: some have been tried before.
_AT_ONCE, _DRAWS = (2, 4), 4


@dataclass(frozen=True)
class ComparisonBudget:
    """How many schedules a search compares: `most`, and only while they have no more than `work` operations together
    (None: any number), but `least` in any case."""

    most: int
    work: int | None = None
    least: int = 1


@dataclass(frozen=True)
class Standing:
    """How a schedule did: the cycles that list scheduling foresees, how many operations it has, the cycles that it
    takes (None: it has not been played), and its layers, those first for which arrays wait longest (None: nobody has
    looked, since it was not the best), and those that could be made as if they were alone; whether some tensor between
    layers has no room in the scratchpad; see `NetworkSchedule` for `roomless`."""

    estimate: int
    operations: int = 0
    cycles: int | None = None
    worst: tuple[str, ...] | None = None
    alone: tuple[str, ...] = ()
    spilled: bool = False
    roomless: tuple[tuple[str, FusionDepth], ...] = ()

    def same(self, other: Standing) -> bool:
        """Whether it is another by all that a search looks at."""
        return (self.estimate, self.operations, self.cycles) == (other.estimate, other.operations, other.cycles)


_STANDING = TypeAdapter(Standing)
#: How a schedule did, and the schedule, if it has room and is at hand.
Judged = tuple[Standing, NetworkSchedule | None]


def _waits(
    result: NetworkSchedule, prediction: Prediction, chip: ChipConfig, owners: Mapping[str, str]
) -> tuple[str, ...]:
    """The layers of a schedule, those first before whose GEMMs the arrays wait longest. `owners`: with which layers
    others may be computed, which then store nothing of their own."""
    free = dict.fromkeys(chip.cores, 0)
    alone = {layer_of(op.label) for op in result.schedule.operations if isinstance(op, Move)}
    waits: Counter[str] = Counter()
    turns = sorted(zip(prediction.start, range(len(prediction.start)), strict=True))
    for start, index in turns:
        op = result.schedule.operations[index]
        if isinstance(op, Gemm):
            layer = layer_of(op.label)
            waits[layer if layer in alone else owners.get(layer, layer)] += start - free[op.core]
            fields = op.fields
            shape = GemmShape(
                fields["pixels"], fields["n_blocks"], fields["k_blocks"], fields["kernel_h"], fields["kernel_w"]
            )
            free[op.core] = start + gemm_occupancy(chip, shape)
    return tuple(layer for layer, _ in waits.most_common())


def _decisive(sharing: SharingOptions) -> tuple[object, object]:
    """What of it decides a schedule: a planner that makes nothing does not."""
    planner = sharing.planner
    if planner is None or sharing.planned == frozenset():
        return replace(sharing, planner=None, planned=None), None
    return replace(sharing, planner=None), planner.key


class SharingSearch:
    """The best so far: `best`, how it did (`standing`; None: there is none yet), its schedule `result` if that is at
    hand, and its layers, the `worst` first; those that could be made as if they were `alone`; whether it has `spilled`.
    `roomless`: what had no room to be computed together in any schedule so far; `left`: schedules that may still be
    made, not counting those that change nothing; `owners`: see `_waits`; `hopeless`: see `HOPELESS`; while it is less
    than `HOPELESS_LARGE`, two schedules that are not played count as one. `outcomes`: of all that were compared, or why
    the first cannot be; `judge`: makes a schedule and plays it (see `judged`)."""

    def __init__(
        self, graph: Graph, chip: ChipConfig, progress: Progress | None, memory: SearchCache | None,
        budget: ComparisonBudget, owners: Mapping[str, str],
    ) -> None:  # fmt: skip
        self.graph, self.chip, self.progress, self.memory = graph, chip, progress, memory
        self.budget, self.owners = budget, owners
        self.left = self.most = budget.most
        self.hopeless = HOPELESS
        self.outcomes: dict[SharingOptions, Standing | DoesNotFit | ProgramError] = {}
        self.judge: Callable[[SharingOptions], Judged] = self.judged
        self._refused = 0
        self.best = SharingOptions()
        self.result: NetworkSchedule | None = None
        self.worst: tuple[str, ...] = ()
        self.alone: tuple[str, ...] = ()
        self.spilled = False
        self.roomless: set[tuple[str, FusionDepth]] = set()
        self.standing: Standing | None = None
        self._tried: set[SharingOptions] = set()
        self._reuse = Reuse()

    def try_(self, sharing: SharingOptions) -> None:
        """Compares a schedule with the best, if any may still be compared. Raises DoesNotFit and ProgramError if there
        is none yet and this one, or its code, has no room."""
        if not self.left or sharing in self._tried:
            return
        first = self.standing is None
        self._tried.add(sharing)
        self.left -= 1
        if self.progress and not first:
            self.progress(ANOTHER, self.most - self.left - 1, self.most)
        try:
            played, result = self.outcome(sharing)
        except (DoesNotFit, ProgramError) as refusal:
            self.outcomes[sharing] = refusal
            raise
        self.outcomes[sharing] = played
        self.roomless.update(played.roomless)
        if self.standing and played.same(self.standing):  # made and not played, since it changes nothing
            self.left += 1
        if played.cycles is not None and self._better(played.cycles):
            self.best, self.result, self.standing = with_room(sharing, played.roomless), result, played
            self._tried.add(self.best)
            self.worst, self.alone, self.spilled = played.worst or (), played.alone, played.spilled
            self._reuse.hold()
        if played.cycles is None and self.hopeless < HOPELESS_LARGE:  # made and not played: half the work
            self._refused ^= 1
            self.left += self._refused
        if first and self.budget.work is not None:
            compared = max(self.budget.least, self.budget.work // played.operations)
            self.left, self.most = min(self.left, compared - 1), min(self.most, compared)

    def outcome(self, sharing: SharingOptions) -> Judged:
        """How a schedule does, and the schedule if it was made for that. Raises as `judged`."""
        key = self._key(sharing)
        played, result = self._recall(key), None
        if played is None:
            played, result = self.judge(sharing)
            if self.memory:
                self.memory.put(key, _STANDING, played)
        return played, result

    def allow(self, more: int) -> None:
        """So many more schedules may be compared."""
        self.left, self.most = self.left + more, self.most + more

    @property
    def is_large(self) -> bool:
        """Whether the best takes long to play."""
        return self.standing is not None and self.standing.operations > LARGE

    def try_all(self, changes: Iterable[Change]) -> None:
        """Compares the best, changed in each of some ways, with the best so far."""
        for change in changes:
            self.try_(change(self.best))

    def recall(self, sharing: SharingOptions) -> Standing | None:
        """What the memory says of a schedule, if it will do now."""
        return self._recall(self._key(sharing)) if self.memory else None

    def _recall(self, key: object) -> Standing | None:
        played = self.memory.get(key, _STANDING) if self.memory else None
        return self.now(played) if played is not None else None

    def _key(self, sharing: SharingOptions) -> tuple[object, ...]:
        return "refined", self._form, *_decisive(sharing)

    @cached_property
    def _form(self) -> str:
        return form(self.graph)

    def judged(self, sharing: SharingOptions) -> Judged:
        """Makes a schedule and plays it. Raises DoesNotFit if there is none yet and this one has no room, ProgramError
        if its code has none."""
        first = self.standing is None
        try:
            progress = self.progress if first else None
            result = schedule(self.graph, self.chip, progress, self.memory, sharing, self._reuse)
            return self._play(result)
        except (DoesNotFit, ProgramError):
            if first:
                raise
            return Standing(FOREVER), None

    def go_through(
        self, changes: Callable[[frozenset[str]], Iterable[Change]], groups: Mapping[str, frozenset[str]] | None = None
    ) -> None:
        """Tries to do something otherwise in one layer after the other, always in the worst of those that are left, or
        in all layers of its group at once."""
        done: set[str] = set()
        while self.left and (layer := next((layer for layer in self.worst if layer not in done), None)):
            group = frozenset((layer,)) if groups is None else groups.get(layer, frozenset())
            done |= {layer} | group
            self.try_all(changes(group))

    def jump(self, changes: Sequence[Change]) -> None:
        """Tries to do several things at once otherwise, drawn at random, while schedules may be made: where no single
        change helps, two or three may."""
        random = Random(0)
        for _ in range(_DRAWS * self.left):
            if not self.left:
                return
            sharing = self.best
            for change in random.sample(changes, min(len(changes), random.randint(*_AT_ONCE))):
                sharing = change(sharing)
            self.try_(sharing)

    def _better(self, cycles: int) -> bool:
        return self.standing is None or cycles < (self.standing.cycles or 0)

    def now(self, played: Standing) -> Standing | None:
        """How a schedule does beside the present best, by what was once said of it beside another one; None if that
        does not tell."""
        if self._hopeless(played.estimate):
            return Standing(played.estimate, played.operations, roomless=played.roomless)
        if played.cycles is None or (played.worst is None and self._better(played.cycles)):
            return None
        return played

    def _hopeless(self, estimate: int) -> bool:
        return self.standing is not None and estimate > self.hopeless * self.standing.estimate

    def _play(self, result: NetworkSchedule) -> Judged:
        """What a schedule takes, and the schedule with its program; not played if it cannot be the best, or is the best
        one once more."""
        operations = result.schedule.operations
        if self._hopeless(result.estimate):
            return Standing(result.estimate, len(operations), roomless=result.roomless), result
        if self.standing and self.result and operations == self.result.schedule.operations:
            return replace(self.standing, roomless=result.roomless), result
        needs = self._reuse.needs(operations)
        with cycles_freed():
            done = lowered(result.schedule, self.chip, needs)
        cycles, worst = done.timeline.cycles, None
        if self._better(cycles):  # only the best is asked what to change
            predicted = prediction(result.schedule, done.program, done.timeline)
            worst = _waits(result, predicted, self.chip, self.owners)
        spilled = not set(result.spilled).issubset(self.graph.outputs)  # these go to DRAM in any case
        played = Standing(result.estimate, len(operations), cycles, worst, result.alone, spilled, result.roomless)
        return played, replace(result, lowered=done)
