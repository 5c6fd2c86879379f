"""Chips unlike those that ship: one of everything, none of what may be left out, and sizes at their ends."""

from __future__ import annotations

from random import Random
from typing import Any

from meshloom.hw.spec.config import ChipConfig

#: What most of them have: few words, so that small layers have to be cut.
_BASE: dict[str, Any] = {
    "lanes": 4,
    "floorplan": ["dram core", "host spm"],
    "spm_words": 600,
    "dram": {"bytes_per_cycle": 4, "words": 1 << 15},
    "core": {"a_words": 256, "b_words": 256, "acc_words": 64, "out_words": 96, "vec_words": 96, "vec_windows": 3},
}
_FEATURES = {"vec_table": True, "vec_whole": True, "channel_scales": True, "int4": True}
_TWO_BY_TWO = ["dram core core", "host core core", "spm spm dram"]
_COLUMN = ["dram", "core", "host", "core", "spm"]
_CONTROLLED = ["dram core core dtt", "host core core spm"]
_CODE_APART = ["dram core dtt", "host core dram"]

_CHANGES: dict[str, dict[str, Any]] = {
    "one_of_each": {},
    "features": {"core": _FEATURES},
    "no_scratchpad": {"floorplan": ["dram core", "host ."]},
    "one_core_many_drams": {"floorplan": ["dram dram dram", "dram core dram", "host dram spm"]},
    "two_by_two": {"floorplan": _TWO_BY_TWO},
    "eight_lanes": {"lanes": 8, "floorplan": _TWO_BY_TWO, "core": _FEATURES},
    "wide_words": {"lanes": 32, "floorplan": _TWO_BY_TWO, "dram": {"bytes_per_cycle": 32}, "core": {"b_words": 1024}},
    "widest_words": {"lanes": 128, "rows": 8, "cols": 8, "dram": {"bytes_per_cycle": 128}, "core": {"vec_words": 512}},
    "flat_array": {"lanes": 8, "rows": 2, "cols": 7},
    "tall_array": {"lanes": 8, "rows": 8, "cols": 1},
    "single_cell": {"lanes": 4, "rows": 1, "cols": 1},
    "two_channels": {"floorplan": _TWO_BY_TWO, "noc": {"data_vcs": 2, "data_depth": 2}},
    "four_channels": {"floorplan": _TWO_BY_TWO, "noc": {"data_vcs": 4, "data_routing": "yx"}},
    "slow_dram": {"dram": {"bytes_per_cycle": 1, "latency": 1000}},
    "odd_dram": {"lanes": 8, "dram": {"bytes_per_cycle": 5, "latency": 1, "whole_packets": True}},
    "tiny_scratchpad": {"floorplan": _TWO_BY_TWO, "spm_words": 1},
    "tiny_memories": {
        "core": {"a_words": 9, "b_words": 10, "acc_words": 2, "out_words": 4, "vec_words": 4, "vec_windows": 1}
    },
    "least_memories": {
        "core": {"a_words": 1, "b_words": 1, "acc_words": 1, "out_words": 1, "vec_words": 1, "vec_windows": 1}
    },
    "little_dram": {"dram": {"words": 512}},
    "least_dram": {"dram": {"words": 1}},
    "holes": {"floorplan": ["dram . core", ". host .", "core . spm"]},
    "row": {"floorplan": ["spm core dram core host core"]},
    "column": {"floorplan": [[kind] for kind in _COLUMN]},
    "few_semaphores": {"floorplan": _TWO_BY_TWO, "semaphores": 8},
    "short_rings": {"ring_instructions": 4, "mover_queue": 1, "trace_records": 16},
    "controller": {"floorplan": _CONTROLLED, "noc": {"route_hops": 5, "arrivals": True}},
    "controller_without_arrivals": {"floorplan": _CONTROLLED},
    "code_apart": {"floorplan": _CODE_APART, "controller_channel": True, "noc": {"arrivals": True}},
    "several_programs": {
        "floorplan": _TWO_BY_TWO,
        "programs": 4,
        "counters": True,
        "dram": {"arbitration": "round_robin"},
    },
    "everything": {
        "floorplan": _TWO_BY_TWO,
        "core": _FEATURES | {"operand_sources": True},
        "noc": {"arrivals": True, "data_vcs": 3},
        "product_register": True,
        "dram": {"bytes_per_cycle": 3, "whole_packets": True, "arbitration": "weighted", "weights": [2, 1, 5, 1]},
    },
}


def odd_chip(name: str) -> ChipConfig:
    """One of `ODD`."""
    fields: dict[str, Any] = {"name": name, **_BASE}
    for field, value in _CHANGES[name].items():
        fields[field] = fields[field] | value if isinstance(value, dict) and field in fields else value
    return ChipConfig.model_validate(fields)


#: Names of the chips that `odd_chip` makes.
ODD = tuple(_CHANGES)


def random_chip(random: Random) -> ChipConfig:
    """A chip of up to 4x4 positions, any of whose sizes may be the least."""
    width, height = random.choice(((3, 1), (1, 4), (2, 2), (3, 2), (3, 3), (4, 4)))
    others = random.choices(("core", "spm", "dram", "."), k=width * height - 3)
    kinds = random.sample(["dram", "core", "host", *others], k=width * height)
    lanes = random.choice((4, 4, 8, 16, 32, 128))

    def words(most: int) -> int:
        return random.choice((random.randint(1, 100), random.randint(100, most), most, most))

    values = {
        "name": "random",
        "lanes": lanes,
        "rows": random.randint(1, lanes),
        "cols": random.choice((1, random.randint(1, lanes), lanes)),
        "floorplan": [kinds[row * width : (row + 1) * width] for row in range(height)],
        "spm_words": random.choice((1, random.randint(1, 300), 4096)),
        "dram": {
            "words": random.choice((random.randint(1, 2000), 1 << 14, 1 << 14)),
            "bytes_per_cycle": random.randint(1, lanes),
            "latency": random.choice((1, 40, 1000)),
            "whole_packets": random.random() < 0.3,
        },
        "core": {
            **{name: words(4096) for name in ("a_words", "b_words")},
            **{name: words(1024) for name in ("acc_words", "out_words", "vec_words")},
            "vec_windows": random.randint(1, 8),
            **{name: random.random() < 0.5 for name in (*_FEATURES, "operand_sources")},
        },
        "noc": {
            "data_vcs": random.randint(1, 4),
            "data_routing": random.choice(("xy", "yx")),
            "route_hops": 0 if "." in kinds else random.choice((0, 3, width + height)),
            "arrivals": random.random() < 0.5,
        },
        "semaphores": random.choice((8, 16, 64)),
        "ring_instructions": random.choice((4, 32)),
        "mover_queue": random.choice((1, 8)),
        "trace_records": 16,
        "programs": random.choice((0, 0, 4)),
        "counters": random.random() < 0.2,
    }
    arbitration = random.choice(("fifo", "fifo", "round_robin", "weighted"))  # drawn last: all else is as before
    weights = [random.randint(1, 16) for kind in kinds if kind == "core"] if arbitration == "weighted" else []
    values["dram"] |= {"arbitration": arbitration, "weights": weights}
    return ChipConfig.model_validate(values)
