"""Random instructions and random programs, from the tables of `hw.spec.isa`, for tests."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from dataclasses import field as field_of
from random import Random

from meshloom.hw.spec.config import ChipConfig, TileKind, tile_address, tile_position
from meshloom.hw.spec.isa import (
    COMPUTES,
    FETCH_TAG,
    INSTRUCTIONS,
    OPERAND_WALKS,
    REQUANTISING,
    SCALED_BIAS_WORDS,
    TWO_OPERANDS,
    WHOLE_PAIRS,
    WINDOWED,
    Opcode,
    Pair,
    Region,
    Unit,
    VectorOp,
    YWalk,
    address,
    units_of,
    vector_ops,
)
from meshloom.hw.spec.routes import NEIGHBOURS, RouteError
from meshloom.hw.spec.timing import table_words, weight_words
from meshloom.sched.checker.channel_dependences import DependenceGraph
from meshloom.sched.program.program import Instruction, Program, Stream, end_post, place
from meshloom.sched.program.routes import copied_tiles, default_route, route_fields, route_of

#: Words of each memory that one thread of a random program uses; of VEC as many as a TRANSPOSE writes, if that is more.
SLICE = 64
#: Longest side of a random output map; larger ones only cost cycles.
SIDE = 6
#: Units of a core.
_UNITS = 3


def random_instruction(random: Random, opcode: Opcode | None = None) -> Instruction:
    """An instruction whose every field is anything that fits. It encodes and decodes; no chip need like it.

    Small and extreme values are as likely as all the others together.
    """
    opcode = opcode if opcode is not None else random.choice(list(Opcode))
    fields: dict[str, int] = {}
    for field in INSTRUCTIONS[opcode].fields:
        if field.name == "opcode":
            continue
        top = (1 << field.width) - 1
        fields[field.name] = random.choice((0, 1, top, random.randint(0, top), random.randint(0, top)))
    return Instruction(opcode, {name: value for name, value in fields.items() if value})


def random_move(random: Random, src: tuple[int, int], dst: tuple[int, int], room: int) -> dict[str, int]:
    """Body of a MOVE between two slices of `room` words each; `src`, `dst` = (tile, word address of the slice)."""
    words = random.randint(1, room)
    fields = {"words": words}
    for name, (tile, start) in (("src", src), ("dst", dst)):
        run = random.randint(1, words)
        count = -(-words // run)
        spare = room - (count * run if count > 1 else words)
        if spare < 0:
            run, count, spare = words, 1, room - words
        gap = random.randint(0, spare // (count - 1)) if count > 1 else random.choice((0, 3))
        slack = room - ((count - 1) * (run + gap) + (words - (count - 1) * run))
        fields |= {
            f"{name}_tile": tile,
            name: start + random.randint(0, slack),
            f"{name}_run": run,
            f"{name}_stride": run + gap,
        }
    return fields


def random_path(random: Random, tiles: Collection[int], source: int, target: int, hops: int) -> tuple[int, ...] | None:
    """A path of at most `hops` hops that visits none of the `tiles` twice, as chance leads it, or None."""
    path = [source]
    while path[-1] != target and len(path) <= hops:
        x, y = tile_position(path[-1])
        there = (tile_address(x + dx, y + dy) for dx, dy in NEIGHBOURS.values() if x + dx >= 0 and y + dy >= 0)
        free = [tile for tile in there if tile in tiles and tile not in path]
        if not free:
            return None
        path.append(random.choice(free))
    return tuple(path) if len(path) > 1 and path[-1] == target else None


def random_route(
    random: Random, chip: ChipConfig, source: int, target: int, dependences: DependenceGraph, tries: int = 8
) -> dict[str, int] | None:
    """Body of a ROUTE for a MOVE between two tiles, on any channel and now and then along any path, that makes no
    cycle with the routes in `dependences`, where it is added. None on a chip without routes to choose from, or if
    chance finds none in `tries`."""
    noc = chip.noc
    if noc.data_vcs == 1 and not noc.route_hops:
        return None
    for _ in range(tries):
        fields = {"channel": number} if (number := random.randint(0, noc.data_vcs)) else {}
        if noc.route_hops and random.random() < 0.7:
            path = random_path(random, chip.tiles, source, target, noc.route_hops)
            if path is None:
                continue
            fields |= route_fields(chip, path, None)
        route = route_of(chip, source, target, fields)
        if dependences.admits(route):
            dependences.add(route, "random")
            return fields
    return None


def random_gemm(random: Random, chip: ChipConfig, slices: dict[Region, int], room: dict[Region, int]) -> dict[str, int]:
    """Body of a GEMM that stays inside slices of a core's memories (first word and words; ACC in words of P int32)."""
    while True:
        kernel_h, kernel_w = random.randint(1, 3), random.randint(1, 3)
        k_blocks, n_blocks = random.randint(1, 2), random.randint(1, 2)
        in_w, rows = random.randint(1, SIDE), random.randint(1, SIDE)
        out_w = random.randint(1, SIDE)
        pixels = random.randint(1, out_w * SIDE)
        windows = k_blocks * kernel_h * kernel_w
        results = n_blocks * pixels
        to_acc = random.random() < 0.4
        if (
            k_blocks * in_w * rows <= room[Region.MAIN]
            and n_blocks * windows * chip.cols <= room[Region.B]
            and results <= room[Region.ACC if to_acc else Region.OUT]
        ):
            break
    addend = random.choice((0, 1, 2))
    limit = {0: 0, 1: n_blocks, 2: results}[addend]
    if limit > room[Region.ACC] or (to_acc and addend == 1):
        addend = limit = 0
    dest = slices[Region.ACC if to_acc else Region.OUT]
    dest += random.randint(0, room[Region.ACC if to_acc else Region.OUT] - results)
    addend_base = slices[Region.ACC] + random.randint(0, room[Region.ACC] - limit)
    int4 = int(chip.core.int4 and windows % 2 == 0 and chip.cols > 1 and random.random() < 0.5)
    weights = weight_words(windows, chip.cols, bool(int4))
    scales, pairs = 0, SCALED_BIAS_WORDS * n_blocks
    possible = (addend == 1 or (addend == 2 and (to_acc or windows > 1))) and pairs <= room[Region.ACC]
    by_channel = int(chip.core.channel_scales and possible and random.random() < 0.5)
    if by_channel:
        scales = slices[Region.ACC] + random.randint(0, room[Region.ACC] - pairs + 1)
        addend_base = slices[Region.ACC] + random.randint(0, room[Region.ACC] - pairs) if addend == 1 else addend_base
    return {
        "by_channel": by_channel,
        "int4": int4,
        "a_base": slices[Region.MAIN] + random.randint(0, room[Region.MAIN] - k_blocks * in_w * rows),
        "a_plane": in_w * rows,
        "in_w": in_w,
        "k_blocks": k_blocks,
        "kernel_h": kernel_h,
        "kernel_w": kernel_w,
        "stride_h": random.randint(1, 2),
        "stride_w": random.randint(1, 2),
        "dilation": random.randint(1, 2),
        "pad_top": random.randint(0, 2),
        "pad_left": random.randint(0, 2),
        "out_w": out_w,
        "pixels": pixels,
        "b_base": slices[Region.B] + random.randint(0, room[Region.B] - n_blocks * weights),
        "n_blocks": n_blocks,
        "addend": addend,
        "addend_base": dest if addend == 2 and to_acc else addend_base if addend else 0,
        "to_acc": int(to_acc),
        "dest_base": dest,
        "scale": scales if by_channel else random.randint(0, 0xFFFF),
        "relu": random.randint(0, 1),
        "clamp": random.choice((127, random.randint(1, 127))),
    }


