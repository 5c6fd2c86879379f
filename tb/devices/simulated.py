"""Devices run programs. `SimulatedDevice` is the chip's RTL under Verilator or Icarus.

One simulator process runs many jobs; two processes side by side use both CPUs. A job's result is there as soon as it
has run, so a batch can be followed, interrupted, and loses nothing that was finished.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import stats_words
from meshloom.hw.spec.isa import BlockedOn, Cause, Part, Unit
from meshloom.hw.spec.registers import FAULT_WHO, REPORT, STATUS
from meshloom.sched.store.cache import SettingError, setting
from meshloom.sched.store.kinds import RUNS
from meshloom.sched.store.store import OnProgress, fingerprint

from ..build.builder import OUTPUT, Build, build, rebuild, tool_variables
from ..build.ports import STARTED, THREADS
from ..build.simulate import ANSWERS, JOBS
from ..build.tools import compiler_version, simulator_version
from . import readout
from .folders import claim, room_in
from .images import Loads, loads, read_hex, write_image
from .interface import BlockedStatus, DeviceError, DeviceKind, Fault, Job, NoDeviceError, Run
from .observe import read_log
from .pool import Pool, Started, current
from .processes import Answers, open_pipe, stop


class _DoesNotStart(DeviceError):
    """A simulator process ended before the chip was there."""


@dataclass
class SimulatedDevice:
    """The RTL of a chip in a simulator (`build`)."""

    build: Build
    keep: bool = False  #: keep the folder of the run (waves, memory images)
    patience: float = 10.0  #: seconds that the process may take to end after its last job
    on_progress: OnProgress = lambda what: None  #: hears that the simulator is built anew
    pool: Pool | None = None  #: has simulators that wait for jobs; None: each `run` starts one
    last_folder: Path | None = field(default=None, init=False)

    @property
    def config(self) -> ChipConfig:
        return self.build.config

    @property
    def name(self) -> str:
        return self.build.simulator

    @property
    def waves(self) -> Path | None:
        if not self.build.waves or self.last_folder is None:
            return None
        return self.last_folder / "waves.fst"

    def beside(self, on_progress: OnProgress) -> SimulatedDevice:
        """Another process of the same simulator."""
        return replace(self, on_progress=on_progress)

    def run(self, jobs: Sequence[Job], label: str = "run") -> Generator[Run, None, None]:
        """Runs jobs one after another in one simulator process; yields each as soon as it is done.

        A simulator that does not start is built anew, once. Raises NoDeviceError when it still does not, or when it is
        not the chip it should be; BuildError, RunsError; DeviceError when it dies.
        """
        if not jobs:
            return
        jobs = [replace(jobs[0], stays=()), *jobs[1:]]  # a simulator of the pool has run other things before
        if self.pool is not None and not self.keep:
            yield from self._pooled(self.pool, jobs, label)
            return
        was = fingerprint(self.build.folder)
        try:
            yield from self._claimed(jobs, label)
        except _DoesNotStart:
            self.on_progress("the simulator does not start")
            self.build = rebuild(self.build, was, self.on_progress)
        else:
            return
        try:
            yield from self._claimed(jobs, label)
        except _DoesNotStart as error:
            raise NoDeviceError(
                f"{error}. It was built again and still does not start: check its tools, then delete "
                f"{self.build.folder}"
            ) from error

    def _pooled(self, pool: Pool, jobs: Sequence[Job], label: str) -> Generator[Run, None, None]:
        """The same in a simulator that waits in `pool`, or that waits there afterwards. Raises as `run`."""
        folder = self.build.folder
        kind = folder, fingerprint(folder), os.environ.get(THREADS), RUNS.folder(OUTPUT)
        simulator = pool.take(kind)
        if simulator is None:
            try:
                simulator = self._begin(label)
            except NoDeviceError:  # it is built anew there, once
                yield from replace(self, pool=None).run(jobs, label)
                return
        self.last_folder = simulator.folder
        done = keep = False
        try:
            with room_in(simulator.folder):
                for job in jobs:
                    yield self._execute(simulator, job)
            done = True
        except DeviceError:
            keep = True  # its log is named
            raise
        finally:
            if done:
                pool.put(kind, simulator)
            else:
                simulator.end(keep=keep)

    def _claimed(self, jobs: Sequence[Job], label: str) -> Generator[Run, None, None]:
        claimed = claim(label, RUNS.folder(OUTPUT), self.on_progress)
        self.last_folder, keep = claimed.folder, self.keep
        try:
            with room_in(claimed.folder):
                yield from self._run(jobs, claimed.folder)
        except DeviceError:
            keep = True  # its log is named
            raise
        finally:
            claimed.release(keep)

    def _run(self, jobs: Sequence[Job], folder: Path) -> Generator[Run, None, None]:
        plans: list[tuple[readout.Readout, Loads]] = []
        with (folder / JOBS).open("w") as listing:
            for number, job in enumerate(jobs):
                plans.append(self._prepare(number, job, folder))
                listing.write(self._line(number, job, *plans[-1]))
        with closing(Answers(folder / ANSWERS)) as answers:
            process = self._start(folder)
            finished = False
            try:
                for number, (job, plan) in enumerate(zip(jobs, plans, strict=True)):
                    run = self._collect(number, job, *plan, self._await(process, answers, folder, number), folder)
                    finished = number == len(jobs) - 1
                    yield run
            finally:
                stop(process, patience=self.patience if finished else 0)

    @contextmanager
    def opened(self, label: str = "run") -> Generator[Callable[[Job], Run], None, None]:
        """Runs jobs of which each may depend on what the one before has left, in one simulator process: hands out what
        runs one. DRAM stays as it is where jobs say so (`Job.stays`).

        Raises NoDeviceError if the simulator does not start or is another chip, RunsError; DeviceError when it dies.
        """
        simulator, keep, ended = self._begin(label), self.keep, False
        try:
            with room_in(simulator.folder):
                yield partial(self._execute, simulator)
            ended = True
        except DeviceError:
            keep = True  # its log is named
            raise
        finally:
            simulator.end(patience=self.patience if ended else 0, keep=keep)

    def _begin(self, label: str) -> Started:
        """Starts a simulator that takes jobs one by one. Raises NoDeviceError, RunsError."""
        claimed = claim(label, RUNS.folder(OUTPUT), self.on_progress)
        folder = self.last_folder = claimed.folder
        os.mkfifo(folder / JOBS)
        answers = Answers(folder / ANSWERS)
        process = self._start(folder)
        try:
            return Started(process, claimed, answers, open_pipe(folder / JOBS, process, folder / "sim.log"))
        except BaseException as error:
            stop(process, patience=0)
            answers.close()
            claimed.release(isinstance(error, DeviceError))  # its log is named
            raise

    def _execute(self, simulator: Started, job: Job) -> Run:
        """Runs a job in a simulator. Raises as `_await`."""
        number, folder = next(simulator.numbers), simulator.folder
        plan, needed = self._prepare(number, job, folder)
        with suppress(BrokenPipeError):  # it has ended, which waiting for it reports
            simulator.jobs.write(self._line(number, job, plan, needed))
            simulator.jobs.flush()
        result = self._await(simulator.process, simulator.answers, folder, number)
        return self._collect(number, job, plan, needed, result, folder)

    def _prepare(self, number: int, job: Job, folder: Path) -> tuple[readout.Readout, Loads]:
        """Writes the memory images of a job; returns how its records come back, and what is loaded."""
        chip = self.build.config
        needed = loads(job, chip, anew=number == 0)  # nobody has been there before the first job of a process
        first = chip.drams[0]
        plan = readout.plan(job.program, chip, stats_words(chip), needed.free[first])
        if plan.words:
            needed.segments[first].append((plan.stream.address, plan.stream.code(chip)))
        for index, tile in enumerate(chip.channels):
            write_image(folder / f"job{number}_{index}.bin", needed.segments[tile])
        return plan, needed

    def _line(self, number: int, job: Job, plan: readout.Readout, needed: Loads) -> str:
        """A job as the bench reads it."""
        inputs = self._inputs(job, plan) | {"stay": int(not needed.anew)}
        return json.dumps({"number": number, "inputs": inputs}) + "\n"

    def _inputs(self, job: Job, plan: readout.Readout) -> dict[str, int]:
        chip = self.build.config
        boot, stream = job.program.boot, plan.stream
        inputs = {
            "program_tile": boot.dram_tile,
            "program_addr": boot.address,
            "program_count": len(boot.instructions),
            "watchdog": job.watchdog,
            "stall_limit": job.stall_limit,
            "trace_tile": stream.dram_tile,
            "trace_addr": stream.address,
            "trace_count": len(stream.instructions),
            "observe": int(job.observe),
        }
        for index, tile in enumerate(chip.channels):
            first, last = _extent(job.outputs, tile)
            inputs |= {f"data_first_{index}": first, f"data_last_{index}": last}
            here = tile == plan.dram_tile
            inputs[f"records_first_{index}"] = plan.first if here else 1
            inputs[f"records_last_{index}"] = plan.first + plan.words - 1 if here else 0
        return inputs

    def _start(self, folder: Path) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "meshloom.tb.build.simulate",
            self.build.simulator,
            str(self.build.folder),
            str(folder),
        ]
        if self.build.waves:
            command.append("waves")
        # It ends when its standard input does: with this process, however that ends. Devices start in threads side by
        # side, so the environment is handed over and not changed.
        return subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, start_new_session=True, env=tool_variables()
        )

    def _await(self, process: subprocess.Popen[bytes], answers: Answers, folder: Path, number: int) -> dict[str, float]:
        line = answers.line(process)
        if line is None:
            kind = DeviceError if (folder / STARTED).exists() else _DoesNotStart
            raise kind(f"{self.build.simulator} ended before job {number} was done; see {folder / 'sim.log'}")
        result = json.loads(line)
        chip = self.build.config
        if result["chip_id"] != int(chip.digest[-8:], 16):
            raise NoDeviceError(f"the simulator in {self.build.folder} is another chip than {chip.name}; rebuild")
        if result["protocol"]:
            raise DeviceError(f"the chip broke the AXI4 protocol towards DRAM; see {folder / 'sim.log'}")
        return result

    def _collect(
        self, number: int, job: Job, plan: readout.Readout, needed: Loads, result: dict[str, float], folder: Path
    ) -> Run:
        chip = self.build.config
        fault = None
        memory: list[NDArray[np.uint8]] = []
        records: list[readout.Record] = []
        counters: dict[int, list[int]] = {}
        shortage = ""
        if STATUS.unpack(int(result["status"]))["fault"]:
            fault = parse_fault(int(result["fault_who"]), int(result["fault_value"]))
        else:
            dumps: dict[int, tuple[int, NDArray[np.uint8]]] = {}
            for index, tile in enumerate(chip.channels):
                first, last = _extent(job.outputs, tile)
                if first <= last:
                    dumps[tile] = (
                        first,
                        read_hex(folder / f"job{number}_{index}_data.out", last - first + 1, chip.lanes),
                    )
            for tile, at, words in job.outputs:
                first, data = dumps[tile]
                memory.append(data[at - first : at - first + words])
            damage = ""
            if plan.words:
                index = chip.channels.index(plan.dram_tile)  # the first may hold the controller's code alone
                traced = read_hex(folder / f"job{number}_{index}_records.out", plan.words, chip.lanes)
                records, counters, damage = readout.parse(plan, traced, chip)
            shortage = readout.shortage(counters, chip) or damage
        states = folder / f"job{number}_states.out"
        blocked_status = parse_states(states.read_text()) if states.exists() else ()
        observed = read_log(folder / f"job{number}_observed.bin", chip) if job.observe else {}
        for path in folder.glob(f"job{number}_*"):
            if not self.keep:
                path.unlink()
        return Run(
            int(result["cycles"]),
            fault,
            memory,
            records,
            counters,
            float(result["cpu_seconds"]),
            self.build.simulator,
            shortage,
            observed,
            blocked_status,
            int(result["quiet"]),
            loaded=needed.bytes,
        )


def parse_fault(who: int, value: int) -> Fault:
    """A fault, from the registers FAULT_WHO and FAULT_VALUE."""
    counts = FAULT_WHO.unpack(who)
    return Fault(Cause(counts["cause"]), counts["tile"], Unit(counts["unit"]), counts["tag"], value)


def _opens(simulator: str) -> Callable[[ChipConfig, bool, OnProgress], SimulatedDevice]:
    def open_one(chip: ChipConfig, waves: bool, on_progress: OnProgress) -> SimulatedDevice:
        try:
            setting(THREADS, 1)
        except SettingError as error:
            raise NoDeviceError(str(error)) from error
        if not simulator_version(simulator):
            raise NoDeviceError(
                f"the simulator {simulator} is not there; `meshloom doctor` says what to install, or use another"
            )
        on_progress(f"building the simulator ({simulator}), unless it is cached")
        return SimulatedDevice(build(chip, simulator, waves, on_progress), keep=waves, pool=current())

    return open_one


VERILATOR = DeviceKind(
    "verilator",
    "the RTL, compiled by Verilator",
    _opens("verilator"),
    version=lambda: simulator_version("verilator"),
    tools=lambda: {"compiler": compiler_version()},
    waves=True,
)
ICARUS = DeviceKind(
    "icarus",
    "the RTL in Icarus Verilog: a slow second opinion",
    _opens("icarus"),
    version=lambda: simulator_version("icarus"),
    tools=lambda: {"iverilog": simulator_version("icarus")},
    waves=True,
    macs=500_000,  # a few hundred cycles a second of a four-core chip
)


def parse_states(text: str) -> tuple[BlockedStatus, ...]:
    """What the tiles have reported, from the bench's file: a line of REPORT_HIGH and REPORT_LOW for each."""
    status: list[BlockedStatus] = []
    for line in text.split():
        counts = REPORT.unpack(int(line, 16))
        part, unit, waits = Part(counts.pop("part")), Unit(counts.pop("unit")), counts.pop("waits")
        raised = part is Part.FAULT
        status.append(
            BlockedStatus(
                part=part,
                unit=unit,
                waits=BlockedOn.FAULT if raised else BlockedOn(waits),
                cause=Cause(waits) if raised else Cause.NONE,
                **counts,
            )
        )
    return tuple(status)


def _extent(outputs: Sequence[tuple[int, int, int]], tile: int) -> tuple[int, int]:
    """First and last word that the outputs cover in a tile; (1, 0) when there are none."""
    here = [(at, at + words - 1) for where, at, words in outputs if where == tile and words]
    return (min(first for first, _ in here), max(last for _, last in here)) if here else (1, 0)
