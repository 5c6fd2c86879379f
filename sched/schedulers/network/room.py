"""How large DRAM must be for a network that it has no room for: its tensors and its programs, all at once."""

from __future__ import annotations

from collections.abc import Callable

from meshloom.hw.spec.config import OFFSET_BITS, ChipConfig

from ...lowering.semaphores.lower import lower
from ...mapping.memory.placement import DramFull
from ...mapping.tiling.problem import DoesNotFit
from ...program.program import ProgramError, ample_words, code_end
from ...workload.graph import Graph
from .scheduler import NetworkSchedule


class DramLack(DoesNotFit):
    """DRAM has no room for tensors and programs of a network, of which each tile must have `need` words."""

    need: int = 0


def with_need(
    make: Callable[[], NetworkSchedule],
    make_on: Callable[[ChipConfig], NetworkSchedule],
    graph: Graph,
    chip: ChipConfig,
) -> NetworkSchedule:
    """What `make` makes of a network. Where DRAM has no room for its tensors, the refusal says how many words tensors
    and programs take together in what `make_on` makes of it on a chip whose DRAM is as large as one can be. Raises
    DramLack; DoesNotFit where no DRAM would do."""
    try:
        return make()
    except DramFull as full:
        dram = chip.dram.model_copy(update={"words": 1 << OFFSET_BITS})
        largest = chip.model_copy(update={"dram": dram})
        try:
            program = lower(make_on(largest).schedule, largest)
        except (DoesNotFit, ProgramError):
            raise full from None
        need = code_end(program.streams, program.boot, largest)
        words = ample_words(need)
        lack = DramLack(
            f"network {graph.name} needs {need} words of each DRAM tile of {chip.name} for its tensors and programs, "
            f"each has {chip.dram.words}; give the chip's [dram] words = {words} (--set dram.words={words}), or take a "
            "smaller batch"
        )
        lack.need = need
        raise lack from None
