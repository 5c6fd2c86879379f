"""The words of a page, explained where they are read."""

from __future__ import annotations

from ..results.legend import CycleCause
from .markup import Section, escape, swatch

#: Words in the order in which a page uses them. docs/glossary.md has all words of the project.
_WORDS: tuple[tuple[str, str], ...] = (
    ("RTL", "the chip's hardware description; a simulator runs it, and its own counters give the cycles"),
    ("model", "the timeline model: it predicts each instruction's first and last cycle before the run"),
    ("model error", "(cycles of the model - cycles of the RTL) / cycles of the RTL"),
    ("PE", "processing element: one multiplier and adder of a core's array"),
    ("array", "the grid of PEs of a core; it executes GEMMs"),
    ("product", "one multiplication and its addition (a multiply-accumulate, MAC)"),
    ("useful", "share of all PE cycles that compute a product of the workload"),
    ("core", "a tile that computes: matrix unit (the array), vector unit, mover, and five memories"),
    ("A, B, ACC, OUT, VEC", "memories of a core: inputs, weights, sums of 32 bits, results, the vector unit's own"),
    ("scratchpad, spm", "memory on the chip that all cores share, a bank to a tile"),
    ("channel", "a DRAM channel: a tile that reads and writes memory off the chip"),
    ("NoC", "the network on chip: a router in each tile, and links between neighbours"),
    ("mover", "the unit of a tile that sends words to other tiles"),
    (
        "operation",
        "a step of a schedule: MOVE (words go from one tile to another), GEMM (a matrix product), or VEC "
        "(what is no product: pooling, addition, softmax)",
    ),
    (
        "label of an operation",
        "its layer; of a MOVE x (inputs), w (weights), bias or y (results); then the first image i, row y, column x, "
        "block of output channels n and of input channels k of its tile, and behind a dot the first row of the kernel",
    ),
    (
        "limit of a layer",
        "what one would buy more of: compute, vector, dram or noc, whichever saves most cycles if there is twice as "
        "much of it; with a plus, several save alike, or help only together",
    ),
    (
        "critical path",
        "steps without a gap from the first cycle to the last: whoever shortens none of them gains nothing",
    ),
    ("wait", "cycles in which an array had a GEMM to do and could not start it"),
    (
        "roofline",
        "the most products a cycle that PEs and DRAM allow, over products per byte of DRAM: a layer far below "
        "the line has another reason to be slow",
    ),
    ("fault", "what the chip stops for, such as an address that no memory has, or a watchdog that saw no progress"),
)


def glossary() -> Section:
    """All words."""
    rows = "".join(f"<dt>{escape(word)}</dt><dd>{escape(meaning)}</dd>" for word, meaning in _WORDS)
    return Section("glossary", "Glossary", f"<dl>{rows}</dl>")


def causes() -> Section:
    """Why an array does no useful work in a cycle: the causes with their colours, the column of `run`, the meaning."""
    rows = "".join(
        f"<dt>{swatch(cause.colour)}{escape(cause)}</dt><dd>{escape(f'{cause.meaning} ({cause.group} of run)')}</dd>"
        for cause in CycleCause
    )
    return Section("causes", "Causes, and the columns of run that count them", f"<dl>{rows}</dl>")
