"""Counting semaphores of a tile: posts add, waits subtract.

Contract: one update a cycle, posts before takes and lower-numbered ports first, so that nothing is lost and a wait
never delays a post. A post accepted in cycle t can be taken from cycle t + 1 on. After reset the block clears its
counters, one a cycle (`count` rounded up to a power of two), and accepts nothing until `ready`; so it does from the
cycle after `clear` on. A post past
`SEMAPHORE_MAX` or to a semaphore that does not exist is dropped and reported as a fault. A post of the port `checked`
is accepted like any other, and is nothing if `void` is set then: what says so is late in a cycle, and nobody else's
turn depends on it.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..spec.contracts import SEMAPHORE_BITS, SEMAPHORE_MAX
from ..spec.isa import Cause
from ..wiring.signatures import FaultPort, FaultSignature, SemPost, TakePort, TakeSignature


class Semaphores(wiring.Component):
    """`count` semaphores of `SEMAPHORE_BITS`, with post ports `post_0`... (`posts`) and wait ports `take_0`...
    (`takers`)."""

    fault: FaultPort
    ready: Signal
    clear: Signal
    void: Signal  # with a port that is `checked` only
    active: Signal

    def __init__(self, count: int, posts: int, takers: int, checked: int | None = None) -> None:
        self.count, self.posts, self.takers, self.checked = count, posts, takers, checked
        super().__init__(
            {f"post_{i}": In(stream.Signature(SemPost)) for i in range(posts)}
            | {f"take_{i}": In(TakeSignature()) for i in range(takers)}
            | {"fault": Out(FaultSignature()), "ready": Out(1), "clear": In(1), "active": Out(1)}
            | ({} if checked is None else {"void": In(1)})
        )

    def post(self, port: int) -> stream.Interface:
        """Stream `post_<port>`."""
        return getattr(self, f"post_{port}")

    def take(self, port: int) -> TakePort:
        """The interface `take_<port>`."""
        return getattr(self, f"take_{port}")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = 1 << (self.count - 1).bit_length()
        m.submodules.values = values = memory.Memory(shape=SEMAPHORE_BITS, depth=depth, init=[])
        write = values.write_port()
        clearing = Signal(range(depth + 1))
        m.d.comb += self.ready.eq(clearing == depth)

        posts = [self.post(i) for i in range(self.posts)]
        earlier = ~self.ready
        post = Signal(SemPost)  # the first of all ports but `checked`
        posting = Signal()
        late = Signal()  # that of `checked` is before it
        void = Signal(name="is_void")
        chosen = Signal()
        for number, port in enumerate(posts):
            m.d.comb += port.ready.eq(~earlier)
            if number == self.checked:
                m.d.comb += [late.eq(port.valid & ~earlier), void.eq(late & self.void)]
            earlier = earlier | port.valid
        others = [port for number, port in enumerate(posts) if number != self.checked]
        for port in reversed(others):
            with m.If(port.valid):
                m.d.comb += post.eq(port.payload)
        m.d.comb += [chosen.eq(Cat(port.valid for port in others).any()), posting.eq(self.ready & (chosen | late))]
        sem, total, fits = self._sum(m, values, "post", post)
        if self.checked is not None:  # what is late in a cycle has a sum of its own
            sums = self._sum(m, values, "late", posts[self.checked].payload)
            sem, total, fits = (Mux(late, mine, other) for mine, other in zip(sums, (sem, total, fits), strict=True))
        with m.If(posting & ~fits & ~void):
            m.d.comb += [
                self.fault.valid.eq(1),
                self.fault.cause.eq(Mux(sem < self.count, Cause.SEMAPHORE_OVERFLOW, Cause.SEMAPHORE_RANGE)),
                self.fault.value.eq(sem),
            ]
        with m.If(posting):
            m.d.comb += [write.addr.eq(sem), write.data.eq(total), write.en.eq(fits & ~void)]

        taken = earlier
        for i in range(self.takers):
            take = self.take(i)
            value = values.read_port(domain="comb")
            m.d.comb += [value.addr.eq(take.sem), take.value.eq(value.data)]
            enough = Signal(name=f"enough_{i}")
            m.d.comb += enough.eq(take.valid & (value.data >= take.n))
            m.d.comb += take.grant.eq(enough & ~taken)
            with m.If(take.grant):
                m.d.comb += [write.addr.eq(take.sem), write.data.eq(value.data - take.n), write.en.eq(1)]
            taken = taken | enough

        m.d.comb += self.active.eq(write.en | ~self.ready | posting | self.clear)
        with m.If(~self.ready):
            m.d.comb += [write.addr.eq(clearing), write.data.eq(0), write.en.eq(1)]
            m.d.sync += clearing.eq(clearing + 1)
        with m.If(self.clear):
            m.d.sync += clearing.eq(0)
        return m

    def _sum(self, m: Module, values: memory.Memory, name: str, post: data.View) -> tuple[Value, Value, Value]:
        """What a post makes of its semaphore: (the semaphore, its value then, that it may have it)."""
        seen = values.read_port(domain="comb")
        total, fits = Signal(SEMAPHORE_BITS + 1, name=f"{name}_total"), Signal(name=f"{name}_fits")
        m.d.comb += [
            seen.addr.eq(post.sem),
            total.eq(seen.data + post.n),
            fits.eq((post.sem < self.count) & (total <= SEMAPHORE_MAX)),
        ]
        return post.sem, total, fits
