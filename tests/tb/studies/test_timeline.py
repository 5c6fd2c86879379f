"""The study of the compiled timeline model: what it measures, and which bars it misses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.model import native
from meshloom.sched.schedulers.loop_order.scheduler import schedule
from meshloom.sched.workload.catalog import find
from meshloom.tb.studies.engine.rows import StudyError
from meshloom.tb.studies.tools import timeline
from meshloom.tb.studies.tools.speed import COMPILED, slow_play
from meshloom.tb.studies.tools.speed_points import Plays, PlaySpeed
from meshloom.tb.studies.tools.timeline import Played

PURE = Played(False, 1000, 10, "abc", 1.0)
FAST = replace(PURE, compiled=True, seconds=1 / COMPILED / 1.01)
SLOW = replace(FAST, seconds=1 / COMPILED / 0.99)


def test_the_bar_is_a_ratio_on_chips_with_several_cores_and_one_channel() -> None:
    assert slow_play(PlaySpeed("arch5", "a"), Plays(PURE, FAST)) == []
    assert slow_play(PlaySpeed("nine8", "c"), Plays(PURE, SLOW)) == []
    (text,) = slow_play(PlaySpeed("quad16", "b"), Plays(PURE, SLOW))
    assert text.startswith("quad16, b: 4.9")


@pytest.mark.parametrize("change", [{"cycles": 1001}, {"digest": "abd"}, {"instructions": 11}])
def test_another_timeline_misses_whatever_its_speed(change: dict[str, int]) -> None:
    (text,) = slow_play(PlaySpeed("nine8", "c"), Plays(PURE, replace(FAST, **change)))
    assert text.startswith("nine8, c: compiled code says")


@pytest.mark.slow
def test_processes_of_their_own_play_as_python_and_compiled(tmp_path: Path) -> None:
    native.build()
    path = tmp_path / "schedule.json"
    (workload,) = find("gemm:20x30x20")
    path.write_text(schedule(workload.shape, load("tiny"), 0, effort=0.1).model_dump_json())
    pure, compiled = (timeline.apart("tiny", path, pure=pure) for pure in (True, False))
    assert (pure.compiled, compiled.compiled) == (False, True)
    assert replace(pure, compiled=True, seconds=0) == replace(compiled, seconds=0)
    assert pure.cycles > 100


def test_without_a_compiler_there_is_nothing_to_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> bool:
        raise native.NativeError("there is no C compiler")

    monkeypatch.setattr(native, "build", build)
    with pytest.raises(StudyError, match="cannot be compiled: there is no C compiler"):
        PlaySpeed("tiny", "gemm:8x8x8").measure(lambda what: None)
