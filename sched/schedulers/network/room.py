"""How large DRAM must be for a network that it has no room for: its tensors and its programs, all at once."""

from __future__ import annotations

from collections.abc import Callable

from meshloom.hw.spec.config import OFFSET_BITS, ChipConfig

from ...lowering.semaphores.lower import lower
from ...mapping.memory.placement import DramFull
from ...mapping.tiling.problem import DoesNotFit
from ...program.program import ample_words, code_end
from ...workload.graph import Graph
from .scheduler import NetworkSchedule, schedule
from .sharing import SharingOptions


def with_need(
    make: Callable[[], NetworkSchedule], graph: Graph, chip: ChipConfig, sharing: SharingOptions
) -> NetworkSchedule:
    """What `make` makes of a network. Where DRAM has no room for its tensors, the refusal says how many words tensors
    and programs of its first schedule take together. Raises DoesNotFit."""
    try:
        return make()
    except DramFull:
        dram = chip.dram.model_copy(update={"words": 1 << OFFSET_BITS})
        largest = chip.model_copy(update={"dram": dram})
        program = lower(schedule(graph, largest, sharing=sharing).schedule, largest)
        need = code_end(program.streams, program.boot, largest)
        words = ample_words(need)
        raise DoesNotFit(
            f"network {graph.name} needs {need} words of each DRAM tile of {chip.name} for its tensors and programs, "
            f"each has {chip.dram.words}; give the chip's [dram] words = {words} (--set dram.words={words}), or take a "
            "smaller batch"
        ) from None
