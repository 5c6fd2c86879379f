"""Why a run hangs, in words: combines the reports of the tiles after a watchdog with the program.

Each report tells what a part of the chip waits for (`devices.interface.BlockedStatus`). The program tells what could
end that wait. Of the posts of a semaphore, the first ones have been counted (what its consumer has taken, plus its
current value); the others are owed by instructions that have been issued and are in flight, or lost, and then by those
that their streams have not reached. That makes the wait-for graph. A cycle in it is a deadlock; without one, the ends
of the graph cause the hang.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import INSTRUCTIONS, BlockedOn, Cause, Opcode, Part, Region, Unit, decode, split_address
from meshloom.sched.checker.static import DecodedInstruction
from meshloom.sched.checker.tokens import Poster, Semaphore, posts_of
from meshloom.sched.checker.waitfor import Waiting, cycle_of, ends_of, in_words
from meshloom.sched.program.names import Names, address_name, tile_name
from meshloom.sched.program.program import Instruction, Program
from meshloom.sched.program.routes import receivers

from ..devices.interface import BlockedStatus, Run

#: Causes of a hang that are listed when there is no cycle.
SHOWN = 3


class Labelled(Protocol):
    """The part of a schedule that is needed."""

    @property
    def operations(self) -> Sequence[object]: ...


class GraphNode(NamedTuple):
    """A node of the graph: a part of a tile. `stream` is the index of the stream in the program, -1 if it is none."""

    tile: int
    part: Part
    stream: int = -1


@dataclass(frozen=True)
class _Post:
    """A post of a semaphore that an instruction of the program makes, `count` at once."""

    stream: int
    position: int
    poster: Poster
    count: int


def explain(run: Run, program: Program, schedule: Labelled | None, chip: ChipConfig) -> str:
    """One paragraph on why a watchdog stopped a run, or on a word that is lost; empty if there is nothing to say.

    Names the cycle of waits if there is one: tile, unit, instruction and operation of `schedule`, semaphore with its
    value, and what would post it. Otherwise what the other parts ultimately wait for.
    """
    if run.fault is not None and run.fault.cause is Cause.ECC:
        region, offset = split_address(run.fault.value)
        name = next((each.name for each in Region if each == region), str(region))
        where = (
            f"in memory {name} or in a packet to word {offset} of it"
            if offset
            else f"in memory {name} or in a packet to it"
        )
        return f"two bits of a word were wrong, {where}: the code corrects one, and the word is lost"
    if run.fault is None or run.fault.cause not in (Cause.WATCHDOG, Cause.STALLED):
        return ""
    labels = tuple(str(getattr(operation, "label", "")) for operation in schedule.operations) if schedule else ()
    hang = _Hang(run.blocked_status, program, chip, labels)
    graph = hang.graph()
    begin = f"the run was stopped in cycle {run.cycles}, {run.quiet} cycles after the last movement"
    if run.fault.cause is Cause.WATCHDOG and run.quiet <= patience(chip):
        timed = [node.who + " " + node.waits for place, node in graph.items() if hang.waits(place) is BlockedOn.TIME]
        until = f" ({'; '.join(timed[:SHOWN])})" if timed else ""
        return f"{begin}: it is slow or never ends, but it is not deadlocked{until}; give it more cycles"
    if not chip.reports:
        return f"{begin}; what its parts wait for, chip {chip.name} does not tell: set reports = true in its file"
    if not graph:
        return f"{begin}, and no part of the chip reports that it waits: a packet in flight was lost"
    cycle = cycle_of(graph)
    if cycle:
        return f"deadlock: {begin}; {in_words(graph, cycle, closed=True)}"
    ends = ends_of(graph)
    text = "; ".join(in_words(graph, [end], closed=False) for end in ends[:SHOWN])
    more = f"; and {len(ends) - SHOWN} more" if len(ends) > SHOWN else ""
    left = len(graph) - len(ends)
    others = f"; {left} more {'parts wait' if left > 1 else 'part waits'} for these" if left else ""
    return f"hang: {begin}; {text}{more}{others}"


def patience(chip: ChipConfig) -> int:
    """Cycles without progress that are normal: the latency of a DRAM, and a few steps after it."""
    return 2 * chip.dram.latency + 200


class _Hang:
    """The reports of a run, with its program."""

    def __init__(
        self, blocked_status: Sequence[BlockedStatus], program: Program, chip: ChipConfig, labels: tuple[str, ...]
    ) -> None:
        self.chip = chip
        self.names = Names(chip, program, labels)
        self.streams = self.names.streams
        self.steps = [[_step(instruction) for instruction in stream.instructions] for stream in self.streams]
        numbers = {(stream.tile, stream.unit): number for number, stream in enumerate(self.streams)}
        self.reports: dict[GraphNode, BlockedStatus] = {}
        for report in blocked_status:
            number = numbers.get((report.tile, report.unit), -1) if report.part is Part.STREAM else -1
            if report.part is not Part.STREAM or number >= 0:
                self.reports[GraphNode(report.tile, report.part, number)] = report
        #: How many instructions of each stream have been issued: all of them for streams that report nothing.
        self.position = [len(steps) for steps in self.steps]
        for place, report in self.reports.items():
            if place.stream >= 0:
                self.position[place.stream] = self._position(place.stream, report)
        self.posts: dict[Semaphore, list[_Post]] = {}
        for number, steps in enumerate(self.steps):
            for position, step in enumerate(steps):
                for poster, semaphore, count in posts_of(step, self.streams[number].tile):
                    self.posts.setdefault(semaphore, []).append(_Post(number, position, poster, count))

    def _position(self, stream: int, report: BlockedStatus) -> int:
        """The position that a stream has reached: by its tag and, because tags repeat in long programs, by the number
        of instructions left."""
        steps = self.steps[stream]
        if report.waits is BlockedOn.START:
            return 0
        if report.waits is BlockedOn.SEMAPHORE:
            left, laps = report.peer, 1 << 8
        else:
            left, laps = report.detail & 0xFFFFF, 1 << 20
        fitting = [at for at in range(len(steps) + 1) if (len(steps) - at) % laps == left]
        if report.waits in (BlockedOn.CODE, BlockedOn.REQUEST_PLANE) and not report.tag:  # nothing is loaded
            return fitting[0] if fitting else len(steps)
        tagged = [at for at, step in enumerate(steps) if step.fields["tag"] == report.tag]
        exact = [at for at in tagged if at in fitting] if report.waits is not BlockedOn.TIME else []
        return next(iter(exact or tagged), 0)

    def graph(self) -> dict[GraphNode, Waiting[GraphNode]]:
        """A node for each blocked part. Units that the program does not use are left out."""
        return {place: self._node(place, report) for place, report in self.reports.items()}

    def waits(self, place: GraphNode) -> BlockedOn:
        """What a part waits for."""
        return self.reports[place].waits

    def _node(self, place: GraphNode, report: BlockedStatus) -> Waiting[GraphNode]:
        if place.stream >= 0:
            return self._stream(place, report)
        where = tile_name(self.chip, place.tile)
        match report.part:
            case Part.MOVER:
                return self._mover(place, report, f"{where} mover with {self._move(place.tile, report.tag)}")
            case Part.QUEUE:
                count = "one requested MOVE" if report.has <= 1 else f"{report.has} requested MOVEs"
                who = f"{where} queue of {count}, first {self._move(place.tile, report.tag)}"
                if report.waits is BlockedOn.FLITS:
                    return Waiting(f"{where} request queue", "waits for the rest of a request", {})
                return Waiting(who, "waits for its mover", self._if_there(place.tile, Part.MOVER, "which is busy"))
            case Part.DELIVERY:
                return self._delivery(place, report, where)
            case Part.DRAM:
                burst = f"{report.tag} bursts written from word {report.detail & 0xFFFFFF:#x}"
                return Waiting(f"{where} with {burst}", "waits for the memory to answer", {})
            case _:
                what = f"has raised {report.cause.name} (tag {report.tag}, value {report.detail:#x})"
                return Waiting(where, f"{what}, which has not reached the host", {})

    def _stream(self, place: GraphNode, report: BlockedStatus) -> Waiting[GraphNode]:
        number, position = place.stream, self.position[place.stream]
        who = self.names.instruction(number, position) if position < len(self.steps[number]) else ""
        peer = tile_name(self.chip, report.peer)
        match report.waits:
            case BlockedOn.SEMAPHORE:
                return self._semaphore(number, position, report)
            case BlockedOn.START:
                return self._start(number)
            case BlockedOn.CODE:
                helped = self._if_there(report.peer, Part.QUEUE, "where the request for it may be queued")
                helped |= self._if_there(report.peer, Part.MOVER, "whose mover has to send it")
                return Waiting(f"the {self.names.stream(number)}", f"waits for its next code from {peer}", helped)
            case BlockedOn.UNIT:
                helped = self._if_there(place.tile, Part.MOVER, "which is busy") if self._is_mover(number) else {}
                return Waiting(who, "waits for its unit to take it", helped)
            case BlockedOn.REQUEST_PLANE:
                helped = self._if_there(report.peer, Part.QUEUE, "whose queue is full")
                return Waiting(who or f"the {self.names.stream(number)}", f"cannot send its request to {peer}", helped)
            case BlockedOn.POST_PLANE:
                return Waiting(who, f"cannot send its post to {peer}", {})
            case BlockedOn.TIME:
                return Waiting(who, f"waits for cycle {report.detail}", {})
            case BlockedOn.FAULT:
                return Waiting(who, "has raised a fault", {})
            case _:
                return Waiting(who, "waits for the semaphores or the trace memory to take what it leaves", {})

    def _is_mover(self, number: int) -> bool:
        return self.streams[number].unit is Unit.MOVER

    def _start(self, number: int) -> Waiting[GraphNode]:
        stream = self.streams[number]
        who = f"the {self.names.stream(number)}"
        for by, steps in enumerate(self.steps):
            for position, step in enumerate(steps):
                fields = step.fields
                if step.opcode is Opcode.FETCH and (fields["tile"], fields["unit"]) == (stream.tile, stream.unit):
                    fetch = self.names.instruction(by, position)
                    if position < self.position[by]:
                        return Waiting(who, f"was never started, although {fetch} has been sent: it is lost", {})
                    return Waiting(who, "was never started", {self._place(by): f"which {fetch} would do"})
        return Waiting(who, "was never started: no FETCH does", {})

    def _place(self, number: int) -> GraphNode:
        return GraphNode(self.streams[number].tile, Part.STREAM, number)

    def _semaphore(self, number: int, position: int, report: BlockedStatus) -> Waiting[GraphNode]:
        tile = self.streams[number].tile
        key = (tile, report.sem)
        who = self.names.instruction(number, position)
        fields = self.steps[number][position].fields
        pair = (fields["wait_sem"], fields["wait_n"])
        damaged = "" if pair == (report.sem, report.need) else f"; the program says {pair[1]} of semaphore {pair[0]}"
        waits = f"waits for {self.names.semaphore(*key)} (has {report.has}, needs {report.need}{damaged})"
        posts = self.posts.get(key, [])
        result = sum(
            step.fields["wait_n"]
            for step in self.steps[number][:position]
            if step.fields["wait_n"] and step.fields["wait_sem"] == report.sem
        )
        issued = [post for post in posts if post.position < self.position[post.stream]]
        owed = sum(post.count for post in issued) - result - report.has
        helped: dict[GraphNode, str] = {}
        lost: list[str] = []
        for post in self._last(issued, owed):
            by = self.names.instruction(post.stream, post.position)
            place, how = self._under_way(post, key)
            if place is not None:
                helped.setdefault(place, f"which {by} posts, {how}")
            else:
                lost.append(f"{by} {how}")
        if owed < report.need - report.has:
            for other in sorted({post.stream for post in posts}):
                ahead = [post for post in posts if post.stream == other and post.position >= self.position[other]]
                if ahead:
                    by = self.names.instruction(other, ahead[0].position)
                    helped.setdefault(self._place(other), f"which {by} posts")
        if helped:
            return Waiting(who, waits, helped)
        if lost:
            either = " or ".join(lost[:SHOWN])
            return Waiting(who, f"{waits}, whose post has been lost: {either}", {})
        return Waiting(who, f"{waits}, and no instruction is left that posts it", {})

    @staticmethod
    def _last(issued: Sequence[_Post], owed: int) -> Iterator[_Post]:
        """Posts of issued instructions that may be the missing ones: the last `owed` of each stream."""
        if owed <= 0:
            return
        left: dict[int, int] = {}
        for post in reversed(issued):
            if left.setdefault(post.stream, owed) > 0:
                left[post.stream] -= post.count
                yield post

    def _under_way(self, post: _Post, key: Semaphore) -> tuple[GraphNode | None, str]:
        """Where an issued instruction is, if a part of the chip reports it, and its state."""
        step, tile = self.steps[post.stream][post.position], self.streams[post.stream].tile
        if step.opcode is not Opcode.MOVE:
            return None, "has been issued"
        fields = step.fields
        source, target = fields["src_tile"], fields["dst_tile"]
        for part, how in ((Part.MOVER, "which that mover is sending"), (Part.QUEUE, "whose request waits there")):
            place = GraphNode(source, part)
            report = self.reports.get(place)
            mine = report is not None and report.waits is not BlockedOn.FLITS
            if report is not None and mine and (report.tag == fields["tag"] or (part is Part.QUEUE and source != tile)):
                return place, how
        if post.poster is Poster.DELIVERED:
            to, *copied = receivers(self.chip, fields)
            for tile in (*copied, to):  # in their order on the way: none has a flit that those before it do not have
                for part in (Part.DELIVERY, Part.DRAM):
                    if GraphNode(tile, part) in self.reports:
                        return GraphNode(tile, part), "whose words are being written"
            return None, f"has been issued, but its words have not been delivered to {tile_name(self.chip, target)}"
        return None, f"has been issued to the mover of {tile_name(self.chip, source)}"

    def _mover(self, place: GraphNode, report: BlockedStatus, who: str) -> Waiting[GraphNode]:
        match report.waits:
            case BlockedOn.DATA_PLANE:
                to = tile_name(self.chip, report.peer)
                helped = self._if_there(report.peer, Part.DELIVERY, "where another packet is in front")
                return Waiting(who, f"waits for the data plane to take a flit for {to}", helped)
            case BlockedOn.DRAM:
                return Waiting(who, "waits for DRAM, which sends no word", {})
            case BlockedOn.MEMORY:
                return Waiting(who, "waits for the tile's memory, which gives no word", {})
            case _:
                return Waiting(who, "waits for the semaphores or the trace memory to take what it leaves", {})

    def _delivery(self, place: GraphNode, report: BlockedStatus, where: str) -> Waiting[GraphNode]:
        who = f"{where} with a packet for {address_name(report.detail)}"
        if report.waits is BlockedOn.FLITS:
            rest = f"waits for its last {report.tag} words" if report.tag else "waits for its tail"
            helped: dict[GraphNode, str] = {
                other: "whose mover has to send them"
                for other, sender in self.reports.items()
                if sender.part is Part.MOVER and sender.peer == place.tile
            }
            return Waiting(who, rest if helped else f"{rest}, which no mover has: they are lost", helped)
        if report.waits is BlockedOn.DRAM:
            helped = self._if_there(place.tile, Part.DRAM, "which accepts no more")
            return Waiting(who, "waits for DRAM to take a word", helped)
        what = "its memory to take a word" if report.waits is BlockedOn.MEMORY else "the semaphores to take a post"
        return Waiting(who, f"waits for {what}", {})

    def _if_there(self, tile: int, part: Part, how: str) -> dict[GraphNode, str]:
        """How a part of a tile would help, if it has reported."""
        place = GraphNode(tile, part)
        return {place: how} if place in self.reports else {}

    def _move(self, tile: int, tag: int) -> str:
        """The MOVE with a tag that a tile's mover executes: its own or one requested by another tile."""
        for number, steps in enumerate(self.steps):
            for position, step in enumerate(steps):
                if step.opcode is Opcode.MOVE and step.fields["src_tile"] == tile and step.fields["tag"] == tag:
                    return self.names.instruction(number, position)
        return f"MOVE tag {tag}"


def _step(instruction: Instruction) -> DecodedInstruction:
    """An instruction with all its fields, even if it cannot be encoded."""
    try:
        opcode, fields = decode(instruction.encode())
    except ValueError:
        return DecodedInstruction(
            instruction.opcode, dict.fromkeys(INSTRUCTIONS[instruction.opcode].offsets, 0) | instruction.fields
        )
    return DecodedInstruction(opcode, fields)
