"""What an operation of the vector unit is told of a part of a map."""

from __future__ import annotations

from meshloom.sched.mapping.emit.fields import vector_fields
from meshloom.sched.workload.graph import Window


def test_a_part_in_the_middle_has_its_own_columns_and_no_padding() -> None:
    fields = dict(vector_fields(Window(3, 3, 1, 1, 1, 1, 1, 1), ((2, 4), (3, 8)), ((1, 5), (2, 9)), 2))
    assert (fields["in_w"], fields["x_plane"], fields["out_w"], fields["pixels"]) == (7, 28, 5, 10)
    assert (fields["pad_top"], fields["pad_left"], fields["blocks"]) == (0, 0, 2)
