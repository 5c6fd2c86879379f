"""Rebuilds a source route from its waypoints, in dimension order from each to the next.

(Tableau Roche and Murugappa Velayuthan: Dijkstra-Through-Time, section IV-B.)
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import MOST_POINTS, ChipConfig, Routing
from ..spec.routes import DIRECTIONS, TURN_BITS, Turn

#: Clockwise steps from one heading to the next, to the turn; there is none for a U-turn.
TURN_OF_STEPS = {0: Turn.STRAIGHT, 1: Turn.RIGHT, 3: Turn.LEFT}


class RouteBuilder(wiring.Component):
    """Builds the route from `source` through `count` waypoints in `points` (8 bits each, first lowest) to `target`.

    `start` begins it; the other inputs must stay stable. `done` is set when `turns` is complete, and stays set until
    the next `start`. Latency: hops + waypoints + 2 cycles from `start` to `done`. `wrong` instead of `done`: the route
    has more hops than heads hold, or turns back; `place` is the tile where that happens.
    """

    start: Signal
    source: Signal
    target: Signal
    count: Signal
    points: Signal
    turns: Signal
    done: Signal
    wrong: Signal
    place: Signal

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        self.entries = config.noc.route_hops + 1
        super().__init__(
            {
                "start": In(1),
                "source": In(8),
                "target": In(8),
                "count": In(4),
                "points": In(8 * MOST_POINTS),
                "turns": Out(TURN_BITS * self.entries),
                "done": Out(1),
                "wrong": Out(1),
                "place": Out(8),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        at = Signal(8)
        goal = Signal(8)
        heading = Signal(2)
        passed = Signal(range(MOST_POINTS + 1))
        entries = Signal(range(self.entries + 1))
        busy = Signal()
        to_goal = Signal()
        m.d.comb += [
            goal.eq(Mux(passed == self.count, self.target, self.points.word_select(passed, 8))),
            to_goal.eq(at == goal),
            self.place.eq(at),
        ]
        along_x, x_first = at[:4] != goal[:4], self.config.noc.data_routing is Routing.XY
        in_x = along_x if x_first else along_x & (at[4:] == goal[4:])
        north, east, south, west = range(len(DIRECTIONS))
        next_heading = Signal(2)
        steps = Signal(2)
        turn = Signal(TURN_BITS)
        back = Signal()
        m.d.comb += [
            next_heading.eq(
                Mux(in_x, Mux(goal[:4] > at[:4], east, west), Mux(goal[4:] > at[4:], south, north)),
            ),
            steps.eq(next_heading - heading),
        ]
        with m.Switch(steps):
            for number, entry in TURN_OF_STEPS.items():
                with m.Case(number):
                    m.d.comb += turn.eq(entry)
            with m.Default():
                m.d.comb += back.eq(1)
        with m.If(entries == 0):  # the first entry is a direction
            m.d.comb += [turn.eq(next_heading), back.eq(0)]
        with m.If(self.start):
            m.d.sync += [at.eq(self.source), passed.eq(0), entries.eq(0), busy.eq(1)]
            m.d.sync += [self.done.eq(0), self.wrong.eq(0), self.turns.eq(-1)]  # all EJECT
        with m.Elif(busy):
            with m.If(to_goal):
                m.d.sync += passed.eq(passed + 1)
                with m.If(passed == self.count):
                    m.d.sync += [busy.eq(0), self.done.eq(1)]
            with m.Elif(back | (entries == self.entries - 1)):
                m.d.sync += [busy.eq(0), self.wrong.eq(1)]
            with m.Else():
                m.d.sync += [
                    self.turns.word_select(entries, TURN_BITS).eq(turn),
                    entries.eq(entries + 1),
                    heading.eq(next_heading),
                ]
                x, y = at[:4], at[4:]
                with m.Switch(next_heading):
                    for direction, step in ((north, -1), (south, 1)):
                        with m.Case(direction):
                            m.d.sync += at.eq(Cat(x, (y + step)[:4]))
                    for direction, step in ((east, 1), (west, -1)):
                        with m.Case(direction):
                            m.d.sync += at.eq(Cat((x + step)[:4], y))
        return m
