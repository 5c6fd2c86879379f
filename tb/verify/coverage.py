"""What runs have reached of each block of a chip: lines with their branches, and bits that rose and fell.

Verilator counts both in the Verilog that simulators are made of (`tb.build.covered`). A block is one or several of its
modules, which have the names of the gateware.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

#: By block: the names of its modules; what it is written in; how its proofs begin (`tb.verify.prove`).
BLOCKS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "router": (
        r"chip__\w+_plane__router_\d+_\d+(__\w+)?", "noc/router.py", ("router-", "buffer-", "arbiter-"),
    ),
    "mesh": (r"chip__\w+_plane", "noc/mesh.py", ("mesh-",)),
    "link counters": (r"chip__\w+_plane__counters_\d+_\d+", "wiring/link_counters.py", ()),
    "receiver": (r"tile_\w+__delivery", "noc/data_receiver.py", ()),
    "sender": (r"tile_\w+__sender", "memory/packetiser.py", ()),
    "request queue": (r"tile_\w+__taker(__\w+)?", "memory/dispatch.py", ("dram-queues-",)),
    "mover": (r"tile_\w+__mover(__\w+)?", "memory/mover.py", ()),
    "DRAM port": (r"tile_dram__port(__\w+)?", "memory/dram_port.py", ("dram-turns-", "dram-rest")),
    "memory bank": (r"tile_\w+__bank(__\w+)?", "memory/bank.py", ()),
    "array": (r"array_\d+x\d+|tile_core__matrix__array__(array|skew)", "core/array.py", ()),
    "array edges": (r"tile_core__matrix__array(__[ab]_edge)?", "core/edge.py", ()),
    "matrix unit": (r"tile_core__matrix(__reader|_posts|_retired|_waits|__\w+_mem)?", "core/matrix.py", ()),
    "drain": (r"tile_core__matrix__drain(__\w+)?", "core/drain.py", ()),
    "divider": (r"tile_core__vector__divider", "core/divider.py", ()),
    "transposer": (r"tile_core__vector__transposer", "core/transposer.py", ()),
    "vector unit": (r"tile_core__vector(__\w+)?", "core/vector.py", ()),
    "front end": (r"tile_\w+__front_\w+", "control/frontend.py", ()),
    "semaphores": (r"tile_\w+__semaphores", "control/semaphores.py", ()),
    "trace": (r"tile_\w+__tracer", "control/trace.py", ()),
    "reporter": (r"tile_\w+__(reporter|errors)", "host_link/reporter.py", ()),
    "controller": (r"tile_dtt(__\w+)?", "dtt/controller.py", ()),
    "launches": (r"tile_host__launches(__\w+)?", "host_link/launches.py", ()),
    "counters": (r"tile_\w+__counter\w*", "host_link/counters.py", ()),
    "host port": (r"tile_host__host_port(__\w+)?", "host_link/host.py", ()),
    "reset unit": (r"chip__reset_unit", "host_link/reset_unit.py", ()),
    "tile": (r"tile_(core|dram|spm|host)", "assembly/tile.py", ()),
    "chip": (r"chip", "assembly/chip.py", ()),
}  # fmt: skip
#: What belongs to none of them, and the block of trace memory.
OTHER, TRACE = "others", "trace"
#: How Verilator writes characters that C++ has not in names.
_CODED = re.compile(r"__0([0-9A-Fa-f]{2})")
#: What follows the name of a signal: which of its bits, and whether it rose or fell.
_SIGNAL = re.compile(r"[:\[]")
_FIELD = re.compile("\x01([a-z]+)\x02([^\x01]*)")


@dataclass(frozen=True)
class Reach:
    """Of a block, or of a kind of module: how much there is and how much was reached. `still`: some of the signals none
    of whose bits moved."""

    lines: int = 0
    lines_of: int = 0
    bits: int = 0
    bits_of: int = 0
    still: tuple[str, ...] = ()

    def __add__(self, other: Reach) -> Reach:
        return Reach(
            self.lines + other.lines, self.lines_of + other.lines_of, self.bits + other.bits,
            self.bits_of + other.bits_of, tuple(dict.fromkeys((*self.still, *other.still))),
        )  # fmt: skip


def block_of(module: str) -> str:
    """The block that a module belongs to."""
    return next((name for name, (modules, _, _) in BLOCKS.items() if re.fullmatch(modules, module)), OTHER)


@dataclass
class _Counts:
    """Of a block: whether each line, and each bit by its signal, was reached."""

    lines: dict[str, bool]
    bits: dict[str, dict[str, bool]]


def reached(file: Path, most_still: int = 8) -> dict[str, Reach]:
    """What a run has reached by block, from the file that it has left. `most_still`: how many signals of a block that
    rested are named. Raises OSError."""
    blocks: dict[str, _Counts] = {}
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.startswith("C '"):
                continue
            text, _, count = line.rpartition("' ")
            fields = dict(_FIELD.findall(text))
            kind, _, module = fields.get("page", "").partition("/")
            counts = blocks.setdefault(block_of(module), _Counts({}, {}))
            hit, thing = int(count) > 0, _CODED.sub(lambda code: chr(int(code[1], 16)), fields.get("o", ""))
            if kind != "v_toggle":
                place = f"{module} {fields.get('l')} {fields.get('n')} {thing}"
                counts.lines[place] = counts.lines.get(place, False) or hit
            else:
                signal = f"{module}.{_SIGNAL.split(thing)[0]}"
                bits = counts.bits.setdefault(signal, {})
                bits[thing] = bits.get(thing, False) or hit
    return {name: _reach(counts, most_still) for name, counts in sorted(blocks.items())}


def _reach(counts: _Counts, most_still: int) -> Reach:
    still = [signal for signal, bits in counts.bits.items() if not any(bits.values())]
    return Reach(
        sum(counts.lines.values()), len(counts.lines),
        sum(map(sum, (bits.values() for bits in counts.bits.values()))), sum(map(len, counts.bits.values())),
        tuple(sorted(still)[:most_still]),
    )  # fmt: skip


def together(reaches: Iterable[Mapping[str, Reach]]) -> dict[str, Reach]:
    """Of several chips, by block in the order of `BLOCKS`."""
    result: dict[str, Reach] = {}
    for each in reaches:
        for name, reach in each.items():
            result[name] = result.get(name, Reach()) + reach
    order = [*BLOCKS, OTHER]
    return dict(sorted(result.items(), key=lambda pair: order.index(pair[0])))
