"""State that lies further on: the program of the moved schedule is the moved program."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import load as load_chip
from meshloom.sched.ir.schedule import Move
from meshloom.sched.lowering.programs import program_of
from meshloom.sched.lowering.resident import Regions, ResidentProgram, lasting, moved_schedule
from meshloom.sched.schedulers.network.scheduler import schedule
from meshloom.sched.workload.language.experts import Part, slot
from meshloom.sched.workload.language.graph import step_graph
from meshloom.sched.workload.language.integers import integers

from ..language_models import model_with_experts, random_model


def test_a_moved_program_is_that_of_the_moved_schedule() -> None:
    chip, graph = load_chip("tiny"), step_graph(integers(random_model()), 2)
    plain = schedule(graph, chip).schedule
    program, regions = program_of(plain, chip), Regions.of(plain, graph.caches)
    assert {tile: len(pairs) for tile, pairs in regions.words.items()} == {chip.drams[0]: 8}  # planes of K and V
    resident = ResidentProgram(program, regions)
    for by in (1, 16):
        moved = moved_schedule(plain, (regions, by))
        again = program_of(moved, chip)  # which the checker accepts
        result = resident.moved(by)
        assert [stream.instructions for stream in result.streams] == [stream.instructions for stream in again.streams]
        for ours, theirs in zip(result.image(chip), again.image(chip), strict=True):
            assert ours[:2] == theirs[:2]
            assert np.array_equal(ours[2], theirs[2])
        new = [op for op in moved.operations if isinstance(op, Move) and regions.holds(op.dst.tile, op.dst.address)]
        past = moved.tensor("0/k/past").pieces[0]
        assert min(op.dst.address for op in new) == past.address + past.words == 14 + by
    again = zip(resident.moved(0).image(chip), program.image(chip), strict=True)
    assert all(np.array_equal(ours[2], theirs[2]) for ours, theirs in again)


def test_several_regions_move_each_by_its_own_number() -> None:
    """Two experts of four, each to another place, forwards or back: the program is that of the moved schedule, which
    the checker accepts."""
    chip, part = load_chip("tiny"), Part((2,), 0, 2)
    plain = schedule(part.graph(integers(model_with_experts()), 1), chip).schedule
    names = [slot(0, name, number) for number in range(2) for name in ("up", "down")]
    regions = [Regions.of_views(plain, [name]) for name in names]
    for name, each in zip(names, regions, strict=True):
        places = [(piece.address, piece.address + piece.words) for piece in plain.tensor(name).pieces]
        assert each.words == {chip.drams[0]: tuple(sorted(places))}
    resident = ResidentProgram(program_of(plain, chip), *regions)
    for one, other in ((0, 1), (2, 3), (1, 0), (3, 2)):
        by = [32 * one, 16 * one, 32 * (other - 1), 16 * (other - 1)]
        again = program_of(moved_schedule(plain, *zip(regions, by, strict=True)), chip)
        result = resident.moved(*by)
        assert [stream.instructions for stream in result.streams] == [stream.instructions for stream in again.streams]
        for ours, theirs in zip(result.image(chip), again.image(chip), strict=True):
            assert np.array_equal(ours[2], theirs[2])


def test_what_stays_is_what_no_step_changes() -> None:
    """Code but for the instructions with addresses in the cache; constants, but none that a MOVE writes."""
    chip, graph = load_chip("tiny"), step_graph(integers(random_model()), 2)
    plain = schedule(graph, chip).schedule
    program, regions = program_of(plain, chip), Regions.of(plain, graph.caches)
    resident = ResidentProgram(program, regions)

    def image(by: int) -> NDArray[np.uint8]:
        array = np.zeros((chip.dram.words, chip.lanes), np.uint8)
        for _, at, words in resident.moved(by).image(chip):
            array[at : at + len(words)] = words
        return array

    same = np.ones(chip.dram.words, np.bool_)
    for _, at, words in resident.unchanged(chip):
        same[at : at + words] = False
    differ = (image(0) != image(3)).any(axis=1)
    assert differ.any()
    assert same[differ].all()  # nothing that changes stays
    whole = sum(len(words) for _, _, words in program.image(chip))
    assert (~same).sum() == whole - resident.changing * chip.instruction_words
    constants = [tensor for tensor in plain.tensors if tensor.role == "constant"]
    assert sum(words for _, _, words in lasting(plain, chip)) == sum(tensor.words for tensor in constants)
    first = constants[0].pieces[0]
    overwriting = next(op for op in plain.operations if isinstance(op, Move) and op.dst.tile in chip.drams)
    moved = overwriting.model_copy(
        update={"dst": overwriting.dst.model_copy(update={"tile": first.tile, "address": first.address})}
    )
    changed = plain.model_copy(update={"operations": (*plain.operations, moved)})
    assert (first.tile, first.address, first.words) in lasting(plain, chip)
    assert (first.tile, first.address, first.words) not in lasting(changed, chip)
