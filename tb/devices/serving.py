"""A simulated chip on which programs come and go: its registers and DRAM, for whoever drives it (`tb.runs.online`).

One simulator process, which stands still except during `run` and while registers are read and written. Nothing in
Python runs while it advances.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.registers import CONTROL, COUNT, Counted, Register
from meshloom.sched.model.busy import Snapshot
from meshloom.sched.store.kinds import RUNS

from ..build.builder import OUTPUT, Build, tool_variables
from ..build.ports import KINDS, Act
from ..build.serve import ORDERS
from ..build.simulate import ANSWERS
from .folders import Claim, claim
from .images import read_hex, write_image
from .interface import DeviceError, NoDeviceError
from .processes import open_pipe, stop

#: Looks at a register at once, while it is waited for.
_LOOKS = 4


@dataclass
class ServedChip:
    """The chip of a `build`, as a context manager: reset and running (CONTROL.serve) inside of it.

    `cpu_seconds`: what simulating has cost so far. Raises NoDeviceError if the simulator does not start or is another
    chip, DeviceError when it dies; both name its log.
    """

    build: Build
    keep: bool = False
    cpu_seconds: float = field(default=0.0, init=False)
    _claim: Claim | None = field(default=None, init=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _orders: IO[str] | None = field(default=None, init=False)
    _answers: IO[str] | None = field(default=None, init=False)
    _loads: int = field(default=0, init=False)

    @property
    def config(self) -> ChipConfig:
        return self.build.config

    @property
    def folder(self) -> Path:
        """Of the run; its log is `sim.log` there."""
        assert self._claim is not None, "only inside of the context"
        return self._claim.folder

    def __enter__(self) -> Self:
        chip = self.config
        if not chip.programs:
            raise NoDeviceError(
                f"chip {chip.name} runs one program at a time: set programs = {len(chip.cores)} in its description"
            )
        self._claim = claim("serve", RUNS.folder(OUTPUT))
        try:
            self._start()
            self.reset()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in (self._orders, self._answers):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if self._process is not None:
            stop(self._process, patience=10 if kind is None else 0)
        if self._claim is not None:
            self._claim.release(self.keep or (kind is not None and issubclass(kind, DeviceError)))

    def _start(self) -> None:
        folder = self.folder
        for name in (ORDERS, ANSWERS):
            os.mkfifo(folder / name)
        build = self.build
        command = [sys.executable, "-m", "meshloom.tb.build.simulate", build.simulator, str(build.folder), str(folder)]
        options = ["serve", *(["waves"] if build.waves else [])]
        self._process = subprocess.Popen(
            [*command, *options], cwd=folder, stdin=subprocess.PIPE, start_new_session=True, env=tool_variables()
        )
        self._orders = open_pipe(folder / ORDERS, self._process, folder / "sim.log")
        self._answers = (folder / ANSWERS).open()

    def _order(self, acts: Sequence[tuple[Act, int, int]], inputs: Mapping[str, int] | None = None) -> list[int]:
        assert self._orders is not None
        assert self._answers is not None
        try:
            self._orders.write(json.dumps([inputs or {}, acts]) + "\n")
            self._orders.flush()
            line = self._answers.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.keep = True
            raise DeviceError(
                f"{self.build.simulator} ended while programs were running; see {self.folder / 'sim.log'}"
            )
        *values, spent, protocol = json.loads(line)
        self.cpu_seconds += spent
        if protocol:
            self.keep = True
            raise DeviceError(f"the chip broke the AXI4 protocol towards DRAM; see {self.folder / 'sim.log'}")
        return [int(value) for value in values]

    def reset(self) -> None:
        """Resets the chip and makes it ready for launches. What is in its DRAM stays.

        Raises NoDeviceError if the simulator is another chip's.
        """
        chip = self.config
        (digest,) = self._order([(Act.OPEN, 0, 0)])
        if digest != int(chip.digest[-8:], 16):
            raise NoDeviceError(f"the simulator in {self.build.folder} is another chip than {chip.name}; rebuild")
        for register in (Register.WATCHDOG, Register.STALL_LIMIT):
            self.write(register, 0)
        self.write(Register.CONTROL, CONTROL.pack({"start": 1, "serve": 1, "count": int(chip.counters)}))

    # -- registers ----------------------------------------------------------------------------------------------------

    def write(self, register: Register, value: int) -> None:
        """Writes a register of the host port."""
        self.write_all([(register, value)])

    def write_all(self, values: Sequence[tuple[Register, int]]) -> None:
        """Writes registers one after another."""
        self._order([(Act.WRITE, int(register), value) for register, value in values])

    def read(self, *registers: Register) -> list[int]:
        """Reads registers one after another."""
        return self._order([(Act.READ, int(register), 0) for register in registers])

    def run(self, cycles: int) -> bool:
        """Advances by `cycles`, or until the interrupt is raised; returns whether it is."""
        (irq,) = self._order([(Act.RUN, cycles, 0)])
        return bool(irq)

    def count(self, counted: Counted) -> Snapshot:
        """Takes a snapshot of a counter of all tiles. Programs run on meanwhile, as if it were not taken.

        Raises NoDeviceError if the chip has no counters.
        """
        chip = self.config
        if not chip.counters:
            raise NoDeviceError(f"chip {chip.name} has no counters to read: set counters = true in its description")
        self.write(Register.COUNT, COUNT.pack({"which": int(counted)}))
        while not COUNT.unpack(self.read(*[Register.COUNT] * _LOOKS)[-1])["ready"]:
            pass
        cycle, *counts = self.read(Register.COUNT_CYCLE, *[Register.COUNT_VALUE] * len(chip.counter_chain))
        return Snapshot(cycle, dict(zip(chip.counter_chain, counts, strict=True)))

    def counters(self) -> dict[Counted, Snapshot]:
        """Snapshots of all counters, one after another; each says of which cycle it is. Raises NoDeviceError."""
        return {counted: self.count(counted) for counted in Counted}

    # -- memory -------------------------------------------------------------------------------------------------------

    def load(self, segments: Sequence[tuple[int, int, NDArray[np.uint8]]]) -> None:
        """Writes words to DRAM while the chip stands still: (dram tile, word address, uint8 [n, P])."""
        self._loads += 1
        by_tile: dict[int, list[tuple[int, NDArray[np.uint8]]]] = {tile: [] for tile in self.config.channels}
        for tile, at, words in segments:
            by_tile[tile].append((at, words))
        paths = [self.folder / f"job{self._loads}_{index}.bin" for index in range(len(by_tile))]
        for path, pairs in zip(paths, by_tile.values(), strict=True):
            write_image(path, pairs)
        self._order([(Act.LOAD, 0, 0)], {"job": self._loads})
        for path in paths:
            path.unlink()

    def dump(self, ranges: Sequence[tuple[int, int, int]]) -> list[NDArray[np.uint8]]:
        """Reads words of DRAM while the chip stands still: (dram tile, word address, words) each, uint8 [n, P]."""
        arrays: list[NDArray[np.uint8]] = []
        for tile, at, words in ranges:
            self._loads += 1
            inputs = {f"{KINDS[0]}_first_{i}": 1 for i in range(len(self.config.channels))}
            inputs |= {f"{KINDS[0]}_last_{i}": 0 for i in range(len(self.config.channels))}
            index = self.config.channels.index(tile)
            inputs |= {f"{KINDS[0]}_first_{index}": at, f"{KINDS[0]}_last_{index}": at + words - 1}
            self._order([(Act.DUMP, 0, 0)], inputs | {"job": self._loads})
            path = self.folder / f"job{self._loads}_{index}_{KINDS[0]}.out"
            arrays.append(read_hex(path, words, self.config.lanes))
            path.unlink()
        return arrays
