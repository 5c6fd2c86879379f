"""The campaign of mutation: what it draws, which tests it asks, what it makes of their answers. Cosmic Ray, which makes
the changes, is installed for campaigns alone."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from meshloom.sched.store import use
from meshloom.tb.verify.mutants import __main__ as campaign
from meshloom.tb.verify.mutants import copies, lines, page, trial, witnesses
from meshloom.tb.verify.mutants.drawing import Draw, Mutant, MutantError, folders, mutant, plan
from meshloom.tb.verify.mutants.places import PlaceError, plan_of
from meshloom.tb.verify.mutants.trial import Trial, try_out

_SOURCE = "def double(value: int) -> int:\n    return value * 2\n"
_USER = (
    "from meshloom.hw.unit.scale import double\n\n\ndef four(value: int) -> int:\n    return double(double(value))\n"
)
#: As `tests/tiers.py`: tests run in the order of the command line.
_CONFTEST = "def pytest_addoption(parser):\n    parser.addoption('--stop-after', type=float)\n"
_FILES = {
    "pyproject.toml": '[tool.pytest.ini_options]\nmarkers = ["slow"]\naddopts = ["--import-mode=importlib"]\n',
    "meshloom/__init__.py": "", "hw/__init__.py": "", "hw/unit/__init__.py": "", "hw/unit/scale.py": _SOURCE,
    "sched/__init__.py": "", "sched/middle.py": "from .user import four\n\nEIGHT = four(2)\n", "sched/user.py": _USER,
    "tb/__init__.py": "",
    "tests/conftest.py": _CONFTEST,
    "tests/test_scale.py": "from meshloom.hw.unit.scale import double\n\n\n"
    "def test_double() -> None:\n    assert double(3) == 6\n",
    "tests/test_middle.py": "from meshloom.sched.middle import EIGHT\n\n\n"
    "def test_eight() -> None:\n    assert EIGHT == 8\n",
    "tests/test_nothing.py": "def test_nothing() -> None:\n    pass\n",
}  # fmt: skip
#: Instead of coverage.py: runs the tests, and says that `test_eight` has run line 5 of the user, and an import line 1.
_COVERAGE = """
import pathlib, sqlite3, sys

def main():
    words = sys.argv[1:]
    data = next(word for word in words if word.startswith("--data-file=")).partition("=")[2]
    with sqlite3.connect(data) as database:
        database.execute("CREATE TABLE file (id, path)")
        database.execute("CREATE TABLE context (id, context)")
        database.execute("CREATE TABLE line_bits (file_id, context_id, numbits)")
        database.execute("INSERT INTO file VALUES (1, ?)", [str(pathlib.Path("sched/user.py").resolve())])
        database.execute("INSERT INTO context VALUES (1, ''), (2, 'tests.test_middle.test_eight')")
        database.execute("INSERT INTO line_bits VALUES (1, 1, ?), (1, 2, ?)", [bytes([1 << 1]), bytes([1 << 5])])
    import pytest
    return pytest.main(words[words.index("pytest") + 1 :])
"""

#: Instead of Cosmic Ray: has a change for each of two lines, of which the first is no Python.
_CHANGES = {
    "parso/__init__.py": "", "parso/python/__init__.py": "", "parso/python/tree.py": "",
    "cosmic_ray/__init__.py": "",
    "cosmic_ray/ast.py": "from types import SimpleNamespace\n\n\ndef get_ast(source):\n    return None\n\n\n"
    "def ast_nodes(parsed):\n    return [SimpleNamespace(type='', at=(line, 11)) for line in (1, 2)]\n",
    "cosmic_ray/plugins.py": "class Operator:\n    def mutation_positions(self, node):\n     yield node.at, node.at\n"
    "\n\ndef get_operator(name):\n    return Operator\n",
    "cosmic_ray/mutating.py": "def mutate_code(source, operator, occurrence):\n"
    "    return source.replace('* 2', '+ 2') if occurrence else source.replace('value: int', '+')\n",
}  # fmt: skip


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small one: a source with its test, another that a test reaches by a third, a test that needs none."""
    root = tmp_path / "checkout"
    for name, text in _FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for module in (copies, lines):
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


