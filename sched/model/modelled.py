"""A session on the timeline model."""

from __future__ import annotations

from collections.abc import Iterable

from meshloom.hw.spec.config import ChipConfig, TileKind
from meshloom.hw.spec.isa import Unit
from meshloom.hw.spec.registers import Counted

from .busy import Snapshot, busy
from .host import Host
from .records import Executed
from .session import Completion, Launch, SessionError
from .timeline import idle


class ModelSession:
    """A chip in the timeline model, exact to the cycle, without faults.

    Its memory does not grow with the length of the run. A deadlocked program never completes; `advance` tells so once
    nothing else is running.
    """

    def __init__(self, chip: ChipConfig) -> None:
        """Raises SessionError if the chip runs one program at a time."""
        if not chip.programs:
            raise SessionError(
                f"{chip.name} runs one program at a time, which has the whole chip; set `programs` in its description "
                "to how many may run at once"
            )
        self.chip = chip
        self.now = 0
        self._machine = idle(chip)
        self._host = Host(self._machine, self._ended)
        self._cores: dict[int, frozenset[int]] = {}  # of the programs that run, by slot
        self._after: dict[int, frozenset[int]] = {}  # of their successors
        self._slots: dict[int, int] = {}  # by core, the slot of the program that runs there, or will
        self._latest = 0  # cycle of the latest launch
        self._completed: list[Completion] = []

    @property
    def running(self) -> int:
        """Programs that have been launched and have not completed."""
        return len(self._cores) + len(self._after)

    def launch(self, launch: Launch, at: int, log: list[Executed] | None = None) -> None:
        """See `Session.launch`. `log` receives the executed instructions of the program and of its boot stream, in the
        order of their ends."""
        program, slot = launch.program, launch.slot
        cores = self._admit(launch, at)
        self._slots |= dict.fromkeys(cores, slot)
        if launch.follows and slot in self._cores:
            self._after[slot] = cores
            self._host.follow(program.boot, slot, program.streams, at, log)
            return
        self._latest = at
        self._cores[slot] = cores
        self._host.launch(program.boot, slot, program.streams, at, log)

    def advance(self, until: int | None) -> tuple[Completion, ...]:
        """See `Session.advance`."""
        if until is None and not self._cores:
            raise SessionError(
                f"cycle {self.now}: no program is running, so none can complete; launch one, or name a cycle"
            )
        if until is not None and until < self.now:
            raise SessionError(f"cycle {self.now} has been reached, so {until} cannot be; name a later cycle")
        if until is None:
            self._machine.run()
        else:
            self._machine.run(until)
        done, self._completed = tuple(self._completed), []
        if done:
            self.now = done[-1].cycle
        elif until is not None:
            self.now = until
        else:
            raise SessionError(
                f"cycle {self._machine.now}: {_slots(self._cores)} will never complete: a stream waits for a post that "
                "no instruction makes, or packets deadlock; the program checker says which"
            )
        return done

    def busy(self, counted: Counted) -> Snapshot:
        """What a snapshot of the chip's counters shows in the cycle after `now`."""
        return Snapshot(self.now + 1, busy(self._machine, counted, self.now + 1))

    def _ended(self, slot: int, cycle: int) -> None:
        """The last stream of a program has ended."""
        after = self._after.pop(slot, frozenset())
        for core in self._cores.pop(slot) - after:
            del self._slots[core]
        if after:
            self._cores[slot] = after
        self._completed.append(Completion(slot, cycle))
        self._machine.pause()

    def _admit(self, launch: Launch, at: int) -> frozenset[int]:
        """The cores of a launch that the chip can accept in cycle `at`. Raises SessionError otherwise."""
        chip, program, slot = self.chip, launch.program, launch.slot
        where = f"launch into slot {slot} in cycle {at}"
        follows = launch.follows and slot in self._cores
        if at <= self.now or (at < self._latest and not follows):
            raise SessionError(
                f"{where}: cycle {self.now} has been reached, and the latest launch is in {self._latest}; launch in "
                f"cycle {max(self.now + 1, self._latest)} or later"
            )
        if not 0 <= slot < chip.programs:
            raise SessionError(f"{where}: {chip.name} has slots 0..{chip.programs - 1}")
        if follows and slot in self._after:
            raise SessionError(f"{where}: the slot's program has a successor; launch another when that has begun")
        if slot in self._cores and not follows:
            raise SessionError(f"{where}: the slot's program has not completed; use a free slot")
        if (program.boot.tile, program.boot.unit) != (chip.host, Unit.MOVER):
            raise SessionError(f"{where}: its boot stream must run on the host's mover, tile {chip.host:#04x}")
        if not program.streams or not program.boot.instructions:
            raise SessionError(f"{where}: it starts no stream, so it would never complete")
        cores = frozenset(stream.tile for stream in program.streams)
        for core in sorted(cores):
            if chip.tiles.get(core) is not TileKind.CORE:
                raise SessionError(f"{where}: it has a stream on tile {core:#04x}; such programs run on cores only")
            if core in self._slots and not (follows and self._slots[core] == slot):
                raise SessionError(
                    f"{where}: core {core:#04x} runs the program in slot {self._slots[core]}; place it on free cores"
                )
        return cores


def _slots(slots: Iterable[int]) -> str:
    names = [str(slot) for slot in sorted(slots)]
    return f"the program in slot {names[0]}" if len(names) == 1 else f"the programs in slots {', '.join(names)}"
