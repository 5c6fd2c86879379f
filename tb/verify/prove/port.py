"""A DRAM port comes to rest as AXI wants it: what it has offered stays until it is taken, and no burst is left open.

The memory behind it answers when it likes, and only what it was asked; those that use the port stop where they are.
"""

from __future__ import annotations

from types import ModuleType

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from meshloom.hw.memory import dram_port
from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import DRAM_BURSTS

from .engine import Bench, Shown
from .probe import Inside

#: Bits of counters of bursts, which never wrap.
_BITS = 6
_CHIP = ChipConfig.model_validate({"name": "small", "lanes": 4, "floorplan": ["dram core host"]})


class _OpenPort:
    """A port with free inputs; its two sides, and counts of what is open at the memory's."""

    def __init__(self, source: ModuleType) -> None:
        self.top = top = Module()
        top.submodules.port = self.unit = unit = source.DramPort(_CHIP)
        self.inner = Inside(unit, ["words"])
        self.inputs: list[Signal] = []
        for stream, name in ((unit.read_run, "read"), (unit.write_head, "write")):
            words = self.free(f"{name}_words", 2)
            top.d.comb += [stream.valid.eq(self.free(f"{name}_asked") & (words != 0)), stream.payload.words.eq(words)]
        top.d.comb += unit.write_data.valid.eq(self.free("word_comes"))
        top.d.comb += unit.read_data.ready.eq(self.free("word_taken"))
        top.d.comb += unit.written.ready.eq(self.free("notice_taken"))
        self.asked = Signal(name="asked")  # to come to rest, for good
        top.d.sync += self.asked.eq(self.asked | self.free("ask"))
        top.d.comb += unit.quiesce.eq(self.asked)
        for name in ("arready", "rvalid", "rlast", "awready", "wready", "bvalid"):
            top.d.comb += getattr(unit.axi, name).eq(self.free(name))
        self.reads, self.addressed, self.complete = (
            Signal(_BITS, name=name) for name in ("reads_open", "addressed", "complete")
        )
        axi = unit.axi
        answered = self.moves("b")
        top.d.sync += [
            self.reads.eq(self.reads + self.moves("ar") - (self.moves("r") & axi.rlast)),
            self.addressed.eq(self.addressed + self.moves("aw") - answered),
            self.complete.eq(self.complete + (self.moves("w") & axi.wlast) - answered),
        ]

    def free(self, name: str, width: int = 1) -> Signal:
        """A new input."""
        self.inputs.append(Signal(width, name=name))
        return self.inputs[-1]

    def moves(self, channel: str) -> Value:
        """A transfer on an AXI channel."""
        return getattr(self.unit.axi, f"{channel}valid") & getattr(self.unit.axi, f"{channel}ready")

    def stable(self, channel: str, *names: str) -> tuple[Value, Signal]:
        """What is offered on a channel stays until it is taken; and whether it had to stay in this cycle."""
        axi = self.unit.axi
        offer = Cat(*(getattr(axi, channel + name) for name in names))
        before, stays = Signal(len(offer), name=f"{channel}_before"), Signal(name=f"{channel}_stays")
        valid = getattr(axi, f"{channel}valid")
        self.top.d.sync += [before.eq(offer), stays.eq(valid & ~getattr(axi, f"{channel}ready"))]
        return ~stays | (valid & (offer == before)), stays


def resting(source: ModuleType = dram_port) -> Bench:
    """The DRAM port of a small chip, asked at any time to come to rest."""
    port = _OpenPort(source)
    top, unit, inner, axi = port.top, port.unit, port.inner, port.unit.axi
    rest, left, answered = inner["rest"], inner["left"], inner["answered"]
    rested = Signal(name="rested")  # in the cycle before
    top.d.sync += rested.eq(rest)
    properties: dict[str, Value] = {}
    for channel, names in (("ar", ("addr", "len")), ("aw", ("addr", "len")), ("w", ("data", "strb", "last"))):
        properties[f"what is offered on {channel} stays"], stays = port.stable(channel, *names)
        if channel != "w":
            valid = getattr(axi, f"{channel}valid")
            properties[f"at rest nothing begins on {channel}"] = ~(rested & valid & ~stays)
    opened = Cat(port.reads, port.addressed, port.complete, axi.arvalid, axi.awvalid, axi.wvalid, left).any()
    properties["at rest nothing is open"] = ~unit.quiesced | ~opened
    reads, writes = inner["reads.level"], inner["writes.level"]
    lasts, tidy = _words(inner, left)
    invariants: dict[str, Value] = {
        "reads": (reads == port.reads + axi.arvalid) & (reads <= DRAM_BURSTS),
        "writes": (writes == port.addressed + axi.awvalid + answered) & (writes <= DRAM_BURSTS),
        "words": writes - answered == port.complete + lasts + (left != 0),
        "buffered words": tidy,
        "a response that waits is one of a burst": ~answered | (writes != 0),
        "rest": (~rest | port.asked) & (~rested | rest) & (~unit.quiesced | rest),
        "quiesced": ~unit.quiesced | ~Cat(reads, writes, left, inner["words.level"]).any(),
        "few are open": (port.reads <= DRAM_BURSTS) & (port.addressed <= DRAM_BURSTS) & (port.complete <= DRAM_BURSTS),
    }
    assume: dict[str, Value] = {
        "answers to reads": ~axi.rvalid | (port.reads != 0),
        "answers to writes": ~axi.bvalid | ((port.addressed != 0) & (port.complete != 0)),
    }
    shown = {
        "asked to rest": port.asked, "rest": rest, "quiesced": unit.quiesced, "reads open": port.reads,
        "writes addressed": port.addressed, "writes complete": port.complete, "words to come": left,
        "AR": port.moves("ar"), "AW": port.moves("aw"), "W": port.moves("w"), "B": port.moves("b"),
    }  # fmt: skip
    witnesses = {
        "rest in the middle of a write": rest & axi.wvalid & ~axi.wstrb.any(),
        "a read is open at rest": rest & (port.reads != 0),
        "all is at rest after something": unit.quiesced & (inner["reads.consume"] != 0),
    }
    return Bench(
        top,
        port.inputs,
        properties,
        invariants,
        assume,
        {name: Shown([value]) for name, value in shown.items()},
        witnesses,
    )


def _words(inner: Inside, left: Signal) -> tuple[Value, Value]:
    """Of the words that wait for W: how many are the last of a burst; and whether the buffer is in order: its newest
    word is a last one if none is to come."""
    level, first, end = (inner[f"words.{name}"] for name in ("level", "consume", "produce"))
    rows = inner.rows("words")
    last = [row[_CHIP.word_bits] for row in rows]  # behind the word
    count = len(rows)
    waits = [Mux(end > first, (first <= row) & (row < end), (first <= row) | (row < end)) & (level != 0)
             for row in range(count)]  # fmt: skip
    lasts = sum((is_last & waiting for is_last, waiting in zip(last, waits, strict=True)), start=Const(0, 2))
    newest = Cat(*(last[row] & (end == (row + 1) % count) for row in range(count))).any()
    order = (first < count) & (end < count) & (level <= count)
    distance = Mux(end >= first, end - first, end + count - first)
    order &= Mux(distance == 0, (level == 0) | (level == count), level == distance)
    return lasts, order & ((level == 0) | newest | (left != 0))
