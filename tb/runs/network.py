"""A whole network on the chip: prepared, run on a picture, compared tensor by tensor and cycle by cycle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import INSTRUCTION_BYTES, OFFSET_BITS, ChipConfig
from meshloom.hw.spec.isa import Opcode, Unit
from meshloom.sched.ir.schedule import Gemm, Move, Schedule, Vec
from meshloom.sched.lowering.programs import checked, program_of
from meshloom.sched.model.timeline import Executed, Timeline, play
from meshloom.sched.program.program import Program
from meshloom.sched.schedulers.network.limits import busy, limits, totals
from meshloom.sched.schedulers.network.scheduler import NetworkSchedule, layer_of
from meshloom.sched.schedulers.registry import Chosen, find_network
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload.graph import PLACED, Graph
from meshloom.sched.workload.stages import Lanes, unclean, words

from ..compare import attribution, mismatch, records
from ..compare.arrivals import arrivals
from ..compare.completeness import completeness
from ..devices import observe
from ..devices.interface import Job, Run
from ..devices.readout import Record
from ..inputs.class_names import label_of
from ..inputs.sources import Feed
from ..report import answers
from ..results.figures import DetectorFigures, LayerFigures, MicroOpFigures, NetworkFigures, OutputFigures, WrongByte
from ..results.schema import Row
from .outputs import OutputWords, locations

Inputs = Mapping[str, NDArray[np.int8]]


@dataclass(frozen=True, eq=False)
class PreparedNetwork:
    """A network ready to run: everything except its input data. `described`: the schedule's labels and results name the
    layer of each operation; those of a file may not, and then only its outputs must be compared."""

    network_schedule: NetworkSchedule
    program: Program
    timeline: Timeline
    described: bool = True

    @property
    def graph(self) -> Graph:
        return self.network_schedule.graph


def layer_stage(layer: str, number: int, count: int) -> str:
    """What is said of a step of scheduling a network: of layer `number` of so many, or of what follows the last."""
    return f"scheduling {layer} ({number + 1} of {count})" if number < count else f"scheduling: {layer}"


def prepare(
    graph: Graph,
    chip: ChipConfig,
    on_progress: Callable[[str], None] = lambda what: None,
    scheduler: str | Chosen = "loop_order",
    on_search_progress: Callable[[Any], None] | None = None,
) -> PreparedNetwork:
    """Schedules, lowers, checks and predicts a network, and reports its progress. `scheduler`: see
    `sched.schedulers.registry.find_network`. Raises the errors of these steps for a network that does not fit."""
    make = find_network(scheduler, SCHEDULES.folder(), on_search_progress)
    network_schedule = make(graph, chip, lambda layer, number, of: on_progress(layer_stage(layer, number, of)))
    done, schedule = network_schedule.lowered, network_schedule.schedule
    if done is not None and done.is_of(schedule):
        return PreparedNetwork(network_schedule, checked(done, chip, on_progress), done.timeline)
    program = program_of(schedule, chip, on_progress)
    on_progress("predicting its cycles")
    return PreparedNetwork(network_schedule, program, play(program, chip))


def job(prepared: PreparedNetwork, inputs: Inputs, chip: ChipConfig, patience: int, margin: int) -> Job:
    """The job for the device; every computed word is observed."""
    memory, outputs = places(prepared.network_schedule.schedule, prepared.network_schedule.arrays(inputs), chip.lanes)
    return Job(prepared.program, memory, outputs, patience * prepared.timeline.cycles + margin, observe=True)


def places(
    schedule: Schedule, arrays: Mapping[str, NDArray[Any]], lanes: int
) -> tuple[list[tuple[int, int, NDArray[np.uint8]]], list[tuple[int, int, int]]]:
    """The DRAM contents before a run, and where its outputs are, as in `Job`. `arrays`: by name of the tensor."""
    memory: list[tuple[int, int, NDArray[np.uint8]]] = []
    outputs: list[tuple[int, int, int]] = []
    for tensor in schedule.tensors:
        packed = None if tensor.role == "output" else tensor.layout.pack(arrays[tensor.name], lanes)
        for piece in tensor.pieces:
            offset = piece.address & ((1 << OFFSET_BITS) - 1)
            if packed is None:
                outputs.append((piece.tile, offset, piece.words))
            else:
                memory.append((piece.tile, offset, packed[piece.first : piece.first + piece.words]))
    return memory, outputs


@dataclass(frozen=True)
class Compared:
    """How many bytes of how many tensors were compared, how many differ, where the first difference is and what made
    it; `wrong_byte`: the first one of an output in DRAM."""

    tensors: int
    checked: int
    wrong: int
    first: str
    wrong_byte: WrongByte | None = None


def compare_bytes(
    prepared: PreparedNetwork, run: Run, inputs: Inputs, chip: ChipConfig, match: records.Match | None = None
) -> Compared:
    """Compares every word that the cores computed, and the outputs in DRAM, with ONNX Runtime's tensors.

    Whole words are compared: lanes without a channel must be zero (unless `unclean`). `match`: the run's records, which
    give the time at which a wrong word was made. Raises observe.ObserveError if the cores did not write what the
    schedule specifies.
    """
    from ..inputs.golden.graph import golden_values

    schedule = prepared.network_schedule
    match = match or records.match(run.records, prepared.timeline.executed, prepared.program)
    golden = golden_values(prepared.graph, dict(inputs))
    expected = {name: words(array[0], schedule.lanes[name], chip.lanes) for name, array in golden.items()}
    computed = {} if run.unobserved else observe.values(schedule.schedule, run.observed, chip)
    golden_words: dict[str, NDArray[np.uint8]] = {}
    free = unclean(prepared.graph)
    for name in expected:  # in the order of the layers, because an error spreads to later ones
        if name in computed:
            right, result = expected[name], computed[name].words
            # A tensor may be treated as one row of all its pixels, or as one column of them.
            golden_words[name] = right.reshape(result.shape) if right.size == result.size else right
            if name in free:
                golden_words[name] = _with_idle(golden_words[name], result, schedule.lanes[name])
    mismatches = observe.compare_values(computed, golden_words)
    checked = sum(right.size for right in golden_words.values())
    wrong = sum(each.count for each in mismatches)
    first = str(mismatches[0]) if mismatches else ""
    if mismatches:
        right = golden_words[mismatches[0].tensor]
        maker = mismatch.computed(mismatches[0], right, run.observed, schedule.schedule, prepared.program, match, chip)
        first += f"; {mismatch.made_by(maker, chip)}" if maker else ""
    missing = {layer.output for layer in prepared.graph.layers if layer.kind not in PLACED} - computed.keys()
    if missing and prepared.described and not run.unobserved:  # an operation without a box would not be checked
        raise AssertionError(f"network {prepared.graph.name}: nothing was observed of {', '.join(sorted(missing))}")
    place, wrong_byte = 0, None
    for tensor in schedule.schedule.tensors:
        if tensor.role != "output":
            continue
        got = np.concatenate(run.memory[place : place + len(tensor.pieces)])
        place += len(tensor.pieces)
        right = expected[tensor.name].reshape(got.shape)
        if tensor.name in free:
            planes = len(schedule.lanes[tensor.name]) // chip.lanes
            folded = planes, -1, chip.lanes
            right = _with_idle(right.reshape(folded), got.reshape(folded), schedule.lanes[tensor.name]).reshape(
                got.shape
            )
        differ = int(np.count_nonzero(got != right))
        checked, wrong = checked + right.size, wrong + differ
        if differ and wrong_byte is None:
            lanes = schedule.lanes[tensor.name].tolist()
            wrong_byte = mismatch.in_dram(
                tensor, right, got, mismatch.Makers(schedule.schedule, prepared.program, match), chip, lanes
            )
    if wrong_byte is not None and not first:
        first = f"output {mismatch.described(wrong_byte, chip)}"
    return Compared(len(computed), checked, wrong, first, wrong_byte)


def output_words(prepared: PreparedNetwork, inputs: Inputs, chip: ChipConfig) -> list[OutputWords]:
    """What the outputs must be in DRAM; lanes without a channel do not count where the network leaves them dirty
    (`unclean`)."""
    from ..inputs.golden.graph import golden_values

    schedule, free = prepared.network_schedule, unclean(prepared.graph)
    golden = golden_values(prepared.graph, dict(inputs))
    outputs: list[OutputWords] = []
    for tensor in schedule.schedule.tensors:
        if tensor.role != "output":
            continue
        lanes = schedule.lanes[tensor.name]
        right = words(golden[tensor.name][0], lanes, chip.lanes)
        used = np.ones_like(right, np.bool_)
        if tensor.name in free:
            used &= (lanes >= 0).reshape(len(right), *[1] * (right.ndim - 2), -1)
        outputs.append(
            OutputWords(
                tensor.name, locations(tensor, chip), right.reshape(-1, chip.lanes), used.reshape(-1, chip.lanes)
            )
        )
    return outputs


def _with_idle(right: NDArray[np.uint8], array: NDArray[np.uint8], lanes: Lanes) -> NDArray[np.uint8]:
    """Words [planes, ..., P] with the bytes of `array` in lanes without a channel."""
    idle = (lanes < 0).reshape(len(right), *[1] * (right.ndim - 2), -1)
    return np.where(idle, array, right)


def dram_bytes(schedule: Schedule, program: Program, chip: ChipConfig) -> int:
    """Bytes that DRAM reads and writes during a run, including the program itself."""
    drams = set(chip.drams)
    moved = sum(
        op.words * ((op.src.tile in drams) + (op.dst.tile in drams))
        for op in schedule.operations
        if isinstance(op, Move)
    )
    return moved * chip.lanes + program.instructions * max(INSTRUCTION_BYTES, chip.lanes)


def spans(
    records: list[Record] | tuple[Executed, ...] | list[Executed], chip: ChipConfig, schedule: Schedule
) -> dict[str, tuple[int, int]]:
    """For each layer, the start of its first GEMM or VEC and the end of its last."""
    units = {Unit.MATRIX: Opcode.GEMM, Unit.VECTOR: Opcode.VEC}
    pairs: dict[str, tuple[int, int]] = {}
    for core in chip.cores:
        for unit, opcode in units.items():
            kind = opcode.name.lower()
            labels = [
                layer_of(op.label)
                for op in schedule.operations
                if isinstance(op, Gemm | Vec) and op.kind == kind and op.core == core
            ]
            ran = sorted(
                (entry.start, entry.end)
                for entry in records
                if entry.tile == core and entry.unit is unit and entry.opcode is opcode
            )
            for label, (start, end) in zip(labels, ran, strict=True):
                low, high = pairs.get(label, (start, end))
                pairs[label] = min(low, start), max(high, end)
    return pairs


def figures(
    prepared: PreparedNetwork, run: Run, chip: ChipConfig, snr_db: Mapping[str, float] | None = None
) -> tuple[tuple[LayerFigures, ...], dict[str, float]]:
    """Each layer's cycles and how the arrays' time was spent, and the same for the whole run. `snr_db`: of layers that
    were quantised, how far they are from the float model."""
    graph, schedule = prepared.graph, prepared.network_schedule.schedule
    measured = spans(run.records, chip, schedule)
    predicted = spans(list(prepared.timeline.executed), chip, schedule)
    macs = {layer.output: graph.macs(layer) for layer in graph.layers}
    by_layer: dict[str, attribution.Share] = {}
    whole: dict[str, float] = {}
    if not prepared.program.ahead:  # in a timed program nothing waits
        result = attribution.attribute(
            prepared.program, schedule, run.records, run.cycles, chip, lambda op: layer_of(op.label), macs
        )
        by_layer, whole = {share.layer: share for share in result.layers}, _percent(result.total)
    pes = chip.rows * chip.cols
    bound = limits(prepared.network_schedule, chip)
    rows: list[LayerFigures] = []
    kinds = {layer.output: layer.kind for layer in graph.layers}
    for name, (start, end) in measured.items():
        share = by_layer.get(name)
        rows.append(
            LayerFigures(
                name=name,
                kind=kinds.get(name, "copy"),
                macs=macs.get(name, 0),
                limit=bound[name],
                rtl_cycles=end - start,
                model_cycles=predicted[name][1] - predicted[name][0],
                core_cycles=share.total // pes if share else 0,
                utilisation=share.utilisation if share else 0.0,
                shares=_percent(share) if share else {},
                snr_db=_finite((snr_db or {}).get(name)),
            )
        )
    order = {layer.output: index for index, layer in enumerate(graph.layers)}
    rows.sort(key=lambda row: order.get(row.name, len(order)))
    return tuple(rows), whole


def _finite(number: float | None) -> float | None:
    return None if number is None or not isfinite(number) else number


def _percent(share: attribution.Share) -> dict[str, float]:
    """The categories of a share in percent of it."""
    total = max(1, share.total)
    return {name: 100.0 * cycles / total for name, cycles in share.cycles.items()}


def _outputs(
    prepared: PreparedNetwork, feed: Feed, title: str, run: Run, tensors: Path | None
) -> tuple[tuple[OutputFigures, ...], DetectorFigures | None, list[str]]:
    """What the network's outputs say, what its detector does, and why they could not be saved in `tensors`."""
    graph, computed = prepared.graph, results(prepared, run)

    def saved_in(folder: Path | None) -> tuple[tuple[OutputFigures, ...], DetectorFigures | None]:
        outputs = answers.outputs(graph, computed, feed, title, folder)
        return outputs, answers.detector(graph, computed, feed, title, folder)

    try:
        return *saved_in(tensors), []
    except OSError as error:  # the comparison matters more than the file
        return *saved_in(None), [f"outputs cannot be saved in {tensors}: {error.strerror}"]


