"""Which of a network's choices suit each other: the timeline model decides, by whole schedules.

Each layer's loop nests are chosen by an estimate of the layer alone, and the list of all operations by an estimate of
the whole; both leave out much of what one layer does to the next. The timeline model leaves out nothing, so what it
says about a whole schedule is what the chip does. A descent changes one choice at a time and keeps what is faster.
First what concerns all layers: a picture packed by whole windows, memories that send operands on their own instead of
being asked for them, to all cores in turn or to one after the other, a smaller staging area, tensors of which only a
part lies in the scratchpad, depthwise convolutions fused with the 1x1 ones behind them, all or none, and with the
convolutions before them, too, and how far ahead operands are fetched. Then what is fused in all layers of one size,
which gain or lose by the same. Then the layers one by one, beginning with those before whose GEMMs the arrays wait
longest: fused or not, sent or asked for, the order of tiles, other loop nests. When no change helps any more, several
at once are drawn at random, as long as schedules may be made. Where routers copy packets, one MOVE may bring what
several cores need: in all layers, then in single ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from enum import StrEnum
from typing import Any

from meshloom.hw.spec.config import ChipConfig, TileKind

from ...mapping.tiling.problem import DoesNotFit
from ...program.program import ProgramError
from ...store.findings import SearchCache
from ...support.garbage import uncollected
from ...workload.graph import Graph
from .conv import Planner
from .fusing import Fusible, FusionDepth, fusible
from .lookahead import lookahead
from .scheduler import NetworkSchedule, Progress, schedule
from .sharing import HORIZONS, SWITCHES, Change, SharingOptions, streams
from .sharing_search import HOPELESS, HOPELESS_LARGE, ComparisonBudget, SharingSearch
from .storage import SMALL_SHARE, Between

#: Schedules that are compared, if not said otherwise, of networks in which depthwise convolutions can be fused, and of
#: others.
PAIRED, PLAIN = ComparisonBudget(28, 200_000, least=16), ComparisonBudget(8, 16_000, least=4)
#: So many for a quick answer about the former, and so many times as many as usual for a thorough search.
QUICK, THOROUGH_FACTOR = 7, 8
#: Layers that are tried by themselves where routers copy packets, and schedules that are compared if that has helped.
COPIED, AFTER_COPIES = 3, 4
#: Memories that can send on their own.
_SENDERS = (TileKind.SPM, TileKind.DRAM)


@uncollected()
def refined(
    graph: Graph,
    chip: ChipConfig,
    progress: Progress | None = None,
    memory: SearchCache | None = None,
    sharing: SharingOptions | None = None,
    most: int | None = None,
    planner: Planner | None = None,
) -> NetworkSchedule:
    """The fastest schedule of a network among `most` that share what `sharing` says. None: as `PAIRED` says for
    networks with something to fuse, as `PLAIN` does for others. `planner`: who may make single convolutions instead of
    the loop nests.

    What each one takes is kept in `memory`, so that an interrupted search goes on and a second one is done at once.
    Raises as `scheduler.schedule` does.
    """
    sharing = sharing or SharingOptions()
    some = fusible(graph, chip, sharing)
    budget = ComparisonBudget(most) if most is not None else PAIRED if some.pairs else PLAIN
    if budget.most < 2:
        return schedule(graph, chip, progress, memory, sharing)
    search = SharingSearch(graph, chip, progress, memory, budget, some.owners)

    def descent(search: SharingSearch) -> None:
        _descend(search, sharing, some, planner)

    # what planners search for takes long, and each process would do so for itself
    with lookahead(search, descent) if planner is None and sharing.planner is None else nullcontext():
        descent(search)
    return search.result or schedule(graph, chip, progress, memory, search.best)


def _descend(search: SharingSearch, sharing: SharingOptions, some: Fusible, planner: Planner | None) -> None:
    """First what concerns all layers, then those with results of one size, then one after the other, then several at
    once. `some`: what can be fused."""
    if some.pairs:
        _fuse(search, sharing, some)
    else:
        _share(search, sharing, some)
    if planner is not None:
        search.best = replace(search.best, planner=planner, planned=frozenset())
        search.go_through(lambda layers: [_toggle("planned", name) for name in layers.intersection(search.alone)])
    if not some.pairs:
        _fuse_each(search, some, some.by_size(search.graph))
    _fuse_each(search, some)
    best: SharingOptions | None = None
    while search.best != best:  # once more while that finds something
        best = search.best
        search.go_through(lambda layers: _changes(layers, search, some))
    singles = [frozenset((layer.output,)) for layer in search.graph.layers]
    search.jump([change for single in singles for change in _changes(single, search, some)])
    _copy(search, COPIED)
    if search.best.copied:  # what suits it may be something else
        search.left = 0
        search.allow(AFTER_COPIES)
        search.go_through(lambda layers: _changes(layers, search, some))


def _fuse(search: SharingSearch, sharing: SharingOptions, some: Fusible) -> None:
    """What concerns many layers of a network in which depthwise convolutions can be fused. In a large one what is fused
    comes first: it matters most, and plays faster. In a small one the best of it depends on who sends."""
    graph = search.graph
    _begin(search, sharing)
    large = search.is_large  # before anything is fused
    if large:
        search.hopeless = HOPELESS_LARGE
        _fuse_all(search, sharing, some)
        _fuse_each(search, some, some.by_size(graph, 1))
    for senders in (_SENDERS[:1], _SENDERS, _SENDERS[1:]):
        # who is served in turn is tried layer by layer, if at all: there is more to choose from
        search.try_(replace(search.best, pushed=_sent(graph, senders)))
    if _streaming(graph, search.chip):
        search.try_(replace(search.best, deep=True))
    search.try_(replace(search.best, staging=SMALL_SHARE))
    if not large:
        _fuse_all(search, sharing, some)
    for horizon in HORIZONS:
        search.try_(replace(search.best, horizon=horizon))
    search.try_(replace(search.best, whole=False))
    if not large:
        _fuse_each(search, some, some.by_size(graph))


def _begin(search: SharingSearch, sharing: SharingOptions) -> None:
    """The first schedule: with whole windows if these, which are more words, have room."""
    try:
        search.try_(replace(sharing, whole=True))
    except (DoesNotFit, ProgramError):
        search.left = max(search.left, 1)  # a first one there must be
        search.try_(replace(sharing, whole=False))


def _fuse_all(search: SharingSearch, sharing: SharingOptions, some: Fusible) -> None:
    """All that can be fused or none of it, and room for it where maps are large."""
    search.try_all(some.changes(some.pairs, (FusionDepth.APART,), search.roomless))
    search.try_all(some.changes(some.residuals, (FusionDepth.EXPANDED,), search.roomless))
    if search.spilled:
        search.try_(replace(search.best, staging=SMALL_SHARE))
        if sharing.between is Between.WHOLE:
            search.try_(replace(search.best, between=Between.PLANES))


def _fuse_each(search: SharingSearch, some: Fusible, groups: Mapping[str, frozenset[str]] | None = None) -> None:
    """How much goes with each convolution, or with those of a group at once."""
    search.go_through(lambda layers: some.changes(layers, FusionDepth, search.roomless), groups)


def _share(search: SharingSearch, sharing: SharingOptions, some: Fusible) -> None:
    """What concerns many layers of any other network."""
    _send(search, sharing)
    if _streaming(search.graph, search.chip):
        search.try_(replace(search.best, deep=True))
    search.try_(replace(search.best, staging=SMALL_SHARE))
    if sharing.between is Between.WHOLE and search.spilled:
        search.try_(replace(search.best, between=Between.PLANES))
    search.try_all(some.changes(some.residuals, (FusionDepth.EXPANDED,), search.roomless))
    for horizon in HORIZONS:
        search.try_(replace(search.best, horizon=horizon))


def _copy(search: SharingSearch, single: int) -> None:
    """What several cores need is brought by one MOVE where routers copy packets: in all layers; then in each of the
    `single` worst otherwise. These schedules are compared after all others, so that none is lost for them."""
    if not search.chip.noc.multicast:
        return
    search.left = 0
    search.allow(1)
    search.try_(replace(search.best, copied=frozenset(layer.output for layer in search.graph.layers)))
    for layer in search.worst[:single]:
        search.allow(1)
        search.try_(_toggle("copied", layer)(search.best))


def _sent(graph: Graph, senders: Iterable[TileKind]) -> frozenset[tuple[str, TileKind]]:
    """All layers, with the memories that send them what they need on their own."""
    return frozenset((layer.output, kind) for layer in graph.layers for kind in senders)


def _send(search: SharingSearch, sharing: SharingOptions) -> None:
    """Tries who sends operands, and to which core first, in the order in which that has proved to pay: everybody, with
    pictures packed by whole windows; the banks alone, or everybody, without; the best of these to all cores in turn.
    What follows helps small networks, which have little else to gain."""
    graph = search.graph
    in_turn = frozenset((layer.output, "fair") for layer in graph.layers if layer.kind == "conv")
    try:
        search.try_(replace(sharing, whole=True, pushed=_sent(graph, _SENDERS)))
    except (DoesNotFit, ProgramError):
        search.try_(sharing)  # whole windows are more words, and who sends has code of its own
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
    DEFAULT = "default"  #: as many as `PAIRED` or `PLAIN` says
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
        most = THOROUGH_FACTOR * (PAIRED if fusible(graph, chip, sharing).pairs else PLAIN).most
    return refined(graph, chip, progress, memory, sharing, most)


@uncollected()
def _quick(
    graph: Graph, chip: ChipConfig, progress: Progress | None, memory: SearchCache | None, sharing: SharingOptions
) -> NetworkSchedule:
    """One schedule; where weights are only streamed the better of two, with all of B for them or not; where depthwise
    convolutions can be fused the best of a few: who sends, all fused or none, room for tensors where some have none,
    and the pairs of one size, those first before which arrays wait longest. Where routers copy packets, one more."""
    start = replace(sharing, whole=True, pushed=_sent(graph, _SENDERS))
    some = fusible(graph, chip, sharing)
    if not some.pairs and not chip.noc.multicast and not _streaming(graph, chip):
        try:
            return schedule(graph, chip, progress, memory, start)
        except DoesNotFit:  # whole windows are more words
            return schedule(graph, chip, progress, memory, replace(start, whole=False))
    most = QUICK if some.pairs else 1 + _streaming(graph, chip)
    search = SharingSearch(graph, chip, progress, memory, ComparisonBudget(most), some.owners)
    if some.pairs:
        _descend_quickly(search, start, some)
    else:
        _begin(search, start)
        if _streaming(graph, chip):
            search.try_(replace(search.best, deep=True))
    _copy(search, 0)
    return search.result or schedule(graph, chip, progress, memory, search.best)


def _descend_quickly(search: SharingSearch, start: SharingOptions, some: Fusible) -> None:
    """As `_descend`, of a few schedules."""
    search.hopeless = 1.0
    _begin(search, replace(start, pushed=frozenset()))
    search.try_all(some.changes(some.pairs, (FusionDepth.APART,), search.roomless))
    search.try_all(some.changes(some.residuals, (FusionDepth.EXPANDED,), search.roomless))
    if search.spilled:  # maps that are large: what there is room for decides
        search.try_(replace(search.best, staging=SMALL_SHARE))
        if start.between is Between.WHOLE:
            search.try_(replace(search.best, between=Between.PLANES))
    search.hopeless = HOPELESS  # list scheduling does not foresee what sending brings
    for senders in (_SENDERS[:1], _SENDERS):
        search.try_(replace(search.best, pushed=_sent(search.graph, senders)))
    search.hopeless = 1.0
    _fuse_each(search, some, some.by_size(search.graph))
    _fuse_each(search, some)


def _streaming(graph: Graph, chip: ChipConfig) -> bool:
    """Whether most weights of a network belong to layers that only stream them."""
    weights = {layer.output: layer.w.size for layer in graph.layers if layer.kind == "conv" and layer.w is not None}
    streamed = (name for name in weights if streams(graph.value(name).height * graph.value(name).width, chip))
    return 2 * sum(weights[name] for name in streamed) > sum(weights.values())


def _changes(layers: frozenset[str], search: SharingSearch, some: Fusible) -> Iterator[Change]:
    """What may be otherwise in each of some layers."""
    yield from some.changes(layers, (FusionDepth.APART, FusionDepth.PAIR), search.roomless)
    for layer in sorted(layers):
        yield _toggle("pushed", (layer, TileKind.SPM))
        for switch in SWITCHES:
            yield _toggle("turned", (layer, switch))
        yield _toggle("second", layer)
        yield _toggle("third", layer)
    yield from some.changes(layers, (FusionDepth.EXPANDED,), search.roomless)
    for layer in sorted(layers):
        yield _toggle("pushed", (layer, TileKind.DRAM))
        if search.best.copied:
            yield _toggle("copied", layer)


def _toggle(field: str, entry: object) -> Change:
    """That a field, a set, gains an entry or loses it."""

    def change(sharing: SharingOptions) -> SharingOptions:
        some: frozenset[object] = getattr(sharing, field)
        changes: dict[str, Any] = {field: some ^ {entry}}
        return replace(sharing, **changes)

    return change
