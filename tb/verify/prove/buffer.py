"""The buffer of a router: what went in comes out, once, unchanged and in order.

The theorem: the n-th flit taken in is the n-th to come out. It is proved for one flit at a time: any flit that is taken
in (the free input `pick` says which) is followed; its value is noted and the flits before it are counted. When as many
have come out, the front must be this value. As `pick` is free, this holds for every flit, and so for all.

What is noted of a flit is, for the proof, the flit itself: so what is said of the front is what was noted of it.

Widths do not matter: the buffer does not look into flits, so what holds for `BITS` bits holds for any number (each bit
of a flit is stored and read by the same controls).

Assumption: `pop` implies `valid`, which the router's proof shows of its user.
"""

from __future__ import annotations

from types import ModuleType

from amaranth.hdl import Cat, Module, Mux, Signal, Value

from meshloom.hw.noc import input_unit

from .engine import Bench, Shown
from .probe import Inside

BITS = 4


def bench(depth: int, source: ModuleType = input_unit) -> Bench:  # long: one property after another
    """A buffer of `depth` flits, and the one that is followed."""
    top = Module()
    top.submodules.queue = buffer = source.FlitBuffer(BITS, depth, notes=BITS)
    inner = Inside(buffer, ["storage", "notes"])
    arrives, pop, pick = (Signal(name=name) for name in ("arrives", "pop", "pick"))
    flit = Signal(BITS, name="flit")
    push = Signal()
    top.d.comb += [
        buffer.arrives.eq(arrives),
        buffer.flit.eq(flit),
        buffer.note.eq(flit),
        buffer.pop.eq(pop),
        push.eq(arrives & buffer.ready),
    ]
    held = Signal(range(depth + 1), name="held")  # flits that are in it, counted outside
    top.d.sync += held.eq(held + push - pop)
    followed, before, value = (
        Signal(name="followed"),
        Signal(range(depth + 1), name="before"),
        Signal(BITS, name="value"),
    )
    with top.If(followed & pop):
        top.d.sync += [followed.eq(before != 0), before.eq(before - 1)]
    with top.Elif(~followed & push & pick):
        top.d.sync += [followed.eq(1), before.eq(held - pop), value.eq(flit)]
    # What was there in the cycle before and has to be there still.
    signal, front = Signal(name="kept"), Signal(BITS, name="front_before")
    room = Signal(name="room")
    top.d.sync += [signal.eq(buffer.valid & ~pop), front.eq(buffer.front), room.eq(buffer.ready & ~push)]

    properties: dict[str, Value] = {
        "valid when it holds a flit, and only then": buffer.valid == (held != 0),
        "ready when it has space, and only then": buffer.ready == (held != depth),
        "nothing lost": ~followed | buffer.valid,
        "nothing changed, doubled or out of order": ~(followed & (before == 0)) | (buffer.front == value),
        "noted of the front, what was noted of it": ~(followed & (before == 0)) | (buffer.noted == value),
        "an offer holds until it is taken": ~signal | (buffer.valid & (buffer.front == front)),
        "once ready, ready until a flit arrives": ~room | buffer.ready,
    }
    pushed, popped = inner["pushed"], inner["popped"]
    slots = len(pushed) - 1
    rows, notes = inner.rows("storage"), inner.rows("notes")
    place = Signal(range(2 * depth), name="place")
    top.d.comb += place.eq(popped[:slots] + before)
    there = [((place == row) | (place == row + depth)) & (word == value) for row, word in enumerate(rows)]
    noted = [((place == row) | (place == row + depth)) & (word == value) for row, word in enumerate(notes)]
    lapped = pushed[slots] != popped[slots]
    invariants: dict[str, Value] = {
        "pointers": (pushed[:slots] < depth)
        & (popped[:slots] < depth)
        & (held <= depth)
        & (held + popped[:slots] == pushed[:slots] + Mux(lapped, depth, 0)),
        "the followed flit is in its place": ~followed | ((before < held) & Cat(*there).any()),
        "so is what is noted of it": ~followed | (before == 0) | Cat(*noted).any(),
    }
    shown = {
        name: Shown([value])
        for name, value in {
            "arrives": arrives,
            "ready": buffer.ready,
            "flit": flit,
            "valid": buffer.valid,
            "pop": pop,
            "front": buffer.front,
            "holds": held,
            "followed": followed,
            "  its value": value,
            "  flits before it": before,
        }.items()
    }
    witness = {"full": ~buffer.ready, "the followed flit leaves": followed & (before == 0) & pop}
    return Bench(
        top,
        [arrives, flit, pop, pick],
        properties,
        invariants,
        {"pop implies valid": ~pop | buffer.valid},
        shown,
        witness,
    )
