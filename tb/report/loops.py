"""The loop nests of a schedule on the terminal, and where its words stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.ir.schedule import Schedule

from ..results.nests import LayerTiles, Load, Loop, Nest
from .console import dense
from .narrow import show

#: What the names of loops and memories mean, in a line.
LEGEND = (
    "p: output pixels, n: output channels, k: parts of the sums; A, B: a core's memories of inputs and weights, "
    "ACC: of sums, OUT, VEC: of results"
)
#: Part of the GEMMs from which on those that are not in a nest are at its edges.
_MOST = 0.6
_WORDS = {"p": "pixels", "n": "output channels", "k": "parts of the sums"}


def print_loops(schedule: Schedule, layers: Mapping[str, LayerTiles], chip: ChipConfig, to: Console) -> None:
    """Prints for each layer the nest that its operations follow, and which words are brought where, how often, and how
    long they stay."""
    cycles = f", {schedule.predicted.cycles:,} cycles predicted" if schedule.predicted else ""
    to.print(
        f"loop nests of {schedule.workload} on {chip.name} by {schedule.scheduler}, from its operations{cycles}",
        style="bold",
        soft_wrap=True,
    )
    to.print(LEGEND, style="dim", soft_wrap=True)
    for name, layer in layers.items():
        for line in nest_lines(name, layer, chip):
            to.print(line, soft_wrap=True)
        if layer.flows:
            show(flow_table(layer, chip), to)


def nest_lines(name: str, layer: LayerTiles, chip: ChipConfig) -> list[str]:
    """The nest of a layer: a line for each loop, indented, and one for the GEMM inside."""
    nest = layer.nest
    when = f", cycles {layer.cycles[0]:,}..{layer.cycles[1]:,}" if layer.cycles else ""
    vectors = f", {layer.vectors:,} VECs" if layer.vectors else ""
    head = f"{name}: {len(layer.gemms):,} GEMMs{vectors}{when}"
    if nest is None:
        return [head]
    lines = [head, _spatial(nest, chip) + _notes(_loads(nest.before, nest.loops))]
    for depth, loop in enumerate(nest.loops):
        lines.append("  " * depth + "  " + _loop(loop, nest.loops))
    one = nest.gemm
    lines.append(
        "  " * len(nest.loops) + f"  GEMM: {one.pixels} pixels x {one.channels} output channels x {one.depth} inputs"
    )
    if nest.share < 1 and all(loop.dimensions for loop in nest.loops):
        others = "are at its edges" if nest.share >= _MOST else "follow other loops"
        lines.append(f"  {100 * nest.share:.0f} % of the core's GEMMs are in that nest; the others {others}")
    return lines


def _spatial(nest: Nest, chip: ChipConfig) -> str:
    parts = [f"{_WORDS[name]} in {count}" for name, count in nest.parts.items() if count > 1]
    shared = f", which divide {' and '.join(parts)} parts" if parts else ""
    return f"  parallel: {nest.cores} of {len(chip.cores)} cores{shared}"


def _loop(loop: Loop, loops: Sequence[Loop]) -> str:
    head = (
        f"for {' and '.join(loop.dimensions)} in {loop.count}:"
        if loop.dimensions
        else f"{loop.count:,} GEMMs in no nest"
    )
    return head + _notes(["every other pass backwards"] * loop.reverses + _loads(loop.loads, loops))


def _loads(loads: Sequence[Load], loops: Sequence[Loop]) -> list[str]:
    texts: list[str] = []
    for load in loads:
        outer = " and ".join(" and ".join(loops[depth].dimensions) for depth in load.once)
        texts.append(f"{load.words:,.0f} words into {load.memory} each" + f", once for all {outer}" * bool(outer))
    return texts


def _notes(texts: Sequence[str]) -> str:
    return f"   # {'; '.join(texts)}" * bool(texts)


def flow_table(layer: LayerTiles, chip: ChipConfig) -> Table:
    """Words by the memories between which MOVEs bring them: how many, how many different ones, how often each, and how
    many cycles they stay until they are read for the last time."""
    table = dense(
        "  words that are moved", ("from", "to"), ("words", "KiB", "different", "times each", "cycles they stay")
    )
    for (source, target), flow in layer.flows.items():
        different = len(flow.values)
        table.add_row(
            source,
            target,
            f"{flow.moved:,}",
            f"{flow.moved * chip.lanes / 1024:,.1f}",
            f"{different:,}",
            f"{flow.moved / different:.2f}" if different else "-",
            f"{flow.stays / flow.stayed:,.0f}" if flow.stayed else "-",
        )
    return table
