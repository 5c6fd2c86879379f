"""The manifest of an exported workload: what the files of the folder are, and how a host runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, cast

from pydantic import Field, ValidationError

from meshloom.hw.spec.config import mistakes
from meshloom.sched.support.reading import parse_json

from .record import Count, Record, ResultsError

#: Version of the format.
VERSION = 1
NAME = "manifest.json"
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class WordRange(Record):
    """`words` words from word `address` of a DRAM channel on. They begin at word `offset` of their file."""

    channel: Count
    address: Count
    words: Annotated[int, Field(ge=1)]
    offset: Count


class ChannelImage(Record):
    """What is in a DRAM channel (`tile`, behind the port `axi_<channel>`) before the run. `text` is for `$readmemh`;
    `binary` has the words of all ranges one after the other, lane 0 of a word first."""

    channel: Count
    tile: Count
    words: Annotated[int, Field(ge=1)]
    text: str
    binary: str
    ranges: tuple[WordRange, ...]


class OutputImage(Record):
    """An output tensor, in the files `expected` of the manifest."""

    name: str
    ranges: tuple[WordRange, ...]


class BootRegisters(Record):
    """What the host writes before CONTROL."""

    PROGRAM_TILE: Count
    PROGRAM_ADDR: Count
    PROGRAM_COUNT: Count
    WATCHDOG: Count
    STALL_LIMIT: Count


class ExpectedFiles(Record):
    """The words of all outputs, and which of their bits count (none: all): each once as text for `$readmemh`, once
    binary."""

    text: str
    binary: str
    compared_text: str | None
    compared_binary: str | None


class ExportManifest(Record):
    """An exported workload. `cycles`: as the timeline model predicts them, with DRAM as the chip's description has it.
    `clear_cycles`: from reset to the first run. `config`: what the register CONFIG reads. `registers`: byte addresses
    of those that a run uses; `status`: masks of STATUS; `start`: what is written to CONTROL. `files`: SHA-256 of each.
    """

    format: Literal["meshloom-export"] = "meshloom-export"
    version: Literal[1] = VERSION
    meshloom: str
    workload: str
    data: str
    scheduler: str
    chip: str
    digest: Digest
    config: Count
    lanes: Annotated[int, Field(ge=1)]
    cycles: Count
    clear_cycles: Count
    registers: dict[str, int]
    status: dict[str, int]
    boot: BootRegisters
    start: Count
    program: str
    channels: tuple[ChannelImage, ...]
    expected: ExpectedFiles
    outputs: tuple[OutputImage, ...]
    files: dict[str, Digest]


def load(folder: Path) -> ExportManifest:
    """The manifest of a folder. Raises ResultsError if it has none that this version reads."""
    path = folder / NAME
    try:
        values: object = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ResultsError(f"{path}: is no manifest of an exported workload: it is no JSON") from error
    if not isinstance(values, dict) or cast("dict[str, object]", values).get("format") != "meshloom-export":
        raise ResultsError(f"{path}: is no manifest of an exported workload")
    fields = cast("dict[str, object]", values)
    try:
        return ExportManifest.model_validate(fields)
    except ValidationError as error:
        raise ResultsError(f"{path}: {mistakes(error, fields, ExportManifest)}") from error
