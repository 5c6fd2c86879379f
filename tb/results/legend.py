"""What the PE cycles of a run go to: one list of causes, with their legend, for runs, explanations and reports."""

from __future__ import annotations

from enum import StrEnum


class CycleCause(StrEnum):
    """Why the array of a core does no useful work in a cycle, or that it does.

    `group`: the column of a run's tables that counts it. `meaning`: in words, of the array. `colour`: in pictures:
    useful green, fed greys, computing blues, memory reds and oranges, the program yellows, the rest violets.
    """

    group: str
    meaning: str
    colour: str

    def __new__(cls, name: str, group: str, meaning: str, colour: str) -> CycleCause:
        cause = str.__new__(cls, name)
        cause._value_ = name
        cause.group, cause.meaning, cause.colour = group, meaning, colour
        return cause

    USEFUL = "useful", "compute", "it multiplies and accumulates what the layer needs", "#2e7d32"
    ROWS = "rows", "edges", "it is fed, but rows have no pixel: pixels of a GEMM are no multiple of the rows", "#9e9e9e"
    CHANNELS = (
        "channels",
        "edges",
        "it is fed, but columns or lanes have no channel, or a result is computed twice",
        "#757575",
    )
    PIPELINE = "pipeline", "drain", "the previous GEMM is in the pipeline: the array fills and drains", "#64b5f6"
    RESULTS = "results", "drain", "a result buffer of the core is not empty yet", "#1e88e5"
    DEPENDENCE = "dependence", "operands", "another core's GEMM has not computed the operands yet", "#0d47a1"
    VECTOR = "vector", "vector", "a VEC has not computed the operands yet", "#00acc1"
    DRAM = "dram", "dram", "operands are read from DRAM or results written to it, as fast as on an idle chip", "#e53935"
    DRAM_QUEUE = "dram queue", "dram", "the same, behind others at that channel or held up by traffic", "#8e0000"
    PORT = (
        "port",
        "noc",
        "a scratchpad's or core's port sends the operands, a word a cycle, or another MOVE first",
        "#fb8c00",
    )
    NOC = "noc", "noc", "they are held up by traffic, or words, requests and posts are on their way", "#ffb74d"
    START = "start", "start", "before the core's first GEMM, the program is fetched and issued", "#fdd835"
    FETCH = "fetch", "fetch", "the same later on", "#c0a000"
    IMBALANCE = "imbalance", "idle", "the core has no GEMM left, but others have", "#8e24aa"
    END = "end", "drain", "no core has a GEMM left; the last results are stored and the run ends", "#ce93d8"
    PLANNED = "planned", "planned", "in a program timed ahead nothing waits: it is planned not to be fed", "#90a4ae"


def legend() -> str:
    """Which causes each group counts, in a line, for tables of runs, explanations and comparisons; the other groups are
    causes themselves."""
    members: dict[str, list[str]] = {}
    for cause in CycleCause:
        members.setdefault(cause.group, []).append(cause)
    texts = (f"{group} = {' + '.join(causes)}" for group, causes in members.items() if causes != [group])
    return f"causes: {'; '.join(texts)}"


#: The groups of causes, in the order of a run's tables; nothing of a run that is not timed ahead is planned.
GROUPS: tuple[str, ...] = ("compute", "edges", "operands", "vector", "noc", "dram", "drain", "start", "fetch", "idle")
