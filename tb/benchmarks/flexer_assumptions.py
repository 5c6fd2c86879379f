"""Which assumption yields which part of Flexer's speed-up: what the paper leaves open, one by one and together.

H. Min, J. Kwon, B. Egger, "Flexer: Out-of-Order Scheduling for Multi-NPUs" (CGO 2023), Figures 1, 8 and 9. The paper
says neither whether its baseline's transfers overlap with its computing, nor how wide an element is, nor whether a core
has memory of its own. Whatever can be run on the RTL is. Tables are kept as text, so each can be measured by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import log

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.mapping.tiling.problem import Problem, pose
from meshloom.sched.papers.flexer.flows import flows
from meshloom.sched.papers.flexer.layer import LayerSearch
from meshloom.sched.papers.flexer.playing import attempt
from meshloom.sched.papers.flexer.policy import PAPER, PAPER_STATIC, Choice, Policy
from meshloom.sched.papers.flexer.tiles import Tiles, viable
from meshloom.sched.schedulers.budget import Budget
from meshloom.sched.workload.catalog import find

from ..build.builder import OUTPUT, ingredients
from ..results.events import OnEvent, Stage
from ..results.schema import MEAN_ERROR_PERCENT, Row, Status
from ..runs.options import RunOptions
from ..runs.runner import run as run_workloads
from .flexer_layers import ARCHS, NETWORKS, budget_in_words, same
from .flexer_plots import Point, draw_assumptions
from .interface import BenchmarkError
from .kept import Decided, Kept, Record, told
from .results import FOLDER, Result, Sheet

#: What a search may do for a layer.
BUDGET = Budget(steps=20_000_000)
#: Where every assumption is tried, and on what.
ARCH, NETWORK = "arch5", "vgg16"
#: Layers that run on the RTL under each.
ON_RTL = ("vgg16/conv3_1", "vgg16/conv4_2", "resnet50/conv3_1_1", "squeezenet/fire3_expand1")
#: Layers of Figure 1, on a chip of two cores, how many of their tilings it shows, and the operations that these have at
#: most: one of 100,000 takes minutes.
FIGURE_1, FIGURE_1_ARCH, TILINGS, MOST = ("resnet50/conv3_1_1", "vgg16/conv4_2"), "arch1", 400, 1000
#: How much more a word counts in Figure 9 (c).
WEIGHED = 3.0
PLOT = "flexer_assumptions.svg"
PARTS = ("layers", "networks", "rtl", "weighed", "tilings")
#: The paper's best: of a network, of a layer.
PAPER_NETWORK, PAPER_LAYER = 1.67, 2.17


@dataclass(frozen=True)
class Assumption:
    """What is assumed of the machine, and of each scheduler (its options); `width`: bytes of an element."""

    name: str
    static: dict[str, str] = field(default_factory=dict[str, str])
    flexer: dict[str, str] = field(default_factory=dict[str, str])
    width: int = 1

    def chip(self, name: str) -> ChipConfig:
        """An architecture on which elements have that width: its scratchpad holds, and its DRAM moves, so many times
        fewer of them. (Arithmetic stays that of the array; partial sums are four elements.)"""
        chip = load(name)
        if self.width == 1:
            return chip
        slower = chip.dram.model_copy(update={"bytes_per_cycle": chip.dram.bytes_per_cycle // self.width})
        made = {"name": f"{name}_{self.width}byte", "spm_words": chip.spm_words // self.width, "dram": slower}
        return ChipConfig.model_validate(chip.model_copy(update=made).model_dump())

    def policies(self) -> tuple[Policy, Policy]:
        """The baseline's and the paper's."""
        return _policy(PAPER_STATIC, self.static), _policy(PAPER, self.flexer)

    def names(self) -> tuple[str, str]:
        """Both as one names them in a run."""
        return _named("paper_static", self.static), _named("flexer", self.flexer)


def _policy(base: Policy, options: dict[str, str]) -> Policy:
    flags = {name: options.get(name, "yes") == "yes" for name in ("overlap", "private")}
    return replace(base, **flags, **{name: value for name, value in options.items() if name not in flags})


def _named(name: str, options: dict[str, str]) -> str:
    return ",".join([f"{name}:budget={BUDGET}", *(f"{option}={value}" for option, value in options.items())])


_APART = {"overlap": "no"}
_ALONE = {"private": "no"}
ASSUMPTIONS = (
    Assumption("both overlap, 1 byte (as everywhere else here)"),
    Assumption("both overlap, 4 bytes", width=4),
    Assumption("static does not overlap, 1 byte", _APART),
    Assumption("static does not overlap, 2 bytes", _APART, width=2),
    Assumption("static does not overlap, 4 bytes", _APART, width=4),
    Assumption("neither overlaps, 1 byte", _APART, _APART),
    Assumption("neither overlaps, 4 bytes", _APART, _APART, 4),
    Assumption("static over output channels only", {"unroll": "n"}),
    Assumption("static with equal regions", {"regions": "equal"}),
    Assumption("no private memory", _ALONE, _ALONE),
    Assumption(
        "static over output channels, equal regions, not overlapped; no private memory; 2 bytes",
        {"unroll": "n", "regions": "equal"} | _APART | _ALONE,
        _ALONE,
        2,
    ),
)
#: Those that are tried on all architectures.
EVERYWHERE = tuple(one for one in ASSUMPTIONS if one.static == _APART and not one.flexer and one.width < 4)


#: Cycles and words of the baseline's schedule, and of Flexer's.
Pair = tuple[Point, Point]


def _layer(name: str, arch: str, assumed: Assumption) -> LayerSearch:
    return LayerSearch(same(find(name)[0].shape), assumed.chip(arch), 1 << 15, OUTPUT / "schedules", BUDGET)


def estimated(name: str, arch: str, assumed: Assumption) -> Pair:
    """One layer as the search estimates it. Raises DoesNotFit."""
    layer = _layer(name, arch, assumed)
    static, flexer = (layer.choices(policy)[0] for policy in assumed.policies())
    return (static.cycles, static.words), (flexer.cycles, flexer.words)


def played(name: str, arch: str, assumed: Assumption) -> Pair:
    """One layer in the timeline model. Raises DoesNotFit."""
    layer = _layer(name, arch, assumed)
    static, flexer = (layer.decided(policy) for policy in assumed.policies())
    return (static.cycles, static.words), (flexer.cycles, flexer.words)


def convolutions(network: str) -> list[str]:
    """The layers of a network, as the paper shows them: not those that are fully connected, whose weights come once
    whatever the schedule."""
    return [one.name for one in find(network) if one.shape.in_h * one.shape.in_w > 1]


def _cells(pairs: Sequence[Pair]) -> tuple[str, str, str]:
    """Of a network's layers: speed-up of all, of the best one, words."""
    cycles, words = (sum(one[what] for one, _ in pairs) / sum(other[what] for _, other in pairs) for what in (0, 1))
    return f"{cycles:.2f}", f"{max(one[0] / other[0] for one, other in pairs):.2f}", f"{words:.2f}"


