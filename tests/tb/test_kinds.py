"""What a workload can be: every way in takes every kind, and a kind from outside is one file."""

from __future__ import annotations

import re
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import meshloom
from meshloom.hw.spec.config import load
from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.lowering.predict import Lowered
from meshloom.sched.schedulers.registry import SchedulerError
from meshloom.sched.workload import catalog
from meshloom.sched.workload.layers import WorkloadError
from meshloom.tb.cli.main import app
from meshloom.tb.results.sweep import SweepFile
from meshloom.tb.runs import batch, runner
from meshloom.tb.runs.failures import Failure
from meshloom.tb.runs.kinds import layers, table
from meshloom.tb.runs.kinds.interface import Listener
from meshloom.tb.runs.kinds.mappings import MappedSource
from meshloom.tb.runs.sweeps.evaluate import deciding_code
from meshloom.tb.runs.sweeps.grid import points

#: A workload of each kind that can be scheduled: its name, the one it has in tables, a chip, a scheduler of it.
EACH = [
    ("gemm:8x8x8", "gemm:8x8x8", "tiny", "loop_order"),
    ("resnet8", "resnet8", "quad16", "loop_order:refine=0,between=dram"),
    ("gradient:ncf/mlp3,b4", "gradient:ncf/mlp3,b4", "edge45", "gradient:effort=0.01"),
    ("chain:ncf/mlp2..mlp3,b4", "chain:ncf/mlp2..mlp3,b4", "edge45", "chain"),
]
#: A kind of somebody else: a list of matrix products in a text file, each a layer.
OTHERS = """
from pathlib import Path
from typing import Any

from meshloom.sched.workload.layers import WorkloadError
from meshloom.tb.runs.kinds import layers, table
from meshloom.tb.runs.kinds.interface import Listener
from meshloom.tb.runs.kinds.mappings import MappedSource
from meshloom.tb.runs.kinds.interface import WorkloadKind


def find(name, chip):
    path = Path(name.partition(":KIND:")[2])
    if not path.is_file():
        raise WorkloadError(f"workload {name}: there is no file {path}")
    return [request for line in path.read_text().split() for request in table.find(f"gemm:{line}", chip)]


KIND = WorkloadKind(find, lambda: "FILE.py:KIND:LIST   matrix products, one on a line")
WRONG = find
"""


@pytest.mark.parametrize(("name", "title", "chip", "scheduler"), EACH)
def test_command_line_python_and_sweeps_take_every_kind(name: str, title: str, chip: str, scheduler: str) -> None:
    shown = CliRunner().invoke(app, ["schedule", name, "--chip", chip, "--scheduler", scheduler])
    assert shown.exit_code == 0, shown.output
    schedule = meshloom.schedule(name, chip, scheduler)
    assert schedule.workload == title
    assert schedule.predicted is not None
    assert title in shown.output
    assert f"{schedule.predicted.cycles:,}" in shown.output
    (point,) = points(SweepFile(name="s", chips=(chip,), schedulers=(scheduler,), workloads=(name,)), Path())
    assert point.workload == name
    items = runner.prepared_here(point.workload, load(chip), point.scheduler)
    assert not isinstance(items, Failure), items
    assert {item.timeline.cycles for item in items} == {schedule.predicted.cycles}
    assert items[0].macs is not None
    assert point.macs in (items[0].macs, None)
    expected = table.find(title, load(chip))[0].expected()  # what a saved schedule is held to
    assert (expected is None) == (title == "resnet8"), "a network says where its tensors are when it is scheduled"
    if expected is None:
        return
    tensors = {each.name: each for each in items[0].schedule.tensors}
    assert set(expected.needed) <= set(tensors) <= set(expected.tensors)
    for each, tensor in tensors.items():
        role, layout, shape = expected.tensors[each]
        assert (type(tensor.layout), tensor.layout.shape) == (layout, shape), each
        assert (tensor.role == "output") == (role == "output"), each


