# amaranth: UnusedElaboratable=no
"""The board's end of the host link against a model of it, over a line that loses, doubles and garbles bytes."""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import pytest
from amaranth.sim import Simulator

from meshloom.hw.board import frames
from meshloom.hw.board.frames import ARGUMENTS, GREETING, Decoder, Frame, Kind, Outcome, encode
from meshloom.hw.board.link import HostLink
from meshloom.hw.board.uart import Receiver, Transmitter

LANES, CHANNELS, WORDS, BYTES = 4, 2, 256, 64
SESSION = 0x7E7D  # what must be escaped


def request(kind: int, number: int, place: int = 0, value: int = 0, data: bytes = b"", session: int = SESSION) -> Frame:
    return Frame(kind, session, number, ARGUMENTS.pack(place, value) + data)


@dataclass
class Played:
    """A chip's registers and DRAM as the link sees them. `accesses`: of registers, in their order."""

    registers: dict[int, int] = field(default_factory=dict[int, int])
    memory: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    accesses: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])
    resets: int = 0

    def answer(self, asked: Frame) -> Frame:
        """What the board must answer to a request that it has not had before, and what that does."""
        place, value = ARGUMENTS.unpack_from(asked.body)
        data = asked.body[ARGUMENTS.size :]
        at, channel = place & 0xFFFFFF, place >> 24
        body = b""
        if asked.kind == Kind.HELLO:
            body = GREETING.pack(BYTES, LANES, CHANNELS, WORDS)
        elif asked.kind == Kind.READ:
            self.accesses.append(("read", place, 0))
            body = len(self.accesses).to_bytes(4, "little")
        elif asked.kind == Kind.WRITE:
            self.accesses.append(("write", place, value))
        elif asked.kind == Kind.PEEK:
            words = (self.memory.get((channel, at + i), 0) for i in range(value))
            body = b"".join(word.to_bytes(LANES, "little") for word in words)
        elif asked.kind == Kind.POKE:
            for i in range(value):
                self.memory[channel, at + i] = int.from_bytes(data[i * LANES : (i + 1) * LANES], "little")
        elif asked.kind == Kind.RESET:
            self.resets += 1
        return Frame(asked.kind | frames.ANSWER, asked.session, asked.number, body)


class Line:
    """A link in Amaranth's simulator, with a played chip behind it."""

    def __init__(self, link: HostLink) -> None:
        self.link, self.chip = link, Played()
        self.input: list[int] = []
        self.output = bytearray()
        self.idle = 0  #: cycles without a byte either way

    async def clocked(self, ctx: Any) -> None:
        """What the line and the chip do in each cycle."""
        link, chip = self.link, self.chip
        bus, rng = link.registers, random.Random(3)
        was_reset = 0
        ctx.set(link.output.ready, 1)
        while True:
            ctx.set(link.input.valid, bool(self.input))
            if self.input:
                ctx.set(link.input.payload, self.input.pop(0))
                self.idle = 0
            ready = rng.random() < 0.5
            for signal in (bus.awready, bus.wready, bus.arready):
                ctx.set(signal, ready)
            write = (ctx.get(bus.awaddr), ctx.get(bus.wdata)) if ctx.get(bus.awvalid) and ready else None
            read = ctx.get(bus.araddr) if ctx.get(bus.arvalid) and ready else None
            taken = rng.random() < 0.5
            ctx.set(link.memory.ready, taken)
            reading = taken and ctx.get(link.memory.read)
            place = ctx.get(link.memory.channel), ctx.get(link.memory.address)
            if taken and ctx.get(link.memory.write):
                chip.memory[place] = ctx.get(link.memory.data)
            if ctx.get(link.output.valid):
                self.output.append(ctx.get(link.output.payload))
                self.idle = 0
            self.idle += 1
            chip.resets += ctx.get(link.chip_reset) and not was_reset
            was_reset = ctx.get(link.chip_reset)
            await ctx.tick()
            ctx.set(bus.bvalid, 0)
            ctx.set(bus.rvalid, 0)
            if write is not None:
                chip.accesses.append(("write", *write))
                ctx.set(bus.bvalid, 1)
                ctx.set(bus.bresp, 2 if write[0] == 0xEC else 0)
            if read is not None:
                chip.accesses.append(("read", read, 0))
                ctx.set(bus.rdata, len(chip.accesses))
                ctx.set(bus.rvalid, 1)
                ctx.set(bus.rresp, 2 if read == 0xEC else 0)
            ctx.set(link.memory.answer, chip.memory.get(place, 0) if reading else 0xBAD)


