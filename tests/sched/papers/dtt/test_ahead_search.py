"""Loop nests for a controller with a code channel: the one with the shortest plan is taken, and kept."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.ir.schedule import Execution, Schedule, ScheduleError
from meshloom.sched.lowering.timed.compile import compile_ahead
from meshloom.sched.mapping.emit.emission import emit, to_schedule
from meshloom.sched.papers.dtt import search
from meshloom.sched.papers.dtt.timed import timed
from meshloom.sched.routing.hardware import DttError, TimingFault
from meshloom.sched.schedulers.registry import find as scheduler
from meshloom.sched.workload.catalog import find
from meshloom.sched.workload.layers import ConvShape

CHIP = ChipConfig.model_validate(
    load("ahead8").model_dump()
    | {"name": "ahead4f", "lanes": 4, "rows": 4, "cols": 4, "floorplan": ["dram core dtt", "host core dram"]}
    | {"dram": {"bytes_per_cycle": 4, "latency": 20}, "controller_channel": True}
)
SHAPE: ConvShape = find("gemm:8x8x12")[0].shape


#: Cores and sources as they are.
AS_GIVEN = search.Laid(lambda schedule: schedule, ())


def cycles(schedule: Schedule) -> int:
    return compile_ahead(schedule, CHIP).orders.cycles


@pytest.fixture(scope="module")
def base() -> Schedule:
    return scheduler("loop_order:effort=0.02")(SHAPE, CHIP, 77)


def test_the_shortest_plan_is_taken_and_kept(base: Schedule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = search.shortest(base, SHAPE, CHIP, 77, 3, AS_GIVEN, tmp_path)
    nests = [to_schedule(emit(SHAPE, CHIP, nest, 77), SHAPE, CHIP) for nest in islice(search.nests(SHAPE, CHIP), 3)]
    assert cycles(result) == min(cycles(timed(one)) for one in (base, *nests))
    monkeypatch.setattr(search, "compile_ahead", None)  # nothing is planned again
    assert search.shortest(base, SHAPE, CHIP, 77, 3, AS_GIVEN, tmp_path).operations == result.operations


def test_what_decides_cores_and_sources_is_in_the_key(base: Schedule, tmp_path: Path) -> None:
    """Each nest is planned with the sources that it gets, not with those of another search."""
    laid: list[str] = []

    def noting(name: str) -> search.Laid:
        return search.Laid(lambda schedule: laid.append(name) or schedule, (name,))

    search.shortest(base, SHAPE, CHIP, 77, 2, noting("a"), tmp_path)
    search.shortest(base, SHAPE, CHIP, 77, 2, noting("b"), tmp_path)
    search.shortest(base, SHAPE, CHIP, 77, 2, noting("a"), tmp_path)
    assert laid == ["a"] * 3 + ["b"] * 3 + ["a"]


def test_nests_without_a_plan_are_passed_over(base: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    def only_the_base(schedule: Schedule, chip: ChipConfig) -> object:
        if schedule.operations == base.operations:
            return compile_ahead(schedule, chip)
        raise TimingFault("no route", "0", 0, "a wire")

    monkeypatch.setattr(search, "compile_ahead", only_the_base)
    assert search.shortest(base, SHAPE, CHIP, 77, 2, AS_GIVEN).operations == base.operations

    def nothing(schedule: Schedule, chip: ChipConfig) -> object:
        raise TimingFault("no route", "0", 0, "a wire")

    monkeypatch.setattr(search, "compile_ahead", nothing)
    with pytest.raises(DttError, match="no route"):
        search.shortest(base, SHAPE, CHIP, 77, 2, AS_GIVEN)


def test_planning_has_a_budget_of_operations(base: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[Schedule] = []

    def noted(schedule: Schedule, chip: ChipConfig) -> object:
        planned.append(schedule)
        return compile_ahead(schedule, chip)

    monkeypatch.setattr(search, "compile_ahead", noted)
    monkeypatch.setattr(search, "BUDGET", 1)
    search.shortest(base, SHAPE, CHIP, 77, 3, AS_GIVEN)
    assert len(planned) == 2, "the base and one nest"


def test_chips_without_a_code_channel_plan_what_the_base_makes(base: Schedule) -> None:
    shared = ChipConfig.model_validate(CHIP.model_dump() | {"controller_channel": False})
    result = scheduler("dtt:base=loop_order:effort=0.02")(SHAPE, shared, 77)
    assert result.operations == scheduler("loop_order:effort=0.02")(SHAPE, shared, 77).operations
    assert scheduler("dtt:plans=0")(SHAPE, CHIP, 77).operations == base.operations
    assert result.execution is Execution.TIMED


def test_operations_with_fences_cannot_be_timed(base: Schedule) -> None:
    with pytest.raises(ScheduleError, match="has fences, which operations that are timed ahead cannot keep"):
        timed(base.model_copy(update={"fences": (1,)}))
