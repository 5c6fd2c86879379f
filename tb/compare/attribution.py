"""How the PE cycles of a run were spent, layer by layer, to the last cycle.

The time of each core, from the start of the run to its end, is cut where the operand windows of each GEMM end; each
slice belongs to that GEMM's layer. In the windows the array is fed (`compute`, `edges`). The gap before them is
explained by walking back from the GEMM's start along what it waited for: the last post to arrive, the MOVE, SYNC or VEC
that made it, what that one waited for, and so on (`_Causes`). Measured and predicted records are treated alike.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Generic

from meshloom.hw.config import ChipConfig, TileKind, tile_position
from meshloom.hw.contracts import ISSUE_CYCLES, REQUEST_CYCLES
from meshloom.hw.isa import FETCH_TAG, Opcode, Region, Unit, split_address
from meshloom.hw.timing import GemmShape, gemm_occupancy
from meshloom.sched.ir.schedule import Operation, Schedule
from meshloom.sched.program.program import Instruction, Program

from .records import Place, T, locate, operations

#: Memories of a core that GEMMs and VECs write.
_RESULTS = (Region.ACC, Region.OUT, Region.VEC)


class AttributionError(ValueError):
    """Records that cannot explain a run; the message names what is missing and the fix."""


@dataclass(frozen=True)
class Share:
    """PE cycles of a layer, or of the whole run.

    `compute`: useful multiply-accumulates. `edges`: the array is fed, but rows, columns or lanes carry padding.
    Otherwise the array is idle. `operands`: another core's GEMM has not computed them yet; `vector`: a VEC has not;
    `network`: they are in flight or wait for a mover, or a request or post does; `dram`: they are read from DRAM or
    written to it, or queue there; `drain`: a result buffer or the pipeline is not empty yet; `start`: before the core's
    first GEMM, the program is fetched and issued; `fetch`: the same later on; `idle`: the core has no GEMM left, but
    others have.
    """

    layer: str
    compute: int = 0
    edges: int = 0
    operands: int = 0
    vector: int = 0
    network: int = 0
    dram: int = 0
    drain: int = 0
    start: int = 0
    fetch: int = 0
    idle: int = 0

    @property
    def cycles(self) -> dict[str, int]:
        """PE cycles by category, in the order above."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "layer"}

    @property
    def total(self) -> int:
        """PE cycles of all categories."""
        return sum(self.cycles.values())

    @property
    def utilisation(self) -> float:
        """Share of useful PE cycles, 0..1."""
        return self.compute / self.total if self.total else 0.0


@dataclass(frozen=True)
class Attribution:
    """`layers` in the order of their first GEMM, and their sum `total`: cores x cycles x PEs of a core."""

    layers: tuple[Share, ...]
    total: Share


def attribute(
    program: Program,
    schedule: Schedule,
    records: Sequence[T],
    cycles: int,
    chip: ChipConfig,
    layer_of: Callable[[Operation], str],
    macs: Mapping[str, int],
) -> Attribution:
    """Attributes every PE cycle of a run that took `cycles`, from its trace records (`Run.records`) or from the model's
    (`Timeline.executed`).

    `layer_of`: layer of an operation that is a GEMM. `macs`: multiply-accumulates of each layer that has GEMMs,
    including those with padding; other layers are ignored. Raises AttributionError if records are missing or `macs` is
    impossible, CompareError if records and program do not belong together.
    """
    causes = _Causes(program, locate(records, program), chip)
    numbers = operations(program, schedule)
    gemms = {core: causes.gemms(core) for core in chip.cores}
    layers = {place: layer_of(schedule.operations[numbers[place[:3]]]) for mine in gemms.values() for place in mine}
    spent: dict[str, Counter[str]] = defaultdict(Counter)
    for number in sorted(numbers[place[:3]] for place in layers):  # rows in schedule order
        spent[layer_of(schedule.operations[number])]
    slices: dict[int, list[tuple[int, str]]] = {}  # of each core: ends of slices and their layers
    for core, mine in gemms.items():
        at, slices[core] = 0, []
        for place in mine:
            layer, record = layers[place], causes.records[place]
            spent[layer].update(causes.gap(core, place, at, record.start))
            at = record.start + causes.occupancy(place)
            spent[layer]["fed"] += at - record.start
            slices[core].append((at, layer))
    longest = max(slices, key=lambda core: slices[core][-1][0] if slices[core] else 0)
    for core in chip.cores:
        for layer, share in _tail(causes, gemms[core], slices[core], slices[longest], cycles).items():
            spent[layer].update(share)
    return _account(spent, macs, chip)


