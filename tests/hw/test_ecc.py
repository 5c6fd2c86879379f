"""The code of words: what it corrects and detects; memories with it; what a tile makes of wrong bits."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib.memory import Memory
from amaranth.sim import Simulator

from meshloom.hw.assembly import tile_errors
from meshloom.hw.assembly.tile import Tile
from meshloom.hw.control.error_watch import ErrorWatch
from meshloom.hw.memory.bank import Bank
from meshloom.hw.memory.dram_port import DramPort
from meshloom.hw.noc.data_receiver import DataReceiver
from meshloom.hw.spec.config import TileKind, check_bits, load
from meshloom.hw.spec.isa import DATA_HEAD, POST, Cause, Region, address, data_flit_bits, with_parity
from meshloom.hw.wiring.ecc import Code, CodedMemory, columns, error_ports, word_memory

from ..tiers import slow_but

WIDTHS = (8, 32, 64, 128, 256, 512, 1024)


def clocked(block: Any, body: Any) -> None:
    simulator = Simulator(block)
    simulator.add_clock(1e-6)
    simulator.add_testbench(body)
    simulator.run()


@pytest.mark.parametrize("bits", WIDTHS)
def test_no_two_bits_have_the_same_check_bits(bits: int) -> None:
    """So all of one wrong bit have syndromes of their own, with an odd number of ones, and two an even one, not 0."""
    some = columns(bits)
    assert len(set(some)) == bits
    assert all(column.bit_count() >= 3 and column.bit_count() % 2 for column in some)
    assert max(some).bit_length() <= check_bits(bits)
    loads = [sum(column >> check & 1 for column in some) for check in range(check_bits(bits))]
    assert max(loads) - min(loads) <= 1 + bits // 50


def test_check_bits_are_those_of_the_literature() -> None:
    assert {bits: check_bits(bits) for bits in WIDTHS} == {
        8: 5, 32: 7, 64: 8, 128: 9, 256: 10, 512: 11, 1024: 12,
    }  # fmt: skip
    assert Code(64, used=False).width == 64
    assert Code(64, used=True).width == 72


@pytest.mark.parametrize("bits", [8, 32])
def test_every_bit_and_every_pair_of_bits(bits: int) -> None:
    code = Code(bits, used=True)
    m = Module()
    word, flips = Signal(bits), Signal(code.width)
    decoded = code.decode(m, code.encode(word) ^ flips, "any")

    async def body(ctx: Any) -> None:
        rng = random.Random(bits)
        for some in [(), *combinations(range(code.width), 1), *combinations(range(code.width), 2)]:
            value = rng.randrange(1 << bits)
            ctx.set(word, value)
            ctx.set(flips, sum(1 << bit for bit in some))
            corrected, lost = ctx.get(decoded.corrected), ctx.get(decoded.lost)
            assert (corrected, lost) == (len(some) == 1, len(some) == 2), some
            assert len(some) == 2 or ctx.get(decoded.word) == value, some

    simulator = Simulator(m)
    simulator.add_testbench(body)
    simulator.run()


def test_a_memory_of_parts_corrects_each_of_them() -> None:
    """Words of four parts that are written one by one, like those of ACC."""
    m = Module()
    m.submodules.memory = memory = CodedMemory(32, 4, 8)
    word, encoded = Signal(8), Signal(13)
    m.d.comb += encoded.eq(memory.code.encode(word))
    write, read = memory.write_port(granularity=13), memory.read_port()
    storage = memory.words.data
    coded = memory.code.width

    async def body(ctx: Any) -> None:
        assert ctx.get(memory.lost) == ctx.get(memory.corrected) == 0
        for part, value in enumerate((0x11, 0x22, 0x33, 0x44)):
            ctx.set(write.addr, 2)
            ctx.set(word, value)
            ctx.set(write.data, ctx.get(encoded) << 13 * part)
            ctx.set(write.en, 1 << part)
            await ctx.tick()
        ctx.set(write.en, 0)
        ctx.set(read.en, 1)
        right = ctx.get(storage[2])
        for place, flips, value, errors in (
            (2, 0, 0x44332211, (0, 0)),
            (1, 0, 0, (0, 0)),  # nobody has written it
            (2, 1 << 3, 0x44332211, (1, 0)),
            (2, 1 << 3 | 1 << coded + 1 | 1 << 4 * coded - 1, 0x44332211, (1, 0)),  # one in each of three parts
            (2, 3 << 2 * coded, None, (0, 1)),
            (2, 0, 0x44332211, (0, 0)),
        ):
            ctx.set(storage[2], right ^ flips)
            ctx.set(read.addr, place)
            await ctx.tick()
            assert (ctx.get(memory.corrected), ctx.get(memory.lost)) == errors
            assert value is None or ctx.get(read.data) == value
            assert value is None or ctx.get(read.coded) == (right if value else 0)

    clocked(m, body)


def test_a_chip_without_it_has_plain_memories_and_links() -> None:
    plain = load("tiny")
    coded = plain.model_copy(update={"ecc": True})
    m = Module()
    m.submodules.words = words = word_memory(32, 4, plain.ecc)
    assert isinstance(words, Memory)
    Simulator(m)  # so that it has been of use
    assert not error_ports(plain)
    assert (data_flit_bits(plain), data_flit_bits(coded)) == (64, 71)
    assert plain.digest == plain.model_copy(update={"ecc": False}).digest != coded.digest


def test_the_watch_counts_corrections_and_raises_what_is_lost() -> None:
    watch = ErrorWatch(3)

    async def body(ctx: Any) -> None:
        def put(corrected: int, lost: int) -> tuple[int, ...]:
            ctx.set(watch.corrected, corrected)
            ctx.set(watch.lost, lost)
            fault = watch.fault
            return tuple(ctx.get(each) for each in (fault.valid, fault.cause, fault.value, watch.active))

        for source in range(3):
            ctx.set(watch.address(source), 100 + source)
        for corrected, lost, fault, active, total in (
            (0, 0, None, 0, 0),
            (0b101, 0, None, 1, 0),  # two words at once
            (0b101, 0, None, 0, 2),  # the same two, still there
            (0b010, 0, None, 1, 2),
            (0, 0b110, 101, 1, 3),
            (0, 0b110, None, 0, 3),  # a fault is raised once
            (0, 0b100, None, 1, 3),
            (0, 0b101, 100, 1, 3),
        ):
            valid, cause, value, wakes = put(corrected, lost)
            assert (valid, wakes) == (fault is not None, active)
            assert fault is None or (cause, value) == (Cause.ECC, fault)
            assert ctx.get(watch.total) == total
            await ctx.tick()

    clocked(watch, body)


def coded(word: int, bits: int) -> int:
    """A word and its check bits, as a reader of the paper would write it."""
    some = [column for bit, column in enumerate(columns(bits)) if word >> bit & 1]
    checks = 0
    for column in some:
        checks ^= column
    return word | checks << bits


#: A chip of words of 32 bits, whose coded words have 39, in flits of 64 and 7 bits.
CHIP = load("tiny").model_copy(update={"ecc": True})


def flipped(number: int, *bits: int) -> int:
    for bit in bits:
        number ^= 1 << bit
    return number


#: Bits that flip, whether they are corrected, and whether the word is lost.
FLIPS = [((), 0, 0), ((0,), 1, 0), ((31,), 1, 0), ((33,), 1, 0), ((2, 38), 0, 1), ((), 0, 0)]


@pytest.mark.parametrize("region", [Region.OUT, Region.MAIN])
def test_a_receiver_corrects_what_it_writes_and_leaves_to_the_dram_port_what_goes_there(region: Region) -> None:
    unit = DataReceiver(CHIP, {Region.OUT: 64, Region.MAIN: 64}, dram=True)
    words, at = [0xDEADBEEF, 1, 0x80000001, 0, 77, 5], address(region, 8)
    head = with_parity(DATA_HEAD, DATA_HEAD.pack({"dst_tile": 1, "addr": at, "words": len(words)}))

    async def body(ctx: Any) -> None:
        for ready in (unit.write.ready, unit.burst.ready, unit.burst_data.ready, unit.delivered.ready):
            ctx.set(ready, 1)
        ctx.set(unit.flit.valid, 1)
        ctx.set(unit.flit.payload.data, head)
        assert ctx.get(unit.lost) == ctx.get(unit.corrected) == 0, "heads have no code"
        await ctx.tick()
        for number, (word, (bits, corrected, lost)) in enumerate(zip(words, FLIPS, strict=True)):
            right = coded(word, 32)
            wrong = flipped(right, *bits)
            ctx.set(unit.flit.payload.data, wrong & 0xFFFFFFFF | wrong >> 32 << 64)
            ctx.set(unit.flit.payload.last, number == len(words) - 1)
            if region is Region.MAIN:
                assert (ctx.get(unit.corrected), ctx.get(unit.lost)) == (0, 0)
                assert ctx.get(unit.burst_data.payload) == wrong
            else:
                assert (ctx.get(unit.corrected), ctx.get(unit.lost)) == (corrected, lost)
                assert lost or ctx.get(unit.write.payload.data) == right
                assert ctx.get(unit.packet_address) == at
            await ctx.tick()

    clocked(unit, body)


def test_what_goes_to_dram_is_corrected_before_it_leaves() -> None:
    port = DramPort(CHIP)
    words = [0xDEADBEEF, 1, 0x80000001, 0, 77, 5]

    async def body(ctx: Any) -> None:
        for ready in (port.axi.awready, port.axi.wready):
            ctx.set(ready, 1)
        ctx.set(port.write_head.valid, 1)
        ctx.set(port.write_head.payload.words, len(words))
        await ctx.tick()
        ctx.set(port.write_head.valid, 0)
        ctx.set(port.write_data.valid, 1)
        for word, (bits, corrected, lost) in zip(words, FLIPS, strict=True):
            ctx.set(port.write_data.payload, flipped(coded(word, 32), *bits))
            await ctx.tick()
            assert ctx.get(port.axi.wvalid)
            assert (ctx.get(port.corrected), ctx.get(port.lost)) == (corrected, lost)
            assert lost or ctx.get(port.axi.wdata) == word
        assert ctx.get(port.axi.wlast)

    clocked(port, body)


def test_what_comes_from_dram_gets_a_code() -> None:
    port = DramPort(CHIP)

    async def body(ctx: Any) -> None:
        for number, word in enumerate((0xDEADBEEF, 0, 3)):
            ctx.set(port.axi.rvalid, 1)
            ctx.set(port.axi.rdata, word)
            await ctx.tick()
            ctx.set(port.axi.rvalid, 0)
            assert ctx.get(port.read_data.payload) == coded(word, 32), number
            ctx.set(port.read_data.ready, 1)
            await ctx.tick()

    clocked(port, body)


def test_a_scratchpad_keeps_the_code_and_hands_it_on() -> None:
    bank = Bank(CHIP)

    async def body(ctx: Any) -> None:
        right = coded(0xDEADBEEF, 32)
        for bits, corrected, lost in FLIPS:
            ctx.set(bank.write.valid, 1)
            ctx.set(bank.write.payload.offset, 5)
            ctx.set(bank.write.payload.data, flipped(right, *bits))
            await ctx.tick()
            ctx.set(bank.write.valid, 0)
            ctx.set(bank.read.valid, 1)
            ctx.set(bank.read.payload.offset, 5)
            await ctx.tick()
            assert (ctx.get(bank.corrected), ctx.get(bank.lost)) == (corrected, lost)
            assert lost or ctx.get(bank.read_data) == right

    clocked(bank, body)


#: What is watched in each kind of tile.
SOURCES = {TileKind.CORE: 9, TileKind.SPM: 3, TileKind.DRAM: 3, TileKind.HOST: 2}


@pytest.mark.parametrize("kind", slow_but(SOURCES, TileKind.CORE, TileKind.SPM))
def test_a_tile_watches_all_that_has_a_code(kind: TileKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """What arrives, a ring for each stream, and its memories; A, B, ACC, OUT and VEC of a core."""
    watches: list[ErrorWatch] = []

    class Watch(ErrorWatch):
        def __init__(self, sources: int) -> None:
            super().__init__(sources)
            watches.append(self)

    monkeypatch.setattr(tile_errors, "ErrorWatch", Watch)
    simulator = Simulator(Tile(CHIP, kind))
    simulator.add_clock(1e-6)
    assert [watch.sources for watch in watches] == [SOURCES[kind]]


@pytest.mark.parametrize("bits", [(3,), (3, 9)])
def test_a_tile_reports_a_word_that_is_lost_on_its_way(bits: tuple[int, ...]) -> None:
    tile, at = Tile(CHIP, TileKind.SPM), address(Region.MAIN, 70)
    head = with_parity(DATA_HEAD, DATA_HEAD.pack({"dst_tile": 17, "addr": at, "words": 1}))
    wrong = flipped(coded(0xDEADBEEF, 32), *bits)

    async def body(ctx: Any) -> None:
        for signal, value in ((tile.tile, 17), (tile.host, 16), (tile.go, 1)):
            ctx.set(signal, value)
        await ctx.tick().repeat(70)  # the semaphores are cleared first
        ctx.set(tile.data_in.valid, 1)
        ctx.set(tile.data_in.payload.data, head)
        await ctx.tick().until(tile.data_in.ready)
        ctx.set(tile.data_in.payload.data, wrong & 0xFFFFFFFF | wrong >> 32 << 64)
        ctx.set(tile.data_in.payload.last, 1)
        await ctx.tick().until(tile.data_in.ready)
        ctx.set(tile.data_in.valid, 0)
        posts: list[dict[str, int]] = []
        for _ in range(8):
            if ctx.get(tile.post_out.valid):
                posts.append(POST.unpack(ctx.get(tile.post_out.payload.data)))
            ctx.set(tile.post_out.ready, 1)
            await ctx.tick()
        faults = [(post["cause"], post["tile"], post["value"]) for post in posts if post["fault"]]
        assert faults == ([] if len(bits) == 1 else [(Cause.ECC, 17, at)])

    clocked(tile, body)
