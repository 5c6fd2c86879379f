"""Templates on other cores and in other windows: the same bytes as if compiled there, and the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import PAGE_WORDS, Opcode
from meshloom.sched.checker.check import check
from meshloom.sched.ir import functional
from meshloom.sched.lowering.lifted import Metadata, lifted
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.lowering.templates.compiling import compile_stage, template_cache
from meshloom.sched.lowering.templates.network import ServedNetwork
from meshloom.sched.lowering.templates.relocate import place_program, relocated
from meshloom.sched.lowering.templates.schemes import schemes
from meshloom.sched.lowering.templates.template import ProgramPlace, Template
from meshloom.sched.model.timeline import play
from meshloom.sched.program.program import ProgramError

from ..network_graphs import every_kind
from .test_serving_templates import inputs_of, served_chip


@pytest.fixture(scope="module")
def net() -> ServedNetwork:
    return ServedNetwork(every_kind(), served_chip(), 2)


def some_templates(net: ServedNetwork, cores: int) -> list[tuple[int, Template]]:
    """One of each stage that so many cores can share, schemes in turn."""
    result = []
    for index, shape in enumerate(net.shapes):
        if every := schemes(shape, cores):
            result.append((index, compile_stage(net, index, every[index % len(every)])))
    return result


def test_templates_keep_to_their_cores(net: ServedNetwork):
    chip = net.chip
    for _, template in some_templates(net, 4):
        group = {*template.cores}
        for stream in template.streams:
            core = template.cores[stream.core]
            code = template.instructions[stream.first : stream.first + stream.count]
            end = code[-1]
            assert (end.opcode, end.fields["tile"], end.fields["n"]) == (Opcode.SYNC, chip.host, 1)
            for one in code[:-1]:
                if one.opcode is Opcode.SYNC and one.fields["n"]:
                    assert one.fields["tile"] in group
                if one.opcode is not Opcode.MOVE:
                    continue
                source, target = one.fields["src_tile"], one.fields["dst_tile"]
                assert source == core or (source in chip.drams and target == core)
                assert target in group or target in chip.drams
                assert not one.fields["notify"] or one.fields["notify_tile"] in group


def test_the_code_is_that_of_a_template_compiled_there(net: ServedNetwork):
    chip = net.chip
    for index, template in some_templates(net, 4):
        there = chip.cores[2:]
        place = ProgramPlace(there, 0, net.code_page, net.code_page + 2, slot=0)
        program = lower(net.schedule(index, template.scheme, there), chip)
        compiled = {(s.tile, s.unit): b"".join(i.encode() for i in s.instructions) for s in program.streams}
        placed = place_program(template, chip, place)
        assert {(s.tile, s.unit): s.code(chip)[:, : chip.lanes].tobytes() for s in placed.streams} == compiled


def test_encoded_and_decoded_instructions_agree(net: ServedNetwork):
    chip = net.chip
    for _, template in some_templates(net, 3):
        place = ProgramPlace(
            (chip.cores[5], chip.cores[0], chip.cores[3]), 7, 7 + net.code_page, 9 + net.code_page, slot=5
        )
        words = relocated(template, chip, place)
        program = place_program(template, chip, place)
        assert b"".join(i.encode() for s in program.streams for i in s.instructions) == words.tobytes()
        ends = [stream.instructions[-1] for stream in program.streams]
        assert all(end.opcode is Opcode.SYNC and end.fields["tile"] == chip.host for end in ends)
        assert {(end.fields["sem"], end.fields["n"]) for end in ends} == {(5, 1)}


def moved(net: ServedNetwork, memories: functional.Memories, chip: ChipConfig, pages: int) -> functional.Memories:
    """The DRAM of a network's instance, in a window that begins with another page."""
    result = functional.Memories(chip)
    for dram in chip.drams:
        words = memories.region(dram, 0)[: net.window.words]
        result.region(dram, 0)[pages * PAGE_WORDS : pages * PAGE_WORDS + len(words)] = words
    return result


def test_numbers_are_the_same_elsewhere(net: ServedNetwork):
    chip, graph = net.chip, net.graph
    memories = functional.Memories(chip)
    for name, array in net.arrays(inputs_of(graph, 2)).items():
        memories.write_tensor(net.tensors[name], array)
    for index, template in some_templates(net, 3):
        before = moved(net, memories, chip, 11)
        schedule = net.schedule(index, template.scheme, chip.cores[:3])
        functional.execute(schedule.operations, memories)
        place = ProgramPlace((chip.cores[4], chip.cores[1], chip.cores[2]), 11, 11 + net.code_page, 13 + net.code_page)
        program = place_program(template, chip, place, alone=True)
        functional.execute(lifted(program, Metadata(), chip)[0].operations, before)
        after = moved(net, memories, chip, 11)
        for dram in chip.drams:
            np.testing.assert_array_equal(before.region(dram, 0), after.region(dram, 0), template.stage)
        check(program, chip)
        assert play(program, chip).cycles < 1.2 * template.measures.cycles + 100


def test_rights_and_boot(net: ServedNetwork):
    chip = net.chip
    (_, template), *_ = some_templates(net, 2)
    place = ProgramPlace((chip.cores[5], chip.cores[2]), 3, 3 + net.code_page, 5 + net.code_page, slot=2)
    boot = place_program(template, chip, place).boot
    assert {one.opcode for one in boot.instructions} == {Opcode.FETCH}
    fields = [one.fields for one in boot.instructions]
    assert {each["cores"] for each in fields} == {1 << 5 | 1 << 2}
    assert {(each["first_page"], each["end_page"], each["slot"]) for each in fields} == {(3, 5 + net.code_page, 2)}
    first = {each["tile"]: index for index, each in reversed(list(enumerate(fields)))}
    assert [index for index, each in enumerate(fields) if each["clear"]] == sorted(first.values())


def test_places_that_cannot_be(net: ServedNetwork):
    chip = net.chip
    (_, template), *_ = some_templates(net, 2)
    page = net.code_page
    for place, message in (
        (ProgramPlace(chip.cores[:1], 0, page, page + 2), "needs 2 different cores of served8, given are "),
        (ProgramPlace((chip.cores[0],) * 2, 0, page, page + 2), "needs 2 different cores"),
        (ProgramPlace(chip.cores[:2], 60, 60 + page, 62 + page), "does not lie in the 64 pages"),
        (ProgramPlace(chip.cores[:2], 0, page, page), "does not lie in"),
        (ProgramPlace(chip.cores[:2], 0, page, page + 2, slot=64), "slot 64 is no semaphore of the host"),
    ):
        with pytest.raises(ProgramError, match=message):
            place_program(template, chip, place)


def test_templates_are_kept(net: ServedNetwork, tmp_path):
    memory = template_cache(tmp_path, net.chip)
    scheme = schemes(net.shapes[1], 2)[0]
    result = compile_stage(net, 1, scheme, memory)
    again = compile_stage(net, 1, scheme, template_cache(tmp_path, net.chip))
    assert again is not result
    assert vars(again) == {name: vars(result)[name] for name in vars(again)}
