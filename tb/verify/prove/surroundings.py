"""Free surroundings of a router: any flits come in by any input, outputs stall as they like.

Flits carry, above the destination, what a proof wants to know when they come out: the number of the input, a mark, and
a copy of the source route.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Signal, Value

from meshloom.hw.noc.link import Plane
from meshloom.hw.noc.router import Router
from meshloom.hw.spec.config import tile_address
from meshloom.hw.spec.routes import LOCAL, ROUTINGS, CopyField, RouteField

from .engine import Shown
from .opened import OpenRouter

#: The fields of data: destination, number of the input, mark; with source routes also the flag, the route, its copy.
STAMP, MARK = slice(8, 11), 11
ROUTES = RouteField(flag_bit=12, first_bit=13, turns=3)
FLAG, ROUTE, COPY = 12, slice(13, 19), slice(19, 25)
#: Bits of a head that say how many tiles take it on its way: as many as a mesh of four columns has.
COPIES = 2
CLOCKWISE = ("north", "east", "south", "west")


def plane(
    width: int,
    height: int,
    vcs: int = 1,
    routing: str = "xy",
    allocate: str = "same",
    depth: int = 2,
    routed: bool = False,
    copied: tuple[str, ...] = (),
) -> Plane:
    """A plane with these fields of data; `copied`: where its routers copy packets to."""
    bits, routes = (COPY.stop, ROUTES) if routed else (FLAG, None)
    copies = CopyField(FLAG, COPIES, copied) if copied else None
    bits = bits if copies is None else copies.end
    return Plane(width, height, bits, depth, vcs, routing, allocate, routes, copies=copies)


def prescribed(router: Router, port: str, data: Value) -> dict[str, Value]:
    """Output port to "a head with `data` that came in by `port` has to leave there", at most one of them.

    Said here again and in other words than in the gateware: by dimension order, or by the copy of the source route.
    """
    x, y, turns = router.x, router.y, ROUTINGS[router.plane.routing]
    to_x, to_y = data[:4], data[4:8]
    steps = {"x": {"east": to_x > x, "west": to_x < x}, "y": {"south": to_y > y, "north": to_y < y}}
    first, second = (steps[dimension] for dimension in router.plane.routing)
    aligned = ~Cat(*first.values()).any()
    here = data[:8] == tile_address(x, y)
    ordered = {**first, **{output: aligned & beyond for output, beyond in second.items()}, LOCAL: here}
    outputs: dict[str, Value] = {
        output: value if output in turns[port] else Const(0, 1) for output, value in ordered.items()
    }
    if router.plane.routes is not None:
        flag, entry = data[FLAG], data[COPY][:2]
        for output in outputs:
            outputs[output] = (~flag & outputs[output]) | (flag & _routed(port, output, entry, here))
    if port == LOCAL:
        inside = (to_x < router.plane.width) & (to_y < router.plane.height)
        outputs = {output: value & inside for output, value in outputs.items()}
    return {output: value for output, value in outputs.items() if output in router.ports}


def _routed(port: str, output: str, entry: Value, here: Value) -> Value:
    """The entry of a route leads from the input `port` to the output `output`."""
    if port == LOCAL:
        return entry == CLOCKWISE.index(output) if output != LOCAL else Const(0, 1)
    if output == LOCAL:
        return (entry == 3) & here
    right_turns = (CLOCKWISE.index(output) - CLOCKWISE.index(port) - 2) % 4  # it moves away from `port`
    return entry == {0: 0, 1: 2, 3: 1}[right_turns] if right_turns != 2 else Const(0, 1)


class Surroundings:
    """A router (a fresh one) with free links: by (port, channel), `enters` and `leaves` say that a flit moves.

    `marks`: input port to the mark of the flit there, to be driven by who uses it.
    """

    def __init__(self, router: Router) -> None:
        self.router, self.plane = router, router.plane
        self.top = Module()
        self.top.submodules.router = router
        opened = OpenRouter(self.top, router)
        self.inside, self.queues, self.channels = opened.inside, opened.queues, opened.channels
        self.inputs: list[Signal] = []
        self.enters: dict[tuple[str, int], Value] = {}
        self.leaves: dict[tuple[str, int], Value] = {}
        self.marks: dict[str, Signal] = {}
        self.shown: dict[str, Shown] = {}
        for number, port in enumerate(router.ports):
            self._input(number, port)
            self._output(port)
            self.shown |= {q.title: q.shown() for q in self.queues.values() if q.port == port}

    def free(self, name: str, width: int = 1) -> Signal:
        """A new input."""
        self.inputs.append(Signal(width, name=name))
        return self.inputs[-1]

    def _input(self, number: int, port: str) -> None:
        link: Any = self.router.input(port)
        valid, last, to = self.free(f"in_{port}"), self.free(f"in_{port}_last"), self.free(f"in_{port}_to", 8)
        vc: Value = Const(0, 1)
        if self.plane.vcs > 1:
            vc = self.free(f"in_{port}_vc", len(link.payload.vc))
            self.top.d.comb += link.payload.vc.eq(vc)
        route: list[Value] = []
        if self.plane.routes is not None:
            entries = self.free(f"in_{port}_route", ROUTE.stop - ROUTE.start)
            route = [self.free(f"in_{port}_flag"), entries, entries]
        self.marks[port] = mark = Signal(name=f"in_{port}_mark")
        self.top.d.comb += [
            link.valid.eq(valid),
            link.payload.last.eq(last),
            link.payload.data.eq(Cat(to, Const(number, 3), mark, *route)),
        ]
        for v in range(self.plane.vcs):
            self.enters[port, v] = takes = Signal(name=f"enters_{port}_{v}")
            self.top.d.comb += takes.eq(valid & (vc == v) & link.ready[v])
            self.shown[f"into {port}.{v}"] = Shown([takes, last, mark], _moved)

    def _output(self, port: str) -> None:
        link: Any = self.router.output(port)
        room = self.free(f"room_{port}", self.plane.vcs)
        self.top.d.comb += link.ready.eq(room)
        vc: Value = link.payload.vc if self.plane.vcs > 1 else Const(0, 1)
        for v in range(self.plane.vcs):
            self.leaves[port, v] = sends = Signal(name=f"leaves_{port}_{v}")
            self.top.d.comb += sends.eq(link.valid & (vc == v) & room[v])
            data = link.payload.data
            self.shown[f"out of {port}.{v}"] = Shown([sends, link.payload.last, data[MARK]], _moved)
            self.shown[f"  {port}.{v} offered, with space"] = Shown([link.valid & (vc == v), room[v]], _offered)


def _moved(value: int) -> str:
    """A flit (`m` of the marked packet, `x` of another), `<` the last; or none."""
    return "-" if not value & 1 else ("m" if value & 4 else "x") + ("<" if value & 2 else "")


def _offered(value: int) -> str:
    return ["-", "no space", "-", "yes"][value]
