"""What placing a compiled layer on free cores takes. Part of `meshloom bench speed`; by itself

python -m meshloom.tb.benchmarks.relocation
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import PAGE_WORDS
from meshloom.sched.checker.concurrent import Grant, Placed, check_concurrent
from meshloom.sched.lowering.templates.relocate import place_program, relocated
from meshloom.sched.lowering.templates.template import ProgramPlace, Template
from meshloom.sched.workload.scenario import Request, Scenario
from meshloom.sched.workload.workload_sets import NETWORKS

from ..results.events import OnEvent, RowCount, Stage
from ..runs.online.networks import compile_networks
from .results import Result, Sheet

CHIP = "lp9"
#: The best of so many counts.
_REPEATS = 5


Found = tuple[Template, int]


def three(found: Sequence[Found]) -> dict[str, Found]:
    """The smallest, the median and the largest by bytes of code, of (template, first page of its network's code); of
    equal ones the first."""
    order = sorted(found, key=lambda one: one[0].size)
    return {"smallest": order[0], "median": order[len(order) // 2], "largest": order[-1]}


def spot(template: Template, code_page: int, chip: ChipConfig) -> ProgramPlace:
    """The last cores of the chip, and the end of its memory: other ones than it was compiled for."""
    end = chip.dram.words // PAGE_WORDS
    code = end - -(-template.code_words // PAGE_WORDS)
    return ProgramPlace(chip.cores[-len(template.cores) :], code - code_page, code, end)


def microseconds(work: Callable[[], object]) -> float:
    """CPU time of a call, the best of some."""
    spent: list[float] = []
    for _ in range(_REPEATS):
        gc.collect()
        before = time.process_time()
        work()
        spent.append(time.process_time() - before)
    return 1e6 * min(spent)


def measure(on_progress: OnEvent, chip_name: str = CHIP, networks: Sequence[str] = NETWORKS) -> Sheet:
    """The table, of all versions of all layers of the networks."""
    chip = load(chip_name)
    asked = Scenario("all", tuple(Request(name) for name in networks))
    made = compile_networks(asked, chip, lambda what: on_progress(Stage(workload=chip.name, what=what, passing=True)))
    found = [(each, one.code_page) for one in made.values() for layer in one.templates for each in layer.values()]
    rows: list[tuple[str, ...]] = []
    for which, (template, code_page) in three(found).items():
        place = spot(template, code_page, chip)
        program = place_program(template, chip, place)  # and what is looked up once for a template is known
        placed = Placed("it", program, Grant(place.slot, place.cores, place.first_page, place.end_page))
        rows.append(
            (
                which,
                f"{template.network}/{template.stage}",
                f"{template.scheme}",
                f"{len(template.cores)}",
                f"{program.instructions:,}",
                f"{template.size + 32 * len(program.boot.instructions):,}",
                f"{microseconds(lambda t=template, p=place: relocated(t, chip, p)):,.0f}",
                f"{microseconds(lambda t=template, p=place: place_program(t, chip, p)):,.0f}",
                f"{microseconds(lambda one=placed: check_concurrent([one], chip)):,.0f}",
            )
        )
    columns = (
        "template", "layer", "scheme", "cores>", "instructions>", "bytes written>", "its code, us>",
        "the program, us>", "checking it, us>",
    )  # fmt: skip
    title = f"Placing a compiled layer on free cores: of the {len(found):,} templates of {', '.join(networks)}"
    return Sheet(f"{title} on {chip.name}", columns, rows)


def main() -> None:
    """Prints the table."""
    from ..report.console import Reporter, console
    from .results import print_result

    screen = console()
    with Reporter(screen) as on_progress:
        on_progress(RowCount(rows=1))
        sheet = measure(on_progress)
    print_result(Result("relocation", sheet.title, "", (sheet,)), screen)


if __name__ == "__main__":
    main()
