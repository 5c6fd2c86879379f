"""The chip's reset unit: a reset of the pin, and one that waits for DRAM and the host's bus."""

from __future__ import annotations

from typing import Any

import pytest

from meshloom.hw.host_link.reset_unit import ResetUnit

from .unit_bench import Mood, always, never, simulate


def run(wanted: Mood, quiesced: tuple[Mood, ...], released: Mood, cycles: int = 30) -> dict[str, list[int]]:
    """What stands on its outputs. What the host and DRAM say comes a cycle later, as theirs are registers, and ends
    with the reset."""
    unit = ResetUnit(len(quiesced))
    out: dict[str, list[int]] = {"quiesce": [], "settled": [], "reset": []}
    seen = dict.fromkeys(out, 0)

    def before(cycle: int, context: Any) -> None:
        over = 1 in out["reset"]
        context.set(unit.wanted, wanted(cycle) and not over)
        context.set(unit.released, bool(seen["settled"]) and released(cycle) and not over)
        rest = [bool(seen["quiesce"]) and each(cycle) and not over for each in quiesced]
        context.set(unit.quiesced, sum(bit << number for number, bit in enumerate(rest)))

    def after(cycle: int, context: Any) -> None:
        for name, values in out.items():
            seen[name] = int(context.get(getattr(unit, name)))
            values.append(seen[name])

    simulate(unit, cycles, before=before, after=after)
    return out


def test_nothing_happens_by_itself() -> None:
    out = run(never, (always, always), always)
    assert not any(map(any, out.values()))


@pytest.mark.parametrize("first", [0, 9])
@pytest.mark.parametrize("second", [0, 14])
@pytest.mark.parametrize("bus", [0, 20])
def test_each_waits_for_the_one_before(first: int, second: int, bus: int) -> None:
    """Of two channels for the later one; all is as before in the cycle after the reset."""
    begin = 5
    out = run(
        lambda cycle: cycle >= begin, (lambda cycle: cycle >= first, lambda cycle: cycle >= second),
        lambda cycle: cycle >= bus,
    )  # fmt: skip
    quiesce = begin + 1
    settled = max(quiesce + 1, first, second) + 1
    reset = max(settled + 1, bus) + 1
    for name, start in (("quiesce", quiesce), ("settled", settled), ("reset", reset)):
        assert out[name] == [int(start <= cycle <= reset) for cycle in range(30)], name


def test_a_memory_that_never_answers_keeps_it_waiting() -> None:
    out = run(always, (always, never), always)
    assert (any(out["quiesce"]), any(out["settled"]), any(out["reset"])) == (True, False, False)
