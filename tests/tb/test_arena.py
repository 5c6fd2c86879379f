"""The arena: entries of ours and of others on one board, those that fail among them, and the bound beside them."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import product
from pathlib import Path

import pytest
from rich.console import Console

from meshloom.hw.spec.config import ConfigError, load
from meshloom.sched.workload.layers import ConvShape
from meshloom.sched.workload.shapes import parse
from meshloom.tb.compare.floors import floor_of, layer_floor
from meshloom.tb.report.arena import arena_page, print_board
from meshloom.tb.results.arena import ArenaBoard, ArenaChip, Heat, Score, standings_of
from meshloom.tb.results.sweep import PointRow
from meshloom.tb.runs.sweeps import arena, cluster
from meshloom.tb.runs.sweeps.entries import mapping_of
from meshloom.tb.runs.sweeps.evaluate import Batch, Done, evaluate

from .command_line import invoke

ROOT = Path(__file__).parents[2]
GEMM = ROOT / "examples" / "mappings" / "zigzag" / "tiny" / "gemm_32x32x32_complete.json"
MAP = ROOT / "examples" / "mappings" / "timeloop" / "tiny" / "gemm_32x32x32.map.yaml"
BOARD = ("arena", "--predict", "--chip", "tiny", "--workload", "gemm:32x32x32", "--jobs", "1")
OURS = "loop_order:effort=0.01"
#: A layer at a time on one core.
MINE = """
def schedule(task):
    core = task.cores[0]
    for tile in task.tiles(task.rows):
        for n in range(task.n_blocks):
            k = (0, task.k_blocks)
            task.load_bias(core, (n, n + 1), at=0)
            task.load_weights(core, (n, n + 1), k, at=0)
            task.load_input(core, tile, k, at=0)
            task.gemm(core, tile, (n, n + 1), k, a=0, b=0, bias=0, sums=0, out=0)
            task.store(core, tile, (n, n + 1), at=0)
"""
#: An importer of anybody's that ends its process.
READER = """
import os
from meshloom.tb.exchange.interface import Importer
READER = Importer("mine", "an example", lambda path, shape: os._exit(3))
"""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are done in this process, without a cluster."""

    def run(client: object, batches: Sequence[Batch], on_done: Callable[[Done], None]) -> None:
        for each in batches:
            on_done(Done.model_validate_json(evaluate(each.model_dump_json())))

    monkeypatch.setattr(cluster, "opened", lambda jobs, address: nullcontext())
    monkeypatch.setattr(cluster, "workers", lambda client: 1)
    monkeypatch.setattr(cluster, "run", run)


