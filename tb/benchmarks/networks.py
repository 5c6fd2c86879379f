"""Whole networks on the RTL: labels, cycles, CPU-seconds, the model's error, and where the time of the arrays goes."""

from __future__ import annotations

from collections.abc import Sequence

from meshloom.hw.spec.config import load

from ..inputs.sources import NetworkSource, pictures
from ..report.console import percent
from ..results.events import Event, OnEvent, RowCount
from ..results.figures import NetworkFigures
from ..results.legend import GROUPS
from ..results.schema import Row, Status
from .results import Result, Sheet

#: The scheduler that is asked for if none is named.
DEFAULT = "loop_order"
#: Networks on each chip; `all`: on every stored picture, otherwise on the first.
RUNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "quad16",
        (
            "resnet8",
            "ds_cnn",
            "vww",
            "squeezenet",
            "efficientnet_lite0",
            "minilm_block",
            "mobilenet_v1",
            "resnet18",
            "googlenet",
        ),
    ),
    ("quad32", ("squeezenet", "resnet50", "yolov2", "vgg16")),
)
#: Run on every stored picture, on quad16.
LABELLED = ("resnet8", "squeezenet", "efficientnet_lite0")
#: Where searches of other lengths are compared.
SEARCHED_CHIP = "quad16"
#: On that chip, with how long is searched, and the percent of PE cycles that must be useful then.
SEARCHED: tuple[tuple[str, str, float], ...] = (
    ("mobilenet_v1", "loop_order", 75.0),
    ("squeezenet", "loop_order:refine=80", 82.0),
    ("resnet8", "loop_order:refine=1000", 75.0),
    ("vww", "loop_order:refine=1000", 30.0),
    ("efficientnet_lite0", "loop_order", 55.0),
)
#: What `NetworkFigures.busy` counts, as columns.
BUSY = {
    "compute": "arrays",
    "vector": "vector units",
    "receiving": "into a core",
    "sending": "out of a core",
    "dram": "DRAM channel",
    "memories": "scratchpad port",
}
#: CPU-seconds of simulating that a network may take.
SECONDS = {("quad16", "resnet8"): 3.0, ("quad16", "squeezenet"): 15.0, ("quad32", "resnet50"): 90.0}
#: Percent by which the model may be off: end to end, and in the mean over the layers.
ERROR = 2.0
#: Useful PE cycles, in percent, that layers bounded by the arrays shall reach.
UTILISATION = 90.0


def missed(rows: Sequence[Row]) -> list[str]:
    """Bars that were missed by runs."""
    found: list[str] = []
    for row in rows:
        where = _where(row)
        if row.status not in (Status.PASSED, Status.MODEL) or row.network is None:
            found.append(f"{where}: {row.reason}")
            continue
        bar = SECONDS.get((row.chip, row.workload))
        if bar is not None and row.cpu_seconds > bar:
            found.append(f"{where}: {row.cpu_seconds:.1f} CPU-seconds, the bar is {bar:g}")
        for what, error in (("end to end", row.error_percent), ("mean over layers", row.network.layer_error_percent)):
            if error is not None and abs(error) > ERROR:
                found.append(f"{where}: model error {what} {percent(error)}, the bar is {ERROR:g} %")
        bound = _bound(row)
        if bound and bound[0] < UTILISATION:
            found.append(
                f"{where}: layers bounded by the arrays use {bound[0]:.1f} % of the PEs ({bound[1]:.1f} % have "
                f"operands), the bar is {UTILISATION:g} %"
            )
    return list(dict.fromkeys(found))


def too_idle(row: Row, bar: float) -> list[str]:
    """The bar of a search for a network with arrays at work, if it was missed."""
    if row.network is None or 100 * row.utilisation >= bar:
        return []
    return [f"{_where(row)}: {100 * row.utilisation:.1f} % of the PE cycles are useful, the bar is {bar:g} %"]


def _asked(row: Row) -> str:
    """The scheduler with its options."""
    return row.settings.scheduler if row.settings else DEFAULT


def _where(row: Row) -> str:
    asked = _asked(row)
    return f"{row.workload} on {row.chip}{f' with {asked}' * (asked != DEFAULT)}"


def _ideal(row: Row, network: NetworkFigures) -> float:
    """Cycles in which all PEs of the chip could do all products."""
    config = load(row.chip)
    return network.macs / (config.rows * config.cols * len(config.cores))


