"""Which lines of our sources the tests of a file run, by coverage.py: known once for each state of the sources.

A line of a fixture or of an import counts for all tests of a file. Not seen is what runs in other processes or is
compiled, and gateware of which a simulator is there: a line is seen where a test elaborates it.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from meshloom.sched.store import cache, provenance
from meshloom.sched.store.kinds import SOAK
from meshloom.sched.store.store import key

from ...build.builder import OUTPUT
from .copies import COMPILED
from .witnesses import Witness, environment, options

_RUN = "import sys; sys.path.append(sys.argv.pop(1)); from coverage.cmdline import main; sys.exit(main())"
_SETTINGS = "[run]\nsource = {0}/hw, {0}/sched, {0}/tb\ndynamic_context = test_function\n"
_QUERY = (
    "SELECT file.path, context.context, line_bits.numbits FROM line_bits"
    " JOIN file ON file.id = line_bits.file_id JOIN context ON context.id = line_bits.context_id"
)


@dataclass(frozen=True)
class Lines:
    """What the tests of a file run: by source, by test (a function; empty: what serves all), bits of its lines as a
    hexadecimal number, line 0 the lowest."""

    by_source: Mapping[str, Mapping[str, str]]

    def tests(self, source: str, line: int) -> frozenset[str]:
        """Those that run a line; an empty name is all of them."""
        return frozenset(test for test, bits in self.by_source.get(source, {}).items() if int(bits, 16) >> line & 1)


def _entry(test: Witness, root: Path) -> str:
    files = sorted({*test.needs, *test.texts})
    content = {name: provenance.executed((root / name).read_bytes()).decode() for name in files}
    return key("mutants-lines", test=test.path, content=json.dumps(content))


def known_lines(test: Witness, root: Path) -> Lines | None:
    """What the tests of a file run, if that has been measured of these sources."""
    text = SOAK.store(OUTPUT).get(_entry(test, root))
    return None if text is None else Lines(**json.loads(text))


def measured_lines(test: Witness, tools: Path, tree: Path) -> Lines:
    """Runs the first tier of a file in a copy without a change, unless that has been done."""
    if (known := known_lines(test, tree)) is not None:
        return known
    data, settings = tree.parent / "data", tree.parent / "settings"
    data.unlink(missing_ok=True)
    settings.write_text(_SETTINGS.format(tree))
    variables = environment(tree) | {cache.VARIABLE: str(_compiled_alone(tree.parent / "compiled"))}
    command = [sys.executable, "-c", _RUN, str(tools), "run", f"--data-file={data}", f"--rcfile={settings}"]
    command += ["-m", "pytest", *options(test.path)]
    subprocess.run(command, cwd=tree, env=variables, capture_output=True, check=False)
    result = Lines(_read(data, tree) if data.is_file() else {})
    SOAK.store(OUTPUT).put(_entry(test, tree), json.dumps(asdict(result)).encode())
    return result


def _compiled_alone(folder: Path) -> Path:
    """A cache with what is compiled, which serves others too, and without schedules: who gets one searches none."""
    folder.mkdir(exist_ok=True)
    for kind in COMPILED:
        place = folder / kind
        (OUTPUT / kind).mkdir(parents=True, exist_ok=True)
        if not place.is_symlink():
            place.symlink_to(OUTPUT / kind)
    return folder


def _read(data: Path, tree: Path) -> dict[str, dict[str, str]]:
    result: dict[str, dict[str, str]] = {}
    with closing(sqlite3.connect(data)) as database:
        for path, context, bits in database.execute(_QUERY):
            place = Path(path).resolve()
            if place.is_relative_to(tree):
                function = context.rpartition(".")[2]
                tests = result.setdefault(place.relative_to(tree).as_posix(), {})
                tests[function] = f"{int(tests.get(function, '0'), 16) | int.from_bytes(bits, 'little'):x}"
    return result
