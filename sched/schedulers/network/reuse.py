"""What whole schedules of one network share while several are compared.

Most of them differ in one layer, or in who sends what. The operations of a layer depend on its loop nest, on where its
tensors lie and on which words of DRAM are free; where those are as they were, the same operations are taken again. So
are the dependences of a list that has the same words in the same order, whoever sends them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields, replace
from itertools import chain
from operator import attrgetter
from typing import TypeVar

from meshloom.hw.spec.config import ChipConfig

from ...ir.dependences import Words, words_of
from ...ir.hazards import Dependence, reordered
from ...ir.schedule import Operation
from ...mapping.emit.expansion import Expansion
from ...mapping.memory.placement import Dram
from ...mapping.nodes import Node
from ...mapping.play.interleave import Interleaver
from ...mapping.tiling.tiles import Candidate
from ...workload.stages import Stage
from .conv import ConvNodes, ConvTask
from .shift import Shifter
from .vector import VectorNodes, VectorTask

K = TypeVar("K")
V = TypeVar("V")
#: Emissions of a layer that are remembered, and lists of a whole network whose dependences are.
_EMISSIONS, _LISTS = 8, 3

Emission = ConvNodes | VectorNodes
#: All of a node but what it waits for.
_DECISIVE = attrgetter(*(field.name for field in fields(Node) if field.name != "after"))


class Laid:
    """A layer's operations where they lie in the memories of the cores. `origin`: the same for all that differ only in
    who issues what; `emitted`: what they were made of."""

    __slots__ = ("_origin", "_words", "emitted", "nodes", "operations")

    def __init__(self, nodes: list[Node], emitted: list[Node], origin: Laid | None = None) -> None:
        self.nodes, self.emitted, self._origin = nodes, emitted, origin
        self.operations = [node.operation() for node in nodes]
        self._words: list[Words] | None = None

    @property
    def origin(self) -> Laid:
        # not kept as a reference to itself: who holds no cycle is freed without a search for it
        return self._origin or self

    def words(self, chip: ChipConfig) -> list[Words]:
        """What each operation reads and writes, whoever issues it."""
        origin = self.origin
        if origin._words is None:
            origin._words = [words_of(operation, chip) for operation in origin.operations]
        return origin._words


class Reuse:
    """The layers' operations by what decides them. `emitted`: how many have been made; `listed`: operations whose
    dependences have been derived; `order`: of the latest list that was given an interleaver."""

    def __init__(self) -> None:
        self.choices: dict[tuple[object, ...], list[Candidate]] = {}
        self.emitted = self.listed = 0
        self._emissions: dict[str, dict[Hashable, tuple[Emission, tuple[int, ...]]]] = {}
        self._laid: dict[str, dict[Hashable, Laid]] = {}
        self._lists: dict[tuple[Laid, ...], Interleaver] = {}
        self.order: Sequence[int] | None = ()
        self._latest: Interleaver | None = None
        self._held: tuple[Laid, ...] | None = None

    def hold(self) -> None:
        """The latest list will be needed again: it is the last one to be forgotten."""
        self._held = next((exact for exact, other in self._lists.items() if other is self._latest), None)

    def conv(self, stage: Stage, task: ConvTask, dram: Dram, key: Hashable, emit: Callable[[], ConvNodes]) -> ConvNodes:
        """The operations of a convolution. `key`: what decides them besides the task and the words of `dram` that are
        free; `emit` makes them anew. Raises what that raises."""
        before = task.before.x if task.before else None
        window = before.x if isinstance(before, Expansion) else before
        tensors = tuple([stored.key if stored else None for stored in (task.x, task.y, task.r, window)])
        decisive = key, _names(stage), tensors, task.packed, task.whole, task.int4, task.deep, task.staging
        emission = self._emission(stage, decisive, dram, emit)
        assert isinstance(emission, ConvNodes)
        return emission

    def vector(self, stage: Stage, task: VectorTask, dram: Dram, emit: Callable[[], VectorNodes]) -> VectorNodes:
        """The same of a layer of the vector unit."""
        tensors = task.x.key, task.y.key, task.r and task.r.key
        emission = self._emission(stage, (_names(stage), tensors, task.rows_first), dram, emit)
        assert isinstance(emission, VectorNodes)
        return emission

    def _emission(self, stage: Stage, key: Hashable, dram: Dram, emit: Callable[[], Emission]) -> Emission:
        decisive = key, dram.mark()
        held = self._emissions.setdefault(stage.layer.output, {})
        if (latest := _take(held, decisive)) is not None:
            emission, mark = latest
            dram.reset(mark)
            return emission
        emission, mark = emit(), dram.mark()
        self.emitted += len(emission.nodes)
        # many a switch changes nothing in a layer
        emission = next((old for old, then in held.values() if then == mark and _same(emission, old)), emission)
        _put(held, decisive, (emission, mark), _EMISSIONS)
        return emission

    def lay(
        self, stage: Stage, nodes: list[Node], shifter: Shifter, label: Callable[[Node], str], pushed: frozenset[int]
    ) -> Laid:
        """Operations of a layer where `shifter` puts them, sent by their source on its own if that is one of the tiles
        `pushed`. `label`: what each is called."""
        held = self._laid.setdefault(stage.layer.output, {})
        by = shifter.ends(nodes)
        place = id(nodes), tuple(sorted(by.items()))
        first = _take(held, place)
        if first is None or first.emitted is not nodes:  # what was dropped may have had the same id
            first = Laid([shifter.moved(node, by, label(node)) for node in nodes], nodes)
            _put(held, place, first, 2 * _EMISSIONS)
        if not pushed:
            return first
        sent = _take(held, (place, pushed))
        if sent is None or sent.origin is not first:
            sent = Laid([_sent(node, pushed) for node in first.nodes], nodes, first)
            _put(held, (place, pushed), sent, 2 * _EMISSIONS)
        return sent

    def interleaver(self, laid: Sequence[Laid], chip: ChipConfig) -> Interleaver:
        """The operations of all layers in order, ready to be played."""
        exact, origins = tuple(laid), [one.origin for one in laid]
        if (listed := _take(self._lists, exact)) is not None:
            self._latest = listed
            return listed
        nodes = [node for one in laid for node in one.nodes]
        operations = [operation for one in laid for operation in one.operations]
        lists = self._lists.items()
        if self._held is not None:
            _take(self._lists, self._held)
        like = next((other for some, other in lists if [one.origin for one in some] == origins), None)
        self.listed += 0 if like else len(nodes)
        words = chain.from_iterable(one.words(chip) for one in laid)
        interleaver = Interleaver(nodes, chip, operations=operations, like=like, words=words)
        _put(self._lists, exact, interleaver, _LISTS)
        self._latest = interleaver
        return interleaver

    def needs(self, operations: Sequence[Operation]) -> list[tuple[Dependence, ...]] | None:
        """The dependences of the latest list in its `order`, where it has these operations; None if it has others."""
        if self.order is None:
            return None
        assert self._latest is not None
        depends = self._latest.waits.depends
        return reordered(operations, depends.data, depends.writers, depends.readers, self.order)


def _names(stage: Stage) -> tuple[str, ...]:
    """The layers of a stage, by name."""
    layers = stage.layer, stage.epilogue, stage.before, stage.expand
    return tuple([layer.output if layer else "" for layer in layers])


def _sent(node: Node, pushed: frozenset[int]) -> Node:
    """An operation that its source issues if that is one of some tiles."""
    return replace(node, issuer=node.source.tile) if node.fields is None and node.source.tile in pushed else node


def _same(emission: Emission, before: Emission) -> bool:
    """Whether two emissions of a layer are the same operations, in the same order, with the same constants. What a node
    waits for is left out: `Laid` derives that from words."""
    if type(emission) is not type(before) or len(emission.nodes) != len(before.nodes):
        return False
    constants = replace(emission, nodes=[]) == replace(before, nodes=[])
    return constants and all(map(_alike, emission.nodes, before.nodes))


def _alike(node: Node, before: Node) -> bool:
    return _DECISIVE(node) == _DECISIVE(before)


def _take(held: dict[K, V], key: K) -> V | None:
    """What is remembered, which is then the latest; None if nothing is."""
    value = held.pop(key, None)
    if value is not None:
        held[key] = value
    return value


def _put(held: dict[K, V], key: K, value: V, most: int) -> None:
    """Remembers a value, and forgets that of more than `most` which has not been needed for longest."""
    held[key] = value
    if len(held) > most:
        del held[next(iter(held))]
