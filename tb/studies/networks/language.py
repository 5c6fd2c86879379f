"""A small language model on four chips: prefill and decode, their roofs, and what is missing to them."""

from __future__ import annotations

from collections.abc import Callable

from ...results.legend import GROUPS
from ..engine.figures import total
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import DASH, Table, count, share, table
from .language_points import CHUNK, Phase, StepPoint, StepRow, TextPoint, TextRow, described

#: The chip of the regression and of most tables; all chips; those that run on the RTL in the quick study, too.
CHIP, CHIPS, ON_RTL = "quad16", ("quad16", "quad32", "lp9", "server1"), ("quad16", "quad32")
#: The clock at which milliseconds are stated, in MHz.
CLOCK = 500
#: Tokens of a step: decode, chunks of prefill, and as many as the context lets a step read.
STEPS = (1, CHUNK, 64, 127)
#: Widths of models with drawn weights, and tokens of their prefill.
WIDTHS, READ = (256, 640), 128
#: Bars, in percent: bytes of weights and cache over what DRAM could move; PE cycles of products that are useful.
DECODE, PREFILL = 92.0, 85.0

Text = tuple[TextPoint, TextRow]
Step = tuple[StepPoint, StepRow]


def points(full: bool) -> list[TextPoint | StepPoint]:
    """Quick: texts on the RTL of the quad chips and in the model of the others, and shorter chunks on all but one."""
    texts = [TextPoint(chip, full or chip in ON_RTL) for chip in CHIPS]
    counts = {chip: STEPS if full else (STEPS if chip == CHIP else STEPS[:2]) for chip in CHIPS}
    steps = [StepPoint(chip, tokens) for chip, some in counts.items() for tokens in some]
    widths = [StepPoint(CHIP, tokens, width) for width in WIDTHS for tokens in (1, READ)]
    return [*texts, *steps, *widths]


def _texts(rows: Rows) -> list[Text]:
    """Of each chip its text: on the RTL, if that is there."""
    either = [[TextPoint(chip, rtl) for rtl in (True, False)] for chip in CHIPS]
    return [(some[0], rows[some[0]]) for each in either if (some := [point for point in each if point in rows])]


def _steps(rows: Rows, wide: bool) -> list[Step]:
    order = [StepPoint(chip, tokens) for chip in CHIPS for tokens in STEPS]
    larger = [StepPoint(CHIP, tokens, width) for width in WIDTHS for tokens in (1, READ)]
    return [(point, rows[point]) for point in (larger if wide else order) if point in rows]


def _clocked(cycles: float) -> str:
    return f"{cycles / CLOCK / 1e3:.4f}"


def phases(rows: Rows) -> Table:
    """Prefill and decode of the text, per token."""
    both = [(text, name, phase) for text in _texts(rows) for name, phase in _phases(text[1])]
    columns: dict[str, Callable[[tuple[Text, str, Phase]], str]] = {
        "chip": lambda each: described(each[0][0].chip),
        "by": lambda each: "RTL" if each[0][0].rtl else "model",
        "phase": lambda each: each[1],
        "steps>": lambda each: str(each[2].steps),
        "tokens>": lambda each: str(each[2].tokens),
        "cycles a token>": lambda each: count(each[2].cycles / each[2].tokens),
        f"ms at {CLOCK} MHz>": lambda each: _clocked(each[2].cycles / each[2].tokens),
        "roof>": lambda each: share(each[2].least / each[2].cycles),
        "DRAM bytes a token>": lambda each: count(each[2].dram_bytes / each[2].tokens),
        "host bytes a step>": lambda each: count(each[2].host_bytes / each[2].steps) if each[0][0].rtl else DASH,
        "µJ a token>": lambda each: f"{each[2].microjoules / each[2].tokens:,.1f}",
        "error>": lambda each: share(each[2].model_cycles / each[2].cycles - 1, 2, "+") if each[0][0].rtl else DASH,
    }
    return table("Prefill and decode of a text", columns, both, lambda each: bool(each[0][1].reasons))


def _phases(row: TextRow) -> tuple[tuple[str, Phase], ...]:
    return ("prefill", row.prefill), ("decode", row.decode)


def texts(rows: Rows) -> Table:
    """What was generated, and how near it is to the float model."""
    columns: dict[str, Callable[[Text], str]] = {
        "chip": lambda each: described(each[0].chip),
        "text": lambda each: f"`{each[1].text!r}`",
        "float model": lambda each: f"`{each[1].float_text!r}`",
        "agreement>": lambda each: share(each[1].agreement),
        "perplexity>": lambda each: f"{each[1].perplexity:.3f}",
        "in float>": lambda each: f"{each[1].float_perplexity:.3f}",
        "bytes compared>": lambda each: count(each[1].compared) if each[0].rtl else DASH,
        "wrong>": lambda each: count(each[1].wrong) if each[0].rtl else DASH,
        "CPU s>": lambda each: f"{each[1].seconds:.1f}" if each[0].rtl else DASH,
    }
    return table("The text", columns, _texts(rows), lambda each: bool(each[1].reasons))


