"""What random programs bring about on random chips: forms of instructions, what they wait for, faults, choices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig

from ...build.builder import BuildError, build
from ...build.synthesis import tools
from ...devices.interface import Job
from ...devices.simulated import SimulatedDevice
from ...verify.functional import GROUPS, FunctionalCoverage, bins, raised, reached, together, waiver, wrong_programs
from ...verify.fuzz.campaign import SampleBatch
from ...verify.fuzz.chips import EXCLUDED, ExcludedPairs, drafts, pairs_of, possible_pairs, random_chips
from ...verify.fuzz.samples import FuzzSample, OmittedError, ProgramKind, SampleKey, difference, draw
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Bar, Figure
from ..engine.tables import DASH, Table, count, table
from ..points.runs import gateware

#: What chips and programs are drawn with.
SEED = 1
#: Programs of which it is counted what they bring about, and as many that are refused; cycles that these may run.
PROGRAMS, QUICK_PROGRAMS, WRONG_CYCLES = 1_000, 300, 20_000
#: Chips of a campaign of fuzz, and legal drafts that show which choices there are.
CAMPAIGN, DRAFTS = 20, 2_000
#: Bins that were not reached, as many as are named.
MISSING = 12


@dataclass(frozen=True)
class RandomChipPoint(Point):
    """Random programs of all kinds (`samples`) on a random chip (number `chip` of the seed's)."""

    chip: int
    samples: int

    @property
    def config(self) -> ChipConfig:
        """The chip."""
        return random_chips(SEED, self.chip + 1)[self.chip]

    @property
    def decides(self) -> tuple[tuple[str, str], ...]:
        """What decides its row besides code."""
        return (("chip", self.config.digest), ("gateware", gateware()), ("tools", tools()))

    def drawn(self) -> Iterator[tuple[SampleKey, FuzzSample]]:
        """The programs that are drawn; those that are omitted are left out."""
        for origin in SampleBatch(self.config, "verilator", SEED, 0, self.samples).origins:
            try:
                yield origin, draw(origin, self.config)
            except OmittedError:
                continue


@dataclass(frozen=True)
class FunctionalPoint(RandomChipPoint):
    """What random programs bring about on a random chip, and how as many that the checker refuses end."""

    row: ClassVar[Any] = FunctionalCoverage

    @property
    def name(self) -> str:
        return f"what {self.samples} programs bring about on chip {self.chip}"

    @property
    def work(self) -> float:
        return 60.0 + 0.2 * self.samples

    def inputs(self) -> Inputs:
        return Inputs(("tb.verify.fuzz.samples", "tb.verify.functional"), self.decides)

    def measure(self, report: Report) -> FunctionalCoverage:
        """Raises BuildError, DeviceError; BuildError too if a program did not run as predicted."""
        chip = self.config
        counts: dict[str, dict[str, int]] = {group: dict.fromkeys(names, 0) for group, names in bins(chip).items()}
        samples: list[FuzzSample] = []
        for origin, sample in self.drawn():
            samples.append(sample)
            if origin.kind is ProgramKind.DAMAGED:
                continue  # whose tags need not tell instructions apart
            for (group, name), times in reached(sample.job.program, sample.timeline.executed, chip).items():
                counts[group][name] = counts[group].get(name, 0) + times
        wrong = [
            Job(program, [], [], watchdog=WRONG_CYCLES, stall_limit=WRONG_CYCLES // 4)
            for program in wrong_programs(f"wrong {SEED} {chip.name}", chip, self.samples)
        ]
        report("building a simulator")
        device = SimulatedDevice(build(chip, "verilator"))
        report("running programs")
        for sample, run in zip(samples, device.run([sample.job for sample in samples], "functional"), strict=True):
            if words := difference(sample, run, chip):
                raise BuildError(f"a program did not run as predicted: {words}")
        faults = [run.fault for run in device.run(wrong, "refused") if run.fault is not None]
        for fault in faults:
            group, name = raised(fault, chip)
            counts[group][name] = counts[group].get(name, 0) + 1
        return FunctionalCoverage(len(samples), len(wrong), len(faults), counts)


@dataclass(frozen=True)
class Crossed:
    """Pairs of choices of chips: `pairs` that these cross, of `possible` ones, which are all that nothing excludes."""

    pairs: int
    possible: int


@dataclass(frozen=True)
class CrossedPoint(Point):
    """How many pairs of choices the first `chips` random chips cross."""

    row: ClassVar[Any] = Crossed
    chips: int
    drafts: int

    @property
    def name(self) -> str:
        return f"choices of {self.chips} chips"

    @property
    def work(self) -> float:
        return 0.01 * self.drafts

    def inputs(self) -> Inputs:
        return Inputs(("tb.verify.fuzz.chips",))

    def measure(self, report: Report) -> Crossed:
        """Draws both."""
        chips = random_chips(SEED, self.chips)
        possible = possible_pairs((*drafts(SEED, self.drafts), *chips))
        return Crossed(len({pair for chip in chips for pair in pairs_of(chip)}), len(possible))


def points(chips: Iterable[int], full: bool) -> list[Point]:
    """Chips by number, each with as many programs; and the chips of a campaign."""
    programs = PROGRAMS if full else QUICK_PROGRAMS
    return [*(FunctionalPoint(chip, programs) for chip in chips), CrossedPoint(CAMPAIGN, DRAFTS)]


def percent(part: int, whole: int) -> float | None:
    """A part in percent; None of nothing."""
    return 100 * part / whole if whole else None


def share(part: int, whole: int) -> str:
    """The same as it is written."""
    value = percent(part, whole)
    return DASH if value is None else f"{value:.1f} %"


def _bins(rows: Rows) -> dict[str, dict[str, int]]:
    return together(row for _, row in rows.pairs(FunctionalPoint))


def _counted(names: dict[str, int], group: str) -> list[str]:
    return [name for name in names if not waiver(group, name)]


def by_group(rows: Rows) -> Table:
    """A line for each group of bins."""
    groups = _bins(rows)

    def missing(group: str) -> list[str]:
        return [name for name in _counted(groups[group], group) if not groups[group][name]]

    def part(group: str) -> str:
        names = _counted(groups[group], group)
        return share(len(names) - len(missing(group)), len(names))

    columns: dict[str, Callable[[str], str]] = {
        "what is counted": lambda group: GROUPS[group],
        "bins>": lambda group: count(len(_counted(groups[group], group))),
        "reached>": part,
        "waived>": lambda group: count(len(groups[group]) - len(_counted(groups[group], group))),
        "some that were not": lambda group: "; ".join(missing(group)[:MISSING]) or DASH,
    }
    return table("What programs bring about", columns, [group for group in groups if groups[group]])


def waivers(rows: Rows) -> Table:
    """A line for each bin that need not be reached."""
    groups = _bins(rows)
    some = [(group, name) for group, names in groups.items() for name in names if waiver(group, name)]
    columns: dict[str, Callable[[tuple[str, str]], str]] = {
        "bin": lambda each: each[1],
        "why it need not be reached here": lambda each: waiver(*each),
    }
    return table("Waived", columns, some)


def excluded(rows: Rows) -> Table:
    """A line for each two options of which some values exclude each other."""
    columns: dict[str, Callable[[ExcludedPairs], str]] = {
        "choice": lambda each: f"{each.option}: {', '.join(each.values)}",
        "and": lambda each: f"{each.second}: {', '.join(each.seconds)}",
        "pairs>": lambda each: count(len(each.pairs)),
        "why no chip has both": lambda each: each.reason,
    }
    return table("Pairs of choices that no chip has", columns, EXCLUDED if rows.pairs(CrossedPoint) else ())


def _functional(rows: Rows) -> float | None:
    groups = _bins(rows)
    names = [counts[name] for group, counts in groups.items() for name in _counted(counts, group)]
    return percent(sum(map(bool, names)), len(names))


def _crossed(rows: Rows) -> float | None:
    return next((percent(row.pairs, row.possible) for _, row in rows.pairs(CrossedPoint)), None)


#: What functional coverage comes to.
FIGURES = (
    Figure("bins", "bins that programs reached", _functional, "{:.1f} %", Bar("at least", 98.0)),
    Figure("chips", "chips of a campaign", lambda rows: float(CAMPAIGN), "{:.0f}"),
    Figure("drafts", "legal drafts of chips", lambda rows: float(DRAFTS), "{:,.0f}"),
    Figure("crossed", f"pairs of choices that {CAMPAIGN} chips cross", _crossed, "{:.1f} %", Bar("at least", 98.0)),
)
