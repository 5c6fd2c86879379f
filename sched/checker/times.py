"""Fire times that cannot be met.

When an instruction could first fire depends on everything before it: waits, code on its way, packets and requests that
queue. A bound on each apart would leave out most of it, so the timeline model is the judge: it plays the program to the
cycle, as the chip runs it, and shares nothing with the lowering. Its verdict is that of the simulated chip, whose DRAM
answers as `dram` in the chip's description says.
"""

from __future__ import annotations

from ..program.names import Names
from ..program.program import Program, Stream
from .problems import Problems


def check_fire_times(program: Program, names: Names, problems: Problems) -> None:
    """Adds a problem for the first instruction that is ready only after its `fire_at`: a LATE fault. Programs without
    fire times are not played. The program must be free of other problems."""
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
            f"fire it in {late.cycle} or later, or leave fire_at 0",
        )
    except ModelError as error:
        problems.add("program", str(error), "change its fire times")


def _number(names: Names, stream: Stream) -> int:
    return next(number for number, other in enumerate(names.streams) if other is stream)
