"""The front end of a unit's instruction stream: fetch, wait, fire, issue.

Contract: instructions of one stream are issued in order. The ring of `ChipConfig.ring` is filled by MOVEs that the
front end requests from the DRAM tile, half a ring at a time, as soon as that much is free. SYNC is executed here; all
other instructions go to the unit over `issue`, with the number of cycles that they waited.

Latency: an instruction that is in the ring and waits for nothing is offered to its unit `contracts.ISSUE_CYCLES` (3)
after the previous one was taken. One with a `fire_at` of f is offered in cycle f + 1; f already past is a LATE fault.
In chips without `fire_times` a `fire_at` is a reserved bit.
Throughput: one instruction every 3 cycles.

`blocked_status`: what the stream waits for, for the host when it asks. `progress`: the stream advances in this cycle,
or waits for its fire time only.

In chips on which several programs run at the same time (`ChipConfig.programs`) a stream may be ended: `clear` drops
what it has loaded, requested and offered. Code that is still on its way is swallowed when it arrives; until then the
stream requests none. A stream with `rights` (`hw.wiring.rights`) whose SYNC or FETCH would reach another tile than its
program's is a RIGHTS fault.

`waited_total` and `blocked_total` count cycles: waiting for a semaphore or a fire time, of instructions that have been
offered (a cycle later), and ready while the unit was not, of those that have been taken. In cycles without `active` no
register changes.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import OFFSET_BITS, Arbitration, ChipConfig, TileKind
from ..spec.isa import (
    ACCEPTS,
    AHEAD_ACCEPTS,
    FETCH_TAG,
    INSTRUCTION_BITS,
    BlockedOn,
    Cause,
    Opcode,
    Region,
    Unit,
    used_bits,
)
from ..spec.isa import address as address_of
from ..wiring.ecc import Code, CodedRead, error_ports, show_errors, word_memory
from ..wiring.rights import Rights, limited, may_send_to, pages_of
from ..wiring.signatures import (
    FETCH,
    WAITED_BITS,
    BlockedStatus,
    FaultPort,
    FaultSignature,
    FetchLayout,
    Issue,
    MoveLayout,
    PostFlit,
    Request,
    SemPost,
    SyncLayout,
    TakePort,
    TakeSignature,
    TraceRecord,
    detail,
    requester,
    steered,
)

RING_REGION = {Unit.MOVER: Region.RING_MOVER, Unit.MATRIX: Region.RING_MATRIX, Unit.VECTOR: Region.RING_VECTOR}


class _Loaded:
    """The loaded instruction and its state."""

    def __init__(self) -> None:
        self.code = Signal(INSTRUCTION_BITS)
        #: The header is the same in every format; the other fields are those of a SYNC.
        self.head = data.View(SyncLayout, self.code)
        self.since = Signal(32)  # first cycle in which it could fire
        self.fired = Signal()  # it has in the cycle before this one
        self.waited = Signal(WAITED_BITS)
        self.taken = Signal()  # the semaphore has been taken
        self.begun = Signal(32)
        # Of a SYNC: what has been handed over already.
        self.sent = Signal()
        self.posted = Signal()
        self.traced = Signal()
        # In this cycle: a register changes; there is progress.
        self.moving = Signal()
        self.going = Signal()
        #: `now` as a register, right in every cycle that follows an active one. While an instruction waits for its fire
        #: time (`timing`) the stream stays active, so it can decide by this register, and what an idle stream decides
        #: does not depend on a number that changes in every cycle.
        self.clock = Signal(32)
        self.timing = Signal()


class FrontEnd(wiring.Component):
    """One stream. `ring` takes the words of delivered instructions, `start` a FETCH for this unit.

    `push`: takes single instructions that arrive in control packets, as if they had been fetched. The sender must leave
    room for them, otherwise that is a STREAM_BUSY fault. One taken in cycle t can be loaded from t + 1 on.

    `ahead`: the stream of an ahead-of-time controller. The instructions that it issues fire elsewhere: only a SYNC
    waits for its fire time here. With `ChipConfig.controller_channel` it requests its code like any other stream;
    otherwise it requests only the first ring, and MOVEs of its own program must bring the rest.
    """

    tile: Signal
    now: Signal
    go: Signal
    active: Signal
    counting: Signal
    start: data.View
    ring: data.View
    corrected: Signal  # with `ecc` only, like `lost`
    lost: Signal
    push: stream.Interface
    fetch: stream.Interface
    take: TakePort
    issue: stream.Interface
    send: stream.Interface
    post: stream.Interface
    record: stream.Interface
    fault: FaultPort
    waited_total: Signal
    blocked_total: Signal
    blocked_status: data.View  # BlockedStatus
    progress: Signal
    idle: Signal
    clear: Signal  # this and the next two: chips with `programs` only
    rights: data.View  # Rights
    host: Signal

    def __init__(self, config: ChipConfig, unit: Unit, ahead: bool = False) -> None:
        self.config, self.unit, self.ahead = config, unit, ahead
        self.brought = ahead and not config.controller_channel  # MOVEs bring all code after the first ring
        self.depth = config.ring(TileKind.DTT if ahead else TileKind.CORE)
        super().__init__(
            {
                "tile": In(8),
                "now": In(32),
                "go": In(1),
                "counting": In(1),
                "start": In(data.StructLayout({"valid": 1, "fetch": FetchLayout})),
                "ring": In(data.StructLayout({"valid": 1, "offset": OFFSET_BITS, "data": config.coded_bits})),
                "push": In(stream.Signature(INSTRUCTION_BITS)),
                "fetch": Out(stream.Signature(Request)),
                "take": Out(TakeSignature()),
                "issue": Out(stream.Signature(Issue)),
                "send": Out(stream.Signature(PostFlit)),
                "post": Out(stream.Signature(SemPost)),
                "record": Out(stream.Signature(TraceRecord)),
                "fault": Out(FaultSignature()),
                "waited_total": Out(32),
                "blocked_total": Out(32),
                "blocked_status": Out(BlockedStatus),
                "progress": Out(1),
                "idle": Out(1),
                "active": Out(1),
            }
            | ({"clear": In(1), "rights": In(Rights), "host": In(8)} if config.programs else {})
            | error_ports(config)
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        depth, words = self.depth, config.instruction_words
        slot_bits = max(INSTRUCTION_BITS, config.word_bits)
        code = Code(slot_bits // words, config.ecc)
        m.submodules.ring_memory = ring = word_memory(slot_bits, depth, config.ecc, slot_bits // words)
        fill = ring.write_port(granularity=code.width)
        show_errors(m, self, ring)
        read = ring.read_port()

        # Ring state. All three count instructions modulo twice the depth, so that full differs from empty.
        requested = Signal(range(2 * depth))
        consumed = Signal(range(2 * depth))
        delivered = Signal(range(2 * depth * words))
        remaining = Signal(FETCH.bits("count"))
        address = Signal(FETCH.bits("addr"))
        dram = Signal(FETCH.bits("dram"))
        available = Signal()
        m.d.comb += available.eq((delivered >> (words.bit_length() - 1))[: len(consumed)] != consumed)

        m.d.comb += [
            fill.addr.eq(self.ring.offset >> (words.bit_length() - 1)),
            fill.data.eq(Cat(self.ring.data for _ in range(words))),
        ]
        swallow = Signal.like(delivered)  # words on their way to a stream that has been ended
        with m.If(self.ring.valid & (swallow == 0)):
            lane = self.ring.offset[: words.bit_length() - 1] if words > 1 else 0
            m.d.comb += fill.en.eq(1 << lane)
            m.d.sync += delivered.eq(delivered + 1)

        taken = Signal()  # an instruction that was not requested is complete
        if self.brought:
            whole = self.ring.offset[: words.bit_length() - 1].all() if words > 1 else 1
            m.d.comb += taken.eq(self.ring.valid & whole & ((delivered >> (words.bit_length() - 1)) == requested))
        pushed = Signal(slot_bits)
        m.d.comb += [self.push.ready.eq(~self.ring.valid), pushed.eq(self.push.payload)]
        with m.If(self.push.valid & self.push.ready):
            m.d.comb += [fill.addr.eq(requested), fill.en.eq(-1)]
            m.d.comb += fill.data.eq(code.encode_all(pushed))
            m.d.sync += delivered.eq(delivered + words)
            m.d.comb += taken.eq(1)
            with m.If((requested ^ consumed) == depth):
                m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(Cause.STREAM_BUSY)]
                m.d.comb += self.fault.tag.eq(data.View(MoveLayout, self.push.payload).tag)

        idle = self.idle
        asking = Signal()
        self._fetch(m, requested, consumed, remaining, address, dram, asking)
        m.d.comb += idle.eq((remaining == 0) & (requested == consumed))
        with m.If(self.start.valid):
            fetch = self.start.fetch
            with m.If((idle | self.clear) if config.programs else idle):
                m.d.sync += [requested.eq(0), consumed.eq(0), delivered.eq(0)]
                m.d.sync += [remaining.eq(fetch.count), address.eq(fetch.addr), dram.eq(fetch.dram)]
            with m.Else():
                m.d.comb += [self.fault.valid.eq(1), self.fault.cause.eq(Cause.STREAM_BUSY)]
                m.d.comb += [self.fault.tag.eq(fetch.tag), self.fault.value.eq(fetch.addr)]
        # While nothing is loaded; `_execute` reports what a loaded instruction waits for.
        blocked_status = self.blocked_status
        held = Signal.like(requested)
        unread = Signal.like(remaining)  # instructions of the stream that have not been consumed
        m.d.comb += [held.eq(requested - consumed), unread.eq(remaining + held)]
        m.d.comb += Cat(blocked_status.sem, blocked_status.need, blocked_status.has).eq(unread)
        with m.If(idle):
            m.d.comb += blocked_status.waits.eq(Mux(address == 0, BlockedOn.START, BlockedOn.NOTHING))
        with m.Elif(~available):
            m.d.comb += [
                blocked_status.waits.eq(Mux(asking, BlockedOn.REQUEST_PLANE, BlockedOn.CODE)),
                blocked_status.peer.eq(dram),
            ]
        with m.If(taken):
            m.d.sync += requested.eq(requested + 1)
            if self.brought:
                m.d.sync += remaining.eq(remaining - 1)
        self._execute(m, read, available, consumed, unread)
        if self.config.programs:
            late = Signal.like(delivered)  # words that have been requested and not arrived
            m.d.comb += late.eq((requested << (words.bit_length() - 1)) - delivered)
            with m.If(swallow != 0):
                m.d.sync += swallow.eq(swallow - self.ring.valid)
                m.d.comb += asking.eq(0)
            with m.If(self.clear):
                m.d.comb += asking.eq(0)
                m.d.sync += swallow.eq(Mux(swallow != 0, swallow, late) - self.ring.valid)
                m.d.sync += [requested.eq(0), consumed.eq(0), delivered.eq(0), remaining.eq(0)]
                with m.If(self.start.valid):
                    m.d.sync += remaining.eq(self.start.fetch.count)
        return m

    def _fetch(
        self,
        m: Module,
        requested: Signal,
        consumed: Signal,
        remaining: Signal,
        address: Signal,
        dram: Signal,
        asking: Signal,
    ) -> None:
        """Requests the next half ring as soon as it is free; `asking` meanwhile."""
        config = self.config
        depth, words = self.depth, config.instruction_words
        chunk = Signal(range(depth // 2 + 1))
        half = depth // 2
        held = Signal.like(requested)
        m.d.comb += held.eq(requested - consumed)
        with m.If(remaining >= half):
            m.d.comb += chunk.eq(half)
        with m.Else():
            m.d.comb += chunk.eq(remaining)
        move = Signal(MoveLayout)
        slot = Signal(range(depth))
        filled = Signal()  # the first ring has been requested; the rest arrives unrequested
        if self.brought:
            with m.If(self.start.valid):
                m.d.sync += filled.eq(0)
            with m.Elif(self.fetch.valid & self.fetch.ready):
                m.d.sync += filled.eq(requested != 0)
        m.d.comb += [
            slot.eq(requested),
            move.opcode.eq(Opcode.MOVE),
            move.tag.eq(FETCH_TAG),
            move.src_tile.eq(dram),
            move.src.eq(address),
            move.src_run.eq(chunk * words),
            move.dst_tile.eq(self.tile),
            move.dst.eq(address_of(RING_REGION[self.unit], 0) + slot * words),
            move.dst_run.eq(chunk * words),
            move.words.eq(chunk * words),
            *([move.fire_at.eq(pages_of(self.rights))] if config.programs else []),
            *([requester(move.as_value()).eq(self.tile)] if config.dram.arbitration is not Arbitration.FIFO else []),
            self.fetch.payload.dst_tile.eq(dram),
            self.fetch.payload.code.eq(move),
            asking.eq((remaining != 0) & (held <= half) & ~filled),
            self.fetch.valid.eq(asking & self.go),
        ]
        with m.If(self.fetch.valid & self.fetch.ready):
            m.d.sync += [requested.eq(requested + chunk), remaining.eq(remaining - chunk)]
            m.d.sync += address.eq(address + chunk * words)

    def _execute(
        self, m: Module, read: memory.ReadPort | CodedRead, available: Signal, consumed: Signal, unread: Signal
    ) -> None:
        """Load, wait, issue; one cycle in each state if the instruction waits for nothing."""
        loaded = _Loaded()
        head = loaded.head
        self._ended: Value = self.clear if self.config.programs else Const(0)
        m.d.comb += [loaded.code.eq(read.data), read.addr.eq(consumed)]
        m.d.sync += loaded.clock.eq(self.now + 1)
        active = loaded.moving | loaded.timing | loaded.fired
        active |= self.fetch.valid | self.start.valid | self.ring.valid | self.push.valid
        if self.config.programs:
            active |= self.clear
        m.d.comb += [
            self.active.eq(active),
            self.progress.eq(loaded.going | (self.fetch.valid & self.fetch.ready) | self.start.valid | self.ring.valid),
        ]
        m.d.sync += loaded.fired.eq(0)
        with m.If(loaded.fired & self.counting):
            m.d.sync += self.waited_total.eq(self.waited_total + (loaded.begun - 1 - loaded.since)[:32])
        blocked_status = self.blocked_status
        wrong = self._decode(m, loaded)

        m.d.comb += [self.take.sem.eq(head.wait_sem), self.take.n.eq(head.wait_n)]
        m.d.comb += [self.issue.payload.code.eq(loaded.code), self.issue.payload.waited.eq(loaded.waited)]
        with m.FSM():
            with m.State("LOAD"):
                m.d.comb += [
                    read.en.eq(available & self.go & ~self._ended),
                    loaded.moving.eq(read.en),
                    loaded.going.eq(read.en),
                ]
                with m.If(read.en):
                    m.d.sync += loaded.since.eq(self.now + 1)
                    m.next = "WAIT"
            with m.State("WAIT"):
                self._wait(m, loaded, wrong, unread)
                self._end(m)
            with m.State("ISSUE"):
                m.d.comb += [
                    self.issue.valid.eq(1),
                    loaded.moving.eq(self.issue.ready),
                    loaded.going.eq(loaded.moving),
                ]
                m.d.comb += [blocked_status.waits.eq(BlockedOn.UNIT), blocked_status.tag.eq(head.tag)]
                with m.If(self.issue.ready):
                    with m.If(self.counting):
                        m.d.sync += self.blocked_total.eq(self.blocked_total + (self.now - loaded.begun)[:32])
                    self._next(m, loaded, consumed)
                self._end(m)
            with m.State("SYNC"):
                self._sync(m, loaded, consumed)
                self._end(m)
            with m.State("FAULT"):
                # the host halts the chip, or ends the program: only reset or `clear` leaves this state
                m.d.comb += [blocked_status.waits.eq(BlockedOn.FAULT), blocked_status.tag.eq(head.tag)]
                self._end(m)
        with m.If(self._ended):
            m.d.sync += loaded.taken.eq(0)
        record = self.record.payload
        m.d.comb += [
            record.tag.eq(head.tag),
            record.unit.eq(int(self.unit)),
            record.opcode.eq(head.opcode),
            record.wait.eq(loaded.waited),
            record.start.eq(loaded.begun),
            record.end.eq(self.now + 1),
        ]

    def _decode(self, m: Module, loaded: _Loaded) -> tuple[Signal, Signal]:
        """(the stream does not accept the opcode, a reserved bit is set) of the loaded instruction."""
        illegal = Signal()
        reserved = Signal()
        with m.Switch(loaded.head.opcode):
            for opcode in (Opcode.SYNC, *(AHEAD_ACCEPTS if self.ahead else ACCEPTS[self.unit])):
                if opcode is Opcode.ROUTE and not steered(self.config):
                    continue
                with m.Case(int(opcode)):
                    timed = Const(0) if self.config.fire_times else loaded.head.fire_at.any()
                    m.d.comb += reserved.eq(loaded.code[used_bits(self.config, opcode) :].any() | timed)
            with m.Default():
                m.d.comb += illegal.eq(1)
        return illegal, reserved

    def _wait(self, m: Module, loaded: _Loaded, wrong: tuple[Signal, Signal], unread: Signal) -> None:
        """State WAIT: takes the semaphore, then waits for the fire time. An instruction that is `wrong` (see `_decode`)
        or late is a fault at once."""
        head, blocked_status, moving, going = loaded.head, self.blocked_status, loaded.moving, loaded.going
        illegal, reserved = wrong
        need = Signal()
        late = Signal()
        due = Signal()
        nowhere = Signal()
        timed = Signal()
        here = (head.opcode == Opcode.SYNC) if self.ahead else 1
        m.d.comb += [
            need.eq((head.wait_n != 0) & ~loaded.taken),
            timed.eq((head.fire_at != 0) & here & self.config.fire_times),
            loaded.timing.eq(timed),
            late.eq(timed & (loaded.clock > head.fire_at)),
            due.eq(~timed | (loaded.clock == head.fire_at)),
        ]
        m.d.comb += nowhere.eq((head.wait_n != 0) & (head.wait_sem >= self.config.semaphores))
        m.d.comb += [going.eq(moving | ~need), blocked_status.tag.eq(head.tag)]
        with m.If(need):
            m.d.comb += [
                blocked_status.waits.eq(BlockedOn.SEMAPHORE),
                blocked_status.sem.eq(head.wait_sem),
                blocked_status.need.eq(head.wait_n),
                blocked_status.has.eq(self.take.value),
                blocked_status.peer.eq(unread),
            ]
        with m.Else():
            m.d.comb += [blocked_status.waits.eq(BlockedOn.TIME), detail(blocked_status).eq(head.fire_at)]
        if self.config.programs:  # only SYNC and FETCH name a tile in their first field and do so by themselves
            host = (head.opcode == Opcode.SYNC) & (head.tile == self.host) & (head.sem == self.rights.slot)
            reaches = Mux(head.opcode == Opcode.SYNC, head.n != 0, head.opcode == Opcode.FETCH)
            foreign = limited(self.rights) & reaches & ~host
            foreign &= ~may_send_to(self.config, self.rights, head.tile) | (head.opcode == Opcode.FETCH)
        else:
            foreign = Const(0)
        with m.If(illegal | reserved | late | nowhere | foreign):
            m.d.comb += [self.fault.valid.eq(1), self.fault.tag.eq(head.tag)]
            with m.If(illegal):
                m.d.comb += [self.fault.cause.eq(Cause.ILLEGAL_OPCODE), self.fault.value.eq(head.opcode)]
            with m.Elif(reserved):
                m.d.comb += self.fault.cause.eq(Cause.RESERVED_BITS)
            with m.Elif(nowhere):
                m.d.comb += [self.fault.cause.eq(Cause.SEMAPHORE_RANGE), self.fault.value.eq(head.wait_sem)]
            with m.Elif(foreign):
                m.d.comb += [self.fault.cause.eq(Cause.RIGHTS), self.fault.value.eq(head.tile)]
            with m.Else():
                m.d.comb += [self.fault.cause.eq(Cause.LATE), self.fault.value.eq(loaded.clock - head.fire_at)]
            m.d.comb += moving.eq(1)
            m.next = "FAULT"
        with m.Else():
            m.d.comb += self.take.valid.eq(need)
            m.d.comb += moving.eq(((~need | self.take.grant) & due) | self.take.grant)
            with m.If((~need | self.take.grant) & due):
                self._fire(m, loaded)
            with m.Else():
                with m.If(need & self.take.grant):
                    m.d.sync += loaded.taken.eq(1)

    def _end(self, m: Module) -> None:
        """The last word on a state's successor: `clear` ends the stream."""
        with m.If(self._ended):
            m.next = "LOAD"

    def _fire(self, m: Module, loaded: _Loaded) -> None:
        """Leaves WAIT for ISSUE or SYNC and stores how long the instruction waited."""
        elapsed = Signal(32)
        m.d.comb += elapsed.eq(self.now - loaded.since)
        m.d.sync += [
            loaded.begun.eq(self.now + 1),
            loaded.waited.eq(Mux(elapsed[WAITED_BITS:].any(), (1 << WAITED_BITS) - 1, elapsed)),
        ]
        m.d.sync += loaded.fired.eq(1)
        with m.If(loaded.head.opcode == Opcode.SYNC):
            m.d.sync += [loaded.sent.eq(0), loaded.posted.eq(0), loaded.traced.eq(0)]
            m.next = "SYNC"
        with m.Else():
            m.next = "ISSUE"

    def _sync(self, m: Module, loaded: _Loaded, consumed: Signal) -> None:
        """State SYNC: offers the remote post, the local post and the trace record until all are taken."""
        m.d.comb += loaded.moving.eq(1)
        sync = loaded.head
        m.d.comb += [
            self.send.valid.eq((sync.n != 0) & ~loaded.sent),
            self.send.payload.dst_tile.eq(sync.tile),
            self.send.payload.sem.eq(sync.sem),
            self.send.payload.n.eq(sync.n),
            self.post.valid.eq((sync.post_n != 0) & ~loaded.posted),
            self.post.payload.sem.eq(sync.post_sem),
            self.post.payload.n.eq(sync.post_n),
            self.record.valid.eq(~loaded.traced),
        ]
        ports = (self.send, self.post, self.record)
        m.d.comb += [
            self.blocked_status.waits.eq(Mux(self.send.valid, BlockedOn.POST_PLANE, BlockedOn.POSTS)),
            self.blocked_status.tag.eq(sync.tag),
            self.blocked_status.peer.eq(sync.tile),
            loaded.going.eq(Cat(port.valid & port.ready for port in ports).any()),
        ]
        done = [~port.valid | port.ready for port in ports]
        for flag, ok in zip((loaded.sent, loaded.posted, loaded.traced), done, strict=True):
            with m.If(ok):
                m.d.sync += flag.eq(1)
        with m.If(done[0] & done[1] & done[2]):
            self._next(m, loaded, consumed)

    @staticmethod
    def _next(m: Module, loaded: _Loaded, consumed: Signal) -> None:
        """Advances from the loaded instruction to the next one."""
        m.d.sync += [consumed.eq(consumed + 1), loaded.taken.eq(0)]
        m.next = "LOAD"
