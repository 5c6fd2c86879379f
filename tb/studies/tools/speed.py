"""Simulated cycles per CPU-second of whole chips that run real layers, and of the timeline model."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from meshloom.sched.workload.workload_sets import NETWORKS

from ...build.tools import compiler_version
from ..engine.figures import extreme
from ..engine.point import Point
from ..engine.rows import Rows
from ..engine.study import Figure, Study, prose
from ..engine.tables import Table, count, share, table
from . import idle, relocation, threads
from .builds import chip_of
from .speed_points import (
    PLACED_ON,
    ChipSpeed,
    LayerSpeed,
    PlacingSpeed,
    Plays,
    PlaySpeed,
    RestSpeed,
    ThreadSeconds,
    ThreadSpeed,
)

#: Cycles per CPU-second over those of a plain C++ loop, at least, of a chip whose arrays are busy; with clang.
BARS = {"quad16": 0.2, "quad32": 0.3, "mono128": 0.3, "nine32": 0.2, "twentyfive32": 0.2}
LAYERS = ("conv:56x56x128-128,k3,p1,relu", "resnet50/conv3_2_2")
#: Share of PE cycles from which the bars hold.
BUSY = 0.95
#: Chip, what it is compiled for (the processor at hand, and what most machines of the last ten years have), layers.
CHIPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    *(("quad16", target, LAYERS) for target in ("native", "x86-64-v3", "x86-64-v2")),
    ("quad32", "native", LAYERS),
    ("mono16", "native", LAYERS),
    ("mono128", "native", ("conv:56x56x128-128,k3,p1,relu", "conv:28x28x512-512,k3,p1,relu")),
    ("nine32", "native", ("conv:48x64x128-288,k3,p1,relu",)),
    ("twentyfive32", "native", ("conv:80x64x128-480,k3,p1,relu",)),
)
#: Chips at rest, and their cycles per CPU-second at least.
RESTING, REST = ("quad16", "quad32"), 5e6
#: What others have published: a design, its simulator, cycles a second, and where.
GEM, COREBLOCKS = "https://github.com/NVlabs/GEM/issues/11", "https://github.com/kuznia-rdzeni/coreblocks/pull/1110"
PUBLISHED = (
    ("Gemmini, 16x16 PEs, and Rocket", "Verilator 5.046, 8 threads of 8 Skylake cores", 34_000, GEM),
    ("Gemmini, 16x16 PEs, and Rocket", "Verilator 5.046, 8 threads of a Ryzen 7800X3D", 120_000, GEM),
    ("Gemmini, 16x16 PEs, and Rocket", "GEM on a GPU, an RTX 4080", 20_000, GEM),
    ("Coreblocks, an out-of-order RISC-V core", "Verilator under cocotb", 9_100, COREBLOCKS),
    ("Coreblocks, an out-of-order RISC-V core", "Verilator from C++", 41_000, COREBLOCKS),
)
#: Chips that several threads simulate, too.
SHARED = ("quad32", "mono128", "nine32", "twentyfive32")
#: What the model plays as Python and compiled; the last chip's virtual channels are played flit by flit.
PLAYED = (
    ("arch5", "resnet50/conv3_1_1"),
    ("arch5", "resnet50/conv3_2_2"),
    ("quad16", "resnet50/conv3_1_1"),
    ("quad16", "conv:56x56x128-128,k3,p1,relu"),
    ("nine8", "resnet50/conv3_1_1"),
)
#: Chips of which compiled code has to be so many times as fast.
COMPILED_ON, COMPILED = ("arch5", "quad16"), 5.0


def points(full: bool) -> list[Point]:
    """Quick: quad16 and quad32, two layers in the model, the layers of one network placed."""
    chips = [each for each in CHIPS if full or each in (CHIPS[0], CHIPS[3])]
    of_chip = {chip: layers for chip, target, layers in CHIPS if target == "native"}
    return [
        *(ChipSpeed(*each) for each in chips),
        *map(RestSpeed, RESTING),
        *(ThreadSpeed(chip, of_chip[chip][0]) for chip in (SHARED if full else SHARED[:1])),
        *(PlaySpeed(*each) for each in (PLAYED if full else PLAYED[1:3])),
        PlacingSpeed(tuple(NETWORKS) if full else ("ncf",)),
    ]


def clang() -> bool:
    """Whether the bars of chips hold for the compiler at hand."""
    return "clang" in compiler_version()


def slow_layer(point: ChipSpeed, row: LayerSpeed, judged: bool) -> list[str]:
    """A byte that differs anywhere, or a busy layer below its chip's bar (if that is `judged`)."""
    where = f"{point.chip} ({point.target}), {row.layer}"
    if not row.compared or row.reason:
        return [f"{where}: {row.reason or 'no byte was compared'}"]
    if judged and row.utilisation >= BUSY and row.ratio < BARS.get(point.chip, 0):
        return [f"{where}: {row.ratio:.3f} of the plain loop, the bar is {BARS[point.chip]:g}"]
    return []


