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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from meshloom.hw.spec.config import ChipConfig, TileKind

from ...mapping.tiling.problem import DoesNotFit
from ...program.program import ProgramError
from ...store.findings import SearchCache
from ...support.garbage import uncollected
from ...workload.graph import Graph
from ...workload.stages import cut
from .conv import Planner
from .scheduler import NetworkSchedule, Progress, schedule
from .sharing import HORIZONS, SWITCHES, SharingOptions, streams
from .sharing_search import HOPELESS, SharingSearch, Toggle
from .storage import SMALL_SHARE, Between

#: Schedules that are compared, if not said otherwise, of networks in which depthwise convolutions can be fused, and of
#: others: of these so many only while they have no more operations together than `WORK`, but `LEAST` in any case.
USUAL, FEW, WORK = 34, 8, 16_000
#: So many for a quick answer about the former, and so many times as many as usual for a thorough search.
QUICK, THOROUGH_FACTOR = 7, 8
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
    search = SharingSearch(graph, chip, progress, memory, most, owners, work)
    _descend(search, sharing, fusible, wide, planner)
    return search.result or schedule(graph, chip, progress, memory, search.best)


def _descend(
    search: SharingSearch,
    sharing: SharingOptions,
    fusible: Sequence[str],
    wide: Mapping[str, str],
    planner: Planner | None,
) -> None:
    """First what concerns all layers, then one after the other, then several at once. `fusible`: see `pairs`; `wide`:
    see `expansions`."""
    graph, chip = search.graph, search.chip
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


@uncollected()
def _quick(
    graph: Graph, chip: ChipConfig, progress: Progress | None, memory: SearchCache | None, sharing: SharingOptions
) -> NetworkSchedule:
    """One schedule; where weights are only streamed the better of two, with all of B for them or not; where depthwise
    convolutions can be fused the best of a few: who sends, all fused or none, room for tensors where some have none,
    and the pairs before which arrays wait longest."""
    start = replace(sharing, whole=True, pushed=_sent(graph, _SENDERS))
    fusible = pairs(graph, chip, sharing)
    if not fusible and not _streaming(graph, chip):
        return schedule(graph, chip, progress, memory, start)
    wide = expansions(graph, chip, fusible)
    most, owners = QUICK if fusible else 2, {first: name for name, first in wide.items()}
    search = SharingSearch(graph, chip, progress, memory, most, owners)
    if fusible:
        _descend_quickly(search, start, fusible, wide)
    else:
        search.try_(start)
        search.try_(replace(start, deep=True))
    return search.result or schedule(graph, chip, progress, memory, search.best)


def _descend_quickly(
    search: SharingSearch, start: SharingOptions, fusible: Sequence[str], wide: Mapping[str, str]
) -> None:
    """As `_descend`, of a few schedules."""
    search.hopeless = 1.0
    search.try_(replace(start, pushed=frozenset()))
    search.try_(replace(search.best, apart=frozenset(fusible)))
    residuals = frozenset(name for name, first in wide.items() if first not in fusible)
    if residuals:
        search.try_(replace(search.best, apart=frozenset(), expanded=residuals))
    if search.spilled:  # maps that are large: what there is room for decides
        search.try_(replace(search.best, staging=SMALL_SHARE))
        if start.between is Between.WHOLE:
            search.try_(replace(search.best, between=Between.PLANES))
    search.hopeless = HOPELESS  # list scheduling does not foresee what sending brings
    for senders in (_SENDERS[:1], _SENDERS):
        search.try_(replace(search.best, pushed=_sent(search.graph, senders)))
    search.hopeless = 1.0
    search.go_through(lambda layer: _fusing(layer, layer in fusible, layer in residuals))


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


def _fusing(layer: str, fusible: bool, wide: bool) -> Iterator[Toggle]:
    """What may or may not be computed together with a layer."""
    if wide:
        yield "expanded", layer
    if fusible:
        yield "apart", layer


def _toggles(layer: str, fusible: bool, wide: bool) -> Iterator[Toggle]:
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
