"""What a run leaves of a workload for viewers: a folder with its schedule, program, row, and tables of what happened.

Tables are Parquet, docs/formats.md documents them column by column; `VERSION` names the format, in the manifest
and in each table's metadata. A folder appears whole or not at all.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, ValidationError

from meshloom.hw.spec.config import ChipConfig, Exact
from meshloom.sched.ir.schedule import Schedule, ScheduleError
from meshloom.sched.program import image
from meshloom.sched.program.program import Program
from meshloom.sched.support.files import WriteError, write_error

from . import paths
from .record import ResultsError
from .schema import Row

if TYPE_CHECKING:
    import pyarrow

VERSION = 1
MANIFEST, SCHEDULE, PROGRAM = "artefacts.json", "schedule.json", "program.bin"
_VERSION_KEY = b"meshloom.artefacts"


@dataclass(frozen=True)
class Column:
    """A column of a table. `type`: an Arrow type; `unit`: cycles, words, ...; `null`: some rows have no value."""

    name: str
    type: str
    unit: str = ""
    null: bool = False


def _times(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, "int64", "cycles", null=True) for name in names)


#: The columns of each table, in their order.
TABLES: dict[str, tuple[Column, ...]] = {
    "instructions": (
        Column("tile", "uint8"),
        Column("unit", "string"),
        Column("opcode", "string"),
        Column("tag", "uint16"),
        Column("stream_tile", "uint8", null=True),
        Column("stream_unit", "string", null=True),
        Column("position", "int32", null=True),
        Column("operation", "int32", null=True),
        *_times("wait", "stall", "start", "end", "predicted_wait", "predicted_start", "predicted_end"),
        Column("words", "int32", "words", null=True),
        Column("bytes", "int64", "bytes", null=True),
        Column("src_tile", "uint8", null=True),
        Column("src", "uint32", "words", null=True),
        Column("dst_tile", "uint8", null=True),
        Column("dst", "uint32", "words", null=True),
        Column("channel", "uint8", null=True),
        Column("hops", "int32", "links", null=True),
    ),
    "packets": (
        Column("tile", "uint8"),
        Column("tag", "uint16"),
        Column("words", "int32", "words"),
        *_times("start", "end", "predicted_start", "predicted_end"),
    ),
    "links": (
        Column("tile", "uint8"),
        Column("port", "string"),
        Column("busy", "int64", "cycles"),
        Column("blocked", "int64", "cycles"),
        Column("cycles", "int64", "cycles"),
    ),
    "counters": (
        Column("tile", "uint8"),
        Column("counter", "string"),
        Column("value", "int64"),
    ),
}

#: Rows of a table, column by column, as `TABLES` has them.
Columns = Mapping[str, Sequence[Any]]


class ArtefactsError(ResultsError):
    """A folder that holds no artefacts, or damaged ones; the message names the file and the fix."""


class Manifest(Exact):
    """What the tables are of: the result row, which identifies code, chip, scheduler, options and input; the chip."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = VERSION
    row: Row
    chip: ChipConfig


@dataclass(frozen=True)
class Artefacts:
    """What `load` reads: the result row, the chip, what ran on it, and a pyarrow.Table for each of `TABLES`."""

    row: Row
    chip: ChipConfig
    schedule: Schedule
    program: Program
    tables: dict[str, pyarrow.Table]


def folder_name(workload: str) -> str:
    """A workload's name as that of a folder."""
    return re.sub(r"[^\w.-]+", "_", workload)[:100].lstrip(".") or "_"


