"""Errors of schedulers: in whose name they are told, and of which line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from traceback import extract_tb, format_exception

from ..support.apart import DiedError
from ..support.last_words import is_same
from ..support.limits import Limits
from ..support.plugins import PluginError


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
    """What is raised instead of `error`, which scheduler `name` has raised: one of Meshloom's own as it is, of others a
    SchedulerError with the last line of file `source` that it came through. `where`: on what it failed; `limits`: those
    that it ran under."""
    if type(error).__module__.partition(".")[0] == "meshloom" or (limits is None and isinstance(error, MemoryError)):
        return error
    kind, text = type(error).__name__, str(error)
    if isinstance(error, MemoryError) and limits is not None and limits.megabytes is not None:
        kind, what = "MemoryLimit", f"it needs more memory than {limits.megabytes} MB (--memory-limit)"
    elif type(error) is ValueError:  # how a scheduler says that something does not fit
        what = text
    else:
        what = f"{kind}: {text}" if text else kind
    frames = [(frame.filename, frame.lineno or 0) for frame in reversed(extract_tb(error.__traceback__))]
    own = [frame for frame in frames if frame[0] == source]
    message = f"scheduler {name} failed {where}: {what}{_line(frames, own)}"
    expected = type(error) is ValueError or kind == "MemoryLimit" or (isinstance(error, OSError) and error.filename)
    return SchedulerError.of(message, kind, "" if expected else "".join(format_exception(error)))


def ended(name: str, source: str, where: str, death: DiedError) -> SchedulerError:
    """The same for a scheduler whose process has ended."""
    own = [frame for frame in death.frames if is_same(frame[0], source)]
    return SchedulerError.of(f"scheduler {name} failed {where}: {death.what}{_line(death.frames, own)}", death.kind)


def _line(frames: Sequence[tuple[str, int]], own: Sequence[tuple[str, int]]) -> str:
    """The line of the innermost call in a scheduler's `own` file, or else in one that is nobody's library."""
    others = [frame for frame in frames if "site-packages" not in frame[0]]
    for path, line in (*own[:1], *others[:1], *frames[:1]):
        return f" (line {line} of {Path(path).name})"
    return ""