def searched(rows: Sequence[tuple[Row, int, float]]) -> Sheet:
    """What searching longer gives. `rows`: each with the cycles of the default schedule, and its bar in percent."""
    cells = [
        (
            row.workload,
            _asked(row),
            f"{row.rtl_cycles:,}",
            f"{usual:,}",
            percent(100 * row.utilisation, digits=1),
            f"{bar:g} %",
            f"{row.mismatches}",
            percent(row.error_percent, sign="+"),
        )
        for row, usual, bar in rows
    ]
    columns = ("network", "scheduler", "RTL cycles>", "by default>", "PE util.>", "bar>", "mismatches>", "error>")
    bad = frozenset(number for number, (row, _, bar) in enumerate(rows) if missed([row]) + too_idle(row, bar))
    return Sheet(f"{SEARCHED_CHIP}: what searching longer gives", columns, cells, bad)


def limited(rows: Sequence[Row]) -> Sheet:
    """What bounds the schedules that ran: the busiest resource of each kind."""
    cells: list[tuple[str, ...]] = []
    for row in rows:
        network = row.network
        assert network is not None
        busy = network.busy
        largest = max(BUSY, key=busy.__getitem__)
        bound = busy[largest]
        cells.append(
            (
                row.workload,
                f"{_ideal(row, network):,.0f}",
                *(f"{busy[name]:,}" for name in BUSY),
                BUSY[largest],
                f"{bound:,}",
                f"{network.in_turn_cycles:,}",
                f"{row.rtl_cycles:,}",
                f"{row.rtl_cycles / max(1, bound):.2f}",
            )
        )
    names = (*(f"{name}>" for name in BUSY.values()), "limit", "bound>", "in turn>", "RTL cycles>", "RTL / bound>")
    return Sheet(f"{SEARCHED_CHIP}: what limits these schedules, cycles", ("network", "useful>", *names), cells)


def _bound(row: Row) -> tuple[float, float] | None:
    """Of the layers that the arrays bound: PE cycles with a useful product, and with operands, in percent."""
    assert row.network is not None
    bound = [layer for layer in row.network.layers if layer.limit.partition("+")[0] == "compute" and layer.shares]
    cycles = sum(layer.core_cycles for layer in bound)
    if not cycles:
        return None
    useful = sum(100 * layer.utilisation * layer.core_cycles for layer in bound) / cycles
    fed = sum(layer.core_cycles * (layer.shares["compute"] + layer.shares["edges"]) for layer in bound) / cycles
    return useful, fed


def _line(row: Row) -> tuple[str, ...]:
    network = row.network
    assert network is not None
    useful, fed = _bound(row) or (0.0, 0.0)
    return (
        row.workload,
        f"{network.macs / 1e6:,.1f}",
        f"{row.rtl_cycles:,}",
        percent(row.error_percent, sign="+"),
        percent(network.layer_error_percent),
        percent(100 * row.utilisation, digits=1),
        f"{useful:.1f} %",
        f"{fed:.1f} %",
        f"{network.dram_bytes / 1e6:,.2f}",
        f"{network.tensors_checked}",
        f"{row.bytes_checked:,}",
        f"{row.mismatches}",
        f"{row.cpu_seconds:.2f}",
        f"{row.cycles_per_second:,.0f}",
    )


_COLUMNS = (
    "network",
    "MMAC>",
    "RTL cycles>",
    "error>",
    "layer error>",
    "PE util.>",
    "bound util.>",
    "bound fed>",
    "DRAM MB>",
    "tensors>",
    "bytes>",
    "mismatches>",
    "CPU s>",
    "cycles/s>",
)


def _answers(name: str, rows: Sequence[Row]) -> Sheet:
    """What RTL and float network say about each picture."""
    found = [row.network for row in rows if row.network]
    right = sum(one.answer == one.expected for one in found)
    right_float = sum(one.float_answer == one.expected for one in found)
    cells = [(one.picture, one.expected, one.answer, one.float_answer) for one in found]
    bad = frozenset(number for number, one in enumerate(found) if one.answer != one.expected)
    title = f"{name}: right on {right} of {len(found)} pictures, the float network on {right_float}"
    return Sheet(title, ("picture", "label", "RTL", "float"), cells, bad)


