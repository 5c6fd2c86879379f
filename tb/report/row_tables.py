"""The tables of a run: its rows, the layers of its networks, links, congestion, time."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from meshloom.hw.spec.config import tile_position

from ..results.legend import GROUPS, legend
from ..results.schema import MEAN_ERROR_PERCENT, Results, Row, Status, Summary
from .answers import lines
from .claims import claim_of, print_claims
from .console import dense, percent
from .narrow import show
from .tables import told_apart

#: Of the line of a row, by its status.
COLOUR = {
    Status.PASSED: "green",
    Status.UNCHECKED: "yellow",
    Status.INCOMPLETE: "yellow",
    Status.MODEL: "yellow",
    Status.MISMATCH: "red",
    Status.FAULT: "red",
    Status.FAILED: "red",
}


def chip_name(row: Row, rows: Sequence[Row]) -> str:
    """A chip's name; where another chip has the same, a built-in one or that of another row, with its digest."""
    return told_apart(row.chip, row.chip_digest, ((other.chip, other.chip_digest) for other in rows))


def table(rows: Sequence[Row]) -> Table:
    """The table of a run, one line per row, in the order given."""
    result = Table(header_style="bold", pad_edge=False)
    for name in ("workload", "chip", "scheduler"):
        result.add_column(name, no_wrap=True)
    for name in (
        "RTL cycles",
        "model cycles",
        "error",
        "PE util.",
        "bytes checked",
        "mismatches",
        "seconds",
        "cycles/s",
    ):
        result.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        passed = row.status is Status.PASSED
        result.add_row(
            row.workload if passed else f"{row.workload} [{row.status}]",
            chip_name(row, rows),
            row.scheduler,
            f"{row.rtl_cycles:,}",
            f"{row.model_cycles:,}",
            percent(row.error_percent, sign="+"),
            percent(100 * row.utilisation, digits=1),
            f"{row.bytes_checked:,}",
            f"{row.mismatches:,}",
            f"{row.cpu_seconds:.2f}" if row.cpu_seconds else "-",
            f"{row.cycles_per_second:,.0f}" if row.cpu_seconds else "-",
            style="" if passed else COLOUR[row.status],
        )
    return result


def network_table(rows: Sequence[Row]) -> Table:
    """What whole networks have besides: their answers, and what they did for them."""
    result = Table(header_style="bold", pad_edge=False)
    for name in ("network", "input", "RTL says", "label", "float says"):
        result.add_column(name, overflow="fold")
    for name in ("MMAC", "DRAM MB", "tensors", "in DRAM", "layer error"):
        result.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        if (figures := row.network) is None:
            continue
        names = row.workload, figures.picture, figures.answer, figures.expected, figures.float_answer
        result.add_row(
            *(name or "-" for name in names),
            f"{figures.macs / 1e6:,.1f}",
            f"{figures.dram_bytes / 1e6:,.2f}",
            f"{figures.tensors_checked:,}",
            f"{len(figures.spilled):,}",
            percent(figures.layer_error_percent),
        )
    return result


def micro_op_table(rows: Sequence[Row]) -> Table:
    """What schedulers of micro-ops say of their schedules."""
    result = Table(header_style="bold", pad_edge=False)
    for name in ("network", "scheduler", "taken"):
        result.add_column(name, overflow="fold")
    for name in ("micro-ops", "planned cycles", "bound cycles", "gap", "hops x bytes", "spilled words"):
        result.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        if row.network is None or (figures := row.network.micro_ops) is None:
            continue
        numbers = figures.count, figures.planned_cycles, figures.bound_cycles
        result.add_row(
            row.workload,
            row.scheduler,
            figures.taken,
            *(f"{number:,}" for number in numbers),
            percent(None if figures.gap is None else 100 * figures.gap),
            f"{figures.hops_bytes:,}",
            f"{figures.spilled_words:,}",
        )
    return result


def gradient_table(rows: Sequence[Row]) -> Table:
    """The order in which gradients were computed, what they took from and gave to DRAM, and how the array was used."""
    result = Table(header_style="bold", pad_edge=False)
    for name in ("gradients of", "order", "loops and tiles"):
        result.add_column(name, overflow="fold")
    for name in ("DRAM bytes", "spilled", "array busy", "vector busy"):
        result.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        if (figures := row.gradient) is None:
            continue
        busy = (100 * cycles / max(1, row.rtl_cycles) for cycles in (figures.array_cycles, figures.vector_cycles))
        result.add_row(
            row.workload,
            figures.order,
            figures.nest,
            f"{figures.dram_bytes:,}",
            f"{figures.spilled_bytes:,}",
            *(percent(share, digits=1) for share in busy),
        )
    return result


def share_table(rows: Sequence[Row]) -> Table:
    """Where the arrays' time went in each network."""
    result = dense("where the cycles went, % of the PE cycles", ("network", "input"), GROUPS)
    for row in rows:
        if figures := row.network:
            shares = (f"{figures.shares.get(group, 0):.1f}" for group in GROUPS)
            result.add_row(row.workload, figures.picture, *shares)
    return result


def layer_table(row: Row) -> Table:
    """The layers of a network."""
    assert row.network is not None
    quantised = any(layer.snr_db is not None for layer in row.network.layers)
    result = dense(
        f"{row.workload} on {row.chip}, layer by layer; from compute on: % of the core cycles"
        + ("; SNR: against the float model, dB" if quantised else ""),
        ("layer", "kind", "limit"),
        ("MMAC", "RTL cycles", "error", "core cycles", *GROUPS, *(("SNR",) if quantised else ())),
    )
    for layer in row.network.layers:
        result.add_row(
            layer.name,
            layer.kind,
            layer.limit,
            f"{layer.macs / 1e6:,.2f}",
            f"{layer.rtl_cycles:,}",
            percent(layer.error_percent, sign="+"),
            f"{layer.core_cycles:,}",
            *(f"{layer.shares.get(group, 0):.1f}" if layer.shares else "-" for group in GROUPS),
            *(("-" if layer.snr_db is None else f"{layer.snr_db:.1f}",) if quantised else ()),
        )
    return result


