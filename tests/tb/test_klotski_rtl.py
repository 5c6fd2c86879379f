"""Micro-ops on the RTL: pushed from core to core, in rounds too, every tensor right and every cycle as predicted."""

from __future__ import annotations

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.workload import zoo
from meshloom.sched.workload.graph import Graph, Value, Window
from meshloom.tb.build.builder import build
from meshloom.tb.devices.simulated import SimulatedDevice
from meshloom.tb.inputs.sources import Feed
from meshloom.tb.results.schema import Row, Status
from meshloom.tb.runs import network

from ..sched.network_graphs import Grower, inputs_of


def rows(graph: Graph, chip_name: str, *schedulers: str) -> list[Row]:
    """A network by some schedulers, one job after the other."""
    chip = load(chip_name)
    feed = Feed("noise.png", inputs_of(graph, 5), -1, -1)
    networks = [network.prepare(graph, chip, scheduler=name) for name in schedulers]
    jobs = [network.job(one, feed.arrays, chip, 4, 20_000) for one in networks]
    ran = SimulatedDevice(build(chip, "verilator")).run(jobs)
    return [network.row(one, "net", feed, run, chip) for one, run in zip(networks, ran, strict=True)]


def right(row: Row) -> None:
    assert (row.status, row.reason, row.mismatches) == (Status.PASSED, "", 0)
    assert row.bytes_checked > 0
    assert row.rtl_cycles == row.model_cycles
    assert row.network is not None
    assert row.network.micro_ops is not None
    assert row.network.micro_ops.taken == "micro-ops"


def test_a_small_network_with_and_without_rounds() -> None:
    """Rounds send more words: it takes longer with them."""
    grower = Grower(1, Value("x", 10, 6, 6))
    grower.conv("a", "x", 12, Window(3, 3, 1, 1, 1, 1, 1, 1))
    grower.conv("b", "a", 12, Window(1, 1))
    grower.add("sum", "b", "a")
    graph = grower.graph("small", "sum")
    free, held = rows(graph, "tiny", *(f"klotski:fineness=0.5,fallback=none{each}" for each in ("", ",rounds=yes")))
    right(free)
    right(held)
    assert held.rtl_cycles > free.rtl_cycles


@pytest.mark.slow
def test_a_residual_network() -> None:
    """By all three schedulers of micro-ops; what a plan promises is no more than what comes of it."""
    result = rows(zoo.load("resnet8"), "quad16", "klotski:fineness=0.5,fallback=none", "zigzag", "atomic:evaluations=5")
    for row in result:
        right(row)
        assert row.network is not None
        assert row.network.micro_ops is not None
        assert row.network.micro_ops.bound_cycles <= row.network.micro_ops.planned_cycles <= row.rtl_cycles
