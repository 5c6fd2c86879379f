"""Fire times that cannot be met.

The earliest cycle in which an instruction could fire depends on everything before it: waits, code in flight, queued
packets and requests. Separate bounds would miss most of it, so the timeline model decides: it plays the program to the
cycle, as the chip runs it, and shares nothing with the lowering. Its verdict is that of the simulated chip, whose DRAM
responds as `dram` in the chip's description specifies.
"""

from __future__ import annotations

from ..program.names import Names
from ..program.program import Program, Stream
from .problems import Problems


def check_fire_times(program: Program, names: Names, problems: Problems) -> None:
    """Adds a problem for the first instruction that is ready only after its `fire_at`: a LATE fault. Does not play
    programs without fire times. The program must be free of other problems."""
    if not any(i.fields.get("fire_at", 0) for stream in names.streams for i in stream.instructions):
        return
    from ..model.frontend import LateError
    from ..model.timeline import ModelError, play

    try:
        play(program, names.chip)
    except LateError as late:
        fire = late.stream.instructions[late.position].fields["fire_at"]
        problems.add(
            names.instruction(_number(names, late.stream), late.position),
            f"has fire_at = {fire} and is ready only in cycle {late.cycle}, {late.cycle - fire} late: a LATE fault",
            f"set fire_at to {late.cycle} or later, or to 0",
        )
    except ModelError as error:
        problems.add("program", str(error), "change its fire times")


def _number(names: Names, stream: Stream) -> int:
    return next(number for number, other in enumerate(names.streams) if other is stream)
