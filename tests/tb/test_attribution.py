"""Attribution: every PE cycle once, causes worked out by hand, the same from the RTL's records and from the model's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import Opcode, Region, Unit, VectorOp, address
from meshloom.hw.spec.timing import GemmShape, gemm_occupancy
from meshloom.sched.ir.schedule import Gemm, Move, Operation, Schedule, Span, Vec
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.model.timeline import Executed, Timeline, play
from meshloom.sched.program.program import TAGS, Instruction, Program, Stream, next_tag
from meshloom.sched.schedulers.registry import find as find_scheduler
from meshloom.sched.workload.catalog import find
from meshloom.tb.build.builder import build
from meshloom.tb.compare.attribution import Attribution, AttributionError, Share, attribute
from meshloom.tb.compare.causes import Activity, Causes
from meshloom.tb.compare.records import (
    CompareError,
    InstructionPlace,
    first_divergence,
    label_of,
    locate,
    operations,
    pair,
)
from meshloom.tb.devices.interface import Job
from meshloom.tb.devices.readout import Record
from meshloom.tb.devices.simulated import SimulatedDevice
from meshloom.tb.results.legend import GROUPS

from ..tiers import slow_but
from .hand_made import CHIP, CORE, DRAM

QUAD = load("quad16")
FIRST, SECOND = QUAD.cores[:2]
BANK = QUAD.spms[0]


def layer_of(op: Operation) -> str:
    return op.label.split(" ")[0]


def schedule_of(chip: ChipConfig, *ops: Operation) -> Schedule:
    return Schedule(chip=chip.name, chip_digest=chip.digest, workload="t", scheduler="hand", operations=ops)


def move(issuer: int, src: tuple[int, Region, int], dst: tuple[int, Region, int], words: int, label: str) -> Move:
    def span(tile: int, region: Region, at: int) -> Span:
        return Span(tile=tile, address=address(region, at), run=words)

    return Move(issuer=issuer, src=span(*src), dst=span(*dst), words=words, label=label)


def gemm(core: int, label: str, pixels: int = 64, k_blocks: int = 4, a: int = 0, dest: int = 0) -> Gemm:
    fields = {
        "a_base": a, "a_plane": pixels, "in_w": pixels, "k_blocks": k_blocks, "kernel_h": 1, "kernel_w": 1,
        "stride_h": 1, "stride_w": 1, "dilation": 1, "out_w": pixels, "pixels": pixels, "n_blocks": 1,
        "dest_base": dest, "scale": 1 << 13, "clamp": 127,
    }  # fmt: skip
    return Gemm(core=core, fields=fields, label=label)


def ask(
    schedule: Schedule, chip: ChipConfig, macs: dict[str, int], timeline: Timeline | None = None
) -> tuple[Attribution, Program, dict[InstructionPlace, Executed]]:
    """The attribution of a schedule as the model plays it."""
    program = lower(schedule, chip)
    timeline = timeline or play(program, chip)
    attribution = attribute(program, schedule, timeline.executed, timeline.cycles, chip, layer_of, macs)
    assert_whole(attribution, chip, timeline.cycles)
    return attribution, program, locate(timeline.executed, program)


def assert_whole(attribution: Attribution, chip: ChipConfig, cycles: int) -> None:
    """Every PE cycle is there once, nothing is negative, and the layers make the total."""
    assert attribution.total.total == cycles * chip.rows * chip.cols * len(chip.cores)
    total = Counter[str]()
    for share in attribution.layers:
        assert min(share.cycles.values()) >= 0
        total.update(share.cycles)
    assert total == Counter(attribution.total.cycles)


def pes(chip: ChipConfig) -> int:
    return chip.rows * chip.cols


def fed(chip: ChipConfig, *gemms: Gemm) -> int:
    return pes(chip) * sum(gemm_occupancy(chip, GemmShape(op["pixels"], k_blocks=op["k_blocks"])) for op in gemms)


# -- causes, worked out by hand -------------------------------------------------------------------------------------


def test_one_gemm_by_hand() -> None:
    """Two pulls from DRAM, a GEMM, a store: each cycle of the core has the cause that the records show."""
    lanes, pixels, k_blocks = CHIP.lanes, 10, 3
    product = gemm(CORE, "conv", pixels, k_blocks)
    schedule = schedule_of(
        CHIP,
        move(CORE, (DRAM, Region.MAIN, 0), (CORE, Region.MAIN, 0), k_blocks * pixels, "conv x"),
        move(CORE, (DRAM, Region.MAIN, 500), (CORE, Region.B, 0), k_blocks * lanes, "conv w"),
        product,
        move(CORE, (CORE, Region.OUT, 0), (DRAM, Region.MAIN, 700), pixels, "conv y"),
    )
    useful = pixels * k_blocks * lanes * lanes
    attribution, program, records = ask(schedule, CHIP, {"conv": useful})
    mover, matrix = ((CORE, unit) for unit in (Unit.MOVER, Unit.MATRIX))
    streams = {(stream.tile, stream.unit): stream.instructions for stream in program.streams}
    request = records[InstructionPlace(*mover, 1)]
    weights = records[InstructionPlace(*mover, 1, remote=True)]
    index = next(i for i, instruction in enumerate(streams[matrix]) if instruction.opcode is Opcode.GEMM)
    ran = records[InstructionPlace(*matrix, index)]
    (share,) = attribution.layers
    windows = gemm_occupancy(CHIP, GemmShape(pixels, k_blocks=k_blocks))
    # "pull: request taken by the sender in t" of docs/architecture/timing.md, one hop
    arrived = request.end - 1 + 1 + 8
    assert arrived <= weights.start
    assert ran.wait > 0, "the weights land last and the GEMM waits for them"
    end = play(program, CHIP).cycles
    expected = Share(
        "conv",
        dict.fromkeys(GROUPS, 0)
        | {
            "compute": useful,
            "edges": pes(CHIP) * windows - useful,
            # from the weights' last word in DRAM's mover to the first window, and the way of their request
            "noc": pes(CHIP) * (ran.start - weights.end + arrived - request.start),
            "dram": pes(CHIP) * (weights.end - arrived),
            "start": pes(CHIP) * request.start,
            "drain": pes(CHIP) * (end - ran.start - windows),
        },
    )
    assert share == expected
    assert attribution.total == replace(expected, layer="total")
    assert share.utilisation == useful / (pes(CHIP) * end)


def test_data_of_another_core_is_waited_for() -> None:
    """The second core's GEMM needs what the first one's makes, through the SPM."""
    maker, user = gemm(FIRST, "one", 256, 8), gemm(SECOND, "two", 256, 1)
    schedule = schedule_of(
        QUAD,
        maker,
        move(FIRST, (FIRST, Region.OUT, 0), (BANK, Region.MAIN, 0), 256, "one y"),
        move(SECOND, (BANK, Region.MAIN, 0), (SECOND, Region.MAIN, 0), 256, "two x"),
        user,
    )
    attribution, program, records = ask(schedule, QUAD, {"one": fed(QUAD, maker), "two": fed(QUAD, user)})
    one, two = attribution.layers
    first = next(record for record in records.values() if record.opcode is Opcode.GEMM and record.tile == FIRST)
    second = next(record for record in records.values() if record.opcode is Opcode.GEMM and record.tile == SECOND)
    store = records[InstructionPlace(FIRST, Unit.MOVER, 0)]
    # all that lies before the first GEMM's end, and the post that tells of it, is its business
    assert first.end < store.start < first.end + 5
    assert two.cycles["operands"] == pes(QUAD) * store.start
    assert two.cycles["noc"] == pes(QUAD) * (second.start - store.start)
    assert (two.cycles["start"], two.cycles["dram"], two.cycles["vector"], two.cycles["edges"]) == (0, 0, 0, 0)
    assert (one.cycles["operands"], one.cycles["start"]) == (0, pes(QUAD) * first.start)
    # the two other cores never have anything to do: they follow the core that ends last
    assert second.end > first.end
    rest = play(program, QUAD).cycles - max(first.end, second.end)
    assert one.cycles["idle"] == 0
    assert two.cycles["idle"] == pes(QUAD) * (2 * second.end + second.end - first.end)
    tails = [record.end - record.start - fed(QUAD, op) // pes(QUAD) for record, op in ((first, maker), (second, user))]
    assert two.cycles["drain"] == pes(QUAD) * (4 * rest + sum(tails))


def test_a_result_buffer_that_is_not_empty_is_drain() -> None:
    """Two GEMMs into the same words of OUT: the second has to wait until a slow DRAM has the first one's."""
    one, two = gemm(CORE, "one", 60, 1), gemm(CORE, "two", 60, 1)
    slow = ChipConfig.model_validate(CHIP.model_dump() | {"dram": {"bytes_per_cycle": 1}})
    schedule = schedule_of(
        slow,
        one,
        move(CORE, (CORE, Region.OUT, 0), (DRAM, Region.MAIN, 700), 60, "one y"),
        two,
        move(CORE, (CORE, Region.OUT, 0), (DRAM, Region.MAIN, 900), 60, "two y"),
    )
    attribution, _, records = ask(schedule, slow, {"one": fed(slow, one), "two": fed(slow, two)})
    first, second = (record for record in records.values() if record.opcode is Opcode.GEMM)
    gap = second.start - first.start - gemm_occupancy(slow, GemmShape(60))
    assert gap > 200, "60 words at a quarter of a word a cycle"
    assert attribution.layers[1].cycles["drain"] >= pes(slow) * gap
    assert (
        attribution.layers[1].cycles["noc"],
        attribution.layers[1].cycles["dram"],
        attribution.layers[1].cycles["fetch"],
    ) == (0, 0, 0)