def random_vec(random: Random, chip: ChipConfig, slices: dict[Region, int], room: dict[Region, int]) -> dict[str, int]:
    """Body of a VEC of any kind that stays inside slices of a core's memories (as for `random_gemm`)."""
    # Long, but flat: each field is drawn within what those before it leave.
    while True:
        op = random.choice(vector_ops(chip.core))
        windowed = op in WINDOWED
        x_out = random.randint(0, 1) if op not in (*TWO_OPERANDS, VectorOp.REQUANT) else 0
        x = Region.ACC if op is VectorOp.REQUANT else Region.OUT if x_out else Region.MAIN
        kernel_h, kernel_w = (random.randint(1, 4), random.randint(1, 4)) if windowed else (1, 1)
        blocks = random.randint(1, 3)
        in_w, rows, out_w = (random.randint(1, SIDE) for _ in range(3))
        pixels = random.randint(1, out_w * SIDE)
        taps, results = kernel_h * kernel_w, blocks * pixels
        pair = random.choice(list(Pair)) if op is VectorOp.PAIR else Pair.MUL
        y_walk = random.choice(OPERAND_WALKS) if op in TWO_OPERANDS else YWalk.EACH
        operand = Region.OUT, {YWalk.EACH: results, YWalk.BLOCK: blocks, YWalk.PIXEL: pixels}.get(y_walk, 0)
        whole = chip.core.vec_whole and taps == 1 and windowed
        if whole:
            y_walk, pair = YWalk.WHOLE, random.choice([pair for vector_op, pair in WHOLE_PAIRS if vector_op is op])
        second = {
            VectorOp.MAC: None if whole else (Region.B, blocks * taps),
            VectorOp.TABLE: (Region.B, table_words(chip)),
            VectorOp.ADD: operand,
            VectorOp.PAIR: operand,
        }.get(op)
        if op is VectorOp.TRANSPOSE:
            results = blocks * -(-pixels // chip.lanes) * chip.lanes
        if (
            blocks * in_w * rows <= room[x]
            and results <= room[Region.VEC]
            and (second is None or second[1] <= room[second[0]])
        ):
            break
    scaled = op in REQUANTISING or (op is VectorOp.PAIR and pair is Pair.MUL)
    biased = op in (VectorOp.MAC, VectorOp.SUM) and not whole and blocks <= room[Region.ACC]
    addend = random.randint(0, 1) if biased else 0
    pairs = SCALED_BIAS_WORDS * blocks
    possible = op is VectorOp.MAC and addend and taps > 1 and pairs <= room[Region.ACC]
    by_channel = int(chip.core.channel_scales and possible and random.random() < 0.7)

    def base(region: Region, words: int) -> int:
        return slices[region] + random.randint(0, room[region] - words)

    return {
        "by_channel": by_channel,
        "op": int(op),
        "x_out": x_out,
        "x_base": base(x, blocks * in_w * rows),
        "x_plane": in_w * rows,
        "in_w": in_w,
        "blocks": blocks,
        "kernel_h": kernel_h,
        "kernel_w": kernel_w,
        "stride_h": random.randint(1, 3),
        "stride_w": random.randint(1, 3),
        "dilation": random.randint(1, 2),
        "pad_top": random.randint(0, 3),
        "pad_left": random.randint(0, 3),
        "out_w": out_w,
        "pixels": pixels,
        "y_base": base(*second) if second else 0,
        "addend": addend,
        "addend_base": base(Region.ACC, pairs if by_channel else blocks) if addend else 0,
        "dest_base": base(Region.VEC, results),
        "scale": base(Region.ACC, pairs - 1) if by_channel else random.randint(0, 0xFFFF),
        "relu": random.randint(0, 1),
        "clamp": random.choice((127, random.randint(0, 127))),
        "pair": int(pair),
        "y_walk": int(y_walk),
        "repeat": random.choice((0, random.randint(0, 3))) if taps == 1 and not whole else 0,
        "times16": random.randint(0, 1) if scaled else 0,
    }


def _copy(first: int, dest: int, words: int) -> dict[str, int]:
    """Body of a VEC that copies words of A to VEC."""
    ones = dict.fromkeys(("in_w", "blocks", "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation", "out_w"), 1)
    sizes = {"x_base": first, "x_plane": words, "pixels": words, "dest_base": dest}
    return ones | sizes | {"op": int(VectorOp.MAX), "clamp": 127}


@dataclass
class _Thread:
    """A row of operations, each of which waits for the one before; `token` says which semaphore holds its token."""

    number: int
    core: int
    slices: dict[int, dict[Region, int]]
    token: tuple[int, Unit] | None = None
    #: Memories of other cores that hold copies of words.
    copied: list[tuple[int, Region]] = field_of(default_factory=list[tuple[int, Region]])


class _Builder:
    """Instructions per stream, while they grow."""

    def __init__(self, random: Random, chip: ChipConfig) -> None:
        self.random, self.chip = random, chip
        self.codes: dict[tuple[int, Unit], list[Instruction]] = {}
        self.tag = 0
        self.units = units_of(chip, TileKind.CORE)
        self.dependences = DependenceGraph.of_chip(chip)

    def add(self, at: int, unit: Unit, opcode: Opcode, /, **fields: int) -> None:
        """Appends an instruction with the next tag."""
        self.tag = self.tag % (FETCH_TAG - 1) + 1
        self.codes.setdefault((at, unit), []).append(Instruction(opcode, {"tag": self.tag, **fields}))

    def semaphore(self, thread: _Thread, unit: Unit) -> int:
        """The semaphore on which a unit waits for a thread's token; 0 is the host's."""
        return 1 + _UNITS * thread.number + int(unit)

    def take(self, thread: _Thread, tile: int, unit: Unit) -> dict[str, int]:
        """Header fields that wait for the thread's token, having sent it to this tile and unit if need be."""
        if thread.token is None:
            return {}
        if thread.token != (tile, unit):
            at, holder = thread.token
            wait = {"wait_sem": self.semaphore(thread, holder), "wait_n": 1}
            self.add(at, holder, Opcode.SYNC, **wait, tile=tile, sem=self.semaphore(thread, unit), n=1)
        return {"wait_sem": self.semaphore(thread, unit), "wait_n": 1}

    def move(self, thread: _Thread, issuer: int, body: dict[str, int]) -> None:
        """A MOVE of the thread; its landing is the new token."""
        goal, unit = self.random.choice([(issuer, Unit.MOVER), *((thread.core, unit) for unit in self.units[1:])])
        wait = self.take(thread, issuer, Unit.MOVER)
        steered = self.chip.noc.data_vcs > 1 or self.chip.noc.route_hops > 0
        if steered and self.random.random() < 0.5:
            route = random_route(self.random, self.chip, body["src_tile"], body["dst_tile"], self.dependences)
            if route is not None:
                first = self.random.random() < 0.5  # who waits
                self.add(issuer, Unit.MOVER, Opcode.ROUTE, **(wait if first else {}), **route)
                wait = {} if first else wait
                if self.random.random() < 0.2:
                    self.add(issuer, Unit.MOVER, Opcode.SYNC)
        notify = {"notify": 1, "notify_tile": goal, "notify_sem": self.semaphore(thread, unit)}
        self.add(issuer, Unit.MOVER, Opcode.MOVE, **wait, **body, **notify)
        thread.token = (goal, unit)

    def compute(self, thread: _Thread, unit: Unit, body: dict[str, int]) -> None:
        """A GEMM or VEC of the thread; its completion is the new token."""
        wait = self.take(thread, thread.core, unit)
        goal = self.random.choice(self.units)
        post = {"post_sem": self.semaphore(thread, goal), "post_n": 1}
        self.add(thread.core, unit, COMPUTES[unit], **wait, **body, **post)
        thread.token = (thread.core, goal)


def _sizes(chip: ChipConfig, threads: int) -> tuple[dict[Region, int], dict[int, int]]:
    """Words of a thread's slice of each memory of a core (ACC: P int32), and of each tile outside of the cores: a DRAM
    tile holds what a core's largest slice does, a scratchpad as much as it has room for. Raises ValueError when the
    chip has too few words for the threads."""
    core = chip.core
    # B holds one array's worth of weights for 3x3 taps if it can.
    sizes = {
        Region.MAIN: min(SLICE, core.a_words // threads),
        Region.B: min(9 * chip.cols, core.b_words // threads),
        Region.ACC: min(SLICE // 4, core.acc_words // threads),
        Region.OUT: min(SLICE, core.out_words // threads),
    }
    if core.has_vector:
        sizes[Region.VEC] = min(max(SLICE, chip.lanes), core.vec_words // threads)
    big = max(max(sizes.values()), 4 * sizes[Region.ACC])
    small = min(sizes[Region.B], sizes.get(Region.VEC, chip.lanes)) < chip.lanes or min(sizes.values()) < 4
    if small or threads * big > chip.dram.words:
        raise ValueError(f"{threads} threads leave too few words per memory of {chip.name}: use fewer threads")
    outside = dict.fromkeys(chip.drams, big)
    if bank := min(big, chip.spm_words // threads):
        outside = dict.fromkeys(chip.spms, bank) | outside
    return sizes, outside


def _slices(
    chip: ChipConfig, thread: int, sizes: dict[Region, int], outside: dict[int, int]
) -> dict[int, dict[Region, int]]:
    """First word of the thread's slice of each memory of each tile. `sizes`, `outside`: as from `_sizes`."""
    cores = {tile: {region: thread * size for region, size in sizes.items()} for tile in chip.cores}
    return cores | {tile: {Region.MAIN: thread * size} for tile, size in outside.items()}


def copied_ways(chip: ChipConfig, source: int) -> list[tuple[int, tuple[int, ...]]]:
    """Cores and scratchpads to which a MOVE of `source` can go, with those before them that can take its words, too."""
    ways: list[tuple[int, tuple[int, ...]]] = []
    for target in (*chip.cores, *chip.spms) if chip.noc.multicast else ():
        path = default_route(chip, source, target).tiles
        for copies in range(1, len(path) - 1):
            try:
                ways.append((target, copied_tiles(chip, path, copies)))
            except RouteError:
                break
    return ways


def _between_cores(chip: ChipConfig, source: int) -> list[tuple[int, tuple[int, ...]]]:
    """Those of them that lead to cores only."""
    cores = set(chip.cores)
    return [(target, copied) for target, copied in copied_ways(chip, source) if {target, *copied} <= cores]


def random_program(random: Random, chip: ChipConfig, operations: int, threads: int = 2) -> Program:
    """A program that passes `check`: `threads` rows of `operations` random MOVEs, GEMMs and VECs each, every row in
    order and apart from the others, so that streams interleave but nothing races.

    Uses the low words of every memory; all DRAM below the code counts as loaded. Raises ValueError when the chip has
    too few semaphores or words for the threads, or a vector unit that cannot copy.
    """
    if chip.core.has_vector and VectorOp.MAX not in vector_ops(chip.core):
        raise ValueError(f"random programs fill VEC by MAX, which {chip.name} has not: add 'max' to core.vec_ops")
    if _UNITS * threads >= chip.semaphores:
        raise ValueError(f"{threads} threads need {_UNITS * threads + 1} semaphores, {chip.name} has {chip.semaphores}")
    builder = _Builder(random, chip)
    sizes, outside = _sizes(chip, threads)
    rows = [_Thread(i, random.choice(chip.cores), _slices(chip, i, sizes, outside)) for i in range(threads)]
    room = {region: 4 * words if region is Region.ACC else words for region, words in sizes.items()}
    memories = [(tile, Region.MAIN) for tile in outside]
    spms = [place for place in memories if place[0] in chip.spms]

    def slot(thread: _Thread, tile: int, region: Region) -> tuple[int, int]:
        start = thread.slices[tile][region]
        return tile, address(region, 4 * start if region is Region.ACC else start)

    def words_of(place: tuple[int, Region]) -> int:
        return outside.get(place[0], room[place[1]])

    def issuer(thread: _Thread, source: int) -> int:
        return random.choice([source, thread.core] if units_of(chip, chip.tiles[source]) else [thread.core])

    goals = [region for region in room if region is not Region.VEC]
    results = [region for region in (Region.ACC, Region.OUT, Region.VEC) if region in room]
    for thread in rows:  # every word is written before anything reads
        for tile, region in [(thread.core, region) for region in goals] + spms:
            words = room[region] if tile == thread.core else outside[tile]
            source = random.choice(chip.drams)
            body: dict[str, int] = {"words": words}
            for name, (at, start) in (
                ("src", slot(thread, source, Region.MAIN)),
                ("dst", slot(thread, tile, region)),
            ):
                body |= {f"{name}_tile": at, name: start, f"{name}_run": words}
            builder.move(thread, issuer(thread, source), body)
        mine, size = thread.slices[thread.core], room.get(Region.VEC, 0)
        for at in range(0, size, room[Region.MAIN]):
            count = min(size - at, room[Region.MAIN])
            builder.compute(thread, Unit.VECTOR, _copy(mine[Region.MAIN], mine[Region.VEC] + at, count))
        if chip.noc.multicast and (ways := _between_cores(chip, source := random.choice(chip.drams))):
            (tile, copied), region = random.choice(ways), random.choice(goals)
            ends = {"src": slot(thread, source, Region.MAIN), "dst": slot(thread, tile, region)}
            body = {"words": room[region], "copies": len(copied)}
            for name, (at, start) in ends.items():
                body |= {f"{name}_tile": at, name: start, f"{name}_run": room[region]}
            builder.move(thread, issuer(thread, source), body)
            thread.copied = [(one, region) for one in (tile, *copied)]
    for _ in range(operations):
        for thread in random.sample(rows, len(rows)):
            unit = random.choice(builder.units)
            if unit is not Unit.MOVER:
                make = random_gemm if unit is Unit.MATRIX else random_vec
                builder.compute(thread, unit, make(random, chip, thread.slices[thread.core], sizes))
                continue
            operands = (Region.MAIN, Region.B) if chip.core.operand_sources else ()
            core = [(thread.core, region) for region in (*operands, *results)]
            readable = [place for place in thread.copied if place[1] in operands or place[1] >= Region.ACC]
            src = random.choice(memories + core + readable)
            if chip.noc.multicast and random.random() < 0.4 and (ways := _between_cores(chip, src[0])):
                (tile, copied), region = random.choice(ways), random.choice(goals)
                space = min(words_of(src), room[region])
                body = random_move(random, slot(thread, *src), slot(thread, tile, region), space)
                builder.move(thread, issuer(thread, src[0]), body | {"copies": len(copied)})
                continue
            places = [*memories, *((thread.core, region) for region in goals)]
            dst = random.choice([place for place in places if place != src])
            space = min(words_of(src), words_of(dst))
            body = random_move(random, slot(thread, *src), slot(thread, *dst), space)
            builder.move(thread, issuer(thread, src[0]), body)
    for thread in rows:
        if thread.token is not None:
            tile, unit = thread.token
            builder.add(tile, unit, Opcode.SYNC, **builder.take(thread, tile, unit))
    for number, (tile, unit) in enumerate(builder.codes):
        builder.add(tile, unit, Opcode.SYNC, **end_post(number, chip))
    streams, boot = _placed(builder, chip, threads * outside[chip.drams[0]])
    return Program(chip.digest, streams, boot, {})


def with_fire_times(random: Random, program: Program, chip: ChipConfig, share: float = 0.1) -> Program:
    """The program with a fire time for a `share` of its instructions, none of them late when the chip runs it.

    The model says when an instruction is ready, which is less some cycles later when others wait for their time: so a
    time that turns out too early is moved on until none is. Raises ModelError for a program that hangs. Without
    `ChipConfig.fire_times` it stays as it is.
    """
    from meshloom.sched.model.frontend import LateError
    from meshloom.sched.model.timeline import play

    if not chip.fire_times:
        return program
    end = play(program, chip).cycles
    streams = {(stream.tile, stream.unit): list(stream.instructions) for stream in program.streams}

    def timed(key: tuple[int, Unit], position: int, fire: int) -> None:
        instruction = streams[key][position]
        streams[key][position] = Instruction(instruction.opcode, instruction.fields | {"fire_at": fire})

    for key, code in streams.items():
        for position in range(len(code)):
            if random.random() < share:
                timed(key, position, random.randint(1, end))
    while True:
        result = tuple(replace(s, instructions=tuple(streams[s.tile, s.unit])) for s in program.streams)
        changed = replace(program, streams=result)
        try:
            play(changed, chip)
        except LateError as late:
            timed((late.stream.tile, late.stream.unit), late.position, late.cycle + random.choice((0, 0, 1, 40)))
        else:
            return changed


def _placed(builder: _Builder, chip: ChipConfig, used: int) -> tuple[tuple[Stream, ...], Stream]:
    codes = {key: tuple(code) for key, code in builder.codes.items()}
    return place(codes, dict.fromkeys(chip.drams, used), chip)
