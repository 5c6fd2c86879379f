"""Processes killed at random moments: `python -m meshloom.tb.verify.kills`, which is `make kills`.

A command is started and killed (its own process, or one that it has started), again and again; then it is run to its
end, and must leave what an undisturbed run leaves. After each kill no process of it may live on, and no file that it
has written may be half of one. Exit status: 0 all is well, 1 something was not, 2 bad input.

The moments and the victims come of a seed. They are shares of the time that the undisturbed run took, so another
machine kills at other instructions.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any
from uuid import uuid4

import numpy as np
import typer

from meshloom.sched.store import cache

#: Kills of a night; the seed is one that shows other moments when it is changed.
KILLS, SEED = 500, 1
#: Kills in a row, before a command may come to its end.
CHAIN = 5
#: Seconds after which a process is one that lives on, and a command one that hangs.
_SOON, _HANGS = 20.0, 600.0
#: By its value in their environment, all processes of a command are known, whoever is their parent.
MARK = "MESHLOOM_KILLS"

SWEEP = 'name = "s"\nchips = ["tiny"]\nworkloads = ["gemm:{m}x8x8"]\n[parameters]\nm = [4, 8, 12, 16, 20, 24]\n'
SCENARIO = 'name = "s"\n[[network]]\nname = "ds_cnn"\narrival = [0, 5000]\n'
_MAPPING = Path(__file__).parents[2] / "examples" / "mappings" / "zigzag" / "tiny" / "gemm_32x32x32_complete.json"
SCHEDULER = """
import time

def schedule(task):
    core, tile = task.cores[0], task.tiles(task.rows)[0]
    n, k = (0, task.n_blocks), (0, task.k_blocks)
    time.sleep(2.0)
    task.load_bias(core, n, at=0)
    task.load_weights(core, n, k, at=0)
    task.load_input(core, tile, k, at=0)
    task.gemm(core, tile, n, k, a=0, b=0, bias=0, sums=0, out=0)
    task.store(core, tile, n, at=0)