def layers_sheet(on_progress: OnEvent) -> Sheet:
    """Every assumption, layer by layer."""
    rows: list[tuple[str, ...]] = []
    names = convolutions(NETWORK)
    for number, assumed in enumerate(ASSUMPTIONS):
        on_progress(Stage(workload=NETWORK, what=f"{assumed.name} ({number + 1} of {len(ASSUMPTIONS)})"))
        cells = [_cells([how(name, ARCH, assumed) for name in names]) for how in (estimated, played)]
        rows.append((assumed.name, *cells[0], *cells[1]))
    columns = ("estimate: network>", "best layer>", "words>", "timeline: network>", "best layer>", "words>")
    return Sheet(
        f"{NETWORK} on {ARCH}: convolutions, speed-up of flexer over paper_static", ("assumed", *columns), rows
    )


def networks_sheet(on_progress: OnEvent) -> Sheet:
    """The assumptions that explain most, on everything, as the search estimates them."""
    rows: list[tuple[str, ...]] = []
    for arch in ARCHS:
        for network in NETWORKS:
            on_progress(Stage(workload=network, what=f"on {arch}"))
            names = convolutions(network)
            cells = [_cells([estimated(name, arch, each) for name in names]) for each in EVERYWHERE]
            rows.append((arch, network, *(cell for some in cells for cell in some)))
    columns = [f"{each.width} B: {what}" for each in EVERYWHERE for what in ("network>", "best layer>", "words>")]
    return Sheet("Static does not overlap: all networks, estimated", ("arch", "network", *columns), rows)


def rtl_sheet(on_progress: OnEvent) -> tuple[Sheet, list[str]]:
    """Layers on the RTL under each assumption; what went wrong."""
    rows: list[tuple[str, ...]] = []
    bad: list[str] = []
    for assumed in ASSUMPTIONS:
        by = [
            {row.workload: row for row in run_workloads(ON_RTL, assumed.chip(ARCH), name, on_progress, RunOptions())}
            for name in assumed.names()
        ]
        speedups: list[str] = []
        for name in ON_RTL:
            static, flexer = by[0][name], by[1][name]
            bad += [f"{assumed.name}: {name} by {row.scheduler}" for row in (static, flexer) if not _good(row)]
            speedups.append(f"{static.rtl_cycles / flexer.rtl_cycles:.2f}" if flexer.rtl_cycles else "-")
        every = [row for rows_ in by for row in rows_.values()]
        errors = max(abs(row.error_percent or 0.0) for row in every)
        rows.append((assumed.name, *speedups, f"{sum(row.bytes_checked for row in every):,}", f"{errors:.2f} %"))
    title = f"On the RTL of {ARCH} and its wide kin: speed-up of flexer over paper_static"
    return Sheet(title, ("assumed", *(f"{name}>" for name in ON_RTL), "bytes equal>", "worst model error>"), rows), bad


