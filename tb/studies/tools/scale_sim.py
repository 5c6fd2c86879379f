"""SCALE-Sim v3 (output stationary, one core, batch 1): its own environment, made on demand, and its runs."""

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

from ...build.builder import OUTPUT
from ..engine.point import Report
from ..engine.rows import StudyError

#: SCALE-Sim 3.0.0 crashes on NumPy 2, which is why it has an environment of its own.
PINS = ("scalesim==3.0.0", "numpy<2")
#: What is run of that environment.
_INSTALLED = ("bin/python", "pyvenv.cfg")


@dataclass(frozen=True)
class ForeignLayer:
    """A layer on SCALE-Sim: compute cycles (of which stalls), utilisation 0..1, CPU-seconds."""

    name: str
    cycles: int
    stalls: int
    utilisation: float
    cpu_seconds: float


def topology(shape: ConvShape) -> list[int]:
    """A layer as SCALE-Sim's convolution: height, width, filter height, filter width, channels, filters, stride.

    Padding is folded into the input, which is as large as the true output needs. Raises StudyError for what it
    cannot express (batches, dilation, unequal strides).
    """
    if shape.batch != 1 or shape.dilation != 1 or shape.stride_h != shape.stride_w:
        raise StudyError(f"SCALE-Sim has no layer like {shape.name}: batch 1, dilation 1 and one stride are needed")
    height = (shape.out_h - 1) * shape.stride_h + shape.kernel_h
    width = (shape.out_w - 1) * shape.stride_w + shape.kernel_w
    return [height, width, shape.kernel_h, shape.kernel_w, shape.in_channels, shape.out_channels, shape.stride_h]


def install(report: Report) -> Path:
    """The Python of SCALE-Sim's own environment, made on demand. Raises StudyError when it cannot be installed."""
    name = key("scalesim", pins=" ".join(PINS), python=sys.version, base=sys.base_prefix)
    recipe = Recipe(name, lambda folder, log: _install(folder, log, report), _INSTALLED)
    try:
        return TOOLS.store(OUTPUT).build(recipe)[0] / _INSTALLED[0]
    except StoreError as error:
        raise StudyError(str(error)) from error


def _install(folder: Path, log: Path, report: Report) -> None:
    """Makes the environment in a folder, which may be renamed: only its Python is run."""
    report("installing SCALE-Sim into its own environment")
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [
            str(folder / _INSTALLED[0]),
            *("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", *PINS),
        ],
    ):
        process = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if process.returncode:
            words = (process.stderr or process.stdout).strip().splitlines() or [f"exit status {process.returncode}"]
            log.write_text("\n".join(words))
            raise StudyError(
                f"SCALE-Sim could not be installed: {words[-1]} (it needs {', '.join(PINS)}, and so Python <= 3.12)"
            )


def drive(python: Path, rows: int, cols: int, shapes: Sequence[ConvShape]) -> Iterator[dict[str, Any]]:
    """Runs SCALE-Sim on an array of that size; yields what `scale_sim_driver.py` says. Raises StudyError."""
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
            words = log.read_text(errors="replace").strip().splitlines() or ["it printed nothing"]
            raise StudyError(f"SCALE-Sim ended after {heard} of {len(layers)} layers: {words[-1]}")
