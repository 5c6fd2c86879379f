"""Schedulers by name: what is handed to them, what they may not do, and what becomes of one that fails."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from meshloom.hw.config import ChipConfig, load
from meshloom.sched.ir.schedule import Execution, Schedule
from meshloom.sched.mapping.problem import DoesNotFit
from meshloom.sched.schedulers import networks, registry
from meshloom.sched.schedulers.budget import Budget
from meshloom.sched.schedulers.registry import SchedulerError
from meshloom.sched.workload import zoo
from meshloom.sched.workload.layers import ConvShape
from meshloom.sched.workload.shapes import parse

CHIP = load("tiny")
SHAPE = parse("gemm:8x8x8")

Register = Callable[[Any], None]


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Register:
    """Registers a function as scheduler `mine`, for layers, as a user does."""

    def enter(function: Any) -> None:
        module = ModuleType("somebodys_scheduler")
        module.schedule = function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "somebodys_scheduler", module)
        monkeypatch.setitem(registry._KNOWN, "mine", ("somebodys_scheduler", "schedule"))

    return enter


def failing(shape: ConvShape, chip: ChipConfig, scale: int = 1) -> Schedule:
    return 1 / 0  # type: ignore[return-value]


def test_one_for_layers_is_not_replaced_on_networks(register: Register) -> None:
    register(failing)
    assert "mine" in registry.names()
    assert "mine" not in networks.names()
    with pytest.raises(
        SchedulerError, match=r"^scheduler mine schedules layers, not whole networks; give it .*'NETWORK/"
    ):
        networks.find("mine")
    with pytest.raises(SchedulerError, match=r"take one of dtt, flexer, hybrid, loop_order, paper_static$"):
        networks.find("mine:budget=3")


def test_every_scheduler_that_ships_knows_networks() -> None:
    assert networks.names() == registry.names()


def test_one_that_fails_on_a_layer_is_named(register: Register) -> None:
    register(failing)
    message = (
        r"^scheduler mine failed on gemm:8x8x8: ZeroDivisionError: division by zero "
        r"\(line \d+ of test_scheduler.py\)$"
    )
    with pytest.raises(SchedulerError, match=message) as error:
        registry.find("mine")(SHAPE, CHIP, 7)
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_one_that_fails_on_a_network_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(networks._KNOWN, "hybrid", lambda *given: lambda graph, chip, progress: 1 / 0)
    with pytest.raises(SchedulerError, match=r"^scheduler hybrid failed on network resnet8: ZeroDivisionError"):
        networks.find("hybrid")(zoo.load("resnet8"), CHIP, None)


def test_what_does_not_fit_is_told_in_the_schedulers_words(register: Register) -> None:
    def too_big(shape: ConvShape, chip: ChipConfig, scale: int = 1) -> Schedule:
        raise ValueError(f"{shape.name} needs 3 cores, {chip.name} has 1")

    register(too_big)
    message = r"^scheduler mine failed on gemm:8x8x8: gemm:8x8x8 needs 3 cores, tiny has 1 \(line"
    with pytest.raises(SchedulerError, match=message):
        registry.find("mine")(SHAPE, CHIP)


def test_our_own_errors_come_through_as_they_are(register: Register) -> None:
    def none(shape: ConvShape, chip: ChipConfig, scale: int = 1) -> Schedule:
        raise DoesNotFit("no room")

    register(none)
    with pytest.raises(DoesNotFit, match=r"^no room$"):
        registry.find("mine")(SHAPE, CHIP)


def test_a_schedule_is_what_they_make(register: Register) -> None:
    register(lambda shape, chip, scale=1: None)
    with pytest.raises(SchedulerError, match="scheduler mine made a NoneType of gemm:8x8x8, not a Schedule"):
        registry.find("mine")(SHAPE, CHIP)


def test_one_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._KNOWN, "mine", ("no_such_module_at_all", "schedule"))
    message = "scheduler mine cannot be loaded: No module named 'no_such_module_at_all'; mend no_such_module_at_all"
    with pytest.raises(SchedulerError, match=message):
        registry.find("mine")


def test_they_are_handed_what_they_take(register: Register) -> None:
    seen: dict[str, Any] = {}

    def curious(
        shape: ConvShape, chip: ChipConfig, scale: int = 1, budget: Budget | None = None, **options: object
    ) -> Schedule:
        seen.update(shape=shape, chip=chip, scale=scale, budget=budget, **options)
        return Schedule(chip=chip.name, chip_digest=chip.digest, workload=shape.name, scheduler="mine", operations=())

    register(curious)
    made = registry.find("mine:budget=5s,mood=good", tell=print)(SHAPE, CHIP, 7)
    assert seen == {"shape": SHAPE, "chip": CHIP, "scale": 7, "budget": Budget.parse("5s"), "mood": "good"}
    assert made.execution is Execution.TRIGGERED


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("loop_ordr", r"unknown scheduler 'loop_ordr'; known are .*; did you mean loop_order\?"),
        ("nobody", "unknown scheduler 'nobody'; known are dtt, flexer, hybrid, loop_order, paper_static$"),
        ("loop_order:efort=1", r"scheduler loop_order has no option 'efort'; did you mean effort\?"),
        ("loop_order:colour=1", "scheduler loop_order has no option 'colour'; it has effort$"),
        ("dtt:colour=1", "scheduler dtt has no option 'colour'; it has none$"),
        ("loop_order:effort=1,effort=2", "effort is there twice"),
        ("loop_order:effort", "'effort' is not key=value"),
        ("loop_order:effort=-1", "effort = -1 must be above 0"),
    ],
)
def test_names_and_options(name: str, message: str) -> None:
    with pytest.raises(SchedulerError, match=message):
        registry.find(name)


def test_options_of_networks_that_may_have_been_meant() -> None:
    with pytest.raises(SchedulerError, match=r"betwen is no option for networks; .*; did you mean between\?"):
        networks.find("loop_order:betwen=dram")
