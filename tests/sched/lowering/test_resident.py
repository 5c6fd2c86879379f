"""State that lies further on: the program of the moved schedule is the moved program."""

from __future__ import annotations

from meshloom.hw.spec.config import load as load_chip
from meshloom.sched.ir.schedule import Move
from meshloom.sched.lowering.programs import program_of
from meshloom.sched.lowering.resident import Regions, moved_program, moved_schedule
from meshloom.sched.schedulers.network.scheduler import schedule
from meshloom.sched.workload.language.graph import step_graph
from meshloom.sched.workload.language.integers import integers

from ..language_models import random_model


def test_a_moved_program_is_that_of_the_moved_schedule() -> None:
    chip, graph = load_chip("tiny"), step_graph(integers(random_model()), 2)
    plain = schedule(graph, chip).schedule
    program, regions = program_of(plain, chip), Regions.of(plain, graph.caches)
    assert {tile: len(pairs) for tile, pairs in regions.words.items()} == {chip.drams[0]: 8}  # planes of K and V
    for by in (1, 16):
        moved = moved_schedule(plain, regions, by)
        again = program_of(moved, chip)  # which the checker accepts
        assert moved_program(program, regions, by) == again
        new = [op for op in moved.operations if isinstance(op, Move) and regions.holds(op.dst.tile, op.dst.address)]
        past = moved.tensor("0/k/past").pieces[0]
        assert min(op.dst.address for op in new) == past.address + past.words == 14 + by
    assert moved_program(program, regions, 0) == program
