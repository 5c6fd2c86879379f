"""Side by side with SCALE-Sim v3 (output stationary, one core, batch 1): cycles and CPU-seconds, in one run."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshloom.sched.store.kinds import TOOLS
from meshloom.sched.store.store import Recipe, StoreError, key
from meshloom.sched.workload.layers import ConvShape

from ..build.builder import OUTPUT
from ..results.events import OnEvent, RowCount, Stage
from .interface import BenchmarkError
from .layers import Ran, run_layers
from .results import Result, Sheet

#: SCALE-Sim 3.0.0 crashes on NumPy 2, which is why it has an environment of its own.
PINS = ("scalesim==3.0.0", "numpy<2")
#: What is run of that environment.
_INSTALLED = ("bin/python", "pyvenv.cfg")
#: CPU-seconds of theirs for each of ours that the bar asks for.
SPEED_UP = 20
CHIPS = ("mono16", "mono32")
LAYERS = (
    "gemm:64x64x64",
    "gemm:256x256x256",
    "mobilenet_v1/pw7",
    "mobilenet_v1/pw5",
    "resnet50/conv3_2_1",
    "resnet50/conv3_2_2",
    "resnet50/conv3_2_3",
)
_COLUMNS = (
    "layer",
    "our run>",
    "our cycles>",
    "its cycles>",
    "ours / its>",
    "mismatches>",
    "our CPU s>",
    "schedule>",
    "golden>",
    "its CPU s>",
    "its / ours>",
    "bars",
)


@dataclass(frozen=True)
class Theirs:
    """A layer on SCALE-Sim: compute cycles (of which stalls), utilisation 0..1, CPU-seconds."""

    name: str
    cycles: int
    stalls: int
    utilisation: float
    cpu_seconds: float


def topology(shape: ConvShape) -> list[int]:
    """A layer as SCALE-Sim's convolution: height, width, filter height, filter width, channels, filters, stride.

    Padding is folded into the input, which is as large as the true output needs. Raises BenchmarkError for what it
    cannot express (batches, dilation, unequal strides).
    """
    if shape.batch != 1 or shape.dilation != 1 or shape.stride_h != shape.stride_w:
        raise BenchmarkError(f"SCALE-Sim has no layer like {shape.name}: batch 1, dilation 1 and one stride are needed")
    height = (shape.out_h - 1) * shape.stride_h + shape.kernel_h
    width = (shape.out_w - 1) * shape.stride_w + shape.kernel_w
    return [height, width, shape.kernel_h, shape.kernel_w, shape.in_channels, shape.out_channels, shape.stride_h]


def judge(ran: Ran, theirs: Theirs) -> list[str]:
    """The bars that a layer missed, in words."""
    missed: list[str] = []
    row = ran.row
    if not row.bytes_checked or row.mismatches or row.faults:
        missed.append(row.reason or "no byte was compared")
    if not 0 < ran.array_cycles < theirs.cycles:
        missed.append(f"{ran.array_cycles:,} cycles are not fewer than its {theirs.cycles:,}")
    if row.cpu_seconds * SPEED_UP > theirs.cpu_seconds:
        missed.append(
            f"{row.cpu_seconds:.3f} CPU-s are not {SPEED_UP} times fewer than its {theirs.cpu_seconds:.2f} "
            f"({theirs.cpu_seconds / max(row.cpu_seconds, 1e-9):.0f} times)"
        )
    return missed


def line(ran: Ran, theirs: Theirs, missed: Sequence[str]) -> tuple[str, ...]:
    """The row of the table."""
    row = ran.row
    return (
        row.workload,
        f"{row.rtl_cycles:,}",
        f"{ran.array_cycles:,}",
        f"{theirs.cycles:,}",
        f"{ran.array_cycles / theirs.cycles:.3f}",
        f"{row.mismatches:,}",
        f"{row.cpu_seconds:.3f}",
        f"{ran.schedule_seconds:.2f}",
        f"{ran.golden_seconds:.3f}",
        f"{theirs.cpu_seconds:.2f}",
        f"{theirs.cpu_seconds / max(row.cpu_seconds, 1e-9):.0f}",
        "missed" if missed else "pass",
    )


def run(on_progress: OnEvent) -> Result:
    """Runs every layer on both. Raises BenchmarkError when SCALE-Sim cannot be installed or fails."""
    from meshloom.hw.spec.config import load
    from meshloom.sched.workload.catalog import find

    on_progress(RowCount(rows=len(LAYERS) * len(CHIPS)))
    python = install(on_progress)
    shapes = [find(name)[0].shape for name in LAYERS]
    sheets: list[Sheet] = []
    failures: list[str] = []
    remarks: list[str] = []
    versions: dict[str, str] = {}
    for chip in CHIPS:
        config = load(chip)
        batch = run_layers(LAYERS, chip, on_progress)
        found: dict[str, Theirs] = {}
        for message in drive(python, config.rows, config.cols, shapes):
            if "versions" in message:
                versions |= message["versions"]
                on_progress(Stage(workload=shapes[0].name, what=f"SCALE-Sim {config.rows}x{config.cols}"))
                continue
            theirs = Theirs(**message)
            found[theirs.name] = theirs
            said = f"SCALE-Sim {config.rows}x{config.cols}: {theirs.cycles:,} cycles, {theirs.cpu_seconds:.2f} CPU-s"
            on_progress(Stage(workload=theirs.name, what=said))
        rows: list[tuple[str, ...]] = []
        failed: set[int] = set()
        for number, ran in enumerate(batch.ran):
            theirs = found[ran.row.workload]
            missed = judge(ran, theirs)
            rows.append(line(ran, theirs, missed))
            failures += [f"{chip}, {ran.row.workload}: {reason}" for reason in missed]
            failed |= {number} if missed else set()
        sheets.append(Sheet(f"{chip}: one {config.rows}x{config.cols} core", _COLUMNS, rows, frozenset(failed)))
        remarks += [
            f"{chip}, {ran.row.workload}: the whole run, {ran.row.rtl_cycles:,} cycles, is longer than SCALE-Sim's "
            f"{found[ran.row.workload].cycles:,} compute cycles."
            for ran in batch.ran
            if ran.row.rtl_cycles >= found[ran.row.workload].cycles
        ]
        remarks.append(
            f"{chip}: our simulator process took {batch.process_seconds:.1f} CPU-s in all, start and loading of "
            f"memories included; SCALE-Sim's layers {sum(theirs.cpu_seconds for theirs in found.values()):.1f}."
        )
    return Result(
        "scalesim",
        "Side by side with SCALE-Sim v3",
        "Output stationary, batch 1, true output sizes, traces off. *Its cycles*: from its array's first operand to "
        "the last result, with memories that always keep up; it computes no value. *Our cycles*: the same on the RTL, "
        "from the first start to the last end of a GEMM, with every wait for DRAM in between. *Our run*: from the "
        "host's start to its end, with programs fetched, tensors read from and results written to DRAM; every byte is "
        "compared. CPU-seconds are measured in the same run, one simulator at a time: ours for simulating, then for "
        "schedule (with lowering, checking, predicting) and golden model (with comparing); of layers that take "
        "milliseconds the fastest of three runs counts, on both sides. Bars: fewer cycles, at least "
        f"{SPEED_UP} times fewer seconds for simulating, no mismatch.",
        tuple(sheets),
        tuple(remarks),
        tuple(failures),
        versions,
    )


def install(on_progress: OnEvent) -> Path:
    """The Python of SCALE-Sim's own environment, made on demand. Raises BenchmarkError when it cannot be installed."""
    name = key("scalesim", pins=" ".join(PINS), python=sys.version, base=sys.base_prefix)
    recipe = Recipe(name, lambda folder, log: _install(folder, log, on_progress), _INSTALLED)
    try:
        return TOOLS.store(OUTPUT).build(recipe)[0] / _INSTALLED[0]
    except StoreError as error:
        raise BenchmarkError(str(error)) from error


