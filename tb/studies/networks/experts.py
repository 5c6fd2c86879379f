"""A language model with experts: what they cost, how choices that are skewed change it, and what the host's part is."""

from __future__ import annotations

from collections.abc import Callable

from meshloom.hw.spec.config import load as load_chip

from ...results.language import PhaseFigures
from ...runs.language.host import least_wait
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count, share, table
from .experts_points import ALIKE, CHUNK, CutPoint, CutRow, SkewPoint, SkewRow, TextPoint, TextRow

CHIP, CHIPS = "quad16", ("quad16", "quad32")
#: Exponents of Zipf's law by which choices are drawn; tokens of a step; widths of models (0: the one that ships).
SKEWS, STEPS, WIDTH = (0.0, 1.0, 2.0, ALIKE), (4, CHUNK, 64), 128

Text = tuple[TextPoint, TextRow]
Skew = tuple[SkewPoint, SkewRow]
Cut = tuple[CutPoint, CutRow]


def points(full: bool) -> list[TextPoint | SkewPoint | CutPoint]:
    """Quick: the text, chunks, and the wider model on one chip."""
    texts = [TextPoint(chip) for chip in (CHIPS if full else CHIPS[:1])]
    return [*texts, *_skews(full), *(CutPoint(CHIP, tokens, width) for tokens in (1, CHUNK) for width in (0, WIDTH))]


def _skews(full: bool) -> list[SkewPoint]:
    rtl = [SkewPoint(CHIP, CHUNK, skew, rtl=True) for skew in (SKEWS[0], ALIKE)]
    small = [SkewPoint(CHIP, tokens, skew) for tokens in (STEPS if full else (CHUNK,)) for skew in SKEWS]
    return [*small, *(SkewPoint(CHIP, CHUNK, skew, WIDTH) for skew in SKEWS), *rtl]


def phases(rows: Rows) -> Table:
    """Prefill and decode of the text, per token."""
    texts = [(point, rows[point]) for chip in CHIPS if (point := TextPoint(chip)) in rows]
    both = [(text, name, getattr(text[1], name)) for text in texts for name in ("prefill", "decode")]
    columns: dict[str, Callable[[tuple[Text, str, PhaseFigures]], str]] = {
        "chip": lambda each: each[0][0].chip,
        "phase": lambda each: each[1],
        "steps>": lambda each: str(each[2].steps),
        "tokens>": lambda each: str(each[2].tokens),
        "cycles a token>": lambda each: count(_cycles(each[2]) / each[2].tokens),
        "in experts' programs>": lambda each: share(each[2].expert_cycles / _cycles(each[2])),
        "DRAM bytes a token>": lambda each: count(each[2].dram_bytes / each[2].tokens),
        "of experts>": lambda each: count(each[2].expert_bytes / each[2].tokens),
        "host bytes a step>": lambda each: count((each[2].host_bytes or 0) / each[2].steps),
        "round trips a step>": lambda each: f"{each[2].round_trips / each[2].steps:.0f}",
        "their cycles, besides>": lambda each: share(_waits(*each[0], each[2]) / _cycles(each[2])),
        "error>": lambda each: share(each[2].model_cycles / _cycles(each[2]) - 1, 2, "+"),
    }
    return table("Prefill and decode of a text", columns, both, lambda each: bool(each[0][1].reasons))


def _cycles(figures: PhaseFigures) -> int:
    return figures.model_cycles if figures.rtl_cycles is None else figures.rtl_cycles


def _waits(_point: TextPoint, row: TextRow, figures: PhaseFigures) -> int:
    return figures.round_trips * row.experts.round_trip_cycles


def texts(rows: Rows) -> list[Table]:
    """What was generated, and how often each expert was chosen."""
    some = [(point, rows[point]) for chip in CHIPS if (point := TextPoint(chip)) in rows]
    columns: dict[str, Callable[[Text], str]] = {
        "chip": lambda each: each[0].chip,
        "text": lambda each: f"`{each[1].text!r}`",
        "float model": lambda each: f"`{each[1].float_text!r}`",
        "agreement>": lambda each: share(each[1].agreement),
        "perplexity>": lambda each: f"{each[1].perplexity:.3f}",
        "in float>": lambda each: f"{each[1].float_perplexity:.3f}",
        "bytes compared>": lambda each: count(each[1].compared),
        "wrong>": lambda each: count(each[1].wrong),
        "CPU s>": lambda each: f"{each[1].seconds:.1f}",
    }
    layers = [
        (point.chip, layer, row.experts.choices[at], row.experts.fetched[at], row.experts.busiest[at])
        for point, row in some[:1]
        for at, layer in enumerate(row.experts.layers)
    ]
    chosen: dict[str, Callable[[tuple[str, int, tuple[int, ...], tuple[int, ...], float]], str]] = {
        "layer>": lambda each: str(each[1]),
        "tokens of each expert": lambda each: ", ".join(map(str, each[2])),
        "times that it was read": lambda each: ", ".join(map(str, each[3])),
        "busiest over the mean>": lambda each: f"{each[4]:.2f}",
    }
    return [
        table("The text", columns, some, lambda each: bool(each[1].reasons)),
        table(f"How often each expert was chosen, prefill and decode on {CHIP}", chosen, layers),
    ]