def test_a_layer_of_the_vector_unit_is_waited_for() -> None:
    """GEMM, pooling of its result, the pooled words to A, GEMM."""
    one, two = gemm(FIRST, "one", 256, 1), gemm(FIRST, "two", 64, 1, a=1000, dest=1000)
    fields = {
        "op": int(VectorOp.MAX), "x_out": 1, "x_plane": 256, "in_w": 16, "blocks": 1, "kernel_h": 2, "kernel_w": 2,
        "stride_h": 2, "stride_w": 2, "dilation": 1, "out_w": 8, "pixels": 64, "clamp": 127,
    }  # fmt: skip
    schedule = schedule_of(
        QUAD,
        one,
        Vec(core=FIRST, fields=fields, label="pool"),
        move(FIRST, (FIRST, Region.VEC, 0), (FIRST, Region.MAIN, 1000), 64, "two x"),
        two,
    )
    attribution, _, records = ask(schedule, QUAD, {"one": fed(QUAD, one), "two": fed(QUAD, two), "pool": 1})
    first, second = (record for record in records.values() if record.opcode is Opcode.GEMM)
    (pool,) = (record for record in records.values() if record.opcode is Opcode.VEC)
    assert [share.layer for share in attribution.layers] == ["one", "two"]
    share = attribution.layers[1]
    pooled = records[InstructionPlace(FIRST, Unit.MOVER, 0)]
    assert pool.end < pooled.start < pool.end + 5
    assert share.cycles["vector"] == pes(QUAD) * (pooled.start - pool.start)
    # the windows of the first end `gemm_tail` before it does; the post to the vector unit is part of the waiting
    tail = pool.start - first.start - gemm_occupancy(QUAD, GemmShape(256))
    assert share.cycles["noc"] == pes(QUAD) * (second.start - pooled.start)
    end = play(lower(schedule, QUAD), QUAD).cycles
    after = second.end - second.start - gemm_occupancy(QUAD, GemmShape(64))
    # pipelines of the two, and all four cores from the last GEMM's end on
    assert share.cycles["drain"] == pes(QUAD) * (tail + after + 4 * (end - second.end))
    assert (share.cycles["operands"], share.cycles["fetch"], share.cycles["start"], share.cycles["dram"]) == (
        0,
        0,
        0,
        0,
    )


