"""Which tests are to notice a change: a unit's own, then those that import its source themselves or by a helper of
tests, then those that run the line; the cheapest first.

Of gateware only tests in Amaranth's simulator are asked, where one of them imports the source: the others compile a
simulator for each change.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os.path import commonpath
from pathlib import Path

from meshloom.sched.store import provenance

from ...build.builder import ROOT

#: CPU-seconds of a file of tests that `tests/costs.txt` does not list.
UNLISTED = 10.0
#: CPU-seconds that a file costs besides: imports; and a chip's simulator if gateware has changed.
STARTS, BUILDS = 1.0, 50.0
#: Files whose costs differ by less are equally cheap: then the one that needs least comes first.
_STEP = 8.0
_PACKAGES = Path(__file__).with_name("packages.py")
_BUILDER = "tb/build/builder.py"
_IMPORTED = re.compile(r"meshloom\.((?:hw|sched|tb)(?:\.\w+)*)")
#: How a source names a module that is imported when it is used, alone or with what it has: by its whole name, or
#: beside the source (where modules are imported by name, as one word, too).
_NAMED = re.compile(r'"(?:meshloom\.)?((?:hw|sched|tb)(?:\.\w+)+)(?::\w+)?"')
_BESIDE, _WORD = re.compile(r'(?:"|\}\.)(\w+):\w+"'), re.compile(r'"(\w+)"')


@dataclass(frozen=True)
class Witness:
    """A file of tests. `direct`: sources that it or one of its helpers imports, and those of its own name; `needs`:
    all sources below these, those too that a registry or the command line imports by name;
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
def _named(path: Path, root: Path) -> frozenset[str]:
    """Modules that a source names in texts: `meshloom.tb.exchange.maestro:MAESTRO`, `entry:KLOTSKI`, `serve`."""
    if path.is_relative_to(root / "tests"):
        return frozenset()
    text, beside = path.read_text(encoding="utf-8"), ".".join(path.parent.relative_to(root).parts)
    words = _BESIDE.findall(text) + (_WORD.findall(text) if "import_module" in text else [])
    names = {*_NAMED.findall(text), *(f"{beside}.{word}" for word in words)}
    return frozenset(name for name in names if root.joinpath(*name.split(".")).with_suffix(".py").is_file())


def _more(files: Iterable[Path], root: Path) -> frozenset[str]:
    """Modules that these files name."""
    return frozenset[str]().union(*(_named(file, root) for file in files))


@functools.cache
def _by_name(root: Path, names: frozenset[str]) -> frozenset[Path]:
    """The files of modules and of all that these import, by name too."""
    files = frozenset(provenance.needed(root, sorted(names)))
    more = names | _more(files, root)
    return files if more == names else _by_name(root, more)


def _is_own(test: str, source: str) -> bool:
    """Whether a file of tests has the name of a source, in its room or a folder above it."""
    room = Path(test).parent.relative_to("tests")
    return Path(source).is_relative_to(room) and Path(test).stem == f"test_{Path(source).stem}"


@functools.cache
def witnesses(root: Path = ROOT) -> tuple[Witness, ...]:
    """All files of tests."""
    costs, result = _costs(root), list[Witness]()
    for path in sorted((root / "tests").rglob("test_*.py")):
        name = path.relative_to(root).as_posix()
        files = provenance.needed(root, [name.removesuffix(".py").replace("/", ".")])
        files = sorted({*files, *_by_name(root, _more(files, root))})
        own = [file for file in files if file.is_relative_to(root / "tests")]
        needs = {file.relative_to(root).as_posix() for file in files if file not in own}
        direct = {source for file in own for source in _imports(file, root)}
        direct |= {source for source in needs if _is_own(name, source)}
        texts = tuple(file.relative_to(root).as_posix() for file in own)
        result.append(Witness(name, frozenset(direct), frozenset(needs), costs.get(name, UNLISTED), texts))
    return tuple(result)


def is_gateware(file: str) -> bool:
    """Whether a source becomes hardware: a change of it makes every simulator another."""
    return file.startswith("hw/") and not file.startswith("hw/spec/")


def simulates(test: Witness, file: str) -> bool:
    """Whether a file of tests may compile a simulator of a changed source."""
    return is_gateware(file) and _BUILDER in test.needs


def _cost(test: Witness, file: str) -> float:
    return test.cost + STARTS + (BUILDS if simulates(test, file) else 0.0)


def candidates(file: str, budget: float, root: Path = ROOT) -> list[Witness]:
    """Files of tests that need a source: those that import it, the others; of these first those that have its name or
    that of its folder, those of its room, the cheap ones, those that need least. They cost at most `budget` CPU-seconds
    by `tests/costs.txt`, or are one."""
    needing = [test for test in witnesses(root) if file in test.needs]
    if any(file in test.direct and not simulates(test, file) for test in needing):
        needing = [test for test in needing if not simulates(test, file)]
    own = [f"test_{Path(file).stem}", f"test_{Path(file).parent.name}"]

    def rank(test: Witness) -> tuple[bool, int, int, float, int, str]:
        stem = Path(test.path).stem
        named = next((at for at, name in enumerate(own) if stem.startswith(name)), len(own))
        shared = len(Path(commonpath([f"tests/{file}", test.path])).parts)  # `tests` mirrors the packages
        return file not in test.direct, named, -shared, _cost(test, file) // _STEP, len(test.needs), test.path

    result, spent = list[Witness](), 0.0
    for test in sorted(needing, key=rank):
        if result and spent + _cost(test, file) > budget:
            continue
        result.append(test)
        spent += _cost(test, file)
    return result


def importers(file: str, root: Path = ROOT) -> list[Witness]:
    """Files of tests that import a source themselves."""
    return [test for test in witnesses(root) if file in test.direct]


def options(*tests: str) -> list[str]:
    """Of pytest, for the first tier of files, or for single tests, in this order."""
    order = ("--stop-after", "1000000")  # `tests/tiers.py` begins with the dearest otherwise
    return [*tests, "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist", *order]


def environment(tree: Path) -> dict[str, str]:
    """Of a process whose packages are those of a copy, whatever has been installed."""
    site = tree.parent / "site"
    site.mkdir(exist_ok=True)
    shutil.copyfile(_PACKAGES, site / "sitecustomize.py")
    variables = os.environ | {"PYTHONPATH": str(site), "MESHLOOM_COPY": str(tree), "COLUMNS": "120"}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # a copy serves many changes
    return variables
