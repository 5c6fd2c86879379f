"""When the operations of a core are listed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from meshloom.sched.mapping.emit.core import AHEAD, Core


def test_what_a_step_needs_is_asked_for_so_early_that_it_is_there() -> None:
    core: Any = cast("Any", SimpleNamespace(_starts=list(range(0, 1000, 100)), _lead=AHEAD))
    assert AHEAD == (250, 4)
    assert Core._ahead(core, 5, 10, 0) == 2, "290 cycles before 500"
    assert Core._ahead(core, 5, 10, 111) == 0, "and the vector unit's"
    assert Core._ahead(core, 2, 10, 0) == 0
    core._starts = list(range(0, 10_000, 1000))
    assert Core._ahead(core, 5, 10, 0) == 4, "a step before at least"
