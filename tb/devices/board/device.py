"""A chip on a board as a device: each job is loaded over its link, run, and read back."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import stats_words
from meshloom.hw.spec.isa import Cause
from meshloom.hw.spec.registers import CONTROL, FAULT_WHO, ID_VALUE, STATUS, Register
from meshloom.sched.program.program import ProgramError, Stream
from meshloom.sched.support.text import whole_number

from .. import readout
from ..images import Loads, loads
from ..interface import BlockedStatus, DeviceKind, Fault, Job, NoDeviceError, Run, UnknownDeviceError
from ..simulated import parse_fault, parse_states
from .host import BoardLink
from .transport import BAUD, LinkError, SerialTransport, TcpTransport, Transport

#: Looks at STATUS after reset until the chip must be ready.
_READY_POLLS = 1000
#: Why a run has no words from inside the cores.
UNOBSERVED = "a board does not show what its cores compute: the outputs in DRAM alone were compared"
#: CPU seconds of a run: hardware takes none.
NO_CPU = 0.0
Connect = Callable[[], Transport]


@dataclass
class BoardDevice:
    """A chip behind `connect`. Each batch of jobs has a connection of its own, so that others may have the board in
    between."""

    config: ChipConfig
    name: str
    connect: Connect
    waves: Path | None = None

    def beside(self, on_progress: Callable[[str], None]) -> BoardDevice:
        """The same: a board runs one job at a time."""
        return self

    def run(self, jobs: Sequence[Job], label: str = "run") -> Generator[Run, None, None]:
        """Runs jobs one after another. Raises NoDeviceError if there is no board, or another chip on it; LinkError."""
        transport = self.connect()
        try:
            link = BoardLink(transport)
            self._check(link)
            for job in jobs:
                yield self._execute(link, job)
        finally:
            transport.close()

    def _check(self, link: BoardLink) -> None:
        """Raises NoDeviceError if the board's chip is another one."""
        greeting, chip = link.greeting, self.config
        ident, config = link.read(Register.ID), link.read(Register.CONFIG)
        if ident != ID_VALUE:
            raise NoDeviceError(f"{self.name}: register ID is {ident:#x}: behind the link is no chip of Meshloom")
        if config != int(chip.digest[-8:], 16) or greeting.lanes != chip.lanes:
            raise NoDeviceError(
                f"{self.name}: the chip there is another one than {chip.name}: its digest ends with {config:08x}, not "
                f"{chip.digest[-8:]}; name it with --chip, or load the right bitstream"
            )
        if greeting.channels != len(chip.channels) or greeting.words < chip.dram.words:
            raise NoDeviceError(
                f"{self.name}: has {greeting.channels} DRAM channels of {greeting.words} words; chip {chip.name} needs "
                f"{len(chip.channels)} of {chip.dram.words}"
            )

    def _execute(self, link: BoardLink, job: Job) -> Run:
        """Runs a job. Records are read back where DRAM has room for the program that fetches them."""
        chip = self.config
        needed = loads(job, chip, anew=True)  # others may have used the board since
        plan, shortage = self._readout(job, needed)
        link.reset()
        for tile, segments in needed.segments.items():
            for at, words in segments:
                link.load(chip.channels.index(tile), at, words)
        boot = job.program.boot
        status = self._boot(link, boot, job.watchdog, job.stall_limit, CONTROL.pack({"start": 1, "trace": 1}))
        cycles, quiet = link.read(Register.CYCLES), link.read(Register.QUIET)
        if status["fault"]:
            fault, blocked = self._fault(link)
            return Run(cycles, fault, [], [], {}, NO_CPU, self.name, "", {}, blocked, quiet, UNOBSERVED)
        memory = [link.dump(chip.channels.index(tile), at, words) for tile, at, words in job.outputs]
        records: list[readout.Record] = []
        counters: dict[int, list[int]] = {}
        if plan is not None:
            status = self._boot(link, plan.stream, 50_000_000, job.stall_limit, CONTROL.pack({"start": 1}))
            if status["fault"]:
                shortage = f"fetching the records failed: {self._fault(link)[0].describe(chip)}"
            else:
                traced = link.dump(chip.channels.index(plan.dram_tile), plan.first, plan.words)
                records, counters, damage = readout.parse(plan, traced, chip)
                shortage = readout.shortage(counters, chip) or damage
        return Run(
            cycles,
            None,
            memory,
            records,
            counters,
            NO_CPU,
            self.name,
            shortage,
            quiet=quiet,
            unobserved=UNOBSERVED,
            loaded=needed.bytes,
        )

    def _readout(self, job: Job, needed: Loads) -> tuple[readout.Readout | None, str]:
        """The program that fetches the records, which is added to what is `needed`; or why there is none."""
        chip = self.config
        if why := readout.untraced(chip):
            return None, why
        try:
            plan = readout.plan(job.program, chip, stats_words(chip), needed.free[chip.drams[0]])
        except ProgramError as error:
            return None, f"the board's DRAM has no room for the records: {error}"
        needed.segments[plan.stream.dram_tile].append((plan.stream.address, plan.stream.code(chip)))
        return plan, ""

    def _boot(self, link: BoardLink, stream: Stream, watchdog: int, stall_limit: int, control: int) -> dict[str, int]:
        """Runs a boot stream; returns STATUS after it. The chip's watchdog ends a run that hangs."""
        for _ in range(_READY_POLLS):
            if STATUS.unpack(link.read(Register.STATUS))["ready"]:
                break
        else:
            raise LinkError(f"{self.name}: the chip does not become ready after its reset")
        link.write(Register.PROGRAM_TILE, stream.dram_tile)
        link.write(Register.PROGRAM_ADDR, stream.address)
        link.write(Register.PROGRAM_COUNT, len(stream.instructions))
        link.write(Register.WATCHDOG, watchdog)
        link.write(Register.STALL_LIMIT, stall_limit)
        link.write(Register.CONTROL, control)
        while True:
            status = STATUS.unpack(link.read(Register.STATUS))
            if not status["running"]:
                return status

    def _fault(self, link: BoardLink) -> tuple[Fault, tuple[BlockedStatus, ...]]:
        """Why the chip has stopped, and after a watchdog what each part was waiting for."""
        who = link.read(Register.FAULT_WHO)
        fault = parse_fault(who, link.read(Register.FAULT_VALUE))
        if Cause(FAULT_WHO.unpack(who)["cause"]) not in (Cause.WATCHDOG, Cause.STALLED):
            return fault, ()
        lines: list[str] = []
        for _ in range(link.read(Register.REPORTS)):
            low = link.read(Register.REPORT_LOW)
            lines.append(f"{link.read(Register.REPORT_HIGH):08x}{low:08x}")
        return fault, parse_states("\n".join(lines))