def converse(script: Generator[bytes, bytes, None]) -> Line:
    """Runs a host: it yields bytes for the board and gets what the board says until nothing goes on any more."""
    link = HostLink(lanes=LANES, channels=CHANNELS, words=WORDS, data_bytes=BYTES)
    line = Line(link)

    async def host(ctx: Any) -> None:
        data = next(script)
        while True:
            line.input += data
            line.idle, before = 0, len(line.output)
            while line.input or line.idle < 150:
                await ctx.tick()
                if line.idle > 2 and len(line.output) > before + 2 and line.output[-1] == frames.FLAG:
                    break  # a whole answer
            try:
                data = script.send(bytes(line.output[before:]))
            except StopIteration:
                return

    simulator = Simulator(link)
    simulator.add_clock(1e-6)
    simulator.add_testbench(line.clocked, background=True)
    simulator.add_testbench(host)
    simulator.run()
    return line


def answers(*requests: Frame) -> list[Frame]:
    """What a board says to requests, one after the other, each with one answer."""
    said: list[Frame] = []

    def script() -> Generator[bytes, bytes, None]:
        for each in requests:
            said.extend(Decoder().feed((yield encode(each))))

    converse(script())
    assert len(said) == len(requests)
    return said


HELLO = request(Kind.HELLO, 0)


def test_frames_and_garbage_between_them_are_told_apart() -> None:
    rng = random.Random(1)
    some = [Frame(rng.randrange(6), rng.randrange(1 << 16), n, rng.randbytes(rng.randrange(20))) for n in range(50)]
    decoder, data = Decoder(), bytearray()
    for each in some:
        data += rng.randbytes(rng.randrange(9)) + encode(each)
    assert [frame for at in range(0, len(data), 7) for frame in decoder.feed(data[at : at + 7])] == some
    for at in range(len(data)):  # a single wrong byte never makes another frame
        wrong = bytearray(data)
        wrong[at] ^= 0x10
        assert set(Decoder().feed(wrong)) <= set(some)
        if at > 200:
            break


def test_each_request_does_what_it_says() -> None:
    words = bytes(range(0x70, 0x70 + 24))
    requests = [
        HELLO,
        request(Kind.WRITE, 1, 0x10, 0x7E7D007D),
        request(Kind.READ, 2, 0x20),
        request(Kind.POKE, 3, 1 << 24 | 250, 6, words),
        request(Kind.PEEK, 4, 1 << 24 | 250, 6),
        request(Kind.PEEK, 5, 250, 1),
        request(Kind.RESET, 6),
        request(Kind.POKE, 7, 0, 16, bytes(64)),
        request(Kind.HELLO, 8, session=3),
    ]
    played = Played()
    assert answers(*requests) == [played.answer(each) for each in requests]


def test_what_is_wrong_is_refused_and_does_nothing() -> None:
    cases = [
        (request(Kind.READ, 0), Outcome.SESSION),  # before any session
        (HELLO, Outcome.OK),
        (request(Kind.WRITE, 1, session=1), Outcome.SESSION),
        (request(9, 2), Outcome.KIND),
        (request(Kind.WRITE, 3)._replace(version=2), Outcome.VERSION),
        (request(Kind.POKE, 4, 0, 2, bytes(4)), Outcome.LENGTH),
        (request(Kind.READ, 5, 0, 0, bytes(4)), Outcome.LENGTH),
        (request(Kind.PEEK, 6, 0, 17), Outcome.LENGTH),
        (request(Kind.PEEK, 7, 0, 1 << 30), Outcome.LENGTH),
        (request(Kind.PEEK, 8, 0, 0), Outcome.LENGTH),
        (request(Kind.PEEK, 9, 255, 2), Outcome.RANGE),
        (request(Kind.POKE, 10, 2 << 24, 1, bytes(4)), Outcome.RANGE),
        (request(Kind.READ, 11, 0xEC), Outcome.BUS),
        (request(Kind.WRITE, 12, 0xEC), Outcome.BUS),
    ]
    for (each, outcome), said in zip(cases, answers(*(each for each, _ in cases)), strict=True):
        assert (said.outcome, said.number, said.session, said.version) == (outcome, each.number, each.session, 1)
        assert outcome is Outcome.OK or said.body == b""


