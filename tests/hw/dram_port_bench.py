"""Coroutines that run inside the simulator: the DRAM port against the DRAM model.

cocotb loads this file as a module of its own, outside any package; `test_dram_port.py` builds the simulators.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from meshloom.hw.spec.config import load
from meshloom.hw.spec.contracts import (
    ADDRESS_CYCLES,
    BEAT_CYCLES,
    CREDIT_WORDS,
    DRAM_BURSTS,
    NOTICE_CYCLES,
    NOTICE_INTERVAL,
    PORT_WORDS,
    RESPONSE_CYCLES,
)

#: Name to width factors of the streams: a fixed number of bits, or 0 for a word.
STREAMS_IN = {"read_run": 31, "write_head": 46, "write_data": 0}
STREAMS_OUT = {"read_data": 0, "written": 15}
AXI_CHANNELS = {
    "ar": ("arid", "araddr", "arlen", "arsize", "arburst"),
    "r": ("rdata", "rresp", "rlast", "rid"),
    "aw": ("awid", "awaddr", "awlen", "awsize", "awburst"),
    "w": ("wdata", "wstrb", "wlast"),
    "b": ("bresp", "bid"),
}


@dataclass(frozen=True)
class Setting:
    """One simulator: the port's chip and the model's parameters."""

    chip: str
    words: int
    latency: int
    rate: int
    write_latency: int

    @property
    def lanes(self) -> int:
        return load(self.chip).lanes

    @property
    def longest(self) -> int:
        """Words of the longest run; none crosses a multiple of as many."""
        return load(self.chip).packet_words


SETTINGS = {
    "tiny": Setting("tiny", words=1000, latency=1, rate=4, write_latency=1),
    "quad16": Setting("quad16", words=1024, latency=40, rate=16, write_latency=RESPONSE_CYCLES),
    "slow": Setting("quad16", words=1024, latency=9, rate=6, write_latency=3),
    "mono32": Setting("mono32", words=900, latency=17, rate=31, write_latency=9),
    "server1": Setting("server1", words=900, latency=11, rate=99, write_latency=RESPONSE_CYCLES),
}


def old_word(at: int, lanes: int) -> int:
    """What word `at` holds when the simulation starts."""
    return random.Random(at).getrandbits(8 * lanes)


def always() -> bool:
    return True


class Bench:
    """Drives all streams from queues, and logs every transfer as (cycle, payload) under the name of its channel."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.setting = SETTINGS[os.environ["DRAM_SETTING"]]
        self.lanes, self.longest = self.setting.lanes, self.setting.longest
        self.cycle = 0
        self.queues: dict[str, deque[int]] = {name: deque() for name in STREAMS_IN}
        self.offered: dict[str, bool] = dict.fromkeys(STREAMS_IN, False)
        self.keen: dict[str, Callable[[], bool]] = dict.fromkeys((*STREAMS_IN, *STREAMS_OUT), always)
        self.log: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
        self.waiting: dict[str, tuple[int, ...]] = {}
        self.channels = {name: (name, fields) for name, fields in AXI_CHANNELS.items()}
        self.channels |= {name: (f"{name}_", (f"{name}_payload",)) for name in (*STREAMS_IN, *STREAMS_OUT)}
        self.forget()

    def forget(self) -> None:
        """Empties the log."""
        self.log = {name: [] for name in (*self.channels, "fault")}

    async def start(self) -> None:
        """Clock and reset."""
        cocotb.start_soon(Clock(self.dut.clk, 10, "ns").start())
        self.dut.rst.value = 1
        for _ in range(3):
            await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0
        for _ in range(3):
            await self.step()

    def read(self, offset: int, words: int) -> None:
        self.queues["read_run"].append(offset | words << 24)

    def write(self, offset: int, data: list[int], notice: int = 0) -> None:
        self.queues["write_head"].append(offset | len(data) << 24 | notice << 31)
        self.queues["write_data"].extend(data)

    async def step(self) -> None:
        """One cycle: offers, then notes what was transferred, and that no one takes back what he has offered."""
        dut = self.dut
        for name, queue in self.queues.items():
            if not self.offered[name] and queue and self.keen[name]():
                self.offered[name] = True
                getattr(dut, f"{name}_payload").value = queue[0]
            getattr(dut, f"{name}_valid").value = int(self.offered[name])
        for name in STREAMS_OUT:
            getattr(dut, f"{name}_ready").value = int(self.keen[name]())
        await RisingEdge(dut.clk)
        self.cycle += 1
        for name, (prefix, fields) in self.channels.items():
            if not int(getattr(dut, f"{prefix}valid").value):
                assert name not in self.waiting, f"{name}: valid fell in cycle {self.cycle}"
                continue
            payload = tuple(int(getattr(dut, field).value) for field in fields)
            assert self.waiting.pop(name, payload) == payload, f"{name}: payload changed in cycle {self.cycle}"
            if int(getattr(dut, f"{prefix}ready").value):
                self.log[name].append((self.cycle, payload))
                if name in self.queues:
                    self.queues[name].popleft()
                    self.offered[name] = False
            else:
                self.waiting[name] = payload
        if int(dut.fault.value):
            self.log["fault"].append((self.cycle, (int(dut.fault_offset.value), int(dut.fault_write.value))))
        assert not int(dut.protocol_error.value)

    async def until(self, **counts: int) -> None:
        """Runs until the log has that many transfers of these channels, then a few cycles more."""
        for _ in range(20000):
            if all(len(self.log[name]) >= count for name, count in counts.items()):
                break
            await self.step()
        for _ in range(4):
            await self.step()
        assert {name: len(self.log[name]) for name in counts} == counts

    def cycles(self, name: str) -> list[int]:
        return [cycle for cycle, _ in self.log[name]]

    def values(self, name: str) -> list[int]:
        return [payload[0] for _, payload in self.log[name]]


