"""Results that the repository keeps as text: found again where the same code would find them, marked where not."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.program.program import ProgramError
from meshloom.sched.workload import zoo
from meshloom.tb.benchmarks import kept, network_runs
from meshloom.tb.benchmarks.interface import BenchmarkError
from meshloom.tb.benchmarks.network_runs import KEPT, Asked, Found, measure, told
from meshloom.tb.results.figures import MicroOpFigures

MODEL, RTL = Asked("tiny", "resnet8", "loop_order:refine=0"), Asked("tiny", "resnet8", "klotski", rtl=True)
MICRO_OPS = MicroOpFigures(count=10, planned_cycles=110, bound_cycles=100, hops_bytes=4096, spilled_words=0)
ANSWER = Found(1000, 4500, 1, MICRO_OPS, 2.0, 1001, 64, 0)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Of pages; a machine on which nothing has been measured."""
    monkeypatch.setattr(KEPT, "path", tmp_path / "runs.jsonl")
    forget(monkeypatch)
    return tmp_path


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine: it has the repository alone."""

    class Nothing:
        def get(self, *_: object) -> None:
            return None

        def put(self, *_: object) -> None:
            pass

    monkeypatch.setattr(KEPT, "memory", lambda *_: Nothing())


def keep(monkeypatch: pytest.MonkeyPatch, some: dict[Asked, Found]) -> tuple[dict[Asked, Found], set[Asked]]:
    """A machine that has measured some; what it says of them."""

    class Memory:
        def get(self, pair: tuple[Asked, str], _: object) -> Found | None:
            return some.get(pair[0])

    monkeypatch.setattr(KEPT, "memory", lambda *_: Memory())
    return KEPT.collected(some)


def test_another_machine_finds_what_one_has_measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert keep(monkeypatch, {RTL: ANSWER, MODEL: ANSWER}) == ({RTL: ANSWER, MODEL: ANSWER}, set())
    text = KEPT.path.read_text().splitlines()
    assert len(text) == 2
    assert text == sorted(text)
    forget(monkeypatch)
    assert KEPT.missing([RTL, MODEL, RTL]) == []
    assert KEPT.collected([MODEL, RTL]) == ({MODEL: ANSWER, RTL: ANSWER}, set())
    other = Asked("tiny", "resnet8", "zigzag")
    assert KEPT.missing([other, RTL, other]) == [other]

    def never(*_: object) -> Found:
        raise AssertionError("it is known")

    monkeypatch.setattr(network_runs, "_on_rtl", never)
    assert measure([RTL], lambda event: None) == []


def test_what_older_code_has_found_is_shown_and_measured_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(monkeypatch, {RTL: ANSWER})
    forget(monkeypatch)
    monkeypatch.setattr(kept.provenance, "digest", lambda *_: "other code")
    assert KEPT.missing([RTL]) == [RTL]
    answers, older = KEPT.collected([RTL, MODEL])
    assert (answers, older) == ({RTL: ANSWER}, {RTL})
    assert told(older)[0].endswith("(1 results): resnet8 on tiny by klotski.")
    assert told(()) == ()
    assert kept.told([f"network {number}" for number in range(kept.NAMED + 2)])[0].endswith(" and 2 more.")
    newer = Found(900, 4500, 1, None, 2.0, 900, 64, 0)
    assert keep(monkeypatch, {RTL: newer}) == ({RTL: newer}, set())
    assert len(KEPT.path.read_text().splitlines()) == 1


@pytest.mark.parametrize("line", ["{", '{"asked": {"chip": "tiny"}}'])
def test_a_damaged_line_is_named(folder: Path, line: str) -> None:
    KEPT.path.write_text(line + "\n")
    with pytest.raises(BenchmarkError, match=r"runs.jsonl, line 1: .*; remove the line, its result is measured anew"):
        KEPT.collected([RTL])


def test_what_is_measured_is_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the code that measures, on this machine and, as text, on others."""
    answers: dict[object, Found] = {}

    class Memory:
        def get(self, value: object, _: object) -> Found | None:
            return answers.get(value)

        def put(self, asked: object, _: object, value: Found) -> None:
            answers[asked] = value

    monkeypatch.setattr(KEPT, "memory", lambda *_: Memory())
    assert measure([MODEL], lambda event: None) == []
    result, _ = KEPT.collected([MODEL])
    assert result[MODEL].macs == zoo.load("resnet8").total_macs
    assert 0 < result[MODEL].utilisation("tiny") <= 1
    assert len(load("tiny").cores) == 1
    forget(monkeypatch)
    assert KEPT.found([MODEL]) == (result, set())


def test_a_program_that_does_not_fit_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is what is kept of it, and the next one is measured."""
    answers: dict[Asked, Found] = {}

    def refused(*_: object) -> None:
        raise ProgramError("code ends behind its tile")

    monkeypatch.setattr(network_runs, "unchecked", refused)
    monkeypatch.setattr(KEPT, "missing", list)
    monkeypatch.setattr(KEPT, "put", answers.__setitem__)
    assert measure([MODEL], lambda event: None) == []
    assert answers[MODEL].trouble == "code ends behind its tile"
    assert answers[MODEL].cycles == 0
