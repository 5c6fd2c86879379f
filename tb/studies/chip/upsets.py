"""What becomes of a bit that flips in a register or a memory of the chip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig, TileKind, check_bits, load

from ...build.synthesis import Area
from ...build.tools import simulator_version
from ...build.upsets import build_with_upsets, places_of
from ...verify.coverage import block_of
from ...verify.fuzz.chips import random_chips
from ...verify.upsets import NOTICED, FlipPlace, Outcome, UpsetDevice, bits_of, drawn, outcomes, program
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Figure, Study, prose
from ..engine.tables import DASH, Table, count, share, table
from ..points.areas import TileArea
from ..points.runs import Changes, gateware

SEED = 1
#: Flips of a point, and points of each kind: of the full and of the quick study.
FLIPS, BATCHES, QUICK = 30, 33, 1
#: The built-in chip, and random ones by number.
CHIP, RANDOM = "tiny", (0, 2)
#: Its fields with a code for words.
CODED: Changes = (("ecc", True),)


@dataclass(frozen=True)
class Flipped:
    """`outcomes`: by block of the chip, how often each outcome came of a flip there; `bits` that there are."""

    bits: int
    outcomes: dict[str, dict[str, int]]


@dataclass(frozen=True)
class UpsetPoint(Point):
    """Flips number `batch` of a chip (its name, or the number of a random one), and where; `coded`: its words have a
    code."""

    row: ClassVar[Any] = Flipped
    chip: str
    where: FlipPlace
    batch: int
    coded: bool = False

    @property
    def config(self) -> ChipConfig:
        """The chip."""
        chip = random_chips(SEED, int(self.chip) + 1)[-1] if self.chip.isdecimal() else load(self.chip)
        return chip.model_copy(update=dict(CODED)) if self.coded else chip

    @property
    def name(self) -> str:
        return f"flips {self.batch} in {self.where} of {self.chip}{' with ecc' if self.coded else ''}"

    @property
    def work(self) -> float:
        return 2.0 * FLIPS

    def inputs(self) -> Inputs:
        more = (("chip", self.config.digest), ("gateware", gateware()), ("icarus", simulator_version("icarus")))
        return Inputs(("tb.verify.upsets",), (*more, ("flips", str(FLIPS))))

    def measure(self, report: Report) -> Flipped:
        """Raises BuildError, DeviceError, OmittedError."""
        chip = self.config
        report("building a simulator whose bits flip")
        build = build_with_upsets(chip, report)
        places, sample = places_of(build), program(chip, SEED)
        flips = drawn(places, self.where, sample.timeline.cycles, FLIPS, f"{SEED} {self.where} {self.batch}")
        counts: dict[str, Counter[str]] = {}
        report("flipping bits")
        for flip, what in outcomes(UpsetDevice(build), sample, flips):
            counts.setdefault(block_of(places[flip.place].module), Counter())[what.name] += 1
        return Flipped(bits_of(places, self.where), {block: dict(each) for block, each in sorted(counts.items())})


def points(full: bool) -> list[Point]:
    """Quick: a batch of each kind on the built-in chip, and the smaller tiles. Words in use: as they are, and with a
    code."""
    chips, batches = ([CHIP, *map(str, RANDOM)], BATCHES) if full else ([CHIP], QUICK)
    tiles = TILES if full else TILES[:2]
    flips = [
        UpsetPoint(chip, where, batch, coded)
        for chip in chips
        for where in FlipPlace
        for coded in ((False, True) if where is FlipPlace.USED and chip == CHIP else (False,))
        for batch in range(batches)
    ]
    return [*flips, *(TileArea(kind, CHIP, changes) for kind in tiles for changes in ((), CODED))]


#: Whose area is compared, with and without the code; the quick study takes the first two.
TILES = (TileKind.DRAM, TileKind.SPM, TileKind.HOST, TileKind.CORE)


def _of(rows: Rows, where: FlipPlace | None = None, coded: bool = False) -> dict[str, Counter[str]]:
    """Outcomes by block, of flips in one kind of place or in all."""
    result: dict[str, Counter[str]] = {}
    for point, row in rows.pairs(UpsetPoint):
        for block, counts in row.outcomes.items():
            if point.where in (where or tuple(FlipPlace)) and point.coded == coded:
                result.setdefault(block, Counter()).update(counts)
    return result


def _part(number: int, total: int) -> str:
    return f"{100 * number / total:.1f} %" if total else DASH


def by_kind(rows: Rows) -> Table:
    """A line for each kind of place, and one for words in use of the chip with a code."""
    kinds = [(where, coded) for coded in (False, True) for where in FlipPlace]
    lines = {kind: sum(_of(rows, *kind).values(), Counter[str]()) for kind in kinds}
    columns: dict[str, Callable[[tuple[FlipPlace, bool]], str]] = {
        "flips in": lambda line: f"{line[0]}, chip with `ecc`" if line[1] else line[0].value,
        "flips>": lambda line: count(lines[line].total()),
        **{
            f"{each.value}>": lambda line, each=each: _part(lines[line][each.name], lines[line].total())
            for each in Outcome
        },
    }
    return table("What comes of a flip", columns, [line for line, counts in lines.items() if counts])


def code_area(rows: Rows) -> Table:
    """What the code costs: cells of each tile without memories, and bits of its memories."""
    tiles = {(kind, changes): TileArea(kind, CHIP, changes) for kind in TILES for changes in ((), CODED)}
    areas: dict[tuple[TileKind, Changes], Area] = {key: rows[tile] for key, tile in tiles.items() if tile in rows}
    columns: dict[str, Callable[[TileKind], str]] = {
        "tile": lambda kind: f"{kind.value} tile",
        "cells>": lambda kind: count(areas[kind, ()].cells),
        "with `ecc`>": lambda kind: count(areas[kind, CODED].cells),
        "more>": lambda kind: share(areas[kind, CODED].cells / areas[kind, ()].cells - 1, sign="+"),
    }
    title = f"Cells of the tiles of {CHIP} without routers and memories (Yosys `synth`, generic cells)"
    return table(title, columns, [kind for kind in TILES if {(kind, ()), (kind, CODED)} <= areas.keys()])


def widths(rows: Rows) -> Table:
    """Check bits of a word by its width."""
    columns: dict[str, Callable[[int], str]] = {
        "lanes>": str,
        "bits of a word>": lambda lanes: str(8 * lanes),
        "check bits>": lambda lanes: str(check_bits(8 * lanes)),
        "more memory>": lambda lanes: share(check_bits(8 * lanes) / (8 * lanes), sign="+"),
    }
    return table("Check bits of a word", columns, [4, 8, 16, 32, 64, 128])


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


def _share(where: FlipPlace, coded: bool, *some: Outcome) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        totals = sum(_of(rows, where, coded).values(), Counter[str]())
        number = sum(totals[each.name] for each in some)
        return 100 * number / totals.total() if totals else None

    return value


def _flips(rows: Rows) -> float | None:
    total = sum(sum(_of(rows, None, coded).values(), Counter[str]()).total() for coded in (False, True))
    return float(total) or None


def _figures() -> tuple[Figure, ...]:
    lines = [(where, False) for where in FlipPlace] + [(FlipPlace.USED, True)]
    what = (
        ("harmless", "flips that change nothing", (Outcome.HARMLESS,)),
        ("corrected", "flips that the code corrects", (Outcome.CORRECTED,)),
        ("named", "flips that stop the chip with a fault that names them", (Outcome.NAMED,)),
        ("noticed", "flips that are harmless or noticed", NOTICED),
        ("silent", "flips that leave wrong bytes, unnoticed", (Outcome.SILENT,)),
    )
    return tuple(
        Figure(
            f"{'coded' if coded else where.name.lower()}_{name}",
            f"{words}, {where}{', chip with `ecc`' * coded}",
            _share(where, coded, *some),
            "{:.1f} %",
        )
        for where, coded in lines
        for name, words, some in what
        if coded or name != "corrected"
    )


STUDY = Study(
    name="upsets",
    title="A bit that flips",
    question="What becomes of a single bit that flips in a register or a memory of the chip, and does a code help?",
    answer="Of flips in words that a program uses {{ used_silent }} leave wrong bytes that nobody notices; with `ecc` "
    "{{ coded_silent }} do, and {{ coded_corrected }} are corrected. In registers it is {{ registers_silent }}.",
    about=prose(__file__),
    points=points,
    tables=(by_kind, code_area, widths, by_block),
    figures=(Figure("flips", "flips", _flips, "{:,.0f}"), *_figures()),
)
