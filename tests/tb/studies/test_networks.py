"""The study of networks: bars, what limits them, what is run. No simulator is built or run here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from meshloom.tb.report.console import console
from meshloom.tb.results.legend import GROUPS
from meshloom.tb.results.schema import Row
from meshloom.tb.studies.engine.tables import print_table
from meshloom.tb.studies.networks import networks
from meshloom.tb.studies.points.runs import RunPoint

from .made_rows import page_of, rows_of
from .run_rows import row


def layer(**changes: Any) -> dict[str, Any]:
    good = {"name": "conv1", "kind": "conv", "macs": 800, "limit": "compute", "rtl_cycles": 1000, "model_cycles": 1000}
    shares = dict.fromkeys(GROUPS, 0.0) | {"compute": 90.0, "edges": 5.0, "idle": 5.0}
    return good | {"core_cycles": 100, "utilisation": 0.9, "shares": shares} | changes


def network_row(name: str = "resnet8", layers: Sequence[dict[str, Any]] = (), **changes: Any) -> Row:
    figures = {
        "picture": "a.png",
        "answer": "cat",
        "expected": "cat",
        "float_answer": "dog",
        "macs": 1_000_000,
        "tensors_checked": 3,
        "dram_bytes": 2_000_000,
        "layers": layers or [layer()],
        "shares": dict.fromkeys(GROUPS, 10.0),
        "busy": dict.fromkeys(networks.BUSY, 500),
        "in_turn_cycles": 700,
    }
    return row(**{"workload": name, "network": figures} | changes)


def point(name: str = "resnet8", scheduler: str = networks.DEFAULT) -> RunPoint:
    return RunPoint("quad16", name, scheduler)


def missed(*some: Row, scheduler: str = networks.DEFAULT) -> list[str]:
    return [text for each in some for text in networks.missed(point(each.workload, scheduler), each)]


def test_what_searching_longer_must_reach() -> None:
    usual, longer = network_row(utilisation=0.7), "loop_order:refine=1000"
    assert networks.too_idle(point(), usual, 70) == []
    assert networks.too_idle(point(), usual, 75) == [
        "resnet8 on quad16: 70.0 % of the PE cycles are useful, the bar is 75 %"
    ]
    (text,) = missed(network_row(cpu_seconds=3.1), scheduler="loop_order:refine=80")
    assert text == "resnet8 on quad16 with loop_order:refine=80: 3.1 CPU-seconds, the bar is 3"
    known = {point(): usual, point(scheduler=longer): network_row(utilisation=0.74, rtl_cycles=900, model_cycles=900)}
    page = page_of(networks.STUDY, known)
    table = page.tables[2]
    assert table.bad == {0}
    assert table.rows == [("resnet8", longer, "900", "1,000", "74.0 %", "75 %", "0", "+0.00 %")]
    (text,) = page.missed
    assert text.startswith("resnet8 on quad16 with loop_order:refine=1000: 74.0 %")


def test_what_limits_a_network_is_its_busiest_resource() -> None:
    one = network_row()
    assert one.network is not None
    one.network.busy.update(receiving=800)
    longer = point("resnet8", scheduler="loop_order:refine=1000")
    table = networks.limited(rows_of({point("mobilenet_v1"): one, longer: one}), "quad16")
    assert [cells[0] for cells in table.rows] == ["mobilenet_v1", "resnet8 (refine=1000)"]
    texts = dict(zip((name.rstrip(">") for name in table.columns), table.rows[0], strict=True))
    assert texts["useful"] == f"{1_000_000 / 1024:,.0f}", "products over all PEs of quad16"
    assert (texts["arrays"], texts["into a core"], texts["DRAM channel"]) == ("500", "800", "500")
    assert (texts["limit"], texts["bound"], texts["in turn"]) == ("into a core", "800", "700")
    assert (texts["RTL cycles"], texts["RTL / bound"]) == ("1,000", "1.25")


def test_the_bars_of_networks() -> None:
    assert missed(network_row()) == []
    assert missed(network_row(cpu_seconds=3.1)) == ["resnet8 on quad16: 3.1 CPU-seconds, the bar is 3"]
    assert missed(network_row("squeezenet", cpu_seconds=14.9), network_row("vgg16", cpu_seconds=999)) == []
    (text,) = missed(network_row(model_cycles=1021))
    assert text == "resnet8 on quad16: model error end to end 2.10 %, the bar is 2 %"
    (text,) = missed(network_row(layers=[layer(), layer(model_cycles=1050)]))
    assert text == "resnet8 on quad16: model error mean over layers 2.50 %, the bar is 2 %"
    (text,) = missed(network_row(mismatches=3, first_mismatch="conv1: 3"))
    assert text == "resnet8 on quad16: 3 of 64 bytes differ from the golden model, first in conv1: 3"
    idle = layer(utilisation=0.5, shares=layer()["shares"] | {"compute": 50.0, "edges": 15.0})
    (text,) = missed(network_row(layers=[layer(), idle]))
    assert text.startswith(
        "resnet8 on quad16: layers bounded by the arrays use 70.0 % of the PEs (80.0 % have operands)"
    )
    assert missed(network_row(layers=[idle | {"limit": "dram"}])) == []
    assert missed(network_row(faults=1))
    (text,) = missed(network_row(records_expected=9, records_compared=8, layers=[]))
    assert "incomplete, 8 of 9 trace records were compared" in text
    assert missed(row(workload="resnet8")), "a row without figures is none of a network"


def test_the_line_of_a_network_weighs_its_compute_bound_layers() -> None:
    large = layer(name="conv2", core_cycles=300, utilisation=0.4, shares=layer()["shares"] | {"compute": 40.0})
    other = layer(name="fc", limit="dram", utilisation=0.0, core_cycles=9999)
    run = point(), network_row(layers=[layer(), large, other])
    texts = {name.rstrip(">"): cell(run) for name, cell in networks.COLUMNS.items()}
    assert (texts["bound util."], texts["bound fed"]) == ("52.5 %", "57.5 %")
    assert (texts["MMAC"], texts["DRAM MB"], texts["tensors"], texts["mismatches"]) == ("1.0", "2.00", "3", "0")


def test_pictures_are_counted() -> None:
    some = (
        networks.Answer("a.png", "cat", "cat", "dog", 64, 0),
        networks.Answer("b.png", "cat", "dog", "dog", 64, 3, "3 of 64 bytes differ"),
    )
    page = page_of(networks.STUDY, {networks.PicturePoint("resnet8"): some})
    (table,) = page.tables
    assert table.title == "resnet8: right on 1 of 2 pictures, the float network on 0"
    assert table.bad == {1}
    assert page.missed == ["pictures of resnet8 on quad16, b.png: 3 of 64 bytes differ"]
    assert (page.texts["pictures"], page.texts["right"], page.texts["exact"]) == ("2", "1", "0")


def test_every_network_of_a_chip_has_a_line() -> None:
    full = [each for each in networks.points(True) if isinstance(each, RunPoint)]
    known = {each: network_row(each.workload, chip=each.chip, utilisation=0.9) for each in full}
    page = page_of(networks.STUDY, known)
    assert page.missed == []
    tables = {table.title: table for table in page.tables}
    for chip, names in networks.RUNS.items():
        assert [cells[0] for cells in tables[f"{chip}: whole networks"].rows] == list(names)
    assert len(tables["quad16: what searching longer gives"].rows) == len(networks.SEARCHED)


def test_tables_of_networks_fit_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    one = network_row(
        "efficientnet_lite0",
        [layer(name="conv2_1_depthwise", rtl_cycles=12_345_678, core_cycles=12_345_678)],
        rtl_cycles=123_456_789,
        model_cycles=123_456_789,
        bytes_checked=123_456_789,
    )
    for table in page_of(networks.STUDY, {point("efficientnet_lite0"): one}).tables:
        print_table(table, console())
    shown = capsys.readouterr().out
    assert "\u2026" not in shown
    assert "12,345,678" in shown
