"""Out-of-order schedules against static ones on the RTL: layers, and whole networks.

Every speed-up is stated twice, by the timeline model and by the RTL. `flexer` has the model's figures of all layers.
Each result is kept, so whoever is interrupted goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..report.console import percent
from ..results.events import OnEvent, RowCount
from ..results.schema import MEAN_ERROR_PERCENT, WORST_ERROR_PERCENT
from . import network_runs
from .flexer_layers import BUDGET, HYBRID_BAR, MEMORY_BOUND, budget_in_words, compile_search, floor_cycles
from .interface import BenchmarkError
from .network_runs import Asked, Found
from .results import Result, Sheet

#: Layers of all four networks, dense and pointwise, early and late; the paper's conv4_2, conv3_1 and conv3_1_1.
LAYERS = {
    "arch5": (
        *(f"vgg16/conv{name}" for name in ("1_2", "2_1", "3_1", "3_2", "4_1", "4_2", "5_1")),
        *(
            f"resnet50/conv{name}"
            for name in (
                *("2_1_1", "2_1_2", "2_1_3", "2_2_1", "3_1_1", "3_1_2", "3_2_1", "4_1_1", "4_1_2", "4_1_3"),
                *("4_1_shortcut", "5_1_1", "5_1_2", "5_2_2"),
            )
        ),
        *(
            f"squeezenet/{name}"
            for name in ("fire2_expand3", "fire4_expand3", "fire6_squeeze", "fire9_expand3", "conv10")
        ),
        *(f"yolov2/conv{name}" for name in ("3_2", "5_3", "6_2")),
    ),
    "arch1": ("vgg16/conv3_1", "vgg16/conv4_2", "resnet50/conv3_1_1", "resnet50/conv4_1_3", "squeezenet/conv10"),
    "arch6": ("vgg16/conv3_1", "vgg16/conv4_2", "resnet50/conv3_1_1", "resnet50/conv4_1_3", "squeezenet/conv10"),
}
#: The two baselines, the paper's scheduler and ours; of layers, and of networks (where `loop_order` has layers overlap
#: and share the scratchpad: `LAYERWISE` has it schedule each by itself, as the others do).
LAYER_SCHEDULERS = ("paper_static", "loop_order", "flexer", "hybrid")
LAYERWISE = "loop_order:between=dram,fused=no"
NETWORK_SCHEDULERS = ("paper_static", LAYERWISE, "flexer", "loop_order", "hybrid")
NETWORKS = {
    "arch1": ("squeezenet", "resnet50"),
    "arch3": ("squeezenet",),
    "arch5": ("squeezenet", "resnet50", "vgg16"),
    "arch7": ("squeezenet",),
}

#: By chip and workload, what each scheduler has come to.
Rows = Mapping[tuple[str, str], Mapping[str, Found]]


def with_budget(scheduler: str) -> str:
    """The scheduler as it is asked for: searches get BUDGET."""
    return scheduler if scheduler.startswith("loop_order") else f"{scheduler}:budget={BUDGET}"


def plan() -> dict[str, tuple[Asked, ...]]:
    """What is measured, by the name of the part: layers of a chip, and networks."""
    found: dict[str, tuple[Asked, ...]] = {}
    for kind, what, schedulers in (("layers", LAYERS, LAYER_SCHEDULERS), ("networks", NETWORKS, NETWORK_SCHEDULERS)):
        for chip, names in what.items():
            found[f"{chip}-{kind}"] = tuple(
                Asked(chip, name, with_budget(scheduler), rtl=True) for name in names for scheduler in schedulers
            )
    return found


def rows_of(known: Mapping[Asked, Found], what: Mapping[str, Sequence[str]], schedulers: Sequence[str]) -> Rows:
    """What is known of workloads by chip."""
    found: dict[tuple[str, str], dict[str, Found]] = {}
    for chip, names in what.items():
        for name in names:
            for scheduler in schedulers:
                asked = Asked(chip, name, with_budget(scheduler), rtl=True)
                if asked in known:
                    found.setdefault((chip, name), {})[scheduler] = known[asked]
    return found


def twice(rows: Mapping[str, Found], scheduler: str, baseline: str) -> str:
    """Speed-up of a scheduler over a baseline: by the model, and on the RTL."""
    one, other = rows.get(scheduler), rows.get(baseline)
    if one is None or other is None:
        return "-"
    return f"{other.cycles / one.cycles:.3f} {other.rtl_cycles / one.rtl_cycles:.3f}"


def _cells(rows: Mapping[str, Found], schedulers: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{rows[name].rtl_cycles:,}" if name in rows else "-" for name in schedulers)


def _worst(rows: Mapping[str, Found]) -> str:
    return percent(100 * max((one.error for one in rows.values()), key=abs), sign="+")


def _bad(found: Rows) -> frozenset[int]:
    return frozenset(
        number
        for number, ((chip, name), rows) in enumerate(found.items())
        if any(wrong_with(f"{name} on {chip}", one) for one in rows.values())
    )


def layer_sheet(found: Rows) -> Sheet:
    """All layers, with speed-ups by the model and on the RTL."""
    cells = [
        (
            chip,
            name,
            *_cells(rows, LAYER_SCHEDULERS),
            twice(rows, "flexer", "paper_static"),
            twice(rows, "flexer", "loop_order"),
            twice(rows, "hybrid", "loop_order"),
            _worst(rows),
        )
        for (chip, name), rows in found.items()
    ]
    columns = (
        "chip",
        "layer",
        *(f"{name}>" for name in LAYER_SCHEDULERS),
        "flexer/paper_static>",
        "flexer/loop_order>",
        "hybrid/loop_order>",
        "worst error>",
    )
    return Sheet("Layers: RTL cycles, and speed-ups by the model and on the RTL", columns, cells, _bad(found))


def network_sheet(found: Rows, floors: Mapping[tuple[str, str], int]) -> Sheet:
    """Whole networks."""
    cells = [
        (
            chip,
            name,
            *_cells(rows, NETWORK_SCHEDULERS),
            f"{floors[chip, name]:,}",
            twice(rows, "flexer", "paper_static"),
            twice(rows, "flexer", LAYERWISE),
            twice(rows, "hybrid", LAYERWISE),
            twice(rows, "hybrid", "loop_order"),
            _worst(rows),
        )
        for (chip, name), rows in found.items()
    ]
    names = ("paper_static", "loop_order, layers apart", "flexer", "loop_order, across layers", "hybrid")
    columns = (
        "chip",
        "network",
        *(f"{name}>" for name in names),
        "at least>",
        "flexer/paper_static>",
        "flexer/loop_order apart>",
        "hybrid/loop_order apart>",
        "hybrid/loop_order across>",
        "worst error>",
    )
    return Sheet("Whole networks: RTL cycles, and speed-ups by the model and on the RTL", columns, cells, _bad(found))


def wrong_with(what: str, one: Found) -> str:
    """What is wrong with a result, in words; empty if nothing is."""
    if one.trouble or one.wrong:
        return f"{what}: {one.trouble or f'{one.wrong:,} bytes are wrong'}"
    error = 100 * abs(one.error)
    if error > WORST_ERROR_PERCENT:
        return f"{what}: the model is {error:.1f} % off, the bound is {WORST_ERROR_PERCENT:g} %"
    return ""


def failures(layers: Rows, networks: Rows, floors: Mapping[tuple[str, str], int]) -> list[str]:
    """Bars that were missed."""
    both = [*layers.items(), *networks.items()]
    found = [
        words
        for (chip, name), rows in both
        for scheduler, one in rows.items()
        if (words := wrong_with(f"{name} on {chip} by {scheduler}", one))
    ]
    errors = [100 * abs(one.error) for _, rows in both for one in rows.values()]
    if errors and (mean := sum(errors) / len(errors)) > MEAN_ERROR_PERCENT:
        found.append(f"the model's mean error is {mean:.2f} %, the bound is {MEAN_ERROR_PERCENT:g} %")
    for (chip, name), each in layers.items():
        least = min(one.rtl_cycles for one in each.values())
        if "hybrid" in each and each["hybrid"].rtl_cycles > least:
            found.append(f"{name} on {chip}: the hybrid takes {each['hybrid'].rtl_cycles:,} cycles, another {least:,}")
    for (chip, name), each in networks.items():
        if chip not in MEMORY_BOUND or not {LAYERWISE, "hybrid"} <= each.keys():
            continue
        base, mine = each[LAYERWISE].rtl_cycles, each["hybrid"].rtl_cycles
        if base < HYBRID_BAR * mine:
            bound = base / floors[chip, name]
            found.append(
                f"{name} on {chip}: the hybrid is {base / mine:.3f} times as fast as loop_order layer by layer; the "
                f"bar is {HYBRID_BAR}, and no schedule can be more than {bound:.3f} times as fast"
            )
    return found


def _remarks(layers: Rows, networks: Rows, older: Collection[Asked]) -> tuple[str, ...]:
    errors = [100 * abs(one.error) for rows in (*layers.values(), *networks.values()) for one in rows.values()]
    exact = (
        f"{len(errors)} programs; the model's error: mean {sum(errors) / len(errors):.3f} %, worst "
        f"{max(errors):.3f} % (bounds {MEAN_ERROR_PERCENT:g} and {WORST_ERROR_PERCENT:g} %)."
    )
    return exact, *network_runs.told(older)


def run(on_progress: OnEvent, parts: Sequence[str] = ()) -> Result:
    """Measures `parts` of the plan (none named: all of it), but for what is kept; shows everything that there is then.

    Part "kept" measures nothing. Raises BenchmarkError for others, and if there is nothing to be shown.
    """
    planned = plan()
    if unknown := [part for part in parts if part not in (*planned, "kept")]:
        raise BenchmarkError(f"no part {', '.join(unknown)}; there are {', '.join((*planned, 'kept'))}")
    chosen = [one for part in (parts or planned) for one in planned.get(part, ())]
    on_progress(RowCount(rows=len(chosen)))
    if network_runs.KEPT.missing(chosen):
        compile_search(on_progress)
    missed = network_runs.measure(chosen, on_progress)
    everything = [one for part in planned.values() for one in part]
    known, older = network_runs.KEPT.collected(everything)
    if not known:
        raise BenchmarkError(f"nothing is kept that could be shown; name a part: {', '.join(planned)}")
    if left := len(everything) - len(known):
        missed.append(f"{left} of {len(everything)} results are missing")
    layers, networks = rows_of(known, LAYERS, LAYER_SCHEDULERS), rows_of(known, NETWORKS, NETWORK_SCHEDULERS)
    floors = {key: floor_cycles(*key) for key in networks}
    about = (
        "Every layer and network by each scheduler on the RTL, every output byte compared with ONNX Runtime. A pair of "
        "speed-ups is that of the timeline model and that of the RTL. "
        f"{budget_in_words(BUDGET)} `meshloom bench flexer` has the same schedules. SqueezeNet has trained weights and "
        "runs a real picture, ResNet-50 and VGG-16 have random weights. "
        "`flexer` and `paper_static` run networks layer after layer with all tensors between layers in DRAM, and so "
        "does `loop_order` with its layers apart; across layers, tensors stay in the scratchpad and additions and max "
        "pools go with the convolution before them. *At least*: cycles that arrays need for all products, or DRAM for "
        f"weights, input and output, in any schedule. Parts: {', '.join((*planned, 'kept'))}."
    )
    return Result(
        "flexer_rtl", "Out-of-order schedules on the RTL", about,
        tuple(sheet for sheet in (layer_sheet(layers), network_sheet(networks, floors)) if sheet.rows),
        _remarks(layers, networks, older), (*missed, *failures(layers, networks, floors)),
    )  # fmt: skip
