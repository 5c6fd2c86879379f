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
of them, and reading REPORT_HIGH advances to the next.
"""

from __future__ import annotations

from collections.abc import Mapping

from amaranth.hdl import Cat, Const, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import ChipConfig
from ..spec.contracts import COUNT_WIRES
from ..spec.isa import POST, Cause, Format, Opcode, Unit
from ..spec.registers import COMPLETION, CONTROL, COUNT, FAULT_WHO, ID_VALUE, LAUNCH, REPORT, STATUS, Register
from ..wiring.axi import AXI4Lite, AXI4LitePort
from ..wiring.signatures import FetchLayout, PostFlit, StateFlit
from .counters import Ask, CounterReader
from .launches import Launches
from .reported import Reported, TileStrobe, most_completions
from .reporter import most_reports


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
    from the first of them.
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
        program = {
            name: Signal(32, name=name.name.lower())
            for name in (
                Register.PROGRAM_TILE,
                Register.PROGRAM_ADDR,
                Register.PROGRAM_COUNT,
                Register.WATCHDOG,
                Register.STALL_LIMIT,
                *([Register.LAUNCH_AT] if self.config.programs else []),
            )
        }
        cycles = Signal(32)
        quiet = Signal(32)
        who = Signal(32)
        value = Signal(32)
        m.d.comb += [self.now.eq(cycles), self.go.eq(running), self.trace.eq(trace), self.irq.eq(done | faulted)]
        launches = Launches(self.config) if self.config.programs else None
        serving = self.serving if launches is not None else Const(0)

        counters = CounterReader(self.config) if self.config.counters else None
        m.d.comb += self.counting.eq(running & (trace | counted))

        start, serve = self._serve_writes(m, program, trace, running, faulted, launches)
        if counters is not None:
            with m.If(start):
                m.d[self._command] += counted.eq(data.View(CONTROL.layout(), self.bus.wdata).count)
        waiting, oldest, next_one = self._reports(m)
        ready = self.ready & ~running & ~faulted
        status = {"running": running, "done": done, "fault": faulted, "ready": ready}
        readable: dict[Register, Value | int] = {
            Register.ID: ID_VALUE,
            Register.CONFIG: int(self.config.digest[-8:], 16),
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
        if launches is not None:
            self._serve_programs(m, launches, program, readable)
            self._first_faults(m, launches, start)
            m.submodules.launches = ResetInserter(start)(launches)  # each run begins with empty queues
            status |= {"full": launches.full, "lost": launches.lost}
            readable[Register.STATUS] = _register(STATUS, status)
        if counters is not None:
            self._serve_counters(m, counters, readable)
        self._serve_reads(m, readable, next_one)

        fetch = self.start.fetch
        m.d.comb += [
            self.start.valid.eq(start & ~serve),
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
        with m.Elif(running):
            m.d.sync += cycles.eq(cycles + 1)
            limit = program[Register.STALL_LIMIT]
            overdue = Signal()
            stalled = Signal()
            m.d.comb += [
                overdue.eq((program[Register.WATCHDOG] != 0) & (cycles == program[Register.WATCHDOG])),
                stalled.eq((limit != 0) & (quiet == limit)),
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
                fault = {"cause": cause, "unit": int(Unit.NONE), "tile": self.tile}
                m.d.sync += who.eq(_register(FAULT_WHO, fault))
        return m

    def _serve_writes(
        self,
        m: Module,
        program: Mapping[Register, Signal],
        trace: Signal,
        running: Signal,
        faulted: Signal,
        launches: Launches | None,
    ) -> tuple[Signal, Value]:
        """The write channels: one write at a time, address and data together, answered in the next cycle. Returns a
        strobe that CONTROL starts a run (`trace` is then set as well), and whether programs come and go in it."""
        bus = self.bus
        write = Signal()
        m.d.comb += [
            write.eq(bus.awvalid & bus.wvalid & ~bus.bvalid),
            bus.awready.eq(write),
            bus.wready.eq(write),
        ]
        start = Signal()
        serve = Signal()
        self._stop = Signal()
        with m.If(bus.bvalid & bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        with m.If(write):
            m.d.sync += bus.bvalid.eq(1)
            with m.Switch(bus.awaddr):
                for register, signal in program.items():
                    with m.Case(int(register)):
                        m.d.sync += signal.eq(bus.wdata)
                with m.Case(int(Register.CONTROL)):
                    control = data.View(CONTROL.layout(), bus.wdata)
                    m.d.comb += start.eq(control.start & ~running & ~faulted & self.ready)
                    with m.If(start):
                        m.d[self._command] += trace.eq(control.trace)
                    if launches is not None:
                        m.d.comb += [serve.eq(control.serve), self._stop.eq(control.stop)]
                if launches is not None:
                    with m.Case(int(Register.LAUNCH)):
                        m.d.comb += launches.launch.valid.eq(running & self.serving)
                    with m.Case(int(Register.DONE)):
                        m.d.comb += launches.next_one.eq(1)
        return start, serve

    def _serve_programs(
        self, m: Module, launches: Launches, program: Mapping[Register, Signal], readable: dict[Register, Value | int]
    ) -> None:
        """Connects the queues of programs that come and go, and adds what can be read of them."""
        launch = data.View(LAUNCH.layout(), self.bus.wdata)
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
        with m.If(self.serving & (launches.waiting != 0)):
            m.d.comb += self.irq.eq(1)
        assert COMPLETION.width == len(done.what.as_value())
        readable |= {
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

    def _serve_counters(self, m: Module, counters: CounterReader, readable: dict[Register, Value | int]) -> None:
        """Connects the reader of counters, and adds what can be read of it."""
        bus = self.bus
        m.submodules.counters = counters
        taking = bus.awvalid & bus.awready & (bus.awaddr == int(Register.COUNT))
        reading = bus.arvalid & bus.arready & (bus.araddr == int(Register.COUNT_VALUE))
        m.d.comb += [
            counters.now.eq(self.now),
            counters.take.eq(taking),
            counters.which.eq(data.View(COUNT.layout(), bus.wdata).which),
            counters.next_one.eq(reading),
            counters.arriving.eq(self.counter_data),
            self.counter_ask.eq(counters.ask),
        ]
        state = {"which": counters.ask.which, "ready": counters.ready, "left": counters.left}
        readable |= {
            Register.COUNT: _register(COUNT, state),
            Register.COUNT_CYCLE: counters.cycle,
            Register.COUNT_VALUE: counters.value,
        }

    def _serve_reads(self, m: Module, readable: Mapping[Register, Value | int], next_one: Signal) -> None:
        """The read channels: one read at a time, answered in the next cycle; other addresses read as 0. Drives
        `next_one` when REPORT_HIGH is read."""
        bus = self.bus
        with m.If(bus.rvalid & bus.rready):
            m.d.sync += bus.rvalid.eq(0)
        m.d.comb += bus.arready.eq(~bus.rvalid)
        with m.If(bus.arvalid & bus.arready):
            m.d.sync += bus.rvalid.eq(1)
            with m.Switch(bus.araddr):
                for register, source in readable.items():
                    with m.Case(int(register)):
                        m.d.sync += bus.rdata.eq(source)
                        if register is Register.REPORT_HIGH:
                            m.d.comb += next_one.eq(1)
                with m.Default():
                    m.d.sync += bus.rdata.eq(0)

    def _reports(self, m: Module) -> tuple[Signal, Value, Signal]:
        """Stores arriving states; returns the number of unread ones, the first of them, and a strobe for the next."""
        depth = 1 << (most_reports(self.config) - 1).bit_length()
        m.submodules.reports = reports = memory.Memory(shape=REPORT.width, depth=depth, init=[])
        write, read = reports.write_port(), reports.read_port()
        got = Signal(range(depth + 1))
        left = Signal(range(depth + 1))
        done = Signal(range(depth + 1))
        next_one = Signal()
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
        return left, read.data, next_one
