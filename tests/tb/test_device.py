"""Devices: right bytes, the same run on both simulators to the last cycle, many jobs, faults, and dying simulators."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshloom.hw.control.trace import Counter, counters_of
from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import stats_words
from meshloom.hw.spec.isa import TRACE, Cause, Opcode, Region, Unit
from meshloom.hw.spec.timing import GemmShape, gemm_occupancy
from meshloom.sched.program.program import Program
from meshloom.tb.build import builder as build_module
from meshloom.tb.build import simulate
from meshloom.tb.build.builder import ROOT, SIMULATORS, Build, BuildError, build
from meshloom.tb.devices import simulated as device_module
from meshloom.tb.devices.images import Loads
from meshloom.tb.devices.interface import FILL, DeviceError, Job, NoDeviceError, Run
from meshloom.tb.devices.pool import Pool
from meshloom.tb.devices.readout import Readout, parse
from meshloom.tb.devices.readout import plan as plan_readout
from meshloom.tb.devices.simulated import SimulatedDevice

from .hand_made import (
    CHIP,
    CORE,
    DRAM,
    HOST,
    SPM,
    Case,
    endless,
    finish,
    illegal,
    move,
    nothing_to_do,
    notify,
    product,
    program,
    random_words,
    sync,
    there_and_back,
)

#: One after another in one process of each simulator; a faulted run in the middle must leave nothing behind.
CASES: dict[str, Case | Job] = {
    "moves": there_and_back(1),
    "product": product(2),
    "fault": illegal(),
    "product again": product(2),
    "hang": endless(1500),
    "moves again": there_and_back(1),
    "few words": there_and_back(3, words=1),
    "large product": product(4, pixels=33, k_blocks=5),
    "nothing": nothing_to_do(),
}
GOOD = [name for name, case in CASES.items() if isinstance(case, Case)]


#: What is asked of both one after the other; that they agree to the last cycle is asked in the first tier.
@pytest.fixture(scope="module", params=["verilator", pytest.param("icarus", marks=pytest.mark.slow)])
def simulator(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def all_runs() -> dict[str, dict[str, Run]]:
    """Simulator -> case -> run."""
    jobs = [case.job if isinstance(case, Case) else case for case in CASES.values()]
    return {
        name: dict(zip(CASES, SimulatedDevice(build(CHIP, name)).run(jobs, "cases"), strict=True))
        for name in SIMULATORS
    }


@pytest.fixture(scope="module")
def runs(all_runs: dict[str, dict[str, Run]], simulator: str) -> dict[str, Run]:
    return all_runs[simulator]


@pytest.mark.parametrize("name", GOOD)
def test_every_byte_is_right_and_untouched_words_show_the_fill(name: str, runs: dict[str, Run]) -> None:
    case, run = CASES[name], runs[name]
    assert isinstance(case, Case)
    assert run.fault is None
    assert [words.shape for words in run.memory] == [words.shape for words in case.expected]
    for got, array in zip(run.memory, case.expected, strict=True):
        np.testing.assert_array_equal(got, array)
    assert (run.memory[0] == FILL).any()  # each case leaves some words alone


@pytest.mark.parametrize("name", CASES)
def test_both_simulators_agree_to_the_last_cycle(name: str, all_runs: dict[str, dict[str, Run]]) -> None:
    """Verilator runs the chip with gated clocks, Icarus without: neither may matter."""
    first, second = (all_runs[simulator][name] for simulator in SIMULATORS)
    assert (first.simulator, second.simulator) == SIMULATORS
    assert first.cycles == second.cycles > 0
    assert first.records == second.records
    assert first.counters == second.counters
    assert first.fault == second.fault


@pytest.mark.parametrize("name", ["moves", "product"])
def test_a_run_after_a_fault_or_a_hang_is_like_the_first(name: str, runs: dict[str, Run]) -> None:
    first, again = runs[name], runs[f"{name} again"]
    assert (again.cycles, again.records, again.counters) == (first.cycles, first.records, first.counters)


def test_faults_are_those_of_their_own_job(runs: dict[str, Run]) -> None:
    assert {name for name, run in runs.items() if run.fault} == {"fault", "hang"}
    fault, hang = runs["fault"].fault, runs["hang"].fault
    assert fault is not None
    assert hang is not None
    assert (fault.cause, hang.cause) == (Cause.ILLEGAL_OPCODE, Cause.WATCHDOG)
    assert (runs["fault"].memory, runs["fault"].records) == ([], [])


@pytest.mark.parametrize("name", GOOD)
def test_every_instruction_leaves_one_record(name: str, runs: dict[str, Run]) -> None:
    case = CASES[name]
    assert isinstance(case, Case)
    values: list[tuple[int, Unit, Opcode, int]] = []
    for stream in (*case.job.program.streams, case.job.program.boot):
        for instruction in stream.instructions:
            tag = instruction.fields.get("tag", 0)
            if instruction.opcode is not Opcode.END:
                values.append((stream.tile, stream.unit, instruction.opcode, tag))
            if instruction.opcode is Opcode.MOVE and instruction.fields["src_tile"] != stream.tile:
                values.append((instruction.fields["src_tile"], Unit.MOVER, Opcode.MOVE, tag))
    result = [(record.tile, record.unit, record.opcode, record.tag) for record in runs[name].records]
    assert sorted(result) == sorted(values)
    for record in runs[name].records:
        assert 0 < record.start < record.end <= runs[name].cycles
        assert record.wait <= record.start


@pytest.mark.parametrize("name", GOOD)
def test_counters_agree_with_records(name: str, runs: dict[str, Run]) -> None:
    """Sums over the records of a tile; DRAM's mover also fetches code and the host's also ENDs, without a record."""
    run, case = runs[name], CASES[name]
    assert isinstance(case, Case)
    assert set(run.counters) == set(CHIP.tiles)
    for tile, counters in run.counters.items():
        records = [record for record in run.records if record.tile == tile]
        mover = [record for record in records if record.unit is Unit.MOVER]
        matrix = [record for record in records if record.unit is Unit.MATRIX]
        executed = [record for record in mover if record.opcode is Opcode.MOVE and record.end - record.start > 1]
        assert counters[Counter.RECORDS] == len(records)
        assert counters[Counter.MOVER_WAIT] == sum(record.wait for record in mover)
        assert counters[Counter.MATRIX_WAIT] == sum(record.wait for record in matrix)
        stalls = counters[Counter.NET_STALL] + counters[Counter.MEM_STALL]
        if tile == DRAM:
            assert stalls >= sum(record.stall for record in executed)
            assert counters[Counter.MOVER_BUSY] > stalls > 0
        else:
            assert stalls == sum(record.stall for record in executed)
        assert counters[Counter.MOVER_BUSY] <= run.cycles
    reading = sum(
        gemm_occupancy(CHIP, GemmShape(i.fields["pixels"], i.fields["n_blocks"], i.fields["k_blocks"]))
        for stream in case.job.program.streams
        for i in stream.instructions
        if i.opcode is Opcode.GEMM
    )
    assert run.counters[CORE][Counter.MATRIX_READING] == reading
    assert run.counters[SPM][Counter.MATRIX_READING] == 0
    assert run.counters[HOST][Counter.MOVER_BUSY] == 0


def test_reset_is_enough(all_runs: dict[str, dict[str, Run]], tmp_path: Path) -> None:
    """Without initial values in the Verilog every register is unknown until reset; nothing of that may be seen."""
    built = build(CHIP, "icarus")
    text, stripped = re.subn(
        r"^(\s*reg\b[^;=\n]*?) = [^;\n]+;", r"\1;", (built.folder / "chip.v").read_text(), flags=re.MULTILINE
    )
    assert stripped > 100
    (tmp_path / "chip.v").write_text(text)
    (tmp_path / "model").mkdir()
    options = ["-s", "bench", "-g2012", "-f", str(built.folder / "model" / "cmds.f")]
    rest = [*sorted((ROOT / "tb" / "build" / "verilog").glob("*.v")), built.folder / "bench.v"]
    sources = [str(path) for path in (tmp_path / "chip.v", *rest)]
    subprocess.run(["iverilog", "-o", str(tmp_path / "model" / "sim.vvp"), *options, *sources], check=True)
    device = SimulatedDevice(replace(built, folder=tmp_path))
    names = ["moves", "product", "large product"]
    cases = [CASES[name] for name in names]
    results = device.run([case.job for case in cases if isinstance(case, Case)])
    for name, run in zip(names, results, strict=True):
        result = all_runs["icarus"][name]
        assert (run.cycles, run.records, run.counters) == (result.cycles, result.records, result.counters)
        np.testing.assert_array_equal(run.memory[0], result.memory[0])


def test_a_job_finds_nothing_of_the_one_before_in_dram(simulator: str) -> None:
    """The same program whose data nobody loads, and one that reads what the first has written: both find zeros, after
    a good job and after one that a watchdog has stopped in the middle of its writes."""
    case = there_and_back(1)
    back = [
        move(1, (DRAM, Region.MAIN, 1000), (SPM, Region.MAIN, 0), 100, **notify(2, SPM)),
        sync(2, wait_sem=2, wait_n=1),
        move(3, (SPM, Region.MAIN, 0), (DRAM, Region.MAIN, 2000), 100, **notify(3, SPM)),
        sync(4, wait_sem=3, wait_n=1),
        finish(5),
    ]
    reader = Job(program({(SPM, Unit.MOVER): back}), [], [(DRAM, 2000, 100)], 20_000)
    bare = replace(case.job, memory=[])
    jobs = [case.job, bare, case.job, reader, case.job]
    good, unloaded, _, unwritten, _ = runs = list(SimulatedDevice(build(CHIP, simulator)).run(jobs))
    np.testing.assert_array_equal(good.memory[0], case.expected[0])
    written = (case.expected[0] != FILL).any(axis=1)
    assert written.sum() == 100
    assert not unloaded.memory[0][written].any(), "what the program copies is not the data of the job before"
    assert (unloaded.memory[0][~written] == FILL).all()
    assert not unwritten.memory[0].any()
    stopped = replace(case.job, watchdog=runs[0].cycles - 60)
    fault, after = SimulatedDevice(build(CHIP, simulator)).run([stopped, reader])
    assert fault.fault is not None
    assert not after.memory[0].any()


def test_a_job_finds_what_stays_in_dram_from_the_one_before(simulator: str) -> None:
    """What it would load there does not matter, but in the first job of a batch; all else is loaded."""
    case = there_and_back(1)
    ((tile, at, data),) = case.job.memory
    everything = (tile, at, len(data))
    other = replace(case.job, memory=[(tile, at, data ^ 0xFF)])
    half = (tile, at, len(data) // 2), (tile, at + len(data), 9)
    jobs = [case.job, replace(other, stays=[everything]), replace(other, stays=half), other]
    right, same, mixed, wrong = SimulatedDevice(build(CHIP, simulator)).run(jobs)
    np.testing.assert_array_equal(right.memory[0], case.expected[0])
    np.testing.assert_array_equal(same.memory[0], right.memory[0])
    assert (wrong.memory[0] != right.memory[0]).any()
    differ = (mixed.memory[0] != right.memory[0]).any(axis=1).sum()
    assert 0 < differ < (wrong.memory[0] != right.memory[0]).any(axis=1).sum()
    code = sum(words.size for _, _, words in case.job.program.image(CHIP))
    assert [run.loaded - code for run in (right, same, mixed, wrong)] == [
        data.size, 0, data[len(data) // 2 :].size, data.size
    ]  # fmt: skip
    pool = Pool()
    waiting = SimulatedDevice(build(CHIP, simulator), pool=pool)
    for job in (other, replace(case.job, stays=[everything])):  # the second in the process of the first
        (alone,) = waiting.run([job])
    pool.close()
    np.testing.assert_array_equal(alone.memory[0], right.memory[0])


@pytest.mark.parametrize("first", ["product", "large product"])
def test_a_program_that_writes_nothing_does_not_get_the_bytes_of_the_job_before(first: str, simulator: str) -> None:
    case = CASES[first]
    assert isinstance(case, Case)
    idle = replace(nothing_to_do().job, outputs=case.job.outputs)
    good, empty = SimulatedDevice(build(CHIP, simulator)).run([case.job, idle])
    np.testing.assert_array_equal(good.memory[0], case.expected[0])
    assert (empty.memory[0] == FILL).all()


def cut_short(case: Case) -> Program:
    """The program of a case whose boot stream ends the run without waiting for the others."""
    result = case.job.program
    code = tuple(each for each in result.boot.instructions if each.opcode is not Opcode.SYNC)
    return replace(result, boot=replace(result.boot, instructions=code))


def test_records_of_the_job_before_are_not_those_of_a_program_that_ends_early(simulator: str) -> None:
    """A tile's trace memory still holds them; as many are its own as it counts."""
    case = CASES["product"]
    assert isinstance(case, Case)
    early = replace(case.job, program=cut_short(case))
    device = SimulatedDevice(build(CHIP, simulator))
    good, second = device.run([case.job, early])
    (alone,) = device.run([early])
    assert second.fault is None
    assert 0 < len(second.records) < len(good.records)
    counts = {tile: sum(record.tile == tile for record in second.records) for tile in CHIP.tiles}
    assert counts == {tile: counters[Counter.RECORDS] for tile, counters in second.counters.items()}
    assert max(record.end for record in second.records) <= second.cycles
    assert (alone.records, alone.counters, alone.cycles) == (second.records, second.counters, second.cycles)


