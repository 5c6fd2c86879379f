"""Memory images: which words go into DRAM for a job, and how they go into that of a simulation and come back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig

from .interface import FILL, Job

#: First word, and words uint8 [n, P].
Segment = tuple[int, NDArray[np.uint8]]


@dataclass(frozen=True)
class Loads:
    """What is loaded for a job: segments by DRAM tile, later ones win; `bytes` of its memory and program among them;
    `free`: by tile, the first word behind all that the job has there, and behind all that stays; `anew`: into cleared
    DRAM."""

    segments: dict[int, list[Segment]]
    bytes: int
    free: dict[int, int]
    anew: bool


def loads(job: Job, chip: ChipConfig, *, anew: bool) -> Loads:
    """What a job needs in DRAM, with the fill pattern in its outputs. `anew`: also what would stay from the job
    before, which is so if nothing does."""
    anew = anew or not job.stays
    segments: dict[int, list[Segment]] = {tile: [] for tile in chip.channels}
    free = dict.fromkeys(chip.channels, 0)
    for tile, at, words in job.outputs:
        segments[tile].append((at, np.full((words, chip.lanes), FILL, np.uint8)))
        free[tile] = max(free[tile], at + words)
    for tile, at, words in job.stays:
        free[tile] = max(free[tile], at + words)
    loaded = 0
    for tile, at, words in [*job.memory, *job.program.image(chip)]:
        free[tile] = max(free[tile], at + len(words))
        stays = () if anew else [(first, count) for where, first, count in job.stays if where == tile]
        for segment in _others(at, words, stays):
            segments[tile].append(segment)
            loaded += segment[1].size
    return Loads(segments, loaded, free, anew)


def _others(at: int, words: NDArray[np.uint8], stays: Sequence[tuple[int, int]]) -> Iterator[Segment]:
    """The parts of a segment outside of these ranges (first word, words)."""
    left = np.ones(len(words) + 2, np.bool_)
    left[[0, -1]] = False
    for first, count in stays:
        left[max(1, first - at + 1) : max(1, min(len(words), first - at + count) + 1)] = False
    edges = np.flatnonzero(left[1:] != left[:-1])
    for low, high in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        yield at + low, words[low:high]


def write_image(path: Path, loads: list[tuple[int, NDArray[np.uint8]]]) -> None:
    """A memory image as the bench reads it (`bench`): later loads win where they overlap."""
    with path.open("wb") as file:
        for at, words in loads:
            if len(words):
                file.write(np.array([at, len(words)], ">u4").tobytes())
                np.ascontiguousarray(words[:, ::-1]).tofile(file)


def read_hex(path: Path, words: int, lanes: int) -> NDArray[np.uint8]:
    """What `$writememh` wrote, uint8 [words, lanes]; unknown digits (Icarus: never written) become the fill pattern."""
    lines = [line for line in path.read_text().split("\n") if line and line[0] not in "/@"]
    text = "".join(lines).replace(" ", "")
    if "x" in text or "X" in text:
        text = text.replace("xx", f"{FILL:02x}").replace("XX", f"{FILL:02x}")
    data = np.frombuffer(bytes.fromhex(text), np.uint8).reshape(words, lanes)
    return np.ascontiguousarray(data[:, ::-1])
