"""Random chips: every option drawn by chance, and of several drafts the one that crosses most of them anew. Where these
cross little anew, options of more drafts are mixed into it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from random import Random
from typing import Any, cast

from pydantic import ValidationError

from meshloom.hw.spec.config import MOST_WEIGHT, Arbitration, ChipConfig, TileKind, VectorOperation
from meshloom.hw.spec.dram_banks import built_in_parts

#: Drafts of a chip, of which that with the most new pairs of choices is taken.
DRAFTS = 24
#: A draft with fewer new pairs is mixed with this many others, of each of which it takes about one option in ten.
FEW_PAIRS, MIXES, MIXED = 100, 200, 0.1
#: Cores and sides of the largest mesh: larger ones cost more to build and cross nothing new.
MOST_CORES, WIDEST, HIGHEST = 4, 4, 3

#: Two choices of a chip, each the name of an option and its value as text.
PairOfChoices = tuple[tuple[str, str], tuple[str, str]]


@dataclass(frozen=True)
class ExcludedPairs:
    """Values of two options that no legal chip has at once, and why."""

    option: str
    values: tuple[str, ...]
    second: str
    seconds: tuple[str, ...]
    reason: str

    @property
    def pairs(self) -> frozenset[PairOfChoices]:
        """Each of them."""
        both = product(self.values, self.seconds)
        return frozenset(_pair((self.option, first), (self.second, last)) for first, last in both)


#: All pairs of choices that no legal chip has.
EXCLUDED = (
    ExcludedPairs(
        "controller",
        ("True", "channel"),
        "arbitration",
        ("round_robin", "weighted", "weighted with weights"),
        "a controller orders the requests of the whole chip itself",
    ),
    ExcludedPairs(
        "controller", ("True", "channel"), "programs", ("True",), "a controller plans one program for the whole chip"
    ),
    ExcludedPairs(
        "controller", ("channel",), "channels", ("1",), "the channel of a controller is one more than those for data"
    ),
    ExcludedPairs("gaps", ("True",), "route_hops", ("True",), "no tile in a gap could report a wrong source route"),
)


def random_chips(seed: int, count: int) -> list[ChipConfig]:
    """Legal chips. Each crosses options pairwise that none before it has crossed, as far as chance offers such.
    A greater `count` appends to the list of a smaller one."""
    random = Random(seed)
    crossed: set[PairOfChoices] = set()
    chips: list[ChipConfig] = []
    for number in range(count):
        drafts = [_draft(random, f"fuzz{seed}_{number}") for _ in range(DRAFTS)]
        best = max(drafts, key=lambda chip: len(pairs_of(chip) - crossed))
        if len(pairs_of(best) - crossed) < FEW_PAIRS:
            best = _mixed(Random(f"mixed {seed} {number}"), best, crossed)
        crossed |= pairs_of(best)
        chips.append(best)
    return chips


def variants(chip: ChipConfig) -> list[ChipConfig]:
    """A legal chip as it was drawn, and with options that `random_chips` leaves as they are: with a code for words and,
    without a controller, which does not work with these, without a trace memory, with DRAM that has banks, and, for
    one program at a time, with routers that copy packets, and without what else may be left out. The chip's name
    decides the part, values, directions and operations."""
    random = Random(f"variants {chip.name}")
    values = chip.model_dump(mode="json", exclude_none=True)
    coded = ChipConfig.model_validate(values | {"name": f"{chip.name}_coded", "ecc": True})
    if chip.dtt is not None:
        return [chip, coded]
    silent = {"name": f"{chip.name}_untraced", "trace_records": 0, "noc": values["noc"] | {"arrivals": False}}
    untraced = ChipConfig.model_validate(values | silent)
    banked = _banked(random, f"{chip.name}_banked", values)
    return [chip, coded, untraced, banked, *([] if chip.programs else [_copying(random, chip), _least(random, chip)])]


def _least(random: Random, chip: ChipConfig) -> ChipConfig:
    """With few operations of the vector unit, or none, and none of what else may be left out."""
    values = chip.model_dump(mode="json", exclude_none=True)
    others = random.sample([op for op in VectorOperation if op is not VectorOperation.MAX], random.randint(0, 3))
    ops = random.choice(((), (VectorOperation.MAX, *others)))
    core = values["core"] | {"vec_ops": ops, "vec_whole": False}
    if not ops:
        core |= {"vec_table": False, "operand_sources": False}
    least = {"trace_records": 0, "reports": False, "fire_times": False, "memory_streams": False, "boot_host": True}
    name = {"name": f"{chip.name}_least", "noc": values["noc"] | {"arrivals": False}, "core": core}
    return ChipConfig.model_validate(values | least | name)


def _copying(random: Random, chip: ChipConfig) -> ChipConfig:
    """With routers that copy packets, in one dimension or both."""
    ways = [random.choice(pair) for pair in (("east", "west"), ("north", "south"))]
    directions = random.choice((ways[:1], ways[1:], ways))
    values = chip.model_dump(mode="json", exclude_none=True)
    noc = values["noc"] | {"data_vcs": 1, "route_hops": 0, "multicast": directions}
    return ChipConfig.model_validate(values | {"name": f"{chip.name}_copying", "noc": noc})


def _banked(random: Random, name: str, values: dict[str, Any]) -> ChipConfig:
    while True:
        banks = {
            "part": random.choice(built_in_parts()),
            "count": random.choice((1, 2, 4, 8, 16)),
            "row_bytes": random.choice((64, 128, 512, 2048)),
            "t_refi": random.choice((700.0, 1500.0, 3900.0)),
            "turn_after": random.choice((1, 3, 8)),
        }
        clock = random.choice((100, 200, 400, 800))
        try:
            return ChipConfig.model_validate(
                values | {"name": name, "clock_mhz": clock, "dram": values["dram"] | {"banks": banks}}
            )
        except ValidationError:  # a data bus that is slower than the channel, or no time between refreshes
            continue


def drafts(seed: int, count: int) -> Iterator[ChipConfig]:
    """Legal chips, each drawn by itself."""
    random = Random(f"drafts {seed}")
    for number in range(count):
        yield _draft(random, f"draft{seed}_{number}")


def choices(chip: ChipConfig) -> Mapping[str, str]:
    """What was chosen for each option, as text: numbers by what they change, not by size."""
    noc, dram, core = chip.noc, chip.dram, chip.core
    return {
        "lanes": str(chip.lanes),
        "array": "square" if chip.rows == chip.cols == chip.lanes else "tall" if chip.rows > chip.cols else "wide",
        "cores": str(len(chip.cores)),
        "channels": str(len(chip.channels)),
        "scratchpads": str(len(chip.spms)),
        "gaps": str(bool(chip.gaps)),
        "controller": "channel" if chip.controller_channel else str(chip.dtt is not None),
        "programs": str(bool(chip.programs)),
        "counters": str(chip.counters),
        "product_register": str(chip.product_register),
        "vec_windows": str(min(core.vec_windows, 3)),
        "vec_table": str(core.vec_table),
        "vec_whole": str(core.vec_whole),
        "channel_scales": str(core.channel_scales),
        "operand_sources": str(core.operand_sources),
        "int4": str(core.int4),
        "bandwidth": "a word" if dram.bytes_per_cycle == chip.lanes else "less",
        "whole_packets": str(dram.whole_packets),
        "arbitration": f"{dram.arbitration.value}{' with weights' if dram.weights else ''}",
        "data_vcs": str(noc.data_vcs),
        "data_depth": "least" if noc.data_depth == 2 else "more",
        "request_depth": "least" if noc.request_depth == 2 else "more",
        "data_routing": noc.data_routing.value,
        "route_hops": str(bool(noc.route_hops)),
        "arrivals": str(noc.arrivals),
        "mover_queue": "least" if chip.mover_queue == 1 else "more",
        "ring": str(chip.ring_instructions),
    }


def pairs_of(chip: ChipConfig) -> frozenset[PairOfChoices]:
    """All pairs of choices of a chip."""
    return frozenset(combinations(sorted(choices(chip).items()), 2))


def possible_pairs(chips: Iterable[ChipConfig]) -> frozenset[PairOfChoices]:
    """Each two choices for different options that some of the chips have, but for those that are excluded."""
    values = sorted({choice for chip in chips for choice in choices(chip).items()})
    pairs = frozenset(_pair(*both) for both in combinations(values, 2) if both[0][0] != both[1][0])
    return pairs.difference(*(each.pairs for each in EXCLUDED))


def _pair(first: tuple[str, str], second: tuple[str, str]) -> PairOfChoices:
    return (first, second) if first < second else (second, first)


def _draft(random: Random, name: str) -> ChipConfig:
    while True:
        try:
            return ChipConfig.model_validate(_values(random, name))
        except ValidationError:  # options that exclude each other: drawn anew
            continue


def _mixed(random: Random, chip: ChipConfig, crossed: set[PairOfChoices]) -> ChipConfig:
    """A chip with options of other drafts, wherever these cross more pairs anew."""
    for _ in range(MIXES):
        values = chip.model_dump(mode="json", exclude_none=True)
        try:
            mixed = ChipConfig.model_validate(_with_some(random, values, _values(random, chip.name)))
        except ValidationError:  # options that exclude each other
            continue
        if len(pairs_of(mixed) - crossed) > len(pairs_of(chip) - crossed):
            chip = mixed
    return chip


def _with_some(random: Random, values: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Values of which some are of the others; tables likewise, value by value."""
    result = dict(values)
    for option, value in others.items():
        if isinstance(value, dict):
            result[option] = _with_some(random, values[option], cast("dict[str, Any]", value))
        elif random.random() < MIXED:
            result[option] = value
    return result