def bandwidth(each: Step) -> float:
    """Weights and cache, as a share of what all channels could move in the step."""
    point, row = each
    chip = point.config
    return (row.weights + row.cache) / (chip.dram.bytes_per_cycle * len(chip.drams)) / row.cycles


def useful(each: Step) -> float:
    """Products with weights, as a share of the PE cycles in which any of them was computed."""
    point, row = each
    chip = point.config
    return row.product_macs / (chip.rows * chip.cols * len(chip.cores)) / max(1, row.product_cycles)


def _step_columns() -> dict[str, Callable[[Step], str]]:
    return {
        "tokens>": lambda each: str(each[0].tokens),
        "cycles>": lambda each: count(each[1].cycles),
        "cycles a token>": lambda each: count(each[1].cycles / each[0].tokens),
        "DRAM bytes>": lambda each: count(each[1].dram_bytes),
        "weights and cache>": lambda each: count(each[1].weights + each[1].cache),
        "of DRAM>": lambda each: share(bandwidth(each)),
        "products, PEs>": lambda each: share(useful(each)),
        "DRAM busy>": lambda each: count(each[1].busy["dram"]),
        "arrays busy>": lambda each: count(each[1].busy["compute"]),
        "vector units busy>": lambda each: count(each[1].busy["vector"]),
        "instructions>": lambda each: count(each[1].instructions),
        "of them new a step>": lambda each: count(each[1].changing),
    }


def steps(rows: Rows) -> list[Table]:
    """Single steps, and where their PE cycles went."""
    chip: dict[str, Callable[[Step], str]] = {"chip": lambda each: described(each[0].chip)}
    causes: dict[str, Callable[[Step], str]] = {
        f"{group}>": lambda each, group=group: f"{each[1].shares[group]:.1f}" for group in GROUPS
    }
    tokens: dict[str, Callable[[Step], str]] = {"tokens>": lambda each: str(each[0].tokens)}
    width: dict[str, Callable[[Step], str]] = {"width>": lambda each: str(each[0].width)}
    small, large = _steps(rows, False), _steps(rows, True)
    return [
        table("Steps of the model that ships", chip | _step_columns(), small),
        table("Where the PE cycles of these steps went, %", chip | tokens | causes, small),
        table(f"Steps of wider models with drawn weights on {CHIP}", width | _step_columns(), large),
    ]


def wrong(rows: Rows) -> list[str]:
    """Wrong bytes and cycles; texts that are another on another chip."""
    some = _texts(rows)
    reasons = [f"{point.name}: {why}" for point, row in some for why in row.reasons]
    if len({row.text for _, row in some}) > 1:
        reasons.append("chips do not say the same text")
    return reasons


def _of(point: StepPoint, value: Callable[[Step], float]) -> Callable[[Rows], float | None]:
    return lambda rows: value((point, rows[point])) if point in rows else None


def _text(value: Callable[[TextRow], float]) -> Callable[[Rows], float | None]:
    point = TextPoint(CHIP, True)
    return lambda rows: value(rows[point]) if point in rows else None


def _percent(part: Callable[[Step], float]) -> Callable[[Step], float]:
    return lambda each: 100 * part(each)


STUDY = Study(
    name="language",
    title="A language model on the chip",
    question="What do prefill and decode of a language model take, how far from the roofs, and is the text right?",
    answer="On quad16 a token of decode takes {{ decode }} cycles, at {{ decode_dram }} of what DRAM could bring of "
    "weights and cache (a model of width 640 {{ wide_dram }}); {{ wrong }} of {{ bytes }} bytes are wrong.",
    about=prose(__file__),
    points=points,
    tables=(phases, texts, steps),
    figures=(
        Figure("decode", "cycles of a token of decode", _text(lambda row: row.decode.cycles / row.decode.tokens),
               "{:,.0f}"),
        Figure("prefill", "cycles of a token of prefill", _text(lambda row: row.prefill.cycles / row.prefill.tokens),
               "{:,.0f}"),
        Figure("decode_dram", "decode: weights and cache, of DRAM's bandwidth", _of(StepPoint(CHIP, 1),
               _percent(bandwidth)), "{:.1f} %", Bar("at least", DECODE)),
        Figure("wide_dram", "the same of a model of width 640", _of(StepPoint(CHIP, 1, WIDTHS[-1]),
               _percent(bandwidth)), "{:.1f} %", Bar("at least", DECODE)),
        Figure("prefill_pes", "127 tokens: useful PE cycles of the products with weights", _of(StepPoint(CHIP, 127),
               _percent(useful)), "{:.1f} %", Bar("at least", PREFILL)),
        Figure("wide_pes", "128 tokens of a model of width 640: the same", _of(StepPoint(CHIP, READ, WIDTHS[-1]),
               _percent(useful)), "{:.1f} %", Bar("at least", PREFILL)),
        Figure("agreement", "tokens that the float model would have taken", _text(lambda row: 100 * row.agreement),
               "{:.1f} %"),
        total("bytes", "bytes compared", "compared", TextPoint),
        total("wrong", "wrong bytes", "wrong", TextPoint, none=True),
    ),
    checks=wrong,
)  # fmt: skip
