"""Which of a network's choices suit each other: the timeline model decides, by whole schedules.

Each layer's loop nests are chosen by an estimate of the layer alone, and the list of all operations by an estimate of
the whole; both leave out much of what one layer does to the next. The timeline model leaves out nothing, so what it
says about a whole schedule is what the chip does. A descent changes one choice at a time and keeps what is faster.
First what concerns all layers: a picture packed by whole windows, memories that send operands on their own instead of
being asked for them, to all cores in turn or to one after the other, a smaller staging area, tensors of which only a
part lies in the scratchpad, depthwise convolutions fused with the 1x1 ones behind them, all or none, and with the
convolutions before them, too, and how far ahead operands are fetched. Then the layers one by one, beginning with those
before whose GEMMs the arrays wait longest: fused or not, sent or asked for, the order of tiles, other loop nests. When
no change helps any more, several at once are drawn at random, as long as schedules may be made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import Any

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig, TileKind
from meshloom.hw.spec.timing import GemmShape, gemm_occupancy

from ...ir.schedule import Gemm, Move, Prediction
from ...lowering.predict import lowered, prediction
from ...mapping.tiling.problem import DoesNotFit
from ...store.findings import SearchCache
from ...workload.graph import Graph
from ...workload.stages import cut
from .conv import Planner
from .form import form
from .reuse import Reuse
from .scheduler import NetworkSchedule, Progress, layer_of, schedule
from .sharing import HORIZONS, SWITCHES, SharingOptions, streams
from .storage import SMALL_SHARE, Between

#: Schedules that are compared, if not said otherwise, of networks in which depthwise convolutions can be fused, and of
#: others: of these so many only while they have no more operations together than `WORK`, but `LEAST` in any case.
USUAL, FEW, LEAST, WORK = 34, 8, 4, 16_000
#: So many for a quick answer about the former, and so many times as many as usual for a thorough search.
QUICK, THOROUGH_FACTOR = 7, 8
#: How many changes are tried at once when single ones do not help any more, and draws for each schedule that is left:
#: some have been tried before.
_AT_ONCE, _DRAWS = (2, 4), 4
#: What progress calls the network when it is scheduled once more.
ANOTHER = "the whole another way"
#: Memories that can send on their own.
_SENDERS = (TileKind.SPM, TileKind.DRAM)
#: The estimate of what has no room.
FOREVER = 1 << 60
#: Schedules whose estimate is so much longer than that of the best are not played. Estimates are wrong by more, but by
#: about as much for all schedules of a network.
HOPELESS = 1.03


@dataclass(frozen=True)
class _Played:
    """A schedule: the cycles that list scheduling foresees, how many operations it has, the cycles that it takes (None:
    it has not been played), and its layers, those first for which arrays wait longest (None: nobody has looked, since
    it was not the best), and those that could be made as if they were alone; whether some tensor between
    layers has no room in the scratchpad."""

    estimate: int
    operations: int = 0
    cycles: int | None = None
    worst: tuple[str, ...] | None = None
    alone: tuple[str, ...] = ()
    spilled: bool = False


_PLAYED = TypeAdapter(_Played)
#: A field of `SharingOptions`, and the entry that it gains or loses.
_Toggle = tuple[str, object]


def refined(
    graph: Graph,
    chip: ChipConfig,
    progress: Progress | None = None,
    memory: SearchCache | None = None,
    sharing: SharingOptions | None = None,
    most: int | None = None,
    planner: Planner | None = None,
) -> NetworkSchedule:
    """The fastest schedule of a network among `most` that share what `sharing` says. None: `USUAL` for networks with
    `pairs`, `FEW` for others. `planner`: who may make single convolutions instead of the loop nests.

    What each one takes is kept in `memory`, so that an interrupted search goes on and a second one is done at once.
    Raises as `scheduler.schedule` does.
    """
    sharing = sharing or SharingOptions()
    fusible = pairs(graph, chip, sharing)
    wide = expansions(graph, chip, fusible)
    work = WORK if most is None and not fusible else None
    if most is None:
        most = USUAL if fusible else FEW
    if most < 2:
        return schedule(graph, chip, progress, memory, sharing)
    owners = {first: name for name, first in wide.items()}
    search = _SharingSearch(graph, chip, progress, memory, most, owners, work)
    if fusible:
        search.try_(sharing)
        search.try_(replace(sharing, whole=True))
        for senders in (_SENDERS[:1], _SENDERS, _SENDERS[1:]):
            # who is served in turn is tried layer by layer, if at all: there is more to choose from
            search.try_(replace(search.best, pushed=_sent(graph, senders)))
    else:
        _send(search, sharing)
    if _streaming(graph, chip):
        search.try_(replace(search.best, deep=True))
    search.try_(replace(search.best, staging=SMALL_SHARE))
    if sharing.between is Between.WHOLE:
        search.try_(replace(search.best, between=Between.PLANES))
    # In a chain of pairs each convolution has two neighbours to go with, and alone it seldom pays.
    residuals = {name for name, first in wide.items() if first not in fusible}
    if residuals:
        search.try_(replace(search.best, expanded=frozenset(residuals)))
    if fusible:
        search.try_(replace(search.best, apart=frozenset(fusible), expanded=frozenset()))
    for horizon in HORIZONS:
        search.try_(replace(search.best, horizon=horizon))
    if planner is not None:
        search.best = replace(search.best, planner=planner, planned=frozenset())
        search.go_through(lambda layer: [("planned", layer)] if layer in search.alone else [])
    search.go_through(lambda layer: _fusing(layer, layer in fusible, layer in residuals))
    best: SharingOptions | None = None
    while search.best != best:  # once more while that finds something
        best = search.best
        search.go_through(lambda layer: _toggles(layer, layer in fusible, layer in wide))
    names = [layer.output for layer in graph.layers]
    search.jump([toggle for name in names for toggle in _toggles(name, name in fusible, name in wide)])
    return search.result or schedule(graph, chip, progress, memory, search.best)


def _sent(graph: Graph, senders: Iterable[TileKind]) -> frozenset[tuple[str, TileKind]]:
    """All layers, with the memories that send them what they need on their own."""
    return frozenset((layer.output, kind) for layer in graph.layers for kind in senders)


def _send(search: _SharingSearch, sharing: SharingOptions) -> None:
    """Tries who sends operands, and to which core first, in the order in which that has proved to pay: everybody, with
    pictures packed by whole windows; the banks alone, or everybody, without; the best of these to all cores in turn.
    What follows helps small networks, which have little else to gain."""
    graph = search.graph
    in_turn = frozenset((layer.output, "fair") for layer in graph.layers if layer.kind == "conv")
    try:
        search.try_(replace(sharing, whole=True, pushed=_sent(graph, _SENDERS)))
    except DoesNotFit:
        search.try_(sharing)  # whole windows are more words
    for senders in (_SENDERS[:1], _SENDERS):
        search.try_(replace(sharing, pushed=_sent(graph, senders)))
    search.try_(replace(search.best, turned=in_turn))
    search.try_(replace(search.best, whole=not search.best.whole))
    for senders in (_SENDERS[1:], ()):
        for turned in (frozenset[tuple[str, str]](), in_turn):
            search.try_(replace(search.best, pushed=_sent(graph, senders), turned=turned))


class Effort(StrEnum):
    """How long a network's schedule is searched for, in work: the same result on every machine."""

    QUICK = "quick"  #: one schedule, two where weights are only streamed, `QUICK` where depthwise layers can be fused
    DEFAULT = "default"  #: `USUAL` or `FEW` schedules
    THOROUGH = "thorough"  #: `THOROUGH_FACTOR` times as many