def test_a_request_that_comes_twice_is_done_once() -> None:
    read, write = request(Kind.READ, 1, 0x3C), request(Kind.WRITE, 2, 8, 1)
    poke = request(Kind.POKE, 3, 0, 1, b"abcd")
    some = [HELLO, read, read, write, write, poke, poke, read._replace(number=4)]
    said = answers(*some)
    assert [int.from_bytes(each.body, "little") for each in said if each.kind & 0x7F == Kind.READ] == [1, 1, 3]
    assert said[3] == said[4]


def garbled(data: bytes, rng: random.Random) -> bytes:
    """A line on a bad day: bytes are lost, changed, doubled or added."""
    out = bytearray()
    for byte in data:
        what = rng.random()
        if what < 0.004:
            continue
        out.append(byte ^ (1 << rng.randrange(8)) if what < 0.008 else byte)
        if what > 0.996:
            out += rng.randbytes(rng.randrange(1, 4))
    return bytes(out)


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_lost_shifted_or_done_twice_on_a_bad_line(seed: int) -> None:
    rng, played = random.Random(seed), Played()
    sent = 0

    def script() -> Generator[bytes, bytes, None]:
        nonlocal sent
        for number in range(20):
            kind = rng.choice([Kind.READ, Kind.WRITE, Kind.PEEK, Kind.POKE, Kind.RESET]) if number else Kind.HELLO
            words = rng.randrange(1, 17)
            data = rng.randbytes(words * LANES) if kind is Kind.POKE else b""
            place = rng.randrange(WORDS - 16) if kind in (Kind.PEEK, Kind.POKE) else rng.randrange(0, 0x68, 4)
            each = request(kind, number, place, rng.getrandbits(32) if kind is Kind.WRITE else words, data)
            right = played.answer(each)
            for _ in range(50):
                sent += 1
                heard = Decoder().feed(garbled((yield garbled(encode(each), rng)), rng))
                ours = [frame for frame in heard if frame.number == number]
                assert heard == ours, "an answer to a request before"
                if ours:
                    assert ours == [right]
                    break
            else:
                pytest.fail("no answer in 50 attempts")

    line = converse(script())
    assert sent > 20  # the line was bad
    assert line.chip == played


@pytest.mark.parametrize("divisor", [4, 7])
def test_a_uart_hears_what_another_says(divisor: int) -> None:
    from amaranth.hdl import Module

    transmitter, receiver = Transmitter(divisor), Receiver(divisor)
    m = Module()
    m.submodules.transmitter, m.submodules.receiver = transmitter, receiver
    m.d.comb += receiver.pin.eq(transmitter.pin)
    data, heard = bytes([0, 0xFF, 0x55, 0xAA, 0x01, 0x80]), bytearray()

    async def listen(ctx: Any) -> None:
        async for _, _, valid, payload in ctx.tick().sample(receiver.output.valid, receiver.output.payload):
            if valid:
                heard.append(payload)

    async def say(ctx: Any) -> None:
        ctx.set(transmitter.input.valid, 1)
        for byte in data:
            ctx.set(transmitter.input.payload, byte)
            await ctx.tick().until(transmitter.input.ready)
        ctx.set(transmitter.input.valid, 0)
        await ctx.tick().repeat(20 * divisor)

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(listen, background=True)
    simulator.add_testbench(say)
    simulator.run()
    assert heard == data


def test_what_cannot_be_built_is_refused() -> None:
    with pytest.raises(ValueError, match="divisor = 3: a UART needs at least 4 cycles"):
        Receiver(3)
    with pytest.raises(ValueError, match="divisor = 3: a UART needs at least 4 cycles"):
        Transmitter(3)
    with pytest.raises(ValueError, match="data_bytes = 18 must be whole words of 4 bytes"):
        HostLink(lanes=4, channels=1, words=16, data_bytes=18)
