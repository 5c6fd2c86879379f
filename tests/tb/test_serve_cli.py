"""`meshloom serve` as its user meets it: what it says, what it refuses at once, what an interrupt leaves."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner, Result

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.model.modelled import ModelSession
from meshloom.sched.model.session import Completion, Launch
from meshloom.sched.schedulers.online.registry import ONLINE
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.tb.cli.main import app
from meshloom.tb.results.exits import Exit
from meshloom.tb.results.scenario import ScenarioResults
from meshloom.tb.runs.online import networks, recorded
from meshloom.tb.runs.online import serve as runtime
from meshloom.tb.runs.online.rtl_session import RtlSession

from ..sched.float_models import FloatModel
from .served_chip import CHIP, chip_with

ONE = 'name = "one"\n[[network]]\nname = "resnet8"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the command, with a scenario and the chip."""
    networks._latest.clear()  # what this process has compiled
    monkeypatch.chdir(tmp_path)
    Path("one.toml").write_text(ONE)
    values = CHIP.model_dump(mode="json") | {"floorplan": [" ".join(row) for row in CHIP.floorplan]}
    tables = {name: value for name, value in values.items() if isinstance(value, dict)}
    head = {name: value for name, value in values.items() if name not in tables}
    text = [_lines(head), *(f"[{name}]\n{_lines(value)}" for name, value in tables.items())]
    Path("lp4.toml").write_text("".join(text))
    return tmp_path


def _lines(values: dict[str, Any]) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items() if value is not None)