def test_instructions_that_are_not_there_yet_are_fetch() -> None:
    """GEMMs of one window each are shorter than the fetching of their instructions; nothing else is ever waited for."""
    ops = [gemm(CORE, "tiny", 4, 1, dest=4 * number) for number in range(100)]
    attribution, program, records = ask(schedule_of(CHIP, *ops), CHIP, {"tiny": fed(CHIP, *ops)})
    (share,) = attribution.layers
    first = min(record.start for record in records.values() if record.opcode is Opcode.GEMM)
    ends = [record.end for record in records.values() if record.opcode is Opcode.GEMM]
    assert share.cycles["start"] == pes(CHIP) * first
    assert share.cycles["fetch"] > share.cycles["compute"] == fed(CHIP, *ops)
    assert (
        share.cycles["drain"] == share.total - share.cycles["start"] - share.cycles["fetch"] - share.cycles["compute"]
    )
    assert share.cycles["drain"] < pes(CHIP) * (play(program, CHIP).cycles - max(ends) + 20)


def test_a_chip_that_only_pools_is_all_vector_or_start() -> None:
    """No GEMM at all: nothing is fed, and the run's end still has an owner."""
    fields = {
        "op": int(VectorOp.MAX), "x_out": 1, "x_plane": 256, "in_w": 16, "blocks": 1, "kernel_h": 1, "kernel_w": 1,
        "stride_h": 1, "stride_w": 1, "dilation": 1, "out_w": 16, "pixels": 256, "clamp": 127,
    }  # fmt: skip
    schedule = schedule_of(QUAD, gemm(SECOND, "one", 64, 1), Vec(core=FIRST, fields=fields, label="pool"))
    attribution, program, records = ask(schedule, QUAD, {"one": 0})
    (pool,) = (record for record in records.values() if record.opcode is Opcode.VEC)
    (product,) = (record for record in records.values() if record.opcode is Opcode.GEMM)
    assert pool.end > product.end
    (share,) = attribution.layers
    assert share.cycles["vector"] == pes(QUAD) * 4 * (pool.end - product.end)
    assert share.cycles["idle"] == pes(QUAD) * 3 * product.end
    nothing = schedule_of(QUAD, Vec(core=FIRST, fields=fields, label="pool"))
    (share,) = ask(nothing, QUAD, {})[0].layers
    assert (share.layer, share.cycles["compute"], share.cycles["edges"], share.cycles["idle"]) == ("", 0, 0, 0)
    assert program.streams


