"""The results format: what is computed, what is refused, what an interrupted run leaves behind, and its JUnit XML."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from junitparser import Error, Failure, JUnitXml
from pydantic import ValidationError

from meshloom.hw.spec.config import load as load_chip
from meshloom.sched.support.files import WriteError, check_writable, write_atomically
from meshloom.tb.devices.simulated import ICARUS, VERILATOR
from meshloom.tb.report.console import console
from meshloom.tb.report.registry import JUNIT
from meshloom.tb.report.reporter import Reporter
from meshloom.tb.report.row_tables import chip_name, print_results
from meshloom.tb.results.events import MoreRows, RowCount, Stage
from meshloom.tb.results.figures import Congestion, Divergence, FaultReport, LinkFigures
from meshloom.tb.results.record import ResultsError
from meshloom.tb.results.recorder import Recorder
from meshloom.tb.results.schema import (
    MEAN_ERROR_PERCENT,
    SCHEMA_VERSION,
    WORST_ERROR_PERCENT,
    Results,
    Row,
    Status,
    load,
    summarise,
)

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "formats.md"
FAULT = FaultReport(cause="ADDRESS", tile=17, unit="mover", tag=9, value=0x1000, label="fetch x")
DIVERGENCE = Divergence(
    tile=1,
    unit="matrix",
    tag=5,
    label="gemm 0",
    predicted_start=10,
    predicted_end=20,
    measured_start=10,
    measured_end=23,
)


LAYERS = [
    {"name": "c", "kind": "conv", "macs": 900, "limit": "dram", "rtl_cycles": 1000, "model_cycles": 1010,
     "core_cycles": 1500, "utilisation": 0.5, "shares": {"compute": 50.0, "dram": 50.0}},
    {"name": "p", "kind": "max_pool", "macs": 0, "limit": "vector", "rtl_cycles": 200, "model_cycles": 194,
     "core_cycles": 0, "utilisation": 0.0, "shares": {}},
]  # fmt: skip
NETWORK = {
    "picture": "cat.png", "answer": "cat", "expected": "dog", "macs": 900, "tensors_checked": 2,
    "dram_bytes": 5_000_000,
    "outputs": [{"name": "y", "shape": [1, 2, 1, 1], "top": [{"index": 1, "label": "cat", "score": 0.5}]}],
    "notes": ["Softmax s at the end is left out."],
    "spilled": ["p"], "layers": LAYERS, "shares": {"compute": 25.0, "idle": 75.0},
    "busy": {"compute": 700, "receiving": 800}, "in_turn_cycles": 900,
    "micro_ops": {
        "count": 7, "planned_cycles": 110, "bound_cycles": 100, "hops_bytes": 640, "spilled_words": 3,
    },
}  # fmt: skip
ARRAYS = {"limit": "compute", "span_cycles": 4000, "fed_cycles": 3900, "within": 0.8, "edges": 0.9}
LINKS = [{"tile": 1, "port": "east", "busy": 3000, "blocked": 1000, "cycles": 10_000}]
ERROR = {"kind": "DoesNotFit", "stage": "scheduling", "message": "too big"}
SETTINGS = {
    "code": "0.1.0, commit abc, sources def",
    "scheduler": "flexer:budget=5",
    "simulator_version": "Verilator 5",
}
CONGESTION = {
    "ideal_cycles": 300,
    "real_cycles": 400,
    "sources": [{"tile": 1, "moves": 2, "ideal_cycles": 300, "real_cycles": 400}],
    "packets": {"count": 4, "mean": 20.5, "worst": 40, "idle_mean": 18.0, "worst_late": 9},
}


WRONG = {
    "tensor": "y", "image": 0, "channel": None, "row": 3, "column": 4, "lane": 15, "expected": 0, "found": -3,
    "count": 1, "tile": 0, "address": 77, "unwritten": False,
    "makers": [
        {"operation": 1, "label": "conv", "opcode": "GEMM", "tile": 1, "unit": "matrix", "index": 0, "executed_by": 1,
         "start": 5, "end": None},
    ],
}  # fmt: skip


def row(**changes: Any) -> Row:
    """A row that passes, with changes."""
    good = {
        "workload": "resnet8/conv1",
        "chip": "tiny",
        "scheduler": "loop_order",
        "simulator": "verilator",
        "rtl_cycles": 10_000,
        "model_cycles": 10_100,
        "utilisation": 0.75,
        "bytes_checked": 16384,
        "instructions": 12,
        "cpu_seconds": 0.5,
    }
    return Row.model_validate(good | changes)


def recorded(folder: Path, *rows: Row, complete: bool = True) -> tuple[Results, Path]:
    recorder = Recorder("tiny-loop_order-verilator", VERILATOR.tools(), folder)
    for each in rows:
        recorder.add(each)
    return recorder.finish(complete), recorder.path


def test_computed_fields() -> None:
    assert row().error_percent == pytest.approx(1.0)
    assert row(model_cycles=9_900).error_percent == pytest.approx(-1.0)
    assert row().cycles_per_second == pytest.approx(20_000)
    assert row(rtl_cycles=0).error_percent is None
    assert row(cpu_seconds=0).cycles_per_second == 0


@pytest.mark.parametrize(
    ("changes", "status", "reason"),
    [
        ({}, Status.PASSED, ""),
        ({"model_cycles": 10_000 + int(100 * WORST_ERROR_PERCENT)}, Status.PASSED, ""),
        ({"model_cycles": 10_501}, Status.MODEL, r"model error \+5.01 % exceeds 5 %"),
        (
            {"model_cycles": 9_499, "first_divergence": DIVERGENCE},
            Status.MODEL,
            r"tag 5 \(gemm 0\).* 10..20, .* 10..23",
        ),
        (
            {"planned_arrivals": 9, "arrival_mismatches": 2, "first_arrival_mismatch": "tag 5 in cycle 8"},
            Status.MODEL,
            r"^2 of 9 planned arrivals are off \(tag 5 in cycle 8\)$",
        ),
        (
            {"planned_arrivals": 9, "arrival_mismatches": 9, "model_cycles": 10_501},
            Status.MODEL,
            r"^9 of 9 planned arrivals are off and model error \+5.01 % exceeds 5 %$",
        ),
        ({"mismatches": 1}, Status.MISMATCH, "1 of 16384 bytes differ"),
        ({"records_expected": 9, "records_compared": 9}, Status.PASSED, ""),
        (
            {"records_expected": 9, "records_compared": 8, "record_problem": "one is lost"},
            Status.INCOMPLETE,
            "incomplete, 8 of 9 trace records were compared: one is lost",
        ),
        ({"records_expected": 9, "records_compared": 8}, Status.INCOMPLETE, "8 of 9 trace records were compared$"),
        (
            {"records_expected": 9, "records_compared": 9, "record_problem": "two more", "arrival_mismatches": 1},
            Status.INCOMPLETE,
            "9 of 9 trace records were compared: two more",
        ),
        ({"records_expected": 9, "mismatches": 1}, Status.MISMATCH, "1 of 16384 bytes differ"),
        ({"faults": 1, "mismatches": 1}, Status.FAULT, "1 faults"),
        (
            {"faults": 1, "fault_reports": [FAULT]},
            Status.FAULT,
            r"ADDRESS at tile 17, mover, tag 9 \(fetch x\).*0x1000",
        ),
        ({"bytes_checked": 0}, Status.FAILED, "no output byte was compared"),
        ({"rtl_cycles": 0}, Status.FAILED, "no output byte was compared"),
        ({"failure": "does not fit", "faults": 1}, Status.FAILED, "does not fit"),
        ({"error": ERROR, "mismatches": 1}, Status.FAILED, "^scheduling: too big$"),
        (
            {"error": ERROR | {"kind": "KeyError", "traceback": "x/y.txt"}},
            Status.FAILED,
            "^scheduling: KeyError: too big; its traceback is in x/y.txt$",
        ),
    ],
)
def test_status_is_the_worst_that_happened(changes: dict[str, Any], status: Status, reason: str) -> None:
    result = row(**changes)
    assert result.status is status
    assert re.search(reason, result.reason) if reason else not result.reason


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mismatches": 20_000}, "exceed bytes_checked"),
        ({"records_expected": 3, "records_compared": 4}, "records_compared = 4 exceed records_expected = 3"),
        ({"fault_reports": [FAULT]}, "faults = 0"),
        ({"utilisation": 1.01}, "less than or equal to 1"),
        ({"rtl_cycles": -1}, "greater than or equal to 0"),
        ({"status": "failed"}, "contradicts"),
        ({"error_percent": 0.9}, "contradicts"),
        ({"cycles_per_second": None}, "contradicts"),
        ({"seconds": 1}, "Extra inputs"),
    ],
)
def test_a_row_cannot_contradict_itself(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        row(**changes)


def test_computed_fields_of_other_writers_may_be_rounded() -> None:
    assert row(error_percent=1.00000001, status="passed") == row()


def test_summary_bounds() -> None:
    assert summarise([row()]).ok
    # The worst row is within its bound in all of these.
    assert summarise([row(model_cycles=10_400)]).ok, "the mean of a single row is no sample"
    assert summarise([row(model_cycles=10_400), row(model_cycles=10_000)]).ok, "just at the bound"
    over = summarise([row(model_cycles=10_400), row(model_cycles=9_999)])
    assert not over.ok
    assert over.reasons == (f"mean model error 2.00 % exceeds {MEAN_ERROR_PERCENT:g} %",)
    opposite = summarise([row(model_cycles=10_300), row(model_cycles=9_700)])
    assert opposite.mean_error_percent == pytest.approx(3.0), "errors of opposite sign do not cancel"
    assert not opposite.ok


def test_summary_of_bad_runs() -> None:
    assert summarise([]).reasons == ("no workload ran",)
    assert summarise([row()], complete=False).reasons == ("the run did not come to its end",)
    bad = summarise([row(), row(workload="x", mismatches=3)])
    assert (bad.rows, bad.passed, bad.ok) == (2, 1, False)
    assert bad.reasons == ("x: 3 of 16384 bytes differ from the golden model",)


def test_round_trip(tmp_path: Path) -> None:
    rows = [row(), row(workload="y", faults=1, fault_reports=[FAULT]), row(model_cycles=1, first_divergence=DIVERGENCE)]
    rows.append(row(network=NETWORK, mismatches=1, first_mismatch="c: wrong"))
    rows.append(row(links=LINKS, congestion=CONGESTION))
    rows.append(row(error=ERROR, settings=SETTINGS, chip_digest="0123"))
    rows.append(row(mismatches=1, first_mismatch="y: wrong", wrong_byte=WRONG))
    results, path = recorded(tmp_path, *rows)
    assert load(path) == results
    assert load(tmp_path / "latest.json") == results
    assert results.rows == tuple(rows)


def test_files_of_before_call_the_noc_network(tmp_path: Path) -> None:
    shares = {"compute": 40.0, "noc": 60.0}
    layers = [LAYERS[0] | {"limit": limit, "shares": shares} for limit in ("noc", "dram+noc")]
    figures = NETWORK | {"layers": layers, "shares": shares}
    results, path = recorded(tmp_path, row(network=figures, arrays=ARRAYS | {"limit": "noc"}))
    text = path.read_text()
    assert (text.count('"noc"'), text.count('"dram+noc"')) == (5, 1)
    path.write_text(text.replace('noc"', 'network"'))
    assert load(path) == results


def test_file_holds_the_documented_fields(tmp_path: Path) -> None:
    parts: dict[str, Any] = {"first_divergence": DIVERGENCE, "network": NETWORK, "wrong_byte": WRONG}
    parts |= {"links": LINKS, "congestion": CONGESTION}
    parts |= {"error": ERROR, "settings": SETTINGS, "arrays": ARRAYS}
    _, path = recorded(tmp_path, row(faults=1, fault_reports=[FAULT], **parts))
    values = json.loads(path.read_text())
    assert values["schema_version"] == SCHEMA_VERSION
    documented = set(re.findall(r"`(\w+)`", DOCUMENTATION.read_text()))
    first = values["rows"][0]
    whole, held = first["network"], first["congestion"]
    inner = [first["fault_reports"][0], first["first_divergence"], whole, whole["layers"][0], first["links"][0]]
    assert whole["micro_ops"]["gap"] == pytest.approx(0.1)
    inner += [
        whole["micro_ops"],
        whole["outputs"][0],
        whole["outputs"][0]["top"][0],
        held,
        held["sources"][0],
        held["packets"],
    ]
    inner += [first["error"], first["settings"], first["wrong_byte"], first["wrong_byte"]["makers"][0], first["arrays"]]
    for record in (values, values["summary"], first, *inner):
        assert set(record) <= documented, "docs/formats.md does not explain a field"


def test_figures_of_links_are_computed_and_must_agree() -> None:
    (link,) = row(links=LINKS).links
    assert (link.load, link.blocked_share) == (0.3, 0.25)
    idle = LinkFigures(tile=0, port="local", busy=0, blocked=0, cycles=0)
    assert (idle.load, idle.blocked_share) == (0.0, 0.0)
    assert Congestion.model_validate(CONGESTION).level == 0.75
    assert Congestion(ideal_cycles=0, real_cycles=0, sources=()).level == 1.0
    with pytest.raises(ValidationError, match="busy = 3000 and blocked = 1000 exceed cycles = 3999"):
        LinkFigures.model_validate(LINKS[0] | {"cycles": 3999})
    with pytest.raises(ValidationError, match=r"load = 0\.5 contradicts"):
        LinkFigures.model_validate(LINKS[0] | {"load": 0.5})
    with pytest.raises(ValidationError, match=r"level = 1\.0 contradicts"):
        Congestion.model_validate(CONGESTION | {"level": 1.0})


def test_environment_names_versions_only(tmp_path: Path) -> None:
    results, path = recorded(tmp_path, row())
    assert {"python", "meshloom", "amaranth", "verilator", "compiler"} <= set(results.environment)
    assert str(Path.home()) not in path.read_text()
    assert str(tmp_path) not in path.read_text()
    assert "iverilog" in Recorder("x", ICARUS.tools(), tmp_path).results(True).environment


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[: len(text) // 2], "is not JSON"),
        (lambda text: text.replace('"schema_version": 1', '"schema_version": 7'), "schema_version 7 is not 1"),
        (lambda text: text.replace('"rtl_cycles": 10000', '"rtl_cycles": "many"'), r"rows\.0.*rtl_cycles"),
        (lambda text: text.replace('"status": "passed"', '"status": "fault"'), "status = 'fault' contradicts"),
        (lambda text: text.replace('"ok": true', '"ok": false'), "summary = .* contradicts"),
        (lambda text: text.replace('"run":', '"walk":'), "run: Field required"),
        (lambda text: "[]", "valid dictionary"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    _, path = recorded(tmp_path, row())
    text = path.read_text()
    assert change(text) != text
    path.write_text(change(text))
    with pytest.raises(ResultsError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_rows_are_kept_while_the_run_goes_on(tmp_path: Path) -> None:
    recorder = Recorder("a-b-c", VERILATOR.tools(), tmp_path)
    assert not list(tmp_path.iterdir()), "a run that has finished nothing writes nothing"
    recorder.add(row())
    results = load(recorder.path)
    assert (len(results.rows), results.complete, results.summary.ok) == (1, False, False)
    assert not (tmp_path / "latest.json").exists()
    recorder.finish(complete=True)
    assert load(recorder.path).complete


def test_runs_have_names_of_their_own(tmp_path: Path) -> None:
    assert len({Recorder("a", VERILATOR.tools(), tmp_path).run for _ in range(3)}) == 3


@pytest.mark.parametrize("mask", [0o077, 0o002, 0o022])
def test_a_new_file_has_the_rights_that_the_umask_leaves(mask: int, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.touch()
    kept.chmod(0o640)
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "new", "text")
        write_atomically(kept, "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o666 & ~mask
    assert stat.S_IMODE(kept.stat().st_mode) == 0o640, "one that was there keeps its own"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "new"]


def test_atomic_write_leaves_the_old_file_when_it_fails(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new\ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_junit(tmp_path: Path) -> None:
    rows = [
        row(),
        row(workload="a<b>&c", mismatches=2),
        row(workload="fault", faults=1, fault_reports=[FAULT]),
        row(workload="model", model_cycles=20_000),
        row(workload="none", failure="does not fit"),
    ]
    results, path = recorded(tmp_path, *rows)
    JUNIT.save(results, path.with_suffix(".xml"))
    (suite,) = JUnitXml.fromfile(str(path.with_suffix(".xml")))
    assert results.environment
    assert {each.name: each.value for each in suite.properties()} == dict(results.environment)
    cases = {case.name: case for case in suite}
    assert list(cases) == ["resnet8/conv1", "a<b>&c", "fault", "model", "none", "whole run"]
    assert cases["resnet8/conv1"].is_passed
    assert cases["resnet8/conv1"].classname == "meshloom.tiny.loop_order.verilator"
    kinds = {name: type(case.result[0]) for name, case in cases.items() if case.result}
    assert kinds == {"a<b>&c": Failure, "fault": Error, "model": Failure, "none": Error, "whole run": Failure}
    assert "2 of 16384 bytes" in cases["a<b>&c"].result[0].message
    assert cases["whole run"].result[0].message == "mean model error 20.80 % exceeds 2 %"
    assert (suite.tests, suite.failures, suite.errors) == (6, 3, 2)


def test_figures_of_a_network() -> None:
    figures = row(network=NETWORK).network
    assert figures is not None
    assert [layer.error_percent for layer in figures.layers] == [pytest.approx(1), pytest.approx(-3)]
    assert figures.layer_error_percent == pytest.approx(2)
    assert figures.float_answer == ""
    never = {"rtl_cycles": 0, "model_cycles": 0}
    idle = row(network=NETWORK | {"layers": [layer | never for layer in LAYERS]}).network
    assert idle is not None
    assert idle.layer_error_percent is None
    for wrong in ({"layer_error_percent": 5.0}, {"extra": 1}, {"layers": [LAYERS[0] | {"utilisation": 1.5}]}):
        with pytest.raises(ValidationError):
            row(network=NETWORK | wrong)


def test_the_first_mismatch_is_part_of_the_reason() -> None:
    assert row(mismatches=2, first_mismatch="c: 2 wrong").reason == (
        "2 of 16384 bytes differ from the golden model, first in c: 2 wrong"
    )


def test_tables_of_networks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    unlike = row(workload="fault", faults=1, network=NETWORK | {"layers": [], "shares": {}})
    results, _ = recorded(tmp_path, row(workload="[odd]", network=NETWORK), row(), unlike)
    print_results(results, console())
    shown = capsys.readouterr().out
    (line,) = [line for line in shown.splitlines() if "cat.png" in line and "dog" in line]
    assert [cell.strip() for cell in re.split("[│]", line)[1:-1]] == [
        "[odd]", "cat.png", "cat", "dog", "-", "0.0", "5.00", "2", "1", "2.00 %",
    ]  # fmt: skip
    (line,) = [line for line in shown.splitlines() if line.startswith("[odd] ")]
    assert line.split() == ["[odd]", "cat.png", "25.0", *["0.0"] * 8, "75.0"]
    assert "max_pool" not in shown, "layers are shown if asked for"
    assert "[odd], cat.png: best of y: cat 0.5\n[odd], cat.png: Softmax s at the end is left out.\n" in shown
    print_results(results, console(), per_layer=True)
    shown = capsys.readouterr().out
    assert shown.count("layer by layer") == 1
    assert "[odd] on tiny, layer by layer" in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("p ")]
    assert line.split() == ["p", "max_pool", "vector", "0.00", "200", "-3.00", "%", "0", *["-"] * 10]


def test_the_answer_is_told_as_soon_as_a_network_has_run(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter(console()) as reporter:
        reporter(row(network=NETWORK))
    assert capsys.readouterr().out.startswith("[1/?] resnet8/conv1: passed, cat.png is cat, 10,000 cycles")


def test_files_of_older_versions_are_read(tmp_path: Path) -> None:
    """Without the fields that came later."""
    results, path = recorded(tmp_path, row())
    values = json.loads(path.read_text())
    for each in values["rows"]:
        for name in ("chip_digest", "settings", "error"):
            del each[name]
    path.write_text(json.dumps(values))
    assert load(path) == results


def test_chips_with_equal_names_are_told_apart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tiny = load_chip("tiny").digest
    rows = [
        row(workload="as built in", chip_digest=tiny),
        row(workload="own", chip="mine", chip_digest="1" * 64),
        row(workload="old", chip="quad8"),
        row(workload="posing", chip="quad16", chip_digest="2" * 64),
        row(workload="one", chip="both", chip_digest="3" * 64),
        row(workload="other", chip="both", chip_digest="4" * 64),
    ]
    assert [chip_name(each, rows) for each in rows] == [
        "tiny", "mine", "quad8", "quad16@22222222", "both@33333333", "both@44444444",
    ]  # fmt: skip
    results, path = recorded(tmp_path, *rows)
    print_results(results, console())
    shown = capsys.readouterr().out
    assert re.search(r"posing +│ quad16@22222222 ", shown)
    JUNIT.save(results, path.with_suffix(".xml"))
    (suite,) = JUnitXml.fromfile(str(path.with_suffix(".xml")))
    assert [case.classname.split(".")[1] for case in suite][3:6] == [
        "quad16@22222222",
        "both@33333333",
        "both@44444444",
    ]


def test_a_run_goes_on_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    recorder = Recorder("a", VERILATOR.tools(), tmp_path / "file")
    recorder.add(row())
    assert recorder.trouble is not None
    assert recorder.finish(complete=True).rows == (row(),)
    assert "file" in recorder.trouble
    other = Recorder("a", VERILATOR.tools(), tmp_path / "file")
    other.add(row())
    (tmp_path / "file").unlink()
    other.finish(complete=True)
    assert other.trouble is None, "what was missing is there now"


def test_places_that_cannot_be_written_are_seen(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check_writable(tmp_path / "new" / "folder" / "x.json", tmp_path / "file", Path("/dev/null"))
    for place, why in (
        (tmp_path, f"{tmp_path}: cannot be written: Is a directory; name another place"),
        (tmp_path / "file" / "x.json", "file/x.json: cannot be written: Not a directory"),
        (Path("/proc/nowhere/x.json"), "/proc/nowhere/x.json: cannot be written: "),
    ):
        with pytest.raises(WriteError, match=why):
            check_writable(place)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_table_shows_every_row(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [row(), row(workload="[odd] name", mismatches=7), row(workload="empty", rtl_cycles=0, failure="no room")]
    results, _ = recorded(tmp_path, *rows)
    print_results(results, console())
    shown = capsys.readouterr().out
    for text in (
        "10,000",
        "10,100",
        "+1.00 %",
        "75.0 %",
        "16,384",
        "20,000",
        "[odd] name [mismatch]",
        "empty [failed]",
    ):
        assert text in shown
    assert "1 of 3 passed" in shown
    assert "not good: empty: no room" in shown


def test_seconds_that_nobody_measured_are_left_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Those of a board."""
    on_board = row(cpu_seconds=0.0)
    results, _ = recorded(tmp_path, on_board)
    print_results(results, console())
    with Reporter(console()) as reporter:
        reporter(on_board)
    shown = capsys.readouterr().out
    assert "16384 bytes equal\n" in shown.replace("16,384", "16384")
    assert re.search(r"│ +- │ +-│", shown)