@pytest.fixture
def records_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for records of the model."""
    place = tmp_path / "kept"
    monkeypatch.setattr(recorded, "SCHEDULES", replace(SCHEDULES, name=str(place)))
    return place


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["serve", *arguments, "--chip", "lp4.toml"])


def left(folder: Path) -> set[str]:
    """Suffixes of what lies among the results."""
    place = folder / "sim_build" / "results"
    return {path.suffix for path in place.iterdir()} if place.is_dir() else set()


def test_the_chip_is_that_of_other_tests(folder: Path) -> None:
    assert load("lp4.toml").digest == CHIP.digest


def test_float_files_with_gates_are_served(folder: Path) -> None:
    """Quantised with what the scenario names, or with an input that is drawn, which a note says."""
    model = FloatModel((1, 4, 6, 6))
    gate = model.node("HardSigmoid", model.node("GlobalAveragePool", model.conv("x", "c", (8, 4, 3, 3)), "p"), "g")
    model.node("Softmax", model.node("Flatten", model.node("Mul", ["c", gate], "m"), "f"), "y", axis=-1)
    onnx.save(model.build("y"), "mine.onnx")
    np.save("x.npy", np.random.default_rng(1).normal(size=(1, 4, 6, 6)).astype(np.float32))
    for line, note in (("", True), ('calibrate = ["x.npy"]\n', False)):
        Path("mine.toml").write_text(f'name = "mine"\n[[network]]\nname = "mine.onnx"\nbatch = 2\n{line}')
        shown = invoke("mine.toml", "--model", "--json", "out.json")
        assert shown.exit_code == 0, shown.output
        assert ("note: mine: It is quantised with an input that is drawn" in shown.output) == note
        results = ScenarioResults.model_validate_json(Path("out.json").read_text())
        assert any("is drawn" in each for each in results.notes) == note
        assert results.instances[0].end is not None
        settings = results.models["mine"]
        assert [len(digest) for digest in settings["model_digest"]] == [64]
        assert [each.partition(" ")[0] for each in settings["calibration"]] == ([] if note else ["x.npy"])
    refused = invoke("mine.toml", "--model", "--set", "core.vec_table=false")
    assert refused.exit_code != 0
    assert "core.vec_table = true" in refused.output


def test_stages_are_told_without_a_terminal(folder: Path) -> None:
    shown = invoke("one.toml", "--model", "--json", "deep/er/out.json")
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    assert lines[0] == "compiling resnet8 x1"
    assert "serving in the model" in lines
    assert ScenarioResults.model_validate_json(Path("deep/er/out.json").read_text()).scenario.rtl_cycles is None
    assert left(folder) == {".json", ".svg"}


def test_a_field_of_the_chip_may_have_another_value(folder: Path) -> None:
    fields = ("--set", "dram.arbitration=round_robin", "--set", "dram.latency=25")
    shown = invoke("one.toml", "--model", "--json", "-", *fields)
    served = json.loads(shown.stdout)["scenario"]
    assert served["chip_digest"] == chip_with("lp4", dram=CHIP.dram.model_dump() | {
        "arbitration": "round_robin", "latency": 25
    }).digest  # fmt: skip


def test_json_on_stdout_is_alone_there(folder: Path) -> None:
    shown = invoke("one.toml", "--model", "--json", "-")
    assert json.loads(shown.stdout)["scenario"]["name"] == "one"
    assert "timeline model" in shown.stderr


def test_eighty_columns_hold_every_cell(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = invoke("one.toml", "--model").output
    assert "…" not in shown
    assert all(name in shown for name in ("turnaround", "deadline", "SLA violations", "cores busy"))
    tables = [line for line in shown.splitlines() if line[:1] in "┏┃│└"]
    assert max(map(len, tables)) <= 80


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        ("", [], "one.toml: name: is missing"),
        ('name = "x"\n', [], "there is no [[network]]; a scenario asks for at least one"),
        (ONE.replace("resnet8", "resnt8"), [], "unknown network 'resnt8'; did you mean resnet8"),
        (ONE + "bath = 2\n", [], "bath: there is no such field; did you mean batch?"),
        (ONE + "batch = 0\n", [], "batch = 0 must be at least 1"),
        (ONE + "arrival = -1\n", [], "arrival = -1 must be a cycle"),
        (ONE + "arrival = 4294967296\n", [], "cycle 4294967296 is beyond 4294967295"),
        (ONE + "deadline = 0\n", [], "deadline: 0 cycles are met by nobody; give more, or leave it out"),
        (ONE + "deadline_factor = -0.5\n", [], "deadline_factor = -0.5 must be at least 0"),
        (ONE + 'arrival = { trace = "t.csv" }\n', [], "t.csv never names resnet8; did you mean resnet5?"),
        (ONE, ["--chip", "lp99"], "unknown chip 'lp99'"),
        (ONE, ["--set", "dram.arbitration"], "--set dram.arbitration: give FIELD=VALUE"),
        (
            ONE,
            ["--set", "dram.arbitration=fair"],
            'dram.arbitration = "fair" must be "fifo", "round_robin" or "weighted"',
        ),
        (ONE, ["--set", "drum.words=1"], "drum.words: there is no table drum"),
        (ONE, ["--scheduler", "pream"], "did you mean prema?"),
        (ONE, ["--scheduler", "prema:periode=3"], "no option 'periode' for serving; did you mean period?"),
        (ONE, ["--scheduler", "mine.py:decide"], "there is no file mine.py"),
        (ONE, ["--device", "paper"], "'paper' is none of verilator, icarus"),
    ],
)
def test_what_is_wrong_is_one_message_and_leaves_nothing(
    folder: Path, text: str, arguments: list[str], said: str
) -> None:
    Path("one.toml").write_text(text)
    Path("t.csv").write_text("cycle,network\n5,resnet5\n")
    chip = [] if "--chip" in arguments else ["--chip", "lp4.toml"]
    shown = CliRunner().invoke(app, ["serve", "one.toml", *chip, *arguments])
    assert shown.exit_code == Exit.BAD_INPUT
    assert said in " ".join(shown.stderr.replace("│", "").split())
    assert shown.stdout == ""
    assert left(folder) == set()


@pytest.mark.parametrize("place", ["sim_build", "out.json", "full"])
def test_what_cannot_be_written_is_said(folder: Path, place: str) -> None:
    """Of a folder before anything runs; of a full disk after the tables."""
    arguments = ["--json", "/dev/full" if place == "full" else "out.json"]
    if place == "sim_build":
        Path("sim_build").write_text("")
    elif place == "out.json":
        Path("out.json").mkdir()
    shown = invoke("one.toml", "--model", *arguments)
    assert shown.exit_code == Exit.NOT_WRITTEN
    assert ": cannot be written: " in shown.stderr
    assert ("timeline model" in shown.output) == (place == "full")
    if place == "full":
        assert "error: /dev/full: cannot be written: No space left on device; make room there" in shown.stderr
        assert Path("/dev/full").is_char_device()


def test_a_scheduler_that_fails_is_one_message(folder: Path) -> None:
    Path("mine.py").write_text(
        "from meshloom.sched.schedulers.online.interface import View\ndef decide(view: View):\n    return 1 / 0\n"
    )
    shown = invoke("one.toml", "--model", "--scheduler", "mine.py:decide")
    assert shown.exit_code == Exit.NOT_RUN
    assert shown.stderr == (
        "error: scheduler mine.py:decide failed in cycle 0: ZeroDivisionError: division by zero (line 3 of mine.py)\n"
    )


def counted(monkeypatch: pytest.MonkeyPatch, fail: int | None = None) -> list[int]:
    """Launches in the model; number `fail` is interrupted."""
    launch, calls = ModelSession.launch, list[int]()

    def counting(self: ModelSession, one: Launch, at: int, log: Any = None) -> None:
        calls.append(at)
        if len(calls) == fail:
            raise KeyboardInterrupt
        launch(self, one, at, log)

    monkeypatch.setattr(ModelSession, "launch", counting)
    return calls


def test_an_interrupt_of_compiling_keeps_layers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Any, what: str) -> None:
        if "(3 of" in what:
            raise KeyboardInterrupt

    monkeypatch.setattr("meshloom.tb.cli.serve._Progress.stage", interrupted)
    monkeypatch.setattr(networks, "SCHEDULES", replace(SCHEDULES, name=str(folder / "compiled")))
    shown = invoke("one.toml", "--model")
    assert shown.exit_code == Exit.INTERRUPTED
    assert "interrupted while compiling networks; kept: the layers that have been compiled. Run it" in shown.stderr
    assert list((folder / "compiled").glob("templates-lp4*"))
    assert left(folder) == set()


def test_an_interrupt_in_the_model_begins_it_anew(
    folder: Path, records_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted(monkeypatch, fail=4)
    shown = invoke("one.toml", "--model")
    assert shown.exit_code == Exit.INTERRUPTED
    assert "interrupted while serving in the model; kept: compiled networks. Run it again" in shown.stderr
    assert not list(records_folder.glob("served*"))
    assert left(folder) == set()


@pytest.mark.usefixtures("records_folder")
def test_the_model_runs_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is followed is what it would have said; another scheduler, network or time of decisions is not."""
    calls = counted(monkeypatch)
    values: list[dict[str, Any]] = []
    for _ in range(2):
        shown = invoke("one.toml", "--model", "--json", "out.json")
        assert shown.exit_code == 0, shown.output
        values.append(json.loads(Path("out.json").read_text()))
    assert len(calls) == 11
    for each in values:
        del each["started"], each["scenario"]["decision_seconds"]
    assert values[0] == values[1]
    assert values[0]["busy"]
    invoke("one.toml", "--model", "--decision-cycles", "7")
    assert len(calls) == 22
    invoke("one.toml", "--model", "--scheduler", "prema")
    assert len(calls) == 33
    Path("one.toml").write_text(ONE + "arrival = 3\n")
    invoke("one.toml", "--model")
    assert len(calls) == 44


