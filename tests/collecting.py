"""Keeps what every process of a test run pays before its first test small. Loaded by `conftest.py`."""

from __future__ import annotations

import gc
import sys

import pytest

# Rewriting the asserts of all test files takes three times as long as importing them. pytest keeps the result as
# bytecode, which containers often switch off by PYTHONDONTWRITEBYTECODE. `make clean` removes it.
sys.dont_write_bytecode = False
# Whatever is made while tests are collected lives until the end: looking for garbage in it finds none.
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