def test_a_record_that_is_none_is_named() -> None:
    """As a chip with a broken trace memory would write it."""
    case = nothing_to_do()
    plan = plan_readout(case.job.program, CHIP, stats_words(CHIP), 5000)
    dumped = np.zeros((plan.words, CHIP.lanes), np.uint8)
    for tile, region, first, words in plan.parts:
        counts = [2 if tile == SPM else 0, *[0] * (len(counters_of(CHIP)) - 1)]
        if region is Region.STATS:
            raw = np.array(counts, "<u4").view(np.uint8)
            dumped[first - plan.first : first - plan.first + words].reshape(-1)[: raw.size] = raw
        elif tile == SPM:
            good = TRACE.pack({"opcode": int(Opcode.SYNC), "tag": 1, "start": 5, "end": 6})
            raw = np.frombuffer(good.to_bytes(16, "little"), np.uint8).reshape(-1, CHIP.lanes)
            dumped[first - plan.first : first - plan.first + len(raw)] = raw
    records, counters, damage = parse(plan, dumped, CHIP)
    assert (len(records), damage) == (1, ""), "one that the program has no instruction for is not brought"
    assert counters[SPM][Counter.RECORDS] == 2
    for tile, region, first, words in plan.parts:
        if tile == SPM and region is Region.TRACE:
            dumped[first - plan.first : first - plan.first + words] = 0
    records, _, damage = parse(plan, dumped, CHIP)
    assert records == []
    assert damage.startswith("trace record 0 of spm@(1,1) has opcode 0, which no instruction has")