def beats(earliest: Iterable[int], lanes: int, rate: int) -> list[int]:
    """The cycles in which beats go that could go from the cycles `earliest`: the model's bucket in closed form."""
    result: list[int] = []
    most = CREDIT_WORDS * lanes
    bucket, last = most, -(10**9)
    for cycle in earliest:
        cycle = max(cycle, last + 1, last + -(-(lanes - bucket) // rate))
        bucket = min(most, bucket + rate * (cycle - last)) - lanes
        last = cycle
        result.append(cycle)
    return result


def words_of(rng: random.Random, count: int, lanes: int) -> list[int]:
    return [rng.getrandbits(8 * lanes) for _ in range(count)]


def random_run(rng: random.Random, low: int, high: int, longest: int) -> tuple[int, int]:
    """(offset, words) of a legal run inside [low, high)."""
    offset = rng.randrange(low, high)
    most = min(longest - offset % longest, high - offset)
    return offset, rng.choice((1, most, rng.randint(1, most)))


@cocotb.test()
async def latency_of_one_read(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    bench.read(64, 3)
    await bench.until(read_data=3)
    (accepted,) = bench.cycles("read_run")
    assert bench.cycles("ar") == [accepted + ADDRESS_CYCLES]
    assert bench.log["ar"][0][1] == (0, 64 * bench.lanes, 2, bench.lanes.bit_length() - 1, 1)
    first = accepted + ADDRESS_CYCLES + bench.setting.latency
    assert bench.cycles("r") == beats([first, first + 1, first + 2], bench.lanes, bench.setting.rate)
    assert bench.cycles("read_data") == [cycle + BEAT_CYCLES for cycle in bench.cycles("r")]
    assert bench.values("read_data") == [old_word(at, bench.lanes) for at in (64, 65, 66)]


@cocotb.test()
async def latency_of_one_write(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    data = words_of(random.Random(3), 2, bench.lanes)
    bench.write(192, data, notice=0x5A5A)
    await bench.until(written=1)
    (accepted,) = bench.cycles("write_head")
    assert bench.cycles("aw") == [accepted + ADDRESS_CYCLES]
    assert bench.log["aw"][0][1] == (0, 192 * bench.lanes, 1, bench.lanes.bit_length() - 1, 1)
    assert bench.cycles("write_data") == [accepted + 1, accepted + 2]
    assert bench.cycles("w") == beats(
        [accepted + 1 + BEAT_CYCLES, accepted + 2 + BEAT_CYCLES], bench.lanes, bench.setting.rate
    )
    strobes = (1 << bench.lanes) - 1
    assert [payload for _, payload in bench.log["w"]] == [(data[0], strobes, 0), (data[1], strobes, 1)]
    assert bench.cycles("b") == [bench.cycles("w")[-1] + bench.setting.write_latency]
    assert bench.log["written"] == [(bench.cycles("b")[0] + NOTICE_CYCLES, (0x5A5A,))]
    assert [int(dut.dram.mem[192 + at].value) for at in (0, 1)] == data


@cocotb.test()
async def reads_stream_at_the_full_rate(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    longest = bench.longest
    runs = [(longest * block, longest) for block in range(6)] + [(500 + at, 1) for at in range(8)] + [(515, 20)]
    for offset, words in runs:
        bench.read(offset, words)
    await bench.until(read_data=sum(words for _, words in runs))
    first = bench.cycles("read_run")[0]
    assert bench.cycles("ar") == list(range(first + 1, first + 1 + len(runs))), "one address per cycle"
    bursts = zip(bench.cycles("ar"), runs, strict=True)
    earliest = [cycle + bench.setting.latency for cycle, (_, words) in bursts for _ in range(words)]
    assert bench.cycles("r") == beats(earliest, bench.lanes, bench.setting.rate)
    assert bench.cycles("read_data") == [cycle + 1 for cycle in bench.cycles("r")]
    if bench.setting.rate == bench.lanes:
        assert all(b - a == 1 for a, b in pairwise(bench.cycles("read_data")))


@cocotb.test()
async def packets_are_written_back_to_back(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    rng, longest = random.Random(4), bench.longest
    lengths = (longest, longest, 1, 1, 1, 1, 5, longest)
    packets = [(longest * block, words_of(rng, words, bench.lanes)) for block, words in enumerate(lengths)]
    for number, (offset, data) in enumerate(packets):
        bench.write(offset, data, notice=number + 1)
    await bench.until(written=len(packets))
    heads = bench.cycles("write_head")
    if bench.setting.rate == bench.lanes:
        assert [b - a for a, b in pairwise(heads)] == [len(data) + 1 for _, data in packets[:-1]]
        assert bench.cycles("w") == [cycle + 1 for cycle in bench.cycles("write_data")]
    first = heads[0] + 2
    assert bench.cycles("w")[:longest] == beats(range(first, first + longest), bench.lanes, bench.setting.rate)
    assert bench.values("written") == list(range(1, len(packets) + 1))
    for offset, data in packets:
        assert [int(dut.dram.mem[offset + at].value) for at in range(len(data))] == data
    # notices that nobody has taken for a while
    bench.forget()
    stalled = [True]
    bench.keen["written"] = lambda: not stalled[0]
    for at in range(5):
        bench.write(at, words_of(rng, 1, bench.lanes))
    for _ in range(80):
        await bench.step()
    stalled[0] = False
    await bench.until(written=5)
    assert {b - a for a, b in pairwise(bench.cycles("written"))} == {NOTICE_INTERVAL}


@cocotb.test()
async def random_traffic(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    rng, size = random.Random(5), bench.setting.words
    half = size // 2
    contents = {at: int(dut.dram.mem[at].value) for at in range(size)}
    for keenness in (0.3, 1.0, 0.8):
        for name in bench.keen:
            bench.keen[name] = (lambda chance: lambda: rng.random() < chance)(rng.choice((keenness, 1.0)))
        bench.forget()
        reads = [random_run(rng, 0, half, bench.longest) for _ in range(14)]  # of the half that is not written now
        writes = [random_run(rng, half, size, bench.longest) for _ in range(14)]
        notices = [rng.getrandbits(15) for _ in writes]
        for offset, words in reads:
            bench.read(offset, words)
        for (offset, words), notice in zip(writes, notices, strict=True):
            data = words_of(rng, words, bench.lanes)
            bench.write(offset, data, notice)
            contents.update(zip(range(offset, offset + words), data, strict=True))
        await bench.until(read_data=sum(words for _, words in reads), written=len(writes))
        expected = [contents[at] for offset, words in reads for at in range(offset, offset + words)]
        assert bench.values("read_data") == expected
        assert bench.values("written") == notices
        assert not bench.log["fault"]
    assert {at: int(dut.dram.mem[at].value) for at in range(size)} == contents


@cocotb.test()
async def reads_and_writes_share_the_channel_fairly(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(6)
    bench.keen["read_data"] = always
    blocks = 128 // bench.longest
    for block in range(blocks):
        bench.read(bench.longest * block, bench.longest)
        bench.write(512 + bench.longest * block, words_of(rng, bench.longest, bench.lanes))
    await bench.until(read_data=128, written=blocks)
    # The bursts of both kinds, while a word of each waits all the time: they alternate.
    reads, writes = bench.cycles("r"), bench.cycles("w")
    assert not set(reads) & set(writes), "one beat per cycle"
    start, end = max(reads[0], writes[0]), min(reads[63], writes[63])
    kinds = [kind for _, kind in sorted([(c, "r") for c in reads] + [(c, "w") for c in writes]) if start <= _ <= end]
    assert len(kinds) > 40
    assert all(a != b for a, b in pairwise(kinds)), "".join(kinds)
    # Bursts under way are limited, and no one is lost when the limit holds.
    bench.forget()
    stalled = [False]
    bench.keen["read_data"] = lambda: not stalled[0]
    stalled[0] = True
    for at in range(DRAM_BURSTS + 9):
        bench.read(at, 1)
    for _ in range(bench.setting.latency + 60):
        await bench.step()
    # Two words wait in the port behind bursts that have ended; all others are queued.
    assert len(bench.log["ar"]) == DRAM_BURSTS + PORT_WORDS
    stalled[0] = False
    await bench.until(read_data=DRAM_BURSTS + 9)


@cocotb.test()
async def accesses_past_the_end_are_faults_and_do_not_hang(dut: Any) -> None:
    bench = Bench(dut)
    await bench.start()
    size, lanes, longest = bench.setting.words, bench.lanes, bench.longest
    before = {at: int(dut.dram.mem[at].value) for at in range(size)}
    whole = size % longest == 0
    over = size if whole else size - 2  # a burst that begins inside, or right behind the end
    far = (1 << 24) - longest
    bench.read(over, 3)
    bench.read(size - 2, 2)  # just fits
    bench.read(far, longest)
    bench.write(over, [1] * 3, notice=11)
    bench.write(size - 4, [77, 78], notice=12)
    bench.write(far, [2] * longest, notice=13)
    await bench.until(read_data=5 + longest, written=3)
    assert bench.values("read_data") == [0] * 3 + [before[size - 2], before[size - 1]] + [0] * longest
    assert bench.values("written") == [11, 12, 13]
    faults = sorted(payload for _, payload in bench.log["fault"])
    assert faults == sorted([(over, 0), (far, 0), (over, 1), (far, 1)])
    assert {at: int(dut.dram.mem[at].value) for at in range(size)} == before | {size - 4: 77, size - 3: 78}
    bad_beats = [cycle for cycle, payload in bench.log["r"] if payload[1]]
    assert (bad_beats[0] + 2, (over, 0)) in bench.log["fault"]
    # A read and a write that fail in the same cycle are both reported, the read first.
    for delay in range(20, -60, -1):
        bench.forget()
        start = bench.cycle
        sent = [False, False]
        while not all(sent) or len(bench.log["written"]) < 1 or len(bench.log["read_data"]) < 1:
            if not sent[0] and bench.cycle >= start + max(0, delay):
                bench.read(far, 1)
                sent[0] = True
            if not sent[1] and bench.cycle >= start + max(0, -delay):
                bench.write(far + 1, [lanes])
                sent[1] = True
            await bench.step()
        for _ in range(4):
            await bench.step()
        assert sorted(payload for _, payload in bench.log["fault"]) == [(far, 0), (far + 1, 1)]
        if bench.cycles("r") == bench.cycles("b"):
            break
    else:
        raise AssertionError("no delay made R and B come together")
    at = bench.cycles("r")[0] + 2
    assert bench.log["fault"] == [(at, (far, 0)), (at + 1, (far + 1, 1))]