def slow_rest(point: RestSpeed, row: idle.Rest) -> list[str]:
    """A chip at rest that is simulated slowly."""
    if row.cycles_per_second >= REST:
        return []
    return [f"{point.name}: {row.cycles_per_second:,.0f} cycles per CPU-second, the bar is {REST:,.0f}"]


def slow_play(point: PlaySpeed, row: Plays) -> list[str]:
    """Compiled code that plays something else, or is not fast enough."""
    if not row.same:
        return [f"{point.name}: compiled code says {row.compiled.cycles:,} cycles, Python {row.pure.cycles:,}"]
    if point.chip in COMPILED_ON and row.speed_up < COMPILED:
        return [f"{point.name}: {row.speed_up:.1f} times as fast, the bar is {COMPILED:g}"]
    return []


def _layers(rows: Rows) -> list[tuple[ChipSpeed, LayerSpeed]]:
    return [(point, row) for point, some in rows.pairs(ChipSpeed) for row in some]


def _elements(chip: str) -> int:
    """The processing elements of all cores."""
    config = chip_of(chip)
    return config.rows * config.cols * len(config.cores)


def chips(rows: Rows) -> Table:
    """Layers on chips."""
    columns: dict[str, Callable[[tuple[ChipSpeed, LayerSpeed]], str]] = {
        "chip": lambda each: each[0].chip,
        "-march": lambda each: each[0].target,
        "layer": lambda each: each[1].layer,
        "RTL cycles>": lambda each: count(each[1].rtl_cycles),
        "PE util.>": lambda each: share(each[1].utilisation),
        "mismatches>": lambda each: count(each[1].wrong),
        "CPU s>": lambda each: f"{each[1].cpu_seconds:.2f}",
        "cycles/s>": lambda each: count(each[1].cycles_per_second),
        "G PE-cycles/s>": lambda each: f"{each[1].cycles_per_second * _elements(each[0].chip) / 1e9:.2f}",
        "plain loop>": lambda each: count(each[1].plain),
        "ratio>": lambda each: f"{each[1].ratio:.3f}",
    }
    title = f"Simulated cycles per CPU-second, built with {compiler_version() or 'an unknown compiler'}"
    return table(title, columns, _layers(rows), lambda each: bool(slow_layer(*each, clang())))


def rest(rows: Rows) -> Table:
    """Chips at rest."""
    columns: dict[str, Callable[[tuple[RestSpeed, idle.Rest]], str]] = {
        "chip": lambda each: each[0].chip,
        "RTL cycles>": lambda each: count(each[1].cycles),
        "CPU s>": lambda each: f"{each[1].cpu_seconds:.2f}",
        "cycles/s>": lambda each: count(each[1].cycles_per_second),
    }
    title = "A chip at rest: every stream waits for a post that never comes"
    return table(title, columns, rows.pairs(RestSpeed), lambda each: bool(slow_rest(*each)))


def by_threads(rows: Rows) -> Table:
    """One simulation by several threads."""
    columns: dict[str, Callable[[tuple[ThreadSpeed, ThreadSeconds]], str]] = {
        "chip": lambda each: each[0].chip,
        "layer": lambda each: each[0].layer,
        "RTL cycles>": lambda each: count(each[1].cycles),
        "1 thread, s>": lambda each: f"{each[1].one:.2f}",
        f"{threads.COUNT} threads, s>": lambda each: f"{each[1].several:.2f}",
        "times as fast>": lambda each: f"{each[1].one / each[1].several:.2f}",
    }
    title = f"One simulation by {threads.COUNT} threads on {len(os.sched_getaffinity(0))} processors"
    return table(title, columns, rows.pairs(ThreadSpeed))


