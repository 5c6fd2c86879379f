"""What placing a compiled layer on free cores takes."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import PAGE_WORDS
from meshloom.sched.checker.concurrent import Grant, Placed, check_concurrent
from meshloom.sched.lowering.templates.relocate import place_program, relocated
from meshloom.sched.lowering.templates.template import ProgramPlace, Template
from meshloom.sched.workload.scenario import Request, Scenario

from ...runs.online.networks import compile_networks
from ..engine.point import Report

#: The best of so many counts.
_REPEATS = 5
#: With the first page of its network's code.
PagedTemplate = tuple[Template, int]


@dataclass(frozen=True)
class PlacedTemplate:
    """A layer on other cores: its instructions, bytes that are written, and microseconds for moving its code, for the
    whole program, and for checking that."""

    which: str
    layer: str
    scheme: str
    cores: int
    instructions: int
    written: int
    code: float
    program: float
    check: float


@dataclass(frozen=True)
class PlacedTemplates:
    """The smallest, the median and the largest of `count` templates."""

    count: int
    placed: tuple[PlacedTemplate, ...]


def three(templates: Sequence[PagedTemplate]) -> dict[str, PagedTemplate]:
    """The smallest, the median and the largest by bytes of code, of (template, first page of its network's code); of
    equal ones the first."""
    order = sorted(templates, key=lambda one: one[0].size)
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


def measure(chip_name: str, networks: Sequence[str], report: Report) -> PlacedTemplates:
    """Of all versions of all layers of networks."""
    chip = load(chip_name)
    scenario = Scenario("all", tuple(Request(name) for name in networks))
    compiled = compile_networks(scenario, chip, report)
    some = [(each, one.code_page) for one in compiled.values() for layer in one.templates for each in layer.values()]
    rows: list[PlacedTemplate] = []
    for which, (template, code_page) in three(some).items():
        place = spot(template, code_page, chip)
        program = place_program(template, chip, place)  # and what is looked up once for a template is known
        placed = Placed("it", program, Grant(place.slot, place.cores, place.first_page, place.end_page))
        rows.append(
            PlacedTemplate(
                which,
                f"{template.network}/{template.stage}",
                f"{template.scheme}",
                len(template.cores),
                program.instructions,
                template.size + 32 * len(program.boot.instructions),
                microseconds(lambda t=template, p=place: relocated(t, chip, p)),
                microseconds(lambda t=template, p=place: place_program(t, chip, p)),
                microseconds(lambda one=placed: check_concurrent([one], chip)),
            )
        )
    return PlacedTemplates(len(some), tuple(rows))
