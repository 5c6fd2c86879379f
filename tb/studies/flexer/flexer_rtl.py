"""Out-of-order schedules against static ones on the RTL: layers, and whole networks.

Every speed-up is stated twice, by the timeline model and by the RTL. `flexer` has the model's figures of all layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from meshloom.sched.schedulers.budget import Budget

from ..engine.rows import Rows
from ..engine.study import Figure, Study, prose
from ..engine.tables import DASH, Table, count, mean_ratio, share, table
from ..points.network_runs import STORE, NetworkCycles, NetworkRun, accuracy
from .flexer_networks import MEMORY_BOUND
from .floors import floor_cycles

#: What a search may do for a layer: so many steps of work, one to two seconds of a thread.
BUDGET = Budget(steps=100_000_000)
#: How much faster the hybrid is to be, on architectures with a narrow DRAM, than the strong baseline layer by layer.
HYBRID_BAR = 1.15
_OF_PAPER = ("vgg16/conv3_1", "vgg16/conv4_2", "resnet50/conv3_1_1")
#: Layers of all four networks, dense and pointwise, early and late; the paper's conv4_2, conv3_1 and conv3_1_1.
LAYERS: Mapping[str, Sequence[str]] = {
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
    "arch1": (*_OF_PAPER, "resnet50/conv4_1_3", "squeezenet/conv10"),
    "arch6": (*_OF_PAPER, "resnet50/conv4_1_3", "squeezenet/conv10"),
}
#: The two baselines, the paper's scheduler and ours; of layers, and of networks (where `loop_order` has layers overlap
#: and share the scratchpad: `LAYERWISE` has it schedule each by itself, as the others do).
LAYER_SCHEDULERS = ("paper_static", "loop_order", "flexer", "hybrid")
LAYERWISE = "loop_order:between=dram,fused=no"
NETWORK_SCHEDULERS = ("paper_static", LAYERWISE, "flexer", "loop_order", "hybrid")
NETWORKS: Mapping[str, Sequence[str]] = {
    "arch1": ("squeezenet", "resnet50"),
    "arch3": ("squeezenet",),
    "arch5": ("squeezenet", "resnet50", "vgg16"),
    "arch7": ("squeezenet",),
}
QUICK = {"arch5": _OF_PAPER}


def _point(chip: str, workload: str, scheduler: str) -> NetworkRun:
    """Searches get BUDGET."""
    text = scheduler if scheduler.startswith("loop_order") else f"{scheduler}:budget={BUDGET}"
    return NetworkRun(chip, workload, text, True)


def _points(what: Mapping[str, Sequence[str]], schedulers: Sequence[str]) -> list[NetworkRun]:
    return [_point(chip, name, each) for chip, names in what.items() for name in names for each in schedulers]


def points(full: bool) -> list[NetworkRun]:
    """Quick: layers of the paper's figures."""
    if not full:
        return _points(QUICK, LAYER_SCHEDULERS)
    return _points(LAYERS, LAYER_SCHEDULERS) + _points(NETWORKS, NETWORK_SCHEDULERS)


class _Line:
    """A workload on a chip by all schedulers, as far as there are rows."""

    def __init__(self, rows: Rows, chip: str, workload: str, schedulers: Sequence[str]) -> None:
        self.chip, self.workload = chip, workload
        points = {each: _point(chip, workload, each) for each in schedulers}
        self.rows: dict[str, NetworkCycles] = {each: rows[point] for each, point in points.items() if point in rows}

    def cycles(self, scheduler: str) -> int | None:
        """On the RTL."""
        return self.rows[scheduler].rtl_cycles if scheduler in self.rows else None

    def speed_ups(self, scheduler: str, baseline: str) -> str:
        """Of a scheduler over a baseline: by the model, and on the RTL."""
        if not {scheduler, baseline} <= self.rows.keys():
            return DASH
        mine, theirs = self.rows[scheduler], self.rows[baseline]
        return f"{theirs.cycles / mine.cycles:.3f} {theirs.rtl_cycles / mine.rtl_cycles:.3f}"

    def error(self) -> str:
        """The model's worst."""
        return share(max((row.error for row in self.rows.values()), key=abs), 2, "+")


def _lines(rows: Rows, what: Mapping[str, Sequence[str]], schedulers: Sequence[str]) -> list[_Line]:
    lines = [_Line(rows, chip, name, schedulers) for chip, names in what.items() for name in names]
    return [line for line in lines if line.rows]


def layer_lines(rows: Rows) -> list[_Line]:
    """Layers of which there are rows."""
    return _lines(rows, LAYERS, LAYER_SCHEDULERS)


