"""How far closed forms can be trusted: random layers on five chips, counted as tools count them, against the RTL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import numpy as np

from meshloom.sched.workload.catalog import find

from ...report.plots import save_plot
from ...runs import runner
from ...runs.options import RunOptions
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows, StudyError
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import DASH, Table, table
from ..points.runs import RunPoint, chip_of
from ..tools.scale_sim import PINS, drive, install
from .closed_forms import FORMS
from .model_layers import EFFORT, GROUPS, Layer, counted, names

#: One core and several, small and large arrays, two to nine cores, with one DRAM channel and more.
CHIPS = ("tiny", "mono16", "quad8", "quad16", "lp9")
#: Chunks of each chip, of which the first one runs on the RTL, too; layers that the full study is to have.
CHUNKS, LAYERS, RTL_LAYERS = 10, 2000, 200
#: The chip with one array on which SCALE-Sim itself counts, too.
PACKAGE_CHIP = "mono16"
#: Chips of the quick study, a chunk of each; the first on the RTL, beside SCALE-Sim.
QUICK = ("mono16", "tiny", "quad8")
MODEL = "our timeline model"
PICTURE = "models.svg"
_QUANTILES = (1, 5, 25, 50, 75, 95, 99)


@dataclass(frozen=True)
class CountedChunk(Point):
    """Layers of a chunk by every form and in the timeline model; those that do not fit the chip are left out."""

    chip: str
    number: int
    row: ClassVar[Any] = tuple[Layer, ...]

    @property
    def name(self) -> str:
        return f"chunk {self.number + 1} of {self.chip}"

    @property
    def work(self) -> float:
        return 40.0

    def inputs(self) -> Inputs:
        return Inputs(("tb.studies.networks.model_layers",), (("chip", chip_of(self.chip).digest),))

    def measure(self, report: Report) -> tuple[Layer, ...]:
        report("counting")
        return counted(chip_of(self.chip), self.number)


@dataclass(frozen=True)
class SimulatedChunk(Point):
    """The same layers on the RTL, every byte of which has to be right: cycles by their names."""

    chip: str
    number: int
    row: ClassVar[Any] = dict[str, int]

    @property
    def name(self) -> str:
        return f"chunk {self.number + 1} of {self.chip} on the RTL"

    @property
    def work(self) -> float:
        return 60.0

    def inputs(self) -> Inputs:
        run = RunPoint(self.chip, "a layer").inputs()
        return Inputs((*run.modules, "tb.studies.networks.model_layers"), run.more)

    def measure(self, report: Report) -> dict[str, int]:
        """Raises StudyError for a layer with wrong bytes."""
        chip = chip_of(self.chip)
        report("running layers")
        rows = runner.run(
            names(chip, self.number), chip, f"loop_order:effort={EFFORT}", lambda event: None, RunOptions(here=True)
        )
        rows = [row for row in rows if row.error is None or row.error.kind != "DoesNotFit"]
        for row in rows:
            if not row.rtl_cycles or row.mismatches or not row.bytes_checked:
                raise StudyError(f"{row.workload}: {row.reason}")
        return {row.workload: row.rtl_cycles for row in rows}


@dataclass(frozen=True)
class PackageChunk(Point):
    """The same layers on SCALE-Sim's own program: cycles by their names."""

    chip: str
    number: int
    row: ClassVar[Any] = dict[str, int]

    @property
    def name(self) -> str:
        return f"chunk {self.number + 1} of {self.chip} on SCALE-Sim"

    @property
    def work(self) -> float:
        return 40.0

    def inputs(self) -> Inputs:
        more = (("chip", chip_of(self.chip).digest), ("tools", " ".join(PINS)))
        return Inputs(("tb.studies.networks.model_layers",), more)

    def measure(self, report: Report) -> dict[str, int]:
        """Raises StudyError where SCALE-Sim cannot be installed."""
        chip = chip_of(self.chip)
        python = install(report)
        report("running SCALE-Sim")
        shapes = [find(name)[0].shape for name in names(chip, self.number)]
        messages = drive(python, chip.rows, chip.cols, shapes)
        return {message["name"]: message["cycles"] for message in messages if "versions" not in message}


def points(full: bool) -> list[Point]:
    """Quick: a chunk of three chips, that of one on the RTL and on SCALE-Sim."""
    chips, chunks = (CHIPS, CHUNKS) if full else (QUICK, 1)
    some: list[Point] = [CountedChunk(chip, number) for chip in chips for number in range(chunks)]
    some += [SimulatedChunk(chip, 0) for chip in (CHIPS if full else QUICK[:1])]
    return [*some, PackageChunk(PACKAGE_CHIP, 0)]