def test_reporter_prints_rows_as_they_finish(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter(console()) as reporter:
        for event in (RowCount(1), Stage("x", "simulating"), MoreRows(1), row(), row(workload="x", mismatches=1)):
            reporter(event)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "x: simulating"
    assert lines[1].startswith("[1/2] resnet8/conv1: passed, 10,000 cycles, model +1.00 %")
    assert lines[2] == "[2/2] x: mismatch: 1 of 16384 bytes differ from the golden model"


def test_a_device_is_written_to_and_stays_one(tmp_path: Path) -> None:
    """And is not replaced by a file, as a file is by the next."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    handle = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically(pipe, "there\n")
        assert os.read(handle, 99) == b"there\n"
    finally:
        os.close(handle)
    assert pipe.is_fifo()
    with pytest.raises(OSError, match="No space left") as full:
        write_atomically(Path("/dev/full"), "nothing\n")
    assert full.value.filename == "/dev/full"
    assert Path("/dev/full").is_char_device()


def test_paths_hold_wherever_a_file_is_read_and_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are relative to the file's folder there, and to the working directory here; links lead to the same."""
    for name in ("here/sim_build/results/r/w", "here/sim_build/results/r/waves.fst", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "here" / "link.json").symlink_to(tmp_path / "elsewhere" / "x.json")
    monkeypatch.chdir(tmp_path / "here")
    at = "sim_build/results/r"
    results, _ = recorded(
        tmp_path,
        row(artefacts=f"{at}/w", waves=f"{at}/waves.fst", error=ERROR | {"traceback": f"{at}/w"}),
    )
    for place in ("sim_build/results/r.json", "x.json", "link.json"):
        results.save(Path(place))
    written = json.loads(Path("sim_build/results/r.json").read_text())["rows"][0]
    assert (written["artefacts"], written["waves"], written["error"]["traceback"]) == ("r/w", "r/waves.fst", "r/w")
    monkeypatch.chdir(tmp_path / "elsewhere")
    for place in ("../here/sim_build/results/r.json", "../here/x.json", "../here/link.json", "x.json"):
        (read,) = load(Path(place)).rows
        assert read.artefacts == "../here/sim_build/results/r/w"
        assert read.waves == "../here/sim_build/results/r/waves.fst"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here" / "sim_build").rename(tmp_path / "moved")
    assert load(Path("moved/results/r.json")).rows[0].artefacts == "moved/results/r/w"


def test_paths_of_older_files_are_those_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    results, _ = recorded(tmp_path, row(artefacts="sim_build/results/r/w"))
    Path("sim_build/results/r/w").mkdir(parents=True)
    Path("sim_build/results/r.json").write_text(results.text)
    assert load(Path("sim_build/results/r.json")).rows[0].artefacts == "sim_build/results/r/w"
