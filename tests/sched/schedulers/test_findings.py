"""What searches have found is found again: by the next run, after an interruption, and beside other processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from meshloom.hw.spec.config import load
from meshloom.sched.lowering.predict import Lowered
from meshloom.sched.lowering.programs import checked, planned
from meshloom.sched.mapping.tiling.tiles import Candidate
from meshloom.sched.schedulers.loop_order import kept
from meshloom.sched.schedulers.network import conv
from meshloom.sched.schedulers.network.scheduler import schedule, search_cache
from meshloom.sched.schedulers.registry import SchedulerError
from meshloom.sched.schedulers.registry import find as find_scheduler
from meshloom.sched.store.cache import VARIABLE
from meshloom.sched.store.findings import SearchCache
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.support.limits import Guard, Limits, guarded
from meshloom.sched.workload.catalog import find

from ..network_graphs import every_kind

CHIP = load("tiny")
FORM = TypeAdapter(Candidate)
SOME = Candidate(1, 1, False, 4, 4, 1, 1, "input")
OTHER = Candidate(1, 1, True, 2, 4, 1, 2, "weight", w_spm=True)


def test_a_second_run_searches_nothing_and_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = every_kind(10, 6)
    first = schedule(graph, CHIP, memory=search_cache(tmp_path, CHIP))
    monkeypatch.setattr(conv, "choose", None)  # a search would fail
    assert schedule(graph, CHIP, memory=search_cache(tmp_path, CHIP)).schedule == first.schedule


@pytest.mark.parametrize("effort", ["", ":effort=0.5"])
def test_a_layer_is_not_searched_twice(effort: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = find("gemm:5x6x7")[0].shape
    first = find_scheduler(f"loop_order{effort}", tmp_path)(shape, CHIP, 77)
    assert first == find_scheduler(f"loop_order{effort}")(shape, CHIP, 77), "the same as without a folder"
    monkeypatch.setattr(kept, "search", None)  # a search would fail
    assert find_scheduler(f"loop_order{effort}", tmp_path)(shape, CHIP, 77) == first
    other_scale = find_scheduler(f"loop_order{effort}", tmp_path)(shape, CHIP, 78)
    assert other_scale.predicted == first.predicted
    with pytest.raises(SchedulerError):  # another effort is another search
        find_scheduler("loop_order:effort=0.25", tmp_path)(shape, CHIP, 77)


def test_what_a_search_has_lowered_is_handed_over(tmp_path: Path) -> None:
    """Of the schedule that it returns, also if its loop nest was found before; not from a process of its own."""
    shape = find("gemm:9x10x11")[0].shape
    for guard, handed in ((Guard(), 1), (Guard(), 1), (Guard(shipped=Limits()), 0)):
        seen: list[Lowered] = []
        with guarded(guard):
            result = find_scheduler("loop_order:effort=0.5", tmp_path, None, seen.append)(shape, CHIP, 77)
        plain = planned(result, CHIP)
        assert plain.schedule == result
        assert len(seen) == handed
        for done in seen:
            assert done.is_of(result)
            assert (done.program, done.timeline) == (plain.program, plain.timeline)
            assert checked(done, CHIP) is done.program


def test_an_interrupted_run_keeps_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    choose = conv.choose

    def interrupted(task: conv.ConvTask, chip: object) -> list[Candidate]:
        if len(searched) == 2:
            raise KeyboardInterrupt
        searched.append(task.shape.name)
        return choose(task, CHIP)

    def counted(task: conv.ConvTask, chip: object) -> list[Candidate]:
        searched.append(task.shape.name)
        return choose(task, CHIP)

    monkeypatch.setattr(conv, "choose", interrupted)
    with pytest.raises(KeyboardInterrupt):
        schedule(every_kind(10, 6), CHIP, memory=search_cache(tmp_path, CHIP))
    monkeypatch.setattr(conv, "choose", counted)
    schedule(every_kind(10, 6), CHIP, memory=search_cache(tmp_path, CHIP))
    assert len(searched) > 2
    assert len(set(searched)) == len(searched), "nothing is searched twice"


def test_two_that_write_keep_what_the_other_found(tmp_path: Path) -> None:
    one, two = search_cache(tmp_path, CHIP), search_cache(tmp_path, CHIP)
    one.put(("a", 1), FORM, SOME)
    two.put(("b", 2), FORM, OTHER)
    result = search_cache(tmp_path, CHIP)
    assert (result.get(("a", 1), FORM), result.get(("b", 2), FORM), result.get("c", FORM)) == (SOME, OTHER, None)


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": 1}', b'{"a": {"parts_m": "many"}}', b"\xff\xfe"])
def test_a_damaged_file_counts_as_none(tmp_path: Path, content: bytes) -> None:
    search_cache(tmp_path, CHIP).put("a", FORM, SOME)
    (file,) = tmp_path.glob("*.value")
    file.write_bytes(content)
    memory = search_cache(tmp_path, CHIP)
    assert memory.get("a", FORM) is None
    memory.put("b", FORM, OTHER)
    assert search_cache(tmp_path, CHIP).get("b", FORM) == OTHER


def test_chips_do_not_share(tmp_path: Path) -> None:
    search_cache(tmp_path, CHIP).put("a", FORM, SOME)
    assert search_cache(tmp_path, load("quad8")).get("a", FORM) is None


def test_other_code_another_search_and_another_form_find_nothing(tmp_path: Path) -> None:
    code = "sched.schedulers.budget"
    cache = SearchCache(tmp_path, CHIP, "kept", code)
    cache.put("asked", TypeAdapter(int), 5)
    assert SearchCache(tmp_path, CHIP, "kept", code).get("asked", TypeAdapter(int)) == 5
    assert SearchCache(tmp_path, CHIP, "kept", "sched.store.provenance").get("asked", TypeAdapter(int)) is None
    assert SearchCache(tmp_path, CHIP, "other", code).get("asked", TypeAdapter(int)) is None
    assert SearchCache(tmp_path, CHIP, "kept", code).get("asked", FORM) is None
    assert SearchCache(None, CHIP, "kept", code).get("asked", TypeAdapter(int)) is None
    cache.drop("asked")
    assert SearchCache(tmp_path, CHIP, "kept", code).get("asked", TypeAdapter(int)) is None


def test_without_a_folder_this_process_remembers() -> None:
    cache = SearchCache(None, CHIP, "kept", "sched.schedulers.budget")
    cache.put("asked", TypeAdapter(int), 5)
    assert cache.get("asked", TypeAdapter(int)) == 5


def test_where_nothing_can_be_written_that_is_said_and_this_process_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file"))
    cache = SearchCache(SCHEDULES.folder(), CHIP, "kept", "sched.schedulers.budget")
    for request in "ab":
        cache.put(request, TypeAdapter(int), 5)
        assert cache.get(request, TypeAdapter(int)) == 5
    assert caplog.text.count("are not kept") == 1