def _good(row: Row) -> bool:
    return row.status is Status.PASSED and abs(row.error_percent or 0.0) <= MEAN_ERROR_PERCENT


def scatter(name: str) -> tuple[dict[str, list[Point]], int]:
    """Figure 1: of each tiling the best static schedule and the best out-of-order one, as the search estimates them:
    (cycles, words). And how many tilings the layer has."""
    chip = load(FIGURE_1_ARCH)
    problem = pose(find(name)[0].shape, chip)
    every = viable(problem, chip, name)
    tilings = [each for each in map(every.tiling, range(len(every))) if Tiles(problem, each).operations <= MOST]
    found: dict[str, list[Point]] = {}
    for label, policy in (("best static", PAPER_STATIC), ("out of order", PAPER)):
        for tiling in tilings[:: max(1, len(tilings) // TILINGS)]:
            costs = [_played(problem, chip, choice, policy) for choice in flows(problem, chip, policy, tiling)]
            if costs:
                found.setdefault(label, []).append(min(costs, key=lambda cost: policy.metric(*cost)))
    return found, len(every)


def _played(problem: Problem, chip: ChipConfig, choice: Choice, policy: Policy) -> Point:
    _, cycles, words, _, _ = attempt(problem, chip, choice, policy)
    return cycles, words


def weighed_sheet(on_progress: OnEvent) -> Sheet:
    """Figure 9 (c): networks when words count for more."""
    rows: list[tuple[str, ...]] = []
    heavy = Policy(by_words=WEIGHED)
    for network in NETWORKS:
        on_progress(Stage(workload=network, what="words count for more"))
        sums = {"paper_static": [0, 0], "flexer": [0, 0], "weighed": [0, 0]}
        for name in convolutions(network):
            layer = _layer(name, ARCH, ASSUMPTIONS[0])
            for label, policy in (("paper_static", PAPER_STATIC), ("flexer", PAPER), ("weighed", heavy)):
                found = layer.decided(policy)
                sums[label][0] += found.cycles
                sums[label][1] += found.words
        static = sums["paper_static"]
        cells = [f"{static[what] / sums[label][what]:.2f}" for label in ("flexer", "weighed") for what in (0, 1)]
        rows.append((network, *cells))
    columns = ("network", "cycles x words: speed-up>", "words>", f"cycles x words^{WEIGHED:.0f}: speed-up>", "words>")
    return Sheet(f"End to end on {ARCH} when words count for more (Figure 9 (c)): over paper_static", columns, rows)


def tilings_sheet(on_progress: OnEvent) -> Sheet:
    """Figure 1 in numbers, and the picture."""
    found: dict[str, dict[str, list[Point]]] = {}
    rows: list[tuple[str, ...]] = []
    for name in FIGURE_1:
        on_progress(Stage(workload=name, what=f"tilings on {FIGURE_1_ARCH}"))
        found[name], every = scatter(name)
        for label, points in found[name].items():
            best, quickest = min(points, key=lambda point: PAPER.metric(*point)), min(points)
            cells = (f"{each[what]:,.0f}" for each in (best, quickest) for what in (0, 1))
            rows.append((name, label, f"{len(points)} of {every:,}", *cells))
    draw_assumptions(found, FIGURE_1_ARCH, FOLDER / PLOT)
    columns = ("tilings>", "best by cycles x words: cycles>", "words>", "quickest: cycles>", "words>")
    title = f"Tilings into {MOST:,} operations at most on {FIGURE_1_ARCH} (Figure 1), estimated"
    return Sheet(title, ("layer", "schedule", *columns), rows)


def _best(sheet: Sheet, column: str) -> tuple[float, str]:
    """The largest of a column, and where that is."""
    at, labels = sheet.columns.index(column), sum(not name.endswith(">") for name in sheet.columns)
    return max((float(row[at]), ", ".join(row[:labels])) for row in sheet.rows)


def _nearest(layers: Sheet) -> str:
    """The assumption whose network and best layer, by the timeline, are nearest to the paper's."""

    def far(row: tuple[str, ...]) -> float:
        return abs(log(float(row[4]) / PAPER_NETWORK)) + abs(log(float(row[5]) / PAPER_LAYER))

    row = min(layers.rows, key=far)
    return f"{row[0]}, {row[4]} and {row[5]}"


def remarks(layers: Sheet | None, networks: Sheet | None) -> tuple[str, ...]:
    """What that comes to, beside what the paper says."""
    found = [f"The paper's best: {PAPER_NETWORK} for a network, {PAPER_LAYER} for a layer."]
    if layers is not None:
        here, where = _best(layers, "timeline: network>")
        found.append(
            f"With the same assumptions for both schedulers, {NETWORK} on {ARCH} has {layers.rows[0][4]}. What yields "
            f"most there: {where} ({here:.2f}). Nearest to the paper's pair: {_nearest(layers)}."
        )
    if networks is not None:
        most, which = max(_best(networks, f"{each.width} B: network>") for each in EVERYWHERE)
        layer, of = max(_best(networks, f"{each.width} B: best layer>") for each in EVERYWHERE)
        found.append(
            "A baseline whose transfers and computing take turns, on all architectures: at most "
            f"{most:.2f} for a network ({which}), {layer:.2f} for a layer ({of})."
        )
    return (
        " ".join(found),
        "Without overlap, a set's tiles come, then its operations run and results leave, then the next set's come; "
        "fences in the schedule (`Schedule.fences`) see to it, and what they cost is part of the figures. *Estimate*: "
        "of the search, which sees bandwidths and arrays but no requests, queues and fences, as the simulators of the "
        "papers do; *timeline*: of the schedule that it chose (part `rtl` runs layers on the RTL).",
        "Elements of more bytes: scratchpad and DRAM hold and move so many times fewer of them, the array and the "
        "cores' own memories stay as they are; partial sums are four elements wide.",
    )


@dataclass(frozen=True)
class Part:
    """What a part of the benchmark has found: its table, and what went wrong."""

    sheet: Sheet
    bad: tuple[str, ...] = ()


_SHEETS: dict[str, Callable[[OnEvent], Sheet]] = {
    "layers": layers_sheet, "networks": networks_sheet, "weighed": weighed_sheet, "tilings": tilings_sheet,
}  # fmt: skip


def _decided(part: str) -> Decided:
    made_by = "sched.papers.flexer.layer", "sched.lowering.programs", "sched.model.timeline"
    chips = {assumed.width: assumed.chip(ARCH) for assumed in ASSUMPTIONS} if part == "rtl" else {}
    sources = [ingredients(chip, "verilator", False)["sources"] for chip in chips.values()]
    said = ASSUMPTIONS, BUDGET, ON_RTL, TILINGS, WEIGHED, [load(arch).digest for arch in ARCHS], sources
    return Decided(load(ARCH), made_by, repr((*said, MOST) if part == "tilings" else said))


KEPT = Kept(
    FOLDER / "flexer_assumptions.jsonl", "assumptions", TypeAdapter(Record[str, Part]), TypeAdapter(Part), _decided
)


def measure(parts: Sequence[str], on_progress: OnEvent) -> None:
    """Measures parts that are not kept."""
    for part in KEPT.missing(parts):
        if part == "rtl":
            sheet, bad = rtl_sheet(on_progress)
            KEPT.put(part, Part(sheet, tuple(bad)))
        else:
            KEPT.put(part, Part(_SHEETS[part](on_progress)))


def run(on_progress: OnEvent, parts: Sequence[str] = ()) -> Result:
    """Measures some of `PARTS` (none named: all; "kept": none), but for what is kept; shows all that there is then.
    Raises DoesNotFit, BenchmarkError for other parts."""
    if unknown := [part for part in parts if part not in (*PARTS, "kept")]:
        raise BenchmarkError(f"no part {', '.join(unknown)}; there are {', '.join((*PARTS, 'kept'))}")
    measure([part for part in (parts or PARTS) if part in PARTS], on_progress)
    found, older = KEPT.collected(PARTS)
    sheets = {part: found[part].sheet for part in PARTS if part in found}
    bad = [words for part in found.values() for words in part.bad]
    if missing := [part for part in PARTS if part not in found]:
        bad.append(f"not measured: {', '.join(missing)}")
    said = remarks(sheets.get("layers"), sheets.get("networks"))
    if "tilings" in sheets:
        said = (*said, f"![tilings]({PLOT})")
    return Result(
        "flexer_assumptions",
        "Flexer's assumptions",
        "Which assumption yields which part of the speed-up in Figures 8 and 9. Parts: "
        f"{', '.join(PARTS)}. {budget_in_words(BUDGET)}",
        tuple(sheets.values()),
        (*said, *told([f"part {part}" for part in older])),
        tuple(bad),
    )
