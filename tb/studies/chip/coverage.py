"""How much of each block of the chip random programs reach, and how far the block's evidence goes."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig

from ...build.builder import BuildError
from ...build.covered import COUNTS, build_with_coverage
from ...devices.simulated import SimulatedDevice
from ...verify.coverage import BLOCKS, Reach, reached, together
from ...verify.fuzz.samples import difference
from ...verify.prove.catalogue import PROOFS
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import DASH, Table, count, table
from . import functional
from .functional import RandomChipPoint, percent, share

#: Chips of the full and of the quick study, programs of each.
CHIPS, QUICK = range(12), (0,)
SAMPLES, QUICK_SAMPLES = 200, 40
#: Seconds that a simulator may take to write what it has counted.
PATIENCE = 120.0
#: Stages, the last one first: least percent of lines and of bits.
STAGES = (("V3", 98.0, 90.0), ("V2", 90.0, 75.0), ("V1", 0.0, 0.0))
#: Signals of a block that rested, as many as a line of the table has.
SHOWN = 3


@dataclass(frozen=True)
class Covered:
    """`samples`: programs that ran, each predicted to the cycle; `cycles` of them; by block what they have reached."""

    samples: int
    cycles: int
    blocks: dict[str, Reach]


@dataclass(frozen=True)
class CoveragePoint(RandomChipPoint):
    """How much of a random chip random programs reach."""

    row: ClassVar[Any] = Covered

    @property
    def name(self) -> str:
        return f"{self.samples} programs on chip {self.chip}"

    @property
    def work(self) -> float:
        return 100.0 + 2.0 * self.samples

    def inputs(self) -> Inputs:
        return Inputs(("tb.verify.fuzz.samples", "tb.verify.coverage", "tb.build.covered"), self.decides)

    def measure(self, report: Report) -> Covered:
        """Raises BuildError, DeviceError; BuildError too if a program did not run as predicted."""
        chip = self.config
        samples = [sample for _, sample in self.drawn()]
        report("building a simulator that counts")
        device = SimulatedDevice(build_with_coverage(chip, report), keep=True, patience=PATIENCE)
        report("running programs")
        runs = list(device.run([sample.job for sample in samples], "coverage"))
        for sample, run in zip(samples, runs, strict=True):
            if words := difference(sample, run, chip):
                raise BuildError(f"a program did not run as predicted: {words}")
        folder = device.last_folder
        assert folder is not None
        blocks = reached(folder / COUNTS)
        shutil.rmtree(folder, ignore_errors=True)  # the counts alone are 60 MB
        return Covered(len(samples), sum(run.cycles for run in runs), blocks)


def points(full: bool) -> list[Point]:
    """Chips, each with as many programs."""
    chips, samples = (CHIPS, SAMPLES) if full else (QUICK, QUICK_SAMPLES)
    return [*(CoveragePoint(chip, samples) for chip in chips), *functional.points(chips, full)]


def _blocks(rows: Rows) -> dict[str, Reach]:
    return together(row.blocks for _, row in rows.pairs(CoveragePoint))


def stage(reach: Reach) -> str:
    """The last stage whose bounds a block keeps; a block without lines is judged by its bits."""
    lines, bits = (percent(reach.lines, reach.lines_of), percent(reach.bits, reach.bits_of))
    return next(
        name
        for name, least_lines, least_bits in STAGES
        if (lines is None or lines >= least_lines) and (bits is None or bits >= least_bits)
    )


def _proofs(block: str) -> int:
    begin = BLOCKS[block][2] if block in BLOCKS else ()
    return sum(name.startswith(begin) for name in PROOFS) if begin else 0


def by_block(rows: Rows) -> Table:
    """A line for each block."""
    reaches = _blocks(rows)
    columns: dict[str, Callable[[str], str]] = {
        "block": lambda name: name,
        "its contract": lambda name: f"`hw/{BLOCKS[name][1]}`" if name in BLOCKS else DASH,
        "proofs>": lambda name: count(_proofs(name)) if _proofs(name) else DASH,
        "lines>": lambda name: count(reaches[name].lines_of),
        "reached>": lambda name: share(reaches[name].lines, reaches[name].lines_of),
        "bits>": lambda name: count(reaches[name].bits_of),
        "moved>": lambda name: share(reaches[name].bits, reaches[name].bits_of),
        "stage": lambda name: stage(reaches[name]),
        "signals that rested": lambda name: ", ".join(
            f"`{signal.partition('__')[2] or signal}`" for signal in reaches[name].still[:SHOWN]
        ),
    }
    return table("Blocks: lines with their branches, and bits that rose and fell", columns, list(reaches))


def runs(rows: Rows) -> Table:
    """A line for each chip."""
    columns: dict[str, Callable[[tuple[CoveragePoint, Covered]], str]] = {
        "chip": lambda each: str(each[0].chip),
        "floorplan": lambda each: " / ".join(_rows(each[0].config)),
        "programs>": lambda each: count(each[1].samples),
        "cycles>": lambda each: count(each[1].cycles),
    }
    return table("Chips, and what ran on them", columns, rows.pairs(CoveragePoint))


def _rows(chip: ChipConfig) -> list[str]:
    return [" ".join(tile.value for tile in row) for row in chip.floorplan]


def _whole(kind: str) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        whole = sum(_blocks(rows).values(), Reach())
        return percent(getattr(whole, kind), getattr(whole, f"{kind}_of"))

    return value


def _at(name: str) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        stages = Counter(stage(each) for each in _blocks(rows).values())
        return float(stages[name]) if stages else None

    return value


STUDY = Study(
    name="coverage",
    title="How far each block of the chip is verified",
    question="How much of each block of the chip do random programs reach that are predicted to the cycle?",
    answer="{{ lines }} of the lines and branches, {{ bits }} of the bits, {{ bins }} of what "
    "instructions, units and faults can do; {{ V3 }} blocks are at the last stage, "
    "{{ V1 }} at the first.",
    about=prose(__file__),
    points=points,
    tables=(by_block, functional.by_group, functional.waivers, functional.excluded, runs),
    figures=(
        Figure("lines", "lines and branches that were reached", _whole("lines"), "{:.1f} %", Bar("at least", 98.0)),
        Figure("bits", "bits that rose and fell", _whole("bits"), "{:.1f} %", Bar("at least", 90.0)),
        *functional.FIGURES,
        *(Figure(name, f"blocks at stage {name}", _at(name), "{:.0f}") for name, _, _ in STAGES),
    ),
)
