"""The tables of the commands that need no simulator: chips, workloads, predictions, operations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from meshloom.hw.spec.config import Arbitration, ChipConfig, built_in_chips, load, tile_position
from meshloom.hw.spec.isa import OFFSET_BITS, Region, VectorOp

from ..results.clock import clock_figures
from .console import percent

if TYPE_CHECKING:
    import polars

    from meshloom.sched.ir.schedule import Operation, Schedule, Span
    from meshloom.sched.workload.catalog import Workload

#: Characters of a text in a table of any rows.
_LONGEST = 48


def _table(left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(header_style="bold", pad_edge=False)
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def text_table(names: Sequence[str], lines: Iterable[Sequence[str]]) -> Table:
    """Texts under headings; those of the last column are folded where there is no room."""
    table = Table(header_style="bold", pad_edge=False)
    for name in names:
        table.add_column(name, no_wrap=name != names[-1])
    for line in lines:
        table.add_row(*line)
    return table


def kibibytes(size: int) -> str:
    """A size in bytes as KiB."""
    return f"{size / 1024:,.0f} KiB" if size >= 10240 else f"{size / 1024:.3g} KiB"


def chip_table(chips: Iterable[ChipConfig]) -> Table:
    """What distinguishes chips, with their floorplans."""
    table = _table(("chip", "floorplan"), ("cores", "PEs", "A + B a core", "ACC + OUT a core", "SPM", "DRAM"))
    for chip in chips:
        lanes, core = chip.lanes, chip.core
        table.add_row(
            chip.name,
            "\n".join(" ".join(kind.ljust(4) for kind in row) for row in chip.floorplan),
            f"{len(chip.cores)} x {chip.rows}x{chip.cols}",
            f"{processing_elements(chip):,}",
            kibibytes(lanes * (core.a_words + core.b_words)),
            kibibytes(lanes * (4 * core.acc_words + core.out_words)),
            f"{len(chip.spms)} x {kibibytes(lanes * chip.spm_words)}",
            _dram(chip),
            end_section=True,
        )
    return table


def _dram(chip: ChipConfig) -> str:
    """The DRAM channels of a chip."""
    dram = chip.dram
    shared = "" if dram.arbitration is Arbitration.FIFO else f", {dram.arbitration.replace('_', ' ')}"
    banks = "" if dram.banks is None else f", {dram.banks.count} banks"
    return (
        f"{len(chip.drams)} x {dram.bytes_per_cycle} B/cycle" + ", whole packets" * dram.whole_packets + shared + banks
    )


def processing_elements(chip: ChipConfig) -> int:
    """Multiply-accumulates that the chip can do in a cycle."""
    return len(chip.cores) * chip.rows * chip.cols


def workload_table(layers: Iterable[Workload]) -> Table:
    """Layers with their shapes."""
    table = _table(("workload", "input", "output", "kernel", "data"), ("stride", "dilation", "MMAC"))
    for layer in layers:
        shape = layer.shape
        table.add_row(
            layer.name,
            "x".join(map(str, shape.x_shape)),
            "x".join(map(str, shape.y_shape)),
            f"{shape.kernel_h}x{shape.kernel_w}",
            "real" if layer.real else "random",
            f"{shape.stride_h}x{shape.stride_w}",
            str(shape.dilation),
            f"{shape.macs / 1e6:,.3f}",
        )
    return table


def request_table(requests: Iterable[tuple[str, int | None]]) -> Table:
    """Workloads that are no layers, with their multiply-accumulates (None: not known)."""
    table = _table(("workload",), ("MMAC",))
    for name, macs in requests:
        table.add_row(name, "-" if macs is None else f"{macs / 1e6:,.3f}")
    return table


@cache
def _built_in(name: str) -> str:
    """Digest of the built-in chip of that name; empty if there is none."""
    return load(name).digest if name in built_in_chips() else ""


def told_apart(chip: str, digest: str, others: Iterable[tuple[str, str]]) -> str:
    """A chip's name; where another chip has the same, a built-in one or one of `others`, with its digest."""
    digests = {other for name, other in others if name == chip} | {_built_in(chip)}
    return f"{chip}@{digest[:8]}" if digest and len(digests - {"", digest}) > 0 else chip


