"""Traces for Perfetto: every record once on each side, slices that nest, arrows from producer to consumer."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from meshloom.hw.spec.config import load
from meshloom.sched.ir.dependences import Depends
from meshloom.tb.cli.main import app
from meshloom.tb.compare.finished import FinishedRun, finished_run
from meshloom.tb.compare.timelines import timeline
from meshloom.tb.report.trace import events
from meshloom.tb.results.artefacts import load as load_artefacts

from .kept_runs import keep

SHAPE = "gemm:17x33x9"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return keep(tmp_path_factory.mktemp("runs"), SHAPE, load("quad16"))


@pytest.fixture(scope="module")
def run(folder: Path) -> FinishedRun:
    return finished_run(load_artefacts(folder))


@pytest.fixture(scope="module")
def traced(run: FinishedRun) -> list[dict[str, Any]]:
    return list(events(timeline(run), run.row))


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def names(traced: list[dict[str, Any]]) -> dict[tuple[int, int], str]:
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in traced if e["name"] == "thread_name"}


def test_every_record_is_a_slice_on_both_sides(run: FinishedRun, traced: list[dict[str, Any]]) -> None:
    for process, records in ((1, run.predicted), (2, run.measured)):
        units = [
            (e["ts"], e["args"]["end"], e["args"]["opcode"], e["args"].get("operation"))
            for e in traced
            if e["ph"] == "X" and e["pid"] == process and e["cat"] not in ("channel", "link")
        ]
        values = [(r.start, r.end, r.opcode.name, run.number(place)) for place, r in records.items()]
        assert sorted(units, key=str) == sorted(values, key=str)
    sides = [e["args"]["name"] for e in traced if e["name"] == "process_name"]
    unit = "1 us here is 1 cycle"
    assert sides == [
        f"{SHAPE} on quad16: planned (timeline model); {unit}",
        f"{SHAPE} on quad16: measured (verilator); {unit}",
    ]


def test_slices_of_a_track_do_not_overlap(traced: list[dict[str, Any]]) -> None:
    """What partly overlaps no viewer can show on one track."""
    by_track: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for e in traced:
        if e["ph"] == "X":
            assert e["dur"] >= 0
            by_track[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    assert by_track.keys() == names(traced).keys()
    for spans in by_track.values():
        assert spans == sorted(spans)
        assert all(stop <= start for (_, stop), (start, _) in zip(spans, spans[1:], strict=False))
    assert len(set(names(traced).items())) == len(by_track)


def test_links_and_channels_carry_the_moves(run: FinishedRun, traced: list[dict[str, Any]]) -> None:
    named = names(traced)
    tracks = set(named.values())
    for x, y in ((0, 0), (2, 2)):
        assert f"dram@({x},{y}) channel" in tracks
    assert any(name.startswith("link (0,0) to (1,0)") for name in tracks)
    moves = {number: op for number, op in enumerate(run.schedule.operations) if op.kind == "move"}
    drams = set(run.chip.drams)
    for process in (1, 2):
        seen: dict[str, list[int]] = defaultdict(list)
        for e in traced:
            if e["ph"] == "X" and e["pid"] == process and e["cat"] in ("channel", "link"):
                seen[e["cat"]].append(e["args"]["operation"])
        assert sorted(seen["channel"]) == sorted(
            number for number, op in moves.items() for _ in {op.src.tile, op.dst.tile} & drams
        )
        hops = {
            number: abs(op.src.tile % 16 - op.dst.tile % 16) + abs(op.src.tile // 16 - op.dst.tile // 16)
            for number, op in moves.items()
        }
        assert {number: seen["link"].count(number) for number in moves} == hops


def test_arrows_go_from_producer_to_consumer(run: FinishedRun, traced: list[dict[str, Any]]) -> None:
    needs = Depends(run.schedule.operations, run.chip).data
    for process in (1, 2):
        flows = [e for e in traced if e["pid"] == process and e["ph"] in "sf"]
        begun = {e["id"]: e for e in flows if e["ph"] == "s"}
        ended = {e["id"]: e for e in flows if e["ph"] == "f"}
        assert begun.keys() == ended.keys()
        assert len(begun) == sum(map(len, needs)) > 0
        cycles = {
            (e["tid"], cycle): e["args"].get("operation")
            for e in traced
            if e["ph"] == "X" and e["pid"] == process
            for cycle in range(e["ts"], e["ts"] + e["dur"])
        }
        for key, event in begun.items():
            producer, consumer = (cycles[each["tid"], each["ts"]] for each in (event, ended[key]))
            assert event["ts"] <= ended[key]["ts"]
            assert producer in needs[consumer]


def test_the_command_writes_json_plain_or_compressed(folder: Path, tmp_path: Path) -> None:
    plain, packed = tmp_path / "t.json", tmp_path / "t.json.gz"
    for path in (plain, packed):
        assert invoke(folder, "--trace", path).exit_code == 0
    assert json.loads(gzip.decompress(packed.read_bytes())) == json.loads(plain.read_text())
    again = packed.read_bytes()
    assert invoke(folder, "--trace", packed).exit_code == 0
    assert packed.read_bytes() == again
    nothing = invoke(folder)
    assert nothing.exit_code == 2
    assert "--out run.html" in nothing.output
    assert invoke(folder, "--trace", tmp_path / "none" / "x" / "t.json").exit_code == 0
    assert invoke(folder, "--trace", tmp_path).exit_code == 5
