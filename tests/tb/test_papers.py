"""Papers are tenants: what is in one's folder may be removed, and all else imports, lists and schedules as before."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from meshloom.sched.schedulers.online.registry import ONLINE
from meshloom.sched.schedulers.papers import ROOM, papers
from meshloom.sched.schedulers.registry import REGISTRY
from meshloom.sched.schedulers.tokens.registry import TOKENS
from meshloom.tb.studies.registry import REGISTRY as STUDIES_OF
from meshloom.tb.studies.registry import SHIPPED, SUBJECTS

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "tb" / "studies"


def test_each_paper_declares_names_of_its_own() -> None:
    places = [*REGISTRY.shipped.values(), *ONLINE.shipped.values()]
    assert len(places) == len({*REGISTRY.shipped, *ONLINE.shipped})
    declaring = {place.removeprefix(f"{ROOM}.").split(".")[0] for place in places if place.startswith(ROOM)}
    assert declaring == set(papers())


def test_a_study_of_a_paper_lies_in_its_folder() -> None:
    """So that it is not listed where the paper is not, also one that names its schedulers alone."""
    for name, place in SHIPPED.items():
        folder = place.split(".")[3]
        assert STUDIES_OF.get(name).paper == (folder if folder not in SUBJECTS else ""), name
    assert {place.split(".")[3] for place in SHIPPED.values()} - set(SUBJECTS) == set(papers())


def test_a_study_that_imports_a_paper_lies_in_its_folder() -> None:
    for path in STUDIES.rglob("*.py"):
        rooms = re.findall(rf"from {re.escape(ROOM)}\.(\w+)", path.read_text())
        assert set(rooms) <= {path.relative_to(STUDIES).parts[0]}, path


#: Run in a copy of the packages: imports everything, then gives commands. Prints modules that need one of ours that is
#: not there (a campaign's tool may lack: it has an environment of its own), and for each command its exit status and
#: output.
PROBE = """
import json, pkgutil, sys
from importlib import import_module

sys.meta_path[:] = [one for one in sys.meta_path if not getattr(one, "__module__", "").startswith("__editable__")]
import meshloom
from typer.testing import CliRunner

failed = []
for module in pkgutil.walk_packages(meshloom.__path__, "meshloom."):
    if not module.name.endswith("__main__"):
        try:
            import_module(module.name)
        except ModuleNotFoundError as missing:
            if (missing.name or "").split(".")[0] == "meshloom":
                failed.append(module.name)
from meshloom.tb.cli.main import app

results = [CliRunner().invoke(app, command) for command in json.loads(sys.argv[1])]
print(json.dumps([meshloom.__file__, failed, [(one.exit_code, one.output) for one in results]]))
"""


def probe(tree: Path, commands: list[list[str]]) -> tuple[set[str], list[tuple[int, str]]]:
    """What PROBE prints of a copy of the packages below `tree`."""
    environment = os.environ | {
        "PYTHONPATH": str(tree), "MESHLOOM_CACHE": str(tree / "cache"), "MESHLOOM_PURE": "1", "COLUMNS": "200"
    }  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(commands)],
        cwd=tree, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    file, failed, results = json.loads(ran.stdout.splitlines()[-1])
    assert Path(file).is_relative_to(tree)
    return set(failed), results


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with a copy of all packages, which may be changed."""
    shutil.copytree(ROOT / "meshloom", tmp_path / "meshloom")
    for package in ("hw", "sched", "tb"):
        shutil.copytree(ROOT / package, tmp_path / "meshloom" / package)
    return tmp_path


def rows(table: str) -> set[str]:
    """The first column of what a command lists."""
    return set(re.findall(r"^│(\w+) ", table, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.parametrize("paper", papers())
def test_without_a_paper_all_else_works(paper: str, tree: Path) -> None:
    shutil.rmtree(tree / "meshloom" / "sched" / "papers" / paper)
    prefix = f"{ROOM}.{paper}."
    names = {**REGISTRY.shipped, **ONLINE.shipped, **TOKENS.shipped}
    gone = {name for name, place in names.items() if place.startswith(prefix)}
    failed, results = probe(tree, [
        ["schedulers"], ["workloads"], ["bench", "no_such_study"], ["schedulers", min(gone)],
        ["schedule", "gemm:5x9x7", "--chip", "tiny"],
        ["schedule", "ds_cnn", "--chip", "quad8", "--scheduler", "loop_order:refine=0"],
        ["schedule", "gradient:ncf/mlp1", "--chip", "tiny"],
    ])  # fmt: skip
    assert {name for name in failed if not name.startswith(f"meshloom.tb.studies.{paper}.")} == set()
    listed, workloads, bench, one, layer, network, gradients = results
    assert listed[0] == 0
    assert rows(listed[1]) == set(names) - gone
    assert workloads[0] == 0
    known = set(re.findall(r"\w+", bench[1].partition("known are")[2].partition(";")[0]))
    assert known == {name for name, place in SHIPPED.items() if place.split(".")[3] != paper}
    assert one[0] != 0
    assert f"unknown scheduler '{min(gone)}'" in one[1]
    assert (layer[0], network[0]) == (0, 0), layer[1] + network[1]
    assert gradients[0] != 0
    assert "take one of gradient" in gradients[1] or (paper == "gradient" and "none that does" in gradients[1])


@pytest.mark.slow
def test_a_folder_is_a_paper(tree: Path) -> None:
    """The example of a scheduler outside, as the only folder there is: no other file knows of it."""
    room = tree / "meshloom" / "sched" / "papers"
    for paper in papers():
        shutil.rmtree(room / paper)
    (room / "in_turn").mkdir()
    (room / "in_turn" / "__init__.py").write_text('SCHEDULERS = {"in_turn": "entry:schedule"}\n')
    shutil.copy(ROOT / "examples" / "scheduler" / "in_turn" / "__init__.py", room / "in_turn" / "entry.py")
    commands = [["schedulers"], ["schedule", "gemm:5x9x7", "--chip", "tiny", "--scheduler", "in_turn:rows=1"]]
    (status, listed), (result, message) = probe(tree, commands)[1]
    assert (status, result) == (0, 0), message
    assert rows(listed) == {"in_turn", "loop_order", *TOKENS.shipped}
