"""A code that corrects one wrong bit of a word and detects two (SECDED), and memories whose words have it.

The code is Hsiao's ("A Class of Optimal Minimum Odd-weight-column SEC-DED Codes", IBM Journal of Research and
Development, 1970): each data bit counts in an odd number of check bits, three at least, and no two bits count in the
same ones. So the syndrome of one wrong bit has an odd number of ones and says which bit it is; that of two has an even
number. Zeros are a valid word, and so is every word of a memory that nobody has written yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple, Protocol

from amaranth.hdl import Cat, Const, Elaboratable, Module, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory, ReadPort, WritePort
from amaranth.lib.wiring import Out

from ..spec.config import ChipConfig, check_bits

#: What says to Yosys and to Vivado that a word which is read while it is written is of no use.
COLLISIONS: Mapping[str, Any] = {"no_rw_check": 1, "rw_addr_collision": "no"}


@lru_cache
def columns(bits: int) -> tuple[int, ...]:
    """Of each of `bits` data bits, the check bits in which it counts, as a mask. They are chosen so that all check bits
    have about as many data bits, since the one with the most is the slowest."""
    checks = check_bits(bits)
    loads, left, chosen = [0] * checks, bits, list[int]()
    for ones in range(3, checks + 1, 2):
        free = set(combinations(range(checks), ones))
        for _ in range(min(left, len(free))):
            some = min(free, key=lambda column: (sorted((loads[check] for check in column), reverse=True), column))
            free.remove(some)
            chosen.append(sum(1 << check for check in some))
            for check in some:
                loads[check] += 1
        left = bits - len(chosen)
    return tuple(chosen)


class Decoded(NamedTuple):
    """A word as it was written, if at most one bit of what was read is wrong (`corrected`: one is), with its check bits
    (`coded`) and without them. `lost`: two are."""

    coded: Value
    corrected: Value
    lost: Value
    bits: int

    @property
    def word(self) -> Value:
        """The word itself."""
        return self.coded[: self.bits]


class Code:
    """The code of words of `bits` bits; if it is not `used`, words are as they are. `width`: bits of a word and its
    check bits, which follow it."""

    def __init__(self, bits: int, used: bool) -> None:
        self.bits, self.used = bits, used
        self.width = bits + (check_bits(bits) if used else 0)

    def encode(self, word: Value) -> Value:
        """The word and its check bits."""
        return Cat(word, self._checks(word)) if self.used else word

    def encode_all(self, words: Value) -> Value:
        """Each of some words side by side, and its check bits behind it."""
        if not self.used:
            return words
        return Cat(self.encode(words.word_select(number, self.bits)) for number in range(len(words) // self.bits))

    def decode(self, m: Module, coded: Value, name: str) -> Decoded:
        """What a coded word says. Signals of the decoder are called after `name`."""
        if not self.used:
            return Decoded(coded, Const(0), Const(0), self.bits)
        checks = self.width - self.bits
        syndrome = Signal(checks, name=f"{name}_syndrome")
        right = Signal(self.width, name=f"{name}_corrected")
        m.d.comb += [
            syndrome.eq(coded[self.bits :] ^ self._checks(coded[: self.bits])),
            right.eq(coded ^ Cat(syndrome == sign for sign in (*columns(self.bits), *(1 << i for i in range(checks))))),
        ]
        odd = syndrome.xor()
        return Decoded(right, odd, syndrome.any() & ~odd, self.bits)

    def _checks(self, word: Value) -> Value:
        masks = [0] * check_bits(self.bits)
        for bit, column in enumerate(columns(self.bits)):
            for check in range(len(masks)):
                masks[check] |= (column >> check & 1) << bit
        return Cat((word & mask).xor() for mask in masks)


class ErrorPorts(Protocol):
    """What has `error_ports`."""

    corrected: Signal
    lost: Signal


def error_ports(config: ChipConfig, number: int = 1) -> dict[str, wiring.Member]:
    """Members of the signature of what reads `number` coded memories: `corrected` and `lost`, a bit for each of them,
    levels that are there as long as the word is (see `CodedMemory`). None in chips without `ecc`."""
    return {"corrected": Out(number), "lost": Out(number)} if config.ecc else {}


class CodedRead(NamedTuple):
    """A port of `CodedMemory`, to be read like one of `Memory`: `data` is corrected, as is `coded`, which has the check
    bits of each part behind it."""

    addr: Signal
    data: Signal
    en: Signal | Const
    coded: Signal


class CodedMemory(Elaboratable):
    """A memory of `depth` words of `bits` bits; each part of `part` bits has a code, and comes with its check bits when
    it is written. All ports are made before it is elaborated, as those of `Memory`. Latency and throughput: those of
    `Memory`; a word is corrected in the cycle in which it is read. It stays wrong in the memory until it is written
    again.

    `corrected`, `lost`: that is so of the last word that some port has read. `words`: what is stored.
    """

    def __init__(self, bits: int, depth: int, part: int) -> None:
        self.code, self._bits, self._parts = Code(part, used=True), bits, bits // part
        self.words = Memory(shape=unsigned(self._parts * self.code.width), depth=depth, init=[])
        self._reads: list[tuple[ReadPort, CodedRead, str]] = []
        self.corrected, self.lost = Signal(), Signal()

    def write_port(self, *, granularity: int | None = None) -> WritePort:
        """A write port; with `granularity`, which then has to be the coded `part`, with an enable for each of them."""
        return self.words.write_port(granularity=granularity)

    def read_port(self, *, domain: str = "sync") -> CodedRead:
        """A synchronous read port."""
        port, number = self.words.read_port(domain=domain), len(self._reads)
        word = Signal(self._bits, name=f"read_data_{number}")
        coded = Signal(len(port.data), name=f"coded_{number}")
        self._reads.append((port, CodedRead(port.addr, word, port.en, coded), domain))
        return self._reads[-1][1]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.storage = self.words  # no wire around it has that name
        code = self.code
        corrected: list[Value] = []
        lost: list[Value] = []
        for number, (port, read, domain) in enumerate(self._reads):
            fresh = Signal(name=f"fresh_{number}")  # before, the port shows what memories show at first
            with m.If(port.en):
                m.d[domain] += fresh.eq(1)
            for part in range(self._parts):
                stored = port.data.word_select(part, code.width)
                decoded = code.decode(m, stored, f"port_{number}_{part}")
                m.d.comb += read.data.word_select(part, code.bits).eq(decoded.word)
                m.d.comb += read.coded.word_select(part, code.width).eq(decoded.coded)
                corrected.append(fresh & decoded.corrected)
                lost.append(fresh & decoded.lost)
        m.d.comb += [self.corrected.eq(Cat(corrected).any()), self.lost.eq(Cat(lost).any())]
        return m


def word_memory(bits: int, depth: int, ecc: bool, part: int | None = None) -> Memory | CodedMemory:
    """A memory of words of `bits` bits; with `ecc`, each part of `part` bits (by default: the word) has a code.

    Without a code, a part that is read in the cycle in which it is written is undefined: no unit uses it, and no
    program that the checker accepts. Synthesis then needs nothing around a block RAM. Other parts of the word are
    there: parts are whole bytes, which a block RAM keeps apart.
    """
    if ecc:
        return CodedMemory(bits, depth, part or bits)
    return Memory(shape=unsigned(bits), depth=depth, init=[], attrs=dict(COLLISIONS))


def coded_data(port: ReadPort | CodedRead) -> Signal:
    """What a port of a `word_memory` reads, with its check bits if it has any."""
    return port.coded if isinstance(port, CodedRead) else port.data


def show_errors(m: Module, unit: ErrorPorts, *memories: Memory | CodedMemory) -> None:
    """Drives the `error_ports` of a unit from its memories, in their order; nothing in chips without `ecc`."""
    coded = [memory for memory in memories if isinstance(memory, CodedMemory)]
    if coded:
        m.d.comb += unit.corrected.eq(Cat(memory.corrected for memory in coded))
        m.d.comb += unit.lost.eq(Cat(memory.lost for memory in coded))
