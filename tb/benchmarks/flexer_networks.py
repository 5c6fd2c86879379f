"""Whole networks by `hybrid` beside `loop_order` on the RTL, where DRAM is narrow: architectures 1, 3, 5 and 7 of the
paper. Each result is kept, so whoever is interrupted goes on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import geometric_mean

from ..report.console import percent
from ..results.events import OnEvent, RowCount
from . import network_runs
from .flexer_layers import MEMORY_BOUND, floor_cycles
from .interface import BenchmarkError
from .network_runs import Asked, Found
from .results import Result, Sheet

NETWORKS = ("squeezenet", "resnet50", "yolov2")
#: Ours, then the strong baseline: as it is, and without comparing whole schedules.
HYBRID, REFINED, PLAIN = "hybrid", "loop_order", "loop_order:refine=0"
SCHEDULERS = (HYBRID, REFINED, PLAIN)
#: How much faster `hybrid` is to be than `loop_order`, in the geometric mean.
BAR = 1.05

Rows = Mapping[tuple[str, str], Mapping[str, Found]]


def plan() -> dict[str, tuple[Asked, ...]]:
    """What is measured, by the name of the part: a network on all architectures."""
    return {
        network: tuple(Asked(arch, network, each, rtl=True) for arch in MEMORY_BOUND for each in SCHEDULERS)
        for network in NETWORKS
    }


def run(on_progress: OnEvent, parts: Sequence[str] = ()) -> Result:
    """Measures `parts` of the plan (none named: all of it), but for what is kept; shows everything that there is then.

    Part "kept" measures nothing. Raises BenchmarkError for others.
    """
    planned = plan()
    if unknown := [part for part in parts if part not in (*planned, "kept")]:
        raise BenchmarkError(f"no part {', '.join(unknown)}; there are {', '.join((*planned, 'kept'))}")
    chosen = [one for part in (parts or planned) for one in planned.get(part, ())]
    on_progress(RowCount(rows=len(chosen)))
    failures = network_runs.measure(chosen, on_progress)
    everything = [one for part in planned.values() for one in part]
    found, older = network_runs.KEPT.collected(everything)
    rows: dict[tuple[str, str], dict[str, Found]] = {}
    for one in everything:
        if one in found:
            rows.setdefault((one.chip, one.network), {})[one.scheduler] = found[one]
    if left := len(everything) - len(found):
        failures.append(f"{left} of {len(everything)} results are missing")
    stale = {(one.chip, one.network) for one in older}
    return Result(
        "flexer_networks",
        "Networks out of order and in loop nests",
        f"SqueezeNet (trained, a real picture), ResNet-50 and YOLOv2 (random weights) on {', '.join(MEMORY_BOUND)}, "
        "every tensor on the RTL compared with ONNX Runtime. `loop_order` lets layers overlap, keeps tensors in the "
        "scratchpad and refines that over whole schedules; `refine=0` does not refine. `hybrid` begins with the best "
        "of more ways and refines it further. *Star*: older code found some of the row. *At least*: cycles that arrays "
        "need for all products, or DRAM for weights, input and output. Parts: "
        f"{', '.join((*planned, 'kept'))}.",
        (sheet(rows, stale), means(rows)),
        network_runs.told(older),
        failures=(*failures, *missed(rows)),
    )


def sheet(rows: Rows, older: Collection[tuple[str, str]] = ()) -> Sheet:
    """RTL cycles of each network on each chip; `older`: where older code has found some."""
    cells = [
        (
            chip, network + "*" * ((chip, network) in older),
            *(f"{found[each].rtl_cycles:,}" if each in found else "-" for each in SCHEDULERS),
            *(_speedup(found, each) for each in SCHEDULERS[1:]),
            f"{floor_cycles(chip, network):,}",
            percent(100 * max((one.error for one in found.values()), key=abs), sign="+"),
            f"{sum(one.compared for one in found.values()):,}",
            str(sum(one.wrong for one in found.values())),
        )
        for (chip, network), found in rows.items()
    ]  # fmt: skip
    columns = (
        "chip", "network", *(f"{each}>" for each in SCHEDULERS), *(f"hybrid/{each}>" for each in SCHEDULERS[1:]),
        "at least>", "model>", "bytes compared>", "wrong>",
    )  # fmt: skip
    return Sheet("RTL cycles", columns, cells)


def means(rows: Rows) -> Sheet:
    """Speed-ups in the geometric mean."""
    cells = [
        (each, str(len(some)), f"{geometric_mean(some):.3f}")
        for each in SCHEDULERS[1:]
        if (some := _speedups(rows, each))
    ]
    return Sheet("hybrid, in the geometric mean", ("over", "rows>", "speed-up>"), cells)


def _speedups(rows: Rows, baseline: str) -> list[float]:
    both = [found for found in rows.values() if HYBRID in found and baseline in found]
    return [found[baseline].rtl_cycles / found[HYBRID].rtl_cycles for found in both]


def _speedup(found: Mapping[str, Found], baseline: str) -> str:
    (ratio,) = _speedups({("", ""): found}, baseline) or (0.0,)
    return f"{ratio:.3f}" if ratio else "-"


def missed(rows: Rows) -> list[str]:
    """Bars that are missed: bytes that differ, `hybrid` behind, its mean."""
    found = [
        f"{network} on {chip} by {scheduler}: {one.wrong:,} bytes are wrong"
        for (chip, network), each in rows.items()
        for scheduler, one in each.items()
        if one.wrong
    ]
    for (chip, network), each in rows.items():
        if any(ratio < 1 for base in SCHEDULERS[1:] for ratio in _speedups({(chip, network): each}, base)):
            found.append(f"{network} on {chip}: loop_order is faster than the hybrid")
    some = _speedups(rows, REFINED)
    if some and geometric_mean(some) < BAR:
        found.append(f"hybrid is {geometric_mean(some):.3f} times as fast as loop_order, not {BAR}")
    return found