# -- whole layers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("conv:28x28x64-64,k3,p1,relu", 0.90),
        ("gemm:64x64x256", 0.30),
        ("conv:7x7x5-6,k3,p1", 0.0),
    ],
)
def test_layers_of_a_four_core_chip_add_up(name: str, least: float) -> None:
    workload = find(name)[0]
    schedule = find_scheduler("loop_order")(workload.shape, QUAD, 1 << 10)
    program = lower(schedule, QUAD)
    timeline = play(program, QUAD)
    attribution = attribute(
        program, schedule, timeline.executed, timeline.cycles, QUAD, lambda op: "layer", {"layer": workload.shape.macs}
    )
    assert_whole(attribution, QUAD, timeline.cycles)
    assert attribution.total.cycles["compute"] == workload.shape.macs
    assert least <= attribution.total.utilisation == workload.shape.macs / (timeline.cycles * 4 * pes(QUAD))
    assert attribution.total.cycles["start"] > 0
    assert attribution.total.cycles["operands"] == attribution.total.cycles["vector"] == 0
    # causes lie before effects: each step goes back in time, but for estimates of a few cycles
    causes = Causes(program, locate(timeline.executed, program), QUAD)
    steps = 0
    for core in QUAD.cores:
        for place in causes.gemms(core):
            at = causes.records[place].start
            for step in causes.walk(place):
                if step.activity in (Activity.COMPUTE, Activity.PIPELINE):
                    break  # a front end goes on before a GEMM has ended, or even begun
                assert step.since <= at + 5
                at = min(at, step.since)
                steps += 1
    assert steps >= sum(isinstance(op, Gemm) for op in schedule.operations)


