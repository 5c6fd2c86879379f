"""How far closed forms can be trusted: random layers on five chips, counted as tools count them, against the RTL."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from meshloom.hw.spec.config import load
from meshloom.sched.workload.catalog import find

from ..build.builder import build
from ..report.plots import save_plot
from ..results.events import OnEvent, RowCount, Stage
from ..runs.workers import workers
from .closed_forms import FORMS
from .interface import BenchmarkError
from .model_layers import GROUPS, Layer, counted, on_rtl
from .results import FOLDER, Result, Sheet
from .scale_sim import drive, install

#: One core and several, small and large arrays, two to nine cores, with one DRAM channel and more.
CHIPS = ("tiny", "mono16", "quad8", "quad16", "lp9")
#: Chunks of each chip, of which the first ones run on the RTL too; layers that are asked for of both.
CHUNKS, RTL_CHUNKS = 10, 1
LAYERS, RTL_LAYERS = 2000, 200
#: The chip with one array on which SCALE-Sim itself is asked, too.
PACKAGE_CHIP = "mono16"
MODEL = "our timeline model"
PLOT = "models.svg"
_QUANTILES = (1, 5, 25, 50, 75, 95, 99)


@dataclass(frozen=True)
class Judged:
    """A layer and what it took: on the RTL if it ran there (`rtl`), otherwise in the timeline model."""

    chip: str
    layer: Layer
    cycles: int
    rtl: bool

    def error(self, form: str) -> float:
        """Signed, in percent."""
        said = self.layer.cycles if form == MODEL else self.layer.counted[form]
        return 100 * (said / self.cycles - 1)


def run(on_progress: OnEvent) -> Result:
    """Counts and runs what is not kept, then compares. Raises BenchmarkError if a layer does not run."""
    cpus = len(os.sched_getaffinity(0))
    on_progress(RowCount(rows=len(CHIPS) * (CHUNKS + RTL_CHUNKS)))
    every: dict[str, list[list[Layer]]] = {chip: [] for chip in CHIPS}
    with workers(cpus) as pool:
        futures = {chip: [pool.submit(counted, chip, number) for number in range(CHUNKS)] for chip in CHIPS}
        for chip, some in futures.items():
            for number, future in enumerate(some):
                on_progress(Stage(workload=chip, what=f"chunk {number + 1} of {CHUNKS} in the model"))
                every[chip].append(pool.result(future, on_progress))
    judged: list[Judged] = []
    for chip, chunks in every.items():
        build(load(chip), "verilator", False, lambda what, chip=chip: on_progress(Stage(workload=chip, what=what)))
        for number, layers in enumerate(chunks):
            if number < RTL_CHUNKS:
                on_progress(Stage(workload=chip, what=f"chunk {number + 1} of {RTL_CHUNKS} on the RTL"))
                took = on_rtl(chip, number, layers, cpus, on_progress)
                judged += [Judged(chip, *both, rtl=True) for both in zip(layers, took, strict=True)]
            else:
                judged += [Judged(chip, layer, layer.cycles, rtl=False) for layer in layers]
    theirs, why = _package([each for each in judged if each.chip == PACKAGE_CHIP and each.rtl], on_progress)
    draw(judged, FOLDER / PLOT)
    return result(judged, theirs, why)


def result(judged: Sequence[Judged], theirs: Mapping[str, int], why: str) -> Result:
    """The tables. `theirs`: SCALE-Sim's own cycles by layer, none if it did not run, for which `why` is the reason."""
    rtl = [each for each in judged if each.rtl]
    failures = [
        f"{each.chip}, {each.layer.name}: {each.cycles:,} cycles on the RTL, {each.layer.cycles:,} in the model"
        for each in rtl
        if each.cycles != each.layer.cycles
    ]
    for count, asked, where in ((len(judged), LAYERS, "in all"), (len(rtl), RTL_LAYERS, "on the RTL")):
        if count < asked:
            failures.append(f"{count:,} layers {where}; {asked:,} are asked for")
    sheets = [_errors(judged), _quantiles(judged), _chips(judged), _causes(judged)]
    remarks = [f"![Signed errors of each form, cumulated]({PLOT})"]
    if theirs:
        sheets.append(
            _theirs([each for each in rtl if each.layer.name in theirs and each.chip == PACKAGE_CHIP], theirs)
        )
    else:
        remarks.append(f"SCALE-Sim's own program is not in the tables: {why}.")
    return Result(
        "models",
        "How far can a closed form be trusted?",
        f"Random layers (half of them matrix products, half convolutions, seeded) on {', '.join(CHIPS)}, by a "
        f"search of `loop_order`. Measured: cycles of the whole run, from the host's start to its end; of {len(rtl):,} "
        f"layers, the first of each chip, on the RTL, with every byte compared; of the others those of the timeline "
        "model, which were the RTL's to the cycle wherever both are known (otherwise the bar is missed). SCALE-Sim's "
        "formula, the roofline and Layer-Puzzle's Algorithm 1 know layer and chip and may choose their mapping; "
        "Timeloop's and ZigZag's styles of counting are reimplemented from their papers and count the schedule that "
        "ran; our estimate is what the search sorts candidates by. Their sources are named in "
        "`tb/benchmarks/closed_forms.py`. Error: (form - measured) / measured; below zero a form is too optimistic.",
        tuple(sheets),
        tuple(remarks),
        tuple(failures),
    )


def _names() -> list[str]:
    return [*(form.name for form in FORMS), MODEL]


