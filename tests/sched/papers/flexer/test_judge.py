"""From choices to one schedule: the estimate of an order beside the timeline model, and which orders that plays."""

from __future__ import annotations

from typing import Any

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.ir.schedule import Prediction
from meshloom.sched.lowering.predict import predict
from meshloom.sched.papers.flexer import judge
from meshloom.sched.papers.flexer.judge import COMPARED, NEAREST, Judge
from meshloom.sched.papers.flexer.order import AHEAD, Orderer
from meshloom.sched.papers.flexer.policy import PAPER, PAPER_STATIC, Choice
from meshloom.sched.papers.flexer.tiles import Tiling
from meshloom.sched.workload.shapes import parse


@pytest.mark.parametrize(("loops", "slots"), [("mnk", (16, 4, 4)), ("mkn", (2, 4, 128))])
def test_banks_that_send_to_one_core_share_its_link(loops: str, slots: tuple[int, int, int]) -> None:
    """Two banks that send parts of the same tile at the same time are both busy for as long as the link needs for both:
    where all tiles go like that, the DRAM behind the banks waits for half of the time."""
    chip = load("arch6")
    one = Judge(parse("gemm:1x1024x8192"), chip, 1 << 15)
    result = one.emitted(Choice(Tiling(1, 1, 1, 49), loops, slots), PAPER_STATIC)
    order = Orderer(result.nodes, result.steps, chip).run(COMPARED)
    cycles = predict(one.schedule(result, order, ""), chip).cycles
    assert order.cycles == pytest.approx(cycles, rel=0.1)


def test_every_choice_is_played_before_any_is_played_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no more than two orders are played: choices differ more than the orders of one."""
    chip = load("quad8")
    one = Judge(parse("conv:10x10x40-40,k3,p1,relu"), chip, 1000)
    choices = [Choice(Tiling(5, 10, 1, size), loops, (4, 4, 4)) for size in (2, 3) for loops in ("mnk", "nmk")]
    played: list[str] = []
    emitted = {choice: one.emitted(choice, PAPER_STATIC) for choice in choices}
    monkeypatch.setattr(one, "emitted", lambda choice, policy: emitted[choice])
    monkeypatch.setattr(one, "schedule", lambda made, order, name: made)

    def predicted(made: Any, chip: Any) -> Prediction:
        played.append(next(str(choice) for choice, other in emitted.items() if other is made))
        return Prediction(cycles=1000)

    monkeypatch.setattr(judge, "predict", predicted)
    monkeypatch.setattr(judge, "dram_words", lambda schedule, chip: 1)
    one.decide(choices, PAPER_STATIC, PAPER_STATIC)
    assert len(set(played[:3])) == 3
    assert len(played) > 3
    everything, played[:] = list(played), []
    monkeypatch.setattr(judge, "PLAYED_CYCLES", 0)
    one.decide(choices, PAPER_STATIC, PAPER_STATIC)
    assert played[:2] == everything[:2]
    assert set(played[2:]) <= set(everything[:2])  # once more, with banks that are not far ahead


def test_banks_that_are_far_ahead_need_not_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the play of an order sees only their advantage: what they load fills DRAM's queues, and programs come
    from there, too."""
    chip = load("arch2")
    one = Judge(parse("gemm:1x1024x4096"), chip, 1000)
    choice = Choice(Tiling(1, 1, 8, 4), "mnk")
    emission = one.emitted(choice, PAPER)
    orders = [one.orders(emission).run(ahead) for ahead in AHEAD]
    assert min(orders, key=lambda order: order.cycles).ahead[1] > NEAREST
    monkeypatch.setattr(judge, "PLAYED_CYCLES", 0)
    decision = one.decide([choice], PAPER, PAPER)
    assert decision.ahead[1] == NEAREST
    assert decision.cycles < 1.4 * 1024 * 4096 / 64
