"""Trained model files out of packages, quantised and run on the RTL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any, ClassVar

from ..engine.figures import total
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count, share, table
from ..points.runs import chip_of, gateware, scheduled_by
from .file_cases import FILES, ModelFile
from .file_runs import CHIP, FileRun, run

#: Percent by which the model's cycles may differ.
ERROR = 1.0
#: Files that may be refused: twelve have to run.
MOST_REFUSED = len(FILES) - 12
#: Small ones.
QUICK = ("text_direction", "mtcnn_pnet", "mtcnn_rnet", "alexa")
_BY_NAME = {file.name: file for file in FILES}


@dataclass(frozen=True)
class FilePoint(Point):
    """A file by its name."""

    file: str
    row: ClassVar[Any] = FileRun

    @property
    def source(self) -> ModelFile:
        """The file."""
        return _BY_NAME[self.file]

    @property
    def name(self) -> str:
        return self.file

    @property
    def work(self) -> float:
        return 30.0 if self.file in QUICK else 120.0

    def inputs(self) -> Inputs:
        scheduled = scheduled_by("loop_order")
        modules = (*scheduled.modules, "tb.studies.networks.file_runs")
        tools = " ".join(f"{name} {metadata.version(name)}" for name in ("onnx", "onnxruntime"))
        return Inputs(modules, (("chip", chip_of(CHIP).digest), ("gateware", gateware()), ("tools", tools)))

    def measure(self, report: Report) -> FileRun:
        """Raises PackageError."""
        return run(self.source, report)


#: A file that was measured.
Measured = tuple[FilePoint, FileRun]


def points(full: bool) -> Sequence[FilePoint]:
    """Quick: small files."""
    return [FilePoint(file.name) for file in FILES if full or file.name in QUICK]


def on_rtl(rows: Rows) -> Table:
    """Cycles, and bytes compared."""
    columns: dict[str, Callable[[Measured], str]] = {
        "file": lambda each: each[0].file,
        "nodes>": lambda each: str(each[1].nodes),
        "layers>": lambda each: str(sum(number for _, number in each[1].layers)),
        "MMAC>": lambda each: f"{each[1].macs / 1e6:,.1f}",
        "RTL cycles>": lambda each: count(each[1].rtl_cycles),
        "error>": lambda each: share(each[1].error, 2, "+"),
        "PE util.>": lambda each: share(each[1].utilisation),
        "tensors>": lambda each: str(each[1].tensors),
        "bytes>": lambda each: count(each[1].compared),
        "mismatches>": lambda each: str(each[1].wrong),
        "CPU s>": lambda each: f"{each[1].cpu_seconds:.1f}",
    }
    return table("On the RTL", columns, rows.pairs(FilePoint), lambda each: bool(each[1].refused or each[1].wrong))


def answers(rows: Rows) -> Table:
    """The file's task."""
    columns: dict[str, Callable[[Measured], str]] = {
        "file": lambda each: each[0].file,
        "SNR>": lambda each: f"{each[1].snr_db:.1f} dB",
        "equalised, range": lambda each: each[1].choice,
        "inputs>": lambda each: str(each[0].source.tests),
        "answers": lambda each: each[1].refused or each[1].task,
    }
    return table("Answers beside float's", columns, rows.pairs(FilePoint))


def sources(rows: Rows) -> Table:
    """Where files come from."""
    columns: dict[str, Callable[[Measured], str]] = {
        "file": lambda each: each[0].file,
        "kind": lambda each: each[0].source.kind,
        "layers": lambda each: ", ".join(f"{number} {kind}" for kind, number in each[1].layers),
        "package": lambda each: f"{each[0].source.package}: {each[0].source.path.rpartition('/')[2]}",
        "licence": lambda each: each[0].source.package.licence,
    }
    return table("What they are", columns, rows.pairs(FilePoint))


def wrong(rows: Rows) -> list[str]:
    """Files that did not run, bytes that differ, a model that is off."""
    some = rows.pairs(FilePoint)
    reasons = [f"{point.name}: {row.refused}" for point, row in some if row.refused]
    reasons += [f"{point.name}: {row.wrong} bytes differ" for point, row in some if row.wrong]
    return reasons + [
        f"{point.name}: model error {100 * row.error:.2f} %, the bar is {ERROR:g} %"
        for point, row in some
        if abs(100 * row.error) > ERROR
    ]


STUDY = Study(
    name="files",
    title="Trained files out of packages",
    question="Do trained float files run as they are, and are their answers those of float?",
    answer="{{ ran }} files ran; of {{ bytes }} bytes {{ wrong }} differ, and the worst output is {{ least }} above "
    "its noise.",
    about=prose(__file__),
    points=points,
    tables=(on_rtl, answers, sources),
    figures=(
        Figure("ran", "files that ran", lambda rows: sum(not row.refused for row in rows.values()), "{:,.0f}"),
        Figure(
            "refused",
            "files that did not",
            lambda rows: sum(bool(row.refused) for row in rows.values()),
            "{:,.0f}",
            Bar("at most", MOST_REFUSED),
        ),
        total("bytes", "bytes compared", "compared"),
        total("wrong", "bytes that differ", "wrong", none=True),
        Figure(
            "least",
            "least signal-to-noise ratio",
            lambda rows: min((row.snr_db for row in rows.values() if not row.refused), default=None),
            "{:.1f} dB",
        ),
    ),
    checks=wrong,
)
