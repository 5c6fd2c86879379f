"""What the checker says to the author of a scheduler: the line that added an operation, in the tutorial's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.checker.problems import CheckError
from meshloom.sched.ir.schedule import Schedule, ScheduleError
from meshloom.sched.lowering.programs import planned
from meshloom.sched.mapping.emit.task import TaskError
from meshloom.sched.schedulers import registry
from meshloom.sched.workload.shapes import parse

from ..schedulers.network.test_networks import every_kind

AUTHOR = """
def whole(task): add(task)

def add(task, skip="", at=0, bias=0):
    core, tile = task.cores[0], task.tiles(task.rows)[0]
    n, k = (0, task.n_blocks), (0, task.k_blocks)
    task.load_bias(core, n, at=0)  # bias
    if skip != "weights":
        task.load_weights(core, n, k, at=0)
    task.load_input(core, tile, k, at=at)
    task.gemm(core, tile, n, k, a=0, b=0, bias=bias, sums=0, out=0)  # gemm
    if skip != "store":
        task.store(core, tile, n, at=0)  # store

def no_weights(task): add(task, "weights")
def no_store(task): add(task, "store")
def misplaced(task): add(task, at=7)
def negative(task): task.load_bias(task.cores[0], (0, 1), at=-4)  # negative
def no_bias(task): add(task, bias=2)

def tiled(task):
    for tile in task.tiles(1, 4):
        for n in range(task.n_blocks):
            for k in range(task.k_blocks):
                blocks = (n, n + 1), (k, k + 1)
                task.load_bias(task.cores[0], blocks[0], at=0)
                task.load_weights(task.cores[0], *blocks, at=0)
                task.load_input(task.cores[0], tile, blocks[1], at=0)
                task.gemm(task.cores[0], tile, *blocks, a=0, b=0, bias=0, sums=1, out=0)  # tiled
            task.store(task.cores[0], tile, (n, n + 1), at=0)
"""
LINES = AUTHOR.splitlines()


def line_of(words: str) -> str:
    number = next(number for number, line in enumerate(LINES, 1) if line.endswith(f"# {words}"))
    return f"line {number} of first.py"


@pytest.fixture
def author(tmp_path: Path) -> Path:
    path = tmp_path / "first.py"
    path.write_text(AUTHOR, encoding="utf-8")
    return path


def refusal(author: Path, name: str, layer: str = "gemm:8x8x8") -> str:
    chip = load("tiny")
    with pytest.raises(CheckError) as refused:
        planned(registry.find(f"{author}:{name}")(parse(layer), chip), chip)
    return str(refused.value)


def test_an_operation_has_the_line_that_added_it(author: Path) -> None:
    text = refusal(author, "no_weights")
    assert f'(operation 2 "i0 y0 x0 n0 k0", {line_of("gemm")}): reads core@(1,0) B words 0..15' in text
    assert "i0 y0 x0 n0 k0 names a tile by what it begins with: image, row, column, block of output channels" in text


def test_memories_have_the_names_of_the_tutorial(author: Path) -> None:
    assert "reads core@(1,0) A words 0..6, which nothing has written" in refusal(author, "misplaced")
    assert "reads core@(1,0) ACC rows 2..3, which nothing has written" in refusal(author, "no_bias")


def test_a_hole_in_the_result_is_named_by_channels_row_and_column(author: Path) -> None:
    text = refusal(author, "no_store")
    assert "output y, channels 0..3, row 0, column 0 (dram@(0,0) word 16) is never written, nor are 15 others" in text
    assert "names a tile" not in text, "no label is in need of it"
    assert "output y, channel 0, row 0, column 0" in refusal(author, "no_store", "gemm:8x1x8")
    assert "output y, channels 0..1, row 0, column 0" in refusal(author, "no_store", "gemm:8x2x8")


def test_an_operation_that_the_layer_does_not_have_has_its_line_too(author: Path) -> None:
    with pytest.raises(TaskError, match=r"ACC has no word -4; its words are 0\.\.1023 \(line \d+ of first\.py\)$") as e:
        registry.find(f"{author}:negative")(parse("gemm:8x8x8"), load("tiny"))
    assert line_of("negative") in str(e.value)


@pytest.mark.slow
def test_lines_are_saved_with_a_schedule_and_in_networks_follow_their_operations(author: Path, tmp_path: Path) -> None:
    schedule = registry.find(f"{author}:whole")(parse("gemm:8x8x8"), load("tiny"))
    assert schedule.sites is not None
    assert (schedule.sites[0], schedule.sites[-1]) == (line_of("bias"), line_of("store"))
    schedule.save(tmp_path / "s.json")
    assert Schedule.load(tmp_path / "s.json").sites == schedule.sites
    network = registry.find_network(f"{author}:tiled")(every_kind(), load("quad8"), None).schedule
    pairs = list(zip(network.operations, network.sites or (), strict=True))
    sites = {kind: {site for operation, site in pairs if operation.kind == kind} for kind in ("gemm", "vec")}
    assert sites == {"gemm": {line_of("tiled")}, "vec": {""}}, "what no author has added has no line"


@pytest.mark.slow
def test_lines_are_of_all_operations_or_none(author: Path, tmp_path: Path) -> None:
    schedule = registry.find(f"{author}:whole")(parse("gemm:8x8x8"), load("tiny"))
    path = tmp_path / "s.json"
    schedule.model_copy(update={"sites": ("line 1 of x.py",)}).save(path)
    with pytest.raises(ScheduleError, match="sites has 1 entries for 5 operations; give one for each, or none"):
        Schedule.load(path)
    shipped = registry.find("loop_order")(parse("gemm:8x8x8"), load("tiny"))
    assert shipped.sites is None
    assert "sites" not in shipped.model_dump(exclude_none=True)
