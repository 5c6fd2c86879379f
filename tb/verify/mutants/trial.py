"""Shows a change to tests, in a copy of the checkout that serves one change after another."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import uuid4

from meshloom.sched.model.native import PURE
from meshloom.sched.store import provenance

from ..kills import MARK, processes
from .copies import renew, write
from .drawing import Mutant
from .lines import known_lines, measured_lines
from .witnesses import Witness, candidates, environment, is_gateware, options, simulates

#: Seconds until a test counts as hanging (gateware is compiled first), and a process of tests; bytes it may address.
_HANGS, _HANGS_HW, _PATIENCE, _MEMORY = 60, 300, 900.0, 16 << 30
#: How much later a test is ended from outside of Python, where an endless loop of compiled code does not let it end.
_LATER = 1.25
#: CPU-seconds of files that one process of tests begins with at most: of more, an early failure would save nothing.
_AT_ONCE = 12.0
#: Sources that are compiled by mypyc before they run, in a minute: Python runs them in a trial.
_COMPILED = ("sched/model/", "hw/spec/contracts.py")
#: What a source has that numba compiles, in a trial too.
_BY_NUMBA = "@jit\n"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_ENDED = re.compile(r"^Timeout \(", re.MULTILINE)
#: What pytest ends with: all passed, interrupted (an import failed), a test isn't there; no test was chosen.
_PASSED, _INTERRUPTED, _NO_TEST, _NO_TESTS = 0, 2, 4, 5
#: Marks of trials that go on.
_marks = set[str]()
#: Tests that are known to pass without a change, by copy.
_passing = set[tuple[Path, str]]()


@dataclass(frozen=True)
class Trial:
    """What became of a change. `test`: the one that noticed it, empty if none did; `files`: how many files of tests
    were asked, of at most `budget` CPU-seconds; `reached`: whether one of these is known to run the line; `code`:
    digest of what chose them."""

    file: str
    operator: str
    line: int
    before: str
    after: str
    test: str
    files: int
    reached: bool
    budget: float
    code: str = ""

    @property
    def killed(self) -> bool:
        """Whether a test has noticed it."""
        return bool(self.test)


@dataclass(frozen=True)
class TestChoice:
    """Tests of one file, by pytest's names. `surely`: they are known to run the line."""

    tests: tuple[str, ...]
    surely: bool


@dataclass(frozen=True)
class FailedTests:
    """How tests failed. `name`: of the first that did, or of the first file, and how it ended; `tests`: what to run
    again to see whether it is due to the change; `collected`: collecting them shows it."""

    name: str
    tests: tuple[str, ...]
    collected: bool = False


@cache
def code() -> str:
    """Digest of what chooses and runs tests."""
    return provenance.digest(__name__.removeprefix("meshloom."))


def untried(mutant: Mutant) -> Trial:
    """A change that no test is asked about."""
    return Trial(mutant.file, mutant.operator, mutant.line, mutant.before, mutant.after, "", 0, False, 0.0, code())


def try_out(mutant: Mutant, tools: Path, tree: Path, budget: float) -> Trial:
    """Shows a change to tests of a copy of the checkout until one notices it: to those that import its source, then to
    those that run the line. A test that fails without the change, too, notices nothing. The copy is as before
    afterwards. Raises MutantError, OSError."""
    source, original = tree / mutant.file, (tree / mutant.file).read_text(encoding="utf-8")
    files, reached, noticed = 0, False, ""
    try:
        for group in _groups(mutant, tools, tree, budget):
            files += len(group)
            reached |= any(each.surely for each in group.values())
            tests = [name for each in group.values() for name in each.tests]
            write(source, mutant.source)
            failure = _failure(tests, mutant, tree)
            write(source, original)
            if failure is not None and _passes(failure, mutant, tree):
                noticed = failure.name
                break
    finally:
        write(source, original)
        renew(tree)
    change = (mutant.file, mutant.operator, mutant.line, mutant.before, mutant.after)
    return Trial(*change, noticed, files, reached or bool(noticed), budget, code())