_CORE_OPTIONS = ("vec_table", "vec_whole", "channel_scales", "operand_sources", "int4")


def _values(random: Random, name: str) -> dict[str, Any]:
    lanes = random.choice((4, 4, 8, 8, 16))
    square = random.random() < 0.4
    floorplan = [list(row) for row in _floorplan(random)]
    controller = any(TileKind.DTT in row for row in floorplan)
    gaps = any(TileKind.NONE in row for row in floorplan)
    arbitration = Arbitration.FIFO if controller else random.choice(list(Arbitration))
    cores = sum(row.count(TileKind.CORE) for row in floorplan)
    weighted = arbitration is Arbitration.WEIGHTED and random.random() < 0.7
    return {
        "name": name,
        "lanes": lanes,
        "rows": lanes if square else random.randint(2, lanes),
        "cols": lanes if square else random.randint(2, lanes),
        "floorplan": [" ".join(kind.value for kind in row) for row in floorplan],
        "core": {
            "a_words": random.choice((192, 256, 1000)),
            "b_words": random.choice((512, 777)),
            "acc_words": random.choice((130, 256)),
            "out_words": random.choice((160, 512)),
            "vec_words": random.choice((192, 512)),
            "vec_windows": random.randint(1, 5),
            **{each: random.random() < 0.5 for each in _CORE_OPTIONS},
        },
        "spm_words": random.choice((512, 2000)),
        "dram": {
            "words": 1 << 16,
            "bytes_per_cycle": random.choice((lanes, random.randint(1, lanes))),
            "latency": random.choice((1, 7, 40, 99)),
            "whole_packets": random.random() < 0.5,
            "arbitration": arbitration.value,
            "weights": [random.randint(1, MOST_WEIGHT) for _ in range(cores * weighted)],
        },
        "noc": {
            "data_depth": random.choice((2, 3, 4, 8)),
            "request_depth": random.choice((2, 3, 4)),
            "post_depth": random.choice((2, 3)),
            "data_vcs": random.randint(1, 4),
            "data_routing": random.choice(("xy", "yx")),
            "route_hops": 0 if gaps else random.choice((0, 3, 5, 23)),
            "arrivals": random.random() < 0.5,
        },
        "semaphores": random.choice((32, 48, 64)),
        "ring_instructions": random.choice((4, 8, 32)),
        "controller_instructions": random.choice((8, 64)),
        "controller_channel": controller and random.random() < 0.4,
        "mover_queue": random.choice((1, 2, 5, 8)),
        "programs": 0 if controller else random.choice((0, 0, 1, 3)),
        "counters": random.random() < 0.5,
        "product_register": random.random() < 0.5,
    }


def _floorplan(random: Random) -> Iterator[list[TileKind]]:
    while True:
        width, height = random.randint(2, WIDEST), random.randint(1, HIGHEST)
        tiles = [
            TileKind.HOST,
            *[TileKind.CORE] * random.randint(1, MOST_CORES),
            *[TileKind.DRAM] * random.randint(1, 3),
            *[TileKind.SPM] * random.randint(0, 2),
            *[TileKind.DTT] * (random.random() < 0.3),
        ]
        room = width * height - len(tiles)
        if 0 <= room <= 2:
            break
    tiles += [TileKind.NONE] * room
    random.shuffle(tiles)
    for y in range(height):
        yield tiles[y * width : (y + 1) * width]
