"""Layer-Puzzle's congestion estimator: forests trained on random layers beside others in the timeline model, judged on
layers that they have not seen, in the model, on the RTL and on another chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

import numpy as np

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
from meshloom.sched.papers.layer_puzzle.samples import CHUNKS, Chunk

from ..engine.tables import DASH, Table, count
from ..points.runs import chip_of
from .chunks import OTHER, RtlChunk

#: The mean absolute error of the paper's estimator, in percent.
PAPER = 5.1


@dataclass(frozen=True)
class Measured:
    """Chunks in the model: for training; for tests, which are also the ones on the RTL, and of which some ran `again`;
    of another chip."""

    train: Sequence[Chunk]
    test: Sequence[Chunk]
    rtl: Sequence[RtlChunk]
    again: Sequence[tuple[Chunk, tuple[int, ...]]]
    other: Sequence[Chunk]

    @cached_property
    def unseen(self) -> tuple[Samples, Samples, Samples]:
        """Layers that no forest has learnt from: in the model, on the RTL, on the other chip."""
        chip, far = chip_of(CHIP), chip_of(OTHER)
        return samples_of(self.test, chip), self._on_rtl(len(chip.cores)), samples_of(self.other, far)

    def _on_rtl(self, cores: int) -> Samples:
        """Layers beside others on the RTL, as samples."""
        known = {one.draw: version_of(one) for chunk in self.test for one in chunk.alone}
        pairs = [pair for chunk in self.rtl for pair in chunk.beside if pair.draw in known]
        rows = [features(known[pair.draw], [known[one] for one in pair.others], cores) for pair in pairs]
        factors = [min(1.0, pair.expected / pair.rtl) for pair in pairs]
        return Samples(np.array(rows, np.float32).reshape(-1, len(FEATURES)), np.array(factors, np.float32))

    @cached_property
    def train_samples(self) -> Samples:
        """What forests learn from."""
        return samples_of(self.train, chip_of(CHIP))

    @cached_property
    def forests(self) -> list[tuple[str, int, Forest]]:
        """What each looks at, how many samples it has learnt, and itself; the package's last."""
        widths = {"the paper's three features": 3, "and the own intensity": 4, f"all {len(FEATURES)}": len(FEATURES)}
        some = widths if self.train else {}
        forests = [(name, len(self.train_samples.factor), fitted(self.train_samples, w)) for name, w in some.items()]
        samples, package = shipped()
        return [*forests, (f"all {len(FEATURES)}, the package's", len(samples.part(test=False).factor), package)]

    @property
    def best(self) -> float | None:
        """Mean error of the forest of all features, in percent: of what it has learnt here, or of the package's."""
        if not self.test:
            return None
        return 100 * error(self.forests[-2 if self.train else -1][2], self.unseen[0])

    @property
    def otherwise(self) -> float | None:
        """Mean difference of the factors of the same layers beside the same others, launched otherwise, in percent."""
        off = [
            abs(min(1.0, alone / run.cycles) - min(1.0, alone / cycles))
            for chunk, other in self.again
            for run, cycles in zip(chunk.beside, other, strict=True)
            for alone in (chunk.alone[run.layer].measures.cycles,)
        ]
        return 100 * fmean(off) if off else None

    def outdated(self) -> bool:
        """Whether the package's samples are others than those of the first chunks."""
        if len(self.train) < CHUNKS:
            return False
        return samples_of(self.train[:CHUNKS], chip_of(CHIP)).factor.tolist() != shipped()[0].factor.tolist()


def table(measured: Measured) -> Table:
    """Errors of forests by what they look at, and what a repetition of the same mix would say."""
    unseen = measured.unseen
    columns = (
        "forest of", "samples learnt>", f"{len(unseen[0].factor):,} in the model>",
        f"{len(unseen[1].factor)} on the RTL>",
        f"{len(unseen[2].factor)} on {OTHER}>",
    )  # fmt: skip
    unknown = "on layers that no forest has learnt from"
    title = f"Memory factor: mean absolute error in %, {unknown} (samples of {CHIP} in the model)"
    if not measured.test:
        return Table(title, columns, [])
    rows: list[tuple[str, ...]] = []
    for name, learnt, forest in measured.forests:
        errors = (f"{100 * error(forest, each):.1f}" if len(each.factor) else DASH for each in unseen)
        rows.append((name, count(learnt), *errors))
    if measured.train:
        mean = measured.train_samples.factor.mean()
        always = (f"{100 * float(abs(each.factor - mean).mean()):.1f}" if len(each.factor) else DASH for each in unseen)
        rows.append(("always the mean of the samples", count(len(measured.train_samples.factor)), *always))
    if measured.otherwise is not None:
        what = "the same layers beside the same others, launched otherwise"
        rows.append((what, "", f"{measured.otherwise:.1f}", "", ""))
    rows.append(("the paper's", "8,000", f"{PAPER}", "", ""))
    return Table(title, columns, rows)