def _groups(mutant: Mutant, tools: Path, tree: Path, budget: float) -> Iterator[dict[str, TestChoice]]:
    """Tests that one process runs, by file. Files of the first group that import the source are asked as a whole if
    nobody has measured what they run: most changes end there."""
    group: dict[str, TestChoice] = {}
    cost, first = 0.0, True
    tests = candidates(mutant.file, budget, tree)
    ready = {test.path: known_lines(test, tree) is not None for test in tests}
    tests.sort(key=lambda test: (mutant.file not in test.direct, not ready[test.path]))  # to measure costs more
    for test in tests:
        whole = first and mutant.file in test.direct
        measures = not (ready[test.path] or whole or simulates(test, mutant.file))
        if group and (measures or cost + test.cost > _AT_ONCE):
            yield group
            group, cost, first = {}, 0.0, False
            whole = False
        if (choice := _choice(test, mutant, tools, tree, whole)) is not None:
            group[test.path] = choice
            cost += test.cost
    if group:
        yield group


def _choice(test: Witness, mutant: Mutant, tools: Path, tree: Path, whole: bool) -> TestChoice | None:
    """Tests of a file that run the line, or all if that cannot be known. `whole`: or has not been measured."""
    if simulates(test, mutant.file):
        return TestChoice((test.path,), False)  # where a simulator is there, no line runs
    lines = known_lines(test, tree)
    if lines is None and whole:
        return TestChoice((test.path,), False)
    lines = lines or measured_lines(test, tools, tree)
    if _BY_NUMBA in mutant.source:  # of its lines none is seen, but those that run when it is imported
        return TestChoice((test.path,), False) if lines.by_source.get(mutant.file) else None
    tests = lines.tests(mutant.file, mutant.line)
    if not tests:
        return None
    return TestChoice((test.path,) if "" in tests else tuple(sorted(f"{test.path}::{name}" for name in tests)), True)


def _passes(failure: FailedTests, mutant: Mutant, tree: Path) -> bool:
    """Whether the tests that failed pass without the change."""
    if all((tree, test) in _passing for test in failure.tests):
        return True
    extra = ("--collect-only",) if failure.collected else ()
    again = _failure(failure.tests, mutant, tree, *extra)
    if again is not None and again.name.endswith(f"({_NO_TEST})"):  # its name is not one of the command line
        again = _failure([test.partition("::")[0] for test in failure.tests], mutant, tree)
    return again is None


def _failure(tests: Sequence[str], mutant: Mutant, tree: Path, *extra: str) -> FailedTests | None:
    """Runs tests until one fails. What passes as a whole is remembered."""
    code, text = _run([*options(*tests), *extra], mutant, tree)
    if code in (_PASSED, _NO_TESTS):
        _passing.update((tree, test) for test in tests if not extra)
        return None
    if (match := _FAILED.search(text)) is not None:
        return FailedTests(match[1], (match[1],), code == _INTERRUPTED)
    how = "hangs" if code is None or _ENDED.search(text) else f"ends with {code}"
    return FailedTests(f"{tests[0].partition('::')[0]} ({how})", tuple(tests))


def _run(arguments: list[str], mutant: Mutant, tree: Path) -> tuple[int | None, str]:
    """pytest's exit status, None if it hangs, and what it has printed."""
    mark = uuid4().hex
    _marks.add(mark)
    temporary = tree.parent / "tmp"
    temporary.mkdir(exist_ok=True)
    variables = environment(tree) | {MARK: mark, "TMPDIR": str(temporary)}
    variables.pop("MESHLOOM_CACHE", None)
    if mutant.file.startswith(_COMPILED):
        variables[PURE] = "1"
    hangs = _HANGS_HW if is_gateware(mutant.file) else _HANGS
    later = ("-o", f"faulthandler_timeout={hangs * _LATER}", "-o", "faulthandler_exit_on_timeout=true")
    command = [sys.executable, "-m", "pytest", *arguments, "--timeout", str(hangs), *later]
    with (tree.parent / "printed").open("w+b") as printed:
        process = subprocess.Popen(
            command, cwd=tree, env=variables, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True
        )
        with suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        code: int | None = None
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(_PATIENCE)
        _end(mark)
        process.wait()
        _marks.discard(mark)
        printed.seek(0)
        return code, printed.read().decode(errors="replace")


def _end(mark: str) -> None:
    """Ends all processes of a trial, those too that live on without a parent."""
    for _ in range(20):
        living = processes(mark)
        if not living:
            return
        for number in living:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.1)


def end_all() -> None:
    """Ends the trials of all threads; each of them sees its test fail."""
    for mark in list(_marks):
        _end(mark)
