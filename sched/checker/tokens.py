"""Runs a program on tokens alone: semaphores count, nothing takes time. Finds hangs and the streams that cause them.

Every semaphore is consumed by one stream, and posts only add. So any order of running what can run leads to the same
end state: a program that hangs here hangs in every timing, and one that finishes here finishes in every timing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from meshloom.hw.spec.isa import Opcode

from ..program.names import Names
from .problems import Problems
from .static import DecodedInstruction
from .waitfor import Waiting, cycle_of, in_words

#: (tile, number) of a semaphore.
Semaphore = tuple[int, int]


class Poster(IntEnum):
    """The part of an instruction's execution that posts."""

    FRONT = 0  #: the stream's front end: a SYNC
    UNIT = 1  #: completion in the stream's own unit; for a forwarded MOVE, in the executing mover
    DELIVERED = 2  #: the notify of a MOVE


def posts_of(step: DecodedInstruction, tile: int) -> Iterator[tuple[Poster, Semaphore, int]]:
    """All posts of an instruction of a stream on `tile`."""
    fields = step.fields
    executing = fields["src_tile"] if step.opcode is Opcode.MOVE else tile
    if fields["post_n"]:
        who = Poster.FRONT if step.opcode is Opcode.SYNC else Poster.UNIT
        yield who, (executing, fields["post_sem"]), fields["post_n"]
    if step.opcode is Opcode.SYNC and fields["n"]:
        yield Poster.FRONT, (fields["tile"], fields["sem"]), fields["n"]
    if step.opcode is Opcode.MOVE and fields["notify"]:
        yield Poster.DELIVERED, (fields["notify_tile"], fields["notify_sem"]), 1


@dataclass(frozen=True)
class TokenRun:
    """`order`: (stream, position) of all instructions, in a possible order of execution. `left`: final values."""

    order: list[tuple[int, int]]
    left: dict[Semaphore, int]


def run_tokens(steps: Sequence[Sequence[DecodedInstruction]], names: Names, problems: Problems) -> TokenRun:
    """Runs until no stream can advance. Adds a problem per semaphore with several consumers, and per blocked stream."""
    tiles = [int(stream.tile) for stream in names.streams]
    number_of = {(int(stream.tile), int(stream.unit)): i for i, stream in enumerate(names.streams)}
    consumer: dict[Semaphore, int] = {}
    for stream, program in enumerate(steps):
        for position, step in enumerate(program):
            if step.fields["wait_n"]:
                key = (tiles[stream], step.fields["wait_sem"])
                if consumer.setdefault(key, stream) != stream:
                    what = f"waits on {names.semaphore(*key)}, and so does the {names.stream(consumer[key])}"
                    fix = "which of them gets a post is ambiguous: give each its own semaphore"
                    problems.add(names.instruction(stream, position), what, fix)
                    break
    _check_post_paths(steps, names, problems)
    problems.settle()

    value: dict[Semaphore, int] = {}
    position = [0] * len(steps)
    started = [number == 0 for number in range(len(steps))]
    order: list[tuple[int, int]] = []
    ready = [0]
    while ready:
        stream = ready.pop()
        program, tile = steps[stream], tiles[stream]
        while position[stream] < len(program):
            step = program[position[stream]]
            need = step.fields["wait_n"]
            if need:
                key = (tile, step.fields["wait_sem"])
                if value.get(key, 0) < need:
                    break
                value[key] -= need
            order.append((stream, position[stream]))
            position[stream] += 1
            for _, key, count in posts_of(step, tile):
                value[key] = value.get(key, 0) + count
                waiter = consumer.get(key, stream)
                if waiter != stream and started[waiter] and waiter not in ready:
                    ready.append(waiter)
            if step.opcode is Opcode.FETCH:
                target = number_of[step.fields["tile"], step.fields["unit"]]
                started[target] = True
                ready.append(target)
    _report_hang(steps, names, problems, position, started, value)
    return TokenRun(order, value)


def _check_post_paths(steps: Sequence[Sequence[DecodedInstruction]], names: Names, problems: Problems) -> None:
    """A stream's posts to its own tile by header and by SYNC's `n` take different paths and may overtake each other."""
    for stream, program in enumerate(steps):
        by_header: dict[int, bool] = {}
        for position, step in enumerate(program):
            fields = step.fields
            if step.opcode is not Opcode.SYNC:
                continue
            posts = [(fields["post_sem"], True)] if fields["post_n"] else []
            if fields["n"] and fields["tile"] == names.streams[stream].tile:
                posts.append((fields["sem"], False))
            for semaphore, header in posts:
                if by_header.setdefault(semaphore, header) != header:
                    what = f"posts semaphore {semaphore} of its own tile, which other SYNCs here post with other fields"
                    problems.add(names.instruction(stream, position), what, "use post_sem for all of them")
                    break


def _report_hang(
    steps: Sequence[Sequence[DecodedInstruction]],
    names: Names,
    problems: Problems,
    position: list[int],
    started: list[bool],
    value: dict[Semaphore, int],
) -> None:
    """Adds one problem per stream stuck at a wait, and one for a cycle of streams that wait on each other: what each
    waits for, and which later instruction of the next stream would post it."""
    tiles = [int(stream.tile) for stream in names.streams]
    # The first instruction that would still post each semaphore, per stream that holds one.
    posters: dict[Semaphore, dict[int, int]] = {}
    for stream, program in enumerate(steps):
        for at in range(position[stream], len(program)):
            for _, key, _ in posts_of(program[at], tiles[stream]):
                posters.setdefault(key, {}).setdefault(stream, at)
    starts = {
        (step.fields["tile"], step.fields["unit"]): (stream, at)
        for stream, program in enumerate(steps)
        for at, step in enumerate(program)
        if step.opcode is Opcode.FETCH
    }
    graph: dict[int, Waiting[int]] = {}
    for stream, program in enumerate(steps):
        if not started[stream]:
            by = starts.get((tiles[stream], int(names.streams[stream].unit)))
            helped = {by[0]: f"which {names.instruction(*by)} would do"} if by is not None else {}
            graph[stream] = Waiting(f"the {names.stream(stream)}", "waits to be started", helped)
            continue
        if position[stream] == len(program):
            continue
        fields = program[position[stream]].fields
        key, need = (tiles[stream], fields["wait_sem"]), fields["wait_n"]
        has = value.get(key, 0)
        held = posters.get(key, {})
        here = names.instruction(stream, position[stream])
        graph[stream] = Waiting(
            here,
            f"waits for {names.semaphore(*key)} (has {has}, needs {need})",
            {other: f"which {names.instruction(other, at)} posts" for other, at in sorted(held.items())},
        )
        what = f"hangs: waits for {names.semaphore(*key)} >= {need}, which stays at {has} ({need - has} missing)"
        if held:
            one = min(held)
            more = f" and {len(held) - 1} more streams" if len(held) > 1 else ""
            fix = f"next to post it: {names.instruction(one, held[one])}{more}, blocked as well"
        else:
            fix = "no remaining instruction posts it: add a post, or remove a wait"
        problems.add(here, what, fix)
    cycle = cycle_of(graph)
    if cycle:
        text = in_words(graph, cycle, closed=True)
        problems.add("wait-for cycle", text, "break it: reorder a stream, or post before waiting")
