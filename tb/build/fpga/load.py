"""A bitstream onto a board, by openFPGALoader, which is no package of PyPI: the system must have it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from ..builder import BuildError
from . import boards
from .boards import BoardError

LOADER = "openFPGALoader"


def load(file: Path, board: str) -> None:
    """Configures the board's FPGA until it loses power. What the loader prints goes where ours goes. Raises BoardError
    for a board that is not known and a file that is not there, BuildError without a loader, and when that fails."""
    target = boards.board(board)
    if not file.is_file():
        raise BoardError(f"{file}: is no file; `meshloom bitstream` makes one")
    program = shutil.which(LOADER)
    if program is None:
        raise BuildError(
            f"{LOADER} is not on the path: install it (`apt-get install openfpgaloader`, `brew install openfpgaloader`)"
        )
    done = subprocess.run([program, "-b", target.loader, str(file.absolute())], check=False)
    if done.returncode:
        raise BuildError(f"{LOADER} could not load {file} onto {board}: it ended with status {done.returncode}")
