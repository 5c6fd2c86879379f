"""Forms that the results of a run are written in, by name: those that ship, those of installed packages (entry points
`meshloom.reports`), and any `package.module:FORM` and `FILE.py:FORM`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from meshloom.sched.support.files import write_atomically
from meshloom.sched.support.plugins import PluginError, Registry, failure

from ..results import flat
from ..results.schema import Results
from .junit import junit

#: Entry points of other packages that are reports.
GROUP = "meshloom.reports"


class UnknownReportError(PluginError):
    """A name that means no report, or one that has no path; the message lists those there are."""


class ReportError(ValueError):
    """A report of somebody's that fails, or that returns something else; the message names it, and its line."""


@dataclass(frozen=True)
class Report:
    """Results in some form. `make` writes them: text, or bytes where that is not for people."""

    summary: str
    make: Callable[[Results], str | bytes]

    def save(self, results: Results, path: Path) -> None:
        """Writes the file. Raises WriteError, ReportError."""
        write_atomically(path, self.make(results.for_file(path)))


JSON = Report("all that is known, as JSON", lambda results: results.text)
CSV = Report("a table of rows, as CSV", flat.text)
PARQUET = Report("a table of rows, as Parquet", flat.parquet)
JUNIT = Report("a test case for each row, as JUnit XML", junit)


def _accept(name: str, thing: object) -> Report:
    if name in SHIPPED and isinstance(thing, Report):
        return thing
    if isinstance(thing, Report):
        return Report(thing.summary, _watched(name, thing.make))
    if callable(thing):
        return Report((thing.__doc__ or name).strip().partition("\n")[0], _watched(name, thing))
    raise TypeError(f"is of type {type(thing).__name__}; it must be a Report or a function of Results")


def _watched(name: str, make: Callable[..., object]) -> Callable[[Results], str | bytes]:
    """The same report; what goes wrong in it is a ReportError."""

    def made(results: Results) -> str | bytes:
        try:
            content = make(results)
            if isinstance(content, str):
                return content.encode()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise ReportError(f"report {name} failed: {failure(name, error)}") from error
        if not isinstance(content, bytes):
            raise ReportError(f"report {name} returns a {type(content).__name__}; it must return text or bytes")
        return content

    return made


SHIPPED = {name.lower(): f"{__name__}:{name}" for name in ("JSON", "CSV", "PARQUET", "JUNIT")}
REGISTRY: Registry[Report] = Registry(
    "report",
    GROUP,
    SHIPPED,
    _accept,
    UnknownReportError,
)


def form_and_place(text: str) -> tuple[Report, Path]:
    """A report and where to write it, from FORM=PATH. Raises UnknownReportError."""
    name, equals, path = text.partition("=")
    if not equals or not path:
        raise UnknownReportError(
            f"{text!r} is not FORM=PATH, as in csv=rows.csv; forms are {', '.join(REGISTRY.names())}"
        )
    return REGISTRY.get(name), Path(path)
