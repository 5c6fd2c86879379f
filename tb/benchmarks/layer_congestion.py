"""Layer-Puzzle's congestion estimator: forests trained on random layers beside others in the timeline model, judged on
layers that they have not seen, in the model, on the RTL and on another chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.model.modelled import ModelSession
from meshloom.sched.papers.layer_puzzle.estimator import (
    CHIP,
    FEATURES,
    Forest,
    Samples,
    error,
    features,
    fitted,
    samples_of,
    shipped,
    version_of,
)
from meshloom.sched.papers.layer_puzzle.samples import CHUNKS, MIXES, Chunk, Draw, Runs, compiled, mixes
from meshloom.sched.store.findings import SearchCache

from .layer_rtl import RtlChunk
from .results import Sheet

#: The mean absolute error of the paper's estimator, in percent.
PAPER = 5.1
#: Added to the seed of a run: other cores, other distances between launches.
OTHERWISE = 1 << 32
_CYCLES = TypeAdapter(tuple[int, ...])


@dataclass(frozen=True)
class Measured:
    """Chunks in the model: for training; for tests, which are also the ones on the RTL, and of which some ran `again`
    (see `otherwise`); of another chip."""

    train: Sequence[Chunk]
    test: Sequence[Chunk]
    rtl: Sequence[RtlChunk]
    again: Sequence[tuple[Chunk, tuple[int, ...]]]
    other: Sequence[Chunk]
    other_chip: str


def known(number: int, drawn: Sequence[Draw], memory: SearchCache) -> tuple[int, ...] | None:
    """What `otherwise` has found."""
    return memory.get(("otherwise", number, tuple(drawn)), _CYCLES)


def otherwise(chip: ChipConfig, number: int, drawn: Sequence[Draw], memory: SearchCache) -> tuple[int, ...]:
    """Cycles of the layers of chunk `number` beside others once more, by the same programs on other cores, launched at
    other distances."""
    if (found := known(number, drawn, memory)) is not None:
        return found
    layers = compiled(drawn, chip)
    every = enumerate(mixes(layers, chip, Random(number)))
    made = tuple(
        Runs(ModelSession(chip), layers).beside(layer, others, OTHERWISE + number * MIXES + index)
        for index, (layer, others) in every
    )
    memory.put(("otherwise", number, tuple(drawn)), _CYCLES, made)
    return made


def on_rtl(chunks: Sequence[Chunk], rtl: Sequence[RtlChunk], cores: int) -> Samples:
    """Layers beside others on the RTL, as samples."""
    import numpy as np

    known = {one.draw: version_of(one) for chunk in chunks for one in chunk.alone}
    pairs = [pair for chunk in rtl for pair in chunk.beside]
    rows = [features(known[pair.draw], [known[one] for one in pair.others], cores) for pair in pairs]
    factors = [min(1.0, pair.expected / pair.rtl) for pair in pairs]
    return Samples(np.array(rows, np.float32).reshape(-1, len(FEATURES)), np.array(factors, np.float32))


def sheet(found: Measured, failures: list[str]) -> Sheet:
    """Errors of forests by what they look at, and what a repetition of the same mix would say."""
    chip, far = load(CHIP), load(found.other_chip)
    train, test = samples_of(found.train, chip), samples_of(found.test, chip)
    held = (test, on_rtl(found.test, found.rtl, len(chip.cores)), samples_of(found.other, far))
    kept, package = shipped()
    same = len(found.train) >= CHUNKS and samples_of(found.train[:CHUNKS], chip).factor.tolist() == kept.factor.tolist()
    if not same:
        failures.append("the samples of the package are others; run sched/papers/layer_puzzle/estimator.py")
    count, few = f"{len(train.factor):,}", f"{len(kept.part(test=False).factor):,}"
    widths = {"the paper's three features": 3, "and the own intensity": 4, f"all {len(FEATURES)}": len(FEATURES)}
    forests: list[tuple[str, str, Forest]] = [(name, count, fitted(train, width)) for name, width in widths.items()]
    forests.append((f"all {len(FEATURES)}, the package's", few, package))
    rows: list[tuple[str, ...]] = []
    for name, learnt, forest in forests:
        rows.append((name, learnt, *(f"{100 * error(forest, each):.1f}" for each in held)))
    best = error(forests[-2][2], test)
    always = (f"{100 * float(abs(each.factor - train.factor.mean()).mean()):.1f}" for each in held)
    rows.append(("always the mean of the samples", count, *always))
    if found.again:
        off = [
            abs(min(1.0, alone / run.cycles) - min(1.0, alone / cycles))
            for chunk, other in found.again
            for run, cycles in zip(chunk.beside, other, strict=True)
            for alone in (chunk.alone[run.layer].measures.cycles,)
        ]
        rows.append(
            ("the same layers beside the same others, launched otherwise", "", f"{100 * fmean(off):.1f}", "", "")
        )
    rows.append(("the paper's", "8,000", f"{PAPER}", "", ""))
    if 100 * best > PAPER:
        failures.append(f"estimator: a mean error of {100 * best:.1f} %; the paper's is {PAPER} %")
    columns = (
        "forest of", "samples learnt>", f"{len(held[0].factor):,} in the model>", f"{len(held[1].factor)} on the RTL>",
        f"{len(held[2].factor)} on {found.other_chip}>",
    )  # fmt: skip
    return Sheet(
        f"Memory factor: mean absolute error in %, on layers that no forest has learnt from (samples of {CHIP} in the "
        "model)",
        columns,
        rows,
    )
