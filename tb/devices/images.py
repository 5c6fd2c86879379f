"""Memory images: how words go into the DRAM of a simulation and come back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .interface import FILL


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
