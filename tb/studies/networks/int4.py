"""What weights of four bits with a scale for each group bring to a language model, and what they take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig

from ...build.synthesis import Area
from ..engine.figures import total
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import DASH, Table, count, share, table
from ..points.areas import UnitArea
from ..points.runs import Changes, chip_of
from .language import CHUNK, WIDTHS, bandwidth
from .language_points import StepPoint, StepRow, TextPoint, TextRow

CHIP = "quad16"
INT4: Changes = (("core.int4", True),)
#: B with half as many words holds as many of these weights as a whole B does of bytes. That is what B would hold if
#: they became bytes where they arrive.
HALF: Changes = (*INT4, ("core.b_words", 2048))
#: Who has what: the bits of weights, and the options of the chip.
BYTES, EDGE, ARRIVAL = "bytes", "four bits", "four bits, half of B"
WAYS: dict[str, tuple[int, Changes]] = {BYTES: (8, ()), EDGE: (4, INT4), ARRIVAL: (4, HALF)}
#: Chips whose matrix unit is synthesised: 4 x 4, 8 x 8 and (full) 16 x 16 PEs.
UNITS = ("tiny", "quad8", CHIP)
#: Perplexity that may be lost, and what decode of the widest model must gain.
LOST, GAINED = 5.0, 1.5


class _ByWay:
    """What a point does differently by its `way`."""

    chip: str
    way: str

    @property
    def config(self) -> ChipConfig:
        return chip_of(self.chip, WAYS[self.way][1])

    @property
    def weight_bits(self) -> int:
        return WAYS[self.way][0]


@dataclass(frozen=True)
class WayText(_ByWay, TextPoint):
    """The text with such weights."""

    way: str = BYTES
    row: ClassVar[Any] = TextRow

    @property
    def name(self) -> str:
        return f"{super().name}, {self.way}"


@dataclass(frozen=True)
class WayStep(_ByWay, StepPoint):
    """A step with such weights."""

    way: str = BYTES
    row: ClassVar[Any] = StepRow

    @property
    def name(self) -> str:
        return f"{super().name}, {self.way}"


def unit_of(chip: str, int4: bool) -> UnitArea:
    """The matrix unit without memories."""
    return UnitArea("matrix", chip, (("core.int4", int4),))


def points(full: bool) -> list[WayText | WayStep | UnitArea]:
    """Quick: the text on the RTL, single steps in the model, the matrix units of the small chips."""
    texts = [WayText(CHIP, True, way) for way in (BYTES, EDGE)]
    steps = [WayStep(CHIP, 1, width, way) for width in (0, *WIDTHS) for way in WAYS]
    steps += [WayStep(CHIP, CHUNK, WIDTHS[-1], way) for way in (BYTES, EDGE)]
    areas = [unit_of(chip, int4) for chip in (UNITS if full else UNITS[:2]) for int4 in (False, True)]
    return [*texts, *steps, *areas]


def texts(rows: Rows) -> Table:
    """What is said, and what it takes."""
    columns: dict[str, Callable[[tuple[WayText, TextRow]], str]] = {
        "weights": lambda each: each[0].way,
        "text": lambda each: f"`{each[1].text!r}`",
        "float model": lambda each: f"`{each[1].float_text!r}`",
        "agreement>": lambda each: share(each[1].agreement),
        "perplexity>": lambda each: f"{each[1].perplexity:.3f}",
        "in float>": lambda each: f"{each[1].float_perplexity:.3f}",
        "prefill, cycles a token>": lambda each: count(each[1].prefill.cycles / each[1].prefill.tokens),
        "decode, cycles a token>": lambda each: count(each[1].decode.cycles / each[1].decode.tokens),
        "DRAM bytes a token>": lambda each: count(each[1].decode.dram_bytes / each[1].decode.tokens),
        "µJ a token>": lambda each: f"{each[1].decode.microjoules / each[1].decode.tokens:,.1f}",
        "bytes compared>": lambda each: count(each[1].compared),
        "wrong>": lambda each: count(each[1].wrong),
    }
    return table(
        f"The model that ships on the RTL of {CHIP}", columns, rows.pairs(WayText), lambda each: bool(each[1].reasons)
    )


def steps(rows: Rows) -> Table:
    """Single steps, by width and tokens."""

    def gain(each: tuple[WayStep, StepRow]) -> str:
        point = each[0]
        before = rows.get(WayStep(point.chip, point.tokens, point.width, BYTES))
        return f"{before.cycles / each[1].cycles:.2f}" if before and point.way != BYTES else DASH

    columns: dict[str, Callable[[tuple[WayStep, StepRow]], str]] = {
        "width>": lambda each: str(each[0].width or 128),
        "tokens>": lambda each: str(each[0].tokens),
        "weights": lambda each: each[0].way,
        "cycles>": lambda each: count(each[1].cycles),
        "times as quick>": gain,
        "DRAM bytes>": lambda each: count(each[1].dram_bytes),
        "of them weights>": lambda each: count(each[1].weights),
        "weights and cache, of DRAM>": lambda each: share(bandwidth(each)),
        "DRAM busy>": lambda each: count(each[1].busy["dram"]),
        "arrays busy>": lambda each: count(each[1].busy["compute"]),
        "vector units busy>": lambda each: count(each[1].busy["vector"]),
    }
    return table(
        "Steps in the timeline model (of other widths: drawn weights, two layers)", columns, rows.pairs(WayStep)
    )


def areas(rows: Rows) -> Table:
    """What the matrix unit pays."""
    pairs = [(chip, rows.get(unit_of(chip, False)), rows.get(unit_of(chip, True))) for chip in UNITS]
    some: list[tuple[str, Area, Area]] = [(chip, one, own) for chip, one, own in pairs if one and own]

    def called(chip: str) -> str:
        config = unit_of(chip, False).config
        return f"{config.rows} x {config.cols} PEs, {config.lanes} lanes"

    columns: dict[str, Callable[[tuple[str, Area, Area]], str]] = {
        "matrix unit": lambda each: called(each[0]),
        "cells without>": lambda each: count(each[1].cells),
        "cells with>": lambda each: count(each[2].cells),
        "more>": lambda each: share(each[2].cells / each[1].cells - 1, sign="+"),
        "flip-flops more>": lambda each: f"{each[2].flip_flops - each[1].flip_flops:+,}",
    }
    return table("Area (Yosys `synth`, generic cells, without memories)", columns, some)


def wrong(rows: Rows) -> list[str]:
    """Wrong bytes and cycles."""
    return [f"{point.name}: {why}" for point, row in rows.pairs(WayText) for why in row.reasons]


def _quicker(tokens: int, width: int) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        one, other = (rows.get(WayStep(CHIP, tokens, width, way)) for way in (BYTES, EDGE))
        return one.cycles / other.cycles if one and other else None

    return value


def _perplexity(rows: Rows) -> float | None:
    one, other = (rows.get(WayText(CHIP, True, way)) for way in (BYTES, EDGE))
    return 100 * (other.perplexity / one.perplexity - 1) if one and other else None


def _more(chip: str) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        one, own = rows.get(unit_of(chip, False)), rows.get(unit_of(chip, True))
        return 100 * (own.cells / one.cells - 1) if one and own else None

    return value


STUDY = Study(
    name="int4",
    title="Weights of four bits",
    question="What do weights of four bits with a scale for each group bring to a language model?",
    answer="Decode is {{ decode }} times as quick, with a model of width 640 {{ wide }} times, for {{ perplexity }} of "
    "perplexity and {{ area }} cells of an 8 x 8 matrix unit; {{ wrong }} of {{ bytes }} bytes are wrong.",
    about=prose(__file__),
    points=points,
    tables=(texts, steps, areas),
    figures=(
        Figure("decode", "decode, times as quick", _quicker(1, 0), "{:.2f}"),
        Figure("wide", "the same with width 640", _quicker(1, WIDTHS[-1]), "{:.2f}", Bar("at least", GAINED)),
        Figure("chunk", f"a chunk of {CHUNK} tokens with width 640", _quicker(CHUNK, WIDTHS[-1]), "{:.2f}"),
        Figure("perplexity", "perplexity more", _perplexity, "{:+.1f} %", Bar("at most", LOST)),
        Figure("area", "cells more, 8 x 8 PEs", _more("quad8"), "{:+.1f} %"),
        total("bytes", "bytes compared", "compared", WayText),
        total("wrong", "wrong bytes", "wrong", WayText, none=True),
    ),
    checks=wrong,
)  # fmt: skip
