"""What the paper leaves open, as assumptions; networks, layers and tilings under each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.mapping.tiling.problem import Problem, pose
from meshloom.sched.papers.flexer.flows import flows
from meshloom.sched.papers.flexer.layer import LayerSearch
from meshloom.sched.papers.flexer.playing import attempt
from meshloom.sched.papers.flexer.policy import PAPER, PAPER_STATIC, Choice, Policy
from meshloom.sched.papers.flexer.tiles import Tiles, viable
from meshloom.sched.schedulers.budget import Budget

from ...results.schema import MEAN_ERROR_PERCENT
from ..engine.point import Inputs, Point, Report
from ..points.runs import Changes, RunPoint, chip_of, wrong_with
from .layers import layers_of, same, search_of, shape_of
from .plots import Spot

#: What a search may do for a layer.
BUDGET = Budget(steps=20_000_000)
#: Where assumptions are tried, one by one.
ARCH = "arch5"
#: How much more a word counts in Figure 9 (c).
WEIGHED = 3.0
#: The chip of Figure 1, which has two cores.
FIGURE_1 = "arch1"
#: What makes schedules, and what turns them into cycles.
_MADE_BY = "sched.papers.flexer.layer", "sched.lowering.programs", "sched.model.timeline"


@dataclass(frozen=True)
class Assumption:
    """What is assumed of the machine, and of each scheduler (its options); `width`: bytes of an element."""

    name: str
    static: dict[str, str] = field(default_factory=dict[str, str])
    flexer: dict[str, str] = field(default_factory=dict[str, str])
    width: int = 1

    def changes(self, arch: str) -> Changes:
        """What differs in an architecture on which elements have that width: its scratchpad holds, and its DRAM moves,
        so many times fewer of them. (Arithmetic stays that of the array; partial sums are four elements.)"""
        if self.width == 1:
            return ()
        chip = chip_of(arch)
        rate = chip.dram.bytes_per_cycle // self.width
        return ("spm_words", chip.spm_words // self.width), ("dram.bytes_per_cycle", rate)

    def chip(self, arch: str) -> ChipConfig:
        """That architecture."""
        return chip_of(arch, self.changes(arch), f"{arch}_{self.width}byte")

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
#: By name.
ASSUMPTIONS = {
    one.name: one
    for one in (
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
}
#: Those that are tried on all architectures.
EVERYWHERE = tuple(one for one in ASSUMPTIONS.values() if one.static == _APART and not one.flexer and one.width < 4)


def _search(layer: str, chip: ChipConfig) -> LayerSearch:
    return search_of(same(shape_of(layer)), chip, BUDGET)


def convolutions(network: str, every: int = 1) -> list[str]:
    """The layers of a network, as the paper shows them: not those that are fully connected, whose weights come once
    whatever the schedule. Of these the first, and each so many further ones."""
    return [name for name in layers_of(network) if shape_of(name).in_h * shape_of(name).in_w > 1][::every]


def sampled(name: str, every: int) -> str:
    """What a network is called of which a point has not every convolution."""
    return f"{name}, one convolution of {every}" if every > 1 else name


@dataclass(frozen=True)
class Gain:
    """What Flexer gains over the static baseline: cycles of all layers, of the best of them, and words."""

    network: float
    layer: float
    words: float


#: Cycles and words of the baseline's schedule, and of Flexer's.
SpotPair = tuple[Spot, Spot]


def gain_of(pairs: Sequence[SpotPair]) -> Gain:
    """What the layers of a network come to."""
    cycles, words = (sum(one[what] for one, _ in pairs) / sum(other[what] for _, other in pairs) for what in (0, 1))
    return Gain(cycles, max(one[0] / other[0] for one, other in pairs), words)


@dataclass(frozen=True)
class NetworkGain:
    """As the search estimates it, and in the timeline model if that was played."""

    estimate: Gain
    timeline: Gain | None = None


@dataclass(frozen=True)
class AssumedNetwork(Point):
    """The convolutions of a network on an architecture under an assumption; `timeline`: they are played, too; `every`:
    see `convolutions`."""

    network: str
    arch: str
    assumption: str
    timeline: bool = False
    every: int = 1
    row: ClassVar[Any] = NetworkGain

    @property
    def name(self) -> str:
        return f"{sampled(self.network, self.every)} on {self.arch}: {self.assumption}"

    @property
    def work(self) -> float:
        return (150.0 if self.timeline else 50.0) / self.every

    def inputs(self) -> Inputs:
        assumption = ASSUMPTIONS[self.assumption]
        chip = assumption.chip(self.arch).digest
        return Inputs(_MADE_BY, (("chip", chip), ("assumption", f"{assumption}, {BUDGET}")))

    def measure(self, report: Report) -> NetworkGain:
        """Raises DoesNotFit."""
        assumption = ASSUMPTIONS[self.assumption]
        chip, policies = assumption.chip(self.arch), assumption.policies()
        estimates: list[SpotPair] = []
        decisions: list[SpotPair] = []
        for layer in convolutions(self.network, self.every):
            report(layer)
            search = _search(layer, chip)
            static, flexer = (search.choices(policy)[0] for policy in policies)
            estimates.append(((static.cycles, static.words), (flexer.cycles, flexer.words)))
            if self.timeline:
                one, other = (search.decided(policy) for policy in policies)
                decisions.append(((one.cycles, one.words), (other.cycles, other.words)))
        return NetworkGain(gain_of(estimates), gain_of(decisions) if decisions else None)


@dataclass(frozen=True)
class RunGain:
    """A layer on the RTL: what Flexer gains over the static baseline; `compared` bytes of both, the worst `error` of
    the model in percent; `wrong`: what is wrong, in words."""

    speedup: float
    compared: int
    error: float
    wrong: tuple[str, ...] = ()


@dataclass(frozen=True)
class AssumedRun(Point):
    """A layer on the RTL under an assumption."""

    layer: str
    assumption: str
    row: ClassVar[Any] = RunGain

    @property
    def name(self) -> str:
        return f"{self.layer} on the RTL of {ARCH}: {self.assumption}"

    @property
    def work(self) -> float:
        return 60.0

    def runs(self) -> list[RunPoint]:
        """By the static baseline, and by Flexer."""
        assumption = ASSUMPTIONS[self.assumption]
        return [RunPoint(ARCH, self.layer, name, assumption.changes(ARCH)) for name in assumption.names()]

    def inputs(self) -> Inputs:
        one, other = (run.inputs() for run in self.runs())
        options = ("schedulers", repr(ASSUMPTIONS[self.assumption].names()))
        return Inputs(tuple(dict.fromkeys((*one.modules, *other.modules))), (*one.more, *other.more, options))

    def measure(self, report: Report) -> RunGain:
        """Raises StudyError."""
        points = self.runs()
        static, flexer = rows = [point.measure(report) for point in points]
        errors = [abs(row.error_percent or 0.0) for row in rows]
        wrong = [text for point, row in zip(points, rows, strict=True) for text in wrong_with(point, row)]
        wrong += [f"{self.name}: the model is {error:.2f} % off" for error in errors if error > MEAN_ERROR_PERCENT]
        compared = sum(row.bytes_checked for row in rows)
        return RunGain(static.rtl_cycles / flexer.rtl_cycles, compared, max(errors), tuple(wrong))


#: By scheduler, what `paper_static` takes for one: times as fast, and times fewer words.
WeighedGain = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class WeighedNetwork(Point):
    """Figure 9 (c): the convolutions of a network when words count for more, over `paper_static`; `every`: see
    `convolutions`."""

    network: str
    every: int = 1
    row: ClassVar[Any] = WeighedGain

    @property
    def name(self) -> str:
        return f"{sampled(self.network, self.every)}: words count for more"

    @property
    def work(self) -> float:
        return 200.0 / self.every

    def inputs(self) -> Inputs:
        return Inputs(_MADE_BY, (("chip", chip_of(ARCH).digest), ("weight", f"{WEIGHED}, {BUDGET}")))

    def measure(self, report: Report) -> WeighedGain:
        """Raises DoesNotFit."""
        policies = {"paper_static": PAPER_STATIC, "flexer": PAPER, "weighed": Policy(by_words=WEIGHED)}
        sums = {name: [0, 0] for name in policies}
        for layer in convolutions(self.network, self.every):
            report(layer)
            search = _search(layer, ASSUMPTIONS[next(iter(ASSUMPTIONS))].chip(ARCH))
            for name, policy in policies.items():
                decision = search.decided(policy)
                sums[name][0] += decision.cycles
                sums[name][1] += decision.words
        static = sums.pop("paper_static")
        return {name: (static[0] / cycles, static[1] / words) for name, (cycles, words) in sums.items()}


@dataclass(frozen=True)
class Scatter:
    """Of tilings the best schedule of each kind: cycles and words. `every`: how many tilings the layer has."""

    spots: dict[str, list[Spot]]
    every: int


@dataclass(frozen=True)
class Tilings(Point):
    """Figure 1: of each tiling of a layer the best static schedule and the best out-of-order one, as the search
    estimates them. `most`: operations that a tiling has at most (one of 100,000 takes minutes); `shown`: tilings,
    evenly spread over all of these."""

    layer: str
    most: int = 1000
    shown: int = 400
    row: ClassVar[Any] = Scatter

    @property
    def name(self) -> str:
        return f"tilings of {self.layer} on {FIGURE_1}"

    @property
    def work(self) -> float:
        return self.shown / 4

    def inputs(self) -> Inputs:
        return Inputs(("sched.papers.flexer.layer",), (("chip", chip_of(FIGURE_1).digest),))

    def measure(self, report: Report) -> Scatter:
        """Raises DoesNotFit."""
        chip = chip_of(FIGURE_1)
        problem = pose(shape_of(self.layer), chip)
        every = viable(problem, chip, self.layer)
        tilings = [
            each for each in map(every.tiling, range(len(every))) if Tiles(problem, each).operations <= self.most
        ]
        spots: dict[str, list[Spot]] = {}
        for label, policy in (("best static", PAPER_STATIC), ("out of order", PAPER)):
            for tiling in tilings[:: max(1, len(tilings) // self.shown)]:
                costs = [_played(problem, chip, choice, policy) for choice in flows(problem, chip, policy, tiling)]
                if costs:
                    spots.setdefault(label, []).append(min(costs, key=lambda cost: policy.metric(*cost)))
        return Scatter(spots, len(every))


def _played(problem: Problem, chip: ChipConfig, choice: Choice, policy: Policy) -> Spot:
    _, cycles, words, _, _ = attempt(problem, chip, choice, policy)
    return cycles, words
