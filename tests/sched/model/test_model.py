"""The model's parts by themselves: closed forms on an idle chip, and who goes first when several want to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from meshloom.hw.spec.config import ChipConfig, DramConfig, load, tile_position
from meshloom.hw.spec.contracts import LOCAL_FIFO, read_words
from meshloom.hw.spec.isa import Addend, Region
from meshloom.hw.spec.timing import GemmShape, gemm_cycles
from meshloom.sched.model.clock import Clock
from meshloom.sched.model.drain import DrainPath, Port, drained
from meshloom.sched.model.dram import Dram
from meshloom.sched.model.flow import OPEN, Buffer, Door, Link, Place, nothing
from meshloom.sched.model.noc_flow import Packet, Plane
from meshloom.sched.model.posts import Ordered, Semaphores, Trace
from meshloom.sched.model.reading import Words


def into(log: list[int] | dict[str, int], name: str = "") -> Callable[[int], None]:
    """Notes the cycle of a call."""
    if isinstance(log, list):
        return log.append
    return lambda now: log.__setitem__(name, now)


# -- flows ----------------------------------------------------------------------------------------------------------


def stepped(cap: int, offered: set[int], wanted: set[int], flits: int, cycles: int) -> tuple[list[int], list[int]]:
    """A queue, cycle by cycle: when flits go in and out if they are offered and wanted in these cycles."""
    level, went_in, went_out = 0, list[int](), list[int]()
    for cycle in range(cycles):
        push = cycle in offered and level < cap and len(went_in) < flits
        pop = cycle in wanted and level > 0
        level += push - pop
        went_in += [cycle] * push
        went_out += [cycle] * pop
    return went_in, went_out


class ProbePort(Door):
    """A door that notes the cycles in which something goes through."""

    def __init__(self) -> None:
        super().__init__(False)
        self.since, self.rate, self.cycles = 0, 0, list[int]()

    def _set(self, now: int, rate: int) -> None:
        self.cycles += list(range(self.since, now)) * self.rate
        self.since, self.rate = now, rate

    def has(self, now: int) -> bool:
        return self.open

    set_in = set_out = _set


def flowing(cap: int, offered: set[int], wanted: set[int], flits: int, cycles: int) -> tuple[list[int], list[int]]:
    """The same as flows."""
    clock = Clock()
    buffer, entry, exit_ = Buffer(clock, cap), ProbePort(), ProbePort()
    feeder, drainer = Link(clock), Link(clock)
    buffer.feeder, buffer.drainer = feeder, drainer
    ended = list[int]()

    def turn(now: int) -> None:
        for door, link, when in ((entry, feeder, offered), (exit_, drainer, wanted)):
            door.feeder = link
            door.turn(now, now < cycles and now in when)

    def start(now: int) -> None:
        feeder.start(now, entry, buffer, flits, ended.append)
        drainer.start(now, buffer, exit_, flits, ended.append)

    for cycle in range(cycles + 1):
        clock.at(cycle, turn)
    clock.at(0, start)
    clock.run()
    assert ended == [door.cycles[-1] + 1 for door in (entry, exit_) if len(door.cycles) == flits]
    return entry.cycles, exit_.cycles


@pytest.mark.parametrize("cap", [1, 2, 4])
def test_a_flow_is_what_a_queue_with_a_registered_ready_does(cap: int) -> None:
    random, cycles = Random(cap), 120
    for _ in range(40):
        flits = random.randint(1, 40)
        offered, expected = ({c for c in range(cycles) if random.random() < share} for share in (0.6, 0.7))
        assert flowing(cap, offered, expected, flits, cycles) == stepped(cap, offered, expected, flits, cycles)


# -- network --------------------------------------------------------------------------------------------------------


def send(plane: Plane, source: int, target: int, head: int, flits: int, log: dict[str, int], name: str) -> None:
    """Offers a packet from cycle `head` on; in `log`: the cycles of `<name> head`, `<name> in` and `<name> tail`."""

    def before(what: str) -> Callable[[int], None]:
        return lambda now: log.__setitem__(f"{name} {what}", now - 1)

    packet = Packet([(1, OPEN, before("head")), (flits - 1, OPEN, before("tail"))])
    plane.clock.at(head, lambda now: plane.send(now, source, target, packet, before("in")))


@pytest.mark.parametrize("flits", [2, 4, 5, 17, 65])
@pytest.mark.parametrize("depth", [2, 4, 8])
def test_an_idle_mesh_has_the_closed_form_of_the_gateware(flits: int, depth: int) -> None:
    tiles = [16 * y + x for y in range(3) for x in range(4)]
    for source in tiles:
        for target in tiles:
            clock, log = Clock(), dict[str, int]()
            send(Plane(clock, depth), source, target, 10, flits, log, "p")
            clock.run()
            (x, y), (to_x, to_y) = tile_position(source), tile_position(target)
            hops = abs(x - to_x) + abs(y - to_y)
            assert log == {"p head": 10 + hops + 1, "p in": 10 + flits - 1, "p tail": 10 + hops + flits}


def test_a_packet_waits_until_the_tail_before_it_has_left_the_port() -> None:
    clock, log = Clock(), dict[str, int]()
    plane = Plane(clock, 4)
    send(plane, 0, 1, 0, 10, log, "first")  # leaves router 0 in cycles 1..10 and router 1 in 2..11
    send(plane, 16, 1, 3, 5, log, "second")  # comes from below, wants the same tile
    clock.run()
    assert log["first tail"] == 11
    assert log["second head"] == 12
    assert log["second tail"] == 16


def test_a_blocked_packet_leaves_its_source_as_far_as_the_buffers_reach() -> None:
    clock, log = Clock(), dict[str, int]()
    plane = Plane(clock, 4)
    send(plane, 0, 1, 0, 30, log, "first")  # keeps tile 1 until cycle 31
    send(plane, 2, 1, 10, 8, log, "short")  # eight flits: the buffers of routers 2 and 1
    send(plane, 2, 1, 40, 9, log, "long")
    send(plane, 0, 1, 34, 30, log, "again")  # keeps it from cycle 40 to 69
    clock.run()
    assert log["first tail"] == 31
    assert log["short in"] == 17
    assert log["short tail"] == 39
    assert log["long head"] == 70
    assert log["long in"] == 72  # room is seen a cycle later, in one router after the other


def test_inputs_take_turns() -> None:
    clock, log = Clock(), dict[str, int]()
    plane = Plane(clock, 4)

    def stream(source: int, side: str, number: int) -> Callable[[int], None]:
        def offer(now: int) -> None:
            if number < 3:
                result = f"{side} {number}"
                packet = Packet([(5, OPEN, into(log, result))])
                plane.send(now, source, 1, packet, stream(source, side, number + 1))

        return offer

    clock.at(0, stream(0, "west", 0))  # two sources, packets back to back, one target between them
    clock.at(0, stream(2, "east", 0))
    clock.run()
    order = sorted((when, name) for name, when in log.items())
    assert [name for _, name in order] == ["east 0", "west 0", "east 1", "west 1", "east 2", "west 2"]
    assert [when for when, _ in order] == list(range(7, 7 + 6 * 5, 5))


def test_a_gate_holds_a_packet_and_its_port() -> None:
    clock, log = Clock(), dict[str, int]()
    plane = Plane(clock, 4)

    def gate(now: int, proceed: Callable[[int], None]) -> None:
        log["asked"] = now
        clock.at(20, proceed)

    plane.send(0, 0, 1, Packet([(5, OPEN, into(log, "done"))], gate))
    clock.run()
    assert log == {"asked": 2, "done": 25}


# -- memories -------------------------------------------------------------------------------------------------------


def reads(dram: Dram, clock: Clock, words: int, out: list[int], at: int = 0) -> None:
    """Takes `words` from the channel as they come; the cycles go into `out`."""
    link = Link(clock)
    dram.read.drainer = link

    def take(now: int) -> None:
        if len(out) < words:
            link.start(now, dram.read, OPEN, 1, taken)

    def taken(now: int) -> None:
        out.append(now - 1)
        take(now)

    clock.at(at, take)


def test_reads_have_the_latency_and_the_whole_rate() -> None:
    chip, clock = load("quad16"), Clock()
    dram, out = Dram(clock, chip), list[int]()
    clock.at(0, lambda now: dram.ask(64, now))
    clock.at(1, lambda now: dram.ask(64, now))
    reads(dram, clock, 128, out)
    clock.run()
    first = chip.dram.latency + 2
    assert out == list(range(first, first + 128))
    assert dram.outstanding == 0


@pytest.mark.parametrize(("lanes", "rate"), [(16, 16), (16, 12), (16, 8), (4, 1)])
def test_a_slower_channel_gives_two_beats_at_once_and_then_its_rate(lanes: int, rate: int) -> None:
    chip = ChipConfig(name="slow", lanes=lanes, floorplan=load("tiny").floorplan, dram=DramConfig(bytes_per_cycle=rate))
    clock = Clock()
    dram, out = Dram(clock, chip), list[int]()
    clock.at(0, lambda now: dram.ask(40, now))
    reads(dram, clock, 40, out)
    clock.run()
    bucket, expected, cycle = 2 * lanes, list[int](), chip.dram.latency + 1
    while len(expected) < 40:
        goes = bucket >= lanes
        expected += [cycle + 1] * goes
        bucket = min(bucket - lanes * goes + rate, 2 * lanes)
        cycle += 1
    assert out == expected


def one_by_one(clock: Clock, up: Place, down: Place, pauses: Sequence[int], at: int) -> tuple[Link, list[int]]:
    """Carries a word for each of `pauses`, so many cycles after the one before; the cycles in which they go."""
    link, went, left = Link(clock), list[int](), list(pauses)

    def gone(now: int) -> None:
        went.append(now - 1)
        begin(now)

    def begin(now: int) -> None:
        if left:
            clock.at(now + left.pop(0), lambda then: link.start(then, up, down, 1, gone))

    begin(at)
    return link, went


def beat_by_beat(
    cost: int, gain: int, asked: Sequence[tuple[int, int]], takes: Sequence[int], gives: Sequence[int], cycles: int,
    room: int,
) -> tuple[list[int], list[int]]:  # fmt: skip
    """A channel cycle by cycle, as `tb/build/verilog/dram_model.v` and the port describe it: when words are taken from
    it, and when they are given to it. `asked`: first cycle and words of the read bursts; `room`: words that the port
    holds of what it reads."""
    bucket, held, turn, now = 2 * cost, False, False, 0
    first = [cycle for cycle, words in asked for _ in range(words)]  # before which each word does not come
    there, waits, came, went = 0, 0, list[int](), list[int]()  # words in both buffers
    take, give = takes[0], gives[0]
    while now < cycles:
        expected, offered, token = bool(first) and first[0] <= now, waits > 0, bucket >= cost
        due = expected and not held and token
        fresh = due and not (offered and turn)
        write = offered and token and not (due and not turn)
        read = (held or fresh) and there < room
        turn = True if fresh else False if write else turn
        held = (held or fresh) and not read
        bucket = min(2 * cost, bucket - (cost if fresh or write else 0) + gain)
        taken = len(came) < len(takes) and take <= now and there > 0
        given = len(went) < len(gives) and give <= now and waits < 2
        if read:
            first.pop(0)
        there, waits = there + read - taken, waits + given - write
        came, went = came + [now] * taken, went + [now] * given
        now += 1
        if taken and len(came) < len(takes):
            take = now + takes[len(came)]
        if given and len(went) < len(gives):
            give = now + gives[len(went)]
    return came, went


@pytest.mark.parametrize("seed", range(60))
def test_a_channel_of_any_rate_does_what_it_does_beat_by_beat(seed: int) -> None:
    random = Random(seed)
    lanes, rate = random.choice([(8, 8), (8, 7), (32, 31), (16, 11), (8, 3), (4, 1)])
    values = load("tiny").model_dump() | {"name": "slow", "lanes": lanes, "rows": lanes, "cols": lanes}
    memory = DramConfig(bytes_per_cycle=rate, latency=random.randint(1, 30), whole_packets=seed % 3 == 2)
    chip = ChipConfig.model_validate(values | {"dram": memory})
    clock = Clock()
    dram = Dram(clock, chip)
    lengths = [random.choice((1, 5, 40)) for _ in range(random.randint(1, 5))]
    asks = sorted(random.randrange(200) for _ in lengths)
    asks = [cycle + number for number, cycle in enumerate(asks)]  # one in a cycle
    for cycle, words in zip(asks, lengths, strict=True):
        clock.at(cycle, lambda now, words=words: dram.ask(words, now))
    often = random.choice((0.0, 0.1, 0.9))
    takes, gives = (
        [random.randint(1, 4) if random.random() < often else 0 for _ in range(count)]
        for count in (sum(lengths), random.choice((1, 60)))
    )
    begin = random.randrange(200)
    dram.read.drainer, came = one_by_one(clock, dram.read, OPEN, takes, 0)
    dram.written.feeder, went = one_by_one(clock, OPEN, dram.written, gives, begin)
    dram.expect(len(gives), None)
    clock.run()
    firsts = [(cycle + 1 + chip.dram.latency, words) for cycle, words in zip(asks, lengths, strict=True)]
    gives[0] += begin
    assert (came, went) == beat_by_beat(lanes, rate, firsts, takes, gives, 3000, read_words(chip))


def test_reads_and_writes_take_turns_beat_by_beat() -> None:
    chip, clock = load("quad16"), Clock()
    dram, out, message, ends = Dram(clock, chip), list[int](), list[int](), list[int]()

    def notice(now: int, taken: Callable[[int], None]) -> None:
        message.append(now)
        taken(now)

    start = chip.dram.latency + 2
    clock.at(0, lambda now: dram.ask(64, now))
    reads(dram, clock, 64, out)
    writer = Link(clock)
    dram.written.feeder = writer
    dram.expect(32, notice)
    clock.at(start + 8, lambda now: writer.start(now, OPEN, dram.written, 32, ends.append))
    clock.run()
    # alone until the first word of the write can go, a cycle after it came; the write first, because a read was last
    assert out[:10] == list(range(start, start + 10))
    assert out[10:42] == list(range(start + 11, start + 11 + 64, 2))
    assert out[42:] == list(range(out[41] + 1, out[41] + 1 + 22))
    last = start + 9 + 2 * 31  # beat of the write's last word
    assert message == [last + 5]


def test_notices_of_written_bursts_come_at_most_every_second_cycle() -> None:
    chip, clock = load("quad16"), Clock()
    dram, message = Dram(clock, chip), list[int]()

    def notice(now: int, taken: Callable[[int], None]) -> None:
        message.append(now)
        taken(now)

    writer = Link(clock)
    dram.written.feeder = writer
    for words in (5, 1, 1):
        dram.expect(words, notice)
    clock.at(0, lambda now: writer.start(now, OPEN, dram.written, 7, into(list[int]())))
    clock.run()
    assert message == [10, 12, 14]  # words are taken in cycles 0..6, beats go in 1..7


def test_a_gemm_writes_its_last_row_in_the_cycle_before_its_end() -> None:
    chip = load("quad16")
    for to_acc, before in ((0, 1), (1, 3)):
        for pixels in (1, 15, 16, 17, 40):
            fields = {"pixels": pixels, "n_blocks": 2, "k_blocks": 3, "kernel_h": 1, "kernel_w": 2, "to_acc": to_acc}
            writes = drained(chip, fields, 100)
            first, rows = writes[-1]
            assert first + rows - 1 == 100 + gemm_cycles(chip, GemmShape(pixels, 2, 3, 1, 2)) - before
            assert sum(rows for _, rows in writes) == 2 * pixels


def test_addends_are_read_one_cycle_before_acc_is_written_and_three_before_out_is() -> None:
    chip, shape = load("quad16"), {"n_blocks": 2, "k_blocks": 3, "kernel_h": 1, "kernel_w": 1, "pixels": 20}
    for to_acc, written, idle, before in ((0, Region.OUT, Region.ACC, 3), (1, Region.ACC, Region.OUT, 1)):
        for addend in Addend:
            path, reader = DrainPath(chip), Link(Clock())
            reads = path.reads(reader)
            path.drains(0, shape | {"to_acc": to_acc, "addend": addend}, 100)
            assert set(reads) == {Region.ACC}  # nobody else reads what the mover reads of OUT
            assert reads[Region.ACC].feeder is reader  # hears of products that are issued while it reads
            for cycle in range(90, 400):
                assert path.writes[idle].room(cycle)
                ahead = path.writes[written].room(cycle + before)
                assert reads[Region.ACC].room(cycle) == (ahead or addend is Addend.NONE)


def read_and_sent(words: int, held: set[int], wanted: set[int], cycles: int) -> tuple[list[int], list[int]]:
    """The FIFO of `hw/memory/mover.py`, cycle by cycle: when words are read from a memory whose port is `held`, and
    sent, if they are `wanted`."""
    level, arriving, read, sent = 0, False, list[int](), list[int]()
    for cycle in range(cycles):
        go = len(read) < words and level + arriving < LOCAL_FIFO and cycle not in held
        take = level > 0 and cycle in wanted
        level += arriving - take
        arriving = go
        read += [cycle] * go
        sent += [cycle] * take
    return read, sent


def reading(words: int, held: list[tuple[int, int]], wanted: set[int], cycles: int) -> tuple[list[int], list[int]]:
    """The same as flows; `held`: first cycle and length, each known in the cycle before."""
    clock, port, memory, exit_ = Clock(), Port(), ProbePort(), ProbePort()
    fifo, reader, sender = Words(clock), Link(clock), Link(clock)
    fifo.port, fifo.feeder, fifo.drainer, port.feeder, exit_.feeder = port, reader, sender, reader, sender
    memory.open = True

    def take(now: int) -> None:
        for first, count in held:
            if first == now + 1:
                port.take(now, first, count)

    def start(now: int) -> None:
        reader.start(now, memory, fifo, words, nothing)
        sender.start(now, fifo, exit_, words, nothing)

    for cycle in range(cycles):
        clock.at(cycle, take)
        clock.at(cycle, lambda now: exit_.turn(now, now in wanted))
    clock.at(0, start)
    clock.run()
    return memory.cycles, exit_.cycles


def test_words_of_a_memory_that_others_read_are_sent_when_the_fifo_says() -> None:
    random, cycles, held_up = Random(5), 400, 0
    for _ in range(200):
        words, share, at, held = random.randint(1, 40), random.uniform(0.4, 1), 0, list[tuple[int, int]]()
        while at < cycles:
            first, count = at + random.choice((1, 1, 2, 3, 5, 8, 30)), random.choice((1, 1, 2, 3, 4, 8))
            held.append((first, count))
            at = first + count
        busy = {cycle for first, count in held for cycle in range(first, first + count)}
        expected = {cycle for cycle in range(cycles) if random.random() < share}
        read, sent = read_and_sent(words, busy, expected, cycles)
        assert len(sent) == words
        assert reading(words, held, expected, cycles) == (read, sent)
        free = read_and_sent(words, set(), expected, cycles)
        held_up += sent[-1] > free[1][-1]
    assert held_up > 100


def test_delivered_words_wait_for_the_drain_path() -> None:
    clock, ends = Clock(), list[int]()
    port, link = Port(), Link(clock)
    port.feeder = link
    clock.at(0, lambda now: port.take(now, 12, 3))
    clock.at(0, lambda now: port.take(now, 15, 2))  # side by side
    clock.at(10, lambda now: link.start(now, OPEN, port, 6, ends.append))
    clock.at(18, lambda now: port.take(now, 19, 4))  # issued while the packet is on its way
    clock.run()
    assert ends == [25]  # 10 11 . . . . . 17 18 . . . . 23 24


# -- one taker a cycle ----------------------------------------------------------------------------------------------


def test_semaphores_serve_posts_before_takes_and_low_ports_first() -> None:
    clock, log = Clock(), dict[str, int]()
    semaphores = Semaphores(clock)
    for unit in range(2):
        name = f"take {unit}"
        clock.at(5, lambda now, unit=unit, name=name: semaphores.take(now, unit, 3, 1, into(log, name)))
    for port in (5, 0, 4):
        name = f"post {port}"
        clock.at(10, lambda now, port=port, name=name: semaphores.post(now, port, 3, 1, into(log, name)))
    clock.run()
    assert log == {"post 0": 10, "post 4": 11, "post 5": 12, "take 0": 13, "take 1": 14}


def test_semaphores_that_are_cleared_accept_nothing_meanwhile() -> None:
    clock, log = Clock(), dict[str, int]()
    semaphores = Semaphores(clock, 8)
    clock.at(5, lambda now: semaphores.post(now, 5, 3, 2, into(log, "before")))
    clock.at(20, semaphores.clear)
    for port, cycle in ((5, 20), (4, 24)):
        clock.at(cycle, lambda now, port=port: semaphores.post(now, port, 3, 1, into(log, f"post {port}")))
    clock.at(22, lambda now: semaphores.take(now, 0, 3, 2, into(log, "take")))
    clock.run()
    assert log == {"before": 5, "post 4": 28, "post 5": 29, "take": 30}


def test_a_clock_goes_on_where_it_paused() -> None:
    for last in (None, 3, 7, 8, 20):
        clock, seen = Clock(), list[tuple[int, int]]()

        def note(now: int, phase: int, clock: Clock = clock, seen: list[tuple[int, int]] = seen) -> None:
            seen.append((now, phase))
            if now == 7:
                clock.at(7, lambda now: seen.append((now, 3)), 3)
                clock.pause()

        for cycle in (2, 7, 9, 300):
            for phase in (1, 0):
                clock.at(cycle, lambda now, phase=phase: note(now, phase), phase)
        if last is not None:
            clock.run(last)
            assert [now for now, _ in seen] == [now for now in (2, 2, 7, 7, 7, 7, 9, 9) if now <= min(last, 7)]
            clock.at(max(clock.now, last) + 1, lambda now: None)
        while not clock.idle:
            clock.run()
        assert seen == [(2, 0), (2, 1), (7, 0), (7, 1), (7, 3), (7, 3), (9, 0), (9, 1), (300, 0), (300, 1)]


def test_those_who_ask_in_a_cycle_are_served_in_order_when_it_is_ready() -> None:
    clock, log = Clock(), dict[str, int]()
    order = Ordered(clock, lambda now: now != 11)
    for number in (2, 0, 1):
        clock.at(10, lambda now, number=number: order.ask(now, number, into(log, str(number))))
    clock.run()
    assert log == {"0": 10, "1": 12, "2": 13}


def test_a_record_of_the_mover_goes_before_one_of_a_sync() -> None:
    clock, log = Clock(), dict[str, int]()
    trace = Trace(clock, stores=True)
    clock.at(9, lambda now: trace.dispatched(now + 1))
    clock.at(10, trace.sent)  # and so the dispatcher's a cycle later
    clock.at(10, lambda now: trace.sync(now, 1, into(log, "sync")))
    clock.run()
    assert log == {"sync": 12}


def test_without_trace_memory_no_record_waits() -> None:
    clock, log = Clock(), dict[str, int]()
    trace = Trace(clock, stores=False)
    clock.at(10, trace.sent)
    for unit in (0, 1):
        clock.at(10, lambda now, unit=unit: trace.sync(now, unit, into(log, str(unit))))
    clock.run()
    assert log == {"0": 10, "1": 10}
