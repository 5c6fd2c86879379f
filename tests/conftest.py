"""What all tests share."""

from __future__ import annotations

import os

import pytest

from meshloom.sched.model.native import compiled
from meshloom.sched.support.processes import SEARCH_PROCESSES

from .collecting import pytest_collection_finish
from .tiers import pytest_addoption, pytest_collection_modifyitems, pytest_configure

__all__ = [
    "pytest_addoption",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_configure",
]  # hooks

# a search is one process: the others run tests
os.environ.setdefault(SEARCH_PROCESSES, "1")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says why all took three times as long, if Python ran the timeline model."""
    if not compiled():
        terminalreporter.write_line(
            "Python ran the timeline model, several times slower than machine code: `python -m meshloom.sched.model` "
            "compiles it"
        )


@pytest.fixture(autouse=True)
def _nobody_says_how_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables come out as in a log; pytest's workers say that a terminal has 80 columns."""
    monkeypatch.delenv("COLUMNS", raising=False)