def link_table(row: Row) -> Table:
    """The links of the data plane: cycles in which a flit left by them, in which one wanted to and none did, and how
    they compare with all cycles, and with those in which one wanted to."""
    columns = ("busy", "blocked", "load", "blocked of wanted")
    result = dense(f"{row.workload} on {row.chip}: data plane", ("router", "to"), columns)
    for link in row.links:
        result.add_row(
            _tile(link.tile),
            "tile" if link.port == "local" else link.port,
            f"{link.busy:,}",
            f"{link.blocked:,}",
            percent(100 * link.load, digits=1),
            percent(100 * link.blocked_share, digits=1),
        )
    return result


def congestion_table(row: Row) -> Table:
    """How far the MOVEs of a run were held up, by the tile whose mover sent them: their time on an idle chip, their
    time here, and the level of congestion, the first divided by the second."""
    assert row.congestion is not None
    columns = ("MOVEs", "ideal cycles", "real cycles", "level")
    result = dense(f"{row.workload} on {row.chip}: congestion", ("source",), columns)
    for source in row.congestion.sources:
        times = f"{source.ideal_cycles:,}", f"{source.real_cycles:,}", f"{source.level:.3f}"
        result.add_row(_tile(source.tile), f"{source.moves:,}", *times)
    whole = row.congestion
    moves = sum(source.moves for source in whole.sources)
    times = f"{whole.ideal_cycles:,}", f"{whole.real_cycles:,}", f"{whole.level:.3f}"
    result.add_row("all", f"{moves:,}", *times, style="bold")
    return result


def clock_table(rows: Sequence[Row]) -> Table:
    """Rows as time, of chips whose clock is known."""
    result = Table(header_style="bold", pad_edge=False)
    for name in ("workload", "chip", "scheduler"):
        result.add_column(name, no_wrap=True)
    for name in ("MHz", "ms", "frames/s", "TOPS", "DRAM GB/s", "watts (est.)"):
        result.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        if (time := row.time) is None:
            continue
        figures = time.frames_per_second, time.tops, time.dram_gigabytes_per_second, time.watts
        result.add_row(
            row.workload,
            chip_name(row, rows),
            row.scheduler,
            f"{time.clock_mhz:,g}",
            f"{time.milliseconds:,.4g}",
            *("-" if each is None else f"{each:,.4g}" for each in figures),
        )
    return result


def packet_line(row: Row) -> str:
    """Latencies of packets in one line; empty if the chip does not trace them."""
    if row.congestion is None or row.congestion.packets is None:
        return ""
    figures = row.congestion.packets
    return (
        f"{row.workload}: {figures.count:,} packets, {figures.mean:,.1f} cycles on their way in the mean "
        f"(alone {figures.idle_mean:,.1f}), {figures.worst:,} at worst, at most {figures.worst_late:,} late"
    )


def _tile(tile: int) -> str:
    x, y = tile_position(tile)
    return f"({x},{y})"


def summary_line(summary: Summary, wall_seconds: float) -> str:
    """Totals of a run in one line."""
    return (
        f"{summary.passed} of {summary.rows} passed, model error mean {percent(summary.mean_error_percent)} "
        f"(bound {MEAN_ERROR_PERCENT:g} %), worst {percent(summary.worst_error_percent)}, {wall_seconds:.1f} s"
    )


def print_results(results: Results, to: Console, per_layer: bool = False) -> None:
    """The tables (`per_layer`: also of the layers of networks; of links, if rows tell of them), the totals, and one red
    line per reason for which the run is not good."""
    show(table(results.rows), to)
    if any(row.claim for row in results.rows):
        print_claims([claim_of(row, chip_name(row, results.rows)) for row in results.rows if row.claim], "RTL", to)
    if any(row.time for row in results.rows):
        show(clock_table(results.rows), to)
    if any(row.gradient for row in results.rows):
        show(gradient_table(results.rows), to)
    networks = [row for row in results.rows if row.network and row.network.layers]
    if networks:
        show(network_table(networks), to)
        if any(row.network and row.network.micro_ops for row in networks):
            show(micro_op_table(networks), to)
        show(share_table(networks), to)
        to.print(legend(), style="dim", soft_wrap=True)
    # without trace records there are no layers to show, but there is what the network said
    answering = [row for row in results.rows if row.network and (row.network.layers or row.untraced)]
    for line in (line for row in answering for line in lines(row)):
        to.print(line, markup=False, soft_wrap=True)
    for row in networks if per_layer else ():
        show(layer_table(row), to)
    for row in results.rows:
        if row.links:
            show(link_table(row), to)
        if row.congestion is not None:
            show(congestion_table(row), to)
        if line := packet_line(row):
            to.print(line, markup=False, soft_wrap=True)
    for line in dict.fromkeys(row.untraced for row in results.rows if row.untraced):
        to.print(line, markup=False, soft_wrap=True)
    for row in (row for row in results.rows if row.corrected_words):
        words = "word" if row.corrected_words == 1 else "words"
        what = f"the chip corrected one wrong bit in each of {row.corrected_words:,} {words}"
        to.print(f"{row.workload}: {what}", markup=False, soft_wrap=True)
    to.print(summary_line(results.summary, results.wall_seconds))
    for reason in results.summary.reasons:
        to.print(f"not good: {reason}", style="red", markup=False, soft_wrap=True)
