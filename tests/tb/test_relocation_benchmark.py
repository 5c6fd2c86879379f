"""The benchmark of placing templates: which ones, where, and what its table says."""

from __future__ import annotations

import pytest

from meshloom.sched.checker.concurrent import Grant, Placed, check_concurrent
from meshloom.sched.lowering.templates.compiling import compile_stage
from meshloom.sched.lowering.templates.network import ServedNetwork
from meshloom.sched.lowering.templates.relocate import place_program
from meshloom.sched.lowering.templates.schemes import Scheme
from meshloom.sched.workload import zoo
from meshloom.tb.benchmarks import relocation

from .served_chip import CHIP


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
def test_the_table_has_bytes_and_times() -> None:
    sheet = relocation.measure(lambda event: None, networks=("resnet8",))
    assert [row[0] for row in sheet.rows] == ["smallest", "median", "largest"]
    numbers = [[int(cell.replace(",", "")) for cell in row[4:]] for row in sheet.rows]
    assert all(written >= 32 * instructions > 0 for instructions, written, *_ in numbers)
    assert numbers[0][1] <= numbers[1][1] <= numbers[2][1]