def with_effort(
    effort: Effort,
    graph: Graph,
    chip: ChipConfig,
    progress: Progress | None = None,
    memory: SearchCache | None = None,
    sharing: SharingOptions | None = None,
) -> NetworkSchedule:
    """As `refined`, with so much effort. Quick: whole windows, and memories that send operands on their own, which is
    what most searches end with."""
    sharing = sharing or SharingOptions()
    if effort is Effort.QUICK:
        return _quick(graph, chip, progress, memory, sharing)
    most = None
    if effort is Effort.THOROUGH:
        most = THOROUGH_FACTOR * (USUAL if pairs(graph, chip, sharing) else FEW)
    return refined(graph, chip, progress, memory, sharing, most)


def _quick(
    graph: Graph, chip: ChipConfig, progress: Progress | None, memory: SearchCache | None, sharing: SharingOptions
) -> NetworkSchedule:
    """One schedule; where weights are only streamed the better of two, with all of B for them or not; where depthwise
    convolutions can be fused the best of a few: who sends, all fused or none, room for tensors where some have none,
    and the pairs before which arrays wait longest."""
    start = replace(sharing, whole=True, pushed=_sent(graph, _SENDERS))
    fusible = pairs(graph, chip, sharing)
    if not fusible and _streaming(graph, chip):
        search = _SharingSearch(graph, chip, progress, memory, 2, {})
        search.try_(start)
        search.try_(replace(start, deep=True))
        return search.result or schedule(graph, chip, progress, memory, search.best)
    if not fusible:
        return schedule(graph, chip, progress, memory, start)
    wide = expansions(graph, chip, fusible)
    search = _SharingSearch(graph, chip, progress, memory, QUICK, {first: name for name, first in wide.items()})
    search.hopeless = 1.0
    search.try_(replace(start, pushed=frozenset()))
    search.try_(replace(search.best, apart=frozenset(fusible)))
    residuals = frozenset(name for name, first in wide.items() if first not in fusible)
    if residuals:
        search.try_(replace(search.best, apart=frozenset(), expanded=residuals))
    if search.spilled:  # maps that are large: what there is room for decides
        search.try_(replace(search.best, staging=SMALL_SHARE))
        if sharing.between is Between.WHOLE:
            search.try_(replace(search.best, between=Between.PLANES))
    search.hopeless = HOPELESS  # list scheduling does not foresee what sending brings
    for senders in (_SENDERS[:1], _SENDERS):
        search.try_(replace(search.best, pushed=_sent(graph, senders)))
    search.hopeless = 1.0
    search.go_through(lambda layer: _fusing(layer, layer in fusible, layer in residuals))
    return search.result or schedule(graph, chip, progress, memory, search.best)


