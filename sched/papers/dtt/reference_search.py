"""The plain formulation, for comparison: an explicit time-expanded graph, searched by networkx's Dijkstra.

It is asked the same questions over the same reservations as the compiled search, and has to find ways of the same cost
(its ways may turn back on the spot, which no router does: then they may be cheaper). Nothing else uses it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from ...routing.hardware import DttError
from ...routing.mesh import Mesh
from ...routing.plan import Carry, Plan


@dataclass(frozen=True)
class Yardstick:
    """`moves` were asked for in `seconds` of CPU time (building the graph takes `building`): `equal` of them cost the
    same, `turning` less because their way turns back or crosses itself, `wrong` something else."""

    moves: int
    seconds: float
    building: float
    equal: int
    turning: int
    wrong: int

    @property
    def rate(self) -> float:
        """Moves per CPU-second."""
        return self.moves / max(self.seconds, 1e-9)


class TimeGraph:
    """A mesh through `cycles` cycles, for trains of `flits` flits, as a networkx DiGraph against the flow of time.

    Vertices: ("in", tile, c) a page has arrived by cycle c; ("at", tile, c) a head leaves the tile's router in cycle c;
    ("from", tile) a holder. Reserving takes away the edges of trains that would collide.
    """

    def __init__(self, mesh: Mesh, cycles: int, flits: int, hop_weight: int) -> None:
        import networkx

        self.mesh, self.cycles, self.flits = mesh, cycles, flits
        self.graph: Any = networkx.DiGraph()
        for tile in mesh.tiles:
            beside = [other for other in mesh.tiles if mesh.distance(tile, other) == 1]
            for cycle in range(cycles):
                here = ("at", tile, cycle)
                if cycle:
                    self.graph.add_edge(("in", tile, cycle), ("in", tile, cycle - 1), weight=1)
                    self.graph.add_edge(here, ("from", tile), weight=0)
                    for other in beside:
                        self.graph.add_edge(here, ("at", other, cycle - 1), weight=hop_weight)
                if cycle + flits - 1 < cycles:
                    self.graph.add_edge(("in", tile, cycle + flits - 1), here, weight=0)

    def cost(self, homes: tuple[int, ...], target: int, due: int) -> tuple[int, list[int]]:
        """Cost of the cheapest way from any of `homes` to `target` by cycle `due`, and the tiles it passes.

        Raises networkx.NetworkXNoPath if there is none.
        """
        import networkx

        for home in homes:
            self.graph.add_edge(("from", home), "holder", weight=0)
        path: Any = networkx.single_source_dijkstra(self.graph, ("in", target, due), "holder")
        for home in homes:
            self.graph.remove_edge(("from", home), "holder")
        return path[0], [vertex[1] for vertex in reversed(path[1]) if vertex[0] == "at"]

    def reserve(self, path: tuple[int, ...], departure: int) -> None:
        """Takes the edges away that would collide with a train."""
        for resource, start, end in self.mesh.occupied(path, departure, self.flits):
            gap = self.mesh.gap if resource == self.mesh.injection(path[0]) and start == departure else 0
            for cycle in range(max(start - self.flits - gap + 1, 0), min(end, self.cycles - 1)):
                self._take(resource, cycle)

    def _take(self, resource: int, cycle: int) -> None:
        """Takes away that a train enters a link or port in a cycle."""
        tiles = self.mesh.tiles
        kind, number = divmod(resource, len(tiles)) if resource >= 4 * len(tiles) else (0, resource // 4)
        tile = tiles[number]
        edges: list[tuple[Any, Any]] = []
        if kind == 0:
            other = next(
                one for one in tiles if self.mesh.distance(tile, one) == 1 and self.mesh.link(tile, one) == resource
            )
            edges.append((("at", other, cycle + 1), ("at", tile, cycle)))
        if resource == self.mesh.injection(tile):
            edges.append((("at", tile, cycle + 1), ("from", tile)))
        if resource == self.mesh.ejection(tile):
            edges.append((("in", tile, cycle + self.flits - 1), ("at", tile, cycle)))
        for edge in edges:
            if self.graph.has_edge(*edge):
                self.graph.remove_edge(*edge)


def compare(plan: Plan, most: int) -> Yardstick:
    """Asks networkx for the first `most` moves of a plan that are in time, each over the reservations of those before.

    The program must be such that this is the same question: pages of one size that lie in their homes and are read
    once, no results, no limited memories. Raises DttError otherwise.
    """
    program = plan.program
    flits = {page.flits for page in program.pages}
    if len(flits) != 1 or program.mesh.capacity or any(task.outputs for task in program.tasks) or plan.hits:
        raise DttError(f"program {program.name}: only pages of one size, from their homes, read once, can be compared")
    carries = plan.carries[:most]
    size = flits.pop()
    before = time.process_time()
    cycles = max((_due(plan, carry) for carry in carries), default=0) + size + 8
    graph = TimeGraph(program.mesh, cycles, size, plan.settings.hop_weight)
    building, seconds = time.process_time() - before, 0.0
    moves = equal = turning = wrong = 0
    for carry in carries:
        due = _due(plan, carry)
        if carry.arrival <= due:
            before = time.process_time()
            cost, path = graph.cost(program.pages[carry.page].homes, carry.path[-1], due)
            seconds += time.process_time() - before
            moves += 1
            ours = plan.settings.hop_weight * carry.hops + due - carry.arrival
            crossing = len(set(path)) < len(path)
            equal += cost == ours
            turning += cost < ours and crossing
            wrong += cost > ours or (cost < ours and not crossing)
        graph.reserve(carry.path, carry.departure)
    return Yardstick(moves, seconds, building, equal, turning, wrong)


def _due(plan: Plan, carry: Carry) -> int:
    start = plan.program.tasks[carry.task].start
    if start is None:
        raise DttError(f"program {plan.program.name}: {plan.program.tasks[carry.task].name} has no deadline to compare")
    return start - plan.program.mesh.landing