def network_lines(rows: Rows) -> list[_Line]:
    """Networks of which there are rows."""
    return _lines(rows, NETWORKS, NETWORK_SCHEDULERS)


def _table(
    title: str,
    lines: Sequence[_Line],
    schedulers: Mapping[str, str],
    floor: bool,
    pairs: Mapping[str, tuple[str, str]],
) -> Table:
    columns: dict[str, Callable[[_Line], str]] = {
        "chip": lambda line: line.chip,
        "network" if floor else "layer": lambda line: line.workload,
        **{f"{name}>": lambda line, each=each: count(line.cycles(each)) for each, name in schedulers.items()},
    }
    if floor:
        columns["at least>"] = lambda line: count(floor_cycles(line.chip, line.workload))
    columns |= {f"{name}>": lambda line, pair=pair: line.speed_ups(*pair) for name, pair in pairs.items()}
    columns["worst error>"] = _Line.error
    return table(title, columns, lines, lambda line: any(row.wrong for row in line.rows.values()))


def layers(rows: Rows) -> Table:
    """All layers, with speed-ups by the model and on the RTL."""
    pairs = (("flexer", "paper_static"), ("flexer", "loop_order"), ("hybrid", "loop_order"))
    return _table(
        "Layers: RTL cycles, and speed-ups by the model and on the RTL",
        layer_lines(rows),
        {name: name for name in LAYER_SCHEDULERS},
        False,
        {"/".join(pair): pair for pair in pairs},
    )


def networks(rows: Rows) -> Table:
    """Whole networks."""
    names = ("paper_static", "loop_order, layers apart", "flexer", "loop_order, across layers", "hybrid")
    return _table(
        "Whole networks: RTL cycles, and speed-ups by the model and on the RTL",
        network_lines(rows),
        dict(zip(NETWORK_SCHEDULERS, names, strict=True)),
        True,
        {
            "flexer/paper_static": ("flexer", "paper_static"),
            "flexer/loop_order apart": ("flexer", LAYERWISE),
            "hybrid/loop_order apart": ("hybrid", LAYERWISE),
            "hybrid/loop_order across": ("hybrid", "loop_order"),
        },
    )


def behind(rows: Rows) -> list[str]:
    """Layers that another scheduler than the hybrid has faster, and networks for which it is too slow."""
    failures: list[str] = []
    for line in layer_lines(rows):
        least, ours = min(row.rtl_cycles for row in line.rows.values()), line.cycles("hybrid")
        if ours is not None and ours > least:
            failures.append(f"{line.workload} on {line.chip}: the hybrid takes {ours:,} cycles, another {least:,}")
    for line in network_lines(rows):
        base, ours = line.cycles(LAYERWISE), line.cycles("hybrid")
        if line.chip in MEMORY_BOUND and base and ours and base < HYBRID_BAR * ours:
            bound = base / floor_cycles(line.chip, line.workload)
            failures.append(
                f"{line.workload} on {line.chip}: the hybrid is {base / ours:.3f} times as fast as loop_order layer by "
                f"layer; the bar is {HYBRID_BAR}, and no schedule can be more than {bound:.3f} times as fast"
            )
    return failures


def _mean(lines: Callable[[Rows], list[_Line]], scheduler: str, baseline: str) -> Callable[[Rows], float | None]:
    return lambda rows: mean_ratio((line.cycles(baseline), line.cycles(scheduler)) for line in lines(rows))


STUDY = Study(
    name="flexer_rtl",
    title="Out-of-order schedules on the RTL",
    question="Are out-of-order schedules faster than static ones on the RTL?",
    answer="For layers, in the geometric mean: `flexer` is {{ over_static }} times as fast as `paper_static` and "
    "{{ over_loops }} times as fast as `loop_order`; the hybrid is {{ hybrid_layers }} times as fast as that.",
    about=prose(__file__),
    points=points,
    tables=(layers, networks),
    figures=(
        Figure("over_static", "layers, flexer over paper_static", _mean(layer_lines, "flexer", "paper_static")),
        Figure("over_loops", "layers, flexer over loop_order", _mean(layer_lines, "flexer", "loop_order")),
        Figure("hybrid_layers", "layers, hybrid over loop_order", _mean(layer_lines, "hybrid", "loop_order")),
        Figure(
            "hybrid_networks",
            "networks, hybrid over loop_order across layers",
            _mean(network_lines, "hybrid", "loop_order"),
        ),
        *accuracy(),
    ),
    checks=behind,
    paper="flexer",
    store=STORE,
)