def _streaming(graph: Graph, chip: ChipConfig) -> bool:
    """Whether most weights of a network belong to layers that only stream them."""
    weights = {layer.output: layer.w.size for layer in graph.layers if layer.kind == "conv" and layer.w is not None}
    streamed = (name for name in weights if streams(graph.value(name).height * graph.value(name).width, chip))
    return 2 * sum(weights[name] for name in streamed) > sum(weights.values())


def pairs(graph: Graph, chip: ChipConfig, sharing: SharingOptions) -> list[str]:
    """The convolutions, by name, that a depthwise one can go with."""
    if not sharing.fused or (sharing.planner is not None and sharing.planned is None):
        return []
    return [stage.layer.output for stage in cut(graph, chip, pastes=True, by_channel=True).stages if stage.before]


def expansions(graph: Graph, chip: ChipConfig, fusible: Sequence[str]) -> dict[str, str]:
    """Those of the convolutions `fusible` that the one before the depthwise one can go with, too, and that one."""
    result: dict[str, str] = {}
    for name in fusible:
        for stage in cut(graph, chip, pastes=True, expanded=(name,), by_channel=True).stages:
            if stage.expand:
                result[name] = stage.expand.output
    return result


def _fusing(layer: str, fusible: bool, wide: bool) -> Iterator[_Toggle]:
    """What may or may not be computed together with a layer."""
    if wide:
        yield "expanded", layer
    if fusible:
        yield "apart", layer


def _toggles(layer: str, fusible: bool, wide: bool) -> Iterator[_Toggle]:
    """What may be otherwise in one layer."""
    yield from _fusing(layer, fusible, wide=False)
    yield "pushed", (layer, TileKind.SPM)
    for switch in SWITCHES:
        yield "turned", (layer, switch)
    yield "second", layer
    yield "third", layer
    if wide:
        yield "expanded", layer
    yield "pushed", (layer, TileKind.DRAM)


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