@dataclass(frozen=True)
class Judged:
    """A layer and what it took: on the RTL if it ran there (`rtl`), otherwise in the timeline model."""

    chip: str
    layer: Layer
    cycles: int
    rtl: bool

    def error(self, form: str) -> float:
        """Signed, in percent."""
        return 100 * ((self.layer.cycles if form == MODEL else self.layer.counted[form]) / self.cycles - 1)


def judged(rows: Rows) -> list[Judged]:
    """Every layer that is known."""
    on_rtl = {(point.chip, point.number): row for point, row in rows.pairs(SimulatedChunk)}
    layers: list[Judged] = []
    for point, some in rows.pairs(CountedChunk):
        cycles = on_rtl.get((point.chip, point.number), {})
        layers += [Judged(point.chip, each, cycles.get(each.name, each.cycles), each.name in cycles) for each in some]
    return layers


def forms() -> list[str]:
    """Their names."""
    return [*(form.name for form in FORMS), MODEL]


def _sizes(layers: Sequence[Judged], form: str) -> list[float]:
    return sorted(abs(each.error(form)) for each in layers)


def errors(rows: Rows) -> Table:
    """How large they are."""
    layers = judged(rows)
    ran = [each for each in layers if each.rtl]

    def quantile(form: str, share: float) -> float:
        return float(np.percentile(_sizes(layers, form), share))

    columns: dict[str, Callable[[str], str]] = {
        "form": lambda form: form,
        "layers>": lambda form: f"{len(layers):,}",
        "bias, %>": lambda form: f"{fmean(each.error(form) for each in layers):+.1f}",
        "mean error, %>": lambda form: f"{fmean(_sizes(layers, form)):.1f}",
        "median>": lambda form: f"{quantile(form, 50):.1f}",
        "95 % are below>": lambda form: f"{quantile(form, 95):.1f}",
        "worst>": lambda form: f"{_sizes(layers, form)[-1]:.1f}",
        "on the RTL>": lambda form: f"{len(ran):,}",
        "mean error there, %>": lambda form: f"{fmean(_sizes(ran, form)):.2f}" if ran else DASH,
    }
    return table("Errors", columns, forms() if layers else [])


def quantiles(rows: Rows) -> Table:
    """Of the signed error."""
    layers = judged(rows)
    values = {form: np.percentile([each.error(form) for each in layers], _QUANTILES) for form in forms() if layers}
    columns: dict[str, Callable[[str], str]] = {
        "form": lambda form: form,
        **{f"{each} %>": lambda form, at=at: f"{values[form][at]:+.1f}" for at, each in enumerate(_QUANTILES)},
    }
    return table("Quantiles of the signed error, in %", columns, values)


def by_chip(rows: Rows) -> Table:
    """The mean error of each chip."""
    layers = judged(rows)
    chips = [chip for chip in CHIPS if any(each.chip == chip for each in layers)]
    columns: dict[str, Callable[[str], str]] = {
        "form": lambda form: form,
        **{
            f"{chip}>": lambda form, chip=chip: f"{fmean(_sizes([x for x in layers if x.chip == chip], form)):.1f}"
            for chip in chips
        },
    }
    return table("Mean error by chip, in %", columns, forms() if layers else [])


def causes(rows: Rows) -> Table:
    """What of the measured cycles each form has no term for, by the waterfall of the run, and what remains of its
    error: what it counts otherwise than it happens."""
    layers = judged(rows)
    shares = {group: [100 * each.layer.causes[group] / each.layer.cycles for each in layers] for group in GROUPS}
    columns = ("form", "bias, %>", *(f"{group}>" for group in GROUPS), "counted otherwise>", "its mean size>")
    cells: list[tuple[str, ...]] = []
    if layers:
        cells = [("share of the measured cycles", "", *(f"{fmean(each):.1f}" for each in shares.values()), "", "")]
    for form in FORMS if layers else ():
        absent = [group for group in GROUPS if group not in form.terms]
        bias = fmean(each.error(form.name) for each in layers)
        rest = [each.error(form.name) + sum(shares[group][at] for group in absent) for at, each in enumerate(layers)]
        terms = (f"{-fmean(shares[group]):.1f}" if group in absent else "" for group in GROUPS)
        cells.append((form.name, f"{bias:+.1f}", *terms, f"{fmean(rest):+.1f}", f"{fmean(map(abs, rest)):.1f}"))
    return Table("Where the errors come from: causes without a term, in % of the cycles", columns, cells)


