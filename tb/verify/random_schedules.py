"""Random schedules: valid operations that overlap a lot, between all memories of any chip."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from meshloom.hw.spec.config import OFFSET_BITS, ChipConfig
from meshloom.hw.spec.isa import (
    OPERAND_WALKS,
    REQUANTISING,
    TWO_OPERANDS,
    WHOLE_PAIRS,
    WINDOWED,
    Pair,
    Region,
    VectorOp,
    YWalk,
    address,
)
from meshloom.sched.checker.channel_dependences import DependenceGraph
from meshloom.sched.ir.schedule import Gemm, Move, Operation, Schedule, ScheduleError, Span, Vec, memory_words
from meshloom.sched.ir.validation import validate
from meshloom.sched.program.routes import Route, default_route

from .random_programs import copied_ways, random_path

#: Memories between which operations move words.
DATA_REGIONS = (Region.MAIN, Region.B, Region.ACC, Region.OUT, Region.VEC)
#: Words of each DRAM tile that random operations use.
DATA_WORDS = 48


def schedule_of(operations: Sequence[Operation], chip: ChipConfig) -> Schedule:
    return Schedule(
        chip=chip.name, chip_digest=chip.digest, workload="random", scheduler="test", operations=tuple(operations)
    )


def random_vec(rng: Random) -> dict[str, int]:
    """Body of a VEC of any kind on small planes; not always one that the small chip takes."""
    op = rng.choice(list(VectorOp))
    in_w, rows = rng.randint(1, 3), rng.randint(1, 3)
    windowed, biased = op in WINDOWED, op in (VectorOp.MAC, VectorOp.SUM)
    pair = rng.choice(list(Pair)) if op is VectorOp.PAIR else Pair.MUL
    whole = windowed and rng.randrange(3) == 0
    if whole:
        windowed = biased = False
        pair = rng.choice([pair for known, pair in WHOLE_PAIRS if known is op])
    kernel_h, kernel_w = (rng.randint(1, 3), rng.randint(1, 3)) if windowed else (1, 1)
    scaled = op in REQUANTISING or (op is VectorOp.PAIR and pair is Pair.MUL)
    return {
        "op": op, "x_out": rng.randrange(2) if op not in (*TWO_OPERANDS, VectorOp.REQUANT) else 0,
        "x_base": rng.randrange(4 if op == VectorOp.REQUANT else 10), "x_plane": in_w * rows, "in_w": in_w,
        "blocks": rng.randint(1, 2), "kernel_h": kernel_h, "kernel_w": kernel_w,
        "stride_h": rng.randint(1, 2), "stride_w": rng.randint(1, 2),
        "dilation": rng.randint(1, 2), "pad_top": rng.randrange(3), "pad_left": rng.randrange(3),
        "out_w": rng.randint(1, 3), "pixels": rng.randint(1, 5), "y_base": rng.randrange(8),
        "addend": rng.randrange(2) if biased else 0, "addend_base": rng.randrange(8), "dest_base": rng.randrange(12),
        "scale": rng.randrange(1 << 16), "relu": rng.randrange(2), "clamp": rng.randrange(128),
        "pair": pair, "y_walk": rng.choice(OPERAND_WALKS) if op in TWO_OPERANDS else int(YWalk.WHOLE) * whole,
        "repeat": rng.randrange(4) if kernel_h == kernel_w == 1 and not whole else 0,
        "times16": rng.randrange(2) if scaled else 0,
    }  # fmt: skip


def copy_of_a(words: int) -> dict[str, int]:
    """Body of a VEC that copies the first words of A to VEC."""
    ones = dict.fromkeys(("blocks", "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation"), 1)
    sizes = dict.fromkeys(("x_plane", "in_w", "out_w", "pixels"), words)
    return ones | sizes | {"op": VectorOp.MAX, "clamp": 127}


def random_operations(rng: Random, chip: ChipConfig, count: int) -> list[Operation]:
    """Valid operations between all memories; they overlap a lot. Some moves go ways of their own where a chip has such,
    and none that let packets wait for each other in a circle."""
    places = [(t, r) for t in chip.tiles for r in DATA_REGIONS]
    places = [place for place in places if memory_words(chip, *place)]
    issuers = [tile for tile in chip.tiles if tile != chip.host]
    result: list[Operation] = []
    noc, dependences = chip.noc, DependenceGraph.of_chip(chip)

    def ways(source: int, target: int) -> dict[str, object]:
        channel = rng.randrange(noc.data_vcs) if noc.data_vcs > 1 and rng.random() < 0.5 else None
        route = None
        if noc.route_hops and rng.random() < 0.5:
            route = random_path(rng, chip.tiles, source, target, noc.route_hops)
        usual = default_route(chip, source, target)
        for path in (route, None) if route is not None else (None,):
            way = Route(usual.channel if channel is None else channel, usual.tiles if path is None else path)
            if dependences.admits(way):
                dependences.add(way, "random")
                return {"channel": channel, "route": path}
        return {}  # on that channel, other routes leave no room for the usual one

    def span(words: int) -> Span:
        tile, region = rng.choice(places)
        room = min(memory_words(chip, tile, region), DATA_WORDS)
        run = rng.choice((words, words, rng.randint(1, words)))
        return Span(tile=tile, address=address(region, rng.randrange(room)), run=run, stride=run + rng.randrange(3))

    while len(result) < count:
        if rng.random() < 0.7:
            words = rng.randint(1, 10)
            src, dst = span(words), span(words)
            issuer = rng.choice((src.tile, dst.tile, rng.choice(issuers)))
            op: Operation = Move(issuer=issuer, src=src, dst=dst, words=words, label=f"move {len(result)}")
            op = op.model_copy(update=ways(src.tile, dst.tile))
            region = dst.address >> OFFSET_BITS
            lines = [
                len(copied)
                for target, copied in copied_ways(chip, src.tile)
                if target == dst.tile and all(memory_words(chip, tile, Region(region)) for tile in copied)
            ]
            if lines and rng.random() < 0.6:
                op = op.model_copy(update={"copies": rng.choice(lines)})
        elif rng.random() < 0.4:
            op = Vec(core=rng.choice(chip.cores), fields=random_vec(rng), label=f"vec {len(result)}")
        else:
            in_w, rows = rng.randint(1, 3), rng.randint(1, 3)
            base, addend = rng.randrange(8), rng.randrange(3)
            fields = {
                "a_base": rng.randrange(20), "a_plane": in_w * rows, "in_w": in_w, "k_blocks": rng.randint(1, 2),
                "kernel_h": rng.randint(1, 2), "kernel_w": rng.randint(1, 2), "stride_h": 1, "stride_w": 1,
                "dilation": 1,
                "pad_top": rng.randrange(2), "pad_left": rng.randrange(2), "out_w": rng.randint(1, 3),
                "pixels": rng.randint(1, 4), "b_base": rng.randrange(24), "n_blocks": rng.randint(1, 2),
                "addend": addend, "addend_base": base, "to_acc": rng.randrange(2),
                "dest_base": base if addend == 2 else rng.randrange(10), "scale": rng.randrange(1 << 16),
                "relu": rng.randrange(2), "clamp": rng.randrange(128),
            }  # fmt: skip
            op = Gemm(core=rng.choice(chip.cores), fields=fields, label=f"gemm {len(result)}")
        try:
            validate(schedule_of([op], chip), chip)
        except ScheduleError:
            continue
        result.append(op)
    return result
