"""The benchmark of networks: bars, what limits them, what is run. No simulator is built or run here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from meshloom.tb.benchmarks import networks
from meshloom.tb.benchmarks.results import Result, Sheet, print_result
from meshloom.tb.report.console import console
from meshloom.tb.results.events import OnEvent, RowCount
from meshloom.tb.results.legend import GROUPS
from meshloom.tb.results.schema import Row
from meshloom.tb.runs.options import RunOptions

from .benchmark_rows import row


def layer(**changes: Any) -> dict[str, Any]:
    good = {"name": "conv1", "kind": "conv", "macs": 800, "limit": "compute", "rtl_cycles": 1000, "model_cycles": 1000}
    shares = dict.fromkeys(GROUPS, 0.0) | {"compute": 90.0, "edges": 5.0, "idle": 5.0}
    return good | {"core_cycles": 100, "utilisation": 0.9, "shares": shares} | changes


def network_row(name: str = "resnet8", layers: Sequence[dict[str, Any]] = (), **changes: Any) -> Row:
    figures = {
        "picture": "a.png", "answer": "cat", "expected": "cat", "float_answer": "dog", "macs": 1_000_000,
        "tensors_checked": 3, "dram_bytes": 2_000_000, "layers": layers or [layer()],
        "shares": dict.fromkeys(GROUPS, 10.0), "busy": dict.fromkeys(networks.BUSY, 500), "in_turn_cycles": 700,
    }  # fmt: skip
    return row(**{"workload": name, "network": figures} | changes)


def settings_of(scheduler: str) -> dict[str, str]:
    return {"code": "1", "scheduler": scheduler, "simulator_version": "5"}


def test_what_searching_longer_must_reach() -> None:
    usual = network_row(utilisation=0.7)
    assert networks.too_idle(usual, 70) == []
    assert networks.too_idle(usual, 75) == ["resnet8 on quad16: 70.0 % of the PE cycles are useful, the bar is 75 %"]
    longer = network_row(utilisation=0.74, settings=settings_of("loop_order:refine=1000"))
    (text,) = networks.too_idle(longer, 75)
    assert text.startswith("resnet8 on quad16 with loop_order:refine=1000: 74.0 %")
    (text,) = networks.missed([network_row(settings=settings_of("loop_order:refine=80"), cpu_seconds=3.1)])
    assert text == "resnet8 on quad16 with loop_order:refine=80: 3.1 CPU-seconds, the bar is 3"
    sheet = networks.searched([(usual, 1000, 70), (longer, 1200, 75), (network_row(faults=1), 1, 10)])
    assert sheet.failed == {1, 2}
    assert sheet.rows[1] == (
        "resnet8", "loop_order:refine=1000", "1,000", "1,200", "74.0 %", "75 %", "0", "+0.10 %",
    )  # fmt: skip


def test_what_limits_a_network_is_its_busiest_resource() -> None:
    one = network_row()
    assert one.network is not None
    one.network.busy.update(receiving=800)
    sheet = networks.limited([one])
    texts = dict(zip((name.rstrip(">") for name in sheet.columns), sheet.rows[0], strict=True))
    assert texts["useful"] == f"{1_000_000 / 1024:,.0f}", "products over all PEs of quad16"
    assert (texts["arrays"], texts["into a core"], texts["DRAM channel"]) == ("500", "800", "500")
    assert (texts["limit"], texts["bound"], texts["in turn"]) == ("into a core", "800", "700")
    assert (texts["RTL cycles"], texts["RTL / bound"]) == ("1,000", "1.25")


def test_the_bars_of_networks() -> None:
    assert networks.missed([network_row()]) == []
    assert networks.missed([network_row(cpu_seconds=3.1)]) == ["resnet8 on quad16: 3.1 CPU-seconds, the bar is 3"]
    assert networks.missed([network_row("squeezenet", cpu_seconds=14.9), network_row("vgg16", cpu_seconds=999)]) == []
    (text,) = networks.missed([network_row(model_cycles=1021)])
    assert text == "resnet8 on quad16: model error end to end 2.10 %, the bar is 2 %"
    (text,) = networks.missed([network_row(layers=[layer(), layer(model_cycles=1050)])])
    assert text == "resnet8 on quad16: model error mean over layers 2.50 %, the bar is 2 %"
    (text,) = networks.missed([network_row(mismatches=3, first_mismatch="conv1: 3")])
    assert text == "resnet8 on quad16: 3 of 64 bytes differ from the golden model, first in conv1: 3"
    idle = layer(utilisation=0.5, shares=layer()["shares"] | {"compute": 50.0, "edges": 15.0})
    (text,) = networks.missed([network_row(layers=[layer(), idle])])
    assert text.startswith(
        "resnet8 on quad16: layers bounded by the arrays use 70.0 % of the PEs (80.0 % have operands)"
    )
    assert networks.missed([network_row(layers=[idle | {"limit": "dram"}])]) == []
    assert networks.missed([network_row(faults=1)])
    (text,) = networks.missed([network_row(records_expected=9, records_compared=8, layers=[])])
    assert "incomplete, 8 of 9 trace records were compared" in text
    assert networks.missed([row(workload="resnet8")]), "a row without figures is none of a network"
    same = network_row(cpu_seconds=9)
    assert len(networks.missed([same, same])) == 1


def test_the_line_of_a_network_weighs_its_compute_bound_layers() -> None:
    large = layer(name="conv2", core_cycles=300, utilisation=0.4, shares=layer()["shares"] | {"compute": 40.0})
    other = layer(name="fc", limit="dram", utilisation=0.0, core_cycles=9999)
    cells = networks._line(network_row(layers=[layer(), large, other]))
    assert len(cells) == len(networks._COLUMNS)
    texts = dict(zip((name.rstrip(">") for name in networks._COLUMNS), cells, strict=True))
    assert (texts["bound util."], texts["bound fed"]) == ("52.5 %", "57.5 %")
    assert (texts["MMAC"], texts["DRAM MB"], texts["tensors"], texts["mismatches"]) == ("1.0", "2.00", "3", "0")


def test_the_networks_benchmark_runs_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    values: list[tuple[str, list[str], int]] = []
    longer: list[tuple[str, str]] = []

    def run(sources: Any, chip: str, scheduler: str, on_event: OnEvent, options: RunOptions | None = None) -> list[Row]:
        names = [source.name for source in sources]
        if scheduler == networks.DEFAULT:
            values.append((chip, names, (options or RunOptions()).jobs))
        else:
            assert chip == networks.SEARCHED_CHIP
            longer.extend((name, scheduler) for name in names)
        rows = [
            network_row(source.name, chip=chip, utilisation=0.9, settings=settings_of(scheduler))
            for source in sources
            for _ in source.inputs or (None,)
        ]
        for event in (RowCount(99), *rows):
            on_event(event)
        return rows

    monkeypatch.setattr("meshloom.tb.runs.runner.run", run)
    value: list[Any] = []
    result = networks.run(value.append)
    assert [(chip, tuple(names)) for chip, names, _ in values] == list(networks.RUNS)
    assert {jobs for *_, jobs in values} == {1}, "CPU-seconds are measured one at a time"
    assert longer == [(name, scheduler) for name, scheduler, _ in networks.SEARCHED if scheduler != networks.DEFAULT]
    (plan,) = [event for event in value if isinstance(event, RowCount)]
    assert plan.rows == sum(isinstance(event, Row) for event in value)
    assert result.passed
    (answers,) = [sheet for sheet in result.sheets if sheet.title.startswith("squeezenet: right on")]
    assert answers.title == "squeezenet: right on 20 of 20 pictures, the float network on 0"
    for chip, names in networks.RUNS:
        (sheet,) = [sheet for sheet in result.sheets if sheet.title == f"{chip}: whole networks"]
        assert [cells[0] for cells in sheet.rows] == list(names)


def test_sheets_of_networks_fit_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    one = network_row(
        "efficientnet_lite0",
        [layer(name="conv2_1_depthwise", rtl_cycles=12_345_678, core_cycles=12_345_678)],
        rtl_cycles=123_456_789,
        model_cycles=123_456_789,
        bytes_checked=123_456_789,
    )
    sheets = (Sheet("s", networks._COLUMNS, [networks._line(one)]), networks._layers(one))
    print_result(Result("networks", "t", "", sheets), console())
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert "12,345,678" in shown
