"""What holds the project together: packaging, pins, arrows, and the targets of the Makefile."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = (ROOT / "requirements.lock").read_text()
#: Who may import whom. `sched` knows of `hw` what the chip says of itself, and no gateware.
ARROWS = {"hw": ("meshloom.hw",), "sched": ("meshloom.sched", "meshloom.hw.spec"), "tb": ("meshloom",)}


def name_of(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=~! ]", requirement, maxsplit=1)[0]).lower()


def test_every_package_is_listed() -> None:
    folders = [folder for top in ARROWS for folder in (ROOT / top).rglob("__init__.py")]
    texts = {f"meshloom.{'.'.join(path.parent.relative_to(ROOT).parts)}" for path in folders} | {"meshloom"}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == texts, "pyproject.toml, packages: must list every folder"


def test_every_source_folder_is_a_package() -> None:
    folders = {path.parent for top in ARROWS for path in (ROOT / top).rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_lock_pins_every_dependency_exactly() -> None:
    lines = [line.split("#")[0].strip() for line in LOCK.splitlines()]
    pins = [line for line in lines if line]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", pin) for pin in pins)
    names = [name_of(pin) for pin in pins]
    assert len(names) == len(set(names))
    project = PROJECT["project"]
    value = project["dependencies"] + [item for group in project["optional-dependencies"].values() for item in group]
    assert {name_of(item) for item in value + PROJECT["build-system"]["requires"]} <= set(names)


def test_lock_gives_a_reason_for_every_pin_and_names_no_host() -> None:
    for line in LOCK.splitlines():
        if "==" in line:
            assert re.search(r"# \w+", line), f"no reason: {line}"
    assert "://" not in LOCK
    assert "--" not in LOCK.replace("make setup", "")


@pytest.mark.parametrize("package", ARROWS)
def test_arrows_run_down_only(package: str) -> None:
    allowed = ARROWS[package]
    for path in (ROOT / package).rglob("*.py"):
        here = ("meshloom", *path.parent.relative_to(ROOT).parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = [*here[: len(here) - node.level + 1]] if node.level else []
                module = ".".join([*base, *([node.module] if node.module else [])])
                # `from meshloom.hw import config` names a module in its second half.
                targets = [f"{module}.{alias.name}" for alias in node.names]
            else:
                continue
            for target in targets:
                if target.partition(".")[0] == "meshloom":
                    inside = any(target == one or target.startswith(f"{one}.") for one in allowed)
                    assert inside, f"{path.relative_to(ROOT)}:{node.lineno} imports {target}"


def test_rooms_import_what_lies_below_them_only() -> None:
    """The contracts in pyproject.toml: every room is in one, and no arrow goes up or sideways."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--config", "../pyproject.toml", "--no-cache"]
    ran = subprocess.run(command, cwd=ROOT / ".typing", capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


def test_no_file_imports_itself_by_way_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither when it runs nor for type checkers."""
    import grimp
    import networkx

    monkeypatch.delitem(sys.modules, "meshloom", raising=False)
    monkeypatch.syspath_prepend(ROOT / ".typing")  # where links show all packages below one folder
    graph = grimp.build_graph("meshloom", cache_dir=None)
    arrows = networkx.DiGraph((a, b) for a in graph.modules for b in graph.find_modules_directly_imported_by(a))
    assert len(arrows) > 300
    circles = [sorted(part) for part in networkx.strongly_connected_components(arrows) if len(part) > 1]
    assert circles == []


def test_make_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in shown.splitlines() if line.startswith("  make ")} == targets
    assert {
        "setup",
        "sim",
        "test",
        "test-all",
        "test-changed",
        "lint",
        "docs",
        "verilog",
        "bench",
        "clean",
        "help",
    } <= targets


def test_make_sim_turns_variables_into_options() -> None:
    command = ["make", "-n", "-o", ".venv/.setup-stamp", "sim", "CHIP=tiny", "SIM=icarus", "WAVES=1", "JOBS=3"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "meshloom run --regression --chip tiny" in shown
    assert "--device icarus --jobs 3 --waves" in shown
    plain = subprocess.run([*command[:5], "WAVES=0"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "--waves" not in plain


@pytest.mark.parametrize("script", ["scripts/setup.sh", "scripts/pythons.sh", ".ci/run"])
def test_scripts_are_sound(script: str) -> None:
    path = ROOT / script
    assert path.stat().st_mode & 0o111, "must be executable"
    subprocess.run(["bash", "-n", str(path)], check=True)
    assert "set -euo pipefail" in path.read_text()


def test_readme_names_the_commands_that_ci_runs() -> None:
    readme, run = (ROOT / "README.md").read_text(), (ROOT / ".ci" / "run").read_text()
    for command in ("make setup", "make sim", "make test-all"):
        assert command in readme
        assert re.search(rf"^{command}\b", run, re.MULTILINE)


def test_a_python_that_is_not_here_is_named_and_no_error() -> None:
    done = subprocess.run(["scripts/pythons.sh", "3.99"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Python 3.99: not on this machine; install it with its venv module, or with pyenv\n"
