"""The loop that serves texts: arrivals, a scheduler that decides what the next step reads, and the step.

It knows no clock but the steps' own cycles. What runs them is the chip or the timeline model; the loop is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ...workload.texts import TextRequest
from ..online.interface import ServingError
from .interface import Batch, Text, TextView, TokenScheduler


@dataclass(frozen=True)
class Reads:
    """What a step reads of a text: the next `count` tokens of its prompt, or its last token."""

    text: int
    count: int
    decodes: bool


class TokenExecutor(Protocol):
    """What runs steps."""

    def predicted(self, news: tuple[int, ...]) -> int:
        """Cycles of a step with so many new tokens of each text, with caches at the beginning of their regions."""
        ...

    def run(self, news: tuple[int, ...], reads: Sequence[Reads]) -> int:
        """Runs a step and returns its cycles. The chunk of a prompt, which has `news` places, may have fewer tokens."""
        ...

    def release(self, text: int) -> None:
        """A text has ended: its keys and values are not needed any more."""
        ...


@dataclass(frozen=True)
class TokenStep:
    """A step that has run, from cycle `start` to `end`, on what was decided in cycle `seen`. `texts`: of all that were
    there then, how many."""

    seen: int
    start: int
    end: int
    batch: Batch
    reads: tuple[Reads, ...]
    texts: int


@dataclass(frozen=True)
class ServedText:
    """A text at its end. `tokens`: the cycles in which its tokens were there."""

    request: TextRequest
    tokens: tuple[int, ...]

    @property
    def ttft(self) -> int:
        """Cycles from its arrival to its first token."""
        return self.tokens[0] - self.request.arrival

    @property
    def tpot(self) -> float | None:
        """Cycles for each further token in the mean; None of a single token."""
        return (self.tokens[-1] - self.tokens[0]) / (len(self.tokens) - 1) if len(self.tokens) > 1 else None

    @property
    def met(self) -> bool:
        """Whether it has met all limits that it has."""
        limits = self.request.limits
        late = limits.ttft is not None and self.ttft > limits.ttft
        return not late and (limits.tpot is None or (self.tpot or 0.0) <= limits.tpot)


@dataclass
class TokenDrive:
    """One run. `seats`, `chunk`: of the scenario; `wait`: cycles from the end of a step, or from an arrival on an idle
    chip, to the launch of what is decided on it; `on_step` is told of each step that has run."""

    executor: TokenExecutor
    scheduler: TokenScheduler
    seats: int
    chunk: int
    wait: int = 0
    on_step: Callable[[TokenStep], None] = lambda step: None
    steps: list[TokenStep] = field(default_factory=list[TokenStep])
    _texts: dict[int, Text] = field(default_factory=dict[int, Text])
    _tokens: dict[int, list[int]] = field(default_factory=dict[int, list[int]])

    def run(self, requests: Iterable[TextRequest]) -> tuple[ServedText, ...]:
        """Serves all, in order of arrival, by which they are numbered. Raises ServingError if the scheduler decides
        what cannot be, and what the executor raises."""
        requests = tuple(requests)
        coming = [Text(number, one.arrival, one.prompt, one.output, one.limits) for number, one in enumerate(requests)]
        now = 0
        while coming or self._texts:
            if not self._texts:
                now = max(now, coming[0].arrival)
            while coming and coming[0].arrival <= now:
                text = coming.pop(0)
                self._texts[text.number] = text
            now = self._step(now)
        return tuple(ServedText(one, tuple(self._tokens[number])) for number, one in enumerate(requests))

    def _step(self, now: int) -> int:
        texts = tuple(self._texts.values())
        free = self.seats - sum(text.seated for text in texts)
        view = TextView(now, texts, free, self.chunk, lambda batch: self.executor.predicted(batch.news(self.chunk)))
        batch = self.scheduler.decide(view)
        self._check(batch, view)
        reads = [Reads(number, 1, True) for number in batch.decodes]
        if batch.chunk is not None:
            left = self._texts[batch.chunk].prompt - self._texts[batch.chunk].read
            reads.insert(0, Reads(batch.chunk, left % self.chunk or self.chunk, False))
        start = now + self.wait
        end = start + self.executor.run(batch.news(self.chunk), reads)
        for read in reads:
            self._read(read, end)
        step = TokenStep(now, start, end, batch, tuple(reads), len(texts))
        self.steps.append(step)
        self.on_step(step)
        return end

    def _read(self, reads: Reads, end: int) -> None:
        """What a step that ended has done for a text."""
        text = self._texts[reads.text]
        if not reads.decodes:
            text = replace(text, read=text.read + reads.count)
        if text.writes:
            text = replace(text, written=text.written + 1, first=end if text.first is None else text.first)
            self._tokens.setdefault(text.number, []).append(end)
        self._texts[text.number] = text
        if text.written == text.output:
            del self._texts[text.number]
            self.executor.release(text.number)

    def _check(self, batch: Batch, view: TextView) -> None:
        """Raises ServingError for a batch that cannot be."""
        who = f"scheduler {self.scheduler.name}, cycle {view.now}"
        writing, reading = ({text.number for text in texts} for texts in (view.writing, view.reading))
        if batch.chunk is None and not batch.decodes:
            raise ServingError(f"{who}: its batch is empty; a step reads a chunk or decodes as long as there are texts")
        if batch.chunk is not None and batch.chunk not in reading:
            raise ServingError(
                f"{who}: text {batch.chunk} cannot be read: it has been, has not arrived, or no seat is free"
            )
        if len(set(batch.decodes)) < len(batch.decodes) or not writing.issuperset(batch.decodes):
            raise ServingError(f"{who}: texts {batch.decodes} do not all write, or one is there twice")
