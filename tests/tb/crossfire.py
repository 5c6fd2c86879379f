"""Crossfire: all movers of a chip send at once, over ways and channels of all kinds, and nothing can stand still."""

from __future__ import annotations

from random import Random

from meshloom.hw.spec.config import ChipConfig, TileKind
from meshloom.hw.spec.isa import Addend, Opcode, Region, Unit
from meshloom.sched.checker.channel_dependences import DependenceGraph
from meshloom.sched.program.program import Instruction, Program, place
from meshloom.tb.devices.interface import Job
from meshloom.tb.verify.random_programs import random_route

from .hand_made import CODE, gemm, move, notify, sync

#: Where a MOVE may read and write, by kind of tile.
SOURCES = {
    TileKind.DRAM: (Region.MAIN,),
    TileKind.SPM: (Region.MAIN,),
    TileKind.CORE: (Region.OUT, Region.ACC, Region.VEC),
}
TARGETS = {
    TileKind.DRAM: (Region.MAIN,),
    TileKind.SPM: (Region.MAIN,),
    TileKind.CORE: (Region.MAIN, Region.B, Region.ACC, Region.OUT),
}


def stored(random: Random) -> dict[str, int]:
    """Where a product goes, and what is added to it before."""
    return {"to_acc": random.randint(0, 1), "addend": random.choice(list(Addend))}


def finished(chip: ChipConfig, tag: int, **wait: int) -> Instruction:
    """The end of a stream: tells the host."""
    return sync(tag, tile=chip.host, sem=0, n=1, **wait)


def moves(random: Random, chip: ChipConfig, owner: int, count: int, dependences: DependenceGraph) -> list[Instruction]:
    """A stream of random moves between any memories, pushed and pulled, now and then on a way of their own, now and
    then waiting for what it has sent."""
    code: list[Instruction] = []
    sent = 0
    places = [tile for tile in chip.tiles if tile != chip.host]
    for _ in range(count):
        source, target = random.choice(places), random.choice(places)
        src, dst = random.choice(SOURCES[chip.tiles[source]]), random.choice(TARGETS[chip.tiles[target]])
        words = random.choice((1, 2, 4, 8, 9, 16, 16, 33, 64, 100, random.randint(1, 200)))
        shape = {}
        for side in ("src", "dst"):
            if random.random() < 0.4:
                run = random.randint(-(-words // 20), 80)
                shape |= {f"{side}_run": run, f"{side}_stride": run + random.randint(0, 9)}
        if random.random() < 0.5 and (route := random_route(random, chip, source, target, dependences)) is not None:
            code.append(Instruction(Opcode.ROUTE, {"tag": len(code) + 1} | route))
        ends = (source, src, random.randint(0, 200)), (target, dst, random.randint(0, 200))
        sent += 1
        code.append(move(len(code) + 1, *ends, words, **shape, **notify(2, owner)))
        if random.random() < 0.2:
            code.append(sync(len(code) + 1, wait_sem=2, wait_n=sent))
            sent = 0
    if sent:
        code.append(sync(len(code) + 1, wait_sem=2, wait_n=sent))
    return [*code, finished(chip, len(code) + 1)]


def crossfire(seed: int, chip: ChipConfig, computing: bool, count: int = 14) -> Job:
    """Every mover at once; `computing`: beside matrix products, whose results take the write ports of ACC and OUT
    and whose addends take the read port of ACC."""
    random, dependences = Random(seed), DependenceGraph.of_chip(chip)
    movers = [tile for tile in chip.tiles if tile != chip.host]
    streams = {(tile, Unit.MOVER): moves(random, chip, tile, count, dependences) for tile in movers}
    if computing:
        products = [
            gemm(number + 1, random.randint(1, 40), random.randint(1, 3), **stored(random), post_sem=3, post_n=1)
            for number in range(30)
        ]
        streams[chip.cores[0], Unit.MATRIX] = [*products, finished(chip, 31, wait_sem=3, wait_n=len(products))]
    instructions = {key: tuple(code) for key, code in streams.items()}
    placed, boot = place(instructions, dict.fromkeys(chip.drams, CODE), chip)
    return Job(Program(chip.digest, placed, boot, {}), [], [], 100_000)