def _install(folder: Path, log: Path, on_progress: OnEvent) -> None:
    """Makes the environment in a folder, which may be renamed: only its Python is run."""
    on_progress(Stage(workload="SCALE-Sim", what="installing into its own environment"))
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [
            str(folder / _INSTALLED[0]),
            *("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", *PINS),
        ],
    ):
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
            log.write_text("\n".join(said))
            raise BenchmarkError(
                f"SCALE-Sim could not be installed: {said[-1]} (it needs {', '.join(PINS)}, and so Python <= 3.12)"
            )


def drive(python: Path, rows: int, cols: int, shapes: Sequence[ConvShape]) -> Iterator[dict[str, Any]]:
    """Runs SCALE-Sim on an array of that size; yields what `scale_sim_driver.py` says. Raises BenchmarkError."""
    layers = [[shape.name, *topology(shape)] for shape in shapes]
    driver = Path(__file__).with_name("scale_sim_driver.py")
    with tempfile.TemporaryDirectory(prefix="scalesim-", dir=OUTPUT) as name:
        folder = Path(name)
        job, log = folder / "job.json", folder / "log"
        job.write_text(json.dumps({"rows": rows, "cols": cols, "layers": layers}))
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [str(python), "-I", str(driver), str(job), str(folder)],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert process.stdout is not None
        heard = 0
        try:
            for text in process.stdout:
                message = json.loads(text)
                heard += "versions" not in message
                yield message
            process.wait()
        finally:  # also when interrupted
            if process.poll() is None:
                process.kill()
                process.wait()
            process.stdout.close()
        if process.returncode or heard != len(layers):
            said = log.read_text(errors="replace").strip().splitlines() or ["it printed nothing"]
            raise BenchmarkError(f"SCALE-Sim ended after {heard} of {len(layers)} layers: {said[-1]}")
