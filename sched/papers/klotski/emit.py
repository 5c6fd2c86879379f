"""From micro-ops with a core and a start each to the program of a network.

A micro-op waits for nothing but its operands: results are pushed from the core that makes them into the memories of
those that read them, as soon as they are there. Where a memory is full the push waits until the last reader of those
words is done (a write after a read), and what can't wait goes to DRAM and is pulled when it is needed (*spilled*).
Weights are pulled ahead of their use, and stay for as long as nothing needs their place sooner.

All places are settled along one order of the micro-ops, in which everything waits for earlier things only; so nothing
can deadlock. The order in which units and movers then take their work up is that of a list schedule of all operations
(`mapping.play.interleave`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Region as Place
from meshloom.hw.spec.isa import Unit, VectorOp, address

from ...mapping.memory.placement import Stored
from ...mapping.nodes import Node, Run
from ...mapping.tiling.arena import NEVER
from ...mapping.tiling.problem import DoesNotFit
from .homes import Homes
from .muops import MuGraph, MuOp, Orchestration, Region
from .residency import HeldWords, Memory
from .rounds import Barriers
from .units import Units, extent, named
from .views import View, copies


@dataclass(eq=False)
class LocalOperand:
    """An operand in the memory of a core, for all micro-ops there that read the same of it.

    `name`: the tensor whose planes `part` counts; `fed`: the micro-ops that make it and what of it each makes, none if
    it comes from DRAM anyway; `uses`: positions of its readers; `direct`: it lies where that micro-op leaves its
    result; `pushes`: what has been sent to it so far.
    """

    core: int
    place: Place
    name: str
    part: Region
    step: int = 1
    unit: int = 1
    fed: dict[int, Region] = field(default_factory=dict[int, Region])
    uses: list[int] = field(default_factory=list[int])
    direct: int = -1
    residency: HeldWords | None = None
    spilled: bool = False
    pushes: list[Node] = field(default_factory=list[Node])

    @property
    def words(self) -> int:
        """Words of P bytes that it takes."""
        return View(self.core, 0, self.part, self.step, self.unit).words

    @property
    def resident(self) -> bool:
        """Whether it has its place now."""
        return self.residency is not None and not self.residency.gone

    @property
    def view(self) -> View:
        """Where it lies."""
        assert self.residency is not None
        return View(self.core, address(self.place, self.unit * self.residency.at), self.part, self.step, self.unit)


@dataclass(frozen=True)
class _Emitted:
    """What a micro-op has made, and by which operations: (first and end of planes, operation)."""

    view: View
    pieces: list[tuple[int, int, Node]]


class Emitter:
    """Settles the places of everything along the order of starts, and makes the operations of each micro-op."""

    def __init__(
        self, graph: MuGraph, plan: Orchestration, chip: ChipConfig, homes: Homes, rounds: Sequence[int] | None = None
    ) -> None:
        self.graph, self.chip, self.homes = graph, chip, homes
        self.works = homes.works
        self.order = order_of(graph, plan, rounds)
        self.position = {number: position for position, number in enumerate(self.order)}
        self.core = [chip.cores[core] for core in plan.cores]
        self.units = Units(graph, homes, chip)
        self.barriers = Barriers(graph.ops, rounds, self.order, self.core, chip) if rounds else None
        sizes, reserved = chip.core, self.barriers.room if self.barriers else {}
        self.memories = {
            (core, place): Memory(words - reserved.get(place, 0))
            for core in chip.cores
            for place, words in (
                (Place.MAIN, sizes.a_words), (Place.B, sizes.b_words), (Place.ACC, sizes.acc_words),
                (Place.OUT, sizes.out_words), (Place.VEC, sizes.vec_words),
            )
        }  # fmt: skip
        self.groups: list[list[Node]] = [[] for _ in self.order]
        self.dropped: set[int] = set()
        self.emitted: dict[int, _Emitted] = {}
        self.stored: set[int] = set()
        self.constants: dict[tuple[object, ...], HeldWords] = {}
        self.constant_uses: dict[tuple[object, ...], list[int]] = {}
        self.owners: dict[int, LocalOperand] = {}  # by identity of their residencies
        self.spilled_words = 0
        self.tiles: list[list[LocalOperand]] = []  # operands of each micro-op
        self.sums: dict[int, LocalOperand] = {}  # the sums that a micro-op goes on with
        self.readers: dict[int, list[LocalOperand]] = {}  # the tiles that each one feeds
        self._find_tiles()

    def emit(self) -> list[Node]:
        """All operations, in an order in which each waits for earlier ones only. Raises DoesNotFit."""
        for position, number in enumerate(self.order):
            op = self.graph.ops[number]
            self._begin(op, position)
            self._compute(op, position)
            if op.last and self.homes.is_output(op):
                self._store(number)
            for tile in sorted(self.readers.get(number, ()), key=lambda tile: tile.uses[0]):
                self._push(tile, number, position)
            self._end(op, position)
        return [node for group in self.groups for node in group if id(node) not in self.dropped]

    def _begin(self, op: MuOp, position: int) -> None:
        """What a barrier puts before a micro-op."""
        if self.barriers is not None:
            matrix = next((stage for stage, work in enumerate(self.works) if work.op is None), None)
            weights = None if matrix is None else self.homes.constants(matrix, self.core[op.number], 0)[0]
            self.groups[position] += self.barriers.gate(op.number, weights, self.units.label(op, "round"))

    def _end(self, op: MuOp, position: int) -> None:
        """What a barrier puts behind a micro-op."""
        if self.barriers is not None:
            result, label = self.emitted[op.number], self.units.label(op, "round")
            self.groups[position] += self.barriers.arrive(op.number, _last(result), result.pieces[-1][2], label)
            self.groups[position] += self.barriers.open(position, label)

    # -- operands -------------------------------------------------------------------------------------------------

    def _find_tiles(self) -> None:
        """The operands of all micro-ops; those of one core that are the same are one."""
        self.tiles = [[] for _ in self.graph.ops]
        tiles_of: dict[tuple[object, ...], LocalOperand] = {}
        for position, number in enumerate(self.order):
            op, work = self.graph.ops[number], self.works[self.graph.ops[number].stage]
            for operand, (name, part) in enumerate(op.reads):
                root, first = self.homes.root(name)
                part = Region((part.planes[0] + first, part.planes[1] + first), part.rows, part.columns)
                step = work.problem.row_step if not operand else 1
                place = Place.OUT if operand and work.op is VectorOp.ADD else Place.MAIN
                key = self.core[number], place, root, part, step
                tile = tiles_of.setdefault(key, LocalOperand(self.core[number], place, root, part, step))
                tile.uses.append(position)
                self.tiles[number].append(tile)
                self._feed(tile, number)
            for constant in self._constants(op):
                self.constant_uses.setdefault((self.core[number], *constant), []).append(position)
            if op.sums is not None:
                tile = LocalOperand(self.core[number], Place.ACC, f"sums {number}", op.result, unit=4)
                tile.fed, tile.uses = {op.sums: op.result}, [position]
                self.sums[number] = tile
                self.readers.setdefault(op.sums, []).append(tile)
        self._share_results()

    def _feed(self, tile: LocalOperand, number: int) -> None:
        """Who makes what a micro-op reads of a tile."""
        for edge in self.graph.before[number]:
            root, first = self.homes.root(edge.tensor)
            if edge.sums or root != tile.name or edge.producer in tile.fed:
                continue
            low, high = edge.region.planes
            region = Region((low + first, high + first), edge.region.rows, edge.region.columns)
            if (part := region.meet(tile.part)) is not None:
                tile.fed[edge.producer] = part
                self.readers.setdefault(edge.producer, []).append(tile)

    def _share_results(self) -> None:
        """Operands in OUT that are just the result of one GEMM of the same core stay where it leaves them."""
        for tiles in self.readers.values():
            for tile in tiles:
                if tile.place is not Place.OUT or len(tile.fed) != 1:
                    continue
                ((producer, part),) = tile.fed.items()
                op = self.graph.ops[producer]
                first = self.homes.root(self.homes.result(op))[1]
                whole = Region((op.result.planes[0] + first, op.result.planes[1] + first), *extent(op.result))
                if op.unit is Unit.MATRIX and self.core[producer] == tile.core and whole == part == tile.part:
                    tile.direct = producer

    def _take(
        self, core: int, place: Place, words: int, uses: Sequence[int], position: int, least: int = NEVER
    ) -> HeldWords | None:
        """Room in a memory; whoever loses theirs has to come again."""
        room = self.memories[core, place].take(words, uses, position, least)
        if room is None:
            return None
        residency, victims = room
        for victim in victims:
            tile = self.owners.pop(id(victim), None)
            if tile is not None:
                tile.spilled = True
                if tile.uses[0] > position:  # nobody has read it: it need not have been sent
                    self.dropped.update(id(node) for node in tile.pushes)
                tile.pushes = []
        return residency

    def _must_take(
        self, core: int, place: Place, words: int, uses: Sequence[int], position: int, what: str
    ) -> HeldWords:
        residency = self._take(core, place, words, uses, position)
        if residency is None:
            op = self.graph.ops[self.order[position]]
            memory = "A" if place is Place.MAIN else place.name
            raise DoesNotFit(
                f"layer {self.homes.result(op)}: {memory} of a {self.chip.name} core has no room for {what} of "
                f"{words} words beside what else the micro-op needs; cut the layer smaller"
            )
        return residency

    def _need(self, tile: LocalOperand, position: int) -> View:
        """An operand in its place: it is pulled from DRAM if it has none."""
        if not tile.resident:
            unit = tile.words // tile.unit
            tile.residency = self._must_take(tile.core, tile.place, unit, tile.uses, position, "an operand")
            self.owners[id(tile.residency)] = tile
            for producer in tile.fed:
                self._store(producer)
            stored = self.homes.stored(tile.name) if tile.unit == 1 else self.homes.sums(tile.name, tile.words)
            self._pull(stored, tile, position)
        return tile.view

    def _pull(self, stored: Stored, tile: LocalOperand, position: int) -> None:
        part, view = tile.part, tile.view
        if tile.unit > 1:
            transfers = stored.transfers((0, 1), (0, 1, 1), (0, view.words), tile.core, view.address)
        else:
            rows = (*part.rows, tile.step)
            transfers = stored.transfers(part.planes, rows, part.columns, tile.core, view.address)
        label = self.units.label(self.graph.ops[self.order[position]], f"pull {tile.name} {named(part)}")
        for t in transfers:
            self.groups[position].append(t.load(tile.core, label))

    def _push(self, tile: LocalOperand, number: int, position: int) -> None:
        """What a micro-op has just made goes to a tile that needs it, if there is room or something less urgent."""
        if tile.direct == number or tile.spilled:
            return
        result = self.emitted[number]
        if not tile.resident:
            if tile.residency is not None:
                return
            words = tile.words // tile.unit
            tile.residency = self._take(tile.core, tile.place, words, tile.uses, position, tile.uses[0])
            if tile.residency is None:
                tile.spilled = True
                return
            self.owners[id(tile.residency)] = tile
        elif tile.view.address == result.view.address and tile.core == result.view.tile:
            return  # sums that stay where they are
        common, target = tile.fed[number], tile.view
        for low, high, node in result.pieces:
            part = common.meet(Region((low, high), common.rows, common.columns))
            for source, sink, words in copies(result.view, target, part) if part else ():
                tile.pushes.append(self._move(position, node, source, sink, words))

    def _move(self, position: int, after: Node, source: Run, sink: Run, words: int) -> Node:
        node = Node(source.tile, [after], f"{after.label} to {sink.tile:#04x}", source, sink, words)
        self.groups[position].append(node)
        return node

    def _store(self, number: int) -> None:
        """The result of a micro-op goes to DRAM, too."""
        if number in self.stored:
            return
        self.stored.add(number)
        result, op, position = self.emitted[number], self.graph.ops[number], self.position[number]
        view = result.view
        if not self.homes.is_output(op):
            self.spilled_words += view.words
        if not op.last:
            stored = self.homes.sums(f"sums {self._following(number)}", view.words)
            for t in stored.transfers((0, 1), (0, 1, 1), (0, view.words), view.tile, view.address):
                self._move(position, result.pieces[-1][2], t.local, t.dram, t.words)
            return
        stored = self.homes.stored(self.homes.root(self.homes.result(op))[0])
        for low, high, node in result.pieces:
            at = view.at(low, view.part.rows[0], view.part.columns[0])
            for t in stored.transfers((low, high), (*view.part.rows, 1), view.part.columns, view.tile, at):
                self._move(position, node, t.local, t.dram, t.words)

    def _following(self, number: int) -> int:
        """The micro-op that goes on with the sums of one."""
        return next(edge.consumer for edge in self.graph.after[number] if edge.sums)

    # -- constants ------------------------------------------------------------------------------------------------

    def _constants(self, op: MuOp) -> list[tuple[object, ...]]:
        """The weights and the biases that a micro-op reads: (kind, stage, planes, of weights what is multiplied)."""
        if not self.works[op.stage].weighted:
            return []
        keys: list[tuple[object, ...]] = [("w", op.stage, op.result.planes, op.channels)]
        return keys if op.sums is not None else [*keys, ("bias", op.stage, op.result.planes)]

    def _bring(self, op: MuOp, position: int) -> dict[str, int]:
        """The first words of the weights and of the biases of a micro-op, which are pulled unless they are there."""
        core, work, addresses = self.core[op.number], self.works[op.stage], dict[str, int]()
        for constant in self._constants(op):
            key = (core, *constant)
            kind, planes = str(constant[0]), op.result.planes
            residency = self.constants.get(key)
            if residency is None or residency.gone:
                count = planes[1] - planes[0]
                deep = op.channels[1] - op.channels[0]
                each = work.problem.taps * (deep * work.problem.cols if work.op is None else 1)
                place, words = (Place.B, count * each) if kind == "w" else (Place.ACC, count)
                uses = self.constant_uses[key]
                residency = self.constants[key] = self._must_take(core, place, words, uses, position, "constants")
                w, bias = self.homes.constants(op.stage, core, words)
                taps = work.problem.taps
                at = address(place, residency.at if kind == "w" else 4 * residency.at)
                if kind == "bias":
                    transfers = bias.transfers((0, 1), (*planes, 1), (0, 4), core, at)
                elif work.op is None:
                    rows = (op.channels[0] * taps, op.channels[1] * taps, 1)
                    transfers = w.transfers(planes, rows, (0, work.problem.cols), core, at)
                else:
                    transfers = w.transfers(planes, (0, 1, 1), (0, taps), core, at)
                for t in transfers:
                    label = self.units.label(op, f"{kind} n{planes[0]}")
                    self.groups[position].append(t.load(core, label))
            addresses[kind] = residency.at
        return addresses

    # -- micro-ops ------------------------------------------------------------------------------------------------

    def _compute(self, op: MuOp, position: int) -> None:
        """The GEMMs or VECs of a micro-op, when its operands and its result have their places."""
        operands = [self._need(tile, position) for tile in self.tiles[op.number]]
        before = self._need(self.sums[op.number], position) if op.sums is not None else None
        constants = self._bring(op, position)
        view = self._result(op, position)
        if op.unit is Unit.MATRIX:
            nodes = self.units.gemms(op, operands[0], before, constants, view)
        else:
            nodes = self.units.vecs(op, operands, constants, view)
        self.groups[position] += [node for _, _, node in nodes]
        first = view.part.planes[0]
        self.emitted[op.number] = _Emitted(view, [(first + low, first + high, node) for low, high, node in nodes])

    def _result(self, op: MuOp, position: int) -> View:
        """Room for what a micro-op makes."""
        core = self.core[op.number]
        if not op.last:
            return self._sums_room(op, position)
        place = Place.OUT if op.unit is Unit.MATRIX else Place.VEC
        direct = [tile for tile in self.readers.get(op.number, ()) if tile.direct == op.number]
        uses = sorted({position, *(use for tile in direct for use in tile.uses)})
        residency = self._must_take(core, place, op.result.words, uses, position, "its result")
        for tile in direct:
            tile.residency = residency
            self.owners[id(residency)] = tile
        first = self.homes.root(self.homes.result(op))[1]
        planes = op.result.planes[0] + first, op.result.planes[1] + first
        return View(core, address(place, residency.at), Region(planes, op.result.rows, op.result.columns))

    def _sums_room(self, op: MuOp, position: int) -> View:
        """Room for partial sums: where those lie that it goes on with, or where the micro-op of the same core needs
        them that goes on with its own."""
        core, before = self.core[op.number], self.sums.get(op.number)
        following = self.sums[self._following(op.number)]
        uses = [position]
        if following.core == core:
            uses = [position, *following.uses]
        if before is not None:
            assert before.residency is not None
            residency = before.residency
            residency.uses = sorted({*residency.uses, *uses})
            self.owners.pop(id(residency), None)
        else:
            residency = self._must_take(core, Place.ACC, op.result.words, uses, position, "its sums")
        if following.core == core:
            following.residency = residency
            self.owners[id(residency)] = following
        return View(core, address(Place.ACC, 4 * residency.at), op.result, unit=4)


def _last(made: _Emitted) -> int:
    """Address of a word that its last operation writes."""
    return made.view.address + made.view.words - 1


def order_of(graph: MuGraph, plan: Orchestration, rounds: Sequence[int] | None = None) -> list[int]:
    """The micro-ops round after round, by their starts, those of one start by number. Raises ValueError when one would
    start before what it reads is made."""
    turn = rounds or [0] * len(graph.ops)
    order = sorted(range(len(graph.ops)), key=lambda number: (turn[number], plan.starts[number], number))
    position = {number: index for index, number in enumerate(order)}
    for edge in graph.edges:
        if position[edge.producer] > position[edge.consumer]:
            raise ValueError(
                f"micro-op {edge.consumer} is to start in cycle {plan.starts[edge.consumer]}, but {edge.producer}, "
                f"whose result it reads, only in {plan.starts[edge.producer]}"
            )
    return order
