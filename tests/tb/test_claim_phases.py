"""Two timelines on a page: the claimed one, and that of the run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np

from meshloom.sched.ir.schedule import ClaimPhase, ClaimTransfer, ToolClaim
from meshloom.tb.report.claim_phases import claim_figures, claim_table, moves, phases, transfer_table
from meshloom.tb.results.tracks import RunTimeline, Slices, Track

from .command_line import invoke

MAPPINGS = Path(__file__).parents[2] / "examples" / "mappings"
GEMM = MAPPINGS / "zigzag" / "tiny" / "gemm_32x32x32_complete.json"
STREAM = MAPPINGS / "stream" / "quad8" / "resnet8_conv3_1_2" / "mapping.yaml"


def slices(*each: tuple[int, int, int]) -> Slices:
    track, start, end = (
        (np.array(column, dtype=np.int64) for column in zip(*each, strict=True))
        if each
        else [np.zeros(0, np.int64)] * 3
    )
    return Slices(track, start, end, np.zeros_like(track), np.zeros_like(track))


def timeline(planned: Slices, measured: Slices) -> RunTimeline:
    tracks = [Track("mover of core", "mover", 0), Track("array of core", "matrix", 0)]
    return RunTimeline(tracks, ["GEMM"], ["a"], [0], ["l"], planned, measured)


PLANNED = slices((0, 0, 40), (1, 30, 80))
MEASURED = slices((0, 0, 40), (1, 32, 50), (1, 60, 90), (0, 90, 120))


def test_phases_are_about_the_first_and_the_last_gemm() -> None:
    assert phases(timeline(PLANNED, MEASURED), 120) == {"onload": 32, "compute": 58, "offload": 30}
    assert phases(timeline(PLANNED, slices()), 100) == {"onload": 30, "compute": 50, "offload": 20}
    assert phases(timeline(slices((0, 0, 40)), slices()), 40) == {"onload": 40, "compute": 0, "offload": 0}


def test_a_claim_of_phases_and_one_of_a_sum_stand_beside_the_run() -> None:
    parts = (("onload", 16), ("compute", 58), ("offload", 10))
    claim = ToolClaim(
        tool="t", cycles=84, phases=tuple(ClaimPhase.model_validate({"name": n, "cycles": c}) for n, c in parts)
    )
    text = claim_table(claim, timeline(PLANNED, MEASURED), 120)
    assert re.findall(r"<td class='number'>([^<]*)</td>", text) == [
        "16", "32", "+16", "+100.0 %", "58", "58", "+0", "+0.0 %", "10", "30", "+20", "+200.0 %",
        "84", "120", "+36", "+42.9 %",
    ]  # fmt: skip
    (drawn,) = claim_figures(claim, timeline(PLANNED, MEASURED), 120, "w0-")
    assert drawn["id"] == "w0-claim"
    assert [bar["x"] for bar in drawn["data"]] == [[16, 32], [58, 58], [10, 30]]
    (whole,) = claim_figures(ToolClaim(tool="t", cycles=84), timeline(PLANNED, MEASURED), 120, "")
    assert [bar["x"] for bar in whole["data"]] == [[0, 32], [0, 58], [0, 30], [84, 0]]
    assert claim_figures(ToolClaim(tool="t"), timeline(PLANNED, MEASURED), 120, "") == []


def test_transfers_stand_beside_the_moves_of_their_tensor() -> None:
    """Two MOVEs of x, one of w, none of y; the request of a MOVE on another track is none."""
    track, operation = np.array([0, 0, 0, 2, 1]), np.array([0, 1, 2, 0, 3])
    start, end = np.array([5, 20, 50, 1, 60]), np.array([15, 40, 57, 4, 90])
    measured = Slices(track, start, end, np.zeros_like(track), operation)
    tracks = [Track("mover", "mover", 0), Track("array", "matrix", 0), Track("front", "front end", 0)]
    run = RunTimeline(tracks, ["MOVE"], ["x i0", "x i1", "w n0", "x"], [0] * 4, ["l"], slices(), measured)
    assert moves(run, "x") == (5, 2, 15.0)
    assert moves(run, "w") == (50, 1, 7.0)
    assert moves(run, "y") is None
    transfers = [ClaimTransfer(tensor=name, begin=2, cycles=8, bytes=1024) for name in ("x", "y")]
    text = transfer_table(ToolClaim(tool="t", cycles=84, transfers=tuple(transfers)), run)
    assert re.findall(r"<td class='number'>([^<]*)</td>", text) == [
        "2", "1,024", "8", "5", "2", "15.0", "2", "1,024", "8", "-", "-", "-",
    ]  # fmt: skip
    assert "A transfer of t goes to all cores that need it" in text
    assert transfer_table(ToolClaim(tool="t", cycles=84), run) == ""


def test_a_page_of_a_mapping_of_stream_has_its_transfers(folder: Path) -> None:
    assert invoke(
        "import", "stream", STREAM, "--chip", "quad8", "--workload", "resnet8/conv3_1_2", "--out", "s.json"
    ).exit_code == 0  # fmt: skip
    assert invoke("report", "s.json", "--out", "page.html").exit_code == 0
    text = (folder / "page.html").read_text()
    assert "claimed: cycles of one" in text
    assert "A transfer of stream-dse goes to all cores" in text


def test_the_page_of_a_mapping_has_both(folder: Path) -> None:
    assert invoke("import", "zigzag", GEMM, "--chip", "tiny", "--out", "s.json").exit_code == 0
    shown = invoke("report", "s.json", "--out", "page.html")
    assert shown.exit_code == 0, shown.output
    text = (folder / "page.html").read_text()
    assert "What zigzag-dse claims" in text
    assert "before the first GEMM" in text
    embedded = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert embedded is not None
    (one,) = json.loads(embedded[1])
    (claim,) = [each for each in one["figures"] if each["id"] == "w0-claim"]
    assert [bar["x"][0] for bar in claim["data"]] == [256, 2048, 2]
    assert invoke("schedule", "gemm:8x8x8", "--chip", "tiny", "--out", "o.json").exit_code == 0
    assert invoke("report", "o.json", "--out", "other.html").exit_code == 0
    assert "before the first GEMM" not in (folder / "other.html").read_text()
