"""Out-of-order schedules on the RTL, and what their benchmarks make of rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.mapping.tiling.problem import pose
from meshloom.sched.papers.flexer.tiles import viable
from meshloom.sched.workload.catalog import find
from meshloom.sched.workload.zoo import load as load_network
from meshloom.tb.benchmarks import flexer, flexer_assumptions, flexer_layers
from meshloom.tb.benchmarks.flexer_assumptions import KEPT, Part
from meshloom.tb.benchmarks.flexer_layers import NETWORKS, LayerCost, floor_cycles, same
from meshloom.tb.benchmarks.interface import BenchmarkError
from meshloom.tb.benchmarks.results import Sheet
from meshloom.tb.results.events import OnEvent
from meshloom.tb.results.schema import Status
from meshloom.tb.runs.options import RunOptions
from meshloom.tb.runs.runner import run

#: Layers whose tiles do not all stay in quad8's scratchpad, whose sums are spilled, and of odd sizes.
LAYERS = ("conv:10x10x40-40,k3,p1,relu", "conv:7x9x130-90,k3,p1", "gemm:40x70x300")


def silent(event: object) -> None:
    pass


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["flexer:budget=10M", "paper_static:budget=10M", "hybrid:budget=10M"])
def test_schedules_run_as_predicted(scheduler: str) -> None:
    """Every byte of layers and of a network with trained weights; the model to a percent."""
    rows = run([*LAYERS, "resnet8"], "quad8", scheduler, silent, RunOptions(jobs=2))
    assert [row.status for row in rows] == [Status.PASSED] * 4
    assert all(row.bytes_checked for row in rows)
    assert all(abs(row.error_percent or 0.0) <= 1.0 for row in rows)
    network = rows[-1].network
    assert network is not None
    assert network.answer == network.expected
    assert rows[-1].scheduler == scheduler.partition(":")[0]


# -- benchmarks -------------------------------------------------------------------------------------------------------


def test_no_schedule_undercuts_the_floor() -> None:
    chip, graph = load("arch5"), load_network("squeezenet")
    floor = floor_cycles("arch5", "squeezenet")
    weights = sum(layer.w.size for layer in graph.layers if layer.w is not None)
    assert floor >= weights / (len(chip.drams) * chip.dram.bytes_per_cycle)
    assert floor >= graph.total_macs / (len(chip.cores) * chip.rows * chip.cols)


def test_costs_are_those_of_layers_that_are_scheduled_alike() -> None:
    some = flexer.find("vgg16/conv4_2")[0].shape
    other = flexer.find("vgg16/conv4_3")[0].shape
    assert same(some) == same(other)
    one = LayerCost("arch5", "n", "w", {"paper_static": (300, 30), "flexer": (150, 20), "hybrid": (150, 20)}, "flexer")
    assert (one.speedup("flexer", "paper_static"), one.saving("flexer", "paper_static")) == (2.0, 1.5)
    worse = LayerCost("arch5", "n", "w", {"loop_order": (100, 9), "hybrid": (150, 20)}, "flexer")
    assert flexer.hybrid_failures([worse]) == ["w on arch5: the hybrid takes 150 cycles, not 100"]


def test_layers_are_shown_as_far_as_they_are_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only networks of which every layer is known; what is missing and what older code found is said."""
    drawn: list[int] = []
    monkeypatch.setattr(flexer, "measure", lambda on_progress, archs: None)
    monkeypatch.setattr(flexer, "draw", lambda costs, answer_of, path: drawn.append(len(costs)))
    monkeypatch.setattr(flexer, "reuses", dict)
    monkeypatch.setattr(flexer_layers.KEPT, "path", tmp_path / "layers.jsonl")
    with pytest.raises(BenchmarkError, match="no network is known as a whole on any architecture"):
        flexer.run(silent, ["kept"])
    with pytest.raises(BenchmarkError, match=r"^no part arch9; there are arch1, .*, arch8, kept$"):
        flexer.run(silent, ["arch9"])
    one = flexer_layers.Costs(dict.fromkeys(flexer_layers.SCHEDULERS, (100, 10)), "loop_order")
    requests = flexer_layers.plan(["arch1"])
    result = {each: one for each in requests if each.layer.startswith(("vgg16", "squeezenet"))}
    assert len(requests) < len([layer for network in NETWORKS for layer in flexer.find(network)]), "equal ones once"
    monkeypatch.setattr(flexer_layers.KEPT, "collected", lambda some: (result, {requests[0]}))
    value = flexer.run(silent, ["kept"])
    whole = [row[1] for row in value.sheets[0].rows]
    assert whole == ["vgg16", "squeezenet"]
    assert drawn == [sum(len(flexer.find(network)) for network in whole)]
    assert value.remarks[-1].endswith(f"(1 results): {requests[0].layer} on arch1.")
    (missing,) = value.failures
    assert "layers are missing" in missing


