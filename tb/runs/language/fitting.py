"""Steps that a chip has no room for: how much DRAM is enough, or how few tokens a model must look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from meshloom.hw.spec.config import OFFSET_BITS, ChipConfig
from meshloom.hw.spec.contracts import stats_words
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.mapping.tiling.room import dram_fix
from meshloom.sched.program.program import ProgramError, ample_words
from meshloom.sched.schedulers.network.room import DramLack
from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.language.graph import batch_graph
from meshloom.sched.workload.language.integers import Integers
from meshloom.sched.workload.language.model import LanguageError, LanguageModel

from ...devices import readout
from ..network import PreparedNetwork, prepare

OnProgress = Callable[[str], None]
#: Words that the DRAM of a chip can have in each tile, and the shortest context that is tried.
MOST_WORDS, SHORTEST = 1 << OFFSET_BITS, 8


def fitted(
    graph: Graph, chip: ChipConfig, on_progress: OnProgress, scheduler: str, less: str = ""
) -> PreparedNetwork:  # fmt: skip
    """A step, prepared. `less`: what takes less DRAM than it.

    Raises LanguageError with the words of DRAM that are enough for tensors, caches and program, if that is what it
    lacks; what scheduling raises.
    """
    try:
        return prepare(graph, chip, on_progress, scheduler)
    except (DoesNotFit, ProgramError) as error:
        if isinstance(error, (DramLack, ProgramError)) and error.need:
            need = error.need
        elif chip.dram.words >= MOST_WORDS:
            raise
        else:
            on_progress("how much DRAM would be enough")
            try:
                roomy = chip.model_copy(update={"dram": chip.dram.model_copy(update={"words": MOST_WORDS})})
                need = end(prepare(graph, roomy, on_progress, scheduler), chip)
            except (DoesNotFit, ProgramError):
                raise error from None
        raise LanguageError(
            f"{graph.name} takes {need} words of each DRAM tile, for weights, keys and values, and its program; chip "
            f"{chip.name} has {chip.dram.words}; raise dram.words (--set dram.words={ample_words(need)})"
            + (less and f", or {less}")
        ) from error


def fitted_step(
    integers: Integers, news: tuple[int, ...], chip: ChipConfig, on_progress: OnProgress, scheduler: str
) -> PreparedNetwork:
    """The step of so many new tokens of each text, prepared. Raises LanguageError with a shorter context for a model
    that can have one and fits a core with it; what else `fitted` raises."""
    model, graph = integers.model, batch_graph(integers, news)
    ways = ["take fewer seats"] * (len(news) > 1) + ["take a shorter context"] * (model.reach > 0)
    try:
        return fitted(graph, chip, on_progress, scheduler, ", or ".join(ways))
    except DoesNotFit as error:
        context = model.context // 2 if model.reach else 0
        while context > max(news) and context >= SHORTEST:
            on_progress(f"whether a context of {context} tokens would fit")
            try:
                shorter = replace(integers, model=model.shortened(context))
                fitted(batch_graph(shorter, news), chip, on_progress, scheduler)
            except (DoesNotFit, LanguageError):
                context //= 2
                continue
            raise LanguageError(
                f"{error}; the model looks at {model.context} tokens: take a shorter context, {context} fits"
            ) from error
        raise


def check_weights(model: LanguageModel, chip: ChipConfig, weight_bits: int) -> None:
    """Raises LanguageError, with a size that is most likely enough, for a model whose weights alone are more than the
    chip's DRAM: scheduling would find out, minutes later."""
    size = -(-model.weights * weight_bits // 8)
    words = -(-size // (chip.lanes * len(chip.drams)))
    if words > chip.dram.words:
        raise LanguageError(
            f"the weights of model {model.name} alone take {words} words of each DRAM tile; chip {chip.name} has "
            f"{chip.dram.words}; {dram_fix(size, chip)}"
        )


def check_records(prepared: PreparedNetwork, chip: ChipConfig, behind: int) -> None:
    """Raises LanguageError, with the words of DRAM that are enough, if a step's records have no room from word `behind`
    on."""
    try:
        readout.plan(prepared.program, chip, stats_words(chip), behind)
    except ProgramError as error:
        raise LanguageError(
            f"{prepared.graph.name} takes {error.need} words of each DRAM tile with the records of a run; chip "
            f"{chip.name} has {chip.dram.words}; raise dram.words (--set dram.words={ample_words(error.need)}), or "
            "lower trace_records"
        ) from error


def end(prepared: PreparedNetwork, chip: ChipConfig) -> int:
    """The first word of all DRAM tiles behind tensors and program."""
    program, size = prepared.program, chip.instruction_words
    code = [one.address + len(one.instructions) * size for one in (*program.streams, program.boot)]
    tensors = prepared.network_schedule.schedule.tensors
    return max(*code, *(piece.address + piece.words for tensor in tensors for piece in tensor.pieces))