def _layers(row: Row) -> Sheet:
    assert row.network is not None
    cells = [
        (
            layer.name,
            layer.limit,
            f"{layer.macs / 1e6:,.2f}",
            f"{layer.rtl_cycles:,}",
            percent(layer.error_percent, sign="+"),
            f"{layer.core_cycles:,}",
            *(f"{layer.shares[cause]:.1f}" if layer.shares else "-" for cause in GROUPS),
        )
        for layer in row.network.layers
    ]
    columns = ("layer", "limit", "MMAC>", "RTL cycles>", "error>", "core cycles>", *(f"{cause}>" for cause in GROUPS))
    return Sheet(f"{row.workload} on {row.chip}, layer by layer; causes in % of the core cycles", columns, cells)


def run(on_progress: OnEvent) -> Result:
    """Runs all networks, one chip after the other."""
    from ..runs import runner

    def pass_on(event: Event) -> None:
        if not isinstance(event, RowCount):  # the plan of all chips has been told
            on_progress(event)

    sources = [
        (
            chip,
            [NetworkSource(name, pictures(name) if chip == "quad16" and name in LABELLED else ()) for name in names],
        )
        for chip, names in RUNS
    ]
    usual = {name for chip, names in RUNS for name in names if chip == SEARCHED_CHIP}
    more = [(name, scheduler, bar) for name, scheduler, bar in SEARCHED if scheduler != DEFAULT or name not in usual]
    runs = sum(max(1, len(source.inputs)) for _, some in sources for source in some)
    on_progress(RowCount(rows=runs + len(more)))
    sheets: list[Sheet] = []
    details: list[Sheet] = []
    failures: list[str] = []
    for chip, some in sources:
        # one simulator at a time: CPU-seconds are what this measures
        rows = runner.run(some, chip, DEFAULT, pass_on)
        failures += missed(rows)
        first = list({row.workload: row for row in reversed(rows)}.values())[::-1]
        good = [row for row in first if row.network and row.network.layers]
        bad = frozenset(number for number, row in enumerate(good) if missed([row]))
        sheets.append(Sheet(f"{chip}: whole networks", _COLUMNS, [_line(row) for row in good], bad))
        share_rows = [
            (row.workload, *(f"{row.network.shares[cause]:.1f}" for cause in GROUPS)) for row in good if row.network
        ]
        columns = ("network", *(f"{cause}>" for cause in GROUPS))
        sheets.append(Sheet(f"{chip}: where the PE cycles went, %", columns, share_rows))
        if chip == SEARCHED_CHIP:
            by_default = {row.workload: row for row in first}
            found: list[tuple[Row, int, float]] = []
            for name, scheduler, bar in SEARCHED:
                row = by_default[name]
                if (name, scheduler, bar) in more:
                    (row,) = runner.run([NetworkSource(name)], chip, scheduler, pass_on)
                    failures += missed([row])
                failures += too_idle(row, bar)
                found.append((row, by_default[name].rtl_cycles, bar))
            sheets.append(searched(found))
            sheets.append(limited([row for row, _, _ in found if row.network and row.network.busy]))
            details += [_answers(name, [row for row in rows if row.workload == name]) for name in LABELLED]
        details += [_layers(row) for row in good]
    return Result(
        "networks",
        "Whole networks on the RTL",
        "Every tensor of every network is compared with ONNX Runtime, in the words that the cores computed. CPU s: the "
        f"simulator alone. Bars: {', '.join(f'{n} on {c} {s:g} s' for (c, n), s in SECONDS.items())}; the model within "
        f"{ERROR:g} % end to end (`error`) and in the mean over layers (`layer error`, of the cycles from a layer's "
        f"first GEMM or VEC to its last); no byte differs. Compute-bound layers shall use {UTILISATION:g} % of the "
        "PEs; of theirs `bound util.` counts the useful multiply-accumulates, `bound fed` all cycles in which the "
        "array has operands; the difference are its edges (7x7 maps in 32 rows, few channels in a word). Searching "
        "longer is an option of the scheduler (`refine`: schedules that are compared); each of these networks has a "
        "bar of useful PE cycles. *What limits these schedules*: `useful` are the cycles of all products on all PEs, "
        "then the cycles for which the whole schedule keeps the busiest resource of each kind: an array with its "
        "edges, a vector unit, the port into a core and out of one, a DRAM channel (or its port), a port of a "
        "scratchpad. The largest is a bound: with these tiles, cores and places no order of operations takes less. "
        "`in turn`: the same layer by layer, each with the resource that it keeps longest, added up: what layers would "
        "take one after another, each at its limit. "
        "docs/architecture/comparing.md says what the causes mean.",
        (*sheets, *details),
        failures=tuple(failures),
    )
