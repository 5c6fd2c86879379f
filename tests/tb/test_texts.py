"""What builds, sweeps, studies and the Python interface refuse, each with an input that provokes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import typer

from meshloom.tb.api.calls import schedule
from meshloom.tb.api.workload import Workload
from meshloom.tb.build.builder import TARGET, target
from meshloom.tb.cli.compare import _percent as percent
from meshloom.tb.runs.sweeps.sql import checked
from meshloom.tb.studies.engine.measure import shard


@pytest.mark.parametrize(
    ("provoke", "text"),
    [
        (lambda: Workload.network("resnet8/conv1"), "resnet8/conv1: is no network; give a built-in one's name"),
        (
            lambda: schedule("gemm:4x4x4", "tiny", "loop_order:effort=0.1", {"effort": 0.2}),
            "scheduler 'loop_order:effort=0.1': effort is given twice, in its name and in options",
        ),
        (lambda: percent("2 percent"), "must be a percentage such as 2%"),
        (lambda: percent("-1%"), "must be a percentage such as 2%"),
        (lambda: checked("select 1 /* and"), "has a comment that does not end"),
        (lambda: shard([], "3/2"), "--shard 3/2: give I/N, such as 2/5: the second of five parts"),
        (lambda: shard([], "1"), "--shard 1: give I/N, such as 2/5: the second of five parts"),
    ],
)
def test_the_text_of_what_is_refused(provoke: Callable[[], Any], text: str) -> None:
    with pytest.raises((ValueError, RuntimeError, typer.BadParameter)) as refused:
        provoke()
    assert text in str(refused.value)


@pytest.mark.parametrize("name", ["-O3", "native; rm", "a b"])
def test_a_target_that_is_no_processor_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TARGET, name)
    with pytest.raises(Exception, match="is no processor for the compiler's -march, such as x86-64-v3"):
        target()
