"""What schedules, programs and scenarios refuse, each with an input that provokes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.program.image import from_bytes, to_bytes
from meshloom.sched.routing.mesh import Mesh
from meshloom.sched.routing.program import Page, Task
from meshloom.sched.routing.program import Program as DttProgram
from meshloom.sched.schedulers.online.interface import Layer
from meshloom.sched.schedulers.registry import find as scheduler
from meshloom.sched.support.reading import parse_json
from meshloom.sched.workload.arrivals import LAST, cycles_of
from meshloom.sched.workload.catalog import find

MESH = Mesh(2, 2)
HOME = Page("a", 1, homes=(0,))
NOWHERE = Page("b", 1)


def damaged() -> bytes:
    """The image of a program, with another byte in its middle."""
    chip = load("tiny")
    (workload,) = find("gemm:4x4x4")
    image = bytearray(to_bytes(lower(scheduler("loop_order")(workload.shape, chip, workload.scale), chip)))
    image[len(image) // 2] ^= 1
    return bytes(image)


@pytest.mark.parametrize(
    ("provoke", "text"),
    [
        (lambda: Mesh(0, 2), "a mesh of 0x2 tiles: coordinates reach from 1x1 to 16x16"),
        (lambda: Mesh(2, 17), "a mesh of 2x17 tiles: coordinates reach from 1x1 to 16x16"),
        (lambda: DttProgram(MESH, (Page("a", 0),), ()), "page a: 0 flits, 1 words; at least 1 flit, 0 words"),
        (
            lambda: DttProgram(MESH, (NOWHERE,), (Task("t", 0, 5, (0,), ()),)),
            "task t: page b is nowhere yet; give it a home, or put the task behind the one that makes it",
        ),
        (
            lambda: DttProgram(MESH, (HOME,), (Task("t", 0, 5, (), (0,)),)),
            "task t: page a is there already; pages are made once",
        ),
        (lambda: from_bytes(damaged()), "corrupt: the CRC does not match; write it again"),
        (lambda: Layer("conv1", 1, ()), "layer conv1 has no version: nothing could run it; compile at least one"),
        (lambda: cycles_of(-1, "resnet8", Path()), "cycles are whole numbers from 0"),
        (
            lambda: cycles_of(LAST + 1, "resnet8", Path()),
            f"arrival: cycle {LAST + 1} is beyond {LAST}, the last one that the chip counts",
        ),
        (lambda: parse_json("[" * 100_000), "is not JSON: it is nested too deeply"),
    ],
)
def test_the_text_of_what_is_refused(provoke: Callable[[], object], text: str) -> None:
    with pytest.raises((ValueError, RuntimeError)) as refused:
        provoke()
    assert text in str(refused.value)
