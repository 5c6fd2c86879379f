"""The interface of a token scheduler: the texts that it is shown when a step has ended, and what the next step reads.

A text is a request: a prompt that is read in chunks, and tokens that are written one by one behind it. A step reads a
chunk of one prompt, or the last token of texts that write, or both. Its products read the weights once for all tokens.
A text takes a seat, which is room for its keys and values in memory, with its first chunk, and keeps it to its end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from ...workload.texts import NO_LIMITS, TextLimits


@dataclass(frozen=True)
class Text:
    """A text that has arrived and has not ended. `prompt`, `output`: tokens to read and to write. `read`, `written`:
    how many of both are done. `first`: the cycle in which its first token was there."""

    number: int
    arrival: int
    prompt: int
    output: int
    limits: TextLimits = NO_LIMITS
    read: int = 0
    written: int = 0
    first: int | None = None

    @property
    def seated(self) -> bool:
        """Whether it has a seat."""
        return self.read > 0

    @property
    def writes(self) -> bool:
        """Whether its prompt has been read, so that its next token takes a decode step."""
        return self.read == self.prompt

    @property
    def deadline(self) -> int | None:
        """The cycle by which it is to have its first token, later its last one; None without a limit."""
        if self.first is None:
            return None if self.limits.ttft is None else self.arrival + self.limits.ttft
        return None if self.limits.tpot is None else self.first + self.limits.tpot * (self.output - 1)


@dataclass(frozen=True)
class Batch:
    """What a step reads: a chunk of the prompt of text `chunk`, and the last tokens of the texts `decodes`. Numbers of
    texts; `reason`: one line."""

    chunk: int | None = None
    decodes: tuple[int, ...] = ()
    reason: str = ""

    def news(self, chunk: int) -> tuple[int, ...]:
        """New tokens of each text of the step, if a chunk has so many."""
        return (chunk,) * (self.chunk is not None) + (1,) * len(self.decodes)


@dataclass(frozen=True)
class TextView:
    """What a scheduler sees. `texts`: in order of arrival. `free`: seats. `chunk`: tokens of a chunk; the first one of
    a prompt has what is left over. `cycles(batch)`: of a step, as the timeline model predicts it with caches at the
    beginning of their regions."""

    now: int
    texts: tuple[Text, ...]
    free: int
    chunk: int
    cycles: Callable[[Batch], int]

    @cached_property
    def writing(self) -> tuple[Text, ...]:
        """Texts whose next token takes a decode step."""
        return tuple(text for text in self.texts if text.writes)

    @cached_property
    def reading(self) -> tuple[Text, ...]:
        """Texts whose prompt can be read on: those that have a seat, and all others if one is free."""
        return tuple(text for text in self.texts if not text.writes and (text.seated or self.free))


class TokenScheduler(Protocol):
    """Decides what the next step reads. One object serves one run, and may remember what it likes. The same views in
    the same order must give the same batches."""

    @property
    def name(self) -> str: ...

    def decide(self, view: TextView) -> Batch: ...
