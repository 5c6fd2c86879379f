"""The soak of serving: what it draws, what it keeps, what it calls wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshloom.sched.schedulers.online.registry import ONLINE
from meshloom.tb.verify import serving_soak
from meshloom.tb.verify.serving_soak import CHIPS, ServingCounts, ServingDose, SoakError, problem, run, take

from .served_chip import CHIP


@pytest.fixture
def taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the scenarios that were served: nothing runs."""
    numbers: list[int] = []

    def instead(dose: ServingDose) -> ServingCounts:
        numbers.append(dose.number)
        return ServingCounts(3, 33, 1_000, 500)

    monkeypatch.setattr("meshloom.tb.verify.record.OUTPUT", tmp_path)
    monkeypatch.setattr(serving_soak, "take", instead)
    return numbers


def test_scenarios_differ_and_are_drawn_again_alike() -> None:
    some = [ServingDose(number, 1) for number in range(20)]
    assert [dose.scenario for dose in some] == [ServingDose(number, 1).scenario for number in range(20)]
    assert len({dose.scenario.requests for dose in some}) == 20
    assert {dose.chip.name for dose in some} == set(CHIPS)
    assert {dose.scheduler.partition(":")[0] for dose in some} <= set(ONLINE.names())
    assert len({dose.scheduler for dose in some}) > 3
    for dose in some:
        arrivals = [request.arrival for request in dose.scenario.requests]
        assert arrivals == sorted(arrivals)
    assert some[0].chip == CHIP, "tests have a simulator of it"


def test_it_goes_on_where_it_was(taken: list[int]) -> None:
    said: list[str] = []
    assert run(2_500, 1, False, said.append) == []
    assert taken == [0, 1, 2]
    assert said[2].startswith("scenario 2 of seed 1 on lp4 by ")
    assert "3,000 cycles so far" in said[2]
    assert run(4_500, 1, False, said.append) == []
    assert taken == [0, 1, 2, 3, 4]
    assert run(1_500, 1, True, said.append) == []
    assert taken[5:] == [0, 1], "from the beginning"


def test_what_is_wrong_ends_it_and_is_not_kept(taken: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    good = serving_soak.take

    def bad(dose: ServingDose) -> ServingCounts:
        if dose.number == 1:
            raise SoakError("12 cycles, 13 predicted")
        return good(dose)

    monkeypatch.setattr(serving_soak, "take", bad)
    (wrong,) = run(5_000, 1, False, lambda words: None)
    assert wrong.startswith("scenario 1 of seed 1 on lp4turns by ")
    assert wrong.endswith("12 cycles, 13 predicted")
    monkeypatch.setattr(serving_soak, "take", good)
    assert run(2_000, 1, False, lambda words: None) == []
    assert taken == [0, 1]


def test_memory_that_grows_is_wrong(taken: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_soak, "megabytes", lambda: 100 + 50 * len(taken))
    (wrong,) = run(20_000, 1, False, lambda words: None)
    assert wrong == "memory: 1,100 MB, 700 MB after 12 scenarios"
    assert run(30_000, 1, False, lambda words: None) == [], "what was served before is no growth"


@pytest.mark.slow  # on the RTL
def test_a_scenario_is_served_and_what_differs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    serve = serving_soak.serve
    monkeypatch.setattr(serving_soak, "serve", lambda *some: results.append(serve(*some)) or results[-1])
    counts = take(ServingDose(0, 1))
    assert counts.layers >= 11 * counts.requests / 2
    assert counts.cycles > 10_000
    assert counts.bytes > 1_000 * counts.requests
    right = results[0].results
    assert problem(right) == ""
    figures = right.scenario.model_copy(update={"rtl_cycles": right.scenario.model_cycles + 1})
    assert problem(right.model_copy(update={"scenario": figures})).endswith("predicted")
    lost = right.instances[0].model_copy(update={"end": None})
    instances = (lost, *right.instances[1:])
    assert problem(right.model_copy(update={"instances": instances})) != ""