def skews(rows: Rows) -> Table:
    """Steps from balanced to skewed."""
    order = [point for point in _skews(True) if point in rows]
    columns: dict[str, Callable[[Skew], str]] = {
        "width>": lambda each: str(each[0].width or 64),
        "by": lambda each: "RTL" if each[0].rtl else "model",
        "tokens>": lambda each: str(each[0].tokens),
        "skew": lambda each: "all alike" if each[0].skew == ALIKE else f"{each[0].skew:g}",
        "experts a program>": lambda each: f"{each[1].experts:.1f}",
        "busiest over the mean>": lambda each: f"{each[1].busiest:.2f}",
        "cycles a token>": lambda each: count(each[1].cycles / each[0].tokens),
        "in experts' programs>": lambda each: share(each[1].expert_cycles / each[1].cycles),
        "DRAM bytes a token>": lambda each: count(each[1].dram_bytes / each[0].tokens),
        "of experts>": lambda each: count(each[1].expert_bytes / each[0].tokens),
    }
    return table(
        f"From balanced to skewed: steps on {CHIP}", columns, [(point, rows[point]) for point in order],
        lambda each: bool(each[1].reasons),
    )  # fmt: skip


def cuts(rows: Rows) -> Table:
    """What the host's choice costs, and what it saves."""
    order = [point for point in points(True) if isinstance(point, CutPoint) and point in rows]
    wait = least_wait(load_chip(CHIP))
    columns: dict[str, Callable[[Cut], str]] = {
        "width>": lambda each: str(each[0].width or 64),
        "tokens>": lambda each: str(each[0].tokens),
        "one program>": lambda each: count(each[1].whole),
        "programs>": lambda each: str(each[1].programs),
        "cycles>": lambda each: count(each[1].cut),
        "with round trips>": lambda each: count(each[1].cut + wait * (each[1].programs // 2)),
        "all experts read>": lambda each: count(each[1].every),
        "DRAM bytes>": lambda each: count(each[1].cut_bytes),
        "all experts read: bytes>": lambda each: count(each[1].every_bytes),
    }
    return table("What the host's choice costs, and what it saves", columns, [(each, rows[each]) for each in order])


def wrong(rows: Rows) -> list[str]:
    """Wrong bytes and cycles."""
    pairs = [pair for kind in (TextPoint, SkewPoint) for pair in rows.pairs(kind)]
    return [f"{point.name}: {why}" for point, row in pairs for why in row.reasons]


def _text(value: Callable[[TextRow], float]) -> Callable[[Rows], float | None]:
    point = TextPoint(CHIP)
    return lambda rows: value(rows[point]) if point in rows else None


def _less(field: str, width: int = 0) -> Callable[[Rows], float | None]:
    """By how many percent a field is lower if all tokens choose alike than if choices are balanced."""
    even, alike = SkewPoint(CHIP, CHUNK, SKEWS[0], width), SkewPoint(CHIP, CHUNK, ALIKE, width)
    return lambda rows: (
        100 * (1 - getattr(rows[alike], field) / getattr(rows[even], field)) if even in rows and alike in rows else None
    )


def _sum(field: str) -> Callable[[Rows], float]:
    """The sum of a field over all that ran on the RTL."""
    return lambda rows: sum(getattr(row, field) for kind in (TextPoint, SkewPoint) for _, row in rows.pairs(kind))


def _cut(value: Callable[[CutRow], float]) -> Callable[[Rows], float | None]:
    point = CutPoint(CHIP, 1)
    return lambda rows: value(rows[point]) if point in rows else None


STUDY = Study(
    name="experts",
    title="A language model with experts on the chip",
    question="What does a mixture of experts cost, whose experts the host chooses between programs, and how much does "
    "it matter how even the choices are?",
    answer="On quad16 a token of decode takes {{ decode }} cycles, {{ inside }} of them in experts' programs; a chunk "
    "of 16 tokens that all choose alike takes {{ alike }} fewer cycles than a balanced one and reads {{ alike_bytes }} "
    "fewer bytes; {{ wrong }} of {{ bytes }} bytes are wrong.",
    about=prose(__file__),
    points=points,
    tables=(phases, texts, skews, cuts),
    figures=(
        Figure("decode", "cycles of a token of decode", _text(lambda row: _cycles(row.decode) / row.decode.tokens),
               "{:,.0f}"),
        Figure("inside", "decode: in experts' programs",
               _text(lambda row: 100 * row.decode.expert_cycles / _cycles(row.decode)), "{:.1f} %"),
        Figure("alike", "16 tokens that choose alike: fewer cycles than balanced ones", _less("cycles"), "{:.1f} %"),
        Figure("alike_bytes", "the same: fewer DRAM bytes", _less("dram_bytes"), "{:.1f} %"),
        Figure("wide_alike", "the same of a model of width 128: fewer cycles", _less("cycles", WIDTH), "{:.1f} %"),
        Figure("cut", "decode: more cycles than one program would take, were the choice known before",
               _cut(lambda row: 100 * (row.cut / row.whole - 1)), "{:.1f} %"),
        Figure("demand", "decode: fewer cycles than with all experts read",
               _cut(lambda row: 100 * (1 - row.cut / row.every)), "{:.1f} %"),
        Figure("agreement", "tokens that the float model would have taken", _text(lambda row: 100 * row.agreement),
               "{:.1f} %"),
        Figure("bytes", "bytes compared", _sum("compared"), "{:,.0f}"),
        Figure("wrong", "wrong bytes", _sum("wrong"), "{:,.0f}", Bar("exactly", 0)),
    ),
    checks=wrong,
)  # fmt: skip
