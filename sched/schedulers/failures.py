"""Errors of schedulers: in whose name they are told, and of which line."""

from __future__ import annotations

from collections.abc import Sequence
from traceback import extract_tb, format_exception

from pydantic import ValidationError

from ..support.apart import DiedError
from ..support.file_modules import lies_beside
from ..support.last_words import is_same
from ..support.limits import Limits, memory_text
from ..support.plugins import PluginError
from ..support.sockets import NetworkRefused, refused
from ..support.text import line_of


class SchedulerError(PluginError):
    """A name that means no scheduler, options that it does not have, or a scheduler that failed.

    Of one that failed, `kind`: what of, the type of an error or the name of a signal, and `trace`: its traceback, if
    its message alone does not tell all."""

    kind: str = ""
    trace: str = ""

    @classmethod
    def of(cls, message: str, kind: str, trace: str = "") -> SchedulerError:
        """One that failed."""
        error = cls(message)
        error.kind, error.trace = kind, trace
        return error


class TracebackThere(Exception):
    """The traceback of an error that was raised in another process, as the cause of the one that is raised here."""


def failure(name: str, source: str, where: str, error: BaseException, limits: Limits | None = None) -> BaseException:
    """What is raised instead of `error`, which scheduler `name` has raised: one of Meshloom's own itself, of others a
    SchedulerError; with the last line of file `source` that it came through. `where`: on what it failed; `limits`:
    those that it ran under."""
    frames = [(frame.filename, frame.lineno or 0) for frame in reversed(extract_tb(error.__traceback__))]
    own = [frame for frame in frames if frame[0] == source]
    if type(error).__module__.partition(".")[0] == "meshloom" and not isinstance(error, NetworkRefused):
        return _located(error, own)
    if limits is None and isinstance(error, MemoryError):
        return error
    kind, text = type(error).__name__, _text(error)
    if isinstance(error, MemoryError) and limits is not None and limits.megabytes is not None:
        kind, what = "MemoryLimit", f"it {memory_text(limits.megabytes)}"
    elif refusal := type(error) is not ValueError and refused(error):
        kind, what = "NetworkLimit", str(refusal)
    elif type(error) is ValueError:  # how a scheduler says that something does not fit
        what = text
    else:
        what = f"{kind}: {text}{lies_beside(error, source)}" if text else kind
    message = f"scheduler {name} failed {where}: {what}{_line(frames, own)}"
    expected = (
        type(error) is ValueError
        or kind in ("MemoryLimit", "NetworkLimit")
        or (isinstance(error, OSError) and error.filename)
    )
    return SchedulerError.of(message, kind, "" if expected else "".join(format_exception(error)))


def ended(name: str, source: str, where: str, death: DiedError) -> SchedulerError:
    """The same for a scheduler whose process has ended."""
    own = [frame for frame in death.frames if is_same(frame[0], source)]
    return SchedulerError.of(f"scheduler {name} failed {where}: {death.what}{_line(death.frames, own)}", death.kind)


def _located(error: BaseException, own: Sequence[tuple[str, int]]) -> BaseException:
    """One of Meshloom's errors with the line of a scheduler's `own` file behind its text, if text is all it has."""
    if own and error.args == (text := str(error),):
        error.args = (f"{text}{_line(own, own)}",)
    return error


def _text(error: BaseException) -> str:
    """What an error says, of a value that a part of a schedule does not take in one line; one of a scheduler's own may
    fail at that, too."""
    if isinstance(error, ValidationError):
        wrong = [(".".join(map(str, each["loc"])), each["input"], each["msg"]) for each in error.errors()]
        return f"{error.title}: " + "; ".join(f"{place} = {value!r}: {text}" for place, value, text in wrong)
    try:
        return str(error)
    except BaseException as other:
        return f"(its text cannot be made: {type(other).__name__})"


def _line(frames: Sequence[tuple[str, int]], own: Sequence[tuple[str, int]]) -> str:
    """The line of the innermost call in a scheduler's `own` file, or else in one that is nobody's library."""
    others = [frame for frame in frames if "site-packages" not in frame[0]]
    for path, line in (*own[:1], *others[:1], *frames[:1]):
        return f" ({where})" if (where := line_of(path, line)) else ""
    return ""
