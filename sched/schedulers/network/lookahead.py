"""Schedules of a search that are judged before their turn comes, in processes of their own.

Most schedules that a search compares are no better than the best so far. So what it will ask for is foreseen: the same
descent is gone through once more in thought, as if nothing that has not been judged were better. What comes next there
is judged beside what the search is at. The search itself goes on as ever, and takes what is there when it asks for it;
so its result does not depend on how many processes there are.

Helpers are copies of this process (`support.apart`), begun when there is a first schedule. Each keeps what its own
schedules have in common (`Reuse`). The numbers of what is to be judged stand in a pipe, from which the helpers and this
process take one each when they have nothing to do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from threading import Condition, Thread
from typing import NoReturn

from ...store.cache import setting
from ...support.apart import DiedError, Process
from ...support.limits import Limits
from ...support.processes import SEARCH_PROCESSES, is_single, processors
from .sharing import SharingOptions
from .sharing_search import FOREVER, Judged, SharingSearch, Standing

#: A search uses no more processes than so many, its own among them, if not said otherwise.
MOST = 4
#: Operations of a schedule, and schedules that may still be compared, from which helpers pay.
LEAST, FEW = 1_000, 6
#: Schedules that are compared from which one helper pays by itself: half of what it judges is for nothing.
MANY = 40
#: Seconds without a word from any helper after which a schedule is judged here.
_PATIENCE = 60.0
#: How many schedules are foreseen for each process.
_EACH = 2
#: What a helper says of a schedule before it judges that.
_BEGUN = "begun"
#: Bytes of a number in the pipe.
_NUMBER = 4

#: A search's way from its first schedule to its last.
Descent = Callable[[SharingSearch], None]


@dataclass(frozen=True)
class _Task:
    """A schedule to be judged. `standing`: how the best so far did; `hopeless`: as of the search; `turn`: how often
    the best had changed before."""

    number: int
    sharing: SharingOptions
    standing: Standing
    hopeless: float
    turn: int


@contextmanager
def lookahead(search: SharingSearch, descent: Descent) -> Generator[None]:
    """Judges meanwhile what `descent` will make the search ask for, if there are processors for it. Raises
    SettingError."""
    number, free = setting(SEARCH_PROCESSES, 0), min(MOST, processors())
    if free == 2 and search.left < MANY:
        free = 1
    count = 1 if is_single() else number or free
    ahead = None
    with suppress(OSError):  # no more files may be open
        ahead = _Lookahead(search, descent, min(count, search.left)) if count > 1 else None
    if ahead is None:
        yield
        return
    search.judge = ahead.judged
    try:
        yield
    finally:
        search.judge = search.judged
        ahead.close()


class _Lookahead:
    """What is foreseen of one search, and who judges it."""

    def __init__(self, search: SharingSearch, descent: Descent, count: int) -> None:
        self._search, self._descent, self._count = search, descent, count
        self._helpers: dict[Connection, Process] = {}
        self._numbers, self._end_of_numbers = os.pipe()
        os.set_blocking(self._numbers, False)  # somebody else may be faster
        self._tasks: list[_Task] = []
        self._standing: Standing | None = None
        self._turn = 0
        self._pending: set[SharingOptions] = set()
        self._begun: dict[Connection, SharingOptions] = {}
        self._early: dict[SharingOptions, Judged] = {}

    def judged(self, sharing: SharingOptions) -> Judged:
        """As of the search."""
        search = self._search
        if search.standing is None or not (self._helpers or self._pays(search.standing)):
            return search.judged(sharing)
        try:
            self._listen(0)
            self._foresee(search.standing)
            self._wait_for(sharing)
        except DiedError:  # of whatever it died: it takes longer without
            self._end()
            search.judge = search.judged
        played, result = self._early.pop(sharing, (None, None))
        now = None if played is None else search.now(played)
        return search.judged(sharing) if now is None else (now, result)

    def _pays(self, standing: Standing) -> bool:
        """Whether there is enough to do; `left` does not count what is asked for now."""
        return standing.operations >= LEAST and self._search.left + 1 >= FEW

    def close(self) -> None:
        """Ends all helpers."""
        self._end()
        os.close(self._numbers)
        os.close(self._end_of_numbers)

    def _end(self) -> None:
        for helper in self._helpers.values():
            helper.close()
        self._helpers, self._begun = {}, {}

    def _foresee(self, standing: Standing) -> None:
        """Says what comes next, what is asked for now among it, to those who may judge it. Raises DiedError."""
        if self._standing is not standing:  # something was better: of the rest only what has begun is done
            self._standing, self._turn = standing, self._turn + 1
            self._pending = set(self._begun.values())
        tasks: list[_Task] = []
        for sharing, hopeless in _Rehearsal(self._search, self._early, self._count * _EACH).foreseen(self._descent):
            if sharing not in self._pending:
                number = len(self._tasks) + len(tasks)
                tasks.append(_Task(number, sharing, standing, hopeless, self._turn))
        self._tasks += tasks
        self._pending.update(task.sharing for task in tasks)
        if not self._helpers:
            self._begin()
        if tasks:
            for helper in self._helpers.values():
                helper.send(tasks)
            os.write(self._end_of_numbers, b"".join(task.number.to_bytes(_NUMBER, "little") for task in tasks))

    def _begin(self) -> None:
        """Begins as many helpers as can be. Raises DiedError if none can."""
        for _ in range(1, self._count):
            try:
                helper = Process(self._help, Limits(None, None, network=True))
            except OSError:  # no more processes, or files, than there are
                break
            self._helpers[helper.connection] = helper
        if not self._helpers:
            raise DiedError("ProcessLimit", "could not be begun", ())

    def _wait_for(self, sharing: SharingOptions) -> None:
        """Judges what nobody else has begun, until somebody has judged that one or cannot. Raises DiedError."""
        while True:
            self._listen(0)
            if sharing in self._early or sharing not in self._pending:
                return
            number = self._number()
            if number is None:
                if not self._listen(_PATIENCE):  # whoever judges it may be stuck
                    return
            elif (task := self._tasks[number]).turn == self._turn:
                self._early[task.sharing] = _judged(self._search, task)

    def _listen(self, seconds: float) -> bool:
        """Takes what helpers have to say, waiting for so long; whether one had something. Raises DiedError."""
        ready = wait(list(self._helpers), seconds)
        for connection, helper in self._helpers.items():
            if connection not in ready:
                continue
            message: tuple[int, Judged | str | None] = helper.receive()
            number, judged = message
            sharing = self._tasks[number].sharing
            if isinstance(judged, str):
                self._begun[connection] = sharing
                continue
            del self._begun[connection]
            if judged is None:
                self._pending.discard(sharing)
            else:
                self._early[sharing] = judged
        return bool(ready)

    def _number(self) -> int | None:
        """A number that nobody else has taken, if there is one now."""
        with suppress(BlockingIOError):
            return int.from_bytes(os.read(self._numbers, _NUMBER), "little")
        return None

    def _help(self, connection: Connection) -> NoReturn:
        """A helper: says of each number that it takes that it has begun, and then how that schedule did; None if it
        cannot be judged here."""
        self._search.progress = None
        self._tasks, more = [], Condition()
        # tasks are taken in at any time, or who sends them and who sends a schedule could wait for each other
        Thread(target=self._take_in, args=(connection, more), daemon=True).start()
        while True:
            wait([self._numbers])
            number = self._number()
            if number is None:
                continue
            with more:
                more.wait_for(lambda number=number: number < len(self._tasks))
            task = self._tasks[number]
            if task.turn == self._tasks[-1].turn:
                connection.send((number, _BEGUN))
                try:
                    judged = _judged(self._search, task)
                except Exception:  # the search meets it, too, and says so
                    judged = None
                connection.send((number, judged))

    def _take_in(self, connection: Connection, more: Condition) -> None:
        """Of a helper: the tasks that it is sent, before their numbers."""
        with suppress(EOFError, OSError):
            while True:
                tasks = connection.recv()
                with more:
                    self._tasks += tasks
                    more.notify()


def _judged(search: SharingSearch, task: _Task) -> Judged:
    """How the schedule of a task does, and the schedule if it is better than what it was compared with. Raises what is
    wrong with it."""
    before = search.standing, search.hopeless
    if search.standing != task.standing:  # whose result is another's
        search.result = None
    search.standing, search.hopeless = task.standing, task.hopeless
    try:
        played, result = search.judged(task.sharing)
    finally:
        search.standing, search.hopeless = before
    better = played.cycles is not None and played.cycles < (task.standing.cycles or 0)
    return played, result if better else None


class _FullError(Exception):
    """Enough has been foreseen."""


class _Rehearsal(SharingSearch):
    """A search that judges nothing: what nobody has judged is no better.

    `early`: what has been judged before its turn; `most`: how much is foreseen."""

    def __init__(self, search: SharingSearch, early: Mapping[SharingOptions, Judged], most: int) -> None:
        super().__init__(search.graph, search.chip, None, None, search.budget, search.owners)
        self._search, self._early, self._most = search, early, most
        self._foreseen: list[tuple[SharingOptions, float]] = []

    def foreseen(self, descent: Descent) -> list[tuple[SharingOptions, float]]:
        """What is asked for next, in that order, each with the `hopeless` of then."""
        with suppress(_FullError):
            descent(self)
        return self._foreseen

    def outcome(self, sharing: SharingOptions) -> Judged:
        outcome = self._search.outcomes.get(sharing)
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is None and sharing in self._early:
            outcome = self.now(self._early[sharing][0])
        if outcome is None:
            outcome = self._search.recall(sharing)
        if outcome is None:
            if self.standing is None:
                raise _FullError
            self._foreseen.append((sharing, self.hopeless))
            if len(self._foreseen) == self._most:
                raise _FullError
            outcome = replace(self.standing, cycles=FOREVER)
        return outcome, None
