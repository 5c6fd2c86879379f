"""What a scale for each channel of the weights is worth, in trained files with weights of 8 bits, and take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...build.synthesis import Area
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Figure, Study, prose
from ..engine.tables import Table, count, share, table
from ..networks.file_cases import FILES
from ..points.areas import AreaPoint, Design, UnitArea
from .rounding import WORD, Noise, noise_of
from .scale_stage import SHIFT_BITS, By, ScaleStage

#: The chip whose units are synthesised: those of larger ones take long.
UNITS_OF = "tiny"
#: A model that begins on the host, and one that takes minutes.
_LEFT_OUT = {"sentence_embedding", "letter_boxes"}
#: Files of the quick study.
QUICK = ("text_direction", "mtcnn_pnet", "alexa")
#: What a lane of the stage has.
LANES: Mapping[By, str] = {
    "instruction": "one multiplier for all lanes",
    "shift": f"and a power of two of {SHIFT_BITS} bits for each lane, in its bias",
    "lane": "a multiplier for each lane, in a word of its own",
}
#: Units as they are built.
UNITS = {"drain": "drain path, {cols} columns", "vector": "vector unit, {lanes} lanes"}


@dataclass(frozen=True)
class NoisePoint(Point):
    """A trained file with rounded weights."""

    file: str
    row: ClassVar[Any] = Noise

    @property
    def name(self) -> str:
        return f"weights of {self.file}"

    @property
    def work(self) -> float:
        return 30.0

    def inputs(self) -> Inputs:
        return Inputs(("tb.studies.chip.rounding",))

    def measure(self, report: Report) -> Noise:
        """Raises PackageError."""
        report("rounding weights")
        return noise_of(next(file for file in FILES if file.name == self.file))


@dataclass(frozen=True)
class ScaleArea(AreaPoint):
    """A lane of the stage that scales and rounds."""

    by: By

    @property
    def name(self) -> str:
        return f"scale stage by {self.by}"

    def inputs(self) -> Inputs:
        return Inputs(("tb.studies.chip.scale_stage",), super().inputs().more)

    def design(self) -> Design:
        return Design(ScaleStage(1, self.by))


def unit_of(unit: str, own: bool) -> UnitArea:
    """A unit with one multiplier, or with one for each channel."""
    return UnitArea(unit, UNITS_OF, (("core.channel_scales", own),))


def points(full: bool) -> list[Point]:
    """Quick: three files, and all areas, which are small."""
    files = [file.name for file in FILES if (file.name in QUICK or full) and file.name not in _LEFT_OUT]
    units = [unit_of(unit, own) for unit in UNITS for own in (False, True)]
    return [*map(NoisePoint, files), *map(ScaleArea, LANES), *units]


def noises(rows: Rows) -> Table:
    """Every file."""
    columns: dict[str, Callable[[tuple[NoisePoint, Noise]], str]] = {
        "file": lambda each: each[0].file,
        "a step for a layer>": lambda each: f"{each[1].layer:.1f} dB",
        "equalised>": lambda each: f"{each[1].equalised:.1f} dB",
        f"a step for {WORD} channels>": lambda each: f"{each[1].word:.1f} dB",
        "depthwise, shifted>": lambda each: f"{each[1].shifted:.1f} dB",
        "a step for a channel>": lambda each: f"{each[1].channel:.1f} dB",
    }
    return table("Noise of rounded weights", columns, rows.pairs(NoisePoint))


def lanes(rows: Rows) -> Table:
    """What the last stage of the vector unit, and of the drain, takes."""
    some = rows.pairs(ScaleArea)
    first = rows.get(ScaleArea("instruction"))

    def more(each: tuple[ScaleArea, Area]) -> str:
        return share(each[1].cells / first.cells - 1, sign="+") if first and each[0].by != "instruction" else ""

    columns: dict[str, Callable[[tuple[ScaleArea, Area]], str]] = {
        "lanes have": lambda each: LANES[each[0].by],
        "cells>": lambda each: count(each[1].cells),
        "of them flip-flops>": lambda each: count(each[1].flip_flops),
        "more>": more,
    }
    return table("A lane of the stage that scales and rounds (Yosys `synth`, generic cells)", columns, some)


def built(rows: Rows) -> Table:
    """What chips with multipliers by channel pay."""
    pairs = {unit: (rows.get(unit_of(unit, False)), rows.get(unit_of(unit, True))) for unit in UNITS}
    some: list[tuple[str, Area, Area]] = [(unit, one, own) for unit, (one, own) in pairs.items() if one and own]

    def called(unit: str) -> str:
        chip = unit_of(unit, False).config
        return UNITS[unit].format(cols=chip.cols, lanes=chip.lanes)

    columns: dict[str, Callable[[tuple[str, Area, Area]], str]] = {
        "unit": lambda each: called(each[0]),
        "cells with one multiplier>": lambda each: count(each[1].cells),
        "with one for each>": lambda each: count(each[2].cells),
        "more>": lambda each: share(each[2].cells / each[1].cells - 1, sign="+"),
        "flip-flops more>": lambda each: f"{each[2].flip_flops - each[1].flip_flops:+,}",
    }
    return table(f"As built (Yosys `synth`, generic cells; units of {UNITS_OF}, without memories)", columns, some)


def _gain(which: Callable[[Noise], float]) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        gains = [which(row) - row.equalised for _, row in rows.pairs(NoisePoint)]
        return sum(gains) / len(gains) if gains else None

    return value


def _more(unit: str) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        one, own = rows.get(unit_of(unit, False)), rows.get(unit_of(unit, True))
        return 100 * (own.cells / one.cells - 1) if one and own else None

    return value


STUDY = Study(
    name="channel_scales",
    title="Weights with a scale for each channel",
    question="What is a scale for each channel of the weights worth, and what does it cost?",
    answer="It makes the worst output {{ channel }} dB better than equalised weights with a step for a layer, in the "
    "mean of files, for {{ vector }} more cells of the vector unit and {{ drain }} of the drain path.",
    about=prose(__file__),
    points=points,
    tables=(noises, lanes, built),
    figures=(
        Figure("channel", "dB better with a step for a channel", _gain(lambda row: row.channel), "{:.1f}"),
        Figure("shifted", "dB better with depthwise filters shifted", _gain(lambda row: row.shifted), "{:.1f}"),
        Figure("vector", "cells more, vector unit", _more("vector"), "{:+.1f} %"),
        Figure("drain", "cells more, drain path", _more("drain"), "{:+.1f} %"),
    ),
)
