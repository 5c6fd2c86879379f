"""A campaign of differential fuzz: batches of samples on random chips, in worker processes, resumed where it was
interrupted; what disagrees is made as small as it gets and kept as a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from pydantic import TypeAdapter, ValidationError

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.store import provenance
from meshloom.sched.store.store import key
from meshloom.sched.support.files import write_atomically

from ...build.builder import build, ingredients
from ...devices.interface import DeviceError, Job, Run
from ...devices.simulated import SimulatedDevice
from ..batches import run_batches
from ..record import SoakRecord
from .samples import Disagreement, FuzzSample, OmittedError, ProgramKind, SampleKey, difference, draw

#: Samples of a batch: what an interrupt can lose of each worker.
BATCH = 50
#: Operations of a sample: at least, at most.
SIZES = (1, 24)
#: Runs that making one finding smaller may take.
TRIES = 200


@dataclass(frozen=True)
class SampleBatch:
    """`number`: of the chip's. `simulator`: `verilator` or `icarus`. `seed`: of the campaign."""

    chip: ChipConfig
    simulator: str
    seed: int
    number: int
    samples: int = BATCH

    @property
    def name(self) -> str:
        """What it is kept and named as."""
        return f"{self.chip.name} on {self.simulator}, batch {self.number} of seed {self.seed}, {self.samples} samples"

    @property
    def origins(self) -> Iterator[SampleKey]:
        """Its samples, all kinds in turn."""
        kinds = list(ProgramKind)
        for at in range(self.number * BATCH, self.number * BATCH + self.samples):
            random = Random(f"{self.seed} {self.chip.name} {at}")
            yield SampleKey(kinds[at % len(kinds)], random.getrandbits(40), random.randint(*SIZES))


@dataclass(frozen=True)
class FuzzFinding:
    """A sample of which not all say the same, and who says what."""

    chip: ChipConfig
    simulator: str
    origin: SampleKey
    words: str


@dataclass(frozen=True)
class BatchResult:
    """Of a batch. `samples`: by kind, those that ran; `omitted`: by reason, those that did not; `bytes`: compared with
    the executor's."""

    samples: dict[str, int]
    omitted: dict[str, int]
    cycles: int
    records: int
    bytes: int
    findings: tuple[FuzzFinding, ...] = ()


RESULT, FINDING = TypeAdapter(BatchResult), TypeAdapter(FuzzFinding)


def device(chip: ChipConfig, simulator: str) -> SimulatedDevice:
    """The chip in a simulator. Raises BuildError."""
    return SimulatedDevice(build(chip, simulator))


def run_batch(batch: SampleBatch) -> BatchResult:
    """Runs its samples in one simulator process. Raises BuildError, DeviceError."""
    chip, omitted, findings = batch.chip, Counter[str](), list[FuzzFinding]()
    ready: list[tuple[SampleKey, FuzzSample]] = []
    for origin in batch.origins:
        try:
            ready.append((origin, draw(origin, chip)))
        except OmittedError as error:
            omitted[str(error)] += 1
        except Disagreement as error:
            findings.append(FuzzFinding(chip, batch.simulator, origin, str(error)))
    runs = device(chip, batch.simulator).run([sample.job for _, sample in ready])
    for (origin, sample), run in zip(ready, runs, strict=True):
        if words := difference(sample, run, chip):
            findings.append(FuzzFinding(chip, batch.simulator, origin, words))
    return BatchResult(
        dict(Counter(origin.kind.value for origin, _ in ready)),
        dict(omitted),
        sum(sample.timeline.cycles for _, sample in ready),
        sum(len(sample.timeline.executed) for _, sample in ready),
        sum(words.nbytes for _, sample in ready for words in sample.words),
        tuple(findings),
    )


def record_of(batches: Sequence[SampleBatch], folder: Path | None = None) -> SoakRecord[BatchResult]:
    """Batches without findings, run by the same sources; below `folder`, or in the cache."""
    code = provenance.digest("tb.verify.fuzz.campaign", "sched.model.timeline", "tb.compare.records")
    sources = {(batch.chip.digest, batch.simulator): batch for batch in batches}
    known = {at: ingredients(batch.chip, batch.simulator, waves=False) for at, batch in sources.items()}
    keys = {
        batch.name: key(
            f"fuzz-{batch.chip.name}", batch=batch.name, code=code, **known[batch.chip.digest, batch.simulator]
        )
        for batch in batches
    }
    return SoakRecord(keys, RESULT, folder)


def run(
    batches: Sequence[SampleBatch], record: SoakRecord[BatchResult], jobs: int, on_progress: Callable[[str], None]
) -> list[FuzzFinding]:
    """Runs what is left of the batches, `jobs` at a time; returns what disagrees. Raises BuildError, DeviceError."""

    def prepare(batch: SampleBatch) -> object:
        return build(batch.chip, batch.simulator, on_progress=on_progress)

    def words(result: BatchResult) -> str:
        return f"{sum(result.samples.values())} ran"

    failed = run_batches(batches, run_batch, record, jobs, on_progress, prepare, words)
    return [finding for result in failed for finding in result.findings]


def smaller(finding: FuzzFinding, execute: Callable[[Job], Run]) -> FuzzFinding:
    """The same with the fewest operations at which it still disagrees, one after the other left out of a schedule;
    `execute` runs a job on the finding's chip. Raises DeviceError."""
    tries = 0

    def still(origin: SampleKey) -> FuzzFinding | None:
        nonlocal tries
        tries += 1
        if tries > TRIES:
            return None
        try:
            sample = draw(origin, finding.chip)
            words = difference(sample, execute(sample.job), finding.chip)
        except OmittedError:
            return None
        except Disagreement as error:
            words = str(error)
        return replace(finding, origin=origin, words=words) if words else None

    best = finding
    for size in range(finding.origin.size):
        if (candidate := still(replace(finding.origin, size=size))) is not None:
            best = candidate
            break
    if best.origin.kind is ProgramKind.SCHEDULE:
        for number in range(best.origin.size):
            omitted = (*best.origin.omitted, number)
            if (candidate := still(replace(best.origin, omitted=omitted))) is not None:
                best = candidate
    return best


def minimal(finding: FuzzFinding) -> FuzzFinding:
    """`smaller` on the finding's own simulator; the finding itself if that dies of it. Raises BuildError."""
    try:
        with device(finding.chip, finding.simulator).opened("fuzz") as execute:
            return smaller(finding, execute)
    except DeviceError:
        return finding


def save(finding: FuzzFinding, folder: Path) -> Path:
    """Writes a finding as a file that `load` reads. Raises WriteError."""
    origin = finding.origin
    file = folder / f"{finding.chip.name}-{finding.simulator}-{origin.kind}-{origin.seed}.json"
    write_atomically(file, FINDING.dump_json(finding, indent=2).decode() + "\n")
    return file


def load(file: Path) -> FuzzFinding:
    """A finding of a file. Raises ValueError that names the file if it holds none."""
    try:
        return FINDING.validate_json(file.read_bytes())
    except ValidationError as error:
        raise ValueError(f"{file}: no finding of a fuzz campaign: {error.errors()[0]['msg']}") from error
