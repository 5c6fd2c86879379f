"""Schedule -> Program: one instruction for each operation, dependences between streams as semaphore waits.

A MOVE belongs to the stream of its issuer's mover, a GEMM to that of its core's matrix unit, a VEC to that of its
vector unit; a unit without operations has no stream. A MOVE with its own route or channel follows a ROUTE, which is
issued even while the MOVE may have to wait. `waits` determines who waits for what and who posts it.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import SEMAPHORE_BITS, SEMAPHORE_MAX
from meshloom.hw.spec.isa import COMPUTES, Opcode, Unit

from ...ir.hazards import Dependence, Event, dependences, unit_of
from ...ir.schedule import Execution, Move, Operation, Schedule, ScheduleError
from ...ir.validation import validate
from ...program.program import OPERATIONS, Instruction, Program, ProgramError, end_post, next_tag, place, skips_of
from ...program.routes import route_fields
from ..extent import dram_ends
from .waits import Channel, Item, Key, Learnt, Numbers, Pass, Post, wanted

#: Posts that a channel may hold before its consumer must have taken one; at most `SEMAPHORE_MAX`.
POST_LIMIT = 192
#: Attempts to make do with the chip's semaphores. Behind the `_PATIENT`th each leaves one more of a crowded tile free:
#: streams that share fewer need more relays.
_PASSES, _PATIENT = 32, 12


def lower(
    schedule: Schedule,
    chip: ChipConfig,
    limit: int = POST_LIMIT,
    reserved: int = 0,
    needs: Sequence[tuple[Dependence, ...]] | None = None,
) -> Program:
    """The program of a triggered schedule. `limit`: most posts that a semaphore may hold, 2 to
    `contracts.SEMAPHORE_MAX`. `reserved`: the highest semaphores of each tile, which it leaves alone. `needs`: its
    dependences if they are known; then it is not validated, as a schedule must be before anything runs it.

    Raises ScheduleError if the schedule does not fit the chip or is timed (for those see `sched.lowering.programs`),
    ProgramError if its code does not fit after the tensors or a tile needs more semaphores than the chip has.
    """
    if needs is None:
        validate(schedule, chip)
    if schedule.execution != Execution.TRIGGERED:
        raise ScheduleError(
            f"schedule of {schedule.workload} is {schedule.execution}, not triggered: it has no semaphores; "
            "`sched.lowering.programs.program_of` makes its program"
        )
    if not 2 <= limit <= SEMAPHORE_MAX:
        raise ProgramError(f"limit = {limit} posts for a semaphore of {SEMAPHORE_BITS} bits; give 2..{SEMAPHORE_MAX}")
    operations = schedule.operations
    semaphores = chip.semaphores - reserved
    numbers = Numbers(operations, chip)
    if needs is None:
        needs = dependences(operations, chip, schedule.fences)
    some = wanted(operations, needs, numbers)
    learnt = Learnt(Pass(operations, some, chip, numbers, limit, Learnt()).consumers)
    passes = 0
    while True:  # one pass usually suffices: credits and handovers only add knowledge, so no post is added
        done = Pass(operations, some, chip, numbers, limit, learnt)
        crowded = _crowded(done, limit, learnt.before)
        short = {tile: count for tile, count in done.semaphores.items() if count > semaphores}
        if not crowded and not short:
            return _assemble(schedule, chip, numbers, done)
        passes += 1
        if passes == _PASSES:
            break
        learnt.before |= crowded
        for tile in short:
            if tile not in learnt.hubs and _relays(tile, done) + len(_streams(tile, done)) > semaphores:
                learnt.hubs.add(tile)
                for number in _streams(tile, done):  # they share what fewer relays leave
                    learnt.shares.pop(number, None)
            else:
                learnt.shares |= _share(tile, done, semaphores - max(0, passes - _PATIENT), learnt.shares)
        if learnt.shares:
            for (op, event), channel in done.slots.items():
                number = numbers.late[op] if event is Event.DELIVERED else numbers.early[op]
                learnt.posting.setdefault(op, set()).add((number, channel.consumer))
    tile, count = max(done.semaphores.items(), key=lambda item: item[1])
    raise ProgramError(
        f"tile {tile:#04x} needs {count} semaphores, chip {chip.name} has {semaphores}; raise semaphores "
        "(up to 64) or let fewer tiles exchange data with it"
    )


def _crowded(done: Pass, limit: int, before: dict[Key, list[int]]) -> dict[Key, list[int]]:
    """Channels that need credits and have more posts than in `before`: the operations that post."""
    posts: dict[Key, set[int]] = {}
    for key, channel in (*done.retired, *done.channels.items()):
        if key[0] >= 0:
            posts.setdefault(key, {*before.get(key, ())}).update(channel.posts)
    return {key: sorted(ops) for key, ops in posts.items() if len(ops) > max(limit, len(before.get(key, ())))}


def _relays(tile: int, done: Pass) -> int:
    """Semaphores of a tile that are for relays."""
    return sum(done.relays[number] for number, (at, _) in enumerate(done.numbers.streams) if at == tile)


def _streams(tile: int, done: Pass) -> list[int]:
    """Streams of a tile that need semaphores which are not for relays."""
    return [number for number, (at, _) in enumerate(done.numbers.streams) if at == tile and done.direct[number]]


def _share(tile: int, done: Pass, semaphores: int, shares: dict[int, int]) -> dict[int, int]:
    """Semaphores of each stream of a tile that are not for relays: as many as it wants, cutting the greediest."""
    streams = _streams(tile, done)
    left = semaphores - _relays(tile, done)
    shares_of: dict[int, int] = {}
    for rank, number in enumerate(sorted(streams, key=lambda number: done.direct[number])):
        limit = min(done.direct[number], shares.get(number, semaphores))
        shares_of[number] = max(1, min(limit, left // (len(streams) - rank)))
        left -= shares_of[number]
    return shares_of


def _assemble(schedule: Schedule, chip: ChipConfig, numbers: Numbers, done: Pass) -> Program:
    operations = schedule.operations
    syncs = len(operations)
    codes: dict[tuple[int, Unit], tuple[Instruction, ...]] = {}
    skips: dict[tuple[int, int, int], int] = {}
    for number, items in enumerate(done.items):
        if not items:
            continue
        code: list[Instruction] = []
        for item in (*items, Item(-1, done.ends.get(number, []), None)):
            for channel in item.waits[:-1]:
                code.append(Instruction(Opcode.SYNC, {"tag": next_tag(syncs)} | _wait(channel)))
                syncs += 1
            header = _wait(item.waits[-1]) if item.waits else {}
            if item.op >= 0:
                if route := _route(operations[item.op], chip):
                    code.append(Instruction(Opcode.ROUTE, {"tag": next_tag(syncs)} | route))
                    syncs += 1
                header["tag"] = next_tag(item.op)
                code.append(_operation(item.op, operations[item.op], header, done.slots))
                continue
            header["tag"] = next_tag(syncs)
            syncs += 1
            if item.post is not None:
                header |= {"tile": item.post.tile, "sem": item.post.semaphore, "n": 1}
            code.append(Instruction(Opcode.SYNC, header))
        last = code.pop()
        code.append(Instruction(Opcode.SYNC, last.fields | end_post(len(codes), chip)))
        stream = numbers.streams[number]
        codes[stream] = tuple(code)
        turns = iter([item.op for item in items if item.op >= 0])
        skips |= skips_of(stream, [next(turns) if one.opcode in OPERATIONS else None for one in code])
    streams, boot = place(codes, dram_ends(schedule, chip), chip)
    tags = {next_tag(index): index for index in range(len(operations))}
    return Program(chip.digest, streams, boot, tags, skips)


def _wait(channel: Channel) -> dict[str, int]:
    return {"wait_sem": channel.semaphore, "wait_n": 1}


def _route(op: Operation, chip: ChipConfig) -> dict[str, int]:
    """Body fields of the ROUTE that an operation needs; empty if it needs none."""
    if not isinstance(op, Move):
        return {}
    # chips with one channel have no ROUTE for it
    channel = None if op.channel == chip.channel_of(op.dst.tile) else op.channel
    return route_fields(chip, op.route, channel)


def _operation(index: int, op: Operation, header: dict[str, int], slots: dict[Post, Channel]) -> Instruction:
    early = slots.get((index, Event.READ if isinstance(op, Move) else Event.COMPLETE))
    if early is not None:
        header |= {"post_sem": early.semaphore, "post_n": 1}
    if not isinstance(op, Move):
        return Instruction(COMPUTES[unit_of(op)], header | op.body)
    if (delivered := slots.get((index, Event.DELIVERED))) is not None:
        header |= {"notify_tile": delivered.tile, "notify_sem": delivered.semaphore, "notify": 1}
    return Instruction(Opcode.MOVE, header | op.body)
