"""Requests for DRAM by tile: the queues and the arbiter cycle by cycle, and how long anybody waits."""

from __future__ import annotations

from collections import Counter, deque
from random import Random
from typing import Any

import pytest
from amaranth.back import rtlil  # pyright: ignore[reportAttributeAccessIssue]

from meshloom.hw.memory.dram_port import DramPort
from meshloom.hw.memory.mover import Mover
from meshloom.hw.noc.arbitration import RequestQueues
from meshloom.hw.noc.interface import RequestTaker
from meshloom.hw.spec.config import TileKind, load
from meshloom.hw.spec.contracts import most_credit, read_ahead, words_ahead
from meshloom.hw.spec.isa import Opcode, Region
from meshloom.hw.wiring.signatures import MOVE, requested_move

from .turns import CHIPS, Reference, chip, traffic
from .unit_bench import back_to_back, bits, simulate


def request(config: Any, tile: int, tag: int, words: int) -> int:
    """A requested MOVE; the tile stands where its wait was (`wiring.signatures.requester`)."""
    wait = {"wait_sem": tile & 63, "wait_n": tile >> 6}
    return bits(requested_move(config), code=MOVE.pack({"tag": tag, "words": words, **wait}))


class Bench:
    """Queues beside their reference. In each cycle a request is written with chance `comes`, and read with `goes`."""

    def __init__(self, name: str, seed: int, comes: float, goes: float, cycles: int = 400, gated: bool = False) -> None:
        self.chip, self.random = CHIPS[name], Random(seed)
        self.unit, self.reference = RequestQueues(self.chip), Reference(self.chip)
        self.left = traffic(self.random, self.chip, 200)
        self.comes, self.goes = comes, goes
        self.reads: list[tuple[int, int]] = []  # (cycle, tag)
        self.written: dict[int, int] = {}  # tag to cycle
        self.order: dict[int, list[int]] = {tile: [] for tile in self.chip.tiles}
        simulate(self.unit, cycles, [], [], [], before=self.drive, after=self.look, gated=gated)

    def drive(self, cycle: int, context: Any) -> None:
        self.coming = self.left[0] if self.left and self.random.random() < self.comes else None
        self.taking = self.random.random() < self.goes
        if self.coming is not None:
            context.set(self.unit.w_data, request(self.chip, *self.coming))
        context.set(self.unit.w_en, self.coming is not None)
        context.set(self.unit.r_en, self.taking)

    def look(self, cycle: int, context: Any) -> None:
        unit, reference = self.unit, self.reference
        tile = reference.chosen()
        assert context.get(unit.r_rdy) == (tile is not None), cycle
        if tile is not None:
            data = context.get(unit.r_data)
            assert MOVE.unpack(data & (1 << 256) - 1)["tag"] == reference.queues[tile][0][0], cycle
            assert context.get(unit.r_level) == len(reference.queues[tile]), cycle
            if self.taking:
                self.reads.append((cycle, reference.queues[tile][0][0]))
                self.order[tile].append(reference.queues[tile][0][0])
        enters = None
        if self.coming is not None:
            room = reference.room(self.coming[0])
            assert context.get(unit.w_rdy) == room, cycle
            if room:
                enters = self.left.pop(0)
                self.written[enters[1]] = cycle
        reference.step(enters, self.taking)


@pytest.mark.parametrize(("comes", "goes"), [(0.9, 0.1), (0.3, 0.9), (1.0, 1.0)])
@pytest.mark.parametrize("name", CHIPS)
def test_it_is_decided_as_the_contract_says_in_every_cycle(name: str, comes: float, goes: float) -> None:
    bench = Bench(name, 1, comes, goes, gated=goes == 1.0)
    assert len(bench.reads) > 30
    for tile, order in bench.order.items():  # what one tile requests is read in its order
        requests = [tag for of, tag, _ in traffic(Random(1), bench.chip, 200) if of == tile]
        assert order == requests[: len(order)]


@pytest.mark.parametrize("name", CHIPS)
def test_nobody_waits_for_more_words_than_the_contract_says(name: str) -> None:
    bench = Bench(name, 2, 1.0, 0.4, cycles=1500)
    requests = {tag: (tile, words) for tile, tag, words in traffic(Random(2), bench.chip, 200)}
    longest = max(words for _, words in requests.values())
    latest = dict.fromkeys(bench.chip.tiles, -1)
    waited = 0
    for cycle, tag in bench.reads:
        tile = requests[tag][0]
        first = max(bench.written[tag], latest[tile]) + 1  # the cycle from which it is first in its queue
        others = [requests[other] for at, other in bench.reads if first <= at < cycle]
        assert sum(words for _, words in others) <= words_ahead(bench.chip, tile, longest)
        if bench.chip.dram.arbitration == "round_robin":
            assert max(Counter(of for of, _ in others).values(), default=0) <= 1
        latest[tile] = cycle
        waited += bool(others)
    assert waited > 20


