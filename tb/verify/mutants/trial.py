"""Shows a change to tests, in a copy of the checkout that is gone afterwards."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from ...build.builder import ROOT
from ..kills import MARK, processes
from .copies import copied
from .drawing import Mutant
from .witnesses import Witness, baseline, candidates, environment, options

#: Seconds until a test counts as hanging (gateware is compiled first), and a whole file; bytes a process may address.
_HANGS, _HANGS_HW, _PATIENCE, _MEMORY = 60, 300, 900.0, 16 << 30
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
#: Marks of trials that go on.
_marks = set[str]()
#: What pytest ends with: all passed, a test failed, interrupted (an import failed), its own error; no test was chosen.
_PASSED, _NO_TESTS = 0, 5


@dataclass(frozen=True)
class Trial:
    """What became of a change. `test`: the one that noticed it, empty if none did; `files`: how many files of tests
    were asked; `reached`: whether one of these is known to run the line."""

    file: str
    operator: str
    line: int
    before: str
    after: str
    test: str
    files: int
    reached: bool

    @property
    def killed(self) -> bool:
        """Whether a test has noticed it."""
        return bool(self.test)


def try_out(mutant: Mutant, tools: Path, root: Path = ROOT) -> Trial:
    """Shows a change to tests until one notices it: to those that import its source, then to those that are known to
    run the line. A test that fails without the change, too, notices nothing. Raises MutantError, OSError."""
    software = not mutant.file.startswith("hw/")
    asked, reached = 0, False
    with copied(root, linked=True) as tree:
        (tree / mutant.file).write_text(mutant.source, encoding="utf-8")
        noticed = ""
        for test in candidates(mutant.file, root):
            if software and mutant.file not in test.direct:
                if mutant.line not in baseline(test, tools, root).lines.get(mutant.file, ()):
                    continue
                reached = True
            asked += 1
            noticed = _failure(test, tree, _HANGS if software else _HANGS_HW)
            if noticed and baseline(test, tools, root).passes:
                break
            noticed = ""
    change = (mutant.file, mutant.operator, mutant.line, mutant.before, mutant.after)
    return Trial(*change, noticed, asked, reached or bool(noticed))


def _failure(test: Witness, tree: Path, hangs: int) -> str:
    mark = uuid4().hex
    _marks.add(mark)
    temporary = tree.parent / "tmp"
    temporary.mkdir(exist_ok=True)
    variables = environment(tree) | {MARK: mark, "TMPDIR": str(temporary)}
    variables.pop("MESHLOOM_CACHE", None)
    command = [sys.executable, "-m", "pytest", *options(test.path), "--timeout", str(hangs)]
    with (tree.parent / "printed").open("w+b") as printed:
        process = subprocess.Popen(
            command, cwd=tree, env=variables, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True
        )
        with suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        try:
            code = process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            return f"{test.path} (hangs)"
        finally:
            _end(mark)
            process.wait()
            _marks.discard(mark)
        printed.seek(0)
        text = printed.read().decode(errors="replace")
    if code in (_PASSED, _NO_TESTS):
        return ""
    match = _FAILED.search(text)
    return match[1] if match else f"{test.path} (ends with {code})"


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