@pytest.mark.parametrize(
    "name", ["regression", "resnet8", "gradient:ncf,b4", "chain:ncf,b4", "s.json", "vgg16/conv1_1"]
)
def test_requests_are_sent_to_other_processes(name: str) -> None:
    here, there = Pipe()
    for request in table.find(name):
        here.send(request)
        sent = there.recv()
        assert (sent.name, sent.reference, sent.scheduled_as) == (
            request.name,
            request.reference,
            request.scheduled_as,
        )


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ("return None", 2, r"error: kind of workload .*:KIND returns no request, but a NoneType; it must return Workl"),
        ("return []", 2, "returns no request, but a list"),
        ("return [5]", 2, "returns something without name; it must return WorkloadRequests, at least one"),
        ("return {}[name]", 3, r"error: .*theirs.py: its code failed: KeyError: '.*' .line 13 of theirs.py."),
        ("raise SystemExit(7)", 3, r"error: .*theirs.py: its code failed: SystemExit: 7 .line 13 of theirs.py."),
        ("return Path(3)", 3, r"its code failed: TypeError: .* .line 13 of theirs.py."),
    ],
)
def test_a_kind_that_fails_is_one_line(body: str, status: int, says: str, tmp_path: Path) -> None:
    kind = tmp_path / "theirs.py"
    kind.write_text(OTHERS.replace('path = Path(name.partition(":KIND:")[2])', body))
    shown = CliRunner().invoke(app, ["schedule", f"{kind}:KIND:list.txt", "--chip", "tiny"])
    assert (shown.exit_code, shown.stdout) == (status, "")
    assert re.search(says, shown.stderr), shown.stderr
    assert "Traceback" not in shown.stderr


def test_a_name_of_several_is_so_everywhere() -> None:
    names = [request.reference for request in table.find("gradient:ncf", load("edge45"))]
    assert len(names) > 1
    sweep = SweepFile(name="s", chips=("edge45",), schedulers=("gradient",), workloads=("gradient:ncf",))
    assert [point.workload for point in points(sweep, Path())] == names
    assert [layer.name for layer in meshloom.Workload.of("gradient:ncf,b4").layers()] == names
    with pytest.raises(WorkloadError, match=rf"gradient:ncf: is {len(names)} layers"):
        meshloom.schedule("gradient:ncf", "edge45", "gradient")


def test_what_a_name_means_can_depend_on_the_chip() -> None:
    """The size of networks that come in two sizes, and the batch, are the chip's; a sweep asks each chip."""
    sweep = SweepFile(
        name="s",
        chips=(
            "edge45",
            "server2",
        ),
        schedulers=("gradient",),
        workloads=("gradient:bert/qkv",),
    )
    assert [point.workload for point in points(sweep, Path())] == [
        "gradient:bert_tiny/qkv,b4",
        "gradient:bert_large/qkv,b16",
    ]


@pytest.mark.parametrize(
    ("name", "other"),
    [("gemm:8x8x8", "chain"), ("resnet8", "gradient"), ("gradient:ncf/mlp3", "chain"), ("chain:ncf", "gradient")],
)
def test_a_scheduler_that_does_not_take_a_kind_is_refused_before_anything_is_done(name: str, other: str) -> None:
    sweep = SweepFile(name="s", chips=("edge45",), schedulers=(other,), workloads=(name,))
    with pytest.raises(SchedulerError, match=f"scheduler {other} "):
        points(sweep, Path())
    with pytest.raises(SchedulerError, match=f"scheduler {other} "):
        meshloom.schedule(name, "edge45", other)
    with pytest.raises(SchedulerError, match=f"scheduler {other} "):
        meshloom.run(name, "edge45", other, artefacts=False)


def test_the_network_and_its_layers_have_names_of_their_own(tmp_path: Path) -> None:
    invoke = CliRunner().invoke
    one = invoke(app, ["schedule", "resnet8", "--scheduler", "loop_order:effort=quick,refine=0,between=dram"])
    each = invoke(app, ["schedule", "resnet8/*", "--scheduler", "loop_order:effort=0.1", "--out", str(tmp_path)])
    assert (one.exit_code, each.exit_code) == (0, 0)
    assert "resnet8/conv1" not in one.output
    assert len(list(tmp_path.glob("resnet8_*.json"))) == len(table.find("resnet8/*")) == 10


def test_a_kind_from_outside_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "lists.py").write_text(OTHERS)
    (tmp_path / "mine.txt").write_text("4x4x4\n8x4x4\n")
    name = f"{tmp_path}/lists.py:KIND:{tmp_path}/mine.txt"
    shown = CliRunner().invoke(app, ["schedule", name, "--chip", "tiny"])
    assert shown.exit_code == 0, shown.output
    assert "gemm:4x4x4" in shown.output
    assert "gemm:8x4x4" in shown.output
    sweep = SweepFile(name="s", chips=("tiny",), schedulers=("loop_order",), workloads=(name,))
    assert [point.workload for point in points(sweep, tmp_path)] == ["gemm:4x4x4", "gemm:8x4x4"]
    assert len(table.requests(name)) == 2
    for wrong, message in (
        (f"{tmp_path}/lists.py:KIND:none.txt", "there is no file none.txt"),
        (f"{tmp_path}/lists.py:WRONG:x", "it must be a WorkloadKind"),
        (f"{tmp_path}/other.py:KIND:x", "there is no file"),
        (f"{tmp_path}/lists.py:NOTHING:x", "has no NOTHING"),
    ):
        shown = CliRunner().invoke(app, ["schedule", wrong, "--chip", "tiny"])
        assert shown.exit_code == 2
        assert message in " ".join(shown.stderr.split())