def test_measured_and_predicted_agree() -> None:
    """Layers on the RTL of the smallest chip; where the model is exact, so is its attribution."""
    names = ["conv:7x7x5-6,k3,p1", "gemm:5x6x7", "conv:9x9x8-8,k3,s2"]
    ready = []
    for name in names:
        workload = find(name)[0]
        schedule = find_scheduler("loop_order")(workload.shape, CHIP, 1 << 10)
        ready.append((workload.shape.macs, schedule, lower(schedule, CHIP)))
    jobs = [Job(program, [], [], 100_000) for _, _, program in ready]
    device = SimulatedDevice(build(CHIP, "verilator"))
    exact = 0
    for (macs, schedule, program), run in zip(ready, device.run(jobs), strict=True):
        assert run.fault is None
        timeline = play(program, CHIP)
        both = [
            attribute(program, schedule, records, cycles, CHIP, lambda op: "layer", {"layer": macs})
            for records, cycles in ((run.records, run.cycles), (timeline.executed, timeline.cycles))
        ]
        assert_whole(both[0], CHIP, run.cycles)
        assert both[0].total.cycles["compute"] == both[1].total.cycles["compute"] == macs
        pairs = pair(run.records, timeline.executed, program)
        assert len(pairs) == len(run.records) == len(timeline.executed)
        if not any(value.differs for value in pairs) and run.cycles == timeline.cycles:
            assert both[0] == both[1]
            exact += 1
        for category, cycles in both[0].total.cycles.items():
            assert abs(cycles - both[1].total.cycles[category]) <= 0.02 * both[0].total.total
    assert exact > 0, "the model used to be exact on at least one of these"


# -- errors ---------------------------------------------------------------------------------------------------------


def small() -> tuple[Schedule, Program, Timeline]:
    schedule = schedule_of(
        CHIP,
        gemm(CORE, "one", 8, 1),
        move(CORE, (CORE, Region.OUT, 0), (DRAM, Region.MAIN, 700), 8, "one y"),
        gemm(CORE, "two", 8, 1, dest=100),
    )
    program = lower(schedule, CHIP)
    return schedule, program, play(program, CHIP)


def test_missing_records_are_named_with_the_mend() -> None:
    schedule, program, timeline = small()
    executions = [record for record in timeline.executed if record.opcode is not Opcode.GEMM or record.tag != 3]
    with pytest.raises(
        AttributionError, match=r"1 trace records are missing, 1 of core@\(1,0\), which keeps 4096; raise trace_records"
    ):
        attribute(program, schedule, executions, timeline.cycles, CHIP, layer_of, {"one": 0, "two": 0})


@pytest.mark.parametrize(
    ("macs", "words"),
    [({"one": 64}, "layer 'two'.* are unknown"), ({"one": 10**6, "two": 64}, "layer 'one'.* are 1000000")],
)
def test_macs_that_cannot_be_are_refused(macs: dict[str, int], words: str) -> None:
    schedule, program, timeline = small()
    with pytest.raises(AttributionError, match=words):
        attribute(program, schedule, timeline.executed, timeline.cycles, CHIP, layer_of, macs)


def test_records_and_schedules_of_other_programs_are_refused() -> None:
    schedule, program, timeline = small()
    other = schedule_of(CHIP, *schedule.operations[:2])
    with pytest.raises(CompareError, match="tile 0x01 has more instructions than the schedule has operations"):
        operations(program, other)
    with pytest.raises(CompareError, match=r"operation 2 \('two'\) of the schedule is not in the program"):
        operations(lower(other, CHIP), schedule)
    with pytest.raises(CompareError, match=r"record of a GEMM with tag 3 .* matches no instruction"):
        locate(timeline.executed, lower(other, CHIP))


# -- long programs, whose tags come again ---------------------------------------------------------------------------


def long_program(
    count: int, pick: Callable[[int], int]
) -> tuple[Schedule, Program, list[Record], list[InstructionPlace]]:
    """`count` pulls from DRAM, operation i issued by core `pick(i)`; records as two movers would leave them: the second
    core's pulls are executed 50 operations late."""
    streams: dict[int, list[Instruction]] = {FIRST: [], SECOND: []}
    moments: list[tuple[int, int, InstructionPlace]] = []
    ops = {core: move(core, (QUAD.drams[0], Region.MAIN, 0), (core, Region.MAIN, 0), 4, "") for core in streams}
    for number in range(count):
        core = pick(number)
        place = InstructionPlace(core, Unit.MOVER, len(streams[core]))
        streams[core].append(Instruction(Opcode.MOVE, ops[core].body | {"tag": next_tag(number)}))
        moments.append((10 * number, number, place))
        moments.append((10 * (number + (50 if core == SECOND else 1)) + 5, number, place._replace(remote=True)))
    records, places = [], []
    for start, number, place in sorted(moments):
        tile = QUAD.drams[0] if place.remote else place.tile
        records.append(Record(tile, Unit.MOVER, Opcode.MOVE, next_tag(number), 0, 0, start, start + 1))
        places.append(place)
    placed = tuple(Stream(core, Unit.MOVER, QUAD.drams[0], 0, tuple(code)) for core, code in streams.items())
    boot = Stream(QUAD.host, Unit.MOVER, QUAD.drams[0], 0, (Instruction(Opcode.END),))
    tags = {next_tag(number): number for number in range(count)}
    # copied, because it takes seconds to validate so many operations
    schedule = schedule_of(QUAD).model_copy(update={"operations": tuple(ops[pick(number)] for number in range(count))})
    return schedule, Program("", placed, boot, tags), records, places


