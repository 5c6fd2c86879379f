"""How many words each memory holds in each cycle, compiled: steps in time, since few things change at once.

Step i of a memory is the level from cycle `at[i]` to before `at[i + 1]`; the first begins in cycle 0, the last never
ends. Neighbouring steps differ.
"""

from __future__ import annotations

from typing import NamedTuple

from ..support.records import layout
from .compiled import jit
from .tables import Array


class Most:
    """Steps of the memory that has had most."""

    steps: int


MOST = layout(Most)


class Levels(NamedTuple):
    """`at` (cycles), `words` [memory, step]; `count` [memory]: steps; `most`: the largest count so far."""

    at: Array
    words: Array
    count: Array
    most: Most


@jit
def _step(levels: Levels, memory: int, cycle: int) -> int:
    """The step that a cycle lies in."""
    low, high = 0, levels.count[memory] - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if levels.at[memory, middle] <= cycle:
            low = middle
        else:
            high = middle - 1
    return low


@jit
def _cut(levels: Levels, memory: int, cycle: int) -> int:
    """The step that begins in a cycle, made if there is none."""
    step = _step(levels, memory, cycle)
    if levels.at[memory, step] == cycle:
        return step
    count = levels.count[memory]
    for index in range(count, step + 1, -1):
        levels.at[memory, index] = levels.at[memory, index - 1]
        levels.words[memory, index] = levels.words[memory, index - 1]
    levels.at[memory, step + 1] = cycle
    levels.words[memory, step + 1] = levels.words[memory, step]
    levels.count[memory] = count + 1
    levels.most.steps = max(levels.most.steps, count + 1)
    return step + 1


@jit
def _join(levels: Levels, memory: int, step: int) -> None:
    """Makes one of a step and the one before it if they are equal."""
    if step == 0 or levels.words[memory, step - 1] != levels.words[memory, step]:
        return
    count = levels.count[memory] - 1
    for index in range(step, count):
        levels.at[memory, index] = levels.at[memory, index + 1]
        levels.words[memory, index] = levels.words[memory, index + 1]
    levels.count[memory] = count


@jit
def add_words(levels: Levels, memory: int, start: int, end: int, words: int) -> None:
    """Adds to what a memory holds in the cycles [start, end). There has to be room for two more steps."""
    if start >= end:
        return
    first = _cut(levels, memory, start)
    last = _cut(levels, memory, end)
    for step in range(first, last):
        levels.words[memory, step] += words
    _join(levels, memory, last)
    _join(levels, memory, first)


@jit
def last_full(levels: Levels, memory: int, start: int, end: int, most: int) -> int:
    """The last cycle in [start, end) in which a memory holds more than `most` words, -1 if there is none."""
    if start >= end:
        return -1
    until = end
    for step in range(_step(levels, memory, end - 1), -1, -1):
        if until <= start:
            break
        if levels.words[memory, step] > most:
            return until - 1
        until = levels.at[memory, step]
    return -1


@jit
def first_full(levels: Levels, memory: int, start: int, end: int, most: int) -> int:
    """The first cycle in [start, end) in which a memory holds more than `most` words, -1 if there is none."""
    if start >= end:
        return -1
    for step in range(_step(levels, memory, start), levels.count[memory]):
        since = max(levels.at[memory, step], start)
        if since >= end:
            break
        if levels.words[memory, step] > most:
            return since
    return -1
