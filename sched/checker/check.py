"""The program checker: checks independently, before anything runs, that a program can run.

It shares no code with the lowering. It proves the following, or reports what is wrong and where:

- every instruction encodes, and its fields fit this chip: tiles, units, regions, addresses, semaphores, shapes;
- code is in DRAM, apart from other code, and nothing overwrites it; each stream is started once, from its address;
- packets of the data plane cannot deadlock, whatever routes they take (`channel_dependences`);
- no hang in any timing: semaphores have one consumer each, so one run on tokens covers all (`tokens`);
- no semaphore exceeds 255 in any timing;
- no data race: two accesses to a word, of which one writes, are ordered in every timing (`order`, `races`);
- no instruction reads a word that nothing has written; every output word is written; END waits for everything;
- no instruction is ready only after its fire time, as the timeline model plays the program (`times`).

`order` lists the hardware ordering that it relies on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import SEMAPHORE_MAX

from ..program.names import Names, ScheduleLike
from ..program.program import Program
from .channel_dependences import check_channel_cycles
from .order import Order
from .problems import CheckError, Problem, Problems, Report
from .races import Extent, RaceCheck, not_awaited
from .static import StaticCheck
from .times import check_fire_times
from .tokens import TokenRun, run_tokens

__all__ = ["CheckError", "Extent", "Problem", "Report", "ScheduleLike", "check", "tensors_inside"]


def check(
    program: Program,
    chip: ChipConfig,
    schedule: ScheduleLike | None = None,
    *,
    initial: Iterable[Extent] | None = None,
    outputs: Iterable[Extent] = (),
) -> Report:
    """Checks a program; raises CheckError (a ProgramError) with everything found.

    `schedule` (if given) provides labels and lines of operations, the DRAM words that the host loads (inputs,
    constants) and those that must be written (outputs). Without it, `initial` and `outputs` list them as (tile, word,
    words) of region MAIN; with `initial=None` all DRAM counts as loaded. Code always counts as loaded.
    """
    if schedule is not None:
        initial, outputs = list(initial or ()), list(outputs)
        for tensor in schedule.tensors:
            pieces = [(piece.tile, piece.address, piece.words) for piece in tensor.pieces]
            (outputs if tensor.role == "output" else initial).extend(pieces)
    problems, names = Problems(), Names.of(chip, program, schedule)
    outputs = list(outputs)
    initial = None if initial is None else list(initial)

    static = StaticCheck(program, chip, names, problems)
    static.run()
    tensors_inside(static, initial, outputs)
    problems.settle()
    check_channel_cycles(static.steps, names, problems)
    tokens = run_tokens(static.steps, names, problems)
    problems.settle()

    order = Order(static.steps, tokens.order, names)
    if initial is not None:
        initial += [(tile, begin, end - begin) for tile, code in static.code.items() for begin, end, _ in code]
    races = RaceCheck(static.steps, order, names, problems, initial, outputs)
    races.run()
    not_awaited(order, names, problems)
    peak = _overflow(order, names, problems)
    problems.settle()
    check_fire_times(program, names, problems)
    problems.settle()
    warnings = _warnings(order, tokens, names)
    return Report(
        instructions=len(tokens.order),
        streams=len(names.streams),
        semaphores=len(order.posts),
        accesses=len(races.events),
        chains=len(order.chains),
        peak=peak,
        warnings=warnings,
    )


def tensors_inside(static: StaticCheck, initial: Sequence[Extent] | None, outputs: Sequence[Extent]) -> None:
    """Tensors are in DRAM and do not overlap code."""
    names, chip = static.names, static.chip
    for tile, begin, words in (*(initial or ()), *outputs):
        if tile not in static.code or begin < 0 or words < 1 or begin + words > chip.dram.words:
            what = f"a tensor piece of {words} words from word {begin} of {names.tile(tile)} does not lie in DRAM"
            static.problems.add("program", what, f"channels have {chip.dram.words} words")
            continue
        for first, end, stream in static.code[tile]:
            if begin < end and first < begin + words:
                place = names.words(tile, 0, max(begin, first), min(begin + words, end))
                what = f"its code overlaps a tensor in {place}"
                static.problems.add(names.stream(stream), what, "place code after the tensors")


def _overflow(order: Order, names: Names, problems: Problems) -> int:
    """The largest value any semaphore can reach: just before each wait, the sum of all posts not ordered after it."""
    peak = 0
    for semaphore, by_chain in order.posts.items():
        worst, before = 0, None
        waits = order.waits.get(semaphore, [])
        followers: list[tuple[list[int], list[int]]] = []
        if waits:
            consumer = waits[0].stream
            for posts in by_chain.values():
                followers.append((posts.sums, [int(clock[consumer]) for clock in posts.clocks]))
        for plan in waits:
            units = 0
            for sums, ticks in followers:
                count = bisect_left(ticks, plan.position + 1)
                units += sums[count - 1] if count else 0
            value = units - plan.consumed
            if value > worst:
                worst, before = value, plan
        left = sum(posts.sums[-1] for posts in by_chain.values()) - (waits[-1].need if waits else 0)
        if left > worst:
            worst, before = left, None
        peak = max(peak, worst)
        if worst > SEMAPHORE_MAX:
            when = f"before {names.instruction(before.stream, before.position)}" if before else "at the end of the run"
            what = f"can reach {worst} {when}, past {SEMAPHORE_MAX}"
            problems.add(names.semaphore(*semaphore), what, "let its posters wait for the consumer in between")
    return peak


def _warnings(order: Order, tokens: TokenRun, names: Names) -> tuple[str, ...]:
    warnings = [
        f"{names.semaphore(*semaphore)} ends at {value}: no instruction consumes these posts"
        for semaphore, value in sorted(tokens.left.items())
        if value
    ]
    return tuple(warnings)