def _kind(name: str, summary: str, connect: Connect) -> DeviceKind:
    def open_one(chip: ChipConfig, waves: bool, on_progress: Callable[[str], None]) -> BoardDevice:
        return BoardDevice(chip, name, connect)

    return DeviceKind(name, summary, open_one, version=lambda: "host link 1", most=1)


def tcp(place: str) -> DeviceKind:
    """The board behind HOST:PORT. Raises UnknownDeviceError for another text."""
    host, _, port = place.rpartition(":")
    if not host or (number := whole_number(port)) is None or not 0 < number < 1 << 16:
        raise UnknownDeviceError(f"device tcp:{place}: must be tcp:HOST:PORT, such as tcp:localhost:5000")
    return _kind(f"tcp:{place}", "a board behind a TCP port", lambda: TcpTransport(host, number))


def serial(place: str) -> DeviceKind:
    """The board behind a serial port, PATH or PATH@BAUD. Raises UnknownDeviceError for another text."""
    path, _, baud = place.partition("@")
    rate = whole_number(baud or str(BAUD))
    if not path or not rate:
        raise UnknownDeviceError(f"device serial:{place}: must be serial:PATH or serial:PATH@BAUD")
    return _kind(f"serial:{place}", "a board behind a serial port", lambda: SerialTransport(path, rate))
