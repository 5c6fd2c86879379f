"""How tiles share a DRAM channel: nobody starves, and what one tile requests is read in its order.

`turns`: the arbiter alone. By turns, a tile waits for one MOVE of each other at most. By credit, it waits for so many
rounds (`contracts.rounds_ahead`), in each of which another reads its credit and the rest of a MOVE, and then for one
MOVE of each: `contracts.words_ahead`, of which this is the proof. Numbers of words are as wide as the bench says; the
arbiter adds, subtracts and compares with 0, whatever the width.

`queues`: the n-th request that a tile makes is the n-th of that tile to be read, unchanged. Any request that is written
(the free input `pick` says which) is followed, as in the proof of the routers' buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from amaranth.hdl import Cat, Module, Mux, Signal, Value

from meshloom.hw.noc import arbitration
from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import rounds_ahead
from meshloom.hw.wiring.signatures import MOVE

from .arbiter import after, in_turn
from .engine import Bench, Shown
from .probe import Inside
from .wormhole import one_hot_or_none

#: Bits of what the proof of the queues knows of a request.
MARK_BITS = 3


def turns(
    count: int, credits: tuple[int, ...] = (), word_bits: int = 2, source: ModuleType = arbitration
) -> Bench:  # long: one property after another
    """An arbiter of `count` tiles, which may change their minds, and MOVEs of any length; `credits`: of each."""
    top = Module()
    top.submodules.arbiter = unit = source.Arbiter(count, credits, word_bits)
    inner = Inside(unit)
    asking, serve, words = Signal(count, name="asking"), Signal(name="serve"), Signal(word_bits, name="words")
    grant = Signal(count, name="granted")
    top.d.comb += [
        unit.asking.eq(asking),
        unit.words.eq(words),
        unit.taken.eq(serve & unit.grant.any()),
        grant.eq(unit.grant),
    ]
    solvent = inner["asks_with_credit"] if credits else asking
    served = [grant[i] & serve for i in range(count)]
    properties, invariants = in_turn(top, "all", inner["before"], list(solvent), served, served)
    properties |= {
        "one grant at most": one_hot_or_none(grant),
        "granted implies wanted": (grant & ~asking) == 0,
        "somebody is granted if anybody may be": grant.any() == solvent.any(),
    }
    shown: dict[str, Value] = {"asking": asking, "granted": grant, "served": serve, "words": words}
    witnesses = {"all wait": asking.all() & ~serve, "the last is served": served[-1]}
    if credits:
        more = _bounds(top, inner, credits, asking, words, served)
        properties |= more[0]
        invariants |= more[1]
        shown |= more[2]
        witnesses["the first waits for its credit"] = asking[0] & ~solvent[0]
    return Bench(
        top,
        [asking, serve, words],
        properties,
        invariants,
        shown={name: Shown([value]) for name, value in shown.items()},
        witnesses=witnesses,
    )


def _bounds(
    top: Module, inner: Inside, credits: tuple[int, ...], asking: Signal, words: Signal, served: Sequence[Value]
) -> tuple[dict[str, Value], dict[str, Value], dict[str, Value]]:
    """(properties, invariants, lines of the trace) of an arbiter by credit: rounds and words ahead of one that asks."""
    count, longest = len(credits), (1 << len(words)) - 1
    ends, asks = inner["ends"], inner["asks_with_credit"]
    left = [inner[f"credit_{i}"] for i in range(count)]
    most = [credit + longest - 1 for credit in credits]  # words of one in a round
    read = [Signal(range(credit + longest), name=f"read_{i}") for i, credit in enumerate(credits)]  # in this round
    properties: dict[str, Value] = {"a round ends if nobody may be granted, and only then": ends == ~asks.any()}
    invariants: dict[str, Value] = {}
    shown: dict[str, Value] = {"a round ends": ends}
    now = [Mux(served[i], words, 0) for i in range(count)]
    for i, credit in enumerate(credits):
        top.d.sync += read[i].eq(Mux(ends, 0, read[i] + now[i]))
        invariants[f"{i}: what it has read was its credit"] = read[i] + left[i] <= credit
        invariants[f"{i}: credit"] = (left[i] <= credit) & (left[i] > -longest)
        others = [j for j in range(count) if j != i]
        rounds, ahead = rounds_ahead(credit, longest), sum(most[j] for j in others)
        bound = rounds * ahead + longest * len(others)
        waits = Signal(name=f"waits_{i}")  # it asks, and will still in the next cycle
        passed_rounds = Signal(range(rounds + 2), name=f"rounds_{i}")
        total = Signal(range(2 * bound + 2), name=f"total_{i}")  # words of others since it began to wait
        top.d.comb += waits.eq(asking[i] & ~served[i])
        with top.If(waits):
            top.d.sync += [passed_rounds.eq(passed_rounds + ends), total.eq(total + sum(now[j] for j in others))]
        with top.Else():
            top.d.sync += [passed_rounds.eq(0), total.eq(0)]
        passed = Signal(count, name=f"passed_{i}")  # that have been served while it asks and has credit
        served_others = Cat(*(served[j] if j != i else 0 for j in range(count)))
        top.d.sync += passed.eq(Mux(asks[i] & ~served[i], passed | served_others, 0))
        late = Cat(*(passed[j] & ~after(inner["before"], i, j) for j in range(count)))
        invariants[f"{i}: those served before it are behind it"] = ~late.any()
        rest = Mux(left[i] > 0, longest * sum(passed), sum(read[j] for j in others))
        invariants[f"{i}: rounds have paid"] = (left[i] > 0) | (left[i] >= 1 - longest + passed_rounds * credit)
        invariants[f"{i}: words ahead"] = total <= passed_rounds * ahead + rest
        properties[f"{i} waits for {rounds} rounds at most"] = passed_rounds <= rounds
        properties[f"{i} waits for {bound} words at most"] = total <= bound
        shown[f"credit of {i}"] = left[i]
    return properties, invariants, shown


def queues(depth: int, tile: int, source: ModuleType = arbitration) -> Bench:  # long: one property after another
    """Queues of `depth` requests of three tiles each, by turns; the one of the tile of this number is watched."""
    top = Module()
    top.submodules.queues = unit = source.RequestQueues(_chip(depth))
    tiles = tuple(unit.config.tiles)
    inner = Inside(unit, ["storage"])
    number, mark = Signal(range(len(tiles)), name="tile"), Signal(MARK_BITS, name="mark")
    write, read, pick = (Signal(name=name) for name in ("write", "read", "pick"))
    at, tag = (MOVE.offsets[name][0] for name in ("wait_sem", "tag"))
    top.d.comb += [unit.w_en.eq(write), unit.r_en.eq(read), unit.w_data[tag : tag + MARK_BITS].eq(mark)]
    with top.Switch(number):
        for at_number, address in enumerate(tiles):
            with top.Case(at_number):
                top.d.comb += unit.w_data[at : at + 8].eq(address)
    front = unit.r_data[tag : tag + MARK_BITS]
    grant = inner["arbiter.grant"]
    comes, goes = Signal(name="comes"), Signal(name="goes")
    top.d.comb += [
        comes.eq(write & unit.w_rdy & (number == tile)),
        goes.eq(read & unit.r_rdy & grant[tile]),
    ]
    held = Signal(range(depth + 1), name="held")  # requests of the tile, counted outside
    top.d.sync += held.eq(held + comes - goes)
    followed, before, value = (
        Signal(name="followed"),
        Signal(range(depth + 1), name="before"),
        Signal(MARK_BITS, name="value"),
    )
    with top.If(followed & goes):
        top.d.sync += [followed.eq(before != 0), before.eq(before - 1)]
    with top.Elif(~followed & comes & pick):
        top.d.sync += [followed.eq(1), before.eq(held - goes), value.eq(mark)]
    properties: dict[str, Value] = {
        "there is room until the queue is full": ~(number == tile) | (unit.w_rdy == (held != depth)),
        "read only what was written": ~goes | (held != 0),
        "nothing lost": ~followed | (held > before),
        "nothing changed, doubled or out of order": ~(goes & followed & (before == 0)) | (front == value),
        "somebody is read if anybody wants": ~(held != 0) | unit.r_rdy,
    }
    levels = [inner[f"level_{i}"] for i in range(len(tiles))]
    end, first = (inner[name] for name in (f"end_{tile}", f"front_{tile}"))
    rows, size = inner.rows("storage"), len(inner.rows("storage")) // len(tiles)
    place = Signal(range(2 * depth + 1), name="place")
    top.d.comb += place.eq(first + before)
    there = [
        ((place == row) | (place == row + depth)) & (rows[tile * size + row][tag : tag + MARK_BITS] == value)
        for row in range(depth)
    ]
    invariants: dict[str, Value] = {
        "levels": Cat(*(level <= depth for level in levels)).all() & (levels[tile] == held),
        "pointers": (first < depth) & (end < depth) & ((first + held == end) | (first + held == end + depth)),
        "the followed request is in its place": ~followed | ((before < held) & Cat(*there).any()),
        "order": one_hot_or_none(inner["arbiter.before"]),
    }
    shown = {
        "tile": number, "mark": mark, "write": write, "room": unit.w_rdy, "read": read, "granted": grant,
        "front": front, "holds": held, "followed": followed, "  its mark": value, "  requests before it": before,
    }  # fmt: skip
    return Bench(
        top,
        [number, mark, write, read, pick],
        properties,
        invariants,
        {"a tile": number < len(tiles)},
        {name: Shown([value]) for name, value in shown.items()},
        {"full": held == depth, "the followed request is read": followed & (before == 0) & goes},
    )


def _chip(depth: int) -> ChipConfig:
    """Three tiles with queues of `depth` requests."""
    dram = {"bytes_per_cycle": 4, "arbitration": "round_robin"}
    values = {"name": "three", "lanes": 4, "floorplan": ["dram core host"], "dram": dram, "mover_queue": depth}
    return ChipConfig.model_validate(values)
