"""`Router`, of which the control planes are made, is `VcRouter` with one virtual channel: the same in every cycle.

With that, what is proved of routers and meshes with one channel and XY routing holds for the control planes too: their
routers are wired in the same way.

Assumption: a head that comes in from a neighbour is one that dimension order leads through that link
(`mesh.on_the_way`). In a mesh that is so, as the invariants `way` of its proof say. (With others the two differ on
purpose: one hands them to the tile, the other drops them.)

Both get the same inputs. The invariants say that their registers and buffered flits are the same, one by one.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal, Value

from ...hw.noc.router import LOCAL, Router
from ...hw.noc.vc_link import Plane
from ...hw.noc.vc_router import VcRouter
from .engine import Bench, Shown
from .mesh import on_the_way
from .opened import OpenRouter
from .probe import Inside
from .wormhole import ownership


def bench(x: int, y: int, plane: Plane) -> Bench:
    """The two routers of tile (x, y), side by side."""
    top = Module()
    router = Router(x, y, plane.width, plane.height, plane.bits, plane.depth)
    other = VcRouter(x, y, plane)
    top.submodules.router, top.submodules.other = router, other
    old = Inside(router, [f"{port}_buffer" for port in router.ports])
    opened = OpenRouter(top, other)
    new = opened.inside
    inputs: list[Signal] = []
    properties: dict[str, Value] = {
        "the same faults": (router.fault == other.fault) & (~router.fault | (router.fault_tile == other.fault_tile)),
        "active alike": router.active == other.active,
    }
    invariants = ownership(plane.depth, opened.queues.values(), opened.channels.values())
    assume: dict[str, Value] = {}
    shown: dict[str, Shown] = {}
    dropping: dict[str, Signal] = {LOCAL: old["local_dropping"]}

    for port in router.ports:
        into, out = (router.input(port), other.input(port)), (router.output(port), other.output(port))
        flit = Signal(plane.bits + 1, name=f"in_{port}")
        valid, ready = Signal(name=f"in_{port}_valid"), Signal(name=f"out_{port}_ready")
        inputs += [flit, valid, ready]
        for link in into:
            top.d.comb += [link.valid.eq(valid), link.payload.data.eq(flit), link.payload.last.eq(flit[-1])]
        for link in out:
            top.d.comb += link.ready.eq(ready)
        queue = opened.queues[port, 0]
        head = valid & into[0].ready & ~queue.ends_open
        assume[f"a head into {port} is on its way"] = ~head | on_the_way(plane, queue, flit)
        on_way = [
            ~(queue.there(at) & queue.begins(at)) | on_the_way(plane, queue, stored)
            for at, stored in enumerate(queue.flits)
        ]
        sent = [Cat(link.payload.data, link.payload.last) for link in out]
        properties[f"{port} takes the same"] = into[0].ready == into[1].ready
        properties[f"{port} offers the same"] = (out[0].valid == out[1].valid) & (~out[0].valid | (sent[0] == sent[1]))
        rows = zip(old.rows(f"{port}_buffer"), new.rows(f"{port}_0_buffer"), strict=True)
        pairs: list[tuple[Value, Value]] = [
            *rows,
            (old[f"{port}_pushed"], new[f"{port}_0_pushed"]),
            (old[f"{port}_popped"], new[f"{port}_0_popped"]),
            (old[f"{port}_inside"], queue.inside),
            (old[f"{port}_locked"], new[f"{port}_0_held"]),
            (old[f"{port}_owner"], new[f"{port}_0_owner"]),
        ]
        invariants[f"{port} the same inside"] = Cat(*(a == b for a, b in pairs)).all()
        invariants[f"{port} on the way"] = Cat(*on_way).all()
        invariants[f"{port} drops the same"] = queue.dropping == dropping.get(port, Const(0))
        shown |= {queue.title: queue.shown()}
    witnesses = {"an output stalls": router.output(LOCAL).valid & ~router.output(LOCAL).ready, "a fault": router.fault}
    return Bench(top, inputs, properties, invariants, assume, shown, witnesses)
