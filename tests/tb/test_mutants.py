"""The campaign of mutation: what it draws, which tests it asks, what it makes of their answers. Cosmic Ray, which makes
the changes, is installed for campaigns alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from meshloom.sched.store import use
from meshloom.tb.verify.mutants import __main__ as campaign
from meshloom.tb.verify.mutants import copies, trial, witnesses
from meshloom.tb.verify.mutants.drawing import Draw, Mutant, MutantError, folders, mutant, plan
from meshloom.tb.verify.mutants.trial import Trial, try_out

_SOURCE = "def double(value: int) -> int:\n    return value * 2\n"
_USER = (
    "from meshloom.hw.unit.scale import double\n\n\ndef four(value: int) -> int:\n    return double(double(value))\n"
)
_FILES = {
    "pyproject.toml": '[tool.pytest.ini_options]\nmarkers = ["slow"]\naddopts = ["--import-mode=importlib"]\n',
    "meshloom/__init__.py": "", "hw/__init__.py": "", "hw/unit/__init__.py": "", "hw/unit/scale.py": _SOURCE,
    "sched/__init__.py": "", "sched/middle.py": "from .user import four\n\nEIGHT = four(2)\n", "sched/user.py": _USER,
    "tb/__init__.py": "",
    "tests/test_scale.py": "from meshloom.hw.unit.scale import double\n\n\n"
    "def test_double() -> None:\n    assert double(3) == 6\n",
    "tests/test_middle.py": "from meshloom.sched.middle import EIGHT\n\n\n"
    "def test_eight() -> None:\n    assert EIGHT == 8\n",
    "tests/test_nothing.py": "def test_nothing() -> None:\n    pass\n",
}  # fmt: skip
#: Instead of coverage.py: runs the tests, and says that line 5 of the user was run.
_COVERAGE = """
import json, pathlib, sys

def main():
    words = sys.argv[1:]
    if words[0] == "run":
        import pytest
        return pytest.main(words[words.index("pytest") + 1 :])
    out = pathlib.Path(words[words.index("-o") + 1])
    out.write_text(json.dumps({"files": {"sched/user.py": {"executed_lines": [5]}}}))
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small one: a source with its test, another that a test reaches by a third, a test that needs none."""
    root = tmp_path / "checkout"
    for name, text in _FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for module in (copies, witnesses):
        monkeypatch.setattr(module, "OUTPUT", tmp_path / "cache")
    return root


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with something like coverage.py."""
    place = tmp_path / "tools" / "coverage"
    place.mkdir(parents=True)
    (place / "__init__.py").touch()
    (place / "cmdline.py").write_text(_COVERAGE)
    return place.parent


def changed(before: str, after: str) -> Mutant:
    return Mutant("hw/unit/scale.py", "any", 2, before, after, _SOURCE.replace(before, after))


def test_draws_go_through_all_folders_in_turn() -> None:
    draws = plan({"hw": 30, "software": 90}, 1)
    assert len(set(draws)) == 120
    assert {draw.folder for draw in draws} == {*folders("hw"), *folders("software")}
    assert "tb/verify" not in folders("software")
    assert sum(draw.folder.startswith("hw/") for draw in draws[:40]) == 10, "who stops early has a part of each side"
    assert draws == plan({"hw": 30, "software": 90}, 1)
    files = {Draw("hw/core", number, 1).file() for number in range(40)}
    assert len(files) > 5
    assert all(file.startswith("hw/core/") for file in files)


def test_a_change_is_noticed_by_the_test_that_imports_its_source(checkout: Path, tools: Path) -> None:
    noticed = try_out(changed("* 2", "* 3"), tools, checkout)
    assert (noticed.test, noticed.files) == ("tests/test_scale.py::test_double", 1)
    same = try_out(changed("value * 2", "2 * value"), tools, checkout)
    assert (same.killed, same.files) == (False, 2), "of gateware, all are asked that need it"
    broken = try_out(changed("return", "retrun"), tools, checkout)
    assert broken.test == "tests/test_scale.py"
    assert (checkout / "hw/unit/scale.py").read_text() == _SOURCE, "the checkout stays as it was"
    assert list((checkout.parent / "cache" / "mutants").iterdir()) == []


