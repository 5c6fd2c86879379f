"""What all tests share."""

from __future__ import annotations

import pytest

from .tiers import pytest_addoption, pytest_collection_modifyitems, pytest_configure

__all__ = ["pytest_addoption", "pytest_collection_modifyitems", "pytest_configure"]  # hooks


@pytest.fixture(autouse=True)
def _nobody_says_how_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables come out as in a log; pytest's workers say that a terminal has 80 columns."""
    monkeypatch.delenv("COLUMNS", raising=False)
