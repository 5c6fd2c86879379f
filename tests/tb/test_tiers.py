"""Tiers of tests: their order, their costs, runs that end in time, and which slow tests a change can break."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from ..tiers import BUDGET, SLOW_LIMIT, costs, slow_but

ROOT = Path(__file__).parents[2]
CONFTEST = "from tiers import pytest_addoption, pytest_collection_modifyitems, pytest_configure\n"


@pytest.fixture(scope="module")
def changed_tests() -> ModuleType:
    spec = importlib.util.spec_from_file_location("changed_tests", ROOT / "scripts" / "changed_tests.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A project of two test files: a cheap one, and a dear one with a slow test."""
    tests = tmp_path / "tests"
    tests.mkdir()
    shutil.copy(ROOT / "tests" / "tiers.py", tests)
    (tests / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: second tier\n")
    burn = "import time\ndef burn(seconds):\n    end = time.process_time() + seconds\n"
    burn += "    while time.process_time() < end:\n        pass\n"
    (tests / "test_a.py").write_text("def test_cheap():\n    pass\n")
    slow = "@pytest.mark.slow\ndef test_slow():\n    burn(1.1)\n"
    (tests / "test_b.py").write_text(f"import pytest\n{burn}\ndef test_first():\n    burn(0.6)\n\n{slow}")
    return tmp_path


def run(suite: Path, *options: str) -> list[str]:
    """The lines that pytest prints."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", *options, "tests"]
    done = subprocess.run(command, cwd=suite, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def ran(lines: list[str]) -> list[str]:
    return [match[1] for line in lines if (match := re.search(r"tests/test_.\.py::(\w+) PASSED|$", line)) and match[1]]


@pytest.mark.slow
def test_costs_are_measured_and_the_dearest_file_goes_first(suite: Path) -> None:
    assert ran(run(suite, "--record-costs")) == ["test_cheap", "test_first", "test_slow"], "nothing is known yet"
    texts = [line.split() for line in (suite / "tests" / "costs.txt").read_text().splitlines()[1:]]
    assert [(int(first), int(whole), name) for first, whole, name in texts] == [
        (1, 2, "tests/test_b.py"),
        (0, 0, "tests/test_a.py"),
    ]
    assert ran(run(suite)) == ["test_first", "test_slow", "test_cheap"]
    assert ran(run(suite, "-m", "not slow")) == ["test_first", "test_cheap"]
    each = [line.split() for line in (suite / "sim_build" / "test_costs.txt").read_text().splitlines()]
    assert [line[1:] for line in each] == [
        ["slow", "tests/test_b.py::test_slow"],
        ["-", "tests/test_b.py::test_first"],
        ["-", "tests/test_a.py::test_cheap"],
    ]


@pytest.mark.slow
def test_parts_of_files_say_nothing_of_their_costs(suite: Path) -> None:
    run(suite, "--record-costs", "-m", "slow")
    assert not (suite / "tests" / "costs.txt").exists()


@pytest.mark.slow
def test_the_first_tier_alone_is_measured_beside_what_the_second_added(suite: Path) -> None:
    path = suite / "tests" / "costs.txt"
    path.write_text("# costs\n     9     11 tests/test_b.py\n")
    run(suite, "--record-costs", "-m", "not slow")
    assert [line.split() for line in path.read_text().splitlines()[1:]] == [
        ["1", "3", "tests/test_b.py"],
        ["0", "0", "tests/test_a.py"],
    ]


@pytest.mark.slow
def test_a_run_that_compiles_simulators_writes_no_costs(suite: Path) -> None:
    builds = "Path('sim_build/simulators/x').mkdir(parents=True, exist_ok=True)"
    (suite / "tests" / "test_a.py").write_text(f"from pathlib import Path\ndef test_cheap():\n    {builds}\n")
    assert any("costs.txt stays as it was" in line for line in run(suite, "--record-costs"))
    assert not (suite / "tests" / "costs.txt").exists()
    run(suite, "--record-costs")
    assert (suite / "tests" / "costs.txt").exists()


@pytest.mark.slow
def test_files_of_unknown_cost_go_first(suite: Path) -> None:
    (suite / "tests" / "costs.txt").write_text("# costs\n     1      2 tests/test_b.py\n")
    assert ran(run(suite)) == ["test_cheap", "test_first", "test_slow"]


@pytest.mark.parametrize("workers", slow_but([(), ("-n", "1", "--dist", "loadfile", "--no-loadscope-reorder")], ()))
def test_a_bounded_run_names_what_it_leaves_out(suite: Path, workers: tuple[str, ...]) -> None:
    lines = run(suite, "--stop-after", "0", *workers)
    assert [line for line in lines if line.startswith("NOT RUN")] == [
        "NOT RUN tests/test_a.py::test_cheap",
        "NOT RUN tests/test_b.py::test_first",
        "NOT RUN tests/test_b.py::test_slow",
    ]
    assert not any(line.startswith("NOT RUN") for line in run(suite, "--stop-after", "300", *workers))


#: A test that hangs, one that is slower than the first tier's limit and slow, and one after both.
HANGS = """
import time
import pytest

def test_hangs():
    {wait}  # here

@pytest.mark.slow
def test_slow():
    time.sleep(1.2)

def test_last():
    pass
"""


def hanging(suite: Path, wait: str, settings: str, *options: str) -> str:
    """What pytest prints of these tests."""
    (suite / "pytest.ini").write_text(f"[pytest]\nmarkers =\n    slow: second tier\n{settings}")
    (suite / "tests" / "test_c.py").write_text(HANGS.format(wait=wait))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", *options, "tests/test_c.py"]
    done = subprocess.run(command, cwd=suite, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode != 0
    return done.stdout + done.stderr


@pytest.mark.parametrize("workers", slow_but([(), ("-n", "1")], ()))
def test_a_test_that_hangs_fails_with_its_stack_and_the_others_run(suite: Path, workers: tuple[str, ...]) -> None:
    text = hanging(suite, "time.sleep(100)", "timeout = 1\ntimeout_method = signal\n", *workers)
    assert "time.sleep(100)  # here" in text
    assert "Failed: Timeout (>1" in text
    assert "1 failed, 2 passed" in text, text


@pytest.mark.slow
def test_one_that_hears_no_signal_ends_its_process_with_its_stack(suite: Path) -> None:
    """Like a loop in compiled code. pytest-xdist names it and goes on with another worker."""
    deaf = "sum(range(10**13))"
    settings = "timeout = 1\ntimeout_method = signal\nfaulthandler_timeout = 2\nfaulthandler_exit_on_timeout = true\n"
    text = hanging(suite, deaf, settings, "-n", "1")
    assert re.search(r"test_c\.py., line 6 in test_hangs", text), text
    assert "crashed while running 'tests/test_c.py::test_hangs'" in text
    assert "1 failed, 2 passed" in text, text


def test_every_test_has_a_limit() -> None:
    """Slow tests more than others, and all a hard one above both."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert 0 < settings["timeout"] < SLOW_LIMIT < settings["faulthandler_timeout"]
    assert settings["timeout_method"] == "signal"
    assert settings["faulthandler_exit_on_timeout"] is True


def test_every_listed_file_is_there() -> None:
    names = [line.split()[2] for line in (ROOT / "tests" / "costs.txt").read_text().splitlines()[1:]]
    assert [name for name in names if not (ROOT / name).exists()] == []
    assert len(set(names)) == len(names)


def test_the_first_tier_stays_within_its_budget() -> None:
    """`make test` shall take eight minutes of two CPUs where simulators are built; what is dearer is slow."""
    spent = sum(first for first, _ in costs().values())
    assert spent <= BUDGET, f"the first tier costs {spent:.0f} CPU seconds, {BUDGET} are meant: mark dear tests slow"


def test_most_test_files_have_been_measured() -> None:
    """A budget of which half the files know nothing bounds nothing."""
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    unknown = sorted(files - set(costs()))
    assert len(unknown) <= len(files) // 10, f"`pytest -m 'not slow' --record-costs` knows {unknown}"


def test_no_test_file_is_slow_as_a_whole(changed_tests: ModuleType) -> None:
    """The first tier touches what every test file is about."""
    for name in changed_tests.slow_files():
        text = (ROOT / name).read_text()
        assert "\npytestmark" not in text
        assert text.count("\ndef test_") > text.count("\n@pytest.mark.slow"), (
            f"{name}: nothing is left in the first tier"
        )


def project(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def small(tmp_path: Path) -> Path:
    slow = "@pytest.mark.slow\ndef test_it():\n    pass\n"
    return project(
        tmp_path,
        {
            "hw/__init__.py": "",
            "hw/config.py": "",
            "hw/chips/tiny.toml": "",
            "sched/__init__.py": "",
            "sched/near.py": "def f():\n    from meshloom.hw import config\n",
            "sched/other.py": "",
            "sched/late.py": "KNOWN = 'meshloom.sched.other:schedule'\n",
            "tests/helper.py": "import meshloom.sched.near\n",
            "tests/test_near.py": f"from .helper import x\n{slow}",
            "tests/test_late.py": f"import meshloom.sched.late\n{slow}",
            "tests/test_quick.py": "import meshloom.sched.near\ndef test_it():\n    pass\n",
            "tests/test_some.py": "import meshloom.hw.isa\nparameters = slow_but([1, 2], 1)\n",
            "hw/isa.py": "",
        },
    )


@pytest.mark.parametrize(
    ("changed", "files"),
    [
        ({"hw/config.py"}, ["tests/test_near.py"]),  # imported by a helper, inside a function
        ({"sched/other.py"}, ["tests/test_late.py"]),  # named in a string
        ({"tests/helper.py"}, ["tests/test_near.py"]),
        ({"hw/chips/tiny.toml"}, ["tests/test_some.py", "tests/test_near.py"]),  # data of a package
        ({"docs/page.md", "tests/test_quick.py"}, []),
        ({"hw/isa.py"}, ["tests/test_some.py"]),  # some parameters of it are slow
        ({"requirements.lock"}, ["tests/test_some.py", "tests/test_late.py", "tests/test_near.py"]),
        ({"sched/late.py", "tests/test_near.py"}, ["tests/test_near.py", "tests/test_late.py"]),  # its own text first
    ],
)
def test_a_change_chooses_what_imports_it(
    changed: set[str], files: list[str], small: Path, changed_tests: ModuleType
) -> None:
    assert list(changed_tests.chosen(changed, small)) == files


def test_what_a_simulator_is_told_by_name_counts(changed_tests: ModuleType) -> None:
    assert "tb/build/cosim.py" in changed_tests.needs("tests/tb/test_device.py")


def test_an_unknown_commit_is_named() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "changed_tests.py"), "--since", "no-such-commit", "--list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no-such-commit" in done.stderr
    assert "--since" in done.stderr
