"""What the screen says of a search."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from meshloom.sched.papers.flexer.policy import Choice
from meshloom.sched.papers.flexer.search import Progress
from meshloom.sched.papers.flexer.tiles import Tiling
from meshloom.tb.report import progress
from meshloom.tb.runs import workers
from meshloom.tb.runs.searching import searching

COMPILING = [Progress("l", done, 60, 0, None, compiling=True) for done in (0, 30, 60)]
BEST = Choice(Tiling(1, 2, 3, 4), "mnk").judged(1234.0, 56)


@pytest.mark.parametrize("terminal", [True, False])
def test_compiling_is_said_once(terminal: bool) -> None:
    """As a bar on a terminal, which goes when the search begins; as a line elsewhere."""
    text = io.StringIO()
    screen = Console(file=text, force_terminal=terminal, width=200)
    with searching(screen) as listener:
        for state in COMPILING:
            listener.search(state)
        listener.search(Progress("l", 5, 9, 12, BEST))
    assert "compiling the search, once" in text.getvalue()
    if not terminal:
        assert text.getvalue() == "compiling the search, once\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_what_is_being_done_is_said(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once on a terminal, in a log when it takes long; the latest step alone."""
    monkeypatch.setattr(progress, "SOON", 0.05)
    text = io.StringIO()
    with searching(Console(file=text, force_terminal=terminal, width=200)) as listener:
        listener.step("net: reading")
        listener.step("net: scheduling conv1 (1 of 55)")
        end = time.monotonic() + 10
        while "conv1" not in text.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
    assert "net: scheduling conv1 (1 of 55)" in text.getvalue()
    if not terminal:
        assert text.getvalue().startswith("net: scheduling conv1 (1 of 55): 0 s so far")


def test_workers_tell_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs: list[tuple[str, str]] = []
    monkeypatch.setattr(workers, "report_progress", lambda workload, what: pairs.append((workload, what)))
    for state in (COMPILING[1], Progress("l", 0, 0, 0, None, compiling=True), Progress("l", 5, 9, 12, BEST)):
        workers.report_search(state)
    assert pairs == [
        ("l", "compiling the search, once: 30 of 60 functions"),
        ("l", "compiling the search, once, in another process"),
        ("l", "5 of 9 tilings searched; best so far 1,234 cycles"),
    ]
