"""Schedules and programs from files: judged on the RTL as if a scheduler had just made them, or refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from meshloom.hw.spec.config import load
from meshloom.hw.spec.isa import Opcode
from meshloom.sched.ir.schedule import Gemm, Schedule
from meshloom.sched.lowering.lifted import Metadata, lifted, metadata_of, read_metadata
from meshloom.sched.lowering.programs import unchecked
from meshloom.sched.program import image
from meshloom.sched.program.image import ImageError
from meshloom.sched.program.program import Program
from meshloom.sched.schedulers.loop_order.scheduler import schedule as loop_order
from meshloom.sched.schedulers.network.scheduler import schedule as schedule_network
from meshloom.sched.schedulers.registry import find as by_name
from meshloom.sched.workload.catalog import find
from meshloom.sched.workload.graph import Value
from meshloom.sched.workload.onnx.reader import read
from meshloom.sched.workload.onnx.writer import flip, to_onnx
from meshloom.tb.results.schema import Row, Status
from meshloom.tb.runs import runner
from meshloom.tb.runs.saved import SavedSource

from ..sched.network_graphs import Grower, inputs_of, square
from .command_line import invoke

LAYER = "gemm:5x6x7"
CHIP = load("tiny")


@pytest.fixture(scope="module")
def saved_schedule() -> Schedule:
    layer = find(LAYER)[0]
    return loop_order(layer.shape, CHIP, layer.scale)


@pytest.fixture(scope="module")
def program(saved_schedule: Schedule) -> Program:
    return unchecked(saved_schedule, CHIP)


def wrong_scale(schedule: Schedule) -> Schedule:
    """The schedule of somebody who multiplies by something else."""
    ops = [
        op.model_copy(update={"fields": op.fields | {"scale": op.fields["scale"] + 999}})
        if isinstance(op, Gemm)
        else op
        for op in schedule.operations
    ]
    return schedule.model_copy(update={"operations": tuple(ops), "scheduler": "somebody's"})


@pytest.fixture(scope="module")
def rows(saved_schedule: Schedule, program: Program, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    """Files that can be run, by name."""
    folder = tmp_path_factory.mktemp("saved")
    saved_schedule.model_copy(update={"scheduler": "somebody's"}).save(folder / "right.json")
    image.save(program, folder / "right.bin", metadata_of(saved_schedule))
    image.save(replace(program, operation_of_tag={}), folder / "unnumbered.bin", metadata_of(saved_schedule))
    image.save(program, folder / "bare.bin")
    wrong = wrong_scale(saved_schedule)
    wrong.save(folder / "wrong.json")
    image.save(unchecked(wrong, CHIP), folder / "wrong.bin", metadata_of(wrong))
    image.save(
        replace(unchecked(wrong, CHIP), operation_of_tag={}), folder / "wrong_unnumbered.bin", metadata_of(wrong)
    )
    saved_schedule.model_copy(update={"operations": saved_schedule.operations[1:], "predicted": None}).save(
        folder / "undefined.json"
    )
    names = sorted(path.name for path in folder.iterdir())
    result = runner.run([SavedSource(folder / name) for name in names], "tiny", "loop_order", lambda event: None)
    return dict(zip(names, result, strict=True))


@pytest.mark.parametrize("name", ["right.json", "right.bin", "unnumbered.bin"])
def test_every_byte_and_cycle_is_checked(name: str, rows: dict[str, Row], program: Program) -> None:
    row = rows[name]
    assert (row.status, row.workload, row.chip) == (Status.PASSED, LAYER, "tiny")
    assert row.bytes_checked > 0
    assert row.records_compared == row.records_expected > 0
    assert row.instructions == program.instructions
    assert row.error_percent == 0
    assert row.settings is not None
    assert row.settings.file == name
    assert len(row.settings.file_digest) == 64
    assert row.scheduler == row.settings.scheduler == ("somebody's" if name == "right.json" else "loop_order")


@pytest.mark.parametrize("name", ["wrong.json", "wrong.bin", "wrong_unnumbered.bin"])
def test_wrong_bytes_are_found_and_who_made_them(name: str, rows: dict[str, Row]) -> None:
    row = rows[name]
    assert row.status is Status.MISMATCH
    assert row.wrong_byte is not None
    assert [maker.opcode for maker in row.wrong_byte.makers][-1] == "GEMM"
    assert row.wrong_byte.makers[0].opcode == "MOVE"


def test_a_program_without_a_workload_is_not_passed(rows: dict[str, Row]) -> None:
    row = rows["bare.bin"]
    assert (row.status, row.bytes_checked, row.workload) == (Status.UNCHECKED, 0, "bare.bin")
    assert row.rtl_cycles == row.model_cycles == rows["right.bin"].rtl_cycles
    assert row.records_compared == row.records_expected > 0
    assert "no output byte was checked" in row.reason
    assert "--workload" in row.reason


def test_what_must_not_run_does_not(rows: dict[str, Row]) -> None:
    row = rows["undefined.json"]
    assert row.status is Status.FAILED
    assert row.error is not None
    assert row.error.stage == "checking"
    assert row.error.kind == "CheckError"


# -- what is refused before anything runs ------------------------------------------------------------------------


def renamed(old: str, new: str) -> Callable[[Schedule], Schedule]:
    def change(schedule: Schedule) -> Schedule:
        tensors = [one.model_copy(update={"name": new}) if one.name == old else one for one in schedule.tensors]
        return schedule.model_copy(update={"tensors": tuple(tensors)})

    return change


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (lambda value: value, ("--chip", "quad8"), ["tiny", "quad8", "made for chip", "--chip"]),
        (lambda value: value.model_copy(update={"workload": "resnet9/x"}), (), ["'resnet9/x'", "--workload"]),
        (
            lambda value: value.model_copy(update={"workload": "mine"}),
            (),
            ["computes 'mine', which is no built-in workload; name what it computes with --workload (your .onnx file"],
        ),
        (lambda value: value, ("--workload", "mine"), ["s.json: unknown workload 'mine'"]),
        (lambda value: value.model_copy(update={"workload": "resnet8/*"}), (), ["layers", "--workload"]),
        (lambda value: value, ("--workload", "gemm:5x6x8"), ["tensor", "gemm:5x6x8", "[5, 7"]),
        (lambda value: value.model_copy(update={"tensors": ()}), (), ["tensors are", '--workload ""']),
        (renamed("y", "z"), (), ["no tensor 'z'", "x, w, bias, y"]),
        (lambda value: value.model_copy(update={"chip_digest": "00" * 32}), (), ["no longer) a built-in", "--chip"]),
        (lambda value: value, ("--input", "cat.png"), ["--input is for networks"]),
    ],
)
def test_refused(
    folder: Path, saved_schedule: Schedule, change: Any, options: tuple[str, ...], words: list[str]
) -> None:
    change(saved_schedule).save(folder / "s.json")
    shown = invoke("run", "s.json", *options)
    assert shown.exit_code == 2, shown.output
    assert "s.json" in shown.stderr
    for word in words:
        assert word in shown.stderr or word == "[5, 7"
    assert len(shown.stderr.splitlines()) == 1
    assert list(folder.iterdir()) == [folder / "s.json"]


@pytest.mark.parametrize("name", ["s.json", "p.bin"])
def test_damaged_files_and_none(folder: Path, saved_schedule: Schedule, program: Program, name: str) -> None:
    assert invoke("run", name, "--chip", "tiny").exit_code == 2
    saved_schedule.save(folder / "s.json")
    image.save(program, folder / "p.bin", metadata_of(saved_schedule))
    path = folder / name
    path.write_bytes(path.read_bytes()[:-9])
    shown = invoke("run", name)
    assert shown.exit_code == 2
    assert shown.stderr.startswith(f"error: {name}: ")
    assert "again" in shown.stderr


def test_an_image_of_another_chip_names_both(folder: Path, saved_schedule: Schedule, program: Program) -> None:
    image.save(program, folder / "p.bin", metadata_of(saved_schedule))
    shown = invoke("run", "p.bin", "--chip", "quad8")
    assert shown.exit_code == 2
    assert "made for chip tiny" in shown.stderr
    assert "not for quad8" in shown.stderr


def test_a_workload_for_an_image_without_tensors(folder: Path, program: Program) -> None:
    image.save(program, folder / "p.bin")
    shown = invoke("run", "p.bin", "--workload", LAYER)
    assert shown.exit_code == 2
    assert "does not say where its tensors are" in shown.stderr


def test_options_that_mean_nothing_here(folder: Path, saved_schedule: Schedule) -> None:
    saved_schedule.save(folder / "a.json")
    saved_schedule.save(folder / "b.json")
    words = "is for one saved file or mapping; given are"
    assert f"{words} 2" in invoke("run", "a.json", "b.json", "--workload", LAYER).output
    assert f"{words} 0" in invoke("run", LAYER, "--workload", LAYER).output


def test_files_for_two_chips(folder: Path, saved_schedule: Schedule) -> None:
    saved_schedule.save(folder / "a.json")
    layer = find(LAYER)[0]
    loop_order(layer.shape, load("quad8"), layer.scale).save(folder / "b.json")
    shown = invoke("run", "a.json", "b.json")
    assert shown.exit_code == 2
    assert "a run is on one chip" in shown.output


# -- metadata, and programs read back ------------------------------------------------------------------------------


def test_metadata_comes_back(saved_schedule: Schedule, program: Program) -> None:
    whole = image.to_bytes(program, metadata_of(saved_schedule))
    result, text = image.with_metadata(whole)
    assert image.to_bytes(result, text) == whole
    assert read_metadata(text, "p.bin").tensors == saved_schedule.tensors
    assert image.from_bytes(whole) == image.from_bytes(image.to_bytes(program))
    assert image.with_metadata(image.to_bytes(program))[1] == ""


@pytest.mark.parametrize("text", ["[]", "{", "7", "\u00e9"])
def test_metadata_that_is_none(program: Program, text: str) -> None:
    with pytest.raises(ImageError, match="metadata is not a JSON object"):
        image.from_bytes(image.to_bytes(program, text))


@pytest.mark.parametrize("text", ['{"version": 2}', '{"tensors": 3}', '{"owner": "me"}'])
def test_metadata_of_another_version(text: str) -> None:
    with pytest.raises(ImageError, match=r"^p\.bin: metadata: \w+"):
        read_metadata(text, "p.bin")


@pytest.mark.parametrize(("chip", "scheduler"), [("tiny", loop_order), ("ahead8", by_name("dtt"))])
def test_a_program_is_the_schedule_that_it_was_made_from(chip: str, scheduler: Any) -> None:
    config, layer = load(chip), find("gemm:32x32x32")[0]
    value = scheduler(layer.shape, config, layer.scale)
    program = unchecked(value, config)
    schedule, same = lifted(program, read_metadata(metadata_of(value), ""), config)
    assert same == program
    assert (schedule.execution, schedule.tensors, schedule.workload) == (value.execution, value.tensors, value.workload)
    assert len(schedule.operations) == len(value.operations)
    for ours, theirs in zip(value.operations, schedule.operations, strict=True):
        assert {k: v for k, v in ours.body.items() if v} == {k: v for k, v in theirs.body.items() if v}
        assert getattr(ours, "core", 0) == getattr(theirs, "core", 0)


def test_a_timed_program_without_numbers_is_refused() -> None:
    config, layer = load("ahead8"), find("gemm:32x32x32")[0]
    program = unchecked(by_name("dtt")(layer.shape, config, layer.scale), config)
    assert any(one.opcode is Opcode.ORDER for stream in program.streams for one in stream.instructions)
    with pytest.raises(ImageError, match="must number its operations"):
        lifted(replace(program, operation_of_tag={}), Metadata(), config)


# -- networks --------------------------------------------------------------------------------------------------------


def test_a_network_from_a_file(folder: Path) -> None:
    g = Grower(5, Value("x", 5, 9, 9))
    g.conv("a", "x", 20, square(3, 1, 1), relu=True)
    g.depthwise("b", "a", square(3, 1, 1))
    g.conv("c", "a", 7)
    g.concat("d", "b", "c")
    g.conv("e", "d", 12, square(3, 2), relu=True)
    onnx.save(to_onnx(g.graph("mine", "e", "c")), "mine.onnx")
    graph = read(folder / "mine.onnx")
    np.save("x.npy", flip(next(iter(inputs_of(graph, 3).values()))))  # uint8, as the file says
    schedule = schedule_network(graph, CHIP).schedule
    schedule.save("s.json")
    image.save(unchecked(schedule, CHIP), folder / "p.bin", metadata_of(schedule))
    first = schedule.tensors[0]
    odd = schedule.model_copy(update={"tensors": (first.model_copy(update={"name": "odd"}), *schedule.tensors[1:])})
    odd.save("odd.json")
    from meshloom.tb.inputs.sources import NetworkSource

    fed = NetworkSource("", (Path("x.npy"),))
    files = [SavedSource(Path(name), "mine.onnx", fed) for name in ("s.json", "p.bin", "odd.json")]
    right, lean, wrong = runner.run(files, CHIP.name, "loop_order", lambda event: None)
    assert (right.status, lean.status) == (Status.PASSED, Status.PASSED), (right.reason, lean.reason)
    assert right.network is not None
    assert lean.network is not None
    assert right.network.tensors_checked == 4  # those in between too
    assert lean.network.tensors_checked == 0
    assert right.bytes_checked > lean.bytes_checked > 0
    assert wrong.status is Status.FAILED
    assert "'odd'" in wrong.reason