# -- the bound --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["conv:7x9x5-6,k3,s2,p1", "conv:8x8x4-4,k3,p2,d2", "conv:6x6x3-4,k1,s2", "gemm:5x6x7"])
def test_products_and_bytes_are_those_without_padding(name: str) -> None:
    shape, chip = parse(name), load("tiny")
    reads = list(_reads(shape))
    carried = len(set(reads)) + shape.out_channels * shape.depth + shape.out_channels * shape.out_h * shape.out_w
    compute = len(reads) * shape.out_channels / (chip.rows * chip.cols * len(chip.cores))
    assert layer_floor(shape, chip) == -(-max(compute, carried / (len(chip.drams) * chip.dram.bytes_per_cycle)) // 1)


def _reads(shape: ConvShape) -> list[tuple[int, int, int]]:
    """Channel, row and column of the input that each product of one filter reads."""
    reads: list[tuple[int, int, int]] = []
    sizes = (shape.out_h, shape.out_w, shape.kernel_h, shape.kernel_w, shape.in_channels)
    for oy, ox, fy, fx, channel in product(*map(range, sizes)):
        y = oy * shape.stride_h + fy * shape.dilation - shape.pad_top
        x = ox * shape.stride_w + fx * shape.dilation - shape.pad_left
        if 0 <= y < shape.in_h and 0 <= x < shape.in_w:
            reads.append((channel, y, x))
    return reads


def test_no_run_of_ours_took_less() -> None:
    """Of all rows of the regression and of the referee, networks among them."""
    seen = 0
    for study in ("regression", "referee", "networks"):
        for line in (ROOT / "docs" / "results" / "rows" / f"{study}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line).get("row")
            if not isinstance(row, dict) or not row.get("rtl_cycles"):
                continue
            try:
                floor = floor_of(row["workload"], load(row["chip"]))
            except ConfigError:  # a chip of that study alone
                continue
            assert floor is None or floor <= row["rtl_cycles"], row["workload"]
            seen += floor is not None
    assert seen > 50


def test_a_workload_that_only_a_file_knows_has_none() -> None:
    assert floor_of("gradient:bert/qkv", load("tiny")) is None
    assert floor_of("resnet8", load("quad8")) is not None


# -- entries ----------------------------------------------------------------------------------------------------------


def test_a_mapping_is_told_from_a_scheduler_of_the_same_name(tmp_path: Path) -> None:
    assert mapping_of("zigzag") is None
    assert mapping_of("zigzag:rounds=3") is None
    assert mapping_of("loop_order:x") is None
    source = mapping_of(f"zigzag:{GEMM}")
    assert source is not None
    assert (source.importer, source.path) == ("zigzag", GEMM)
    assert mapping_of("my.py:schedule") is None
    own = mapping_of("my.py:READER:a.json")
    assert own is not None
    assert own.importer == "my.py:READER"
    (tmp_path / "a=b.json").write_text("")
    assert mapping_of(f"zigzag:{tmp_path}/a=b.json") is not None


def test_the_board_has_everyone_and_the_next_call_makes_nothing_anew(here: None, folder: Path) -> None:
    (folder / "my.py").write_text(MINE)
    (folder / "crashes.py").write_text("import os\nos._exit(3)\n")
    (folder / "reads.py").write_text(READER)
    names = (OURS, "my.py:schedule", "crashes.py:schedule", f"zigzag:{GEMM}", "reads.py:READER:a")
    command = [*BOARD, *(word for name in names for word in ("--entry", name))]
    shown = invoke(*command, "--json", "b.json", "--out", "b.html")
    assert shown.exit_code == 3, shown.output
    board = ArenaBoard.model_validate_json((folder / "b.json").read_text())
    (heat,) = board.heats
    scores = {score.entry: score for score in heat.scores}
    assert set(scores) == set(names)
    assert heat.floor_cycles == 2048
    assert [score.entry for score in heat.scores if score.cycles is None] == sorted(
        name for name in names if name.startswith(("crashes", "reads"))
    )
    assert "ended its process with exit status 3" in scores["crashes.py:schedule"].reason
    assert "ended its process with exit status 3" in scores["reads.py:READER:a"].reason
    assert scores[f"zigzag:{GEMM}"].claimed_cycles == 2306
    assert (heat.fewest_cycles or 0) > 2048
    assert "crashes.py:schedule failed (gemm:32x32x32 on tiny)" in shown.output
    page = (folder / "b.html").read_text()
    assert load("tiny").digest in page
    assert "meshloom arena --entry loop_order:effort=0.01 --entry my.py:schedule" in page
    again = invoke(*shlex.split(board.command)[1:], "--json", "c.json")
    assert "arena: 3 points, 3 are there" in again.output
    assert ArenaBoard.model_validate_json((folder / "c.json").read_text()) == board


def test_whatever_an_entry_does_is_its_row_and_the_others_go_on(here: None, folder: Path) -> None:
    """One eats memory, one does nothing, one prints garbage, one forgets the result, one importer has a bug."""
    (folder / "eats.py").write_text("def schedule(task):\n    bytearray(1 << 40)\n")
    (folder / "garbage.py").write_text(MINE.replace("for tile", "return 'garbage'\n    for tile"))
    (folder / "prints.py").write_text("print('{garbage')\n" + MINE.replace("core = ", "print('{')\n    core = "))
    (folder / "forgets.py").write_text(MINE.replace("task.store(core, tile, (n, n + 1), at=0)", "pass"))
    (folder / "other.py").write_text(READER.replace("os._exit(3)", "{}['nothing']"))
    names = (
        "eats.py:schedule",
        "garbage.py:schedule",
        "prints.py:schedule",
        "forgets.py:schedule",
        "other.py:READER:a",
    )
    command = [*BOARD, *(word for name in (OURS, *names) for word in ("--entry", name))]
    shown = invoke(*command, "--memory-limit", "300", "--json", "b.json")
    assert shown.exit_code == 3, shown.output
    (heat,) = ArenaBoard.model_validate_json((folder / "b.json").read_text()).heats
    reasons = {score.entry: score.reason for score in heat.scores}
    assert reasons[OURS] == reasons["prints.py:schedule"] == ""
    assert "needs more memory than 300 MB (--memory-limit)" in reasons["eats.py:schedule"]
    assert "the scheduler has added no operation" in reasons["garbage.py:schedule"]
    assert reasons["forgets.py:schedule"].startswith("the program has 1 problem: program: output y, channels 0..3")
    assert "importer other.py:READER failed: KeyError: 'nothing' (line" in reasons["other.py:READER:a"]
    assert [name for name, reason in reasons.items() if "\n" in reason] == []


def test_what_nobody_named_and_can_do_nothing_is_left_out(
    here: None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dtt` needs a controller, which tiny has not."""
    monkeypatch.setattr("meshloom.tb.runs.sweeps.arena.shipped_entries", lambda: ("dtt", OURS))
    shown = invoke(*BOARD, "--json", "b.json")
    assert shown.exit_code == 0, shown.output
    assert [each.entry for each in ArenaBoard.model_validate_json((folder / "b.json").read_text()).standings] == [OURS]
    named = invoke(*BOARD, "--entry", "dtt", "--entry", OURS)
    assert named.exit_code == 3
    assert "dtt failed (gemm:32x32x32 on tiny): " in named.output


def test_a_mapping_by_an_importer_of_anybodys_takes_part(here: None, folder: Path) -> None:
    (folder / "mine.py").write_text(
        "from meshloom.tb.exchange.interface import Importer\nfrom meshloom.tb.exchange.timeloop import read\n"
        "READER = Importer('mine', 'an example', read)\n"
    )
    entry = f"mine.py:READER:{MAP}"
    shown = invoke(*BOARD, "--workload", "gemm:8x8x8", "--entry", entry, "--json", "b.json")
    assert shown.exit_code == 0, shown.output
    (heat,) = ArenaBoard.model_validate_json((folder / "b.json").read_text()).heats
    assert (heat.workload, [score.entry for score in heat.scores]) == ("gemm:32x32x32", [entry])
    assert (heat.fewest_cycles or 0) > 2048


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--entry", "loop_ordr"), "unknown scheduler 'loop_ordr'"),
        (("--entry", "loop_order:efort=1"), "has no option 'efort' for layers; did you mean effort?"),
        (("--entry", "nobody.py:schedule"), "there is no file nobody.py"),
        (("--entry", "zigzag:nobody.json"), "nobody.json: No such file or directory"),
        (("--entry", f"zigzag:{GEMM}", "--workload", "gemm:8x8x8"), "is not given"),
        (("--entry", OURS, "--entry", OURS), "is given 2 times"),
        (("--workload", f"zigzag:{GEMM}"), "a mapping is an entry: --entry"),
    ],
)
def test_bad_requests_are_one_line_and_nothing_runs(more: tuple[str, ...], says: str, folder: Path) -> None:
    command = BOARD if says != "is not given" else ("arena", "--predict", "--chip", "tiny")
    says = "is of none of the layers of the board" if says == "is not given" else says
    shown = invoke(*command, *more)
    assert shown.exit_code == 2, shown.output
    assert says in " ".join(shown.output.replace("│", " ").split())
    assert not (folder / "sim_build").exists()


def test_whoever_is_below_the_bound_does_not_win() -> None:
    lineup = arena.Lineup((OURS, "cheat"), ("gemm:32x32x32",), ("tiny",), None)
    planned = arena.plan(arena.Lineup((OURS,), lineup.workloads, lineup.chips, None))
    (key,) = [each.key for each in planned.points]
    common = {"key": key, "chip": "tiny", "workload": "gemm:32x32x32", "measure": "model", "status": "predicted"}
    rows = [PointRow.model_validate({**common, "scheduler": by, "cycles": n}) for by, n in ((OURS, 2600), ("cheat", 9))]
    (heat,) = arena.board(lineup, planned, rows, "c").heats
    assert [(score.entry, score.cycles) for score in heat.scores] == [(OURS, 2600), ("cheat", None)]
    assert heat.scores[1].reason.startswith("9 cycles are fewer than the bound")


def test_standings_are_by_heats_that_were_won() -> None:
    def heat(chip: str, **cycles: int | None) -> Heat:
        scores = (Score(entry=name, status="passed", cycles=each) for name, each in cycles.items())
        return Heat(workload="w", chip=chip, floor_cycles=50, scores=tuple(scores))

    heats = heat("a", x=100, y=400, z=None), heat("b", x=100, y=100, z=10)
    standings = standings_of(heats)
    assert [(each.entry, each.wins, each.failed) for each in standings] == [("x", 1, 0), ("y", 0, 0), ("z", 1, 1)]
    assert standings[0].behind == pytest.approx(10**0.5)
    assert heats[0].above_floor(heats[0].scores[1]) == 8.0


def test_a_board_on_the_terminal_and_as_a_page() -> None:
    fast = Score(entry="x", status="passed", cycles=1000, seconds=0.25, claimed_cycles=900)
    slow, lost = Score(entry="y", status="passed", cycles=1500), Score(entry="z", status="failed", reason="no room")
    heats = tuple(Heat(workload=name, chip="a", floor_cycles=800, scores=(fast, slow, lost)) for name in ("v", "w"))
    chips = (ArenaChip(name="a", digest="0" * 8),)
    board = ArenaBoard(
        measure="model", command="meshloom arena", code="c", chips=chips, heats=heats, standings=standings_of(heats)
    )
    output = io.StringIO()
    print_board(board, Console(file=output, width=160))
    lines = [" ".join(line.replace("│", " ").split()) for line in output.getvalue().splitlines()]
    scores = ["x 1,000 1.000 1.250 900 0.25", "y 1,500 1.500 1.875 - -", "z failed - - - -"]
    assert [line for line in lines if " on a " in line and "failed (" not in line] == [
        f"{name} on a {score}" for name in "vw" for score in scores
    ]
    assert [line for line in lines if line[:2] in ("x ", "y ", "z ")] == [
        "x 2 2 0 1.000", "y 2 0 0 1.500", "z 2 0 2 -", "z failed (v on a and 1 more): no room",
    ]  # fmt: skip
    page = arena_page(board)
    for text in ("Arena: 3 entries, 2 heats, by the timeline model", "v, no schedule takes fewer than 800 cycles",
                 "z failed (v on a and 1 more): no room", "meshloom arena"):  # fmt: skip
        assert text in page
    assert page.count(">1.875<") == 2
    assert '"height":240' in page.replace(" ", "")
    assert '"height":594' in arena_page(board.model_copy(update={"heats": heats * 6})).replace(" ", "")


@pytest.mark.slow
def test_an_entry_that_hangs_is_a_row(here: None, folder: Path) -> None:
    (folder / "hangs.py").write_text("def schedule(task):\n    while True:\n        pass\n")
    names = ("--entry", OURS, "--entry", "hangs.py:schedule")
    shown = invoke(*BOARD, *names, "--time-limit", "1", "--json", "b.json")
    assert shown.exit_code == 3, shown.output
    (heat,) = ArenaBoard.model_validate_json((folder / "b.json").read_text()).heats
    assert [score.entry for score in heat.scores] == [OURS, "hangs.py:schedule"]
    assert "no result within 1 seconds" in heat.scores[1].reason


@pytest.mark.slow
def test_a_board_on_the_rtl(folder: Path) -> None:
    shown = invoke(
        "arena", "--chip", "tiny", "--workload", "gemm:32x32x32", "--entry", OURS, "--entry", f"zigzag:{GEMM}",
        "--jobs", "1", "--json", "b.json",
    )  # fmt: skip
    assert shown.exit_code == 0, shown.output
    board = ArenaBoard.model_validate_json((folder / "b.json").read_text())
    assert board.measure == "verilator"
    assert {score.status for score in board.heats[0].scores} == {"passed"}
