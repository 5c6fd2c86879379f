"""The host's view of the chip: control and status registers over AXI4-Lite.

A run: write PROGRAM_TILE, PROGRAM_ADDR, PROGRAM_COUNT, WATCHDOG and STALL_LIMIT, then CONTROL.start. The host tile's
mover stream executes the boot program from there; its END, a fault, or a watchdog ends the run and raises `irq`. `now`,
the clock with which every unit stamps its trace records, is 0 in the first cycle of a run.

Chips with `programs` have another kind of run (CONTROL.serve), in which programs come and go: PROGRAM_* and then LAUNCH
queue one, `irq` says that there are completions, which the registers DONE_* show, oldest first, and CONTROL.stop ends
the run. Faults then stop nothing but are completions, too (`host_link.launches`), of each tile one until its program
is cleared away (`host_link.reported`). Both queues are empty when it begins.

Chips with `counters` count while a run goes on that was started with CONTROL.count, or that records traces. Writing
COUNT takes a snapshot of a counter in all tiles (`host_link.counters`), in a run or after it; once COUNT says `ready`,
COUNT_CYCLE holds the cycle of the snapshot, and each read of COUNT_VALUE the count of the next tile.

There are two watchdogs: WATCHDOG bounds the cycles of a run, STALL_LIMIT the cycles without progress in any tile.
After either fires, every tile reports what its parts wait for (`isa.STATE`). All reports have arrived
`reporter.report_cycles` after the irq; REPORTS is the number of unread ones, REPORT_LOW and REPORT_HIGH hold the first
of them, and reading REPORT_HIGH advances to the next. (In chips without `reports` no tile does, and all of these are
0.)

CONTROL.reset ends whatever goes on and resets the chip, once DRAM has finished its bursts (`host_link.reset_unit`):
STATUS.resetting until then, and nothing can be started. In the last cycles the bus takes nothing. Then all registers
are as after a reset.

`irq` is set while IRQ_STATUS has a bit that IRQ_ENABLE has, too. What a write cannot do is refused as `host_link.bus`
says, and STATUS.refused remembers it: also a start that cannot be, and a launch that would be lost.
"""

from __future__ import annotations

from collections.abc import Mapping

from amaranth.hdl import Cat, Const, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import ChipConfig
from ..spec.contracts import COUNT_WIRES
from ..spec.isa import POST, Cause, Format, Opcode, Unit
from ..spec.registers import (
    COMPLETION,
    CONTROL,
    COUNT,
    FAULT_WHO,
    ID_VALUE,
    IRQ,
    LAUNCH,
    REPORT,
    STATUS,
    WIDTH,
    WIDTHS,
    Register,
    registers_of,
)
from ..wiring.axi import AXI4Lite, AXI4LitePort
from ..wiring.signatures import FetchLayout, PostFlit, StateFlit
from .bus import WriteAccess, serve_reads, serve_writes
from .counters import Ask, CounterReader
from .launches import Launches
from .reported import Reported, TileStrobe, most_completions
from .reporter import most_reports

#: Registers that keep what is written until somebody reads it or a run or launch uses it.
_STORED = (
    Register.PROGRAM_TILE,
    Register.PROGRAM_ADDR,
    Register.PROGRAM_COUNT,
    Register.WATCHDOG,
    Register.STALL_LIMIT,
    Register.LAUNCH_AT,
)


def _register(layout: Format, values: Mapping[str, Value | int]) -> Cat:
    """The value of a register, or of two, from its fields; missing fields are 0."""
    parts: list[Value] = []
    for name, (_, width) in layout.offsets.items():
        value = values.get(name, 0)
        parts.append(Const(int(value), width) if isinstance(value, int) else value)
        assert len(parts[-1]) == width, f"{layout.name}.{name} has {width} bits"
    return Cat(*parts)


def _reported(report: data.View) -> dict[str, Value | int]:
    """The fields of FAULT_WHO in a report."""
    return {name: report[name] for name in FAULT_WHO.offsets if name in POST.offsets}


