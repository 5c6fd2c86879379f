"""Serves random programs in a session on the timeline model, and again as it was written down.

Run as a script it prints what this process's model says, as JSON (see `test_session.py`): `compiled`: whether it is
compiled; `served`: cycles and a digest of everything that was executed.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.model import native
from meshloom.sched.model.modelled import ModelSession
from meshloom.sched.model.records import Executed
from meshloom.sched.model.session import Launch

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    from served import FOUR, SIX, Spot, pages, relocate, template  # pyright: ignore[reportMissingImports]
else:
    from .served import FOUR, SIX, Spot, pages, relocate, template

LAYERS = ("gemm:8x16x8", "conv:6x6x8-8,k3,p1,relu", "gemm:24x24x24")


@dataclass(frozen=True)
class Scripted:
    """A program that was served: where, launched in which cycle, as a successor or not, completed in which, and a
    digest of its records. `made`: when it was launched first, if that matters."""

    number: int
    layer: str
    spot: Spot
    at: int
    end: int = 0
    digest: str = ""
    follows: bool = False
    made: int | None = None

    @property
    def known(self) -> int:
        """The cycle in which the launch is made again: the last moment, or that of the first time."""
        return self.at - 1 if self.made is None else self.made


def launched(session: ModelSession, one: Scripted) -> list[Executed]:
    log: list[Executed] = []
    result = template(one.layer, session.chip, len(one.spot.cores))
    session.launch(Launch(one.spot.slot, relocate(result, session.chip, one.spot), one.follows), one.at, log)
    return log


def ended(one: Scripted, cycle: int, log: Sequence[Executed]) -> Scripted:
    text = "\n".join(map(repr, log))
    return replace(one, end=cycle, digest=hashlib.sha256(text.encode()).hexdigest())


def serve(chip: ChipConfig, count: int, seed: int, lead: int = 0) -> list[Scripted]:
    """Serves `count` random programs, launched as soon as cores are free, up to hundreds of cycles ahead. `lead`: each
    at least so many cycles after the decision, as a chip behind registers needs them."""
    random = Random(seed)
    session = ModelSession(chip)
    running: dict[int, tuple[Scripted, list[Executed]]] = {}
    result: list[Scripted] = []
    at = 0
    while len(result) < count:
        busy = {core for one, _ in running.values() for core in one.spot.cores}
        free = [core for core in chip.cores if core not in busy]
        while free and len(result) + len(running) < count and random.random() < 0.8:
            cores = tuple(random.sample(free, random.randint(1, min(3, len(free)))))
            free = [core for core in free if core not in cores]
            layer = random.choice(LAYERS)
            slot = random.choice([slot for slot in range(chip.programs) if slot not in running])
            size = pages(template(layer, chip, len(cores)), chip)
            at = max(at, session.now + lead + random.choice((1, 2, random.randint(1, 400))))
            one = Scripted(len(result) + len(running), layer, Spot(cores, 8 * slot, 8 * slot + size, slot), at)
            running[slot] = one, launched(session, one)
        if running:
            for done in session.advance(None):
                one, log = running.pop(done.slot)
                result.append(ended(one, done.cycle, log))
    return result


def serve_chains(chip: ChipConfig, count: int, seed: int, lead: int = 0) -> list[Scripted]:
    """The same, in chains: most programs that run are given a successor in their slot, on some of their cores and of
    the free ones, in another window. Numbers are in the order of launches."""
    random = Random(seed)
    session = ModelSession(chip)
    running: dict[int, list[tuple[Scripted, list[Executed]]]] = {}
    result: list[Scripted] = []
    at = outcome = 0
    while len(result) < count:
        slots = random.sample(range(chip.programs), chip.programs)
        for slot in slots[: count - outcome]:
            chain = running.setdefault(slot, [])
            busy = {core for each in running.values() for one, _ in each for core in one.spot.cores}
            free = [core for core in chip.cores if core not in busy or (chain and core in chain[0][0].spot.cores)]
            if len(chain) > 1 or not free or random.random() < 0.2:
                continue
            cores = tuple(random.sample(free, random.randint(1, min(3, len(free)))))
            layer = random.choice(LAYERS)
            page = 16 * slot + (8 if chain and chain[0][0].spot.first_page % 16 == 0 else 0)
            spot = Spot(cores, page, page + pages(template(layer, chip, len(cores)), chip), slot)
            at = max(at, session.now + lead + random.choice((1, 2, random.randint(1, 2000))))
            one = Scripted(outcome, layer, spot, at, follows=bool(chain), made=session.now)
            chain.append((one, launched(session, one)))
            outcome += 1
        for done in session.advance(None):
            one, log = running[done.slot].pop(0)
            result.append(ended(one, done.cycle, log))
    return result


def serve_again(chip: ChipConfig, script: Sequence[Scripted], step: int) -> list[Scripted]:
    """The same launches, each in the last moment (chains: in the same), in a run that pauses every `step` cycles."""
    session = ModelSession(chip)
    todo = sorted(script, key=lambda one: one.number)
    running: dict[int, list[tuple[Scripted, list[Executed]]]] = {}
    result: list[Scripted] = []
    while todo or any(running.values()):
        while todo and todo[0].known == session.now:
            one = todo.pop(0)
            running.setdefault(one.spot.slot, []).append((one, launched(session, one)))
        until = session.now + step
        if todo:
            until = min(until, todo[0].known)
        for done in session.advance(until):
            one, log = running[done.slot].pop(0)
            result.append(ended(one, done.cycle, log))
    return result


def main() -> None:
    served = {}
    for chip in (FOUR, SIX):
        served[chip.digest] = [[one.at, one.end, one.digest] for one in serve(chip, 25, seed=5)]
    json.dump({"compiled": native.compiled(), "served": served}, sys.stdout)


if __name__ == "__main__":
    main()
