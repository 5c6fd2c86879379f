"""What the timeline model has said of a scenario, kept: a run that was interrupted, or is made again, follows it.

A session is deterministic, so its completions are known as long as the calls are those that were recorded: the same
programs, word for word, launched in the same cycles. Whoever drives it works as ever, and so does the scheduler; only
the model need not run. The first call that differs ends that, and the model begins anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.registers import Counted
from meshloom.sched.model.busy import Snapshot
from meshloom.sched.model.modelled import ModelSession
from meshloom.sched.model.session import Completion, Launch
from meshloom.sched.program.program import Program, Stream
from meshloom.sched.store.findings import SearchCache
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload.scenario import Scenario

Count = Annotated[int, Field(ge=0)]


class DiffersError(Exception):
    """A call is not the recorded one."""


@dataclass(frozen=True)
class Launched:
    """A call of `launch`. `program`: digest of all that the chip is given of it."""

    slot: Count
    at: Count
    follows: bool
    program: str

    @classmethod
    def of(cls, launch: Launch, at: int, chip: ChipConfig) -> Launched:
        return cls(launch.slot, at, launch.follows, _digest(launch.program, chip))


@dataclass(frozen=True)
class Advanced:
    """A call of `advance`, and the (slot, cycle) of each completion."""

    until: Count | None
    done: tuple[tuple[Count, Count], ...]


@dataclass(frozen=True)
class Read:
    """A call of `busy`, and what it said."""

    counted: Counted
    cycle: Count
    counts: dict[int, Count]


Step = Launched | Advanced | Read
_FORM: TypeAdapter[tuple[Step, ...]] = TypeAdapter(tuple[Step, ...])


class RecordingSession:
    """A session of the model, with a note of every call in `steps`. See `Session`."""

    def __init__(self, session: ModelSession) -> None:
        self.session = session
        self.steps: list[Step] = []

    @property
    def chip(self) -> ChipConfig:
        return self.session.chip

    @property
    def now(self) -> int:
        return self.session.now

    def launch(self, launch: Launch, at: int) -> None:
        """See `Session.launch`."""
        self.session.launch(launch, at)
        self.steps.append(Launched.of(launch, at, self.chip))

    def advance(self, until: int | None) -> tuple[Completion, ...]:
        """See `Session.advance`."""
        done = self.session.advance(until)
        self.steps.append(Advanced(until, tuple((each.slot, each.cycle) for each in done)))
        return done

    def busy(self, counted: Counted) -> Snapshot:
        """See `ModelSession.busy`."""
        snapshot = self.session.busy(counted)
        self.steps.append(Read(counted, snapshot.cycle, dict(snapshot.counts)))
        return snapshot


class FollowingSession:
    """See `Session`: completes what is launched as the record says. Raises DiffersError for any other call."""

    def __init__(self, chip: ChipConfig, steps: Sequence[Step]) -> None:
        self.chip = chip
        self.now = 0
        self._steps = iter(steps)

    def launch(self, launch: Launch, at: int) -> None:
        """See `Session.launch`."""
        if next(self._steps, None) != Launched.of(launch, at, self.chip):
            raise DiffersError

    def advance(self, until: int | None) -> tuple[Completion, ...]:
        """See `Session.advance`."""
        step = next(self._steps, None)
        if not isinstance(step, Advanced) or step.until != until:
            raise DiffersError
        done = tuple(Completion(slot, cycle) for slot, cycle in step.done)
        self.now = done[-1].cycle if done else self.now if until is None else until
        return done

    def busy(self, counted: Counted) -> Snapshot:
        """See `ModelSession.busy`."""
        step = next(self._steps, None)
        if not isinstance(step, Read) or step.counted is not counted:
            raise DiffersError
        return Snapshot(step.cycle, step.counts)


class Records:
    """Records of a scenario's model runs by one scheduler, `wait` cycles behind its events, in the store."""

    def __init__(self, scenario: Scenario, chip: ChipConfig, scheduler: str, wait: int) -> None:
        # what is launched is compared at each launch; only the model's own code decides what that leads to
        self._cache = SearchCache(SCHEDULES.folder(), chip, "served", "sched.model.modelled")
        self._key = scenario, scheduler, wait

    def get(self) -> tuple[Step, ...] | None:
        """The record of the last run that came to its end."""
        return self._cache.get(self._key, _FORM)

    def put(self, steps: Sequence[Step]) -> None:
        """Keeps the record of a run that has come to its end."""
        self._cache.put(self._key, _FORM, tuple(steps))


def _digest(program: Program, chip: ChipConfig) -> str:
    """Of all that the chip is given: where streams run and lie, and every word of them."""
    digest = hashlib.sha256()
    streams: tuple[Stream, ...] = (*program.streams, program.boot)
    for each in streams:
        code = each.code(chip)
        digest.update(f"{each.tile} {each.unit:d} {each.dram_tile} {each.address} {code.shape}\n".encode())
        digest.update(code.tobytes())
    return digest.hexdigest()