def test_assumptions_are_measured_one_by_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A part that is asked for is measured once; the page has all that there is, and says what is missing."""
    texts: list[str] = []
    parts: dict[str, Part] = {}

    def weighed(on_progress: OnEvent) -> Sheet:
        texts.append("weighed")
        return Sheet("Weighed", ("network", "speed-up>"), [("vgg16", "1.02")])

    monkeypatch.setitem(flexer_assumptions._SHEETS, "weighed", weighed)
    monkeypatch.setattr(KEPT, "path", tmp_path / "parts.jsonl")
    monkeypatch.setattr(KEPT, "put", parts.__setitem__)
    monkeypatch.setattr(KEPT, "missing", lambda some: [part for part in some if part not in parts])
    monkeypatch.setattr(KEPT, "collected", lambda some: (parts, {"layers"} & parts.keys()))
    result = flexer_assumptions.run(silent, ["weighed"])
    assert flexer_assumptions.run(silent, ["weighed"]) == result
    assert texts == ["weighed"]
    assert [sheet.title for sheet in result.sheets] == ["Weighed"]
    assert result.failures == ("not measured: layers, networks, rtl, tilings",)
    columns = (
        "assumed",
        *("estimate: network>", "best layer>", "words>"),
        *("timeline: network>", "best layer>", "words>"),
    )
    parts["layers"] = Part(Sheet("Layers", columns, [("both overlap", *["1.25"] * 6)]), ("both overlap: w by flexer",))
    result = flexer_assumptions.run(silent, ["kept"])
    assert "vgg16 on arch5 has 1.25. What yields most there: both overlap (1.25)." in result.remarks[0]
    assert result.remarks[-1].endswith("(1 results): part layers.")
    assert result.failures == ("both overlap: w by flexer", "not measured: networks, rtl, tilings")
    with pytest.raises(BenchmarkError, match=r"^no part arch5; there are layers, .*, tilings, kept$"):
        flexer_assumptions.run(silent, ["arch5"])


def test_tilings_are_shown_up_to_so_many_operations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One of 100,000 operations takes minutes. The table says how many there are in all."""
    layer = "squeezenet/fire2_squeeze"
    for name, value in (("FIGURE_1", (layer,)), ("FOLDER", tmp_path), ("MOST", 20), ("TILINGS", 5)):
        monkeypatch.setattr(flexer_assumptions, name, value)
    sheet = flexer_assumptions.tilings_sheet(silent)
    every = len(viable(pose(find(layer)[0].shape, load("arch1")), load("arch1"), layer))
    assert [row[1] for row in sheet.rows] == ["best static", "out of order"]
    assert all(int(row[2].partition(f" of {every:,}")[0]) in range(1, 10) for row in sheet.rows)
    assert "20 operations at most" in sheet.title
    assert (tmp_path / flexer_assumptions.PLOT).is_file()
    monkeypatch.setattr(flexer_assumptions, "TILINGS", every)
    counts: list[int] = []
    for most in (20, 40):
        monkeypatch.setattr(flexer_assumptions, "MOST", most)
        counts.append(len(flexer_assumptions.scatter(layer)[0]["out of order"]))
    assert 9 < counts[0] < counts[1] < every
