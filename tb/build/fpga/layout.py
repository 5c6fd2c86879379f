"""How a design lies on an FPGA: what is used, of it by part, how fast it is, and the longest path. Read from nextpnr's
report and Yosys' netlist."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic import ConfigDict

from meshloom.hw.spec.exact import Exact

#: LUTs of four inputs that a cell of the netlist takes.
LUTS = {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 4}
#: What mapping adds to a signal's name: kinds of cells and their ports.
_ADDED = re.compile(r"_(LUT4|PFUMX|L6MUX21|CCU2C|TRELLIS_FF|TRELLIS_DPR16X4|D[IO][AB]?\d*)(_[^.]*)?$")
#: Other cells that are counted by part: nextpnr's names, which are Yosys' too.
_OTHERS = ("TRELLIS_FF", "DP16KD", "MULT18X18D")
#: Levels of the hierarchy by which cells are counted: the board, the chip in it, a tile, a part of that.
LEVELS = 4


class _Record(Exact):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Used(_Record):
    """Of one kind of cell: how many are used, and how many there are."""

    used: int
    available: int


class Hop(_Record):
    """A part of a path: its `kind` by nextpnr (clk-to-q, logic, routing, setup), its `delay` in ns, where it ends."""

    kind: str
    delay: float
    cell: str


class FpgaPart(_Record):
    """What one part of the design takes, with all below it: LUTs, flip-flops, block RAMs of 18 kbit, multipliers."""

    name: str
    luts: int
    flip_flops: int
    block_rams: int
    multipliers: int


class FpgaLayout(_Record):
    """`fmax`: the highest clock in MHz at which nextpnr's worst-case delays allow each path; `cells`: by nextpnr's
    kinds; `path`: the longest; `parts`: by name, the top's first; `seed`: where nextpnr began."""

    fmax: float
    cells: dict[str, Used]
    path: tuple[Hop, ...]
    parts: tuple[FpgaPart, ...]
    seed: int = 1


def layout_of(report: Mapping[str, Any], netlist: Mapping[str, Any], top: str, seed: int = 1) -> FpgaLayout:
    """From nextpnr's report and the netlist that it placed, both as JSON says them. Raises ValueError for a report in
    which no clock was measured."""
    clocks = {name: each["achieved"] for name, each in report["fmax"].items()}
    if not clocks:
        raise ValueError("nextpnr's report has no clock")
    slowest = min(clocks, key=lambda name: clocks[name])
    fmax, path = clocks[slowest], tuple(_hops(report["critical_paths"], slowest))
    for crossing in _crossings(report["critical_paths"], clocks):
        if (most := 1000 / sum(hop.delay for hop in crossing)) < fmax:
            fmax, path = most, crossing
    return FpgaLayout(
        fmax=fmax,
        cells={kind: Used(**numbers) for kind, numbers in report["utilization"].items() if numbers["used"]},
        path=path,
        parts=tuple(parts_of(netlist["modules"][top]["cells"], top)),
        seed=seed,
    )


def _hops(paths: list[dict[str, Any]], clock: str) -> Iterator[Hop]:
    for path in paths:
        if path["from"].endswith(f" {clock}") and path["to"].endswith(f" {clock}"):
            yield from _listed(path)
            return


def _listed(path: dict[str, Any]) -> Iterator[Hop]:
    for hop in path["path"]:
        yield Hop(kind=hop["type"], delay=hop["delay"], cell=plain(hop["to"]["cell"]))


def _crossings(paths: list[dict[str, Any]], clocks: Collection[str]) -> Iterator[tuple[Hop, ...]]:
    """Paths from one clock to another: all come out of one, gated or not, so that each has the time of a cycle."""
    for path in paths:
        ends = [path[end].partition(" ")[2] for end in ("from", "to")]
        if ends[0] != ends[1] and all(end in clocks for end in ends):
            yield tuple(_listed(path))


def plain(name: str) -> str:
    """A cell's name without what mapping has added to that of its signal."""
    return _ADDED.sub("", name)


def parts_of(cells: Mapping[str, Any], top: str) -> Iterator[FpgaPart]:
    """What each part of a netlist takes, the whole first; its name is `top`."""
    sums: dict[str, Counter[str]] = {}
    for name, cell in cells.items():
        kind = cell["type"]
        number = Counter({"LUT": LUTS[kind]} if kind in LUTS else {kind: 1} if kind in _OTHERS else {})
        places = [part for part in name.split(".")[:-1] if part][:LEVELS]
        for depth in range(len(places) + 1):
            sums.setdefault(".".join(places[:depth]) or top, Counter()).update(number)
    for name, number in sorted(sums.items(), key=lambda each: (each[0] != top, each[0])):
        luts, others = number["LUT"], [number[kind] for kind in _OTHERS]
        if luts or any(others):
            yield FpgaPart(
                name=name, luts=luts, flip_flops=others[0], block_rams=others[1], multipliers=others[2]
            )  # fmt: skip