def test_a_change_is_noticed_by_a_test_that_runs_the_line(checkout: Path, tools: Path) -> None:
    def user(line: int, after: str) -> Mutant:
        return Mutant("sched/user.py", "any", line, "any", after, _USER.replace("double(double(value))", after))

    noticed = try_out(user(5, "double(value)"), tools, checkout)
    assert (noticed.test, noticed.files, noticed.reached) == ("tests/test_middle.py::test_eight", 1, True)
    unreached = try_out(user(4, "double(value)"), tools, checkout)
    assert (unreached.killed, unreached.files, unreached.reached) == (False, 0, False)


@pytest.mark.slow
def test_a_test_that_fails_without_the_change_notices_nothing(checkout: Path, tools: Path) -> None:
    (checkout / "tests" / "test_scale.py").write_text(_FILES["tests/test_scale.py"].replace("== 6", "== 7"))
    noticed = try_out(changed("* 2", "* 3"), tools, checkout)
    assert (noticed.test, noticed.files) == ("tests/test_middle.py::test_eight", 2)


@pytest.mark.slow
def test_a_change_that_never_ends_is_noticed(checkout: Path, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_PATIENCE", 3.0)
    hanging = try_out(changed("return value * 2", "while True: pass"), tools, checkout)
    assert hanging.test == "tests/test_scale.py (hangs)"


def test_what_cannot_be_changed_is_said(checkout: Path, tools: Path) -> None:
    """Cosmic Ray is not there, or does not understand the file."""
    with pytest.raises(MutantError, match=r"hw/unit/scale\.py cannot be changed: ModuleNotFoundError: No module named"):
        mutant(Draw("hw/unit", 0, 1), tools, checkout)


def test_what_is_no_checkout_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "OUTPUT", tmp_path / "cache")
    with pytest.raises(MutantError, match=r"git ls-files in .* fails: fatal: not a git repository"):
        copies.copied(tmp_path, linked=False).__enter__()
    assert list((tmp_path / "cache" / "mutants").iterdir()) == []


def test_copies_of_killed_campaigns_go_and_others_stay(checkout: Path, tmp_path: Path) -> None:
    place = tmp_path / "cache" / "mutants"
    for name in ("tree_killed", "tree_used", "tree_new"):
        (place / name / "checkout").mkdir(parents=True)
    for name in ("tree_killed", "tree_used"):
        os.utime(place / name, (1, 1))
    hold = use.take(place / "tree_used")
    assert hold is not None
    os.utime(place / "tree_used", (1, 1))
    with copies.copied(checkout, linked=False) as tree:
        assert {path.name for path in place.glob("tree_*")} == {"tree_used", "tree_new", tree.parent.name}
        assert use.in_use(tree.parent)
    hold.release()


def test_tests_that_import_a_source_come_first_and_cost_no_more_than_the_budget(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def names() -> list[str]:
        witnesses.witnesses.cache_clear()
        return [test.path for test in witnesses.candidates("hw/unit/scale.py", checkout)]

    assert names() == ["tests/test_scale.py", "tests/test_middle.py"]
    (checkout / "tests" / "costs.txt").write_text("# first tier, all\n   200    300 tests/test_scale.py\n")
    assert names() == ["tests/test_scale.py", "tests/test_middle.py"]
    (checkout / "tests" / "costs.txt").write_text("   200 300 tests/test_scale.py\n   41 42 tests/test_middle.py\n")
    assert names() == ["tests/test_scale.py"]
    assert [test.path for test in witnesses.importers("sched/user.py", checkout)] == []


def test_a_report_names_what_no_test_noticed(tmp_path: Path) -> None:
    known = tmp_path / "equivalent.toml"
    known.write_text(
        '[[equivalent]]\nfile = "sched/a/b.py"\nbefore = "x = 1"\nafter = "x = 2"\nreason = "nobody reads x"\n'
    )
    seen = Trial("sched/a/b.py", "AddNot", 3, "if a:", "if not a:", "tests/test_b.py::test_a", 1, True)
    equal = Trial("sched/a/b.py", "NumberReplacer", 5, "x = 1", "x = 2", "", 2, True)
    missed = Trial("sched/a/b.py", "NumberReplacer", 6, "y = 1", "y = 2", "", 2, False)
    lines = list(campaign.report({"sched/a": [seen, equal, missed]}, campaign.equivalents(known)))
    assert lines[1].split() == ["sched/a", "3", "1", "1", "50.0"]
    assert lines[2:] == ["sched/a/b.py:6: 2 files of tests asked, none known to run the line\n  - y = 1\n  + y = 2"]


def test_equivalent_changes_are_of_sources_that_there_are() -> None:
    for each in campaign.equivalents():
        assert each.before in (campaign.ROOT / each.file).read_text(encoding="utf-8")
        assert each.reason
