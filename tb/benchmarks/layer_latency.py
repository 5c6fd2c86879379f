"""Algorithm 1 of Layer-Puzzle and its congestion estimator against the timeline model and the RTL: random layers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from random import Random
from statistics import fmean

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.lowering.templates.network import ServedNetwork
from meshloom.sched.model.modelled import ModelSession
from meshloom.sched.papers.layer_puzzle import samples
from meshloom.sched.papers.layer_puzzle.estimator import CHIP
from meshloom.sched.papers.layer_puzzle.samples import CHUNK, Chunk, Draw, Runs, shape_of
from meshloom.sched.papers.layer_puzzle.stepwise import stepwise
from meshloom.sched.schedulers.online import latency
from meshloom.sched.schedulers.online.interface import Instance, Network, OnlineScheduler, Placement, Platform, View
from meshloom.sched.schedulers.online.registry import online_scheduler
from meshloom.sched.schedulers.online.versions import predicted, saving
from meshloom.sched.workload import zoo
from meshloom.sched.workload.workload_sets import BATCHES, NETWORKS

from ..build.builder import build
from ..results.events import OnEvent, RowCount, Stage
from ..runs.workers import workers
from ..studies.layer_puzzle.views import SCHEDULERS
from . import layer_congestion, layer_rtl
from .interface import BenchmarkError
from .layer_congestion import Measured
from .layer_rtl import Pair, RtlChunk
from .results import Result, Sheet

#: Chunks in the model, and those of them that are for tests and run on the RTL too: every fourth of those beyond the
#: package's samples, so that tests see the same kinds of layers; how many of these are played once more in the model;
#: chunks that are drawn for another chip, whose layers nothing was trained on.
CHUNKS, EVERY, AGAIN, OTHER_CHUNKS, OTHER = 168, 4, 8, 1, "lp25"
TEST = range(samples.CHUNKS, CHUNKS, EVERY)
TRAIN = tuple(number for number in range(CHUNKS) if number not in TEST)
#: What `run` can be held to.
PARTS = ("kept",)
FORMS: dict[str, latency.Predictor] = {
    "as printed": latency.literal,
    "mended": latency.corrected,
    "mended, with queues (7 constants fitted)": latency.queued,
    "by steps (none fitted)": stepwise,
}
#: Bars: mean and worst error of the best form in percent, how much faster than the model it is, the worst decision in
#: microseconds, samples in the model, on the RTL, of congestion, and of congestion on the RTL.
MEAN, WORST, FASTER, DECISION, ASKED = 2.0, 15.0, 50.0, 1000.0, (8000, 500, 10000, 100)
#: By the paper: mean and worst error of Algorithm 1, in percent; share of versions that Pareto fronts save.
PAPER = (4.0, 9.0, 0.44)
#: Upper ends of the classes of errors, in percent.
CLASSES = (1, 2, 5, 10, 15, 25, 50, 100)
#: Decisions that are timed, and how often each: the quickest counts, for what else the machine does is not the
#: scheduler's.
DECISIONS, TRIES = 200, 3

_CHUNK = TypeAdapter(Chunk)


@cache
def _drawn(chip: str) -> list[list[Draw]]:
    every = samples.draws(load(chip))
    return [list(islice(every, CHUNK)) for _ in range(CHUNKS if chip == CHIP else OTHER_CHUNKS)]


def played(chip: str, number: int) -> Chunk:
    """A chunk in the timeline model: in a worker process."""
    config = load(chip)
    return samples.measured(config, number, _drawn(chip)[number], samples.sample_cache(config))


def again(number: int) -> None:
    """The layers of a chunk beside others once more."""
    config = load(CHIP)
    layer_congestion.otherwise(config, number, _drawn(CHIP)[number], samples.sample_cache(config))


def simulated(number: int) -> None:
    """A chunk on the RTL."""
    config = load(CHIP)
    layer_rtl.measured(config, number, played(CHIP, number).alone, layer_rtl.rtl_cache(config))


@dataclass(frozen=True)
class Error:
    """Signed errors of `FORMS` for one layer, in percent of what was measured."""

    draw: Draw
    matrix: bool
    errors: tuple[float, ...]


def errors(found: Sequence[tuple[Draw, int]], chip: ChipConfig) -> list[Error]:
    """Of layers that have been measured, with their cycles."""
    made: list[Error] = []
    for draw, cycles in found:
        shape = shape_of(draw, chip)
        off = tuple(100 * (form(shape, draw.scheme, chip, 1.0).cycles / cycles - 1) for form in FORMS.values())
        made.append(Error(draw, shape.matrix, off))
    return made


def run(on_progress: OnEvent, parts: Sequence[str] = ()) -> Result:
    """Measures what has not been measured, chunks for tests first, then compares. Part "kept" measures nothing, and
    compares what there is.

    Raises BenchmarkError for other parts, and when there is nothing to compare.
    """
    if unknown := [part for part in parts if part not in PARTS]:
        raise BenchmarkError(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if not parts:
        _measure(on_progress)
    found = _kept()
    if not found.train or not any(chunk.beside for chunk in found.rtl):
        raise BenchmarkError("layer_latency: nothing to compare has been measured; run it without --part kept")
    return _result(load(CHIP), found)


def _measure(on_progress: OnEvent) -> None:
    on_progress(RowCount(rows=CHUNKS + len(TEST) + AGAIN + OTHER_CHUNKS))
    build(load(CHIP), "verilator", False, lambda what: on_progress(Stage(workload=CHIP, what=what, passing=True)))
    with workers(len(os.sched_getaffinity(0))) as pool:
        asked = {
            "for tests in the model": [pool.submit(played, CHIP, number) for number in TEST],
            "on the RTL": [pool.submit(simulated, number) for number in TEST],
            "once more": [pool.submit(again, number) for number in TEST[:AGAIN]],
            f"of {OTHER}": [pool.submit(played, OTHER, number) for number in range(OTHER_CHUNKS)],
            "to learn from": [pool.submit(played, CHIP, number) for number in TRAIN],
        }
        for what, futures in asked.items():
            for number, future in enumerate(futures, 1):
                on_progress(Stage(workload=CHIP, what=f"chunk {number} of {len(futures)} {what}"))
                pool.result(future, on_progress)


def _kept() -> Measured:
    """What has been measured."""
    chip = load(CHIP)
    memory, on_rtl = samples.sample_cache(chip), layer_rtl.rtl_cache(chip)

    def chunk(name: str, number: int) -> Chunk | None:
        return samples.sample_cache(load(name)).get((number, tuple(_drawn(name)[number])), _CHUNK)

    train = (chunk(CHIP, number) for number in TRAIN)
    test = {number: found for number in TEST if (found := chunk(CHIP, number)) is not None}
    rtl = (layer_rtl.kept(number, found.alone, on_rtl) for number, found in test.items())
    repeated = ((found, layer_congestion.known(number, _drawn(CHIP)[number], memory)) for number, found in test.items())
    other = (chunk(OTHER, number) for number in range(OTHER_CHUNKS))
    return Measured(
        [found for found in train if found is not None],
        list(test.values()),
        [found for found in rtl if found is not None],
        [(found, cycles) for found, cycles in repeated if cycles is not None],
        [found for found in other if found is not None],
        OTHER,
    )


def _result(chip: ChipConfig, found: Measured) -> Result:
    chunks, rtl = (*found.train, *found.test), found.rtl
    failures: list[str] = []
    alone = [(one.draw, one.measures.cycles) for chunk in chunks for one in chunk.alone]
    off = errors(alone, chip)
    pairs = [pair for chunk in rtl for pair in chunk.alone]
    sheets = (
        _forms(off, pairs, chip, failures),
        causes(off, pairs),
        classes(off),
        exact(rtl, failures),
        layer_congestion.sheet(found, failures),
        _decisions(failures),
        _saved(chip),
    )
    beside = sum(len(chunk.beside) for chunk in chunks)
    counts = len(alone), len(pairs), beside, sum(len(chunk.beside) for chunk in rtl)
    names = "layers in the model", "layers on the RTL", "layers beside others", "of these on the RTL"
    for name, count, asked in zip(names, counts, ASKED, strict=True):
        if count < asked:
            failures.append(f"{count:,} {name}; {asked:,} were asked for")
    return Result(
        "layer_latency",
        "Latencies of layers, predicted",
        f"Random layers of {', '.join(NETWORKS)}, batch 1 to 4, on 1 to {len(chip.cores)} cores of {CHIP} by a random "
        "scheme, none twice; the same for everybody. Measured: cycles of the program, alone on the chip, in the "
        f"timeline model. {len(TEST)} of {CHUNKS} chunks of {CHUNK} are for tests; their layers of at most "
        f"{layer_rtl.LONGEST:,} cycles run on the RTL too. Each chunk that has been measured is kept, so that an "
        "interrupted run goes on. Times are of CPU, of one process.",
        sheets,
        remarks=_remarks(),
        failures=tuple(failures),
    )


def _remarks() -> tuple[str, ...]:
    return (
        "A program's time is itself not sharp: launched on the same cores, but through the launch queue, so that cores "
        "begin some cycles earlier or later than in the run it was compiled with, the same program takes another time "
        "when several cores meet at the channels (last row of the second table). No form that does not play every "
        "packet can know which.",
        "What the form by steps leaves out, by cause: which channel the tiles of thin tensors lie in (a tensor of one "
        "plane lies row by row, so that input, result and other operand of a core may meet in one channel); near "
        "channels that run ahead of far ones after the first tile; partial sums that share a link with tiles, in "
        "rings; rows of tiles that are small against the latency of DRAM.",
    )


def _microseconds(form: Callable[[Draw], object], drawn: Sequence[Draw]) -> float:
    before = time.process_time()
    for draw in drawn:
        form(draw)
    return (time.process_time() - before) / len(drawn) * 1e6


def _forms(off: Sequence[Error], pairs: Sequence[Pair], chip: ChipConfig, failures: list[str]) -> Sheet:
    on_rtl = errors([(pair.draw, pair.rtl) for pair in pairs], chip)
    layers = samples.compiled(_drawn(CHIP)[0], chip)
    runs = Runs(ModelSession(chip), layers)
    before = time.process_time()
    for layer in range(len(layers)):
        runs.alone(layer)
    model = (time.process_time() - before) / len(layers) * 1e6
    drawn = [draw for draw, _ in layers]
    rows: list[tuple[str, ...]] = []
    spent = 1.0
    for number, (name, form) in enumerate(FORMS.items()):
        spent = _microseconds(lambda draw, form=form: form(shape_of(draw, chip), draw.scheme, chip, 1.0), drawn)
        both: list[str] = []
        for each in (off, on_rtl):
            sizes = [abs(one.errors[number]) for one in each]
            both += [f"{len(sizes):,}", f"{fmean(sizes):.1f}", f"{max(sizes):.1f}"]
        rows.append((name, *both, f"{spent:,.0f}", f"{model / spent:,.0f}"))
    best = [abs(one.errors[-1]) for one in off]
    if fmean(best) > MEAN or max(best) > WORST:
        failures.append(f"by steps: {fmean(best):.1f} % mean, {max(best):.1f} % worst; {MEAN} and {WORST} % are asked")
    if model / spent < FASTER:
        failures.append(f"by steps: {model / spent:.0f} times as fast as the model; {FASTER:.0f} are asked")
    exactly = [abs(100 * (pair.model / pair.rtl - 1)) for pair in pairs]
    rows.append(
        ("timeline model", f"{len(off):,}", "", "", f"{len(exactly):,}", f"{fmean(exactly):.1f}",
         f"{max(exactly):.1f}", f"{model:,.0f}", "1")
    )  # fmt: skip
    rows.append(("the paper, against its simulator", "8,000", f"{PAPER[0]}", f"{PAPER[1]}", "", "", "", "", ""))
    columns = (
        "form", "in the model>", "mean error, %>", "worst, %>", "on the RTL>", "mean error, %>", "worst, %>",
        "microseconds each>", "times the model's speed>",
    )  # fmt: skip
    return Sheet("Algorithm 1, and what follows from the chip", columns, rows)


def causes(off: Sequence[Error], pairs: Sequence[Pair]) -> Sheet:
    """Errors of the two best forms by kind of layer, and how far programs differ from themselves."""
    cores = {
        f"matrix, {name} cores, no ring": [one for one in off if one.matrix and one.draw.scheme.input == 1
                                           and low <= one.draw.scheme.cores <= high]
        for name, low, high in (("1", 1, 1), ("2-3", 2, 3), ("4-6", 4, 6), ("7-9", 7, 9))
    }  # fmt: skip
    kinds = cores | {
        "matrix, ring of partial sums": [one for one in off if one.draw.scheme.input > 1],
        "vector": [one for one in off if not one.matrix],
    }
    rows: list[tuple[str, ...]] = []
    for name, each in kinds.items():
        fit, found = ([one.errors[number] for one in each] for number in (-2, -1))
        cells = [f"{value:.1f}" for one in (fit, found) for value in _summary(one)]
        rows.append((name, f"{len(each):,}", *cells))
    again = [100 * (pair.rtl / pair.expected - 1) for pair in pairs]
    several = [value for value, pair in zip(again, pairs, strict=True) if pair.draw.scheme.cores > 1]
    rows.append(
        ("the same program, launched otherwise, several cores", f"{len(several):,}", "", "", "",
         *(f"{value:.1f}" for value in _summary(several)))
    )  # fmt: skip
    columns = (
        "layers", "samples>", "with queues: mean error, %>", "bias, %>", "worst, %>", "by steps: mean error, %>",
        "bias, %>", "worst, %>",
    )  # fmt: skip
    return Sheet("Where the error lies", columns, rows)


def _summary(found: Sequence[float]) -> tuple[float, float, float]:
    return fmean(map(abs, found)), fmean(found), max(map(abs, found))


def classes(off: Sequence[Error]) -> Sheet:
    """How errors are distributed."""
    rows: list[tuple[str, ...]] = []
    for number, name in enumerate(FORMS):
        sizes = [abs(one.errors[number]) for one in off]
        rows.append((name, *(f"{100 * sum(size <= end for size in sizes) / len(sizes):.0f}" for end in CLASSES)))
    return Sheet("Share of layers, in %, with an error of at most", ("form", *(f"{end} %>" for end in CLASSES)), rows)


def exact(rtl: Sequence[RtlChunk], failures: list[str]) -> Sheet:
    """Completions on both."""
    differ, programs = sum(chunk.differ for chunk in rtl), sum(chunk.programs for chunk in rtl)
    if differ:
        failures.append(f"{differ} of {programs} programs ended on the RTL in another cycle than in the model")
    alone, beside = (sum(len(each) for each in kind) for kind in zip(*((c.alone, c.beside) for c in rtl), strict=True))
    columns = "layers alone>", "beside others>", "programs>", "cycles>", "other cycle than in the model>"
    cycles = sum(chunk.cycles for chunk in rtl)
    row = (f"{alone:,}", f"{beside:,}", f"{programs:,}", f"{cycles:,}", f"{differ}")
    return Sheet("The model against the RTL", columns, [row], frozenset([0]) if differ else frozenset())


def _networks(chip: ChipConfig) -> list[Network]:
    return [predicted(ServedNetwork(zoo.load(name), chip, batch)) for name in NETWORKS for batch in BATCHES]


def _views(nets: Sequence[Network], platform: Platform, random: Random) -> Iterator[View]:
    """Ten networks somewhere in their course, some of which run, on a chip of which some cores are free."""
    while True:
        free = list(platform.cores)
        random.shuffle(free)
        free = free[: random.randint(1, len(free))]
        busy = [core for core in platform.cores if core not in free]
        instances: list[Instance] = []
        running: list[Placement] = []
        for number, net in enumerate(nets):
            one = Instance(number, net, 0, random.randint(1_000_000, 9_000_000), random.randrange(len(net.layers)))
            version = one.layer.fastest(len(busy))
            if version is not None and random.random() < 0.5:
                cores, busy = tuple(busy[: version.cores]), busy[version.cores :]
                running.append(Placement(number, one.next, version, cores, 999_000))
                one = replace(one, running=True)
            instances.append(one)
        slots = platform.programs - len(running)
        yield View(1_000_000, platform, tuple(sorted([*free, *busy])), slots, tuple(instances), tuple(running))


def _decided(scheduler: OnlineScheduler, view: View) -> float:
    """Microseconds of a decision."""
    before = time.process_time_ns()
    scheduler.decide(view)
    return (time.process_time_ns() - before) / 1000


def _decisions(failures: list[str]) -> Sheet:
    rows: list[tuple[str, ...]] = []
    for name in (CHIP, OTHER):
        chip = load(name)
        platform, nets = Platform.of(chip), _networks(chip)
        for net in nets:  # what a network knows of itself it finds out once
            for cores in range(net.least_cores(), len(platform.cores) + 1):
                net.isolated(cores)
        views = list(islice(_views(nets, platform, Random(samples.SEED)), DECISIONS))
        for scheduler in SCHEDULERS:
            made = [[online_scheduler(scheduler, platform) for _ in range(TRIES)] for _ in views]
            spent = [min(_decided(one, view) for one in each) for each, view in zip(made, views, strict=True)]
            launches = fmean(len(online_scheduler(scheduler, platform).decide(view)) for view in views)
            worst = max(spent)
            rows.append((name, scheduler, f"{launches:.1f}", f"{fmean(spent):.0f}", f"{worst:.0f}"))
            if worst > DECISION:
                failures.append(f"{scheduler} on {name}: {worst:.0f} microseconds a decision; {DECISION:.0f} are asked")
    columns = "chip", "scheduler", "launches>", "microseconds, mean>", "worst>"
    return Sheet(f"Time of a decision with {len(NETWORKS) * len(BATCHES)} networks", columns, rows)


def _saved(chip: ChipConfig) -> Sheet:
    rows: list[tuple[str, ...]] = []
    for name in NETWORKS:
        for batch in BATCHES:
            found = saving(ServedNetwork(zoo.load(name), chip, batch).shapes, chip)
            rows.append((name, f"{batch}", f"{found.all}", f"{found.front}", f"{100 * found.share:.0f}"))
    return Sheet(
        f"Versions that Pareto fronts save (paper: {100 * PAPER[2]:.0f} %)",
        ("network", "batch>", "versions>", "kept>", "saved, %>"),
        rows,
    )