@pytest.mark.parametrize("turns", slow_but([1, TAGS], TAGS))
def test_records_of_long_programs_find_their_instructions(turns: int) -> None:
    """With `turns` = 65534 the two cores issue operations with the same tags one after the other."""
    count = TAGS + 300
    schedule, program, records, places = long_program(count, lambda i: (FIRST, SECOND)[i // turns % 2])
    result = locate(records, program)
    assert list(result) == places
    assert list(result.values()) == records
    numbers = operations(program, schedule)
    assert all(next_tag(numbers[place[:3]]) == record.tag for place, record in result.items())
    assert sorted(numbers.values()) == list(range(count))


@pytest.mark.slow
def test_a_divergence_in_a_long_program_is_of_the_right_operation() -> None:
    schedule, program, records, places = long_program(TAGS + 200, lambda i: (FIRST, SECOND)[i % 2])
    named = [
        op.model_copy(update={"label": f"op {number}"}) if number % TAGS in (10, 299) else op
        for number, op in enumerate(schedule.operations)
    ]
    schedule = schedule.model_copy(update={"operations": tuple(named)})
    predicted = [Executed(r.tile, r.unit, r.opcode, r.tag, r.wait, r.start, r.end) for r in records]
    index = next(i for i, place in enumerate(places) if place == InstructionPlace(FIRST, Unit.MOVER, 5, remote=True))
    predicted[index] = predicted[index]._replace(end=predicted[index].end + 3)
    pairs = pair(records, predicted[::-1], program)
    assert [value.place for value in pairs] == places
    divergence = first_divergence(pairs, schedule, program.operation_of_tag, program)
    assert divergence is not None
    assert (divergence.operation, divergence.label, divergence.tag) == (10, "op 10", 11)
    assert label_of(program, schedule, 11) == f"op {10 + TAGS}"
    assert label_of(program, schedule, 11, FIRST) == f"op 10 or op {10 + TAGS}"
    assert label_of(program, schedule, 300, SECOND) == "op 299"
    assert label_of(program, schedule, 0) == ""


def test_hand_made_streams_may_share_tags() -> None:
    """A tile that requests and executes MOVEs with the same tags: requests and executions keep their own order."""
    program = long_program(4, lambda i: FIRST)[1]
    code = tuple(
        Instruction(Opcode.MOVE, instruction.fields | {"tag": 7, "src_tile": tile})
        for instruction, tile in zip(program.streams[0].instructions, (SECOND, FIRST, SECOND, FIRST), strict=True)
    )
    shared = replace(program, streams=(replace(program.streams[0], instructions=code),))

    def record(tile: int, start: int) -> Record:
        return Record(tile, Unit.MOVER, Opcode.MOVE, 7, 0, 0, start, start + 5)

    records = locate([record(SECOND, 4), record(FIRST, 1), record(FIRST, 9), record(FIRST, 20)], shared)
    expected: Sequence[tuple[InstructionPlace, int]] = [
        (InstructionPlace(FIRST, Unit.MOVER, 0), 1),
        (InstructionPlace(FIRST, Unit.MOVER, 0, remote=True), 4),
        (InstructionPlace(FIRST, Unit.MOVER, 1), 9),
        (InstructionPlace(FIRST, Unit.MOVER, 2), 20),
    ]
    assert [(place, record.start) for place, record in records.items()] == expected
