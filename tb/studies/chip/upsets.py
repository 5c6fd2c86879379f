"""What becomes of a bit that flips in a register or a memory of the chip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig, load

from ...build.tools import simulator_version
from ...build.upsets import build_with_upsets, places_of
from ...verify.coverage import block_of
from ...verify.fuzz.chips import random_chips
from ...verify.upsets import NOTICED, Outcome, UpsetDevice, drawn, outcomes, program
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Figure, Study, prose
from ..engine.tables import DASH, Table, count, table
from ..points.runs import gateware

SEED = 1
#: Flips of a point, and points of each kind: of the full and of the quick study.
FLIPS, BATCHES, QUICK = 30, 33, 1
#: The built-in chip, and random ones by number.
CHIP, RANDOM = "tiny", (0, 2)
KINDS = ("registers", "memories")


@dataclass(frozen=True)
class Flipped:
    """`outcomes`: by block of the chip, how often each outcome came of a flip there; `bits` that there are."""

    bits: int
    outcomes: dict[str, dict[str, int]]


@dataclass(frozen=True)
class UpsetPoint(Point):
    """Flips number `batch` of a chip (its name, or the number of a random one), in registers or memories."""

    row: ClassVar[Any] = Flipped
    chip: str
    kind: str
    batch: int

    @property
    def config(self) -> ChipConfig:
        """The chip."""
        return random_chips(SEED, int(self.chip) + 1)[-1] if self.chip.isdecimal() else load(self.chip)

    @property
    def name(self) -> str:
        return f"flips {self.batch} in {self.kind} of {self.chip}"

    @property
    def work(self) -> float:
        return 4.0 * FLIPS

    def inputs(self) -> Inputs:
        more = (("chip", self.config.digest), ("gateware", gateware()), ("icarus", simulator_version("icarus")))
        return Inputs(("tb.verify.upsets",), (*more, ("flips", str(FLIPS))))

    def measure(self, report: Report) -> Flipped:
        """Raises BuildError, DeviceError, OmittedError."""
        chip = self.config
        report("building a simulator whose bits flip")
        build = build_with_upsets(chip, report)
        places, sample = places_of(build), program(chip, SEED)
        memories = self.kind == "memories"
        flips = drawn(places, memories, sample.timeline.cycles, FLIPS, f"{SEED} {self.kind} {self.batch}")
        counts: dict[str, Counter[str]] = {}
        report("flipping bits")
        for flip, what in outcomes(UpsetDevice(build), sample, flips):
            counts.setdefault(block_of(places[flip.place].module), Counter())[what.name] += 1
        bits = sum(each.bits * each.words for each in places if (each.words > 1) == memories)
        return Flipped(bits, {block: dict(each) for block, each in sorted(counts.items())})


def points(full: bool) -> list[Point]:
    """Quick: a batch of each kind on the built-in chip."""
    chips, batches = ([CHIP, *map(str, RANDOM)], BATCHES) if full else ([CHIP], QUICK)
    return [UpsetPoint(chip, kind, batch) for chip in chips for kind in KINDS for batch in range(batches)]


def _of(rows: Rows, kind: str = "") -> dict[str, Counter[str]]:
    """Outcomes by block, of registers, of memories or of both."""
    result: dict[str, Counter[str]] = {}
    for point, row in rows.pairs(UpsetPoint):
        for block, counts in row.outcomes.items():
            if point.kind in (kind or KINDS):
                result.setdefault(block, Counter()).update(counts)
    return result


def _part(number: int, total: int) -> str:
    return f"{100 * number / total:.1f} %" if total else DASH


def by_kind(rows: Rows) -> Table:
    """A line for registers, one for memories."""
    totals = {kind: sum(_of(rows, kind).values(), Counter[str]()) for kind in KINDS}
    columns: dict[str, Callable[[str], str]] = {
        "flips in": lambda kind: kind,
        "flips>": lambda kind: count(totals[kind].total()),
        **{
            f"{each.value}>": lambda kind, each=each: _part(totals[kind][each.name], totals[kind].total())
            for each in Outcome
        },
    }
    return table("What comes of a flip", columns, [kind for kind in KINDS if totals[kind]])


def by_block(rows: Rows) -> Table:
    """A line for each block."""
    blocks = _of(rows)
    columns: dict[str, Callable[[str], str]] = {
        "block": lambda block: block,
        "flips>": lambda block: count(blocks[block].total()),
        **{f"{each.value}>": lambda block, each=each: count(blocks[block][each.name]) for each in Outcome},
    }
    order = sorted(blocks, key=lambda block: (-blocks[block][Outcome.SILENT.name], -blocks[block].total(), block))
    return table("By block, those with most silent flips first", columns, order)


def _share(kind: str, *some: Outcome) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        totals = sum(_of(rows, kind).values(), Counter[str]())
        number = sum(totals[each.name] for each in some)
        return 100 * number / totals.total() if totals else None

    return value


def _flips(rows: Rows) -> float | None:
    totals = sum(_of(rows).values(), Counter[str]())
    return float(totals.total()) or None


STUDY = Study(
    name="upsets",
    title="A bit that flips",
    question="What becomes of a single bit that flips in a register or a memory of the chip?",
    answer="Of registers {{ registers_silent }} of the flips leave wrong bytes that nobody notices, of memories "
    "{{ memories_silent }}; {{ registers_harmless }} and {{ memories_harmless }} change nothing.",
    about=prose(__file__),
    points=points,
    tables=(by_kind, by_block),
    figures=(
        Figure("flips", "flips", _flips, "{:,.0f}"),
        *(
            Figure(f"{kind}_{name}", f"{words} in {kind}", _share(kind, *some), "{:.1f} %")
            for kind in KINDS
            for name, words, some in (
                ("harmless", "harmless flips", (Outcome.HARMLESS,)),
                ("named", "flips that stop the chip with a fault that names them", (Outcome.NAMED,)),
                ("noticed", "flips that are harmless or noticed", NOTICED),
                ("silent", "flips that leave wrong bytes, unnoticed", (Outcome.SILENT,)),
            )
        ),
    ),
)
