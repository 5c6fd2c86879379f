"""Commands whose processes are killed at random moments: what is resumed is what it would have been. What looks for
orphans and halves of files sees them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from meshloom.tb.verify import kills
from meshloom.tb.verify.kills import CASES, KillCase, Victim, campaign, half_written, processes

_LEAVES = """
import os, subprocess, sys
from pathlib import Path
Path("out.json").write_text("{}")
"""


def case(script: str) -> KillCase:
    return KillCase("mine", (script,), lambda folder: (folder / "out.json").read_text())


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are scripts of Python."""

    def start(self: Victim) -> subprocess.Popen[bytes]:
        import os

        variables = {"MESHLOOM_KILLS": self.mark}
        with (self.folder / "stderr").open("wb") as said:
            words = [sys.executable, "-c", *self.case.words]
            return subprocess.Popen(words, cwd=self.work, env=os.environ | variables, stderr=said)

    monkeypatch.setattr(Victim, "start", start)
    monkeypatch.setattr(kills, "_SOON", 0.5)


def test_a_half_is_seen(tmp_path: Path) -> None:
    (tmp_path / "whole.json").write_text("[1]")
    (tmp_path / ".half.json").write_text("[1")  # what is beside its place has no name yet
    assert list(half_written(tmp_path)) == []
    (tmp_path / "half.json").write_text("[1")
    (tmp_path / "half.parquet").write_bytes(b"PAR1")
    assert [each.partition(" ")[0] for each in half_written(tmp_path)] == ["half.json", "half.parquet"]


def test_an_orphan_is_seen_and_ended(scripted: None, tmp_path: Path) -> None:
    child = f"subprocess.Popen([{sys.executable!r}, '-c', 'import time; time.sleep(60)'])"
    victim = Victim(case(_LEAVES + child), tmp_path / "one")
    assert victim.finish() == ""
    (orphan,) = victim.orphans()
    assert orphan.startswith("lives on: ")
    assert orphan.endswith("import time; time.sleep(60) ")
    assert victim.orphans() == []
    assert processes(victim.mark) == {}


def test_what_is_resumed_otherwise_is_seen(scripted: None, tmp_path: Path) -> None:
    same = case(_LEAVES + "import time; time.sleep(0.3)")
    assert campaign([same], 4, 1, tmp_path / "same").wrong == []
    other = case("import time; from pathlib import Path; place = Path('out.json')\n"
                 "place.write_text('[1]' if place.exists() else '[]'); time.sleep(0.3)")  # fmt: skip
    outcome = campaign([other], 4, 1, tmp_path / "other")
    assert outcome.wrong == ["mine, chain 0 of seed 1: what is resumed is not what an undisturbed run leaves"]
    assert outcome.kills + outcome.ends >= 4
    assert "ends with 3" in campaign([case("raise SystemExit(3)")], 1, 1, tmp_path / "fails").wrong[0]


@pytest.mark.slow
def test_commands_that_are_killed_go_on(tmp_path: Path) -> None:
    """The two that take least; `make kills` has all."""
    outcome = campaign([case for case in CASES if case.name in ("schedule", "search")], 20, 1, tmp_path)
    assert outcome.wrong == []
    assert outcome.kills == 20
    assert "client" in outcome.victims  # a worker lives for a short time, and may be hit or not
