"""The round robin that gives outputs to packets and links to channels: at most one grant, on request, all in turn.

Fairness is proved in the form "while one waits, none of the others is served twice": of N candidates one waits for
N - 1 services at most. `in_turn` makes that claim of any round robin; in the router's proof a service is a packet.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import ModuleType

from amaranth.hdl import Cat, Const, Module, Signal, Value

from meshloom.hw.noc import output_unit

from .engine import Bench, Shown
from .wormhole import one_hot_or_none


def after(order: Value, first: int, second: int) -> Value:
    """Counted from the candidate after the one-hot `order` (none: from 0), `second` comes after `first`."""
    count = len(order)

    def turn(candidate: int, before: int) -> int:
        return (candidate - before - 1) % count

    start = Cat(*order[: count - 1], order[count - 1] | ~order.any())
    return Cat(*(start[b] for b in range(count) if turn(second, b) > turn(first, b))).any()


def in_turn(
    top: Module,
    name: str,
    order: Value,
    waiting: Sequence[Value],
    served: Sequence[Value],
    got: Sequence[Value],
    holding: Value | None = None,
) -> tuple[dict[str, Value], dict[str, Value]]:
    """(properties, invariants) of candidates that share something.

    `order`: the register (one-hot) that the arbiter counts from. In each cycle `waiting[i]`: candidate i waits;
    `got[i]`: its waiting ends now; `served[j]`: candidate j has been served (one of them at most). `holding`: a bit
    for the one that is being served, where that takes more than a cycle.
    """
    count = len(order)
    busy = Const(0, count) if holding is None else holding
    services = Cat(*served)
    stem = re.sub(r"\W+", "_", name)
    properties: dict[str, Value] = {}
    invariants: dict[str, Value] = {}
    for i in range(count):
        passed = Signal(count, name=f"{stem}_passed_{i}")  # those that have been served while i waits
        waited = Signal(range(count + 1), name=f"{stem}_waited_{i}")  # how many services that are
        others = Cat(*(served[j] if j != i else 0 for j in range(count)))
        with top.If(waiting[i] & ~got[i]):
            top.d.sync += [passed.eq(passed | others), waited.eq(waited + others.any())]
        with top.Else():
            top.d.sync += [passed.eq(0), waited.eq(0)]
        properties[f"{name}: {i} waits for none of the others twice"] = ~(waiting[i] & (passed & others).any())
        properties[f"{name}: {i} waits for {count - 1} services at most"] = waited < count
        late = Cat(*(passed[j] & ~after(order, i, j) for j in range(count)))
        invariants[f"{name}: those served before {i} are behind it"] = (
            ~late.any() & ~(passed & busy).any() & (waited == sum(passed))
        )
    invariants[f"{name}: order"] = one_hot_or_none(order)
    properties[f"{name}: one service at most"] = one_hot_or_none(services)
    return properties, invariants


def bench(count: int, source: ModuleType = output_unit) -> Bench:
    """A round robin of `count` candidates; those that ask may change their minds, and services may be put off."""
    top = Module()
    asking, serve = Signal(count, name="asking"), Signal(name="serve")
    before = Signal(count, name="before")
    chosen = source.round_robin_grant(top, "wanted", asking, before)
    served = [chosen[i] & serve for i in range(count)]
    with top.If(serve & chosen.any()):
        top.d.sync += before.eq(chosen)
    properties, invariants = in_turn(top, "all", before, list(asking), served, served)
    properties |= {
        "one grant at most": one_hot_or_none(chosen),
        "granted implies wanted": (chosen & ~asking) == 0,
        "somebody is granted if anybody wants": chosen.any() == asking.any(),
    }
    shown = {"asking": asking, "granted": chosen, "served": serve, "served before": before}
    return Bench(
        top,
        [asking, serve],
        properties,
        invariants,
        shown={name: Shown([value], f"{{:0{len(value)}b}}".format) for name, value in shown.items()},
        witnesses={"all wait": asking.all() & ~serve, "the last is served": served[-1] & (before == 1 << count - 2)},
    )
