"""A small chip for random schedules, and what lowered programs must leave in its memories."""

from __future__ import annotations

import numpy as np

from meshloom.hw.spec.config import ChipConfig, CoreConfig, DramConfig
from meshloom.sched.ir.functional import Memories, execute
from meshloom.sched.ir.schedule import Schedule, memory_words
from meshloom.sched.program.program import Program
from meshloom.tb.verify.random_schedules import DATA_REGIONS

from .any_order import Interleaver


def small_chip(**changes: object) -> ChipConfig:
    values: dict[str, object] = {
        "name": "small",
        "lanes": 4,
        "cols": 3,
        "floorplan": ["dram core spm", "host core dram"],
        "core": CoreConfig(
            a_words=24, b_words=72, acc_words=10, out_words=16, vec_words=20, vec_table=True, vec_whole=True
        ),
        "spm_words": 40,
        "dram": DramConfig(words=65536, bytes_per_cycle=4),
        "semaphores": 64,
    }
    return ChipConfig.model_validate(values | changes)


def random_memories(seed: int, chip: ChipConfig) -> Memories:
    memories, rng = Memories(chip), np.random.default_rng(seed)
    for tile in chip.tiles:
        for region in DATA_REGIONS:
            if memory_words(chip, tile, region):
                held = memories.region(tile, region)[:512]
                held[:] = rng.integers(0, 256, held.shape, np.uint8)
    return memories


def same(wanted: Memories, found: Memories, program: Program) -> bool:
    """Equal in all words but those of the code."""
    code = min(stream.address for stream in (*program.streams, program.boot))
    stop = dict.fromkeys(wanted.chip.drams, code)
    return all(
        np.array_equal(held[: stop.get(tile)], found.region(tile, region)[: stop.get(tile)])
        for (tile, region), held in wanted.touched().items()
    )


def interleave(program: Program, chip: ChipConfig, data: int, seed: int) -> tuple[Memories, Interleaver]:
    memories = random_memories(data, chip)
    interleaver = Interleaver(program, memories, seed)
    interleaver.run()
    return memories, interleaver


def expected(schedule: Schedule, chip: ChipConfig, data: int) -> Memories:
    memories = random_memories(data, chip)
    execute(schedule.operations, memories)
    return memories