@pytest.mark.slow
def test_two_devices_at_once_do_not_disturb_each_other(all_runs: dict[str, dict[str, Run]]) -> None:
    """Two processes of each simulator side by side, read in turns."""
    cases = [CASES["moves"], CASES["product"], CASES["few words"]]
    jobs = [case.job for case in cases if isinstance(case, Case)]
    orders = [jobs, jobs[::-1], jobs, jobs[::-1]]
    devices = [SimulatedDevice(build(CHIP, name)) for name in (*SIMULATORS, *SIMULATORS)]
    running: list[Iterator[Run]] = [device.run(order) for device, order in zip(devices, orders, strict=True)]
    results = list(zip(*running, strict=True))
    cycles = [all_runs["verilator"][name].cycles for name in ("moves", "product", "few words")]
    for number, row in enumerate(results):
        assert [run.cycles for run in row] == [cycles[number], cycles[2 - number]] * 2
    assert len({device.last_folder for device in devices}) == 4


def test_a_job_is_there_before_the_next_has_run(simulator: str) -> None:
    """And whoever stops listening stops the simulator: nobody could wait for 50 million cycles."""
    device = SimulatedDevice(build(CHIP, simulator))
    case = there_and_back(1)
    running = device.run([case.job, endless(50_000_000)])
    assert next(running).fault is None
    folder = device.last_folder
    assert folder is not None
    assert not list(folder.glob("job1_*.out"))
    running.close()
    assert not folder.exists()
    assert _running_in(folder) == []