def _tail(
    causes: _Causes[T], gemms: Sequence[Place], mine: list[tuple[int, str]], longest: list[tuple[int, str]], cycles: int
) -> dict[str, Counter[str]]:
    """How a core's time after its last GEMM is spent, by the layer in which the last core to finish then is."""
    at = mine[-1][0] if mine else 0
    borders = [
        (causes.records[gemms[-1]].end if gemms else 0, "drain"),
        (causes.last(Opcode.GEMM), "idle"),
        (causes.last(Opcode.VEC), "vector"),
        (cycles, "drain"),
    ]
    found: dict[str, Counter[str]] = defaultdict(Counter)
    steps = [*longest[:-1], (cycles, longest[-1][1] if longest else "")]
    for border, category in borders:
        for end, layer in steps:
            stop = min(border, end, cycles)
            if stop > at:
                found[layer][category] += stop - at
                at = stop
    return found


def _account(spent: Mapping[str, Counter[str]], macs: Mapping[str, int], chip: ChipConfig) -> Attribution:
    pes = chip.rows * chip.cols
    shares: list[Share] = []
    for layer, cycles in spent.items():
        fed = pes * cycles.pop("fed", 0)
        useful = macs.get(layer, 0 if not fed else -1)
        if not 0 <= useful <= fed:
            known = "unknown" if useful < 0 else f"{useful}"
            raise AttributionError(
                f"layer {layer!r}: its GEMMs can do up to {fed} multiply-accumulates, those of the layer are {known}; "
                "give `macs` for the layer names that `layer_of` makes"
            )
        shares.append(Share(layer, useful, fed - useful, **{name: pes * count for name, count in cycles.items()}))
    total = Counter[str]()
    for share in shares:
        total.update(share.cycles)
    return Attribution(tuple(shares), Share("total", **total))


@dataclass(frozen=True)
class _Post:
    """A post to a semaphore, made by `place`; `delivered`: on delivery of its MOVE's last word, not when that was
    sent."""

    place: Place
    delivered: bool = False