class Greedy:
    """Queues that are full of requests of `words` words, of all tiles; which tile is read how often."""

    def __init__(self, name: str, words: int, cycles: int) -> None:
        self.chip, self.words = CHIPS[name], words
        self.unit, self.reference = RequestQueues(self.chip), Reference(self.chip)
        self.read = Counter[int]()
        simulate(self.unit, cycles, before=self.drive, after=self.look)

    def drive(self, cycle: int, context: Any) -> None:
        self.tile = next((tile for tile in self.chip.tiles if self.reference.room(tile)), None)
        if self.tile is not None:
            context.set(self.unit.w_data, request(self.chip, self.tile, 1, self.words))
        context.set(self.unit.w_en, self.tile is not None)
        context.set(self.unit.r_en, cycle > 40 and cycle % 3 == 0)

    def look(self, cycle: int, context: Any) -> None:
        taken = cycle > 40 and cycle % 3 == 0
        if taken and (tile := self.reference.chosen()) is not None:
            self.read[tile] += 1
        self.reference.step((self.tile, 1, self.words) if self.tile is not None else None, taken)


def test_words_are_shared_as_the_weights_say() -> None:
    greedy = Greedy("weighted-3-of-cores", 50, 1500)
    shares = most_credit(greedy.chip)
    assert shares == (64, 3 * 64, 64, 64, 2 * 64)
    rounds = sum(greedy.read.values()) * greedy.words / sum(shares)
    assert rounds > 40
    for tile, share in zip(greedy.chip.tiles, shares, strict=True):
        assert abs(greedy.read[tile] * greedy.words - rounds * share) <= share + greedy.words


def test_one_queue_has_no_arbiter_and_bounds_nothing() -> None:
    tiny = load("tiny")
    assert "arbiter" not in rtlil.convert(RequestTaker(tiny, 1), name="taker")
    assert "arbiter" in rtlil.convert(RequestTaker(CHIPS["round_robin-3"], 1, shared=True), name="taker")
    with pytest.raises(ValueError, match=r'"fifo" bounds no words; set "round_robin" or "weighted"'):
        words_ahead(tiny, tiny.cores[0], 100)


def test_the_bound_is_that_of_the_contract() -> None:
    assert words_ahead(chip("round_robin"), 0x01, 100) == 4 * 100
    assert words_ahead(chip("weighted", weights=(2, 1, 1)), 0x01, 200) == 4 * 200 + 2 * 4 * (64 + 199)


# -- how far ahead a channel reads ----------------------------------------------------------------------------------


def test_words_in_flight_are_those_of_bursts_without_their_last_beat() -> None:
    config = chip("round_robin")
    unit, random = DramPort(config), Random(3)
    bursts, ahead, beats = deque[int](), 0, 0  # words of each, of all, and beats of the first that have come
    seen: list[int] = []

    def drive(cycle: int, context: Any) -> None:
        words = random.choice((1, 2, 5, 64))
        context.set(unit.read_run.valid, random.random() < (0.3 if cycle % 750 < 200 else 0.003))
        context.set(unit.read_run.payload, {"offset": 0, "words": words})
        context.set(unit.axi.arready, random.random() < 0.8)
        context.set(unit.axi.rvalid, bool(bursts) and random.random() < 0.9)
        context.set(unit.axi.rlast, bool(bursts) and beats == bursts[0] - 1)
        context.set(unit.read_data.ready, random.random() < 0.9)

    def look(cycle: int, context: Any) -> None:
        nonlocal ahead, beats
        assert context.get(unit.read_ahead) == ahead, cycle
        seen.append(ahead)
        arrives = context.get(unit.axi.rvalid) and context.get(unit.axi.rready)
        ends = arrives and context.get(unit.axi.rlast)
        beats = 0 if ends else beats + arrives
        ahead -= bursts.popleft() if ends else 0
        if context.get(unit.read_run.valid) and context.get(unit.read_run.ready):
            bursts.append(context.get(unit.read_run.payload.words))
            ahead += bursts[-1]

    simulate(unit, 1500, before=drive, after=look, gated=True)
    assert max(seen) > 300
    assert seen.count(0) > 5


def test_a_move_is_taken_only_while_little_is_in_flight() -> None:
    config = chip("round_robin")
    most = read_ahead(config)
    assert most == 64 + max(64, config.dram.latency)
    code = MOVE.pack({"opcode": Opcode.MOVE, "words": 1, "src_run": 1, "dst_run": 1, "dst_tile": 1})
    taken = {}
    for ahead in (0, most, most + 1):
        unit = Mover(config, TileKind.DRAM, {Region.MAIN: 100})
        request = back_to_back(unit.remote, [bits(requested_move(config), code=code)])
        simulate(unit, 8, [request], constant={"run_ahead": ahead})
        taken[ahead] = request.taken
    assert taken == {0: [0], most: [0], most + 1: []}


def test_a_channel_of_great_latency_reads_further_ahead() -> None:
    slow = chip("weighted")
    slow = slow.model_copy(update={"dram": slow.dram.model_copy(update={"latency": 500, "bytes_per_cycle": 3})})
    assert read_ahead(slow) == 64 + 375
