"""Why a run took its cycles: sums that are exact, a path without holes, waits with their cause, differences found."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import Opcode
from meshloom.sched.model.timeline import Executed
from meshloom.tb.cli.main import app
from meshloom.tb.compare.causes import Activity, Causes
from meshloom.tb.compare.critical import costly_waits
from meshloom.tb.compare.explained import ExplainError, explained
from meshloom.tb.compare.finished import FinishedRun, finished_run
from meshloom.tb.report.explained import print_overview
from meshloom.tb.results.artefacts import load as load_artefacts
from meshloom.tb.results.explanation import Explanation, Explanations, Waterfall
from meshloom.tb.results.named import NamedRun, RunNameError, chosen, find, one

from ..tiers import slow_but
from .kept_runs import as_predicted, keep, keep_network, results_file

TINY = load("tiny")


def changed(chip: ChipConfig, **parts: object) -> ChipConfig:
    values = chip.model_dump()
    for name, value in parts.items():
        values[name] = values[name] | value if isinstance(value, dict) else value
    return ChipConfig.model_validate(values)


#: One core; four of them; four virtual channels; a DRAM that takes long and gives little.
CHIPS = {
    "tiny": TINY,
    "quad16": load("quad16"),
    "channels": changed(load("quad8"), name="channels", noc={"data_vcs": 4}),
    "slow": changed(TINY, name="slow", dram={"latency": 200, "bytes_per_cycle": 1}),
}
SHAPES = ("conv:9x7x5-6,k3,p1,relu", "gemm:17x33x9", "conv:6x6x20-3,k1,s2", "gemm:1x1x1", "conv:5x12x7-18,k5,p2")
CASES = [(chip, shape) for chip in CHIPS for shape in SHAPES]
CHEAP = ("tiny", SHAPES[0]), ("slow", SHAPES[1]), ("channels", SHAPES[3])


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return keep(tmp_path_factory.mktemp("runs"), SHAPES[0], TINY)


def run_of(folder: Path) -> FinishedRun:
    return finished_run(load_artefacts(folder))


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["explain", *map(str, arguments)])


def assert_whole(explanation: Explanation, run: FinishedRun) -> None:
    """Causes add up to the cycles, in all and of each layer; the path has no hole; waits do not overlap."""
    falls = explanation.waterfall
    pes = run.chip.rows * run.chip.cols * len(run.chip.cores)
    assert falls.pes == pes
    assert sum(falls.total.values()) == pes * falls.cycles == sum(sum(s.pe_cycles.values()) for s in falls.layers)
    assert min(falls.total.values(), default=0) >= 0
    assert run.macs is not None
    assert falls.total.get("useful", 0) == sum(run.macs[layer.layer] for layer in falls.layers)
    if explanation.path is not None:
        assert [step.start for step in explanation.path.steps] == [0, *(step.end for step in explanation.path.steps)][
            :-1
        ]
        assert sum(step.cycles for step in explanation.path.steps) == explanation.path.cycles
    if explanation.path is not None and explanation.bounds is not None:
        gap = explanation.bounds.gap
        assert gap is not None
        assert gap.cycles == falls.cycles - explanation.bounds.cycles
        assert gap.mean <= explanation.bounds.cycles
    by_core: dict[int, list[tuple[int, int]]] = {}
    for wait in explanation.waits:
        assert sum(wait.causes.values()) <= wait.end - wait.start
        assert wait.by_cycles <= sum(wait.causes.values())
        by_core.setdefault(wait.core, []).append((wait.start, wait.end))
    for spans in by_core.values():
        spans.sort()
        assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))


def idle_of(run: FinishedRun, core: int) -> dict[tuple[str, str], int]:
    """Cycles in which the array of a core is not fed, by the layers of the GEMMs before and after."""
    causes = Causes(run.program, run.measured, run.chip)
    idle: Counter[tuple[str, str]] = Counter()
    at, before = 0, ""
    for place in causes.gemms(core):
        number = run.number(place)
        assert number is not None
        layer = run.layer(run.schedule.operations[number])
        idle[before, layer] += causes.records[place].start - at
        at, before = causes.windows_end(place), layer
    idle[before, ""] += run.row.rtl_cycles - at
    return {pair: cycles for pair, cycles in idle.items() if cycles}


@pytest.mark.parametrize("case", slow_but(CASES, *CHEAP), ids=str)
def test_everything_adds_up(case: tuple[str, str], tmp_path: Path) -> None:
    chip, shape = case
    run = run_of(keep(tmp_path, shape, CHIPS[chip]))
    for model in (False, True):
        explanation = explained(run, model, most=10_000)
        assert_whole(explanation, run)
        assert explanation.path is not None
        assert explanation.waterfall.cycles == explanation.path.cycles == run.row.rtl_cycles
    # what arrays waited for before their GEMMs is what the waterfall says; the rest is after the last one
    waited = Counter[str]()
    for wait in explanation.waits:
        waited.update(wait.causes)
    for cause in ("dram", "dram queue", "port", "noc", "dependence", "results", "start", "fetch"):
        assert waited[cause] * run.chip.rows * run.chip.cols == explanation.waterfall.total.get(cause, 0)


def test_a_slow_dram_is_what_is_waited_for(tmp_path: Path) -> None:
    fast, slow = (explained(run_of(keep(tmp_path / name, "gemm:17x33x9", CHIPS[name]))) for name in ("tiny", "slow"))
    more = slow.waterfall.cycles - fast.waterfall.cycles
    through_dram = ("dram", "dram queue", "start", "end")  # the program itself, and the last result
    dram = [sum(each.waterfall.total.get(cause, 0) for cause in through_dram) for each in (fast, slow)]
    assert dram[1] - dram[0] > 0.95 * more * slow.waterfall.pes
    assert slow.waterfall.total["dram queue"] > 4 * fast.waterfall.total["dram queue"]
    assert slow.waits[0].causes.keys() & {"dram", "dram queue"}
    assert slow.bounds is not None
    assert slow.bounds.gap is not None
    assert slow.bounds.limit == "dram"
    assert {part.before for part in slow.bounds.gap.parts} <= {"gemm:17x33x9", ""}
    assert slow.path is not None
    assert max(slow.path.steps, key=lambda step: step.cycles).cause in ("dram", "dram queue")


def test_the_path_goes_from_cause_to_effect(layer: Path) -> None:
    """Each step of the path is a part of its instruction's time, or of the way from or to it."""
    run = run_of(layer)
    explanation = explained(run)
    assert explanation.path is not None
    last = explanation.path.steps[-1]
    assert (last.activity, last.end) == (Activity.END, run.row.rtl_cycles)
    records = {(p.tile, p.unit.name.lower(), p.index, e.tile): e for p, e in run.measured.items()}
    computing = {Activity.COMPUTE, Activity.PIPELINE, Activity.VECTOR, Activity.TRANSFER, Activity.HELD_UP}
    for step in explanation.path.steps:
        if step.activity in computing:
            record = records[step.who.tile, step.who.unit, step.who.position, step.who.executed_by]
            assert record.start <= step.start < step.end <= record.end + 5  # the next one takes the post, and is issued
    assert {Activity.COMPUTE, Activity.TRANSFER} <= {step.activity for step in explanation.path.steps}


