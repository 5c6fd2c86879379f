"""Which changes a campaign makes: draws in turn from all folders, of which none depends on another."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from ...build.builder import ROOT

#: Roots of what is changed; what gathers evidence is no product, and is left out.
SIDES = {"hw": ("hw",), "software": ("sched", "tb")}
_LEFT_OUT = ("tb/studies", "tb/verify")
_TARGET = Path(__file__).with_name("target.py")
#: What decides which changes there are.
DRAWS = (Path(__file__), _TARGET)
#: Seconds that Cosmic Ray may take with a file.
_PATIENCE = 120.0


class MutantError(RuntimeError):
    """A change could not be made or tried; the message says why."""


@dataclass(frozen=True)
class Draw:
    """Change `number` of a folder, of a campaign with this seed."""

    folder: str
    number: int
    seed: int

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"{self.folder}, change {self.number} of seed {self.seed}"

    def file(self, root: Path = ROOT) -> str:
        """The source that is changed, relative to the root; the longer one is, the likelier."""
        files = _sources(root / self.folder)
        lines = [len(path.read_bytes().splitlines()) for path in files]
        path = random.Random(self.name).choices(files, lines)[0]
        return path.relative_to(root).as_posix()


@dataclass(frozen=True)
class Mutant:
    """A source (`file`, relative to the root) with one change. `before`, `after`: the line; `source`: all of it."""

    file: str
    operator: str
    line: int
    before: str
    after: str
    source: str

    @property
    def text(self) -> str:
        """It in words."""
        return f"{self.file}:{self.line}: `{self.before}` is `{self.after}`"


def _sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.py") if path.name != "__init__.py" and path.stat().st_size)


def folders(side: str, root: Path = ROOT) -> list[str]:
    """Folders with sources of one side."""
    places = {path.parent for top in SIDES[side] for path in (root / top).rglob("*.py") if path.name != "__init__.py"}
    names = sorted(path.relative_to(root).as_posix() for path in places)
    return [name for name in names if not name.startswith(_LEFT_OUT)]


def plan(counts: dict[str, int], seed: int, root: Path = ROOT) -> list[Draw]:
    """So many draws of each side, in turn from its folders, the sides mixed: whoever stops has a part of each."""
    result: list[tuple[float, Draw]] = []
    for side, count in counts.items():
        names = folders(side, root)
        for index in range(count):
            turn, place = divmod(index, len(names))
            result.append(((index + 0.5) / count, Draw(names[place], turn, seed)))
    return [draw for _, draw in sorted(result, key=lambda pair: pair[0])]


def mutant(draw: Draw, tools: Path, root: Path = ROOT) -> Mutant | None:
    """The change of a draw; None if its file has no place for one. Raises MutantError."""
    file = draw.file(root)
    command = [sys.executable, str(_TARGET), str(root / file), draw.name]
    environment = os.environ | {"PYTHONPATH": str(tools)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=_PATIENCE)
    if done.returncode:
        raise MutantError(f"{file} cannot be changed: {(done.stderr.strip().splitlines() or ['no word'])[-1]}")
    change = json.loads(done.stdout)
    return None if change is None else Mutant(file=file, **change)


def digest_of(*paths: Path) -> str:
    """Of the content of files."""
    return sha256(b"".join(sha256(path.read_bytes()).digest() for path in paths)).hexdigest()
