"""What the tutorial says of its examples is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import meshloom

from ..tiers import slow_but
from .command_line import invoke

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "examples" / "scheduler"
IN_TURN, TUNED = f"{EXAMPLES / 'in_turn' / '__init__.py'}:schedule", f"{EXAMPLES / 'tuned.py'}:TUNED"
NETWORKS = {
    "`in_turn` | 8": IN_TURN,
    "`tuned:between=dram`": f"{TUNED}:between=dram",
    "`tuned`:": TUNED,
    "`tuned:first=short`": f"{TUNED}:first=short",
}


def printed(row: str) -> list[int]:
    """The numbers in a row of the tutorial's tables."""
    (line,) = [line for line in TUTORIAL.splitlines() if line.startswith(f"| {row}")]
    return [int(cell.replace(",", "")) for cell in line.split("|")[2:-1]]


def cycles(workload: str, scheduler: str) -> int:
    plan = meshloom.schedule(workload, "quad8", scheduler)
    assert plan.predicted is not None
    return plan.predicted.cycles


@pytest.mark.slow
@pytest.mark.parametrize("layer", slow_but(("conv1", "conv2_1_1", "conv3_1_2"), "conv1"))
def test_what_a_layer_gains(layer: str) -> None:
    assert [cycles(f"resnet8/{layer}", scheduler) for scheduler in (IN_TURN, TUNED)] == printed(f"resnet8/{layer} ")


@pytest.mark.parametrize("row", slow_but(NETWORKS, "`in_turn` | 8"))
def test_what_a_network_gains(row: str) -> None:
    assert [cycles("resnet8", NETWORKS[row])] == printed(row)


@pytest.mark.slow
def test_the_rtl_agrees() -> None:
    shown = invoke("run", "resnet8", "--chip", "quad8", "--scheduler", TUNED)
    assert shown.exit_code == 0, shown.stderr
    assert f"{printed('`tuned`:')[0]:,} cycles, model +0.00 %" in shown.stdout


def test_what_is_shown_is_the_example() -> None:
    code = (EXAMPLES / "tuned.py").read_text(encoding="utf-8")
    parts = re.findall(r"```python\n(.*?)```", TUTORIAL[TUTORIAL.index("## More control") :], re.DOTALL)
    parts = [part for part in parts if "def turns" not in part]
    assert len(parts) == 5
    for part in parts:
        assert part in code


def test_the_error_that_is_shown_is_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (first,) = re.findall(r"```python\n(def schedule.*?)```", TUTORIAL, re.DOTALL)
    Path("first.py").write_text(first, encoding="utf-8")
    command = "gemm:8x8x8", "--chip", "tiny", "--scheduler", "./first.py:schedule"
    assert invoke("schedule", *command).exit_code == 0
    wrong = re.sub(r"    task.load_weights.*\n", "", first)
    Path("first.py").write_text(wrong, encoding="utf-8")
    shown = " ".join(invoke("schedule", *command).stderr.split())
    message = TUTORIAL[TUTORIAL.index("    error: the program has 1 problem") : TUTORIAL.index("The label says which")]
    assert shown.startswith(" ".join(message.split()))