def row(
    prepared: PreparedNetwork, title: str, feed: Feed, run: Run, chip: ChipConfig, tensors: Path | None = None,
    detailed: bool = True,
) -> Row:  # fmt: skip
    """The row of a run. `tensors`: folder for outputs that are not vectors (None: they are not saved). `detailed`: with
    the figures of each layer."""
    schedule, graph = prepared.network_schedule.schedule, prepared.graph
    faults = records.fault_reports(run, prepared.program, schedule, chip)
    match = records.match(run.records, prepared.timeline.executed, prepared.program)
    traced = completeness(match, run, prepared.program, schedule, chip)
    peak = chip.rows * chip.cols * len(chip.cores) * max(1, run.cycles)
    comparison, layers, shares, outputs, notes = Compared(0, 0, 0, ""), (), {}, (), list(feed.notes)
    if run.unobserved:
        notes.append(run.unobserved)
    detector = failure = None
    if not faults:
        try:
            comparison = compare_bytes(prepared, run, feed.arrays, chip, match)
        except observe.ObserveError as error:
            failure = f"what the cores computed is not what the schedule says: {error}"
            if why := traced.get("record_problem"):
                failure += f"; {why}"
        explained = not (traced.get("record_problem") or traced.get("untraced"))
        if detailed and prepared.described and explained:  # only complete records explain the cycles
            layers, shares = figures(prepared, run, chip, feed.snr_db)
        outputs, detector, problems = _outputs(prepared, feed, title, run, tensors)
        notes += problems
    micro_ops = prepared.network_schedule.micro_ops
    return Row(
        workload=title,
        chip=chip.name,
        scheduler=schedule.scheduler,
        simulator=run.simulator,
        rtl_cycles=run.cycles,
        model_cycles=prepared.timeline.cycles,
        utilisation=min(1.0, graph.total_macs / peak),
        bytes_checked=comparison.checked,
        mismatches=comparison.wrong,
        first_mismatch=comparison.first,
        wrong_byte=comparison.wrong_byte,
        faults=len(faults),
        fault_reports=faults,
        instructions=prepared.program.instructions,
        cpu_seconds=run.cpu_seconds,
        **traced,
        **arrivals(prepared.program, run, chip),
        first_divergence=records.first_divergence(
            match.pairs, schedule, prepared.program.operation_of_tag, prepared.program
        ),
        network=NetworkFigures(
            picture=feed.name,
            answer=answers.answer(graph, outputs, feed.scores) if detector is None else answers.counted(detector.found),
            expected=label_of(graph, feed.label),
            float_answer=label_of(graph, feed.float_label) if detector is None else answers.counted(detector.exact),
            outputs=outputs,
            detector=detector,
            notes=tuple(notes),
            macs=graph.total_macs,
            tensors_checked=comparison.tensors,
            dram_bytes=dram_bytes(schedule, prepared.program, chip),
            spilled=prepared.network_schedule.spilled,
            layers=layers,
            shares=shares,
            micro_ops=MicroOpFigures(**asdict(micro_ops)) if micro_ops else None,
            busy={name: int(cycles) for name, cycles in totals(schedule, chip).items()},
            in_turn_cycles=int(sum(max(cycles.values()) for cycles in busy(prepared.network_schedule, chip).values())),
        ),
        failure=failure,
        claim=schedule.claim,
    )


def results(prepared: PreparedNetwork, run: Run) -> dict[str, NDArray[np.int8]]:
    """The outputs in DRAM after the run, int8 [1, C, H, W] by name."""
    arrays: dict[str, NDArray[np.int8]] = {}
    place = 0
    for tensor in prepared.network_schedule.schedule.tensors:
        if tensor.role != "output":
            continue
        packed = np.concatenate(run.memory[place : place + len(tensor.pieces)])
        place += len(tensor.pieces)
        if tensor.name in prepared.graph.outputs:
            array = prepared.network_schedule.output(
                tensor.name, tensor.layout.unpack(packed).astype(np.int8, copy=False)
            )
            arrays[tensor.name] = array.reshape(prepared.graph.value(tensor.name).shape)
    return arrays
