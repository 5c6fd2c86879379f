"""A session on the RTL: what `sched.model.modelled` is on the timeline model.

The chip has its own time. It advances until its interrupt, and a few cycles further with each register that is read or
written; completions carry the cycle in which they happened and launches that in which they are to start. So whoever
drives the session sees them in the order of their cycles, however far the chip has come, and two runs with the same
launches are the same to the cycle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Cause, Opcode, Unit
from meshloom.hw.spec.registers import COMPLETION, FAULT_WHO, LAUNCH, STATUS, Counted, Register
from meshloom.sched.lowering.templates.flush import end_address, flush, host_pages
from meshloom.sched.model.busy import Snapshot
from meshloom.sched.model.session import Completion, Fault, Launch, SessionError
from meshloom.sched.program.program import Instruction, Program, Stream, next_tag

from ...devices.serving import ServedChip

#: Cycles that the chip advances at once while nothing limits it.
_STRIDE = 1 << 20
#: Cycles that a program may take.
PATIENCE = 20_000_000
#: Cycles from a fault, or from the end of a flush, to what is launched on it: more than registers take, so that it does
#: not depend on how fast they are.
_REACTION = 256


@dataclass
class _Running:
    """A program on the chip, launched in cycle `since`. `cores`: its own, and those of the successor that it had when
    it was given up. `fault`: why it is being given up, once it is."""

    program: Program
    since: int
    cores: list[int]
    fault: Fault | None = None


class RtlSession:
    """Programs come and go on `served`, which is open. See `sched.model.session.Session`.

    A program that raises a fault is given up: its streams are ended, and its completion comes, with that fault, when
    nothing of it is left on the chip (`sched.lowering.templates.flush`). Its successor never begins. The others never
    notice, but that no successor begins before the fault has been read. So is one that has not ended `patience` cycles
    after its launch, with a fault STALLED.
    """

    def __init__(self, served: ServedChip, patience: int = PATIENCE) -> None:
        self.served, self.patience = served, patience
        self.now = 0
        self._time = 0  # the chip has reached this cycle
        self._running: dict[int, _Running] = {}
        self._after: dict[int, _Running] = {}  # successors that have not begun, by slot
        self._ended: deque[Completion] = deque()
        self._given_up: deque[int] = deque()  # slots whose cores are to be flushed; the first is being flushed
        self._strays: list[Fault] = []

    @property
    def chip(self) -> ChipConfig:
        return self.served.config

    @property
    def running(self) -> int:
        """Programs that have been launched and have not completed."""
        return len(self._running) + len(self._after)

    @property
    def strays(self) -> Sequence[Fault]:
        """Faults of tiles on which no program ran."""
        return tuple(self._strays)

    def load(self, memory: Sequence[tuple[int, int, NDArray[np.uint8]]]) -> None:
        """Writes words to DRAM, in no time: (dram tile, word address, uint8 [n, P])."""
        self.served.load(memory)

    def dump(self, ranges: Sequence[tuple[int, int, int]]) -> list[NDArray[np.uint8]]:
        """Reads words of DRAM, in no time: (dram tile, word address, words) each, uint8 [n, P]."""
        return self.served.dump(ranges)

    def launch(self, launch: Launch, at: int) -> None:
        """See `Session.launch`. Its code is written to DRAM now. Raises SessionError if the slot is not free, and if
        the chip has passed cycle `at`: writing the registers takes it some twenty cycles for each launch."""
        slot, launched = launch.slot, _Running(launch.program, at, _cores(launch.program))
        before = self._running.get(slot)
        follows = launch.follows and (before is not None or any(done.slot == slot for done in self._ended))
        if slot in self._after:
            raise SessionError(f"launch into slot {slot} in cycle {at}: its program has a successor")
        if before is None:
            self._running[slot] = launched
        elif not follows:
            raise SessionError(f"launch into slot {slot} in cycle {at}: its program has not completed")
        elif before.fault is not None:
            return  # nothing follows a program that is given up
        else:
            self._after[slot] = launched
        self._queue(launch.program, slot, len(launch.program.streams), at, follows)
        if self._time > at:
            raise SessionError(
                f"launch into slot {launch.slot} in cycle {at}: the chip was in cycle {self._time} by then; launch "
                "later, since registers take time"
            )

    def counters(self) -> dict[Counted, Snapshot]:
        """Busy cycles of cores, DRAM channels and links, from the chip's counters: each snapshot says of which cycle it
        is. Programs run on meanwhile: some ten cycles for each tile and counter. Raises NoDeviceError if the chip has
        none."""
        snapshots = self.served.counters()
        (self._time,) = self.served.read(Register.CYCLES)
        return snapshots

    def cancel(self, slot: int, fault: Fault, cycle: int) -> None:
        """Gives up a program, for what happened in `cycle`: it completes with `fault` when nothing of it is left."""
        running = self._running[slot]
        if running.fault is None:
            self._withdraw(slot)
            running.fault = fault
            # whoever is being flushed: it may be raising faults all the time
            self._end(slot, cycle + _REACTION)
            self._given_up.append(slot)
            if len(self._given_up) == 1:
                self._flush(cycle + _REACTION)

    def advance(self, until: int | None) -> tuple[Completion, ...]:
        """See `Session.advance`."""
        if until is None and not self._running:
            raise SessionError(f"cycle {self.now}: no program is running, so none can complete; launch one")
        while True:
            if self._ended and (until is None or self._ended[0].cycle <= until):
                first = self._ended.popleft()
                done = [first]
                while self._ended and self._ended[0].cycle == first.cycle:
                    done.append(self._ended.popleft())
                self.now = max(self.now, first.cycle)
                return tuple(done)
            if until is not None and self._time > until:
                self.now = until
                return ()
            latest = min((one.since for one in self._running.values()), default=self._time) + self.patience
            cycles = min(_STRIDE, max(1, latest - self._time) + 1)
            if self.served.run(cycles if until is None else min(cycles, until - self._time + 1)):
                self._take()
            (self._time,) = self.served.read(Register.CYCLES)
            self._overdue()

    def _overdue(self) -> None:
        """Gives up programs that have taken too long."""
        for slot, running in list(self._running.items()):
            if running.fault is None and self._time - running.since > self.patience:
                tile = running.program.streams[0].tile
                overdue = running.since + self.patience
                self.cancel(slot, Fault(Cause.STALLED, tile, Unit.NONE, 0, self.patience), overdue)
                running.since = self._time  # as long again for what is left of it

    def _withdraw(self, slot: int) -> None:
        """Keeps the successor of a program, if it has one, from beginning; its cores are given up with the program's,
        in case that it has begun by now."""
        after = self._after.pop(slot, None)
        if after is not None:
            self.served.write(Register.LAUNCH, LAUNCH.pack({"slot": slot, "follows": 1}))
            running = self._running[slot]
            running.cores = sorted({*running.cores, *after.cores})

    def _queue(self, program: Program, slot: int, streams: int, at: int, follows: bool = False) -> None:
        """Writes the code of a program to DRAM and its launch to the queue."""
        self.served.load(program.image(self.chip))
        boot = program.boot
        self.served.write_all(
            [
                (Register.PROGRAM_TILE, boot.dram_tile),
                (Register.PROGRAM_ADDR, boot.address),
                (Register.PROGRAM_COUNT, len(boot.instructions)),
                (Register.LAUNCH_AT, at),
                (Register.LAUNCH, LAUNCH.pack({"streams": streams, "slot": slot, "follows": int(follows)})),
            ]
        )
        (self._time,) = self.served.read(Register.CYCLES)

    def _take(self) -> None:
        """Takes all completions from the chip."""
        while True:
            # one may arrive between two reads: only what DONE itself has shown may be taken
            done, cycle = self.served.read(Register.DONE, Register.DONE_CYCLE)
            counts = COMPLETION.unpack(done)
            if not counts["valid"]:
                break
            if counts["fault"]:
                who, value = self.served.read(Register.DONE_WHO, Register.DONE_VALUE)
                self._failed(who, value, cycle)
                continue
            self.served.write(Register.DONE, 1)
            if counts["slot"] == self.chip.programs:
                self._flushed(cycle)
            elif (running := self._running.get(counts["slot"])) is not None and running.fault is None:
                del self._running[counts["slot"]]
                if (after := self._after.pop(counts["slot"], None)) is not None:
                    after.since = max(after.since, cycle)
                    self._running[counts["slot"]] = after
                self._ended.append(Completion(counts["slot"], cycle))
        (status,) = self.served.read(Register.STATUS)
        if STATUS.unpack(status)["lost"]:
            raise SessionError("the chip has lost completions: more faults than its queue holds")

    def _failed(self, who: int, value: int, cycle: int) -> None:
        """Takes a fault from the chip, and gives up the program to blame. Until it is taken no successor begins."""
        counts = FAULT_WHO.unpack(who)
        fault = Fault(Cause(counts["cause"]), counts["tile"], Unit(counts["unit"]), counts["tag"], value)
        slot = next((slot for slot, running in self._running.items() if fault.tile in running.cores), None)
        if slot is not None:
            self._withdraw(slot)
        self.served.write(Register.DONE, 1)
        if slot is not None:
            self.cancel(slot, fault, cycle)
        else:
            self._strays.append(fault)

    def _end(self, slot: int, at: int) -> None:
        """Ends the streams of the program in `slot`, in cycle `at` or later."""
        running = self._running[slot]
        program, boot = running.program, running.program.boot
        ends = tuple(
            Instruction(Opcode.FETCH, {"tag": next_tag(n), "tile": core, "unit": int(Unit.NONE), "clear": 1})
            for n, core in enumerate(running.cores)
        )
        end = Stream(boot.tile, boot.unit, self.chip.drams[0], end_address(self.chip, slot), ends)
        # in its own slot: a launch sets the count of its slot's streams
        self._queue(Program(program.chip_digest, (), end, {}), slot, 0, at)

    def _flush(self, at: int) -> None:
        """Has the cores of the first program that is given up flushed, from cycle `at` on or later."""
        running = self._running[self._given_up[0]]
        program, boot, cores = running.program, running.program.boot, running.cores
        pages = host_pages(self.chip)
        rights = {
            "cores": sum(1 << self.chip.cores.index(core) for core in cores),
            "first_page": pages.start,
            "end_page": pages.stop,
            "slot": self.chip.programs,
        }
        streams = flush(self.chip, cores, self.chip.programs, pages.start)
        last = streams[-1]
        after = last.address + -(-len(last.instructions) * self.chip.instruction_words // 64) * 64
        fetches = tuple(
            Instruction(
                Opcode.FETCH,
                {"tag": next_tag(n), "tile": one.tile, "unit": int(one.unit), "dram": one.dram_tile}
                | {"addr": one.address, "count": len(one.instructions), "clear": int(one.unit is Unit.MOVER)}
                | rights,
            )
            for n, one in enumerate(streams)
        )
        again = Stream(boot.tile, boot.unit, last.dram_tile, after, fetches)
        self._queue(Program(program.chip_digest, streams, again, {}), self.chip.programs, len(streams), at)

    def _flushed(self, cycle: int) -> None:
        slot = self._given_up.popleft()
        running = self._running.pop(slot)
        self._ended.append(Completion(slot, cycle, running.fault))
        if self._given_up:
            self._flush(cycle + _REACTION)


def _cores(program: Program) -> list[int]:
    return sorted({stream.tile for stream in program.streams})
