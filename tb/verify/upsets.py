"""What becomes of a single bit that flips in a register or a memory of the chip while a program runs.

Each flip has a run of its own, of a random schedule whose bytes the executor and whose cycles the model predict. So
what nobody notices is seen here: wrong bytes, or other cycles alone.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from random import Random

from meshloom.hw.control.trace import Counter
from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Cause

from ..build.upsets import FLIPPED, NOTHING, UPSETS, StatePlace, Upset
from ..devices.interface import DeviceError, Run
from ..devices.processes import Answers
from ..devices.simulated import SimulatedDevice
from .coverage import TRACE, block_of
from .fuzz.samples import FuzzSample, OmittedError, ProgramKind, SampleKey, difference, draw

#: Cycles of the programs, at most: Icarus takes a second for some thousands.
LONGEST = 3_000
#: Operations of a program, beside those that fill memories and store them; programs that are drawn for a short one.
SIZE, TRIES = 8, 50
#: Cycles without progress after which a run is stopped.
STALL = 600


class FlipPlace(StrEnum):
    """Where bits flip."""

    REGISTERS = "registers"
    MEMORIES = "memories"
    USED = "words in use"  #: the first words of each memory but trace: programs use those first


#: Words of a memory that programs of this length use, about: the first ones.
USED_WORDS = 64


class Outcome(StrEnum):
    """What came of a flip, the best first."""

    HARMLESS = "nothing changed"
    CORRECTED = "the code corrected it"  #: chips with `ecc`
    NAMED = "a fault named it"  #: the chip stopped of its own accord
    STOPPED = "it stood still, and was stopped"  #: by the watchdog of progress or of cycles
    BROKEN = "the chip left its protocol, or never ended"  #: towards DRAM or the host
    LATE = "other cycles alone"  #: every byte right; cycles, records or their number are others
    SILENT = "wrong bytes, unnoticed"


#: What is no harm, or is noticed.
NOTICED = (Outcome.HARMLESS, Outcome.CORRECTED, Outcome.NAMED, Outcome.STOPPED, Outcome.BROKEN)


@dataclass
class UpsetDevice(SimulatedDevice):
    """Runs job n with `upsets[n]`. `flipped`: jobs in which the bit has flipped."""

    upsets: Sequence[Upset] = ()
    flipped: set[int] = field(default_factory=set[int])

    def _start(self, folder: Path) -> subprocess.Popen[bytes]:
        lines = [upset.line() for upset in self.upsets]
        (folder / UPSETS).write_text("\n".join([*lines, NOTHING]) + "\n", encoding="utf-8")
        return super()._start(folder)

    def _await(self, process: subprocess.Popen[bytes], answers: Answers, folder: Path, number: int) -> dict[str, float]:
        try:
            return super()._await(process, answers, folder, number)
        finally:
            if (notes := folder / FLIPPED).is_file():
                self.flipped |= set(map(int, notes.read_text(encoding="utf-8").split()))


def program(chip: ChipConfig, seed: int) -> FuzzSample:
    """A random schedule with its bytes and cycles, that is short. Raises OmittedError if none of `TRIES` is."""
    random = Random(f"upsets {chip.name} {seed}")
    for _ in range(TRIES):
        try:
            sample = draw(SampleKey(ProgramKind.SCHEDULE, random.getrandbits(40), SIZE), chip)
        except OmittedError:
            continue
        if sample.timeline.cycles <= LONGEST:
            job = replace(sample.job, watchdog=4 * LONGEST, stall_limit=STALL)
            return replace(sample, job=job)
    raise OmittedError(f"no program of {SIZE} operations takes at most {LONGEST:,} cycles on {chip.name}")


def drawn(places: Sequence[StatePlace], where: FlipPlace, cycles: int, count: int, seed: str) -> list[Upset]:
    """So many flips, each bit that is there as likely as any other, in any cycle."""
    random = Random(seed)
    words = {number: _words(place, where) for number, place in enumerate(places)}
    numbers = [number for number, count in words.items() if count]
    weights = [places[number].bits * words[number] for number in numbers]
    some = random.choices(numbers, weights, k=count)
    return [
        Upset(at, random.randrange(words[at]), random.randrange(places[at].bits), random.randrange(1, cycles))
        for at in some
    ]


def bits_of(places: Sequence[StatePlace], where: FlipPlace) -> int:
    """How many bits there are."""
    return sum(place.bits * _words(place, where) for place in places)


def _words(place: StatePlace, where: FlipPlace) -> int:
    if (place.words > 1) == (where is FlipPlace.REGISTERS):
        return 0
    if where is FlipPlace.USED:
        return 0 if block_of(place.module) == TRACE else min(place.words, USED_WORDS)
    return place.words


def outcome(sample: FuzzSample, run: Run, chip: ChipConfig) -> Outcome:
    """What came of a flip, from its run."""
    if run.fault is not None:
        return Outcome.STOPPED if run.fault.cause in (Cause.STALLED, Cause.WATCHDOG) else Outcome.NAMED
    if any((words != array).any() for words, array in zip(sample.words, run.memory, strict=True)):
        return Outcome.SILENT
    if difference(sample, run, chip):
        return Outcome.LATE
    corrected = chip.ecc and any(counters[Counter.CORRECTED] for counters in run.counters.values())
    return Outcome.CORRECTED if corrected else Outcome.HARMLESS


def outcomes(device: UpsetDevice, sample: FuzzSample, upsets: Sequence[Upset]) -> Iterator[tuple[Upset, Outcome]]:
    """What comes of each flip that happens; a process that ends with one of them is started again for the others.
    Raises NoDeviceError, BuildError."""
    left, chip = list(upsets), device.config
    while left:
        device.upsets, device.flipped, done = left, set(), 0
        results: list[tuple[Upset, Outcome]] = []
        try:
            for upset, run in zip(left, device.run([sample.job] * len(left), "upsets"), strict=True):
                results.append((upset, outcome(sample, run, chip)))
                done += 1
        except (DeviceError, ValueError):  # the protocol towards DRAM, the simulator's end; records that are none
            if done not in device.flipped:
                raise
            results.append((left[done], Outcome.BROKEN))
            done += 1
        yield from (result for number, result in enumerate(results) if number in device.flipped)
        left = left[done:]