def prediction_table(values: Iterable[tuple[str, int | None, Schedule, ChipConfig]]) -> Table:
    """Predicted cycles and utilisation of schedules, one line for each: of what workload, its multiply-accumulates
    (None: not known), and the chip."""
    plans = list(values)
    timed = any(chip.clock_mhz for *_, chip in plans)
    chips = [(schedule.chip, schedule.chip_digest) for _, _, schedule, _ in plans]
    columns = ("moves", "GEMMs", "model cycles", *(("ms", "TOPS") if timed else ()), "PE util.")
    table = _table(("workload", "chip", "scheduler"), columns)
    for name, macs, schedule, chip in plans:
        gemms = sum(op.kind == "gemm" for op in schedule.operations)
        cycles = schedule.predicted.cycles if schedule.predicted else None
        useful = 100 * macs / (cycles * processing_elements(chip)) if cycles and macs is not None else None
        table.add_row(
            name,
            told_apart(schedule.chip, schedule.chip_digest, chips),
            schedule.scheduler,
            f"{len(schedule.operations) - gemms:,}",
            f"{gemms:,}",
            "-" if cycles is None else f"{cycles:,}",
            *(_as_time(chip, cycles, macs) if timed else ()),
            percent(useful, digits=1),
        )
    return table


def _as_time(chip: ChipConfig, cycles: int | None, macs: int | None) -> tuple[str, str]:
    """Milliseconds and 10^12 operations a second, where they are known."""
    time = clock_figures(chip.clock_mhz, cycles or 0, macs=macs)
    if time is None:
        return "-", "-"
    return f"{time.milliseconds:,.4g}", "-" if time.tops is None else f"{time.tops:,.4g}"


def _span(span: Span) -> str:
    region, offset = span.address >> OFFSET_BITS, span.address & ((1 << OFFSET_BITS) - 1)
    x, y = tile_position(span.tile)
    return f"({x},{y}) {Region(region).name}[{offset}]"


def _operation(op: Operation) -> tuple[str, str]:
    if op.kind == "move":
        x, y = tile_position(op.issuer)
        more = f", {op.copies} cop{'ies' if op.copies > 1 else 'y'} on the way" if op.copies else ""
        return f"MOVE by ({x},{y})", f"{op.words} words {_span(op.src)} -> {_span(op.dst)}{more}"
    x, y = tile_position(op.core)
    if op.kind == "vec":
        return (
            f"VEC on ({x},{y})",
            f"{VectorOp(op['op']).name} {op.x_region.name}[{op['x_base']}], {op['pixels']} pixels, "
            f"{op['blocks']} blocks, {op.taps} taps -> VEC[{op['dest_base']}]",
        )
    result = f"{'ACC' if op['to_acc'] else 'OUT'}[{op['dest_base']}]"
    return (
        f"GEMM on ({x},{y})",
        f"A[{op['a_base']}] x B[{op['b_base']}], {op['pixels']} pixels, {op['n_blocks']} blocks, "
        f"{op.taps} taps -> {result}",
    )


def print_operations(schedule: Schedule, to: Console) -> None:
    """Lists a schedule's operations in program order: predicted start and end cycle, what, where, label."""
    predicted = schedule.predicted
    timed = predicted is not None and len(predicted.start) == len(schedule.operations)
    for index, op in enumerate(schedule.operations):
        time = f"{predicted.start[index]:>9} {predicted.end[index]:>9}" if predicted and timed else f"{'-':>9} {'-':>9}"
        verb, rest = _operation(op)
        to.print(f"{index:>6} {time}  {verb:<14} {rest}  {op.label}", markup=False, soft_wrap=True)


def frame_table(frame: polars.DataFrame) -> Table:
    """Any table: numbers aligned right, long texts cut."""
    table = Table(header_style="bold", pad_edge=False)
    for name, kind in frame.schema.items():
        table.add_column(name, justify="right" if kind.is_numeric() else "left", no_wrap=True)
    for row in frame.iter_rows():
        table.add_row(*(_cell(value) for value in row))
    return table


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}"
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
