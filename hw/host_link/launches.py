"""Programs that come and go: the host's launch queue, and its queue of those that have ended.

A launch names a boot stream (FETCHes only), a slot and the number of streams that it starts. Boot streams are executed
one after the other by the host tile's mover. Each stream of a program ends with a SYNC that adds to the host's
semaphore of the number `slot`: here that is a count of streams still running. When the last has ended, and for each
fault that any tile reports, there is a completion.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, fifo, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import ChipConfig
from ..contracts import COMPLETIONS, LAUNCHES
from ..isa import SLOT_BITS
from ..registers import COMPLETION, LAUNCH
from ..signatures import FetchLayout, PostFlit

#: Streams of one program, at most: three for each of 32 cores.
STREAM_BITS = LAUNCH.offsets["streams"][1]
_Launch = data.StructLayout({"slot": SLOT_BITS, "streams": STREAM_BITS, "dram": 8, "addr": 28, "count": 24, "at": 32})
#: A completion as the registers DONE_* show it.
Done = data.StructLayout({"what": COMPLETION.layout(), "who": 32, "value": 32, "cycle": 32})


class Launches(wiring.Component):
    """Both queues, for a chip with `programs` slots, and one more for whoever clears up after a program.

    `launch` queues one (`LAUNCHES` at most; `full`: another would be lost). `start` is a strobe that starts the host's
    front end; it comes when that is `idle`, in a cycle after that in which the launch was queued and after cycle `at`,
    so that runs with the same launches are the same to the cycle, whatever the registers' bus does. `post`: a post or
    report that has arrived at the host tile, taken at once; `who` is what FAULT_WHO would hold. `done` is the oldest of
    `waiting` completions, `next_one` takes it. A completion is queued in the cycle after the post that made it and
    carries the number (`now`) of that post's cycle. `COMPLETIONS` are kept; of more, those that come last are lost and
    `lost` is set, which cannot happen as long as there is no more than one for each slot and tile.
    """

    now: Signal
    enable: Signal
    launch: Any
    full: Signal
    idle: Signal
    start: Any
    post: Any
    who: Signal
    waiting: Signal
    done: Any
    next_one: Signal
    lost: Signal

    def __init__(self, config: ChipConfig) -> None:
        self.slots = config.programs + 1
        super().__init__(
            {
                "now": In(32),
                "enable": In(1),
                "launch": In(stream.Signature(_Launch, always_ready=True)),
                "full": Out(1),
                "idle": In(1),
                "start": Out(data.StructLayout({"valid": 1, "fetch": FetchLayout})),
                "post": In(stream.Signature(PostFlit, always_ready=True)),
                "who": In(32),
                "waiting": Out(range(COMPLETIONS + 1)),
                "done": Out(Done),
                "next_one": In(1),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._start(m)
        self._complete(m)
        return m

    def _start(self, m: Module) -> None:
        m.submodules.queue = queue = fifo.SyncFIFO(width=_Launch.size, depth=LAUNCHES)
        first = data.View(_Launch, queue.r_data)
        fetch = self.start.fetch
        left = [Signal(STREAM_BITS, name=f"left_{slot}") for slot in range(self.slots)]
        self._left = left
        due = Signal()
        m.d.comb += [
            queue.w_data.eq(self.launch.payload),
            queue.w_en.eq(self.launch.valid),
            self.full.eq(~queue.w_rdy),
            due.eq(self.now > first.at),
            self.start.valid.eq(queue.r_rdy & self.idle & self.enable & due),
            queue.r_en.eq(self.start.valid),
            *(fetch[name].eq(first[name]) for name in ("dram", "addr", "count")),
        ]

    def _complete(self, m: Module) -> None:
        post = self.post.payload
        starting = data.View(_Launch, m.submodules.queue.r_data)
        counted = Signal()
        last = Signal()
        m.d.comb += counted.eq(self.post.valid & self.enable & ~post.fault)
        for slot, left in enumerate(self._left):
            with m.If(counted & (post.sem == slot)):
                m.d.comb += last.eq((left != 0) & (left <= post.n))
                m.d.sync += left.eq(Mux(left <= post.n, 0, left - post.n))
            with m.If(self.start.valid & (starting.slot == slot)):
                m.d.sync += left.eq(starting.streams)
        failed = Signal()
        m.d.comb += failed.eq(self.post.valid & self.enable & post.fault & (post.cause != 0))

        m.submodules.store = store = memory.Memory(shape=Done, depth=COMPLETIONS, init=[])
        write, read = store.write_port(), store.read_port(domain="comb")
        head, tail = Signal(range(COMPLETIONS)), Signal(range(COMPLETIONS))
        event: Any = Signal(Done)
        queued = Signal()
        m.d.sync += [
            queued.eq(last | failed),
            event.what.slot.eq(Mux(failed, 0, post.sem)),
            event.what.fault.eq(failed),
            event.what.valid.eq(1),
            event.who.eq(Mux(failed, self.who, 0)),
            event.value.eq(Mux(failed, post.value, 0)),
            event.cycle.eq(self.now),
        ]
        fits = Signal()
        m.d.comb += [
            fits.eq(self.waiting != COMPLETIONS),
            write.en.eq(queued & fits),
            write.addr.eq(tail),
            write.data.eq(event),
            read.addr.eq(head),
        ]
        with m.If(self.waiting != 0):
            m.d.comb += self.done.eq(read.data)
        taken = Signal()
        m.d.comb += taken.eq(self.next_one & (self.waiting != 0))
        m.d.sync += self.waiting.eq(self.waiting + write.en - taken)
        with m.If(queued & ~fits):
            m.d.sync += self.lost.eq(1)
        with m.If(write.en):
            m.d.sync += tail.eq(tail + 1)
        with m.If(taken):
            m.d.sync += head.eq(head + 1)