class HostPort(wiring.Component):
    """AXI4-Lite slave. `start` starts the boot stream; `fault` takes reports from the post plane, one a cycle.

    Raises ConfigError for a chip with more tiles and programs than its queue has room for.

    `moved`: some tile has made progress; STALL_LIMIT counts cycles of a run without it. `ask`: a watchdog has stopped
    the run, so tiles are to report; it stays set until reset. `go`, `trace`, `ask` and `irq` are in `command_domain`,
    which needs its clock while `commanding`: they reach every tile and change a few times in a run. `post`: semaphore
    posts that arrive while `serving` such a run; `idle`: the host's stream can be started; `cleared`: the host's mover
    sends a FETCH with `clear` to that tile. `counting`: tiles count; `counter_ask`, `counter_data`: to all links, and
    from the first of them. `reset_wanted`, `settled` and `released`: to and from the chip's `ResetUnit`.
    """

    bus: AXI4LitePort
    tile: Signal
    ready: Signal
    ended: Signal
    moved: Signal
    fault: stream.Interface
    start: data.View
    now: Signal
    go: Signal
    trace: Signal
    ask: Signal
    irq: Signal
    commanding: Signal
    reset_wanted: Signal
    settled: Signal
    released: Signal
    post: stream.Interface  # this and the following: chips with `programs` only
    idle: Signal
    serving: Signal
    cleared: data.View
    counting: Signal
    counter_ask: data.View  # this and the next: chips with `counters` only
    counter_data: Signal

    def __init__(self, config: ChipConfig, command_domain: str = "sync") -> None:
        self.config, self._command = config, command_domain
        if config.programs:
            most_completions(config)
        super().__init__(
            {
                "bus": In(AXI4Lite(address_bits=8)),
                "tile": In(8),
                "ready": In(1),
                "ended": In(1),
                "moved": In(1),
                "fault": In(stream.Signature(PostFlit)),
                "start": Out(data.StructLayout({"valid": 1, "fetch": FetchLayout})),
                "now": Out(32),
                "go": Out(1),
                "trace": Out(1),
                "ask": Out(1),
                "irq": Out(1),
                "commanding": Out(1),
                "counting": Out(1),
                "reset_wanted": Out(1),
                "settled": In(1),
                "released": Out(1),
            }
            | (
                {"post": In(stream.Signature(PostFlit)), "idle": In(1), "serving": Out(1), "cleared": In(TileStrobe)}
                if config.programs
                else {}
            )
            | ({"counter_ask": Out(Ask), "counter_data": In(COUNT_WIRES)} if config.counters else {})
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        running = Signal()
        done = Signal()
        faulted = Signal()
        trace = Signal()
        counted = Signal()
        stored = [register for register in registers_of(self.config) if register in _STORED]
        program = {name: Signal(WIDTHS.get(name, WIDTH), name=name.name.lower()) for name in stored}
        cycles = Signal(32)
        quiet = Signal(32)
        who = Signal(32)
        value = Signal(32)
        m.d.comb += [self.now.eq(cycles), self.go.eq(running), self.trace.eq(trace)]
        launches = Launches(self.config) if self.config.programs else None
        serving = self.serving if launches is not None else Const(0)

        counters = CounterReader(self.config) if self.config.counters else None
        m.d.comb += self.counting.eq(running & (trace | counted))

        ready = self.ready & ~running & ~faulted & ~self.reset_wanted
        closed = Signal()  # of the bus; a register, so that what it offers follows no input
        m.d.sync += closed.eq(self.reset_wanted & self.settled)
        m.d.sync += self.released.eq(closed & ~self.bus.bvalid & ~self.bus.rvalid)
        write = serve_writes(m, self.bus, closed)
        start, serve = self._registers(m, write, program, trace, ready, launches)
        refused = Signal()
        with m.If(write.taken & ~write.good):
            m.d.sync += refused.eq(1)
        with m.Elif(start):
            m.d.sync += refused.eq(0)
        if counters is not None:
            with m.If(start):
                m.d[self._command] += counted.eq(data.View(CONTROL.layout(), write.value).count)
        next_one = Signal()
        waiting, oldest = self._reports(m, next_one)
        status = {"running": running, "done": done, "fault": faulted, "ready": ready, "refused": refused}
        status["resetting"] = self.reset_wanted
        readable: dict[Register, Value | int] = {
            Register.ID: ID_VALUE,
            Register.CONFIG: int(self.config.digest[-8:], 16),
            Register.CONTROL: 0,
            Register.STATUS: _register(STATUS, status),
            Register.CYCLES: cycles,
            Register.FAULT_WHO: who,
            Register.FAULT_VALUE: value,
            Register.QUIET: quiet,
            Register.REPORTS: waiting,
            Register.REPORT_LOW: oldest[:32],
            Register.REPORT_HIGH: oldest[32:],
        }
        readable |= program
        pending: dict[str, Value] = {"done": done, "fault": faulted}
        if launches is not None:
            self._serve_programs(m, launches, write, program, readable)
            pending["completion"] = self.serving & (launches.waiting != 0)
            self._first_faults(m, launches, start)
            m.submodules.launches = ResetInserter(start)(launches)  # each run begins with empty queues
            status |= {"full": launches.full, "lost": launches.lost}
            readable[Register.STATUS] = _register(STATUS, status)
        self._interrupt(m, write, start, pending, readable)
        if counters is not None:
            self._serve_counters(m, counters, write, readable)
        read = serve_reads(m, self.bus, readable, closed)
        m.d.comb += next_one.eq(read[Register.REPORT_HIGH])
        if counters is not None:
            m.d.comb += counters.next_one.eq(read[Register.COUNT_VALUE])

        fetch = self.start.fetch
        empty = program[Register.PROGRAM_COUNT] == 0
        m.d.comb += [
            self.start.valid.eq(start & ~serve & ~empty),
            fetch.opcode.eq(Opcode.FETCH),
            fetch.dram.eq(program[Register.PROGRAM_TILE]),
            fetch.addr.eq(program[Register.PROGRAM_ADDR]),
            fetch.count.eq(program[Register.PROGRAM_COUNT]),
        ]
        if launches is not None:
            with m.If(launches.start.valid):
                m.d.comb += self.start.eq(launches.start)
        report = self.fault.payload
        m.d.comb += self.fault.ready.eq(1)
        m.d.comb += self.commanding.eq(start)
        with m.If(start):
            m.d[self._command] += [running.eq(1), done.eq(0)]
            if launches is not None:
                m.d[self._command] += self.serving.eq(serve)
            m.d.sync += [cycles.eq(0), who.eq(0), value.eq(0), quiet.eq(0)]
            with m.If(empty & ~serve):
                m.d[self._command] += [running.eq(0), faulted.eq(1)]
                m.d.sync += who.eq(_register(FAULT_WHO, self._own(Cause.SHAPE)))
        with m.Elif(running):
            m.d.sync += cycles.eq(cycles + 1)
            limit = program[Register.STALL_LIMIT]
            overdue = Signal()
            stalled = Signal()
            m.d.comb += [
                overdue.eq((program[Register.WATCHDOG] != 0) & (cycles >= program[Register.WATCHDOG])),
                stalled.eq((limit != 0) & (quiet >= limit)),
            ]
            with m.If(self.moved):
                m.d.sync += quiet.eq(0)
            with m.Elif(~stalled):
                m.d.sync += quiet.eq(quiet + 1)
            with m.If(self.fault.valid & report.fault & (report.cause != Cause.NONE) & ~serving):
                m.d.comb += self.commanding.eq(1)
                m.d[self._command] += [running.eq(0), faulted.eq(1)]
                m.d.sync += who.eq(_register(FAULT_WHO, _reported(report)))
                m.d.sync += value.eq(report.value)
            with m.Elif(self.ended | self._stop):
                m.d.comb += self.commanding.eq(1)
                m.d[self._command] += [running.eq(0), done.eq(1)]
            with m.Elif(overdue | stalled):
                m.d.comb += self.commanding.eq(1)
                m.d[self._command] += [running.eq(0), faulted.eq(1), self.ask.eq(1)]
                m.d.sync += value.eq(Mux(overdue, cycles, quiet))
                cause = Mux(overdue, Cause.WATCHDOG, Cause.STALLED)
                m.d.sync += who.eq(_register(FAULT_WHO, self._own(cause)))
        return m

    def _own(self, cause: Value | int) -> dict[str, Value | int]:
        """A fault of the host itself."""
        return {"cause": cause, "unit": int(Unit.NONE), "tile": self.tile}

    def _registers(
        self,
        m: Module,
        write: WriteAccess,
        program: Mapping[Register, Signal],
        trace: Signal,
        ready: Value,
        launches: Launches | None,
    ) -> tuple[Signal, Value]:
        """What is written to CONTROL, to the registers that keep a value, and to those of programs and counters.
        Returns a strobe that CONTROL starts a run (`trace` is then set as well), and whether programs come and go in
        it."""
        start = Signal()
        serve = Signal()
        self._stop = Signal()
        with m.If(write.taken), m.Switch(self.bus.awaddr):
            for register, signal in program.items():
                with m.Case(int(register)):
                    value = write.over(signal)
                    m.d.comb += write.good.eq(~value[len(signal) :].any())
                    with m.If(write.good):
                        m.d.sync += signal.eq(value)
            with m.Case(int(Register.CONTROL)):
                control = data.View(CONTROL.layout(), write.value)
                m.d.comb += [
                    start.eq(control.start & ready & ~control.reset),
                    write.good.eq(start | ~control.start | control.reset),
                ]
                with m.If(control.reset):
                    m.d.sync += self.reset_wanted.eq(1)
                with m.If(start):
                    m.d[self._command] += trace.eq(control.trace)
                if launches is not None:
                    m.d.comb += [serve.eq(control.serve), self._stop.eq(control.stop)]
            if launches is not None:
                with m.Case(int(Register.LAUNCH)):
                    m.d.comb += write.good.eq(self.go & self.serving & write.whole & launches.room)
                    m.d.comb += launches.launch.valid.eq(write.good)
                with m.Case(int(Register.DONE)):
                    m.d.comb += [write.good.eq(write.whole), launches.next_one.eq(write.whole)]
            if self.config.counters:
                with m.Case(int(Register.COUNT)):
                    m.d.comb += write.good.eq(write.whole)
            for register in (Register.IRQ_ENABLE, Register.IRQ_STATUS):
                with m.Case(int(register)):
                    m.d.comb += write.good.eq(~write.value[IRQ.used :].any())
        return start, serve

    def _interrupt(
        self,
        m: Module,
        write: WriteAccess,
        start: Value,
        pending: Mapping[str, Value],
        readable: dict[Register, Value | int],
    ) -> None:
        """Drives `irq` from what is `pending`, in the order of `IRQ`, and adds its registers. An end of a run that has
        been acknowledged is pending no more."""
        enable = Signal(IRQ.used, init=(1 << IRQ.used) - 1)
        seen = Signal(2)
        with m.If(start):
            m.d.sync += seen.eq(0)
        with m.Elif(write.taken & write.good & (self.bus.awaddr == int(Register.IRQ_STATUS))):
            m.d.sync += seen.eq(seen | write.value)
        with m.If(write.taken & write.good & (self.bus.awaddr == int(Register.IRQ_ENABLE))):
            m.d.sync += enable.eq(write.over(enable))
        status = Signal(len(pending))
        m.d.comb += status.eq(Cat(*pending.values()) & ~Cat(seen, Const(0, 1)))
        m.d.comb += self.irq.eq((status & enable).any())
        readable |= {Register.IRQ_ENABLE: enable, Register.IRQ_STATUS: status}

    def _serve_programs(
        self,
        m: Module,
        launches: Launches,
        write: WriteAccess,
        program: Mapping[Register, Signal],
        readable: dict[Register, Value | int],
    ) -> None:
        """Connects the queues of programs that come and go, and adds what can be read of them."""
        launch = data.View(LAUNCH.layout(), write.value)
        entry, done = launches.launch.payload, launches.done
        m.d.comb += [
            launches.now.eq(self.now),
            launches.enable.eq(self.serving & self.go),
            launches.idle.eq(self.idle),
            entry.slot.eq(launch.slot),
            entry.streams.eq(launch.streams),
            entry.follows.eq(launch.follows),
            entry.dram.eq(program[Register.PROGRAM_TILE]),
            entry.addr.eq(program[Register.PROGRAM_ADDR]),
            entry.count.eq(program[Register.PROGRAM_COUNT]),
            entry.at.eq(program[Register.LAUNCH_AT]),
            launches.post.payload.eq(self.post.payload),
            self.post.ready.eq(1),
            launches.who.eq(_register(FAULT_WHO, _reported(self.post.payload))),
        ]
        assert COMPLETION.width == len(done.what.as_value())
        readable |= {
            Register.LAUNCH: 0,
            Register.DONE: done.what.as_value(),
            Register.DONE_WHO: done.who,
            Register.DONE_VALUE: done.value,
            Register.DONE_CYCLE: done.cycle,
            Register.DONE_COUNT: launches.waiting,
        }

    def _first_faults(self, m: Module, launches: Launches, start: Signal) -> None:
        """Lets posts through to the queue of completions, but for faults of tiles that have one there."""
        m.submodules.reported = reported = Reported(self.config)
        post, done = self.post.payload, launches.done
        failed = Signal()
        m.d.comb += [
            failed.eq(self.post.valid & launches.enable & post.fault & (post.cause != Cause.NONE)),
            reported.clear_all.eq(start),
            reported.fault.valid.eq(failed),
            reported.fault.tile.eq(post.tile),
            reported.taken.valid.eq(launches.next_one & done.what.valid & done.what.fault),
            reported.taken.tile.eq(data.View(FAULT_WHO.layout(), done.who).tile),
            reported.cleared.eq(self.cleared),
            launches.post.valid.eq(self.post.valid & (~failed | reported.fresh)),
        ]

    def _serve_counters(
        self, m: Module, counters: CounterReader, write: WriteAccess, readable: dict[Register, Value | int]
    ) -> None:
        """Connects the reader of counters, and adds what can be read of it."""
        m.submodules.counters = counters
        taking = write.taken & write.whole & (self.bus.awaddr == int(Register.COUNT))
        m.d.comb += [
            counters.now.eq(self.now),
            counters.take.eq(taking),
            counters.which.eq(data.View(COUNT.layout(), write.value).which),
            counters.arriving.eq(self.counter_data),
            self.counter_ask.eq(counters.ask),
        ]
        state = {"which": counters.ask.which, "ready": counters.ready, "left": counters.left}
        readable |= {
            Register.COUNT: _register(COUNT, state),
            Register.COUNT_CYCLE: counters.cycle,
            Register.COUNT_VALUE: counters.value,
        }

    def _reports(self, m: Module, next_one: Signal) -> tuple[Value, Value]:
        """Stores arriving states; returns the number of unread ones, and the first of them. `next_one` takes it. There
        are none in chips without `reports`."""
        if not self.config.reports:
            return Const(0), Const(0, REPORT.width)
        depth = 1 << (most_reports(self.config) - 1).bit_length()
        m.submodules.reports = reports = memory.Memory(shape=REPORT.width, depth=depth, init=[])
        write, read = reports.write_port(), reports.read_port()
        got = Signal(range(depth + 1))
        left = Signal(range(depth + 1))
        done = Signal(range(depth + 1))
        state = data.View(StateFlit, self.fault.payload.as_value())
        arriving = Signal()
        m.d.comb += [
            arriving.eq(self.ask & self.fault.valid & state.fault & (state.cause == Cause.NONE) & (got != depth)),
            write.en.eq(arriving),
            write.addr.eq(got),
            write.data.eq(_register(REPORT, {name: state[name] for name in REPORT.offsets})),
            read.addr.eq(done),
            left.eq(got - done),
        ]
        with m.If(arriving):
            m.d.sync += got.eq(got + 1)
        with m.If(next_one & (left != 0)):
            m.d.sync += done.eq(done + 1)
        return left, Mux(left != 0, read.data, 0)
