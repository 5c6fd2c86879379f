"""What decides again and again, in a process of its own: whatever it does, its caller learns how it came to its end.

A request goes there and an answer comes back. Meanwhile it may ask its caller questions, as often as it likes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from ..support import last_words
from ..support.apart import DiedError, Process
from ..support.limits import Limits
from .failures import ended, failure

#: Asks the caller something: of a request, while it is being answered.
Ask = Callable[[Any], Any]


@dataclass(frozen=True)
class _Question:
    """From there, before an answer."""

    value: Any


@dataclass(frozen=True)
class _Answer:
    """To a request, with the CPU seconds that it took; or the error that was raised."""

    value: Any = None
    seconds: float = 0.0
    error: BaseException | None = None


def _nothing(question: Any) -> NoReturn:
    raise TypeError(f"no question is answered: {question!r}")


class Elsewhere:
    """A process of scheduler `name`. There `begin()` makes what answers: a function of a request and of `Ask`.

    Raises SchedulerError with the name, where it was, and the line of `source` where it failed. `seconds`: CPU time of
    the last answer.
    """

    def __init__(
        self, name: str, source: str, where: str, begin: Callable[[], Callable[[Any, Ask], Any]], limits: Limits
    ) -> None:
        self.name, self.source, self.seconds = name, source, 0.0
        explain = partial(failure, name, source, limits=limits)
        self._process = Process(partial(_serve, begin, where, explain), limits, source)
        self._answer(where, _nothing)

    def answer(self, where: str, request: object, hear: Ask = _nothing) -> Any:
        """What it says to a request. `where`: for messages; `hear` answers its questions, and what that raises is
        raised."""
        try:
            self._process.send((where, request))
        except DiedError as death:
            raise ended(self.name, self.source, where, death) from None
        return self._answer(where, hear)

    def _answer(self, where: str, hear: Ask) -> Any:
        try:
            while isinstance(message := self._process.receive(goes_on=True), _Question):
                self._process.send(hear(message.value))
        except DiedError as death:
            raise ended(self.name, self.source, where, death) from None
        except BaseException:
            self._process.close()
            raise
        if message.error is not None:
            self._process.close()
            raise message.error
        self.seconds = message.seconds
        return message.value


def _serve(
    begin: Callable[[], Callable[[Any, Ask], Any]],
    where: str,
    explain: Callable[[str, BaseException], BaseException],
    connection: Connection,
) -> None:
    """The other process. It first answers that it has begun."""

    def ask(question: Any) -> Any:
        connection.send(_Question(question))
        return connection.recv()

    answer = _Answer()
    try:
        answers = begin()
        while True:
            connection.send(answer)
            try:
                where, request = connection.recv()
            except EOFError:
                return
            before = time.thread_time()
            value = answers(request, ask)
            answer = _Answer(value, time.thread_time() - before)
    except BaseException as error:
        last_words.lift_memory()
        connection.send(_Answer(error=explain(where, error)))
