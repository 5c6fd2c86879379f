"""Schedules, programs and decisions are the same in another process, in which sets have another order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..hash_order import MADE, digests

ROOT = Path(__file__).parents[3]


def elsewhere(seed: str, *options: str) -> dict[str, str]:
    """The digests of a process with that seed of hashes."""
    command = [sys.executable, "-m", "tests.sched.hash_order", *options]
    environment = os.environ | {"PYTHONHASHSEED": seed}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_is_quick_is_the_same_in_another_process() -> None:
    here, there = digests(False), elsewhere("77")
    assert here == there, f"here PYTHONHASHSEED is {os.environ.get('PYTHONHASHSEED', 'drawn at random')}"
    assert len(here) >= 8


def test_sets_have_another_order_there() -> None:
    """Else the comparison would say nothing."""
    script = "print(list({str(n) for n in range(20)}))"
    orders = {
        subprocess.run([sys.executable, "-c", script], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True,
                       check=True).stdout
        for seed in ("1", "77")
    }  # fmt: skip
    assert len(orders) == 2


@pytest.mark.slow
def test_all_is_the_same_in_two_processes() -> None:
    one, two = (elsewhere(seed, "whole") for seed in ("1", "77"))
    assert one == two
    assert one.keys() == MADE.keys()