"""


@dataclass(frozen=True)
class KillCase:
    """A command, of which the same is run again after a kill. `files`: what it reads, as text or a file to copy;
    `result`: what it has left in a folder, for comparison; `simulates`: it needs the simulator of chip tiny."""

    name: str
    words: tuple[str, ...]
    result: Callable[[Path], Any]
    files: Mapping[str, str | Path] = field(default_factory=dict[str, str | Path])
    simulates: bool = False


def _bytes_of(name: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).read_text(encoding="utf-8")


def _points(folder: Path) -> Any:
    from ..runs.sweeps.query import rows

    return sorted(rows(folder / "rows").select("workload", "status", "cycles", "dram_bytes").rows())


def _rows(folder: Path) -> Any:
    rows = json.loads((folder / "out.json").read_text(encoding="utf-8"))["rows"]
    names = ("workload", "rtl_cycles", "model_cycles", "bytes_checked", "mismatches", "records_compared", "error")
    return [tuple(row.get(name) for name in names) for row in rows]


def _fields_of(file: str, *names: str) -> Callable[[Path], Any]:
    """Some of what results say; all but times and places."""

    def fields(folder: Path) -> Any:
        results = json.loads((folder / file).read_text(encoding="utf-8"))
        return [results[name] for name in names]

    return fields


_TINY = ("--chip", "tiny")
CASES = (
    KillCase("sweep", ("sweep", "s.toml", "--out", "rows", "--jobs", "2"), _points, {"s.toml": SWEEP}),
    KillCase(
        "schedule",
        ("schedule", "gemm:4x4x4", *_TINY, "--scheduler", "mine.py:schedule", "--out", "s.json"),
        _bytes_of("s.json"),
        {"mine.py": SCHEDULER},
    ),
    KillCase("search", ("schedule", "gemm:16x16x16", *_TINY, "--out", "s.json"), _bytes_of("s.json")),
    KillCase(
        "run",
        ("run", "gemm:8x8x8", "gemm:4x4x4", *_TINY, "--jobs", "2", "--json", "out.json"),
        _rows,
        simulates=True,
    ),
    KillCase(
        "train",
        ("train", "digits", "--steps", "8", "--batch", "6", "--model", "--checkpoint", "c.npz", "--json", "t.json"),
        _fields_of("t.json", "steps", "losses", "accuracy", "model_cycles", "bytes_checked", "mismatches"),
    ),
    KillCase(
        "generate",
        (
            "generate",
            "shakespeare",
            "--prompt",
            "ROMEO:",
            "--tokens",
            "6",
            "--model",
            "--checkpoint",
            "g.npz",
            "--json",
            "g.json",
        ),
        _fields_of("g.json", "text", "float_text", "agreement", "perplexity", "prefill", "decode"),
    ),
    KillCase(
        "serve",
        ("serve", "s.toml", "--model", "--json", "s.json"),
        _fields_of("s.json", "instances", "programs", "cores", "busy"),
        {"s.toml": SCENARIO},
    ),
    KillCase(
        "import",
        ("import", "zigzag", "m.json", *_TINY, "--out", "s.json"),
        _bytes_of("s.json"),
        {"m.json": _MAPPING},
    ),
)


@dataclass
class KillOutcome:
    """What a campaign has done, and what was wrong."""

    kills: int = 0
    ends: int = 0
    victims: dict[str, int] = field(default_factory=dict[str, int])
    wrong: list[str] = field(default_factory=list[str])


def processes(mark: str) -> dict[int, str]:
    """Processes that live and have this value in their environment; by their number, what they are."""
    living: dict[int, str] = {}
    for place in Path("/proc").iterdir():
        if not place.name.isdecimal():
            continue
        with suppress(OSError):
            if f"{MARK}={mark}".encode() not in (place / "environ").read_bytes().split(b"\0"):
                continue
            if (place / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                living[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:100]
    return living


def half_written(folder: Path) -> Iterator[str]:
    """Files with the names of results that cannot be read."""
    for path in sorted(folder.rglob("*")):
        if path.name.startswith(".") or not path.is_file():
            continue
        try:
            if path.suffix == ".json":
                json.loads(path.read_text(encoding="utf-8"))
            elif path.suffix == ".parquet":
                import polars

                polars.read_parquet(path)
            elif path.suffix == ".npz":
                with np.load(path) as arrays:
                    _ = [arrays[name] for name in arrays]
        except Exception as error:
            yield f"{path.name} is half a file: {error}"


@dataclass
class Victim:
    """A case in a folder, with a cache of its own in which simulators and compiled code are those of `cache.root()`."""

    case: KillCase
    folder: Path
    mark: str = field(default_factory=lambda: uuid4().hex)

    def __post_init__(self) -> None:
        own, shared = self.folder / "cache", cache.root()
        own.mkdir(parents=True)
        for name in ("native", "simulators", "numba"):
            if (shared / name).is_dir() and (name != "simulators" or self.case.simulates):
                (own / name).symlink_to(shared / name)
        self.work.mkdir()
        for name, text in self.case.files.items():
            content = text.read_text(encoding="utf-8") if isinstance(text, Path) else text
            (self.work / name).write_text(content, encoding="utf-8")

    @property
    def work(self) -> Path:
        """Where the command runs."""
        return self.folder / "work"

    def start(self) -> subprocess.Popen[bytes]:
        """Starts the command."""
        variables = {MARK: self.mark, cache.VARIABLE: str(self.folder / "cache")}
        with (self.folder / "stderr").open("wb") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "meshloom.tb.cli.main", *self.case.words],
                cwd=self.work, env=os.environ | variables, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=errors, start_new_session=True,
            )  # fmt: skip

    def finish(self) -> str:
        """Runs it to its end; what is wrong with that, or nothing."""
        process = self.start()
        try:
            status = process.wait(_HANGS)
        except subprocess.TimeoutExpired:
            self.clear()
            process.wait()
            return f"hangs: no end within {_HANGS:g} seconds"
        words = (self.folder / "stderr").read_text(errors="replace").strip()
        return f"ends with {status}: {words[-300:]}" if status else ""

    def kill(self, after: float, choice: random.Random) -> tuple[str, list[str]]:
        """Starts it, and kills one of its processes after so many seconds. Who it was (nobody, if it has ended before),
        and what was wrong then."""
        process, who = self.start(), "client"
        with suppress(subprocess.TimeoutExpired):
            process.wait(after)
            return "", [*half_written(self.work)]
        others = sorted(set(processes(self.mark)) - {process.pid})
        number = process.pid
        if others and choice.random() < 0.5:
            number, who = choice.choice(others), "worker"
        with suppress(ProcessLookupError):
            os.kill(number, choice.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
        try:
            process.wait(_HANGS)
        except subprocess.TimeoutExpired:
            self.clear()
            process.wait()
            return who, [f"hangs after its {who} was killed"]
        return who, [*self.orphans(), *half_written(self.work)]

    def orphans(self) -> list[str]:
        """Processes that have not followed the client; they are ended."""
        end = time.monotonic() + _SOON
        while (left := processes(self.mark)) and time.monotonic() < end:
            time.sleep(0.05)
        self.clear()
        return [f"lives on: {what}" for what in left.values()]

    def clear(self) -> None:
        """Ends all of its processes."""
        for number in processes(self.mark):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)


def campaign(
    cases: Sequence[KillCase], kills: int, seed: int, place: Path, say: Callable[[str], None] = lambda line: None
) -> KillOutcome:
    """Kills processes of all cases, so many in all. `place`: an empty folder."""
    outcome, expected = KillOutcome(), dict[str, tuple[float, Any]]()
    for case in cases:
        undisturbed = Victim(case, place / f"{case.name}-undisturbed")
        failure = undisturbed.finish()  # what is compiled is then there
        began = time.monotonic()
        shutil.rmtree(undisturbed.folder)
        undisturbed = Victim(case, undisturbed.folder)
        failure = failure or undisturbed.finish()
        if failure:
            outcome.wrong.append(f"{case.name}, undisturbed: {failure}")
            return outcome
        expected[case.name] = time.monotonic() - began, case.result(undisturbed.work)
    chain = 0
    while outcome.kills < kills and not outcome.wrong:
        case = cases[chain % len(cases)]
        seconds, result = expected[case.name]
        choice = random.Random(f"{seed} {chain}")
        victim = Victim(case, place / f"{case.name}-{chain}")
        wrong: list[str] = []
        for _ in range(min(CHAIN, kills - outcome.kills)):
            who, seen = victim.kill(choice.uniform(0.05, 1.0) * seconds, choice)
            outcome.kills += bool(who)
            outcome.ends += not who
            if who:
                outcome.victims[who] = outcome.victims.get(who, 0) + 1
            wrong += seen
        if last := victim.finish():
            wrong.append(last)
        elif case.result(victim.work) != result:
            wrong.append("what is resumed is not what an undisturbed run leaves")
        wrong += victim.orphans()
        outcome.wrong += [f"{case.name}, chain {chain} of seed {seed}: {each}" for each in wrong]
        if not wrong:
            shutil.rmtree(victim.folder)
        chain += 1
        say(f"kills: {outcome.kills} of {kills}, {case.name}")
    return outcome


def main(
    kills: Annotated[int, typer.Option(min=1, help="Processes to kill.")] = KILLS,
    seed: Annotated[int, typer.Option(min=1, help="A different seed gives other moments and victims.")] = SEED,
) -> None:
    """Kill commands and their workers at random moments, run them again, and compare with undisturbed runs."""
    with TemporaryDirectory(prefix="meshloom-kills-") as folder:
        outcome = campaign(CASES, kills, seed, Path(folder), lambda line: print(line, flush=True))
        for each in outcome.wrong:
            print(f"error: {each}", file=sys.stderr)
    victims = ", ".join(f"{count} {who}s" for who, count in sorted(outcome.victims.items()))
    print(f"kills: {outcome.kills} ({victims}); {outcome.ends} came to their end before; {len(outcome.wrong)} wrong")
    sys.exit(bool(outcome.wrong))


if __name__ == "__main__":
    typer.run(main)