def save(
    parent: Path, row: Row, chip: ChipConfig, schedule: Schedule, code: bytes, tables: Mapping[str, Columns]
) -> Path:
    """Writes a workload's artefacts to a new folder below `parent`, named after it, and returns that.

    `row.artefacts` is set to it in the manifest; `code`: the program's image. Raises WriteError; nothing is left
    then.
    """
    import pyarrow.parquet

    parent.mkdir(parents=True, exist_ok=True)
    part = parent / f".{folder_name(row.workload)}.{token_hex(8)}"
    part.mkdir()
    try:
        for name, columns in tables.items():
            pyarrow.parquet.write_table(_table(name, columns), part / f"{name}.parquet", compression="zstd")
        (part / SCHEDULE).write_text(schedule.model_dump_json(exclude_none=True) + "\n", encoding="utf-8")
        (part / PROGRAM).write_bytes(code)
        for number in range(1, 1_000_000):
            place = parent / (folder_name(row.workload) + (f"-{number}" if number > 1 else ""))
            named = row.model_copy(update={"artefacts": os.path.relpath(place)})
            named = named.with_paths(lambda each, file=place / MANIFEST: paths.for_file(each, file))
            text = Manifest(row=named, chip=chip).model_dump_json(indent=2)
            (part / MANIFEST).write_text(text + "\n", encoding="utf-8")
            # what is there already, perhaps since just now, is never replaced
            try:
                if not place.exists():
                    return part.rename(place)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise
        raise FileExistsError(errno.EEXIST, f"has too many folders of {row.workload}", str(parent))
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        if isinstance(error, pyarrow.ArrowException):
            raise WriteError(errno.EIO, str(error), str(parent)) from error
        if isinstance(error, OSError):
            raise write_error(error, parent) from error
        raise


def _schema(name: str) -> pyarrow.Schema:
    import pyarrow

    fields = [
        pyarrow.field(
            column.name,
            pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
            if column.type == "string"
            else getattr(pyarrow, column.type)(),
            nullable=column.null,
            metadata={"unit": column.unit} if column.unit else None,
        )
        for column in TABLES[name]
    ]
    return pyarrow.schema(fields, metadata={_VERSION_KEY: str(VERSION).encode()})


def arrow_tables(tables: Mapping[str, Columns]) -> dict[str, pyarrow.Table]:
    """Tables as `load` reads them."""
    return {name: _table(name, columns) for name, columns in tables.items()}


def _table(name: str, columns: Columns) -> pyarrow.Table:
    import pyarrow

    return pyarrow.table({column.name: columns[column.name] for column in TABLES[name]}, schema=_schema(name))


def load(folder: Path) -> Artefacts:
    """Reads what a run left of a workload. Raises ArtefactsError with the file and the fix."""
    result = manifest(folder)
    try:
        schedule = Schedule.load(folder / SCHEDULE)
        program = image.load(folder / PROGRAM, result.chip)
    except (ScheduleError, image.ImageError) as error:
        raise ArtefactsError(f"{error}; run the workload again") from error
    return Artefacts(result.row, result.chip, schedule, program, {name: _read(folder, name) for name in TABLES})


def manifest(folder: Path) -> Manifest:
    """What the tables in a folder are of. Raises ArtefactsError with the file and the fix."""
    path = folder / MANIFEST
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ArtefactsError(
            f"{path}: cannot be read: {error.strerror}; give a folder that `meshloom run` has written"
        ) from error
    try:
        result = Manifest.model_validate_json(text)
        row = result.row.with_paths(lambda each: paths.from_file(each, path))
        return result.model_copy(update={"row": row})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ArtefactsError(
            f"{path}: {where + ': ' if where else ''}{first['msg']}; run the workload again"
        ) from error


def _read(folder: Path, name: str) -> pyarrow.Table:
    import pyarrow
    import pyarrow.parquet

    path = folder / f"{name}.parquet"
    try:
        with path.open("rb") as file:
            table = pyarrow.parquet.read_table(file)
    except (OSError, pyarrow.ArrowException) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error).partition("\n")[0]
        raise ArtefactsError(f"{path}: cannot be read: {why}; run the workload again") from error
    if (
        not table.schema.equals(_schema(name), check_metadata=False)
        or (table.schema.metadata or {}).get(_VERSION_KEY) != str(VERSION).encode()
    ):
        raise ArtefactsError(f"{path}: its columns are not those of version {VERSION}; run the workload again")
    return table