class _Causes(Generic[T]):
    """What waited for what in a run. Times are cycles; the arrival of a post is known only from the waiting part."""

    def __init__(self, program: Program, records: Mapping[Place, T], chip: ChipConfig) -> None:
        self.chip, self.records = chip, records
        self.code: dict[tuple[int, Unit], tuple[Instruction, ...]] = {
            (stream.tile, stream.unit): stream.instructions for stream in (*program.streams, program.boot)
        }
        self._posts: dict[tuple[int, int], list[tuple[int, int, _Post]]] = defaultdict(list)
        self._waits: dict[tuple[int, int], list[tuple[int, Place, int]]] = defaultdict(list)
        missing: Counter[int] = Counter()
        for (tile, unit), code in self.code.items():
            for index, instruction in enumerate(code):
                fields, place = instruction.fields, Place(tile, unit, index)
                if instruction.opcode is Opcode.END or fields.get("tag", 0) == FETCH_TAG:
                    continue
                done = self.executing(place)
                for part in {place, done}:  # not a set difference, which would iterate over all records
                    if part not in records:
                        missing[fields["src_tile"] if part.remote else tile] += 1
                if not missing:
                    self._enter(place, done, instruction)
        if missing:
            tile, count = missing.most_common(1)[0]
            x, y = tile_position(tile)
            raise AttributionError(
                f"{missing.total()} trace records are missing, {count} of {chip.tiles[tile].value}@({x},{y}), which "
                f"keeps {chip.trace_records}; raise trace_records in chip {chip.name}"
            )

    def _enter(self, place: Place, done: Place, instruction: Instruction) -> None:
        """Stores what an instruction waits for and posts; `done`: the part that completes it."""
        fields, end = instruction.fields, self.records[done].end
        if count := fields.get("wait_n", 0):
            key = place.tile, fields["wait_sem"]
            self._waits[key].append((self.records[place].start, place, count))
        if count := fields.get("post_n", 0):
            tile = fields["src_tile"] if done.remote else place.tile
            self._posts[tile, fields["post_sem"]].append((end, count, _Post(done)))
        if instruction.opcode is Opcode.SYNC and (count := fields.get("n", 0)):
            target = fields["tile"]
            self._posts[target, fields["sem"]].append((end + self.hops(place.tile, target), count, _Post(done)))
        if instruction.opcode is Opcode.MOVE and fields.get("notify", 0):
            delivered, target = fields["dst_tile"], fields["notify_tile"]
            distance = self.hops(fields["src_tile"], delivered) + self.hops(delivered, target)
            self._posts[target, fields["notify_sem"]].append((end + distance, 1, _Post(done, delivered=True)))

    @cached_property
    def critical(self) -> dict[Place, _Post]:
        """For each instruction that waits, the last post that it needed: posts are taken in order of arrival."""
        found: dict[Place, _Post] = {}
        for key, waits in self._waits.items():
            posts = sorted(self._posts[key], key=lambda post: post[0])
            taken = have = used = 0
            for _, place, count in sorted(waits, key=lambda wait: wait[:2]):
                taken += count
                while have < taken and used < len(posts):
                    have += posts[used][1]
                    used += 1
                if used:
                    found[place] = posts[used - 1][2]
        return found

    # -- properties of an instruction -----------------------------------------------------------------------------

    def instruction(self, place: Place) -> Instruction:
        return self.code[place.tile, place.unit][place.index]

    def executing(self, place: Place) -> Place:
        """The part that executes an instruction: for a pull, the mover of another tile."""
        instruction = self.instruction(place)
        away = instruction.opcode is Opcode.MOVE and instruction.fields["src_tile"] != place.tile
        return place._replace(remote=away)

    def gemms(self, core: int) -> list[Place]:
        """The GEMMs of a core, in order."""
        code = self.code.get((core, Unit.MATRIX), ())
        return [Place(core, Unit.MATRIX, i) for i, found in enumerate(code) if found.opcode is Opcode.GEMM]

    def occupancy(self, place: Place) -> int:
        """Cycles of a GEMM's operand windows."""
        f = self.instruction(place).fields
        shape = GemmShape(f["pixels"], f["n_blocks"], f["k_blocks"], f["kernel_h"], f["kernel_w"])
        return gemm_occupancy(self.chip, shape)

    def last(self, opcode: Opcode) -> int:
        """End of the last instruction of a kind; 0 if there are none."""
        return max((record.end for record in self.records.values() if record.opcode is opcode), default=0)

    def hops(self, source: int, target: int) -> int:
        (x, y), (u, v) = tile_position(source), tile_position(target)
        return abs(x - u) + abs(y - v)

    def is_dram(self, tile: int) -> bool:
        return self.chip.tiles[tile] is TileKind.DRAM

    # -- the walk back --------------------------------------------------------------------------------------------

    def gap(self, core: int, gemm: Place, first: int, stop: int) -> Counter[str]:
        """Cycles [first, stop) before a GEMM of a core, by category; the previous one ended its windows in `first`."""
        spent: Counter[str] = Counter()
        if stop > first:
            at = stop
            for since, category in self._walk(core, gemm):
                since = max(first, min(at, since))
                # the core's first slice begins with the run
                spent["fetch" if category == "start" and first else category] += at - since
                at = since
                if at == first:
                    break
            assert at == first, "every walk ends with the beginning of the run"
        return spent

    def _walk(self, core: int, gemm: Place) -> Iterator[tuple[int, str]]:
        """Steps back from the start of a GEMM: (cycle, category of the time between it and the previous step)."""
        place, seen = gemm, set[Place]()
        direct = True  # so far only computing units of this core have waited
        while place not in seen:
            seen.add(place)
            record, opcode = self.records[place], self.instruction(place).opcode
            before = self._before(place)
            if opcode is Opcode.VEC and before is not None and self._busy(before, record.start):
                yield self.records[before].start, "vector"
                place = before
                continue
            post = self.critical.get(place) if record.wait else None
            if post is None:
                if before is None:
                    yield 0, "start"
                    return
                last = self.records[before]
                match self.instruction(before).opcode:
                    case Opcode.GEMM:  # the front end waited until the matrix unit took it
                        yield 0, "start" if before.tile == core else "operands"
                        return
                    case Opcode.VEC:
                        yield last.end, "start"
                        yield last.start, "vector"
                    case Opcode.MOVE if self.executing(before) == before:
                        yield last.start, "start"
                        yield self._offered(before), self._queue(before.tile)
                        direct = False
                    case _:
                        yield last.end - 1, "start"
                        yield last.start, self._sender(before)
                place = before
                continue
            done = self.records[post.place]
            match done.opcode:
                case Opcode.GEMM:  # this core's last one is still in the pipeline
                    yield 0, "drain" if post.place.tile == core else "operands"
                    return
                case Opcode.VEC:
                    yield done.start, "vector"
                    place, direct = post.place, direct and post.place.tile == core
                case Opcode.MOVE:
                    fields = self.instruction(post.place).fields
                    stored = fields["src_tile"] == core and split_address(fields["src"])[0] in _RESULTS
                    if direct and stored and not (post.delivered and fields["dst_tile"] == core):
                        yield 0, "drain"
                        return
                    yield from self._move(post, done, fields)
                    place, direct = post.place._replace(remote=False), False
                case _:  # a SYNC, or a FETCH
                    yield done.start, "network"
                    place = post.place
        yield 0, "network"  # posts that arrived on different paths at nearly the same time were taken in another order

    def _move(self, post: _Post, done: T, fields: Mapping[str, int]) -> Iterator[tuple[int, str]]:
        """From a MOVE's post back to the cycle in which its stream offered it."""
        source, target = fields["src_tile"], fields["dst_tile"]
        ends = "dram" if self.is_dram(source) or self.is_dram(target) else "network"
        if post.delivered:
            yield done.end, "dram" if self.is_dram(target) else "network"
        yield done.start, ends
        issued = post.place._replace(remote=False)
        if post.place.remote:
            request = self.records[issued]
            yield request.end - 1 + self.hops(issued.tile, source) + REQUEST_CYCLES, self._queue(source)
            yield request.end - 1, "network"
            yield request.start, self._sender(issued)
        else:
            yield self._offered(issued), self._queue(source)

    def _queue(self, tile: int) -> str:
        """Category of waiting for the mover of a tile."""
        return "dram" if self.is_dram(tile) else "network"

    def _sender(self, place: Place) -> str:
        """Category of waiting for the sender of requests and posts, which stalls if the queue to which it sends, or
        sent before, is full."""
        for found in (place, self._before(place)):
            away = found is not None and self.executing(found).remote
            if found is not None and away and self.is_dram(self.instruction(found).fields["src_tile"]):
                return "dram"
        return "network"

    def _before(self, place: Place) -> Place | None:
        """The previous instruction of the stream that left a record."""
        for index in range(place.index - 1, -1, -1):
            if (found := place._replace(index=index)) in self.records:
                return found
        return None

    def _busy(self, before: Place, cycle: int) -> bool:
        """Whether a VEC was still running in a cycle."""
        return self.instruction(before).opcode is Opcode.VEC and self.records[before].end > cycle

    def _offered(self, place: Place) -> int:
        """When an own MOVE was offered to the mover, if its code had arrived."""
        record, before = self.records[place], self._before(place)
        if before is None:
            return record.start
        last = self.records[before]
        own = self.instruction(before).opcode is Opcode.MOVE and self.executing(before) == before
        return (last.start if own else last.end - 1) + ISSUE_CYCLES + record.wait