def package(rows: Rows) -> Table:
    """SCALE-Sim's own program beside its formula."""
    cycles = {name: each for _, some in rows.pairs(PackageChunk) for name, each in some.items()}
    layers = [each for each in judged(rows) if each.rtl and each.chip == PACKAGE_CHIP and each.layer.name in cycles]
    counts = {
        "its formula": [each.layer.counted[FORMS[0].name] for each in layers],
        "its program": [float(cycles[each.layer.name]) for each in layers],
    }
    off = {
        what: [100 * (value / each.cycles - 1) for value, each in zip(some, layers, strict=True)]
        for what, some in counts.items()
        if layers
    }
    columns: dict[str, Callable[[str], str]] = {
        "SCALE-Sim": lambda what: what,
        "layers>": lambda what: str(len(off[what])),
        "bias, %>": lambda what: f"{fmean(off[what]):+.1f}",
        "mean error, %>": lambda what: f"{fmean(map(abs, off[what])):.1f}",
        "worst, %>": lambda what: f"{max(map(abs, off[what])):.1f}",
    }
    return table(f"SCALE-Sim v3's own program, on the RTL's layers of {PACKAGE_CHIP}", columns, off)


def wrong(rows: Rows) -> list[str]:
    """Layers of which the model is not the RTL, and a full study with too few layers."""
    layers = judged(rows)
    reasons = [
        f"{each.chip}, {each.layer.name}: {each.cycles:,} cycles on the RTL, {each.layer.cycles:,} in the model"
        for each in layers
        if each.cycles != each.layer.cycles
    ]
    if set(points(True)) <= set(rows):
        on_rtl = sum(each.rtl for each in layers)
        for number, least, where in ((len(layers), LAYERS, "in all"), (on_rtl, RTL_LAYERS, "on the RTL")):
            reasons += [f"{number:,} layers {where}, not {least:,} or more"] if number < least else []
    return reasons


def draw(rows: Rows, path: Path) -> None:
    """Writes the picture: of each form the share of layers up to each signed error; equal figures give equal bytes."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    layers = judged(rows)
    settings: Any = {"svg.hashsalt": "meshloom", "font.size": 8, "svg.fonttype": "none"}
    with mpl.rc_context(settings):  # pyright: ignore[reportUnknownMemberType]  (names of settings are open)
        figure, axes = plt.subplots(figsize=(8, 4.5))
        axis: Any = axes
        shares = np.linspace(0, 100, 201)
        for form in forms() if layers else ():
            axis.plot(np.percentile([each.error(form) for each in layers], shares), shares, label=form, linewidth=1.2)
        axis.set(xlim=(-100, 200), xlabel="signed error, %", ylabel="share of layers, %")
        axis.axvline(0, color="black", linewidth=0.5)
        axis.grid(alpha=0.3)
        axis.legend(loc="lower right")
        figure.tight_layout()
        save_plot(figure, path)


def _mean(form: str) -> Callable[[Rows], float | None]:
    return lambda rows: fmean(_sizes(layers, form)) if (layers := judged(rows)) else None


def _off(rows: Rows) -> float | None:
    sizes = [abs(each.error(MODEL)) for each in judged(rows) if each.rtl]
    return max(sizes, default=None)


STUDY = Study(
    name="models",
    title="How far can a closed form be trusted?",
    question="How far are closed forms, as tools for accelerators count, from the cycles of a layer on the RTL?",
    answer="Over {{ layers }} random layers the mean error is {{ scale_sim }} for SCALE-Sim's formula, {{ timeloop }} "
    "for Timeloop's style, {{ zigzag }} for ZigZag's and {{ estimate }} for our estimate; the timeline model is at "
    "most {{ off }} off.",
    about=prose(__file__),
    points=points,
    tables=(errors, quantiles, by_chip, causes, package),
    figures=(
        Figure("layers", "random layers", lambda rows: len(judged(rows)), "{:,.0f}"),
        Figure("on_rtl", "of them on the RTL", lambda rows: sum(each.rtl for each in judged(rows)), "{:,.0f}"),
        *(
            Figure(key, f"mean error of {name}", _mean(name), "{:.1f} %")
            for key, name in (
                ("scale_sim", "SCALE-Sim's formula"),
                ("roofline", "roofline"),
                ("printed", "Algorithm 1, as printed"),
                ("mended", "Algorithm 1, mended"),
                ("timeloop", "Timeloop's style"),
                ("zigzag", "ZigZag's style"),
                ("estimate", "our estimate"),
            )
        ),
        Figure("off", "worst error of the timeline model on the RTL", _off, "{:.2f} %", Bar("exactly", 0)),
    ),
    checks=wrong,
    pictures={PICTURE: draw},
)