def model(rows: Rows) -> Table:
    """The timeline model."""
    columns: dict[str, Callable[[tuple[PlaySpeed, Plays]], str]] = {
        "chip": lambda each: each[0].chip,
        "layer": lambda each: each[0].layer,
        "cycles>": lambda each: count(each[1].pure.cycles),
        "Python: cycles/s>": lambda each: count(each[1].pure.speed),
        "compiled: cycles/s>": lambda each: count(each[1].compiled.speed),
        "times as fast>": lambda each: f"{each[1].speed_up:.1f}",
        "same timeline": lambda each: "yes" if each[1].same else "no",
    }
    title = "The timeline model as Python and compiled, cycles per CPU-second"
    return table(title, columns, rows.pairs(PlaySpeed), lambda each: bool(slow_play(*each)))


def placing(rows: Rows) -> list[Table]:
    """Templates on other cores."""
    columns: dict[str, Callable[[relocation.PlacedTemplate], str]] = {
        "template": lambda each: each.which,
        "layer": lambda each: each.layer,
        "scheme": lambda each: each.scheme,
        "cores>": lambda each: str(each.cores),
        "instructions>": lambda each: count(each.instructions),
        "bytes written>": lambda each: count(each.written),
        "its code, us>": lambda each: count(each.code),
        "the program, us>": lambda each: count(each.program),
        "checking it, us>": lambda each: count(each.check),
    }
    return [
        table(
            f"Placing a compiled layer on free cores: of the {row.count:,} templates of {', '.join(point.networks)} on "
            f"{PLACED_ON}",
            columns,
            row.placed,
        )
        for point, row in rows.pairs(PlacingSpeed)
    ]


def published(rows: Rows) -> Table:
    """What others have published."""
    columns: dict[str, Callable[[tuple[str, str, int, str]], str]] = {
        "design": lambda each: each[0],
        "simulator": lambda each: each[1],
        "cycles/s>": lambda each: count(each[2]),
        "source": lambda each: f"<{each[3]}>",
    }
    return table("Published by others, not measured here", columns, PUBLISHED)


def slow(rows: Rows) -> list[str]:
    """Every bar that was missed."""
    return [
        *(text for each in _layers(rows) for text in slow_layer(*each, clang())),
        *(text for each in rows.pairs(RestSpeed) for text in slow_rest(*each)),
        *(text for each in rows.pairs(PlaySpeed) for text in slow_play(*each)),
    ]


def remarks(rows: Rows) -> Sequence[str]:
    """Which compiler is judged."""
    if clang():
        return []
    return [f"The bar holds for clang only, so {compiler_version() or 'this compiler'} is not judged."]


def _fastest(rows: Rows) -> float | None:
    speeds = [row.cycles_per_second for point, row in _layers(rows) if point.chip == "quad16"]
    return max(speeds, default=None)


STUDY = Study(
    name="speed",
    title="Speed of the simulated chips and of their model",
    question="How many cycles a second do simulators of chips and the timeline model reach?",
    answer="A chip of four busy 16x16 cores reaches {{ quad16 }} cycles per CPU-second on the RTL; compiled code of "
    "the model is {{ compiled }} times as fast as Python.",
    about=prose(__file__),
    points=points,
    tables=(chips, rest, by_threads, model, placing, published),
    figures=(
        Figure("quad16", "cycles per CPU-second of quad16, best", _fastest, "{:,.0f}"),
        extreme(
            min,
            "rest",
            "cycles per CPU-second of a chip at rest, least",
            "cycles_per_second",
            "{:,.0f}",
            kind=RestSpeed,
        ),
        extreme(min, "compiled", "times as fast as Python, least", "speed_up", "{:.1f}", kind=PlaySpeed),
    ),
    checks=slow,
    remarks=remarks,
    alone=True,
)
