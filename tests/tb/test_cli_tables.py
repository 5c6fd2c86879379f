"""The command line: rows, networks and their layers as tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from meshloom.tb.inputs.sources import NetworkSource
from meshloom.tb.report.console import LOG_WIDTH
from meshloom.tb.results.figures import (
    Congestion,
    LayerFigures,
    LinkFigures,
    NetworkFigures,
    PacketFigures,
    SourceFigures,
)
from meshloom.tb.results.legend import GROUPS

from .command_line import invoke, row


def test_links_and_congestion_are_shown(folder: Path, engine: Any) -> None:
    links = [
        LinkFigures(tile=0x12, port="east", busy=250, blocked=50, cycles=1000),
        LinkFigures(tile=0x12, port="local", busy=1000, blocked=0, cycles=1000),
    ]
    packets = PacketFigures(count=1234, mean=45.26, worst=301, idle_mean=30.0, worst_late=255)
    sources = (SourceFigures(tile=0x12, moves=7, ideal_cycles=300, real_cycles=1200),)
    level = Congestion(ideal_cycles=300, real_cycles=1200, sources=sources, packets=packets)
    engine(row(rtl_cycles=1000, model_cycles=1000, links=links, congestion=level))
    output = invoke("run", "gemm:8x8x8", "--chip", "tiny", "--links").output
    assert "gemm:8x8x8 on tiny: data plane" in output
    assert re.search(r"\(2,1\) +east +250 +50 +25\.0 % +16\.7 %", output)
    assert re.search(r"\(2,1\) +tile +1,000 +0 +100\.0 % +0\.0 %", output)
    assert re.search(r"\(2,1\) +7 +300 +1,200 +0\.250", output)
    assert re.search(r"all +7 +300 +1,200 +0\.250", output)
    assert "1,234 packets, 45.3 cycles on their way in the mean (alone 30.0), 301 at worst, at most 255 late" in output
    engine(row())
    assert "data plane" not in invoke("run", "gemm:8x8x8", "--chip", "tiny").output


def test_rows_as_a_table(folder: Path, engine: Any) -> None:
    engine(row(), row("resnet8/fc"))
    shown = invoke("run", "gemm:8x8x8", "--chip", "tiny", "--csv", "-")
    assert shown.stdout.splitlines()[0].startswith("workload,chip,chip_digest,")
    assert [line.partition(",")[0] for line in shown.stdout.splitlines()[1:]] == ["gemm:8x8x8", "resnet8/fc"]
    assert "2 of 2 passed" in shown.stderr
    assert invoke("run", "gemm:8x8x8", "--chip", "tiny", "--csv", "new/rows.csv").exit_code == 0
    assert (folder / "new" / "rows.csv").read_text() == shown.stdout
    refused = invoke("run", "gemm:8x8x8", "--csv", "-", "--json", "-")
    assert refused.exit_code == 2
    assert "only one of --json, --csv and" in refused.output
    (folder / "place").mkdir()
    assert invoke("run", "gemm:8x8x8", "--chip", "tiny", "--csv", "place").exit_code == 5


def test_networks_run_whole_and_their_layers_by_a_star(folder: Path, engine: Any) -> None:
    calls = engine(row())
    assert invoke("run", "resnet8", "resnet8/*", "--chip", "tiny").exit_code == 0
    ((workloads, *_),) = calls
    assert workloads == [NetworkSource("resnet8"), "resnet8/*"]


LAYER = LayerFigures(
    name="features.12.expand/Conv_output_0", kind="average_pool", macs=123_456_789, limit="compute",
    rtl_cycles=1_234_567, model_cycles=1_234_569, core_cycles=12_345_678, utilisation=1,
    shares=dict.fromkeys(GROUPS, 100.0),
)  # fmt: skip


def test_tables_of_networks_are_readable_in_a_log(folder: Path, engine: Any) -> None:
    """Every number whole and every head whole in a width of 176, with long names and large numbers."""
    names: dict[str, Any] = {
        "picture": "imagenet_00_243.webp",
        "answer": "black-and-tan coonhound",
        "expected": "American Staffordshire",
    }
    layers = (LAYER, LAYER.model_copy(update={"name": "pool", "shares": {}, "kind": "max_pool"}))
    figures = NetworkFigures(
        **names, float_answer="wire-haired fox terrier", macs=15_470_264_320, tensors_checked=121,
        dram_bytes=1_234_567_890, spilled=("y",), layers=layers, shares=dict.fromkeys(GROUPS, 100.0),
    )  # fmt: skip
    engine(row("efficientnet_lite0", network=figures), row("gemm:8x8x8"))
    shown = invoke("run", "efficientnet_lite0", "--chip", "tiny", "--layers")
    assert shown.exit_code == 0, shown.output
    lines = [line for line in shown.output.splitlines() if not line.startswith(("results:", "[1/2]"))]
    assert max(map(len, lines)) <= LOG_WIDTH
    assert "…" not in shown.output
    for head in ("RTL says", "float says", "DRAM MB", "layer error", "core cycles", "RTL cycles", *GROUPS):
        assert head in shown.output
    for cell in (*names.values(), "wire-haired fox terrier", "15,470.3", "1,234.57", "121", "123.46", "1,234,567"):
        assert cell in shown.output
    for layer in layers:
        (line,) = [line for line in lines if line.startswith(layer.name)]
        assert len(line.split()) == 8 + len(GROUPS)
    assert (
        "[1/2] efficientnet_lite0: passed, imagenet_00_243.webp is black-and-tan coonhound, 1,000 cycles"
        in shown.output
    )
    assert LAYER.name not in invoke("run", "efficientnet_lite0", "--chip", "tiny").output, "only if asked for"


def test_a_very_long_layer_name_is_folded_and_no_number_is(folder: Path, engine: Any) -> None:
    layer = LAYER.model_copy(update={"name": "a" * 100})
    figures = NetworkFigures(
        macs=1, tensors_checked=1, dram_bytes=1, layers=(layer,), shares=dict.fromkeys(GROUPS, 1.0)
    )
    engine(row("mine", network=figures))
    output = invoke("run", "mine.onnx", "--chip", "tiny", "--layers").output
    assert output.count("a" * 20) >= 2
    assert "12,345,678" in output
    assert "…" not in output
