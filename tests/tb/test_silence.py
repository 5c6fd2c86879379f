"""No command is silent for long, on a terminal nothing of its progress is cut, and an interrupt says how to go on."""

from __future__ import annotations

import io
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress
from typer.testing import CliRunner

from meshloom.tb.cli.main import app
from meshloom.tb.report import progress
from meshloom.tb.report.console import console as console_of_commands
from meshloom.tb.report.progress import Counted, Working
from meshloom.tb.report.reporter import Reporter
from meshloom.tb.results.events import RowCount, Stage
from meshloom.tb.runs.network import layer_stage
from meshloom.tb.runs.searching import searching

from .command_line import invoke

ROOT = Path(__file__).parents[2]


def log() -> Console:
    result = console_of_commands()
    result.file = io.StringIO()
    return result


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SOON", 0.01)
    monkeypatch.setattr(progress, "EVERY", 0.02)


def wait_for(happens: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not happens() and time.monotonic() < until:
        time.sleep(0.01)
    assert happens()


def test_a_log_hears_of_what_takes_long(hasty: None) -> None:
    console = log()
    with Working(console, "writing [red]:x:") as work:
        wait_for(lambda: text_of(console).count("writing [red]:x:: 0 s so far") >= 2)
        work.say("drawing")
        wait_for(lambda: "drawing: 0 s so far" in text_of(console))
    ended = text_of(console)
    time.sleep(0.1)
    assert text_of(console) == ended


def test_what_goes_on_is_not_among_the_results(hasty: None) -> None:
    shown = CliRunner().invoke(app, ["schedule", "resnet8/conv1", "--chip", "quad8"])
    assert re.search(r"^resnet8/conv1: .*: 0 s so far$", shown.stderr, re.MULTILINE), shown.stderr
    assert "so far" not in shown.stdout
    assert "resnet8/conv1" in shown.stdout


def test_a_log_of_an_hour_has_some_dozens_of_lines() -> None:
    seconds, lines = progress.SOON, 1
    while seconds < 3600:
        seconds, lines = seconds + progress.pause(seconds), lines + 1
    assert 30 < lines < 60


def test_a_log_hears_nothing_of_what_is_quick() -> None:
    console = log()
    with Working(console, "writing"):
        pass
    assert text_of(console) == ""


def test_the_first_of_many_may_take_long(hasty: None) -> None:
    console = log()
    with Counted(console, "memory") as counted:
        wait_for(lambda: "memory: at it for 0 s" in text_of(console))
        counted.begin(55, 0)
        wait_for(lambda: "memory: 0 of 55 points after 0 s" in text_of(console))


def screens(monkeypatch: pytest.MonkeyPatch) -> list[Progress]:
    bars: list[Progress] = []
    monkeypatch.setattr(Progress, "start", lambda self: bars.append(self))
    return bars


def drawn(bars: Progress) -> str:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None, legacy_windows=False)
    console.print(bars.get_renderable())
    return text_of(console)


def terminal() -> Console:
    return Console(file=io.StringIO(), width=80, force_terminal=True)


def test_bars_of_a_training_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    bars = screens(monkeypatch)
    with Counted(terminal(), "digits on quad16", "steps") as counted:
        counted.begin(20000, 12345)
        counted.advance(1, "loss 12.3456")
        text = drawn(bars[0])
    for part in ("digits on quad16", "12346/20000", "0:00:00", "left 0:00:0", "loss 12.3456", "━"):
        assert part in text, text
    assert max(map(len, text.splitlines())) <= 80


def test_the_stage_of_a_run_is_folded_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    bars = screens(monkeypatch)
    with Reporter(terminal()) as report:
        report(RowCount(55))
        report(Stage("resnet50/conv4_2_2", "building the simulator of quad32 (verilator), unless it is cached"))
        text = drawn(bars[0])
    assert "0:00:00" in text
    for word in ("resnet50/conv4_2_2:", "building", "simulator", "(verilator),", "unless", "cached"):
        assert word in text, text


def test_the_best_of_a_search_is_folded_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    bars = screens(monkeypatch)
    with searching(terminal()):
        best = "best of 1,234: tiles of 8 rows, 12,345,678 cycles, 1,234,567 words"
        bars[0].add_task("resnet50/conv4_2_2", total=1000, completed=500, what="500/1000 tilings", best=best)
        text = drawn(bars[0])
    for word in ("resnet50/conv4_2_2", "500/1000 tilings", "0:00:00", "12,345,678", "1,234,567"):
        assert word in text, text


def test_no_layer_comes_after_the_last() -> None:
    assert layer_stage("fc", 54, 55) == "scheduling fc (55 of 55)"
    assert layer_stage("overlapping layers", 55, 55) == "scheduling: overlapping layers"


def _interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_an_interrupted_command_says_what_is_kept_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = 'name = "s"\nworkloads = ["gemm:4x4x4"]\nchips = ["tiny"]\n'
    Path("my sweep.toml").write_text(sweep, encoding="utf-8")
    monkeypatch.setattr("meshloom.tb.runs.sweeps.sweep.run", _interrupt)
    monkeypatch.setattr("meshloom.tb.runs.training.run.train", _interrupt)
    monkeypatch.setattr("meshloom.tb.runs.language.generation.generate", _interrupt)
    for words, kept in (
        (["sweep", "my sweep.toml"], "before the points were counted; their rows are kept in sim_build/sweeps/s"),
        (["train", "digits", "--fresh"], "before the steps were counted; nothing is kept"),
        (["generate", "shakespeare", "--prompt", "To be"], "after 0 of 32 tokens; nothing is kept"),
    ):
        monkeypatch.setattr("sys.argv", ["/somewhere/meshloom", *words])
        shown = invoke(*words)
        command = " ".join(f"'{word}'" if " " in word else word for word in words if word != "--fresh")
        assert shown.exit_code == 130
        assert shown.stderr.splitlines()[-1] == f"error: interrupted {kept}; go on with: meshloom {command}"


def test_setup_says_for_how_long_it_has_been_at_it() -> None:
    script = (ROOT / "scripts" / "setup.sh").read_text(encoding="utf-8")
    functions = script[script.index("say() {") : script.index("fail() {")]
    for command, status in (("true", 0), ("false", 1)):
        body = f"set -euo pipefail\n{functions}\nslow() {{ sleep 0.5; {command}; }}\nTICK=0.1 working compiling slow"
        shown = subprocess.run(["bash", "-c", body], capture_output=True, text=True, check=False)
        assert re.search(r"^setup: compiling: \d+ s so far$", shown.stdout, re.MULTILINE), shown.stderr
        assert shown.returncode == status
