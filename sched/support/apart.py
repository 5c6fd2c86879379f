"""Calls code that does not ship with Meshloom in a process of its own, under limits: whatever it does, its caller
learns what it has made, or how it came to its end and on which line.

The process is a copy of the caller (`fork`), so functions and their arguments need not be sent; what it makes is. It
prints to stderr only, reads nothing from stdin, and what it changes (folder, environment, arguments) stays with it. It
dies with its caller, and takes the processes that it has started with it. It has no network unless its limits say so
(`sockets`).
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NoReturn, TypeVar
from weakref import finalize

from . import last_words, processes, sockets
from .limits import Limits, time_text

T = TypeVar("T")
#: Seconds between two looks at a process; seconds that it has to say where it is, or to end after its last message.
_LOOK, _PATIENCE = 0.1, 2.0
#: Seconds that it has to begin, on a machine that is busy with other things; they are none of its own.
_BEGINS = 60.0
#: Seconds between two looks of which more was no waiting: this process was stopped, or had no turn.
_MOST = 1.0
#: Seconds of waiting after which it is first said how long it may last, and how many times as many until the next time.
_SAID, _RARER = 10.0, 3
#: Its lines go to stderr, if nobody has set up logging.
_log = logging.getLogger("meshloom.apart")


class DiedError(Exception):
    """A process that ended without a result. `kind`: a signal's name, `ProcessExit` or `TimeLimit`; `what`: a phrase;
    `frames`: file and line of its calls, the innermost first, as far as they are known."""

    def __init__(self, kind: str, what: str, frames: tuple[tuple[str, int], ...]) -> None:
        super().__init__(what)
        self.kind, self.what, self.frames = kind, what, frames


@dataclass(frozen=True)
class _Message:
    """From a process: a report to `hear`, a result, or an error."""

    what: str
    value: Any


#: Reports something from a process to its caller.
Report = Callable[[object], None]


@dataclass
class _Child:
    """A process, and what its caller holds of it. `status`: as of `os.waitstatus_to_exitcode`, None before its end."""

    pid: int
    connection: Connection
    words: int
    caller: int
    status: int | None = None

    def ended(self) -> bool:
        """Whether it has ended. It stays a zombie, so that nobody else gets its number, until `end`."""
        if self.status is None:
            status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if status is not None:
                self.status = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
        return self.status is not None

    def end(self) -> None:
        """Ends it, with the processes that it has started."""
        if os.getpid() != self.caller:  # a copy of its caller, whose process it is not
            return
        for kill in (os.killpg, os.kill):  # one that has just begun is no group yet
            with suppress(ProcessLookupError, PermissionError):
                kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.connection.close()
        os.close(self.words)


class Process:
    """A process that runs `body(connection)`, which talks to its caller by that connection, under `limits`.

    `source`: the file whose uses of `os._exit` are traced. `name`: what it is, for what is said of long waits (empty:
    nothing is). It ends with `close`, or else with this object.
    """

    def __init__(self, body: Callable[[Connection], None], limits: Limits, source: str = "", name: str = "") -> None:
        self.limits, self.name, self._say_at = limits, name, _SAID
        here, there = Pipe()
        words, own_words = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # there may be none, or a closed one
                stream.flush()  # or the copy would write it again
        if not limits.network:
            _say_if_half()
        caller = os.getpid()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads here: the copy uses nothing of theirs
            pid = os.fork()
        if pid == 0:
            here.close()
            os.close(words)
            _become(body, there, own_words, limits, source, caller)
        there.close()
        os.close(own_words)
        self._spent = 0.0
        self._child = _Child(pid, here, words, caller)
        self.close = finalize(self, self._child.end)
        with suppress(EOFError, OSError):  # one that has ended is told when it is asked
            if not here.poll(_BEGINS):
                raise self._late(_BEGINS)
            here.recv()

    @property
    def connection(self) -> Connection:
        """Where its messages come in, to wait for."""
        return self._child.connection

    def send(self, message: object) -> None:
        """Sends it a message. Raises DiedError."""
        try:
            self._child.connection.send(message)
        except OSError:
            raise self._death() from None

    def receive(self, goes_on: bool = False) -> Any:
        """Its next message, for which the time limit holds; if one `goes_on`, for all since the first together. Raises
        DiedError."""
        child, seconds = self._child, self.limits.seconds
        if goes_on and seconds is not None and self._spent > seconds:  # it talks, and comes to no end
            raise self._late(seconds)
        self._spent, last = self._spent if goes_on else 0.0, time.monotonic()
        while not child.connection.poll(_LOOK if seconds is None else min(_LOOK, seconds)):
            now = time.monotonic()
            self._spent, last = self._spent + min(now - last, _MOST), now
            if child.ended() and not child.connection.poll(0):
                raise self._death()
            if seconds is not None and self._spent > seconds:
                raise self._late(seconds)
            self._say_how_long()
        self._spent += min(time.monotonic() - last, _MOST)
        try:
            return child.connection.recv()
        except (EOFError, OSError):
            raise self._death() from None

    def _say_how_long(self) -> None:
        """Says, now and then, how long it has taken and which limit ends it."""
        if self.name and self._spent > self._say_at and (seconds := self.limits.seconds) is not None:
            self._say_at *= _RARER
            _log.warning(
                "%s: no result for %.0f seconds; it is ended after %g (a --time-limit of less ends it sooner)",
                self.name,
                self._spent,
                seconds,
            )

    def _death(self) -> DiedError:
        """How it ended. One that has only closed its connection is given some time."""
        child, patience = self._child, time.monotonic() + _PATIENCE
        while not child.ended() and time.monotonic() < patience:
            time.sleep(_LOOK / 10)
        status, frames = child.status, self._frames(0)
        self.close()
        if status is None:
            return DiedError("ProcessExit", "closed the connection by which its result is sent", frames)
        if status >= 0:
            return DiedError("ProcessExit", f"ended its process with exit status {status}", frames)
        name = signal.Signals(-status).name
        if name == "SIGKILL" and not frames:
            return DiedError(name, "its process was killed (SIGKILL), as systems do when memory runs out", frames)
        return DiedError(name, f"its process was ended by {name} ({signal.strsignal(-status)})", frames)

    def _late(self, seconds: float) -> DiedError:
        with suppress(ProcessLookupError):
            os.kill(self._child.pid, last_words.WHERE)
            os.kill(self._child.pid, signal.SIGCONT)  # or one that has stopped itself says nothing
        frames = self._frames(_PATIENCE)
        self.close()
        return DiedError("TimeLimit", time_text(seconds), frames)

    def _frames(self, patience: float) -> tuple[tuple[str, int], ...]:
        """Where it was at last: what it writes of that within so many seconds."""
        output, words = bytearray(), self._child.words
        while select.select([words], [], [], patience)[0]:
            if not (some := os.read(words, 1 << 16)):
                break
            output += some
            patience = _LOOK  # for the rest
        return last_words.frames(output.decode("ascii", "replace"))


def call(
    work: Callable[[Report], T],
    limits: Limits,
    explain: Callable[[BaseException], BaseException],
    hear: Callable[[Any], None] = lambda report: None,
    source: str = "",
    name: str = "",
) -> T:
    """What `work(report)` returns, called in a process of its own.

    What it reports is handed to `hear` here. Raises DiedError, and what `explain` makes there of an error that it
    raises. `source`, `name`: see `Process`.
    """

    def body(connection: Connection) -> None:
        def report(value: object) -> None:
            with suppress(Exception):  # a report that cannot be sent is none
                connection.send(_Message("report", value))

        here = os.getpid()
        try:
            message = _Message("result", work(report))
        except BaseException as error:
            last_words.lift_memory()
            message = _Message("error", explain(error))
        if os.getpid() != here:  # a copy that the code has made of itself
            return
        try:
            connection.send(message)
        except Exception as error:  # what was made cannot be sent
            connection.send(_Message("error", explain(error)))

    process = Process(body, limits, source, name)
    try:
        while (message := process.receive(goes_on=True)).what == "report":
            hear(message.value)
    finally:
        process.close()
    if message.what == "error":
        raise message.value
    return message.value


@cache  # once in a process
def _say_if_half() -> None:
    """Says that the system keeps nobody from the network, if it does not."""
    if not sockets.namespaces():
        _log.warning("code that is not Meshloom's: %s", sockets.HALF)


def _become(
    body: Callable[[Connection], None], connection: Connection, words: int, limits: Limits, source: str, caller: int
) -> NoReturn:
    """The new process, from its beginning to its end."""
    leave, status = os._exit, 1
    try:
        os.setpgid(0, 0)
        last_words.die_with(caller)
        processes.stay_single()
        last_words.prepare(words, source)
        with suppress(OSError):  # there may be no stderr
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(2, 1)
        sys.stdout = sys.stderr
        if not limits.network:
            sockets.leave()
        last_words.bound_memory(limits.megabytes)
        connection.send(None)  # it begins
        body(connection)
        status = 0
    finally:
        try:
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()
        finally:  # also without memory for that: nothing of the caller, whose copy this is, may go on
            leave(status)
