"""A token scheduler in a process of its own. A view goes there, a batch comes back; what a step would take is asked of
the caller, which has the timeline model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...support.limits import Limits
from ..elsewhere import Ask, Elsewhere
from .interface import Batch, Text, TextView, TokenScheduler


@dataclass(frozen=True)
class _StepRequest:
    """A view without what is asked for."""

    now: int
    texts: tuple[Text, ...]
    free: int
    chunk: int


class TokensElsewhere:
    """A token scheduler that `make()` makes, and that decides, in another process. Raises SchedulerError with its name,
    and the cycle and the line of `source` where it failed."""

    def __init__(self, name: str, source: str, make: Callable[[], TokenScheduler], limits: Limits) -> None:
        self.name = name

        def begin() -> Callable[[_StepRequest, Ask], Batch]:
            scheduler = make()

            def decide(request: _StepRequest, ask: Ask) -> Batch:
                return scheduler.decide(TextView(request.now, request.texts, request.free, request.chunk, ask))

            return decide

        self._elsewhere = Elsewhere(name, source, "before the first cycle", begin, limits)

    def decide(self, view: TextView) -> Batch:
        request = _StepRequest(view.now, view.texts, view.free, view.chunk)
        batch: Any = self._elsewhere.answer(f"in cycle {view.now}", request, view.cycles)
        return batch