def test_some_folders_and_files_have_the_draws_that_all_have() -> None:
    draws = plan_of(["tb/devices", "tb/cli/fields.py", "hw/dtt/"], {"hw": 2, "software": 9}, 11)
    assert [draw.folder for draw in draws] == [
        "hw/dtt", "hw/dtt", *(3 * ["tb/devices", "tb/devices/board", "tb/devices/noc", "tb/cli"])[:9]
    ]  # fmt: skip
    assert [draw.number for draw in draws if draw.folder == "tb/devices"] == [0, 1, 2]
    ours = [draw for draw in draws if draw.folder == "tb/cli"]
    every = [Draw("tb/cli", number, 11) for number in range(140)]
    assert ours == [draw for draw in every if draw.file().endswith("fields.py")][:2]
    for path in ("tb/verify", "tb/cli/nothing.py", "tb/cli/__init__.py", "tests", "../tb"):
        with pytest.raises(PlaceError, match=f"{path} has no source that is changed; give a folder or a file below"):
            plan_of(["hw", path], {"hw": 1}, 1)


def tried(change: Mutant, checkout: Path, tools: Path) -> Trial:
    """In a copy, which is as it was afterwards, and so is the checkout."""
    with copies.copied(checkout, linked=True) as tree:
        result = try_out(change, tools, tree, 60.0)
        assert (tree / change.file).read_text() == (checkout / change.file).read_text() == _FILES[change.file]
    assert list((checkout.parent / "cache" / "mutants").iterdir()) == []
    return result


def test_a_change_is_noticed_by_the_test_that_imports_its_source(checkout: Path, tools: Path) -> None:
    noticed = tried(changed("* 2", "* 3"), checkout, tools)
    assert (noticed.test, noticed.files) == ("tests/test_scale.py::test_double", 1)
    broken = tried(changed("return", "retrun"), checkout, tools)
    assert broken.test == "tests/test_scale.py"
    same = tried(changed("value * 2", "2 * value"), checkout, tools)
    assert (same.killed, same.files, same.reached) == (False, 1, False), "it imports no builder of simulators"


def test_a_change_is_noticed_by_a_test_that_runs_the_line(checkout: Path, tools: Path) -> None:
    def user(line: int, after: str) -> Mutant:
        return Mutant("sched/user.py", "any", line, "any", after, _USER.replace("double(double(value))", after))

    noticed = tried(user(5, "double(value)"), checkout, tools)
    assert (noticed.test, noticed.files, noticed.reached) == ("tests/test_middle.py::test_eight", 1, True)
    unreached = tried(user(4, "double(value)"), checkout, tools)
    assert (unreached.killed, unreached.files, unreached.reached) == (False, 0, False)
    middle = next(test for test in witnesses.witnesses(checkout) if test.path == "tests/test_middle.py")
    measured = lines.known_lines(middle, checkout)
    assert measured is not None
    assert measured.tests("sched/user.py", 1) == {""}, "an import serves all tests of a file"


@pytest.mark.slow
def test_compiled_lines_are_not_seen_so_all_tests_that_import_them_are_asked(checkout: Path, tools: Path) -> None:
    source = "from .numba import jit\n\n\n@jit\n" + _USER
    broken = Mutant("sched/user.py", "any", 9, "any", "any", source)
    noticed = tried(broken, checkout, tools)
    assert (noticed.test, noticed.files) == ("tests/test_middle.py", 1)


@pytest.mark.slow
def test_a_test_that_fails_without_the_change_notices_nothing(checkout: Path, tools: Path) -> None:
    (checkout / "tests" / "test_scale.py").write_text(_FILES["tests/test_scale.py"].replace("== 6", "== 7"))
    assert not tried(changed("* 2", "* 3"), checkout, tools).killed


