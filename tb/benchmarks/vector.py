"""The vector unit by the number of windows that it computes at once: cycles of networks on the RTL, and its size."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from meshloom.hw.spec.config import CHIP_FOLDER, load
from meshloom.hw.spec.isa import Unit

from ..report.console import percent
from ..results.events import Event, OnEvent, RowCount, Stage
from ..results.legend import GROUPS
from ..results.schema import Row
from .area import Area, unit_area
from .interface import BenchmarkError, all_ran
from .results import Result, Sheet

CHIP = "quad16"
#: 1: every tap of every window is read by itself.
WINDOWS = (1, 3, 5)
NETWORKS = ("ds_cnn", "vww", "mobilenet_v1")


def variant(windows: int, folder: Path) -> Path:
    """The chip with so many windows, as a file in `folder`."""
    text, found = re.subn(
        r"(?m)^vec_windows = \d+", f"vec_windows = {windows}", (CHIP_FOLDER / f"{CHIP}.toml").read_text()
    )
    if found != 1:
        raise BenchmarkError(f"{CHIP}.toml sets vec_windows {found} times; it must be once")
    name = f"{CHIP}_windows{windows}"  # no built-in chip's
    text = text.replace(f'name = "{CHIP}"', f'name = "{name}"', 1)
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def missed(rows: dict[int, list[Row]]) -> list[str]:
    """Bytes that differ, errors of the model, and networks that more windows make slower."""
    found: list[str] = []
    for windows, some in rows.items():
        for row, plain in zip(some, rows[WINDOWS[0]], strict=True):
            where = f"{row.workload} with {windows} windows"
            if row.reason or row.rtl_cycles != row.model_cycles:
                error = percent(row.error_percent, sign="+")
                found.append(f"{where}: {row.reason or f'model error {error}'}")
            if (row.rtl_cycles or 0) > (plain.rtl_cycles or 0):
                found.append(f"{where}: {row.rtl_cycles:,} cycles, {plain.rtl_cycles:,} with 1")
    return found


def _networks(rows: dict[int, list[Row]]) -> Sheet:
    cells: list[tuple[str, ...]] = []
    for index, name in enumerate(NETWORKS):
        for windows in WINDOWS:
            row = rows[windows][index]
            assert row.network is not None
            cells.append(
                (
                    name,
                    f"{windows}",
                    f"{row.rtl_cycles:,}",
                    percent(row.error_percent, sign="+"),
                    f"{row.bytes_checked:,}",
                    f"{row.mismatches}",
                    percent(100 * row.utilisation, digits=1),
                    *(f"{row.network.shares[cause]:.1f}" for cause in GROUPS),
                )
            )
    columns = ("network", "windows>", "RTL cycles>", "error>", "bytes>", "mismatches>", "PE util.>")
    title = f"Networks on {CHIP}, and where their PE cycles went, %"
    return Sheet(title, (*columns, *(f"{cause}>" for cause in GROUPS)), cells)


def _areas(on_progress: OnEvent) -> Sheet:
    chip = load(CHIP)
    on_progress(Stage(workload=CHIP, what="synthesising the matrix unit"))
    matrix = unit_area(chip, Unit.MATRIX)
    cells = [("matrix", "", f"{matrix.cells:,}", f"{matrix.flip_flops:,}", "")]
    first: Area | None = None
    for windows in WINDOWS:
        on_progress(Stage(workload=CHIP, what=f"synthesising the vector unit with {windows} windows"))
        core = chip.core.model_copy(update={"vec_windows": windows})
        found = unit_area(chip.model_copy(update={"core": core}), Unit.VECTOR)
        first = first or found
        more = (found.cells - first.cells) / (matrix.cells + first.cells)
        cells.append(
            (
                "vector",
                f"{windows}",
                f"{found.cells:,}",
                f"{found.flip_flops:,}",
                percent(100 * more, sign="+", digits=1),
            )
        )
    return Sheet(
        f"Units of a {CHIP} core without their memories (Yosys `synth`, generic cells)",
        ("unit", "windows>", "cells>", "of them flip-flops>", "of both units>"),
        cells,
    )


def run(on_progress: OnEvent) -> Result:
    """Runs the networks on each variant of the chip; synthesises the units."""
    from ..inputs.sources import NetworkSource
    from ..runs import runner

    def pass_on(event: Event) -> None:
        if not isinstance(event, RowCount):  # the plan of all variants has been told
            on_progress(event)

    on_progress(RowCount(rows=len(WINDOWS) * len(NETWORKS)))
    rows: dict[int, list[Row]] = {}
    with tempfile.TemporaryDirectory(prefix="meshloom_") as name:
        for windows in WINDOWS:
            chip = variant(windows, Path(name))
            rows[windows] = list(all_ran(runner.run([NetworkSource(n) for n in NETWORKS], chip, "loop_order", pass_on)))
    return Result(
        "vector",
        "Windows at once in the vector unit",
        "`core.vec_windows` of a chip: overlapping windows of a depthwise convolution or pool that a word of the input "
        "counts for in the cycle in which it is read. Every byte of every tensor is compared with ONNX Runtime. Bars: "
        "no byte differs, no cycle between RTL and model, no network slower than with 1.",
        (_networks(rows), _areas(on_progress)),
        failures=tuple(missed(rows)),
    )
