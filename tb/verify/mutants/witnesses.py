"""Which tests are to notice a change: those that import its source themselves or by a helper of tests, then those that
run the line, the ones that need least first.

Coverage.py says which lines a test file runs in its own process, once for each state of the sources. It doesn't see the
lines of gateware, since a chip that is built already isn't elaborated, nor those of processes that a test starts, nor
compiled ones: of gateware, all files of tests that need the source are asked.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshloom.sched.store import cache, provenance
from meshloom.sched.store.kinds import SOAK
from meshloom.sched.store.store import key

from ...build.builder import OUTPUT, ROOT
from .copies import copied

#: CPU-seconds of tests, by `tests/costs.txt`, that one change is shown to at most; what a file that is not there costs.
BUDGET, UNLISTED = 240.0, 10.0
_PACKAGES = Path(__file__).with_name("packages.py")
_IMPORTED = re.compile(r"meshloom\.((?:hw|sched|tb)(?:\.\w+)*)")
_RUN = "import sys; sys.path.append(sys.argv.pop(1)); from coverage.cmdline import main; sys.exit(main())"


@dataclass(frozen=True)
class Witness:
    """A file of tests. `direct`: sources that it or one of its helpers imports; `needs`: all sources below these;
    `cost`: CPU-seconds of its first tier; `texts`: it and its helpers."""

    path: str
    direct: frozenset[str]
    needs: frozenset[str]
    cost: float
    texts: tuple[str, ...]


def _costs(root: Path) -> Mapping[str, float]:
    file = root / "tests" / "costs.txt"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return {line.split()[2]: float(line.split()[0]) for line in lines if line and line[0] != "#"}


@functools.cache
def _imports(path: Path, root: Path) -> frozenset[str]:
    """Sources that a file imports itself."""
    result = set[str]()
    for node in ast.walk(ast.parse(path.read_bytes())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
        for name in names:
            if match := _IMPORTED.fullmatch(name):
                source = root.joinpath(*match[1].split(".")).with_suffix(".py")
                if source.is_file():
                    result.add(source.relative_to(root).as_posix())
    return frozenset(result)


@functools.cache
def witnesses(root: Path = ROOT) -> tuple[Witness, ...]:
    """All files of tests."""
    costs, result = _costs(root), list[Witness]()
    for path in sorted((root / "tests").rglob("test_*.py")):
        name = path.relative_to(root).as_posix()
        files = provenance.needed(root, [name.removesuffix(".py").replace("/", ".")])
        own = [file for file in files if file.is_relative_to(root / "tests")]
        needs = {file.relative_to(root).as_posix() for file in files if file not in own}
        direct = {source for file in own for source in _imports(file, root)}
        texts = tuple(file.relative_to(root).as_posix() for file in own)
        result.append(Witness(name, frozenset(direct), frozenset(needs), costs.get(name, UNLISTED), texts))
    return tuple(result)


def candidates(file: str, root: Path = ROOT) -> list[Witness]:
    """Files of tests that need a source, those that import it first, then those that need least, within the budget."""
    needing = [test for test in witnesses(root) if file in test.needs]
    needing.sort(key=lambda test: (file not in test.direct, len(test.needs), test.path))
    result, spent = list[Witness](), 0.0
    for test in needing:
        if result and spent + test.cost > BUDGET:
            continue
        result.append(test)
        spent += test.cost
    return result


def importers(file: str, root: Path = ROOT) -> list[Witness]:
    """Files of tests that import a source themselves."""
    return [test for test in witnesses(root) if file in test.direct]


@dataclass(frozen=True)
class Baseline:
    """How a file of tests ends on sources without a change, and the lines that it runs, by source."""

    passes: bool
    lines: Mapping[str, tuple[int, ...]]


def baseline(test: Witness, tools: Path, root: Path = ROOT) -> Baseline:
    """Runs a file of tests, unless that is known of these sources."""
    files = sorted({*test.needs, *test.texts})
    content = {name: provenance.executed((root / name).read_bytes()).decode() for name in files}
    entry, store = key("mutants-baseline", test=test.path, content=json.dumps(content)), SOAK.store(OUTPUT)
    if (text := store.get(entry)) is not None:
        return Baseline(**json.loads(text))
    with copied(root, linked=False) as tree:
        data, settings, out = (tree.parent / each for each in ("data", "settings", "lines.json"))
        settings.write_text(f"[run]\nsource = {tree / 'sched'}, {tree / 'tb'}\n[report]\nignore_errors = true\n")
        variables = environment(tree) | {cache.VARIABLE: str(OUTPUT)}  # what is compiled serves others, too
        common = [sys.executable, "-c", _RUN, str(tools)]
        run = ["run", f"--data-file={data}", f"--rcfile={settings}", "-m", "pytest", *options(test.path)]
        done = subprocess.run([*common, *run], cwd=tree, env=variables, capture_output=True, check=False)
        report = ["json", f"--data-file={data}", f"--rcfile={settings}", "-o", str(out), "-q"]
        subprocess.run([*common, *report], cwd=tree, env=variables, capture_output=True, check=False)
        lines = dict(_lines(json.loads(out.read_text()), tree)) if out.is_file() else {}
    result = Baseline(done.returncode == 0, lines)
    store.put(entry, json.dumps({"passes": result.passes, "lines": result.lines}).encode())
    return result


def _lines(report: Mapping[str, Any], root: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    for name, file in report["files"].items():
        place = (root / name).resolve()
        if place.is_relative_to(root) and (lines := tuple(file["executed_lines"])):
            yield place.relative_to(root).as_posix(), lines


def options(path: str) -> list[str]:
    """Of pytest, for the first tier of a file."""
    return [path, "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist"]


def environment(tree: Path) -> dict[str, str]:
    """Of a process whose packages are those of a copy, whatever has been installed."""
    site = tree.parent / "site"
    site.mkdir(exist_ok=True)
    shutil.copyfile(_PACKAGES, site / "sitecustomize.py")
    return os.environ | {
        "PYTHONPATH": str(site), "MESHLOOM_COPY": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "120",
    }  # fmt: skip