def test_a_simulator_that_dies_is_an_error_that_names_its_log(simulator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatedDevice(build(CHIP, simulator))
    started: list[subprocess.Popen[bytes]] = []

    def start(self: SimulatedDevice, folder: Path) -> subprocess.Popen[bytes]:
        started.append(original(self, folder))
        return started[-1]

    original = SimulatedDevice._start
    monkeypatch.setattr(SimulatedDevice, "_start", start)
    running = device.run([there_and_back(1).job, endless(50_000_000)])
    next(running)
    assert device.last_folder is not None
    for process in _running_in(device.last_folder):
        if process != started[0].pid:
            os.kill(process, signal.SIGKILL)  # the simulator itself; its parent notices
    with pytest.raises(DeviceError, match=rf"{simulator} ended before job 1 was done; see .*sim\.log") as error:
        next(running)
    log = Path(str(error.value).split("see ")[1])
    assert log.is_file()  # the log is kept, though the device was not told to keep anything
    shutil.rmtree(log.parent)


@pytest.fixture
def cached(simulator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A cache of its own. "Building" copies the simulator, or where the list's next entry is False, makes one that does
    not start; what has been built is taken off the list."""
    good = build(CHIP, simulator).folder
    left = [True]

    def compiled(folder: Path, *_: Any) -> None:
        shutil.copytree(good / "model", folder / "model")
        if not left.pop(0):
            (folder / build_module.PROGRAMS[simulator][0]).write_bytes(b"\0" * 1000)

    monkeypatch.setattr(build_module, "compile_into", compiled)
    monkeypatch.setattr(build_module, "OUTPUT", tmp_path)
    monkeypatch.setattr(device_module, "OUTPUT", tmp_path)
    return left


def test_a_damaged_simulator_is_built_anew_and_works(simulator: str, cached: list[bool], tmp_path: Path) -> None:
    built = build(CHIP, simulator)
    program = built.folder / build_module.PROGRAMS[simulator][0]
    os.truncate(program, program.stat().st_size // 2)
    cached.append(True)
    texts: list[str] = []
    again = build(CHIP, simulator, on_progress=texts.append)
    assert (again.folder, again.fresh, cached) == (built.folder, True, [])
    assert "bytes instead of" in texts[0]
    assert str(built.folder) in texts[0]
    (run,) = SimulatedDevice(again).run([there_and_back(1).job])
    assert run.fault is None


def test_a_simulator_that_does_not_start_is_built_anew(simulator: str, cached: list[bool]) -> None:
    cached[:] = [False, True]
    texts: list[str] = []
    device = SimulatedDevice(build(CHIP, simulator), on_progress=texts.append)
    runs = list(device.run([there_and_back(1).job, there_and_back(2).job]))
    assert [run.fault for run in runs] == [None, None]
    assert cached == []
    assert texts[0] == "the simulator does not start"
    assert "building it again, the one there does not work" in texts[1]


def test_one_that_never_starts_is_an_error_that_names_its_folder(simulator: str, cached: list[bool]) -> None:
    cached[:] = [False, False]
    device = SimulatedDevice(build(CHIP, simulator))
    with pytest.raises(DeviceError, match=r"built again and still does not start: .* delete ") as error:
        list(device.run([there_and_back(1).job]))
    assert cached == []
    assert str(error.value).endswith(f"delete {device.build.folder}")
    assert "sim.log" in str(error.value)


def test_one_that_is_not_of_the_cache_is_not_replaced(simulator: str, cached: list[bool], tmp_path: Path) -> None:
    """A chip that a test has altered must not become the chip as it should be."""
    cached[:] = [False]
    elsewhere = tmp_path / "elsewhere"
    build(CHIP, simulator).folder.rename(elsewhere)
    device = SimulatedDevice(Build(CHIP, simulator, False, elsewhere, False))
    with pytest.raises(BuildError, match="elsewhere does not start, and was not built from these sources"):
        list(device.run([there_and_back(1).job]))


def test_a_simulator_of_another_chip_is_refused(simulator: str) -> None:
    built = build(CHIP, simulator)
    slower = CHIP.model_dump() | {"name": "other", "dram": {"bytes_per_cycle": 4, "latency": 41}}
    other = ChipConfig.model_validate(slower)
    job = there_and_back(1).job
    device = SimulatedDevice(Build(other, built.simulator, False, built.folder, False))
    with pytest.raises(DeviceError, match="is another chip than other; rebuild"):
        list(device.run([job]))


def test_a_job_may_depend_on_what_the_one_before_has_left(simulator: str) -> None:
    """One process, which knows no job before it is handed over; it is gone with its folder afterwards."""
    device, case = SimulatedDevice(build(CHIP, simulator)), there_and_back(1)
    (alone,) = device.run([case.job])
    with device.opened() as execute:
        first = execute(case.job)
        tile, at, words = case.job.outputs[0]
        second = execute(
            replace(nothing_to_do().job, memory=[(tile, at, first.memory[0])], outputs=[(tile, at, words)])
        )
        folder = device.last_folder
    assert (first.cycles, first.records) == (alone.cycles, alone.records)
    np.testing.assert_array_equal(second.memory[0], first.memory[0])
    assert folder is not None
    assert not folder.exists()


def _kill_between(execute: Callable[[Job], Run], started: list[subprocess.Popen[bytes]]) -> None:
    execute(there_and_back(1).job)
    os.killpg(started[0].pid, signal.SIGKILL)
    started[0].wait()
    execute(there_and_back(1).job)


def test_a_simulator_that_dies_between_jobs_is_reported(simulator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatedDevice(build(CHIP, simulator))
    started: list[subprocess.Popen[bytes]] = []
    start = SimulatedDevice._start
    monkeypatch.setattr(
        SimulatedDevice, "_start", lambda self, folder: started.append(start(self, folder)) or started[0]
    )
    with pytest.raises(DeviceError, match=r"ended before job 1 was done; see .*sim\.log"), device.opened() as execute:
        _kill_between(execute, started)
    folder = device.last_folder
    assert folder is not None
    shutil.rmtree(folder)


def test_no_jobs_start_nothing(simulator: str) -> None:
    device = SimulatedDevice(build(CHIP, simulator))
    assert list(device.run([])) == []
    assert device.last_folder is None


def test_a_kept_folder_has_all_that_a_job_was_made_of(simulator: str) -> None:
    device = SimulatedDevice(build(CHIP, simulator), keep=True)
    list(device.run([there_and_back(1).job]))
    folder = device.last_folder
    assert folder is not None
    names = {path.name for path in folder.iterdir()}
    assert names >= {"jobs", "job0_0.bin", "job0_0_data.out", "job0_0_records.out", "sim.log"}
    shutil.rmtree(folder)


def test_of_overlapping_loads_the_later_one_wins(simulator: str) -> None:
    """Outputs are filled before memory is loaded; a load of no words changes nothing."""
    rng = np.random.default_rng(5)
    first, second = random_words(rng, 30), random_words(rng, 10)
    loads = [(DRAM, 100, first), (DRAM, 110, second), (DRAM, 96, second[:0])]
    job = replace(nothing_to_do().job, memory=loads, outputs=[(DRAM, 95, 40), (DRAM, 112, 3)])
    (run,) = SimulatedDevice(build(CHIP, simulator)).run([job])
    expected = np.full((40, CHIP.lanes), FILL, np.uint8)
    expected[5:35], expected[15:25] = first, second
    np.testing.assert_array_equal(run.memory[0], expected)
    np.testing.assert_array_equal(run.memory[1], second[2:5])


@pytest.mark.parametrize("bytes_cut", [1, 5, 300])
def test_an_image_that_is_cut_short_ends_the_simulation(
    simulator: str, bytes_cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its last word, in its words, in the head of a segment (the last one: 12 words of readout program)."""

    def prepare(self: SimulatedDevice, number: int, job: Job, folder: Path) -> tuple[Readout, Loads]:
        plan, needed = original(self, number, job, folder)
        path = folder / f"job{number}_0.bin"
        last = 8 + CHIP.lanes * len(plan.stream.code(CHIP))
        whole = path.read_bytes()
        path.write_bytes(whole[: -(last - 3) if bytes_cut == 300 else -bytes_cut])
        return plan, needed

    original = SimulatedDevice._prepare
    monkeypatch.setattr(SimulatedDevice, "_prepare", prepare)
    device = SimulatedDevice(build(CHIP, simulator))
    with pytest.raises(DeviceError, match="ended before job 0 was done"):
        list(device.run([there_and_back(1).job]))
    assert device.last_folder is not None
    assert "memory image job0_0.bin is missing or cut short" in (device.last_folder / "sim.log").read_text()
    shutil.rmtree(device.last_folder)


def test_more_records_than_the_trace_memory_keeps_are_noticed() -> None:
    count = CHIP.trace_records + 50
    jobs = [
        Job(program({(SPM, Unit.MOVER): [*(sync(1 + i) for i in range(syncs)), finish(1)]}), [], [], 500_000)
        for syncs in (count - 1, 10)
    ]
    long, short = SimulatedDevice(build(CHIP, "verilator")).run(jobs)
    assert long.fault is None
    assert long.counters[SPM][Counter.RECORDS] == count
    assert sum(record.tile == SPM for record in long.records) == CHIP.trace_records
    assert long.trace_shortage == (
        f"spm@(1,1) made {count} trace records and keeps 4096, the others are lost; set trace_records = 8192 in chip "
        "tiny"
    )
    assert short.trace_shortage == ""
    assert sum(record.tile == SPM for record in short.records) == 11


def test_a_second_build_is_the_first(simulator: str) -> None:
    first = build(CHIP, simulator)
    second = build(CHIP, simulator)
    assert not second.fresh
    assert first.folder == second.folder
    assert replace(first, fresh=False) == second


def _running_in(folder: Path) -> list[int]:
    """Processes whose working directory is `folder`."""
    values = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cwd").resolve(strict=True) == folder.resolve():
                    values.append(int(entry.name))
            except OSError:
                continue
    return values


def test_the_loader_looks_for_cocotbs_libraries_where_they_lie_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulator that was built in a checkout that has moved since names a folder that is no more."""
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/mine")
    ours, theirs = simulate._libraries().split(os.pathsep)
    assert list(Path(ours).glob("libgpi.*"))
    assert theirs == "/opt/mine"
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert simulate._libraries() == ours


def test_a_simulator_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_module, "simulator_version", lambda simulator: "")
    with pytest.raises(
        NoDeviceError, match="the simulator icarus is not there; `meshloom doctor` says what to install"
    ):
        device_module.ICARUS.open(CHIP, False, print)
