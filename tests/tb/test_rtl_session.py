"""The same launches on the RTL and in the timeline model: the same completions, to the cycle."""

from __future__ import annotations

import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.model.session import Launch
from meshloom.tb.build.builder import build
from meshloom.tb.devices.serving import ServedChip
from meshloom.tb.runs.online.rtl_session import RtlSession

from ..sched.served import FOUR, relocate, template
from ..sched.sessions import Scripted, serve, serve_chains
from ..tiers import slow_but
from .served_chip import CHIP

#: The first tier makes do with a simulator that other tests need, too.
CHIPS = {"lp4": CHIP, "four": FOUR}


def serve_on_rtl(chip: ChipConfig, script: list[Scripted]) -> list[tuple[int, int]]:
    """Number and end of each program, in the order of their ends; launches are made once the one before is due."""
    todo = sorted(script, key=lambda one: one.number)
    running: dict[int, list[Scripted]] = {}
    pairs: list[tuple[int, int]] = []
    with ServedChip(build(chip, "verilator")) as served:
        session = RtlSession(served)
        while todo or any(running.values()):
            while (
                todo
                and (todo[0].made or 0) <= session.now
                and todo[0].follows == len(running.get(todo[0].spot.slot, []))
            ):
                one = todo.pop(0)
                program = template(one.layer, chip, len(one.spot.cores))
                session.launch(Launch(one.spot.slot, relocate(program, chip, one.spot), one.follows), one.at)
                running.setdefault(one.spot.slot, []).append(one)
            number = todo[0].made if todo and (todo[0].made or 0) > session.now else None
            for done in session.advance(number):
                assert done.fault is None
                pairs.append((running[done.slot].pop(0).number, done.cycle))
        assert not session.strays
    return pairs


@pytest.mark.parametrize("chip", slow_but(CHIPS, "lp4"))
def test_the_model_serves_as_the_rtl_does(chip: str) -> None:
    """Random programs on random cores, launched up to hundreds of cycles ahead, most while others run."""
    config = CHIPS[chip]
    script = serve(config, 30, seed=11, lead=600)
    assert serve_on_rtl(config, script) == [(one.number, one.end) for one in script]


@pytest.mark.parametrize("chip", slow_but(CHIPS, "lp4"))
def test_successors_begin_in_the_same_cycles(chip: str) -> None:
    """Chains in most slots, on changing cores; some are launched before the program before them ends, some late."""
    config = CHIPS[chip]
    script = serve_chains(config, 30, seed=12, lead=1500)
    assert sum(one.follows for one in script) > 10
    assert serve_on_rtl(config, script) == [(one.number, one.end) for one in script]