def test_the_path_to_an_operation_ends_with_it(layer: Path) -> None:
    run = run_of(layer)
    for number in range(0, len(run.schedule.operations), 3):
        explanation = explained(run, operation=number)
        ends = [entry.end for place, entry in run.measured.items() if run.number(place) == number]
        assert explanation.path is not None
        assert explanation.path.cycles == max(ends)
        assert all(wait.gemm.operation == number for wait in explanation.waits)
    with pytest.raises(ExplainError, match=r"has no operation 9999; its .* are numbered from 0"):
        explained(run, operation=9999)
    with pytest.raises(ExplainError, match="has no layer 'nothing'; it has conv:9x7x5-6"):
        explained(run, layer="nothing")


def test_gemms_behind_each_other_are_computing_all_the_time(layer: Path) -> None:
    """A GEMM that begins when the windows of the one before end has waited for these and for nothing else."""
    run = run_of(layer)
    causes = Causes(run.program, run.measured, run.chip)
    seen = 0
    for core in run.chip.cores:
        places = causes.gemms(core)
        for before, after in zip(places, places[1:], strict=False):
            if causes.windows_end(before) == causes.records[after].start:
                step = next(causes.walk(after))
                assert (step.activity, step.place) == (Activity.COMPUTE, before)
                assert not costly_waits(causes, 1, run.who, lambda place, after=after: place == after)
                seen += 1
    assert seen