class _SharingSearch:
    """The best so far: `best`, its schedule `result` if that is at hand, and its layers, the `worst` first; those that
    could be made as if they were `alone`; whether it has `spilled`. `left`: schedules that may still be made; `owners`:
    see `_waits`; `work`: operations that they may have together (None: any number), but `LEAST` are compared in any
    case; `hopeless`: see `HOPELESS`; while it is less than that, two schedules that are not played count as one."""

    def __init__(
        self, graph: Graph, chip: ChipConfig, progress: Progress | None, memory: SearchCache | None, most: int,
        owners: Mapping[str, str], work: int | None = None,
    ) -> None:  # fmt: skip
        self.graph, self.chip, self.progress, self.memory = graph, chip, progress, memory
        self.left, self.most = most, most
        self.hopeless = HOPELESS
        self._refused = 0
        self._owners, self._work = owners, work
        self.best = SharingOptions()
        self.result: NetworkSchedule | None = None
        self.worst: tuple[str, ...] = ()
        self.alone: tuple[str, ...] = ()
        self.spilled = False
        self._best: _Played | None = None
        self._tried: set[SharingOptions] = set()
        self._form = form(graph)
        self._reuse = Reuse()

    def try_(self, sharing: SharingOptions) -> None:
        """Compares a schedule with the best, if any may still be compared. Raises DoesNotFit if there is none yet
        and this one has no room."""
        if not self.left or sharing in self._tried:
            return
        first = self._best is None
        self._tried.add(sharing)
        self.left -= 1
        if self.progress and not first:
            self.progress(ANOTHER, self.most - self.left - 1, self.most)
        key = "refined", self._form, *_decisive(sharing)
        played = self.memory.get(key, _PLAYED) if self.memory else None
        result: NetworkSchedule | None = None
        if played is None or not self._enough(played):
            try:
                progress = self.progress if first else None
                result = schedule(self.graph, self.chip, progress, self.memory, sharing, self._reuse)
            except DoesNotFit:
                if first:
                    raise
                played = _Played(FOREVER)
            else:
                played, result = self._play(result)
            if self.memory:
                self.memory.put(key, _PLAYED, played)
        if played.cycles is not None and self._better(played.cycles):
            self.best, self.result, self._best = sharing, result, played
            self.worst, self.alone, self.spilled = played.worst or (), played.alone, played.spilled
        if played.cycles is None and self.hopeless < HOPELESS:  # made and not played: half the work
            self._refused ^= 1
            self.left += self._refused
        if first and self._work is not None:
            compared = max(LEAST, self._work // played.operations)
            self.left, self.most = min(self.left, compared - 1), min(self.most, compared)

    def go_through(self, toggles: Callable[[str], Iterable[_Toggle]]) -> None:
        """Tries to do something otherwise in one layer after the other, always in the worst of those that are left."""
        done: set[str] = set()
        while self.left and (layer := next((layer for layer in self.worst if layer not in done), None)):
            done.add(layer)
            for field, entry in toggles(layer):
                some: frozenset[object] = getattr(self.best, field)
                changes: dict[str, Any] = {field: some ^ {entry}}
                self.try_(replace(self.best, **changes))

    def jump(self, toggles: Sequence[_Toggle]) -> None:
        """Tries to do several things at once otherwise, drawn at random, while schedules may be made: where no single
        change helps, two or three may."""
        random = Random(0)
        for _ in range(_DRAWS * self.left):
            if not self.left:
                return
            sharing = self.best
            for field, entry in random.sample(toggles, min(len(toggles), random.randint(*_AT_ONCE))):
                some: frozenset[object] = getattr(sharing, field)
                changes: dict[str, Any] = {field: some ^ {entry}}
                sharing = replace(sharing, **changes)
            self.try_(sharing)

    def _better(self, cycles: int) -> bool:
        return self._best is None or cycles < (self._best.cycles or 0)

    def _enough(self, played: _Played) -> bool:
        """Whether what is known of a schedule will do, now that it is compared with the best."""
        if played.cycles is None:
            return self._hopeless(played.estimate)
        return played.worst is not None or not self._better(played.cycles)

    def _hopeless(self, estimate: int) -> bool:
        return self._best is not None and estimate > self.hopeless * self._best.estimate

    def _play(self, result: NetworkSchedule) -> tuple[_Played, NetworkSchedule]:
        """What a schedule takes, and the schedule with its program; not played if it cannot be the best, or is the best
        one once more."""
        operations = result.schedule.operations
        if self._hopeless(result.estimate):
            return _Played(result.estimate, len(operations)), result
        if self._best and self.result and operations == self.result.schedule.operations:
            return self._best, result
        done = lowered(result.schedule, self.chip, self._reuse.needs(operations))
        cycles, worst = done.timeline.cycles, None
        if self._better(cycles):  # only the best is asked what to change
            predicted = prediction(result.schedule, done.program, done.timeline)
            worst = _waits(result, predicted, self.chip, self._owners)
        spilled = not set(result.spilled).issubset(self.graph.outputs)  # these go to DRAM in any case
        played = _Played(result.estimate, len(operations), cycles, worst, result.alone, spilled)
        return played, replace(result, lowered=done)
