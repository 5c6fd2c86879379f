"""Out-of-order schedules against static ones on the RTL: layers, and whole networks.

Every speed-up is stated twice, by the timeline model and by the RTL. `flexer` has the model's figures of all layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..report.console import percent
from ..results.events import OnEvent, Stage
from ..results.schema import MEAN_ERROR_PERCENT, WORST_ERROR_PERCENT, Row, Status
from ..runs.options import RunOptions
from ..runs.runner import run as run_workloads
from .flexer_layers import BUDGET, HYBRID_BAR, MEMORY_BOUND, budget_in_words, compile_search, floor_cycles
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

Rows = Mapping[tuple[str, str], Mapping[str, Row]]


def with_budget(scheduler: str) -> str:
    """The scheduler as it is asked for: searches get BUDGET."""
    return scheduler if scheduler.startswith("loop_order") else f"{scheduler}:budget={BUDGET}"


def measure(what: Mapping[str, Sequence[str]], schedulers: Sequence[str], on_progress: OnEvent) -> Rows:
    """Rows by (chip, workload) and scheduler."""
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for chip, names in what.items():
        for scheduler in schedulers:
            on_progress(Stage(workload=chip, what=f"{len(names)} workloads by {scheduler}"))
            for row in run_workloads(names, chip, with_budget(scheduler), on_progress, RunOptions(jobs=2)):
                found.setdefault((chip, row.workload), {})[scheduler] = row
    return found


def twice(rows: Mapping[str, Row], scheduler: str, baseline: str) -> str:
    """Speed-up of a scheduler over a baseline: by the model, and on the RTL."""
    one, other = rows[scheduler], rows[baseline]
    if not one.rtl_cycles or not one.model_cycles:
        return "-"
    return f"{other.model_cycles / one.model_cycles:.3f} {other.rtl_cycles / one.rtl_cycles:.3f}"


def layer_sheet(found: Rows) -> Sheet:
    """All layers, with speed-ups by the model and on the RTL."""
    cells = [
        (
            chip,
            name,
            *(f"{rows[scheduler].rtl_cycles:,}" for scheduler in LAYER_SCHEDULERS),
            twice(rows, "flexer", "paper_static"),
            twice(rows, "flexer", "loop_order"),
            twice(rows, "hybrid", "loop_order"),
            percent(max((row.error_percent or 0.0 for row in rows.values()), key=abs), sign="+"),
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
    bad = frozenset(n for n, rows in enumerate(found.values()) if any(wrong_with(row) for row in rows.values()))
    return Sheet("Layers: RTL cycles, and speed-ups by the model and on the RTL", columns, cells, bad)


def network_sheet(found: Rows, floors: Mapping[tuple[str, str], int]) -> Sheet:
    """Whole networks."""
    cells = [
        (
            chip,
            name,
            *(f"{rows[scheduler].rtl_cycles:,}" for scheduler in NETWORK_SCHEDULERS),
            f"{floors[chip, name]:,}",
            twice(rows, "flexer", "paper_static"),
            twice(rows, "flexer", LAYERWISE),
            twice(rows, "hybrid", LAYERWISE),
            twice(rows, "hybrid", "loop_order"),
            percent(max((row.error_percent or 0.0 for row in rows.values()), key=abs), sign="+"),
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
    bad = frozenset(n for n, rows in enumerate(found.values()) if any(wrong_with(row) for row in rows.values()))
    return Sheet("Whole networks: RTL cycles, and speed-ups by the model and on the RTL", columns, cells, bad)


def wrong_with(row: Row) -> str:
    """What is wrong with a row, in words; empty if nothing is."""
    if row.status not in (Status.PASSED, Status.MODEL):
        return f"{row.workload} on {row.chip} by {row.scheduler}: {row.reason}"
    error = abs(row.error_percent or 0.0)
    if error > WORST_ERROR_PERCENT:
        return (
            f"{row.workload} on {row.chip} by {row.scheduler}: the model is {error:.1f} % off, the bound is "
            f"{WORST_ERROR_PERCENT:g} %"
        )
    return ""


def failures(layers: Rows, networks: Rows, floors: Mapping[tuple[str, str], int]) -> list[str]:
    """Bars that were missed."""
    rows = [row for each in (*layers.values(), *networks.values()) for row in each.values()]
    found = [words for row in rows if (words := wrong_with(row))]
    mean = sum(abs(row.error_percent or 0.0) for row in rows) / len(rows)
    if mean > MEAN_ERROR_PERCENT:
        found.append(f"the model's mean error is {mean:.2f} %, the bound is {MEAN_ERROR_PERCENT:g} %")
    for (chip, name), each in layers.items():
        least = min(row.rtl_cycles for row in each.values())
        if each["hybrid"].rtl_cycles > least:
            found.append(f"{name} on {chip}: the hybrid takes {each['hybrid'].rtl_cycles:,} cycles, another {least:,}")
    for (chip, name), each in networks.items():
        base, mine = each[LAYERWISE].rtl_cycles, each["hybrid"].rtl_cycles
        if chip in MEMORY_BOUND and base < HYBRID_BAR * mine:
            bound = base / floors[chip, name]
            found.append(
                f"{name} on {chip}: the hybrid is {base / mine:.3f} times as fast as loop_order layer by layer; the "
                f"bar is {HYBRID_BAR}, and no schedule can be more than {bound:.3f} times as fast"
            )
    return found


def run(on_progress: OnEvent) -> Result:
    """Runs all layers and networks by all schedulers."""
    compile_search(on_progress)
    layers = measure(LAYERS, LAYER_SCHEDULERS, on_progress)
    networks = measure(NETWORKS, NETWORK_SCHEDULERS, on_progress)
    floors = {key: floor_cycles(*key) for key in networks}
    rows = [row for each in (*layers.values(), *networks.values()) for row in each.values()]
    errors = [abs(row.error_percent or 0.0) for row in rows]
    about = (
        "Every layer and network by each scheduler on the RTL, every output byte compared with ONNX Runtime. A pair of "
        "speed-ups is that of the timeline model and that of the RTL. "
        f"{budget_in_words(BUDGET)} `meshloom bench flexer` has the same schedules. SqueezeNet has trained weights and "
        "runs a real picture, ResNet-50 and VGG-16 have random weights. "
        "`flexer` and `paper_static` run networks layer after layer with all tensors between layers in DRAM, and so "
        "does `loop_order` with its layers apart; across layers, tensors stay in the scratchpad and additions and max "
        "pools go with the convolution before them. *At least*: cycles that arrays need for all products, or DRAM for "
        "weights, input and output, in any schedule."
    )
    remark = (
        f"{len(rows)} programs; the model's error: mean {sum(errors) / len(errors):.3f} %, worst {max(errors):.3f} % "
        f"(bounds {MEAN_ERROR_PERCENT:g} and {WORST_ERROR_PERCENT:g} %)."
    )
    sheets = (layer_sheet(layers), network_sheet(networks, floors))
    return Result(
        "flexer_rtl", "Out-of-order schedules on the RTL", about, sheets, (remark,),
        tuple(failures(layers, networks, floors)),
    )  # fmt: skip