def test_a_network_layer_by_layer(tmp_path: Path) -> None:
    run = run_of(keep_network(tmp_path, "resnet8", load("quad16")))
    explanation = explained(run)
    assert_whole(explanation, run)
    assert run.row.network is not None
    cores = {layer.name: layer.core_cycles for layer in run.row.network.layers}
    per_core = run.chip.rows * run.chip.cols
    assert {each.layer: sum(each.pe_cycles.values()) // per_core for each in explanation.waterfall.layers} == {
        name: cycles for name, cycles in cores.items() if cycles
    }
    bounds = explanation.bounds
    assert bounds is not None
    arrays = [each.busy["compute"] for each in bounds.layers]
    assert max(arrays) < bounds.busy["compute"] <= sum(arrays) <= bounds.in_turn
    assert {each.layer for each in bounds.layers} == {run.layer(op) for op in run.schedule.operations}
    assert bounds.floor is not None
    assert bounds.floor <= bounds.cycles <= run.row.model_cycles
    assert bounds.limit == max(bounds.busy, key=bounds.busy.__getitem__)
    assert bounds.gap is not None
    assert {(part.after, part.before): part.cycles for part in bounds.gap.parts} == idle_of(run, bounds.gap.tile)
    only = explained(run, layer="conv3_1_1")
    assert only.bounds is None
    assert only.waits
    assert {wait.gemm.layer for wait in only.waits} == {"conv3_1_1"}
    shown = invoke(tmp_path / "resnet8", "--layer", "conv3_1_1")
    assert shown.exit_code == 0, shown.output
    assert "its part in conv3_1_1" in shown.output
    assert "conv2_1_1 " not in shown.output.partition("critical path")[0]


@pytest.mark.slow
def test_a_program_timed_ahead_has_planned_what_is_not_fed(tmp_path: Path) -> None:
    chip = load("ahead8")
    run = run_of(keep(tmp_path, "gemm:16x16x16", chip, "dtt"))
    assert run.program.ahead
    explanation = explained(run)
    assert_whole(explanation, run)
    assert explanation.path is None
    assert explanation.waits == ()
    assert explanation.waterfall.total["planned"] > 0
    assert "timed ahead: nothing waits" in invoke(tmp_path / "gemm_16x16x16").output


# -- where model and RTL differ -------------------------------------------------------------------------------------


def test_model_and_rtl_agree(layer: Path) -> None:
    spread = explained(run_of(layer)).spread
    assert (spread.differing, spread.first, spread.streams, spread.end_lag) == (0, None, (), 0)
    assert "model and RTL agree: each of" in invoke(layer).output


@pytest.mark.parametrize("what", ["move", "wait", "gemm", "issue"])
def test_the_first_difference_has_its_mechanism(what: str, layer: Path, tmp_path: Path) -> None:
    """From one instruction on everything is 7 cycles late, as a mechanism that the model lacks would have it."""
    timeline = predicted(layer)
    kind = Opcode.GEMM if what == "gemm" else Opcode.MOVE
    reads = TINY.drams[0]
    first = min(
        (entry for entry in timeline if entry.opcode is kind and (kind is Opcode.GEMM or entry.tile == reads)),
        key=lambda entry: entry.start,
    )

    def late(entry: Executed) -> tuple[int, int, int]:
        wait, start, end = as_predicted(entry)
        if entry == first:
            moved = 7 * (what in ("wait", "issue"))
            return wait + 7 * (what == "wait"), start + moved, end + 7
        return (wait, start + 7, end + 7) if entry.start > first.end else (wait, start, end)

    run = run_of(keep(tmp_path / "late", SHAPES[0], TINY, measured=late))
    spread = explained(run).spread
    assert spread.first is not None
    assert (spread.first.tag, spread.first.tile) == (first.tag, first.tile)
    text = {
        "move": r"began in time, and lasted 7 cycles longer \(stalled for 0 cycles\): the channel of dram",
        "wait": "waited 7 cycles longer for its semaphore",
        "gemm": "began in time, and lasted 7 cycles longer: the unit's contract",
        "issue": "began 7 cycles later, although its wait was as predicted",
    }[what]
    assert re.search(text, spread.mechanism)
    assert spread.end_lag == 7
    assert [stream.first for stream in spread.streams] == sorted(stream.first for stream in spread.streams)
    assert sum(stream.differing for stream in spread.streams) == spread.differing > 10
    assert {stream.largest for stream in spread.streams} == {7}
    shown = invoke(tmp_path / "late" / "conv_9x7x5-6_k3_p1_relu").output
    assert "the RTL ended +7 cycles from the model" in shown
    assert "mechanism: it" in shown


