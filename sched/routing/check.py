"""Proves a plan in plain Python, from the program and the moves alone: it shares no code with the planner.

Where a page may be sent from follows from where it was brought and made, memory levels from the residencies that the
plan claims. All problems are named with task, cycle and wire; none means that the plan does what it says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from meshloom.hw.spec.config import tile_position

from .mesh import Mesh
from .plan import Carry, Plan
from .program import Program


def problems(plan: Plan) -> list[str]:
    """Everything that is wrong with a plan; empty if nothing is."""
    return [*_trains(plan), *_residencies(plan), *_tasks(plan), *_memories(plan)]


def occupancy(mesh: Mesh, path: tuple[int, ...], departure: int, flits: int) -> list[tuple[str, int, int]]:
    """(wire, first cycle, cycle after the last) of a train; a wire is a port of a tile or a step between two."""
    source, target = path[0], path[-1]
    ports = {tile: "port" if tile in mesh.half_duplex else "in" for tile in (source, target)}
    uses = [(f"{ports[source]} {source:#04x}", departure, departure + flits + mesh.gap)]
    for hop in range(1, len(path)):
        uses.append((f"{path[hop - 1]:#04x} -> {path[hop]:#04x}", departure + hop, departure + hop + flits))
    out = ports[target].replace("in", "out")
    return [*uses, (f"{out} {target:#04x}", departure + len(path), departure + len(path) + flits)]


def _who(program: Program, carry: Carry) -> str:
    return f"move {carry.number} of {program.pages[carry.page].name} for {program.tasks[carry.task].name}"


def _trains(plan: Plan) -> Iterator[str]:
    """Every hop leads to a neighbour, arrivals are what was said, and no wire carries two flits in a cycle."""
    program = plan.program
    mesh = program.mesh
    used: defaultdict[str, list[tuple[int, int, int]]] = defaultdict(list)
    carries = plan.carries
    for at, carry in enumerate(carries):
        who, flits = _who(program, carry), program.pages[carry.page].flits
        for before, here in zip(carry.path, carry.path[1:], strict=False):
            (x, y), (to_x, to_y) = tile_position(before), tile_position(here)
            if abs(x - to_x) + abs(y - to_y) != 1:
                yield f"{who}: {before:#04x} -> {here:#04x} is no wire"
            if not (0 <= to_x < mesh.width and 0 <= to_y < mesh.height):
                yield f"{who}: {here:#04x} is outside the mesh"
        if carry.departure < 0 or (mesh.launch and carry.departure <= mesh.launch):
            yield f"{who}: leaves in cycle {carry.departure}, its mover takes {mesh.launch} cycles"
        if carry.arrival != carry.departure + len(carry.path) - 1 + flits:
            yield f"{who}: leaves in cycle {carry.departure}, cannot arrive in cycle {carry.arrival}"
        if carry.path[-1] != program.tasks[carry.task].tile:
            yield f"{who}: ends in tile {carry.path[-1]:#04x}"
        for wire, start, end in occupancy(mesh, carry.path, carry.departure, flits):
            used[wire].append((start, end, at))
    for wire, spans in used.items():
        spans.sort()
        for (_, end, one), (start, _, other) in zip(spans, spans[1:], strict=False):
            if start < end:
                both = f"{_who(program, carries[one])} and {_who(program, carries[other])}"
                yield f"wire {wire} carries {both} in cycle {start}"


def _residencies(plan: Plan) -> Iterator[str]:
    """Who sends a page has it, from when it has wholly delivered, or was made, until the train has left."""
    program, residencies = plan.program, plan.residencies
    makers = {page: task for task, one in enumerate(program.tasks) for page in one.outputs}
    brought = {carry.residency: carry for carry in plan.carries}
    if len(brought) != len(plan.carries):
        yield "two moves claim to make the same residency"
    for number, residency in enumerate(residencies):
        page = program.pages[residency.page]
        where = f"residency {number} of {page.name} in tile {residency.tile:#04x}"
        carry = brought.get(number)
        if carry is not None:
            if (carry.page, carry.path[-1], page.region) != (residency.page, residency.tile, residency.region):
                yield f"{where}: {_who(program, carry)} brings something else, or elsewhere"
            if residency.ready != carry.arrival + program.mesh.landing:
                yield f"{where}: ready in cycle {residency.ready}, {_who(program, carry)} arrives in {carry.arrival}"
            if residency.since > carry.arrival - page.flits + 1:
                yield f"{where}: takes room from cycle {residency.since} on, its first flit comes before"
        elif (
            residency.page in makers
            and residency.tile == program.tasks[makers[residency.page]].tile
            and residency.region == page.made_region
        ):
            begin = int(plan.begun[makers[residency.page]])
            if residency.since > begin or residency.ready < begin + program.tasks[makers[residency.page]].cycles:
                yield (
                    f"{where}: taken room from cycle {residency.since}, ready in {residency.ready}; it is made from "
                    f"{begin} on"
                )
        elif residency.tile not in page.homes or residency.region != page.region:
            yield f"{where}: nobody brought it there"
    for carry in plan.carries:
        residency = residencies[carry.source]
        flits = program.pages[carry.page].flits
        if (residency.page, residency.tile) != (carry.page, carry.path[0]):
            yield f"{_who(program, carry)}: comes from tile {residency.tile:#04x}, which holds another page"
        if not residency.ready + program.mesh.launch <= carry.departure <= residency.until - flits:
            yield (
                f"{_who(program, carry)}: leaves tile {residency.tile:#04x} in cycle {carry.departure}, which has the "
                f"page in [{residency.ready}, {residency.until})"
            )


def _tasks(plan: Plan) -> Iterator[str]:
    """Tasks begin when planned or later, one after the other on a tile, with all inputs there until they end."""
    program, residencies = plan.program, plan.residencies
    busy: dict[int, int] = {}
    for number, task in enumerate(program.tasks):
        begin = int(plan.begun[number])
        if task.start is not None and begin < task.start:
            yield f"task {task.name}: begins in cycle {begin}, planned for {task.start}"
        if not task.delivery:
            if begin < busy.get(task.tile, 0):
                until = busy[task.tile]
                yield f"task {task.name}: begins in cycle {begin}, tile {task.tile:#04x} is busy until {until}"
            busy[task.tile] = begin + task.cycles
        for page, at in zip(task.inputs, plan.residency_of(number), strict=True):
            residency = residencies[at]
            if (residency.page, residency.tile, residency.region) != (page, task.tile, program.pages[page].region):
                yield f"task {task.name}: reads {program.pages[page].name} from where it is not"
            if not (residency.ready <= begin and begin + task.cycles <= residency.until):
                yield (
                    f"task {task.name}: reads {program.pages[page].name} in [{begin}, {begin + task.cycles}), it is "
                    f"there in [{residency.ready}, {residency.until})"
                )


def _memories(plan: Plan) -> Iterator[str]:
    """No memory holds more than it can in any cycle."""
    mesh = plan.program.mesh
    changes: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for residency in plan.residencies:
        if (residency.tile, residency.region) in mesh.capacity:
            words = plan.program.pages[residency.page].words
            changes[residency.tile, residency.region] += [(residency.since, words), (residency.until, -words)]
    for (tile, region), steps in changes.items():
        level = 0
        for cycle, words in sorted(steps):  # at equal cycles what leaves comes first
            level += words
            if level > mesh.capacity[tile, region]:
                yield (
                    f"region {region} of tile {tile:#04x} holds {level} words in cycle {cycle}, "
                    f"{mesh.capacity[tile, region]} is all it can"
                )
                break