def test_the_list_of_workloads_has_the_syntax_of_every_kind() -> None:
    shown = CliRunner().invoke(app, ["workloads"]).output
    for text in ("networks: resnet8", "gemm:MxNxK[,relu]", "gradient:NETWORK/", "chain:NETWORK["):
        assert shown.count(text) == 1


def test_the_list_of_a_name_has_what_it_means() -> None:
    invoke = CliRunner().invoke
    assert re.search(r"gradient:ncf/mlp2,b4 +│ 0\.262", invoke(app, ["workloads", "gradient:ncf"]).output)
    assert invoke(app, ["workloads", "resnet8"]).output == invoke(app, ["workloads", "resnet8/*"]).output
    for file in ("s.json", "p.bin", "model.onnx"):
        shown = invoke(app, ["workloads", file])
        assert (shown.exit_code, shown.stdout) == (2, "")
        assert f"meshloom check {file}" in shown.stderr


def test_the_code_of_all_kinds_decides_a_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are imported by name, which nothing follows."""
    from meshloom.sched.store import provenance

    seen: list[str] = []
    monkeypatch.setattr(provenance, "digest", lambda *modules: seen.extend(modules) or "digest")
    deciding_code("loop_order", None)
    assert {f"tb.runs.kinds.{kind}" for kind in ("layers", "networks", "gradients", "chains")} <= set(seen)


class Plain:
    """What is ready to run, of a kind that was written before rows could be without details."""

    def row(self, run: object, chip: object) -> str:
        return "whole"


class Detailed:
    def row(self, run: object, chip: object, detailed: bool = True) -> str:
        return "detailed" if detailed else "judged"


@pytest.mark.parametrize(
    ("item", "detailed", "outcome"),
    [
        (Plain(), True, "whole"),
        (Plain(), False, "whole"),
        (Detailed(), True, "detailed"),
        (Detailed(), False, "judged"),
    ],
)
def test_kinds_of_others_need_not_leave_details_out(item: Any, detailed: bool, outcome: str) -> None:
    run: Any = None
    assert batch._row(item, run, load("tiny"), detailed) == outcome


def test_what_a_scheduler_has_lowered_is_not_lowered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it is of another schedule."""
    chip, again = load("tiny"), list[Schedule]()
    one, other = (
        table.one(name, chip).plan(chip, "loop_order:effort=0.01", Listener()) for name in ("gemm:8x8x8", "gemm:4x4x4")
    )
    done = [Lowered(each.schedule, each.program, each.timeline) for each in (one, other)]
    monkeypatch.setattr(layers, "planned", lambda schedule, *_: again.append(schedule))
    assert layers._planned(other.schedule, done, chip, Listener()).program is other.program
    assert not again
    layers._planned(other.schedule, done[:1], chip, Listener())
    assert again == [other.schedule]


def test_what_names_mean() -> None:
    names = (
        "gemm:8x8x8",
        "resnet8",
        "resnet8/*",
        "zigzag:a.json",
        "stream:a.json",
        "s.json",
        "a.onnx",
        "chain:a/b..c,b4",
    )
    assert [name for name in names if table.is_mapping(name)] == ["zigzag:a.json", "stream:a.json"]
    assert [name for name in names if table.is_network(name)] == ["resnet8", "a.onnx"]
    assert [name for name in names if table.is_file(name)] == ["s.json"]
    (source,) = table.find("zigzag:a.json")
    assert isinstance(source, MappedSource)
    assert not source.nearest
    assert [table.regression(name)[0].name for name in ("loop_order", "chain")] == ["resnet8", "resnet8/conv1"]


def test_what_the_data_of_a_layer_are() -> None:
    planned: Any = None
    data = [layers.LayerRun(catalog.find(name)[0], planned).data for name in ("resnet8/conv1", "gemm:8x8x8")]
    assert data == ["trained weights, stored activation", "random bytes, seeded by the workload's name"]