def _errors(judged: Sequence[Judged]) -> Sheet:
    rows: list[tuple[str, ...]] = []
    for form in _names():
        errors = [each.error(form) for each in judged]
        sizes = sorted(map(abs, errors))
        ran = [abs(each.error(form)) for each in judged if each.rtl]
        middle, most = np.percentile(sizes, (50, 95))
        rows.append(
            (form, f"{len(errors):,}", f"{fmean(errors):+.1f}", f"{fmean(sizes):.1f}", f"{middle:.1f}", f"{most:.1f}",
             f"{sizes[-1]:.1f}", f"{len(ran):,}", f"{fmean(ran) if ran else 0:.2f}")
        )  # fmt: skip
    columns = (
        "form", "layers>", "bias, %>", "mean error, %>", "median>", "95 % are below>", "worst>", "on the RTL>",
        "mean error there, %>",
    )  # fmt: skip
    return Sheet("Errors", columns, rows)


def _quantiles(judged: Sequence[Judged]) -> Sheet:
    rows = [
        (form, *(f"{value:+.1f}" for value in np.percentile([each.error(form) for each in judged], _QUANTILES)))
        for form in _names()
    ]
    return Sheet("Quantiles of the signed error, in %", ("form", *(f"{each} %>" for each in _QUANTILES)), rows)


def _chips(judged: Sequence[Judged]) -> Sheet:
    some = {chip: [each for each in judged if each.chip == chip] for chip in CHIPS}
    rows = [
        (form, *(f"{fmean(abs(each.error(form)) for each in mine):.1f}" if mine else "-" for mine in some.values()))
        for form in _names()
    ]
    return Sheet("Mean error by chip, in %", ("form", *(f"{chip}>" for chip in CHIPS)), rows)


def _causes(judged: Sequence[Judged]) -> Sheet:
    """What of the measured cycles each form has no term for, by the waterfall of the run, and what remains of its
    error: what it counts otherwise than it happens."""
    shares = {group: [100 * each.layer.causes[group] / each.layer.cycles for each in judged] for group in GROUPS}
    rows = [
        ("share of the measured cycles", "", *(f"{fmean(each):.1f}" for each in shares.values()), "", ""),
    ]
    for form in FORMS:
        missing = [group for group in GROUPS if group not in form.terms]
        cells = [f"{-fmean(shares[group]):.1f}" if group in missing else "" for group in GROUPS]
        bias = fmean(each.error(form.name) for each in judged)
        left_out = [sum(shares[group][number] for group in missing) for number in range(len(judged))]
        rest = [each.error(form.name) + left for each, left in zip(judged, left_out, strict=True)]
        rows.append((form.name, f"{bias:+.1f}", *cells, f"{fmean(rest):+.1f}", f"{fmean(map(abs, rest)):.1f}"))
    columns = ("form", "bias, %>", *(f"{group}>" for group in GROUPS), "counted otherwise>", "its mean size>")
    return Sheet("Where the errors come from: causes without a term, in % of the cycles", columns, rows)


def _theirs(judged: Sequence[Judged], theirs: Mapping[str, int]) -> Sheet:
    formula = FORMS[0].name
    rows: list[tuple[str, ...]] = []
    for what, said in (
        ("its formula", [each.layer.counted[formula] for each in judged]),
        ("its program", [float(theirs[each.layer.name]) for each in judged]),
    ):
        errors = [100 * (value / each.cycles - 1) for value, each in zip(said, judged, strict=True)]
        sizes = list(map(abs, errors))
        rows.append((what, f"{len(errors)}", f"{fmean(errors):+.1f}", f"{fmean(sizes):.1f}", f"{max(sizes):.1f}"))
    columns = ("SCALE-Sim", "layers>", "bias, %>", "mean error, %>", "worst, %>")
    return Sheet(f"SCALE-Sim v3's own program, on the RTL's layers of {PACKAGE_CHIP}", columns, rows)


def _package(judged: Sequence[Judged], on_progress: OnEvent) -> tuple[dict[str, int], str]:
    """Cycles that SCALE-Sim prints, by layer; none, and why, where it cannot be installed."""
    chip = load(PACKAGE_CHIP)
    try:
        python = install(on_progress)
        on_progress(Stage(workload=PACKAGE_CHIP, what="SCALE-Sim"))
        shapes = [find(each.layer.name)[0].shape for each in judged]
        found = drive(python, chip.rows, chip.cols, shapes)
        return {message["name"]: message["cycles"] for message in found if "versions" not in message}, ""
    except BenchmarkError as error:
        return {}, str(error)


def draw(judged: Sequence[Judged], path: Path) -> None:
    """Writes the picture: of each form the share of layers up to each signed error; equal figures give equal bytes."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    settings: Any = {"svg.hashsalt": "meshloom", "font.size": 8, "svg.fonttype": "none"}
    with mpl.rc_context(settings):  # pyright: ignore[reportUnknownMemberType]  (names of settings are open)
        figure, axes = plt.subplots(figsize=(8, 4.5))
        axis: Any = axes
        shares = np.linspace(0, 100, 201)
        for form in _names():
            axis.plot(np.percentile([each.error(form) for each in judged], shares), shares, label=form, linewidth=1.2)
        axis.set(xlim=(-100, 200), xlabel="signed error, %", ylabel="share of layers, %")
        axis.axvline(0, color="black", linewidth=0.5)
        axis.grid(alpha=0.3)
        axis.legend(loc="lower right")
        figure.tight_layout()
        save_plot(figure, path)