@pytest.mark.slow
@pytest.mark.usefixtures("records_folder")
def test_a_scheduler_that_changed_its_mind_is_not_answered_from_a_record(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same name, but another text, that takes fewer cores."""
    calls = counted(monkeypatch)
    text = (
        "from meshloom.sched.schedulers.online.interface import Decision, View\n"
        "def decide(view: View):\n    if view.running:\n"
        "        return []\n    (one,) = view.pending\n    version = one.layer.fastest(WIDTH)\n"
        "    return [Decision(one.number, version, view.free[: version.cores], '')]\n"
    )
    ends: list[int] = []
    for width in (4, 1, 1):
        Path("mine.py").write_text(text.replace("WIDTH", str(width)))
        monkeypatch.setattr(ONLINE, "_loaded", {})  # as in another process
        shown = invoke("one.toml", "--model", "--scheduler", "mine.py:decide", "--json", "out.json")
        assert shown.exit_code == 0, shown.output
        ends.append(json.loads(Path("out.json").read_text())["scenario"]["model_cycles"])
    assert ends[0] < ends[1] == ends[2]
    assert len(calls) == 22


@pytest.mark.usefixtures("folder")
def test_a_damaged_record_counts_as_none(records_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch)
    assert invoke("one.toml", "--model").exit_code == 0
    (record,) = records_folder.glob("served*")
    record.write_bytes(record.read_bytes()[:-40])
    shown = invoke("one.toml", "--model")
    assert shown.exit_code == 0, shown.output
    assert len(calls) == 22


@pytest.mark.usefixtures("records_folder")
@pytest.mark.parametrize("part", ["building", "on the RTL"])
def test_an_interrupt_after_the_model_keeps_its_part(folder: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """The second run follows it, and ends well; the simulator of the first has gone."""
    opened: list[int] = []
    with monkeypatch.context() as broken:
        if part == "building":
            broken.setattr(runtime, "build", _interrupted)
        else:
            advance = RtlSession.advance

            def stopped(self: RtlSession, until: int | None) -> tuple[Completion, ...]:
                process = self.served._process
                assert process is not None
                opened.append(process.pid)
                if len(opened) == 4:
                    raise KeyboardInterrupt
                return advance(self, until)

            broken.setattr(RtlSession, "advance", stopped)
        shown = invoke("one.toml")
    assert shown.exit_code == Exit.INTERRUPTED
    assert "the model's part" in shown.stderr
    assert left(folder) == set()
    for pid in opened:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    calls = counted(monkeypatch)
    shown = invoke("one.toml")
    assert shown.exit_code == 0, shown.output
    assert calls == []
    assert left(folder) == {".json", ".svg"}


def _interrupted(chip: ChipConfig, *more: Any) -> Any:
    raise KeyboardInterrupt


def test_a_run_that_the_chip_cannot_count_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its simulator is built."""
    monkeypatch.setattr(runtime, "build", _interrupted)
    Path("one.toml").write_text(ONE + "arrival = 4294960000\n")
    shown = invoke("one.toml")
    assert shown.exit_code == Exit.BAD_INPUT
    assert "counts to 4294967295; serve it in the model alone" in shown.stderr
    assert invoke("one.toml", "--model").exit_code == 0


def test_help_says_what_is_kept() -> None:
    shown = " ".join(CliRunner().invoke(app, ["serve", "--help"]).output.split())
    assert "Compiled networks, the model's part and the simulator are kept" in shown