@pytest.mark.slow
def test_a_change_that_never_ends_is_noticed(checkout: Path, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_PATIENCE", 3.0)
    hanging = tried(changed("return value * 2", "while True: pass"), checkout, tools)
    assert hanging.test == "tests/test_scale.py (hangs)"


@pytest.mark.slow
def test_compiled_code_that_never_ends_is_noticed_as_soon(
    checkout: Path, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No signal is heard in it."""
    monkeypatch.setattr(trial, "_HANGS_HW", 1)
    hanging = tried(changed("value * 2", "sum(iter(int, 1))"), checkout, tools)
    assert hanging.test == "tests/test_scale.py (hangs)"


def test_bytecode_of_a_change_is_not_that_of_the_next(tmp_path: Path) -> None:
    """Python looks at size and second alone."""
    file = tmp_path / "one.py"
    for value in range(5):
        copies.write(file, f"VALUE = {value}\n")
        os.utime(file, (1_000_000, 1_000_000))
        code = "import sys; sys.path.insert(0, '.'); import one; print(one.VALUE)"
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert int(done.stdout) == value


def test_what_cannot_be_changed_is_said(checkout: Path, tools: Path) -> None:
    """Cosmic Ray is not there, or does not understand the file."""
    with pytest.raises(MutantError, match=r"hw/unit/scale\.py cannot be changed: ModuleNotFoundError: No module named"):
        mutant(Draw("hw/unit", 0, 1), tools, checkout)


def test_a_change_that_is_no_python_is_none(checkout: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    for name, text in _CHANGES.items():
        (tools / name).parent.mkdir(parents=True, exist_ok=True)
        (tools / name).write_text(text, encoding="utf-8")
    changes = [mutant(Draw("hw/unit", number, 1), tools, checkout) for number in range(6)]
    assert [change and change.after for change in changes] == ["return value + 2"] * 6


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
        return [test.path for test in witnesses.candidates("hw/unit/scale.py", 60.0, checkout)]

    assert names() == ["tests/test_scale.py", "tests/test_middle.py"]
    (checkout / "tests" / "costs.txt").write_text("# first tier, all\n    40    300 tests/test_scale.py\n")
    assert names() == ["tests/test_scale.py", "tests/test_middle.py"]
    (checkout / "tests" / "costs.txt").write_text("   200 300 tests/test_scale.py\n   41 42 tests/test_middle.py\n")
    assert names() == ["tests/test_scale.py"]
    assert [test.path for test in witnesses.importers("sched/user.py", checkout)] == []


def test_what_is_imported_by_name_has_witnesses_too(checkout: Path) -> None:
    for name, text in {
        "tb/registry.py": 'PLACES = {"a": "meshloom.tb.whole:THING", "b": f"{__package__}.beside:THING"}\n',
        "tb/whole.py": "from importlib import import_module\n\nTHING = [import_module(name) for name in ('x',)]\n",
        "tb/beside.py": "from .catalogue import THING\nfrom .inner import part\n",
        "tb/catalogue.py": 'from importlib import import_module\n\nTHING = ("word", "no file")\n',
        "tb/word.py": "THING = 1\n",
        "tb/other.py": "THING = 1\n",
        "tests/tb/test_registry.py": "from meshloom.tb.registry import PLACES\n",
        "tests/tb/test_word.py": "from meshloom.tb.registry import PLACES\n",
        "tb/inner/__init__.py": "",
        "tb/inner/part.py": "THING = 1\n",
        "tests/tb/test_a.py": "import meshloom.tb.whole\nimport meshloom.tb.registry\n",
        "tests/tb/test_beside_others.py": "from meshloom.tb.registry import PLACES\n",
        "tests/tb/test_inner.py": "from meshloom.tb.registry import PLACES\n",
    }.items():
        (checkout / name).parent.mkdir(exist_ok=True)
        (checkout / name).write_text(text)
    witnesses.witnesses.cache_clear()
    needs = {test.path: test.needs for test in witnesses.witnesses(checkout)}
    named = {f"tb/{name}.py" for name in ("registry", "whole", "beside", "catalogue", "word")}
    assert needs["tests/tb/test_registry.py"] >= named
    assert "tb/other.py" not in needs["tests/tb/test_registry.py"]
    assert [test.path for test in witnesses.importers("tb/word.py", checkout)] == ["tests/tb/test_word.py"]
    first = witnesses.candidates("tb/word.py", 60.0, checkout)[0]
    assert first.path == "tests/tb/test_word.py", "it has its name"
    for source, test in (("tb/beside.py", "test_beside_others"), ("tb/inner/part.py", "test_inner")):
        assert witnesses.candidates(source, 60.0, checkout)[0].path == f"tests/tb/{test}.py"


def test_a_report_names_what_no_test_noticed(tmp_path: Path) -> None:
    known = tmp_path / "equivalent.toml"
    known.write_text(
        '[[equivalent]]\nfile = "sched/a/b.py"\nbefore = "x = 1"\nafter = "x = 2"\nreason = "nobody reads x"\n'
    )
    seen = Trial("sched/a/b.py", "AddNot", 3, "if a:", "if not a:", "tests/test_b.py::test_a", 1, True, 60.0)
    equal = Trial("sched/a/b.py", "NumberReplacer", 5, "x = 1", "x = 2", "", 2, True, 60.0)
    missed = Trial("sched/a/b.py", "NumberReplacer", 6, "y = 1", "y = 2", "", 2, False, 60.0)
    trials, same = {"sched/a": [seen, equal, missed]}, page.equivalents(known)
    table = list(page.report(trials, same))
    assert table[1].split() == ["sched/a", "3", "1", "1", "50.0"]
    assert table[2:] == ["sched/a/b.py:6: 2 files of tests asked, none known to run the line\n  - y = 1\n  + y = 2"]
    text = page.page(trials, same, "make mutate", 5)
    assert "3 of 5 changes have been tried" in text
    assert "| sched/a | 3 | 1 | 1 | 1 | 50 |" in text
    assert "1 folders below the bar" in text
    assert "- `sched/a/b.py:6`: `y = 1` as `y = 2`\n" in text
    assert "- `sched/a/b.py:5`: `x = 1` as `x = 2`. nobody reads x\n" in text
    assert "all folders keep the bar" in page.page({"sched/a": [seen, equal]}, same, "make mutate", 2)


def test_a_change_that_survives_is_shown_to_more_tests_with_a_larger_budget() -> None:
    def survivor(budget: float, code: str) -> Trial:
        return Trial("sched/a/b.py", "AddNot", 3, "if a:", "if not a:", "", 1, True, budget, code)

    same = [page.Equivalent("sched/a/b.py", "if a:", "if not a:", "nobody reads a")]
    now = trial.code()
    assert not campaign.is_open(survivor(60.0, now), 60.0, [])
    assert campaign.is_open(survivor(59.0, now), 60.0, [])
    assert campaign.is_open(survivor(60.0, "of another day"), 60.0, []), "tests were chosen otherwise"
    assert not campaign.is_open(survivor(59.0, now), 60.0, same)
    assert not campaign.is_open(replace(survivor(59.0, ""), test="tests/test_b.py::test_a"), 60.0, [])
    assert not campaign.is_open(None, 60.0, [])
    change = Mutant("sched/a/b.py", "AddNot", 3, "if a:", "if not a:", "")
    assert page.is_equivalent(change, same)
    assert campaign.is_open(trial.untried(change), 60.0, []), "nor is it equivalent for good"


def test_equivalent_changes_are_of_sources_that_there_are() -> None:
    for each in page.equivalents():
        assert each.before in (campaign.ROOT / each.file).read_text(encoding="utf-8")
        assert each.reason