def predicted(folder: Path) -> list[Executed]:
    return [Executed(*entry[:7]) for entry in run_of(folder).predicted.values()]


# -- names of runs, and the command ---------------------------------------------------------------------------------


def test_runs_are_found_by_file_folder_and_name(layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunNameError, match=r"latest.json: nothing has been run here"):
        find("latest")
    here = Path("sim_build/results")
    for name in ("latest", "some-run"):
        results_file(here / f"{name}.json", layer, layer, artefacts=str(layer))
    for name in ("latest", "some-run", str(here / "some-run.json")):
        assert [each.folder for each in find(name)] == [layer, layer]
    assert one(find(str(layer)), None).folder == layer
    assert one(find(str(layer.parent)), SHAPES[0]).folder == layer
    with pytest.raises(RunNameError, match=r"no workload 'x'; it has conv:9x7"):
        one(find("latest"), "x")
    for name, why in (("nothing", "there is no such run"), (str(tmp_path), r"has no artefacts\.json")):
        with pytest.raises(RunNameError, match=why):
            find(name)


def test_rows_of_a_run_are_chosen_by_workload_and_scheduler(layer: Path) -> None:
    row = load_artefacts(layer).row
    shape = SHAPES[0]
    fast, slow = (row.model_copy(update={"scheduler": name, "settings": None}) for name in ("fast", "slow"))
    other = NamedRun(slow.model_copy(update={"workload": "gemm:1x1x1"}), layer)
    of_shape = NamedRun(fast, layer), NamedRun(slow, layer)
    every = (*of_shape, other)
    assert chosen(every, None) == every
    assert chosen(every, shape) == of_shape
    assert chosen(every, None, "slow") == every[1:]
    assert one(every, shape, "slow") == every[1]
    with pytest.raises(
        RunNameError, match=r"the run has 2 workloads; name one with --workload: conv:9x7.*, gemm:1x1x1"
    ):
        one(every, None)
    with pytest.raises(RunNameError, match=r"has 2 rows of conv:9x7.*; name one with --scheduler: fast, slow"):
        one(every, shape)
    with pytest.raises(RunNameError, match="the run has nothing by scheduler 'quick'; it has fast, slow"):
        one(every, None, "quick")


def test_a_scheduler_of_a_run_is_explained(layer: Path, tmp_path: Path) -> None:
    rows = results_file(tmp_path / "rows.json", layer, artefacts=str(layer))
    assert invoke(rows, "--scheduler", "loop_order").exit_code == 0
    assert "nothing by scheduler 'nobody'; it has loop_order" in invoke(rows, "--scheduler", "nobody").output
    why = explained(run_of(layer))
    for some, named in (((why, why), False), ((why, why.model_copy(update={"scheduler": "other"})), True)):
        print_overview(
            Explanations(workloads=some, unexplained={}), screen := Console(record=True, width=200, file=StringIO())
        )
        assert ("scheduler" in screen.export_text()) == named


