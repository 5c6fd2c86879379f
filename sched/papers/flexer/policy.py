"""What a search is told to do, and what it chooses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import Literal

from .tiles import Tiling

#: Names of the priorities, memory policies and prunings, in the order of their numbers in the compiled code.
PRIORITIES = ("benefit", "min_transfer", "min_spill")
MEMORIES = ("fragmentation", "first_fit", "small")
PRUNINGS = ("every", "pruned", "levels", "beam")

Kind = Literal["flexer", "static", "nest"]
#: Which loop the baseline unrolls over the cores, and how it divides the scratchpad.
Unroll = Literal["any", "m", "n"]
Regions = Literal["best", "equal"]


def power(base: float, exponent: float) -> float:
    """base ** exponent of numbers that are not negative, by products and square roots alone: these are the same to the
    last bit on every machine, those of its library of mathematics need not be."""
    result, rest = 1.0, exponent
    while rest >= 1.0:
        result *= base
        rest -= 1.0
    root = base
    while rest > 0.0:
        root = sqrt(root)
        rest *= 2.0
        if rest >= 1.0:
            result *= root
            rest -= 1.0
    return result


@dataclass(frozen=True)
class Policy:
    """How schedules are made and ranked.

    `kind`: out of order; loop nests with fixed regions; or nests of rectangles with the future known; `priority` of
    sets and `memory` policy: numbers of `PRIORITIES` and `MEMORIES`; `pruning`: of `PRUNINGS`; metric = cycles **
    by_cycles * words ** by_words. `home`: partial sums stay in the core that makes them. `again`: the sequence that
    list scheduling has found is played once more, with its future known. `lookahead`: so many partial schedules are
    kept side by side (`beam`; 0: list scheduling alone).

    What follows are assumptions about the machine and the baseline that the paper leaves open. `overlap`: tiles of the
    next set travel while a set computes (else all that a set needs comes, then it computes and its results leave, then
    the next one comes); `private`: cores keep tiles in their own memories from one operation to the next (else each
    operation brings its own). Of the baseline alone: `unroll`, the loop over the cores (m: pixels, n: output channels),
    and `regions`, whether inputs, weights and sums get the best shares of the scratchpad or equal ones.
    """

    kind: Kind = "flexer"
    priority: int = 0
    memory: int = 0
    pruning: int = 2
    by_cycles: float = 1.0
    by_words: float = 1.0
    home: bool = False
    again: bool = False
    overlap: bool = True
    private: bool = True
    unroll: Unroll = "any"
    regions: Regions = "best"
    lookahead: int = 0

    @property
    def static(self) -> bool:
        return self.kind == "static"

    def metric(self, cycles: float, words: float) -> float:
        """What schedules are ranked by; lower is better."""
        return power(cycles, self.by_cycles) * power(words, self.by_words)


@dataclass(frozen=True)
class Choice:
    """A tiling and a loop nest; what the estimate says it costs.

    `slots`: of the three regions of the baseline. `shape`: pairs of a rectangle (see `nests.nest`), `group` of which
    are taken together.
    """

    tiling: Tiling
    loops: str
    slots: tuple[int, int, int] | None = None
    shape: tuple[int, int] | None = None
    group: int = 1
    cycles: float = 0.0
    words: int = 0

    def judged(self, cycles: float, words: int) -> Choice:
        """With its cost."""
        return replace(self, cycles=float(cycles), words=int(words))

    def __str__(self) -> str:
        more = f" slots {'/'.join(map(str, self.slots))}" if self.slots else ""
        if self.shape:
            more = f" {self.shape[0]}x{self.shape[1]} by {self.group}"
        return f"{self.tiling} {self.loops}{more}"


#: The paper's schedules and its baseline.
PAPER, PAPER_STATIC = Policy("flexer"), Policy("static")
#: What decides between schedules when only their cycles count.
FASTEST = Policy(by_words=0.0)
#: Ours: nests of rectangles whose future is known, with partial sums that stay in their cores. Words count a little,
#: because the estimate sees the queues of DRAM only in part.
OURS = Policy("nest", home=True, by_words=0.25)
