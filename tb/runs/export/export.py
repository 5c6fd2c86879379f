"""From a prepared workload to the files that run it without Meshloom."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import clear_cycles
from meshloom.sched.lowering.lifted import metadata_of
from meshloom.sched.program import image

from ...build.verilog_files import emit_verilog
from ...devices.interface import Job
from ...results.export import (
    NAME,
    BootRegisters,
    ChannelImage,
    ExpectedFiles,
    ExportManifest,
    OutputImage,
    WordRange,
)
from ..kinds.interface import PreparedRun
from . import bench, texts
from .contents import Contents, Words, contents

if TYPE_CHECKING:
    from ..outputs import OutputWords

PROGRAM = "program.bin"
_FILES = Path(__file__).with_name("files")
_DRIVER = ("meshloom_driver.c", "meshloom_driver.h")


def files(run: PreparedRun, chip: ChipConfig) -> dict[str, bytes]:
    """All files of the folder of an exported workload, by name. Raises WorkloadError if nobody knows what it must
    compute; EmitError, SettingError."""
    job = run.job(chip)
    parts = contents(job, run.outputs(chip), chip)
    channels = tuple(_channel(parts, index) for index in range(len(parts.channels)))
    outputs = tuple(_outputs(parts.outputs))
    draft = _manifest(run, chip, job, parts, channels, outputs)
    result = {PROGRAM: image.to_bytes(run.program, metadata_of(run.schedule))}
    for entry, ranges in zip(channels, parts.channels, strict=True):
        result |= _both(entry.text, entry.binary, ranges, chip.lanes)
    expected, compared = parts.expected, parts.compared
    result |= _both(draft.expected.text, draft.expected.binary, [Words(0, expected)], chip.lanes)
    if draft.expected.compared_text and draft.expected.compared_binary and compared is not None:
        names = draft.expected.compared_text, draft.expected.compared_binary
        result |= _both(*names, [Words(0, compared)], chip.lanes)
    result |= _code(draft, parts, expected, compared)
    texts_of = {"bench.v": bench.bench(draft, chip), **bench.modules(chip)}
    result |= {name: text.encode() for name, text in texts_of.items()}
    with TemporaryDirectory(prefix="meshloom_") as work:
        result |= {f"chip/{path.name}": path.read_bytes() for path in emit_verilog(chip, Path(work))}
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(result.items())}
    manifest = draft.model_copy(update={"files": digests})
    return {NAME: (manifest.model_dump_json(indent=2) + "\n").encode(), **result}


def _manifest(
    run: PreparedRun,
    chip: ChipConfig,
    job: Job,
    parts: Contents,
    channels: tuple[ChannelImage, ...],
    outputs: tuple[OutputImage, ...],
) -> ExportManifest:
    """All but the digests of files."""
    boot = job.program.boot
    some = parts.compared is not None
    return ExportManifest(
        meshloom=metadata.version("meshloom"),
        workload=run.name,
        data=str(run.settings().get("input", "")),
        scheduler=run.schedule.scheduler,
        chip=chip.name,
        digest=chip.digest,
        config=int(chip.digest[-8:], 16),
        lanes=chip.lanes,
        cycles=run.timeline.cycles,
        clear_cycles=clear_cycles(chip),
        registers={register.name: int(register) for register in texts.REGISTERS},
        status=texts.masks(),
        boot=BootRegisters(
            PROGRAM_TILE=boot.dram_tile,
            PROGRAM_ADDR=boot.address,
            PROGRAM_COUNT=len(boot.instructions),
            WATCHDOG=job.watchdog,
            STALL_LIMIT=job.stall_limit,
        ),
        start=texts.START,
        program=PROGRAM,
        channels=channels,
        expected=ExpectedFiles(
            text="expected.hex",
            binary="expected.bin",
            compared_text="compared.hex" if some else None,
            compared_binary="compared.bin" if some else None,
        ),
        outputs=outputs,
        files={},
    )


def _channel(parts: Contents, index: int) -> ChannelImage:
    chip, offset = parts.chip, 0
    ranges: list[WordRange] = []
    for each in parts.channels[index]:
        ranges.append(WordRange(channel=index, address=each.address, words=len(each.words), offset=offset))
        offset += len(each.words)
    return ChannelImage(
        channel=index,
        tile=chip.channels[index],
        words=chip.dram.words,
        text=f"channel{index}.hex",
        binary=f"channel{index}.bin",
        ranges=tuple(ranges),
    )


def _outputs(outputs: Iterable[OutputWords]) -> Iterable[OutputImage]:
    offset = 0
    for output in outputs:
        ranges: list[WordRange] = []
        for place in output.locations:
            ranges.append(WordRange(channel=place.channel, address=place.address, words=place.words, offset=offset))
            offset += place.words
        yield OutputImage(name=output.name, ranges=tuple(ranges))


def _both(text: str, binary: str, ranges: Sequence[Words], lanes: int) -> dict[str, bytes]:
    """Words as text and as bytes."""
    empty = [np.zeros((0, lanes), np.uint8)]
    return {
        text: texts.readmemh(ranges).encode(),
        binary: np.concatenate([*empty, *(each.words for each in ranges)]).tobytes(),
    }


def _code(
    draft: ExportManifest, parts: Contents, expected: NDArray[np.uint8], compared: NDArray[np.uint8] | None
) -> dict[str, bytes]:
    """The C files."""
    loads = [
        (place, each.words)
        for entry, ranges in zip(draft.channels, parts.channels, strict=True)
        for place, each in zip(entry.ranges, ranges, strict=True)
    ]
    outputs: list[tuple[WordRange, NDArray[np.uint8], NDArray[np.uint8] | None]] = []
    for output in draft.outputs:
        for place in output.ranges:
            part = slice(place.offset, place.offset + place.words)
            outputs.append((place, expected[part], None if compared is None else compared[part]))
    result = {name: (_FILES / name).read_bytes() for name in _DRIVER}
    result["meshloom_image.h"] = texts.header(draft, len(loads), len(outputs)).encode()
    result["meshloom_image.c"] = texts.source(draft.lanes, loads, outputs).encode()
    return result
