"""A campaign of random ONNX models: what is read must be what ONNX Runtime computes, and what is scheduled must write
the bytes of its integer model; or the model is refused, in one error."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.checker.check import check
from meshloom.sched.ir.functional import Memories, execute
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.program.program import ProgramError
from meshloom.sched.schedulers.registry import find_network
from meshloom.sched.store import provenance
from meshloom.sched.store.store import key
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.onnx.errors import OnnxError, UnsupportedError
from meshloom.sched.workload.onnx.quantise import Quantised, quantise_with_report
from meshloom.sched.workload.onnx.runtime import run, session
from meshloom.sched.workload.onnx.writer import flip, to_onnx, unflip

from ..batches import run_batches
from ..fuzz.chips import random_chips
from ..record import SoakRecord
from .drawing import draw
from .quantising import ModelForm, UnquantisedError, form_of, quantised
from .serving import served

if TYPE_CHECKING:
    from onnx import ModelProto

#: Models of a batch: what an interrupt can lose of each worker.
BATCH = 50
#: Nodes of a model, constants aside.
SIZES = (1, 1, 2, 2, 3, 4, 6, 9)
#: Who schedules them, and how one is served.
SERVED = "served"
SCHEDULERS = ("loop_order", "loop_order:effort=quick", "flexer:budget=100k", "paper_static:budget=100k", SERVED)
#: Random chips that they are scheduled for, besides the built-in one.
CHIPS = 12
BUILT_IN = "tiny"
#: Decibels from which on the import's own report promises results near the model's; the share of the largest result by
#: which those of an input are wrong all the same.
TRUSTED, FAR = 20.0, 0.25
#: What an error says of a model that was read otherwise than ONNX Runtime computes it, or of which something was made
#: that ONNX Runtime does not take.
_MISREAD = ("report it with the file", "ONNX Runtime refuses it")


class GraphVerdict(StrEnum):
    """What became of a model."""

    RIGHT = "right"  #: scheduled, and every byte is right
    READ = "read"  #: read rightly, but no chip that was tried holds it
    REFUSED = "refused"  #: in one error
    INVALID = "invalid"  #: nothing that ONNX Runtime computes, in finite numbers
    WRONG = "wrong"  #: a finding


@dataclass(frozen=True)
class GraphFinding:
    """A model that is read or computed wrongly, or not in one error: `seed` and `size` draw it again."""

    seed: int
    size: int
    words: str


@dataclass(frozen=True)
class GraphResult:
    """Of a batch: models by verdict, and refusals by operator."""

    verdicts: dict[str, int]
    refusals: dict[str, int]
    findings: tuple[GraphFinding, ...] = ()


RESULT = TypeAdapter(GraphResult)


@dataclass(frozen=True)
class GraphBatch:
    """`number`: of the campaign of `seed`."""

    seed: int
    number: int
    samples: int = BATCH

    @property
    def name(self) -> str:
        """What it is kept and named as."""
        return f"batch {self.number} of seed {self.seed}, {self.samples} models"

    @property
    def models(self) -> Iterator[tuple[int, int]]:
        """Seed and size of each model."""
        for at in range(self.number * BATCH, self.number * BATCH + self.samples):
            random = Random(f"{self.seed} {at}")
            yield random.getrandbits(40), random.choice(SIZES)


def batches_of(models: int, seed: int) -> list[GraphBatch]:
    """The batches of a campaign."""
    return [GraphBatch(seed, number, min(BATCH, models - number * BATCH)) for number in range(-(-models // BATCH))]


def run_batch(batch: GraphBatch) -> GraphResult:
    """Tries its models, one after the other."""
    verdicts, refusals, findings = Counter[str](), Counter[str](), list[GraphFinding]()
    for seed, size in batch.models:
        verdict, words = judge(seed, size)
        verdicts[verdict] += 1
        if verdict is GraphVerdict.REFUSED:
            refusals[words] += 1
        if verdict is GraphVerdict.WRONG:
            findings.append(GraphFinding(seed, size, words))
    return GraphResult(dict(verdicts), dict(refusals), tuple(findings))


def judge(seed: int, size: int) -> tuple[GraphVerdict, str]:
    """What becomes of a model; of a refused one also the operator, of a wrong one what is wrong."""
    try:
        model, data = model_of(seed, size)
    except UnquantisedError:
        return GraphVerdict.INVALID, ""
    try:
        live = session(model, "drawn")
        exact = [run(live, dict(item)) for item in data]
    except OnnxError:
        return GraphVerdict.INVALID, ""
    if not all(np.isfinite(array).all() for results in exact for array in results.values()):
        return GraphVerdict.INVALID, ""
    try:
        return _judged(seed, model, data, exact)
    except Exception as error:  # whatever else it is, it is no clear refusal
        place = traceback.extract_tb(error.__traceback__)[-1]
        return GraphVerdict.WRONG, f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"


def model_of(seed: int, size: int) -> tuple[ModelProto, list[dict[str, NDArray[np.float32]]]]:
    """A model, in the form that its seed has, and inputs. Raises UnquantisedError."""
    model, data = draw(seed, size)
    form = form_of(seed)
    return model if form is ModelForm.FLOAT else quantised(model, data, form, seed), data


def _judged(
    seed: int,
    model: ModelProto,
    data: list[dict[str, NDArray[np.float32]]],
    exact: list[dict[str, NDArray[Any]]],
) -> tuple[GraphVerdict, str]:
    try:
        imported = quantise_with_report(model, data)
    except UnsupportedError as error:
        return GraphVerdict.REFUSED, error.problems[0].operator
    except WorkloadError as error:
        if any(words in str(error) for words in _MISREAD):
            return GraphVerdict.WRONG, str(error)
        return GraphVerdict.REFUSED, "as a whole"
    if imported.start is not None:
        return GraphVerdict.READ, ""
    graph = imported.graph
    live = session(to_onnx(graph), "drawn")
    fed = [_steps(imported, item) for item in data]
    computed = [run(live, {name: flip(array) for name, array in steps.items()}) for steps in fed]
    golden = [{name: unflip(array) for name, array in arrays.items()} for arrays in computed]
    results = [
        imported.said({name: array * graph.value(name).step for name, array in arrays.items()}) for arrays in golden
    ]
    # the host's functions may leap where the chip's rounding is harmless
    exactly = imported.snr_db > TRUSTED and not (imported.host and imported.host.nodes)
    for name in exact[0]:
        theirs, ours = [arrays[name] for arrays in exact], [arrays.get(name) for arrays in results]
        if words := _differs(theirs, ours, exactly):
            return GraphVerdict.WRONG, f"output {name} {words}"
    return _scheduled(seed, imported, fed, golden)


def _steps(imported: Quantised, item: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.int8]]:
    """The inputs of the network for those of the model."""
    real = {name: imported.feed(name, source.value(item[name])) for name, source in imported.sources.items()}
    return {
        value.name: np.clip(np.rint(real[value.name].reshape(value.shape) / value.step), -128, 127).astype(np.int8)
        for value in imported.graph.inputs
    }


def _differs(theirs: list[NDArray[Any]], ours: list[NDArray[Any] | None], exactly: bool) -> str:
    """What is wrong with an output, in words: it is absent, has another shape, or, if `exactly`, is far away."""
    off = 0.0
    for right, result in zip(theirs, ours, strict=True):
        if result is None:
            return "is absent"
        if result.shape != right.shape:
            return f"has shape {list(result.shape)}, not {list(right.shape)}"
        off = max(off, float(np.sqrt(np.mean((right.astype(np.float64) - result) ** 2))))
    most = max(float(np.abs(right).max()) for right in theirs)
    if exactly and off > FAR * most > 0:
        return f"is off by {off:g}, its largest value {most:g}, although the import promises little noise"
    return ""


def _scheduled(
    seed: int,
    imported: Quantised,
    fed: Sequence[dict[str, NDArray[np.int8]]],
    golden: Sequence[dict[str, NDArray[Any]]],
) -> tuple[GraphVerdict, str]:
    """Schedules the network for one chip by one scheduler, and executes that for the first input; or serves all."""
    random = Random(f"chip {seed}")
    chip, scheduler = random.choice(_chips()), random.choice(SCHEDULERS)
    try:
        if scheduler == SERVED:
            words = served(random, imported.graph, chip, fed, golden)
            return (GraphVerdict.WRONG, words) if words else (GraphVerdict.RIGHT, "")
        network = find_network(scheduler)(imported.graph, chip, None)
        program = lower(network.schedule, chip)
    except (WorkloadError, DoesNotFit, ProgramError):  # a ProgramError: its code has no room behind its tensors
        return GraphVerdict.READ, ""
    check(program, chip, network.schedule)
    memories = Memories(chip)
    for name, array in network.arrays(fed[0]).items():
        memories.write_tensor(network.schedule.tensor(name), array)
    execute(network.schedule.operations, memories)
    for tensor in network.schedule.tensors:
        if tensor.role == "output":
            result = network.output(tensor.name, memories.read_tensor(tensor))
            if differ := int((result != golden[0][tensor.name]).sum()):
                return GraphVerdict.WRONG, f"{differ} values of {tensor.name} differ, by {scheduler} on {chip.name}"
    return GraphVerdict.RIGHT, ""


@cache
def _chips() -> list[ChipConfig]:
    """Random chips on which every kind of layer runs, and a built-in one."""
    everything = {"vec_table": True, "vec_whole": True, "operand_sources": True, "channel_scales": True}
    chips = [load(BUILT_IN)]
    for chip in random_chips(1, CHIPS):
        if chip.dtt is None:
            values = chip.model_dump(mode="json", exclude_none=True)
            chips.append(ChipConfig.model_validate(values | {"core": values["core"] | everything}))
    return chips


def record_of(batches: Sequence[GraphBatch], folder: Path | None = None) -> SoakRecord[GraphResult]:
    """Batches without findings, of the same sources; below `folder`, or in the cache."""
    code = provenance.digest("tb.verify.graphs.campaign")
    return SoakRecord({batch.name: key("graphs", batch=batch.name, code=code) for batch in batches}, RESULT, folder)


def run_all(
    batches: Sequence[GraphBatch],
    record: SoakRecord[GraphResult],
    jobs: int,
    on_progress: Callable[[str], None],
) -> list[GraphFinding]:
    """Runs what is left of the batches, `jobs` at a time; what is wrong, each as small as it gets."""
    failed = run_batches(batches, run_batch, record, jobs, on_progress)
    return [smallest(finding) for result in failed for finding in result.findings]


def smallest(finding: GraphFinding) -> GraphFinding:
    """The same model with the fewest of its first nodes that is wrong, in whatever way."""
    for size in range(1, finding.size):
        verdict, words = judge(finding.seed, size)
        if verdict is GraphVerdict.WRONG:
            return GraphFinding(finding.seed, size, words)
    return finding
