"""The command line: what it lists, shows, checks and writes without running anything."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from meshloom.hw.spec.config import built_in_chips
from meshloom.hw.spec.config import load as load_chip
from meshloom.hw.spec.isa import VectorOp
from meshloom.sched.ir.schedule import Gemm, Move, Piece, Prediction, Schedule, Span, Tensor, Vec
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.program import image
from meshloom.sched.workload import zoo
from meshloom.sched.workload.layout import BiasLayout

from ..sched.float_models import FloatModel
from .command_line import invoke


def test_chips_are_listed_and_shown(folder: Path) -> None:
    shown = invoke("chips").output
    assert all(name in shown for name in built_in_chips())
    text = 'name = "mine"\nlanes = 8\nrows = 5\ncols = 7\nfloorplan = ["core dram host"]\n[dram]\nbytes_per_cycle = 8\n'
    (folder / "mine.toml").write_text(text)
    shown = invoke("chips", "mine.toml")
    assert shown.exit_code == 0
    assert "core dram host" in shown.output
    assert "1 x 5x7" in shown.output


def test_workloads_are_listed_and_shown() -> None:
    shown = invoke("workloads").output
    assert all(name in shown for name in zoo.names())
    assert "gemm:MxNxK" in shown
    assert "squeezenet/fire2_squeeze" in invoke("workloads", "squeezenet").output
    shown = invoke("workloads", "vgg16/conv4_2").output
    assert "1x512x28x28" in shown
    assert "random" in shown
    assert len(invoke("workloads", "regression").output.splitlines()) > 30


def test_verilog_says_what_it_wrote(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, Path]] = []

    def emit(config: Any, out: Path) -> tuple[Path, Path]:
        seen.append((config.dram.latency, out))
        return out / "chip.v", out / "chip.json"

    monkeypatch.setitem(sys.modules, "meshloom.tb.build.verilog_files", SimpleNamespace(emit_verilog=emit))
    assert invoke("verilog", "--chip", "tiny", "--out", "there").output.splitlines() == [
        "there/chip.v",
        "there/chip.json",
    ]
    assert invoke("verilog", "--chip", "tiny", "--set", "dram.latency=123").exit_code == 0
    assert seen == [(load_chip("tiny").dram.latency, Path("there")), (123, Path("sim_build/verilog/tiny"))]
    (folder / "file").touch()
    refused = invoke("verilog", "--chip", "tiny", "--out", "file")
    assert "file/tiny.v: cannot be written" in refused.stderr
    assert len(seen) == 2, "before anything is made"


def saved_schedule(path: Path, chip: str = "tiny", digest: str | None = None) -> Schedule:
    """One move inside the DRAM of a chip, saved; its source counts as loaded because it is a tensor."""
    config = load_chip(chip)
    dram = config.drams[0]
    layout = BiasLayout(out_channels=config.cols, cols=config.cols)
    x = Tensor(name="x", role="input", layout=layout, pieces=(Piece(tile=dram, address=0, first=0, words=4),))
    y = Tensor(name="y", role="output", layout=layout, pieces=(Piece(tile=dram, address=64, first=0, words=4),))
    spm = config.spms[0]
    there = Move(issuer=dram, src=Span(tile=dram, address=0, run=4), dst=Span(tile=spm, address=0, run=4), words=4)
    back = Move(
        issuer=spm, src=Span(tile=spm, address=0, run=4), dst=Span(tile=dram, address=64, run=4), words=4, label="home"
    )
    schedule = Schedule(
        chip=chip,
        chip_digest=digest or config.digest,
        workload="copy",
        scheduler="hand",
        operations=(there, back),
        tensors=(x, y),
    )
    schedule.save(path)
    return schedule


def test_check_and_disasm_of_schedule_and_image(folder: Path) -> None:
    schedule = saved_schedule(folder / "copy.json")
    image.save(lower(schedule, load_chip("tiny")), folder / "copy.bin")
    for name in ("copy.json", "copy.bin"):
        shown = invoke("check", name)
        assert shown.exit_code == 0, shown.output
        assert f"{name}: good on tiny:" in shown.output
        listing = invoke("disasm", name)
        assert listing.exit_code == 0, listing.output
        assert "MOVE" in listing.output
        assert ("home" in listing.output) == (name == "copy.json")
        wrong = invoke("check", name, "--chip", "quad8")
        assert wrong.exit_code == 2
        assert wrong.stderr.startswith("error: ")


def test_check_says_what_nobody_consumes(folder: Path) -> None:
    program = lower(saved_schedule(folder / "copy.json"), load_chip("tiny"))
    program.streams[0].instructions[-1].fields.update(post_sem=9, post_n=1)
    image.save(program, folder / "more.bin")
    shown = invoke("check", "more.bin")
    assert shown.exit_code == 0, shown.output
    assert "ends at 1: no instruction consumes these posts" in shown.output


def test_check_of_onnx_files(folder: Path) -> None:
    """What would run, and what cannot; sizes that the file leaves open are asked for."""
    model = FloatModel((1, 3, "rows", 8))
    scores = model.node("GlobalAveragePool", model.conv("x", "c", (4, 3, 3, 3)), "p")
    onnx.save(model.build(model.node("Hardmax", scores, "y", axis=1)), "good.onnx")
    shown = invoke("check", "good.onnx", "--bind", "rows=6")
    assert shown.exit_code == 0, shown.output
    assert (
        "good.onnx: 3 nodes can run as 2 layers (1 conv, 1 average_pool); input x [1, 3, 6, 8]; float" in shown.output
    )
    assert "Hardmax y at the end runs on the host." in shown.output
    for options, message in (
        ((), "dimension 2 of input 'x' is not fixed (rows); give it a size (--bind rows=N)"),
        (("--bind", "row=6"), "no input has a size 'row' to bind; sizes are x:0, x:1, rows, x:3"),
        (("--bind", "rows"), "'rows' must be a name and a size of 1 or more"),
    ):
        shown = invoke("check", "good.onnx", *options)
        assert shown.exit_code == 2
        assert message in shown.stderr
    onnx.save(model.build(model.conv("y", "z", (4, 4, 1, 1))), "bad.onnx")
    shown = invoke("check", "bad.onnx", "--bind", "rows=6")
    assert shown.exit_code == 2
    assert "n_y (Hardmax): which number is the largest is for the host to say" in shown.stderr


def test_check_of_damaged_files(folder: Path) -> None:
    schedule = saved_schedule(folder / "copy.json")
    image.save(lower(schedule, load_chip("tiny")), folder / "copy.bin")
    whole = (folder / "copy.bin").read_bytes()
    (folder / "flipped.bin").write_bytes(whole[:90] + bytes([whole[90] ^ 4]) + whole[91:])
    (folder / "short.bin").write_bytes(whole[:-20])
    saved_schedule(folder / "foreign.json", digest="0" * 64)
    for name, message in (("flipped.bin", "flipped.bin"), ("short.bin", "truncated"), ("foreign.json", "--chip")):
        shown = invoke("check", name)
        assert shown.exit_code == 2
        assert message in shown.stderr
        assert len(shown.stderr.splitlines()) == 1


def test_operations_are_listed_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    from meshloom.tb.report.console import console
    from meshloom.tb.report.tables import print_operations

    move = Move(issuer=1, src=Span(tile=0, address=64, run=8), dst=Span(tile=1, address=(1 << 24) + 5, run=8), words=8)
    fields = {"op": VectorOp.MAX, "x_out": 1, "pixels": 4, "blocks": 2, "kernel_h": 2, "kernel_w": 2, "dest_base": 7}
    vec = Vec(core=1, fields=fields, label="v 0")
    gemm = Gemm(core=1, fields={"pixels": 9, "n_blocks": 1, "k_blocks": 2, "kernel_h": 3, "kernel_w": 1}, label="g 0")
    schedule = Schedule(
        chip="tiny",
        chip_digest="0",
        workload="w",
        scheduler="s",
        operations=(move, gemm, vec),
        predicted=Prediction(cycles=90, start=(3, 20, 40), end=(19, 90, 48)),
    )
    print_operations(schedule, console())
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.split()[:3] == ["0", "3", "19"]
    assert "MOVE by (1,0)" in first
    assert "8 words (0,0) MAIN[64] -> (1,0) B[5]" in first
    assert second.split()[:3] == ["1", "20", "90"]
    assert "GEMM on (1,0)" in second
    assert "6 taps -> OUT[0]  g 0" in second
    assert third.split()[:3] == ["2", "40", "48"]
    assert "VEC on (1,0)" in third
    assert "MAX OUT[0], 4 pixels, 2 blocks, 4 taps -> VEC[7]  v 0" in third
