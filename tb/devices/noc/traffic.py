"""Runs of the traffic bench: settings in, counters out; and the source routes that its packets take."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from meshloom.hw.spec.config import tile_address, tile_position
from meshloom.hw.spec.routes import NEIGHBOURS, OPPOSITE, TURN_BITS, dimension_ordered, encode

from .build import ROUTES, Mesh, simulator

#: Routes between the same two tiles in a table: VARIETY in `verilog/traffic.sv`.
VARIETY = 4
#: The direction that a route can take only as long as it has taken no other. With that, routes and unrouted packets of
#: that dimension order turn in ways that form no cycle (the "west first" turn model, and its mirror image).
FIRST = {"xy": "west", "yx": "north"}
_CPU = re.compile(r"^- Verilator: cpu ([0-9.]+) s", re.MULTILINE)
_TRIES = 20


class TrafficError(RuntimeError):
    """The checkers found something wrong, in words, or the simulator did not end as it should."""


@dataclass(frozen=True)
class Counters:
    """What one run counted.

    `sent`, `taken`: flits. `pairs`: (source, destination) that packets went between. `routed`: packets with a source
    route, `detours` those of them that took a detour. `moves`: flits that left a router. `blocked`: cycles in which
    an output had something to send and could not, summed over all. Of queued runs only: `offered`, flits of the packets
    created in the sample; `accepted`, flits taken in it; `created`, `done`: its packets, and those that have arrived;
    `latency`, `worst`: their latencies in cycles, summed and largest; `overflow`: packets that found their queue full.
    """

    cycles: int
    sent: int
    taken: int
    packets: int
    pairs: int
    routed: int
    detours: int
    moves: int
    blocked: int
    offered: int
    accepted: int
    created: int
    done: int
    latency: int
    worst: int
    overflow: int
    cpu_seconds: float


def run(mesh: Mesh, **settings: int | str) -> Counters:
    """One run; `settings` are the plusargs of `verilog/traffic.sv`. Builds the simulator if it is not in the cache.

    Raises TrafficError with the first thing that went wrong, BuildError when there is no simulator.
    """
    arguments = [f"+{name}={value}" for name, value in settings.items()]
    done = subprocess.run(
        [str(simulator(mesh)), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    lines = {line.partition(" ")[0]: line.partition(" ")[2] for line in reversed(done.stdout.splitlines())}
    if "ERROR" in lines:
        raise TrafficError(f"{mesh.name}: {lines['ERROR']}")
    spent = _CPU.search(done.stdout)
    if done.returncode or "RESULT" not in lines or spent is None:
        texts = done.stdout.strip().splitlines() or ["it printed nothing"]
        raise TrafficError(f"{mesh.name}: the simulator ended with status {done.returncode}: {texts[-1]}")
    counts = {name: int(value) for name, value in (item.split("=") for item in lines["RESULT"].split())}
    return Counters(**counts, cpu_seconds=float(spent[1]))


def soak(mesh: Mesh, flits: int, seed: int, routed: int = 0, stalls: bool = True, **settings: int | str) -> Counters:
    """Random traffic until `flits` have been sent and all have arrived; `routed` of 256 packets have a source route.

    Raises as `run` does, ValueError for source routes in a mesh that has none.
    """
    if routed and not mesh.routed:
        raise ValueError(f"{mesh.name} has no source routes")
    # far more than the most sluggish sinks need, so that a run ends even if it crawls
    common = {"flits": flits, "seed": seed, "routed": routed, "stalls": int(stalls), "limit": 100_000 + 200 * flits}
    if not routed:
        return run(mesh, **common, **settings)
    with tempfile.TemporaryDirectory(prefix="meshloom_") as folder:
        path = Path(folder) / "routes"
        path.write_text("".join(f"{word:08x}\n" for word in route_table(mesh, seed)))
        return run(mesh, **common, routes=str(path), **settings)


def route_table(mesh: Mesh, seed: int = 0) -> Iterator[int]:
    """For each source, destination and variety the word {hops, route}; 0 where there is no route (to oneself).

    The first of each pair is the route of a packet without a source route, the others wander as far as `FIRST` allows.
    """
    random = Random(f"{mesh.name} {seed}")
    tiles = [tile_address(x, y) for y in range(mesh.height) for x in range(mesh.width)]
    for source in tiles:
        for target in tiles:
            for variety in range(VARIETY):
                if source == target:
                    yield 0
                    continue
                path = dimension_ordered(source, target, mesh.routing)
                if variety:
                    path = wandering(mesh, source, target, random) or path
                route = encode(path, mesh.width, mesh.height, ROUTES)
                field = ROUTES.insert(0, route) >> ROUTES.first_bit
                yield (len(path) - 1) << TURN_BITS * ROUTES.turns | field


def wandering(mesh: Mesh, source: int, target: int, random: Random) -> tuple[int, ...] | None:
    """A random route that `FIRST` allows, no longer than a head can hold; None if none was found in a few tries."""
    first, end = FIRST[mesh.routing], tile_position(target)
    for _ in range(_TRIES):
        path, heading, left = [tile_position(source)], "", ROUTES.longest
        while path[-1] != end:
            left -= 1
            steps: dict[str, tuple[int, int]] = {}
            for name, (dx, dy) in NEIGHBOURS.items():
                x, y = path[-1][0] + dx, path[-1][1] + dy
                legal = name != OPPOSITE.get(heading) and (name != first or heading in ("", first))
                near = abs(end[0] - x) + abs(end[1] - y) <= left
                if legal and near and 0 <= x < mesh.width and 0 <= y < mesh.height:
                    steps[name] = x, y
            if not steps:
                break
            heading = random.choice(list(steps))
            path.append(steps[heading])
        else:
            return tuple(tile_address(*place) for place in path)
    return None


def load_point(mesh: Mesh, pattern: Mapping[str, int], load: float, length: int, **settings: int) -> Counters:
    """Queued traffic at `load` offered flits per node and cycle, in packets of `length` flits, source queues unbounded.

    `pattern`: plusargs (`transposed`; `hot` and its `weight`; none = uniform, oneself included). Raises as `run` does.
    """
    probability = min((1 << 32) - 1, round(load / length * (1 << 32)))
    return run(mesh, queued=1, load=probability, length=length, **pattern, **settings)