def test_runs_without_artefacts_are_named_with_the_mend(layer: Path, tmp_path: Path) -> None:
    plain = results_file(tmp_path / "plain.json", layer, artefacts=None)
    shown = invoke(plain)
    assert shown.exit_code == 2
    assert "run it again with --artefacts" in shown.output
    gone = results_file(tmp_path / "gone.json", layer, artefacts="nowhere/run/gemm")
    assert re.search(r"are not in \S*nowhere/run/gemm any more; run it again", invoke(gone).output)
    moved = results_file(
        layer.parents[1] / "moved.json", layer, artefacts=f"elsewhere/{layer.parent.name}/{layer.name}"
    )
    assert invoke(moved).exit_code == 0


def test_the_json_is_read_back(layer: Path, tmp_path: Path) -> None:
    shown = invoke(layer, "--json", "-")
    (explanation,) = Explanations.model_validate_json(shown.output).workloads
    beside = {"energy": None, "area": None}  # area: of a chip that was synthesised here
    assert explanation.model_copy(update=beside) == explained(run_of(layer))
    written = invoke(layer, "--json", tmp_path / "why.json")
    assert written.exit_code == 0
    assert explanation.bounds is not None
    assert explanation.bounds.gap is not None
    line = next(line for line in written.output.partition("gap to the bound")[2].splitlines() if line.startswith("all"))
    assert f" {explanation.bounds.gap.cycles:,} " in line
    assert json.loads((tmp_path / "why.json").read_text()) == json.loads(shown.output)
    wrong = json.loads(shown.output)["workloads"][0]["waterfall"]
    wrong["total"]["dram"] += 1
    with pytest.raises(ValueError, match="is not the sum over the layers"):
        Waterfall.model_validate(wrong)


def test_a_run_that_ended_in_a_fault_has_only_the_model(tmp_path: Path) -> None:
    folder = keep(tmp_path, "gemm:5x6x7", TINY)
    run = run_of(folder)
    faulty = FinishedRun(run.row, run.chip, run.schedule, run.program, {}, run.predicted, 0, run._numbers)
    with pytest.raises(ExplainError, match=r"no cycles were measured: .*; --model explains those of the model"):
        explained(faulty)
    assert explained(faulty, model=True).waterfall.cycles == run.row.model_cycles


def test_all_workloads_of_a_run_or_why_not(layer: Path, tmp_path: Path) -> None:
    other = keep(tmp_path / "run", "gemm:5x6x7", TINY)
    both = results_file(tmp_path / "both.json", layer, other)
    explanations = Explanations.model_validate_json(invoke(both, "--json", "-").output)
    assert [each.workload for each in explanations.workloads] == [SHAPES[0], "gemm:5x6x7"]
    shown = invoke(both)
    assert shown.output.index("most of the rest") < shown.output.index("where the cycles went")
    assert shown.output.index("where the cycles went") < shown.output.index("what bounds it")
    assert "no order of these operations takes less than" in shown.output
    shutil.rmtree(other)
    shown = invoke(both)
    assert shown.exit_code == 0
    assert "gemm:5x6x7: its artefacts are not in" in shown.output
    refused = invoke(both, "--op", "1")
    assert (refused.exit_code, "name one with --workload" in refused.output) == (2, True)
    page = CliRunner().invoke(app, ["report", str(both), "--out", str(tmp_path / "both.html")])
    assert page.exit_code == 0
    assert "gemm:5x6x7: its artefacts are not in" in (tmp_path / "both.html").read_text()


def test_artefacts_in_the_cache_are_found_from_any_folder(
    layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path / "cache"))
    file = results_file(tmp_path / "r.json", layer, artefacts=f"../cache/artefacts/some-run/{layer.name}")
    assert find(str(file))[0].folder is None
    kept_there = tmp_path / "cache" / "artefacts" / "some-run" / layer.name
    shutil.copytree(layer, kept_there)
    monkeypatch.chdir("/")
    assert find(str(file))[0].folder == kept_there


def test_other_files_of_ours_are_named(tmp_path: Path) -> None:
    schedule, served = "is a schedule, of which nothing has run", "many networks at once"
    for text, what in (('{"operations": []}', schedule), ('{"instances": []}', served)):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(RunNameError, match=what):
            find(str(tmp_path / "x.json"))
