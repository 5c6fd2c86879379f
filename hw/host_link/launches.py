"""Programs that come and go: the host's launch queue, and its queue of those that have ended.

A launch names a boot stream (FETCHes only), a slot and the number of streams that it starts. Boot streams are executed
one after the other by the host tile's mover. Each stream of a program ends with a SYNC that adds to the host's
semaphore of the number `slot`: here that is a count of streams still running. When the last has ended, and for each
fault that any tile reports, there is a completion.

A slot's program may have a successor, which waits beside the queue and begins as soon as the program has ended, without
the host. While the host has not taken a fault no successor begins, so that it can withdraw that of the program which is
to blame. What clears up after a program has a queue of its own, so that it never waits for launches that are to start
later.
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux, ResetInserter, Signal
from amaranth.lib import data, fifo, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import ChipConfig
from ..spec.contracts import COMPLETIONS, LAUNCHES, SUCCESSORS
from ..spec.isa import SLOT_BITS
from ..spec.registers import COMPLETION, LAUNCH
from ..wiring.signatures import FETCH, FetchLayout, PostFlit

#: Streams of one program, at most: three for each of 32 cores.
STREAM_BITS = LAUNCH.bits("streams")
_Launch = data.StructLayout(
    {"slot": SLOT_BITS, "streams": STREAM_BITS, **FETCH.members("dram", "addr", "count"), "at": 32, "follows": 1}
)
#: A completion as the registers DONE_* show it.
Done = data.StructLayout({"what": COMPLETION.layout(), "who": 32, "value": 32, "cycle": 32})


class Launches(wiring.Component):
    """Both queues, for a chip with `programs` slots, and one more for whoever clears up after a program.

    `launch` queues one (`LAUNCHES` at most; `full`: another would be lost). Those of the last slot, and those without
    streams, which end a program, have a queue as long of their own. One that `follows` is a successor in its slot:
    `SUCCESSORS` wait there in their order, further ones are lost, and one without streams withdraws those that wait.
    `room`: the one at `launch`, valid or not, would be queued or does its work; it has a slot and, unless it withdraws
    others, instructions.

    `start` is a strobe that starts the host's front end. It comes when that is `idle`, in a cycle after that in which
    the launch was queued and after cycle `at`, so that runs with the same launches are the same to the cycle, whatever
    the registers' bus does. A successor also starts after the cycle of the last post of its slot's program, and while
    no fault waits. Of all that can start, the queue for clearing up goes first, then successors, the lowest slot first,
    then the queue.

    `post`: a post or report that has arrived at the host tile, taken at once; `who` is what FAULT_WHO would hold.
    `done` is the oldest of `waiting` completions, `next_one` takes it. A completion is queued in the cycle after the
    post that made it and carries the number (`now`) of that post's cycle. `COMPLETIONS` are kept; of more, those that
    come last are lost and `lost` is set, which cannot happen as long as there is no more than one for each slot and
    tile.
    """

    now: Signal
    enable: Signal
    launch: stream.Interface
    room: Signal
    full: Signal
    idle: Signal
    start: data.View
    post: stream.Interface
    who: Signal
    waiting: Signal
    done: data.View
    next_one: Signal
    lost: Signal

    def __init__(self, config: ChipConfig) -> None:
        self.slots = config.programs + 1
        super().__init__(
            {
                "now": In(32),
                "enable": In(1),
                "launch": In(stream.Signature(_Launch, always_ready=True)),
                "room": Out(1),
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
        self._starting: data.View = Signal(_Launch)  # what starts with `start`
        self._follows = Signal()  # whether that is a successor
        self._left = [Signal(STREAM_BITS, name=f"left_{slot}") for slot in range(self.slots)]
        self._busy = Signal(self.slots)  # slots with a program that is queued or runs
        self._faults = Signal(range(COMPLETIONS + 1))  # of the completions that wait
        self._start(m)
        self._complete(m)
        return m

    def _start(self, m: Module) -> None:
        launch = self.launch.payload
        m.submodules.queue = queue = fifo.SyncFIFO(width=_Launch.size, depth=LAUNCHES)
        m.submodules.clearing = clearing = fifo.SyncFIFO(width=_Launch.size, depth=LAUNCHES)
        clears = Signal()
        m.d.comb += [
            clears.eq((launch.slot == self.slots - 1) | (launch.streams == 0)),
            queue.w_en.eq(self.launch.valid & ~launch.follows & ~clears),
            clearing.w_en.eq(self.launch.valid & ~launch.follows & clears),
            self.full.eq(~queue.w_rdy | ~clearing.w_rdy),
        ]
        ready, after, successors_room = self._successors(m)
        with m.If(launch.follows):
            m.d.comb += self.room.eq(successors_room & ((launch.streams == 0) | (launch.count != 0)))
        with m.Else():
            own = Mux(clears, clearing.w_rdy, queue.w_rdy)
            m.d.comb += self.room.eq(own & (launch.slot < self.slots) & (launch.count != 0))
        fetch, starting = self.start.fetch, self._starting
        free = Signal()
        m.d.comb += [
            free.eq(self.idle & self.enable),
            *(fetch[name].eq(starting[name]) for name in ("dram", "addr", "count")),
        ]
        sources: list[tuple[Signal, data.View]] = []
        for fed in (clearing, queue):
            first = data.View(_Launch, fed.r_data)
            due = Signal()
            m.d.comb += [fed.w_data.eq(launch), due.eq(fed.r_rdy & (self.now > first.at))]
            sources.append((due, first))
        (urgent, cleared), (due, queued) = sources
        with m.If(urgent):
            m.d.comb += [self.start.valid.eq(free), clearing.r_en.eq(free)]
            m.d.comb += starting.eq(cleared)
        with m.Elif(ready.any()):
            m.d.comb += [self.start.valid.eq(free), self._follows.eq(free), starting.eq(after)]
        with m.Elif(due):
            m.d.comb += [self.start.valid.eq(free), queue.r_en.eq(free), starting.eq(queued)]
        for slot in range(self.slots):
            with m.If(self.start.valid & (starting.slot == slot)):
                m.d.sync += self._busy[slot].eq(starting.streams != 0)
            with m.If(queue.w_en & (launch.slot == slot)):
                m.d.sync += self._busy[slot].eq(1)

    def _successors(self, m: Module) -> tuple[Signal, data.View, Signal]:
        """Keeps them. Returns the slots whose successor can start, that of the lowest of them, and whether there is
        room for another one in the slot of `launch`."""
        launch = self.launch.payload
        ready, chosen, room = Signal(self.slots - 1), Signal(_Launch), Signal()
        for slot in reversed(range(self.slots - 1)):
            mine, withdrawn, starts = Signal(), Signal(), Signal()
            successors = fifo.SyncFIFO(width=_Launch.size, depth=SUCCESSORS)
            m.submodules[f"kept_{slot}"] = ResetInserter(withdrawn)(successors)
            first = data.View(_Launch, successors.r_data)
            m.d.comb += [
                mine.eq(self.launch.valid & launch.follows & (launch.slot == slot)),
                successors.w_data.eq(launch),
                successors.w_en.eq(mine & (launch.streams != 0)),
                withdrawn.eq(mine & (launch.streams == 0)),
                ready[slot].eq(successors.r_rdy & ~self._busy[slot] & (self.now > first.at) & (self._faults == 0)),
                # the lowest slot that is ready, unless something is being cleared up
                starts.eq(self.start.valid & self._follows & (self._starting.slot == slot)),
                successors.r_en.eq(starts),
            ]
            with m.If(ready[slot]):
                m.d.comb += chosen.eq(first)
            with m.If(launch.slot == slot):
                m.d.comb += room.eq(successors.w_rdy | (launch.streams == 0))
        return ready, chosen, room

    def _complete(self, m: Module) -> None:
        post = self.post.payload
        starting = self._starting
        counted = Signal()
        last = Signal()
        m.d.comb += counted.eq(self.post.valid & self.enable & ~post.fault)
        for slot, left in enumerate(self._left):
            with m.If(counted & (post.sem == slot)):
                m.d.comb += last.eq((left != 0) & (left <= post.n))
                m.d.sync += left.eq(Mux(left <= post.n, 0, left - post.n))
                with m.If(last):
                    m.d.sync += self._busy[slot].eq(0)
            with m.If(self.start.valid & (starting.slot == slot)):
                m.d.sync += left.eq(starting.streams)
        failed = Signal()
        m.d.comb += failed.eq(self.post.valid & self.enable & post.fault & (post.cause != 0))

        m.submodules.store = store = memory.Memory(shape=Done, depth=COMPLETIONS, init=[])
        write, read = store.write_port(), store.read_port(domain="comb")
        head, tail = Signal(range(COMPLETIONS)), Signal(range(COMPLETIONS))
        event: data.View = Signal(Done)
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
        fault, untold = Signal(), Signal()
        m.d.comb += [fault.eq(write.en & event.what.fault), untold.eq(taken & self.done.what.fault)]
        m.d.sync += self._faults.eq(self._faults + fault - untold)
        with m.If(queued & ~fits):
            m.d.sync += self.lost.eq(1)
        with m.If(write.en):
            m.d.sync += tail.eq(tail + 1)
        with m.If(taken):
            m.d.sync += head.eq(head + 1)
