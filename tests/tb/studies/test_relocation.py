"""The study of placing templates: which ones, where, and what its table says."""

from __future__ import annotations

import pytest

from meshloom.sched.checker.concurrent import Grant, Placed, check_concurrent
from meshloom.sched.lowering.templates.compiling import compile_stage
from meshloom.sched.lowering.templates.network import ServedNetwork
from meshloom.sched.lowering.templates.relocate import place_program
from meshloom.sched.lowering.templates.schemes import Scheme
from meshloom.sched.workload import zoo
from meshloom.tb.studies.tools import relocation

from ..served_chip import CHIP


def test_smallest_median_and_largest_go_to_other_cores_and_pages() -> None:
    net = ServedNetwork(zoo.load("resnet8"), CHIP)
    pairs = [(compile_stage(net, index, Scheme()), net.code_page) for index in range(5)]
    chosen = relocation.three(pairs)
    sizes = sorted(template.size for template, _ in pairs)
    assert [chosen[name][0].size for name in ("smallest", "median", "largest")] == [sizes[0], sizes[2], sizes[-1]]
    for template, code_page in chosen.values():
        place = relocation.spot(template, code_page, CHIP)
        assert not {*place.cores} & {*template.cores}
        assert place.first_page > 0
        program = place_program(template, CHIP, place)
        grant = Grant(place.slot, place.cores, place.first_page, place.end_page)
        check_concurrent([Placed("it", program, grant)], CHIP)  # all that it touches is its own


@pytest.mark.slow
def test_templates_have_bytes_and_times() -> None:
    measured = relocation.measure("lp9", ("resnet8",), lambda what: None)
    assert [each.which for each in measured.placed] == ["smallest", "median", "largest"]
    assert all(each.written >= 32 * each.instructions > 0 for each in measured.placed)
    written = [each.written for each in measured.placed]
    assert written == sorted(written)
