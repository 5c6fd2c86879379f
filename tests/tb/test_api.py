"""`import meshloom`: chips, workloads, schedules and runs from Python, by the road of the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshloom
from meshloom.hw.spec.config import ConfigError
from meshloom.sched.mapping.emit.task import LayerTask, TaskError
from meshloom.sched.schedulers.interface import Options
from meshloom.sched.schedulers.registry import SchedulerError
from meshloom.sched.workload import catalog
from meshloom.sched.workload.layers import WorkloadError
from meshloom.tb.api import calls
from meshloom.tb.results.events import Stage
from meshloom.tb.results.flat import columns
from meshloom.tb.results.schema import Status, load
from meshloom.tb.runs import runner

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "python.ipynb"
LAYER = "gemm:5x6x7"


class Choice(Options):
    wrong: bool = False


def mine(task: LayerTask, options: Choice) -> None:
    """Everything at once, on the first core; without its bias if `wrong`."""
    core, tile = task.cores[0], task.tiles(task.rows)[0]
    n, k = (0, task.n_blocks), (0, task.k_blocks)
    task.load_bias(core, n, at=0)
    task.load_weights(core, n, k, at=0)
    task.load_input(core, tile, k, at=0)
    if options.wrong:
        raise LookupError("on purpose")
    task.gemm(core, tile, n, k, a=0, b=0, bias=0, sums=0, out=0)
    task.store(core, tile, n, at=0)


def test_a_function_is_called_in_a_process_of_its_own_unless_that_is_not_wished() -> None:
    here: list[LayerTask] = []

    def remember(task: LayerTask) -> None:
        here.append(task)

    choices: tuple[dict[str, Any], ...] = ({}, {"apart": False})
    for apart in choices:
        with pytest.raises(TaskError, match="has added no operation"):
            calls.schedule("gemm:4x4x4", "tiny", remember, **apart)
        assert len(here) == len(apart)


def test_importing_it_imports_nothing_else() -> None:
    code = "import meshloom, sys; print(*[name for name in sys.modules if name.startswith(('meshloom.', 'pydantic'))])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""
    assert set(meshloom.__all__) <= set(dir(meshloom))
    with pytest.raises(AttributeError, match="has no attribute 'shedule'"):
        attrgetter("shedule")(meshloom)


def test_chips_with_other_fields() -> None:
    tiny = meshloom.load_chip("tiny")
    assert meshloom.load_chip(tiny) is tiny
    other = meshloom.load_chip("tiny", {"core.a_words": 512, "lanes": 8})
    assert (other.core.a_words, other.lanes, other.rows, other.cols) == (512, 8, 8, 8)
    assert other.digest != tiny.digest
    with pytest.raises(ConfigError, match=r"core\.b_word: there is no such field; .*b_words"):
        meshloom.load_chip("tiny", {"core.b_word": 512})
    with pytest.raises(ConfigError, match="there is no table name; fields are named"):
        meshloom.load_chip("tiny", {"name.words": 512})
    with pytest.raises(ConfigError, match="lanes = 12 must be a power of two"):
        meshloom.load_chip("tiny", {"lanes": 12})


def test_workloads_by_numbers_have_the_names_of_the_command_line() -> None:
    assert meshloom.Workload.gemm(5, 6, 7) == meshloom.Workload.of("gemm:5x6x7")
    conv = meshloom.Workload.conv(6, 5, 9, 5, kernel=(3, 2), stride=(2, 1), padding=(1, 0), relu=True, clamp=90)
    assert conv.name == "conv:6x5x9-5,k3x2,s2x1,p1x0,relu,clamp90"
    network = meshloom.Workload.network("resnet8", inputs=["cat.png"])
    assert network.layers()[0].name == "resnet8/conv1"
    with pytest.raises(WorkloadError, match="unknown workload 'resnet9'"):
        meshloom.Workload.of("resnet9")
    with pytest.raises(WorkloadError, match="is no network"):
        meshloom.Workload.network("resnet8/conv1")
    with pytest.raises(WorkloadError, match="only schedules and programs compute something else"):
        meshloom.Workload.of("resnet8", "vgg16")


def test_numbers_of_numpy_are_numbers() -> None:
    eight: Any = np.int64(8)
    assert meshloom.Workload.gemm(eight, eight, eight).name == "gemm:8x8x8"
    assert meshloom.Workload.conv(eight, eight, eight, eight, kernel=(eight, 1)).name == "conv:8x8x8-8,k8x1"
    assert meshloom.load_chip("tiny", {"core.a_words": np.int32(64)}).core.a_words == 64
    by = meshloom.schedule(LAYER, "tiny", options={"effort": np.float64(0.5)})
    assert by == meshloom.schedule(LAYER, "tiny", options={"effort": 0.5})


def test_a_convolution_has_padding_on_each_side() -> None:
    conv: Any = meshloom.Workload.conv
    assert conv(8, 8, 3, 4, kernel=3, padding=(1, 0, 2, 1)).name == "conv:8x8x3-4,k3,p1x0x2x1"
    for wrong in ((1, 0, 2), (1,)):
        with pytest.raises(
            WorkloadError, match=r"padding = .* must be a number, .rows, columns. or .top, left, bottom"
        ):
            conv(8, 8, 3, 4, kernel=3, padding=wrong)
    with pytest.raises(WorkloadError, match=r"kernel = .* must be a number, .rows, columns.$"):
        conv(8, 8, 3, 4, kernel=(1, 2, 3, 4))


def test_a_network_takes_the_options_of_the_command_line() -> None:
    three: Any = np.int64(3)
    source: Any = meshloom.Workload.network("a.onnx", bind={"n": three}, ranges="percentile:99", seed=4).source
    assert (source.bind, source.ranges, source.seed) == ((("n", 3),), "percentile:99", 4)
    with pytest.raises(ValueError, match="calibration 'middle'"):
        meshloom.Workload.network("a.onnx", ranges="middle")


def test_limits_and_numbers_of_processes_are_looked_at() -> None:
    wrong: Any
    for wrong in (-1, float("nan"), "5"):
        with pytest.raises(ValueError, match=r"time_limit = .* must be a number, 0 or more; 0 is no limit"):
            meshloom.schedule(LAYER, "tiny", mine, time_limit=wrong)
    for wrong in (0, -1, "2"):
        with pytest.raises(ValueError, match=r"jobs = .* must be a whole number, 1 or more; None is one for each CPU"):
            meshloom.run(LAYER, "tiny", jobs=wrong)
        with pytest.raises(ValueError, match=r"jobs = .* must be a whole number, 1 or more"):
            meshloom.sweep({"name": "x", "chips": ["tiny"], "workloads": [LAYER]}, jobs=wrong)


def test_changes_and_options_are_by_name() -> None:
    wrong: Any
    for wrong in ([("core.a_words", 64)], {3: 64}, 5):
        with pytest.raises(ConfigError, match="changes of tiny must be values by name of field, as in"):
            meshloom.load_chip("tiny", wrong)
        with pytest.raises(SchedulerError, match="options must be values by name, as in"):
            meshloom.schedule(LAYER, "tiny", options=wrong)


def test_files_are_named_one_or_several() -> None:
    one, two = Path("a.png"), Path("b.npy")
    for inputs, files in (("a.png", (one,)), (one, (one,)), (["a.png", two], (one, two)), ((), ())):
        source: Any = meshloom.Workload.network("resnet8", inputs=inputs, calibration=inputs).source
        assert (source.inputs, source.calibration) == (files, files)
    array: Any = np.zeros((1, 3, 32, 32), np.uint8)
    wrong: Any
    for wrong, what in ((array, "ndarray"), ([array], "ndarray"), (3, "int"), (None, "NoneType")):
        with pytest.raises(ValueError, match=f"inputs: a {what} is no file; give the names of files"):
            meshloom.Workload.network("resnet8", inputs=wrong)


def test_chips_are_one() -> None:
    chips: Any = ["tiny", "quad8"]
    with pytest.raises(ValueError, match="a list is no chip; give one: a built-in name"):
        meshloom.run(["gemm:8x8x8"], chips)


def test_a_schedule_is_the_one_of_the_command_line() -> None:
    schedule = meshloom.schedule(LAYER, "tiny")
    assert schedule == runner.prepare(catalog.find(LAYER)[0], meshloom.load_chip("tiny"), "loop_order").schedule
    assert meshloom.schedule(LAYER, "tiny", options={"effort": 0.5}).scheduler.startswith("loop_order")
    with pytest.raises(SchedulerError, match="effort is given twice"):
        meshloom.schedule(LAYER, "tiny", "loop_order:effort=0.5", {"effort": 1})
    with pytest.raises(WorkloadError, match=r"is 10 layers; schedule each"):
        meshloom.schedule("resnet8/*")
    with pytest.raises(WorkloadError, match="is a schedule or a program already"):
        meshloom.schedule(meshloom.Workload.of(schedule), "tiny")
    number: Any = 3
    with pytest.raises(SchedulerError, match=r"^scheduler int is of type int; it must be a Scheduler, or a function"):
        meshloom.schedule(LAYER, "tiny", number)


def test_a_function_is_a_scheduler() -> None:
    assert meshloom.schedule(LAYER, "tiny", mine).scheduler == "mine"
    with pytest.raises(SchedulerError, match="scheduler mine failed on gemm:5x6x7: LookupError: on purpose"):
        meshloom.schedule(LAYER, "tiny", mine, {"wrong": True})
    with pytest.raises(SchedulerError, match="scheduler mine has no option 'wong' for layers; did you mean wrong"):
        meshloom.schedule(LAYER, "tiny", mine, {"wong": True})


def test_schedules_and_workloads_run_together_and_a_failure_is_a_row(tmp_path: Path) -> None:
    schedule = meshloom.schedule(LAYER, "tiny", mine)
    values: list[object] = []
    result = meshloom.run(
        [schedule, LAYER, "gemm:8x8x4000"], "tiny", lambda task: mine(task, Choice()), on_event=values.append
    )
    assert [row.status for row in result.rows] == [Status.PASSED, Status.PASSED, Status.FAILED]
    assert result.rows[0].scheduler == "mine"
    kept = [row.artefacts for row in result.rows]
    assert all(kept[:2])
    assert kept[2] is None
    assert schedule.predicted is not None
    assert result.rows[0].rtl_cycles == result.rows[1].rtl_cycles == schedule.predicted.cycles
    assert not result.ok
    assert len(result.reasons) == 1
    estimates = [row.energy for row in result.rows]
    assert estimates[0] is not None
    assert estimates[0] == estimates[1]
    assert (estimates[0].table, estimates[0].parts["products"].count, estimates[2]) == ("45 nm", 5 * 6 * 7, None)
    assert any(isinstance(each, Stage) for each in values)
    assert "gemm:8x8x4000 on tiny: failed" in repr(result)
    frame = result.frame()
    assert frame.columns == list(columns())
    assert frame["status"].to_list() == ["passed", "passed", "failed"]
    result.save(tmp_path / "found.json")
    assert load(tmp_path / "found.json") == result.results
    with pytest.raises(ValueError, match="was made for chip tiny"):
        meshloom.run(schedule, "quad16")


@pytest.mark.slow
def test_a_schedule_that_does_not_say_what_it_computes() -> None:
    anonymous = meshloom.schedule(LAYER, "tiny").model_copy(update={"workload": ""})
    assert meshloom.run(anonymous, "tiny", computes=LAYER).row.status is Status.PASSED
    assert meshloom.run(anonymous, "tiny").row.status is Status.UNCHECKED


@pytest.mark.slow
def test_a_whole_network_as_a_schedule() -> None:
    schedule = meshloom.schedule("resnet8")
    result = meshloom.run(schedule)
    assert result.ok
    assert schedule.predicted is not None
    assert result.row.rtl_cycles == schedule.predicted.cycles
    assert result.row.network is not None
    assert result.row.network.answer == "cat"


@pytest.mark.slow
def test_the_notebook_prints_what_it_shows(tmp_path: Path) -> None:
    """Each cell of code, in a process of its own, with a mark after each; in no file, as in a notebook."""
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    mark = "--- end of the cell ---"
    text = f"\nprint({mark!r})\n".join("".join(cell["source"]) for cell in cells)
    ran = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    shown = ["".join("".join(output["text"]) for output in cell["outputs"]) for cell in cells]
    assert [text.strip() for text in ran.stdout.split(mark)] == [text.strip() for text in shown]
