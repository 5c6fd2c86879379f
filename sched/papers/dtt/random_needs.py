"""Random small hardware with data to be routed, the same for the same seed: for comparisons with the optimum."""

from __future__ import annotations

from random import Random

from ...routing.hardware import Hardware, TimingFault
from .repair import Load, Need, routed

#: Nodes besides the memory, wires for each of them, data, needs, and cycles in which they are due.
_NODES, _WIRES, _DATA, _NEEDS, _DUE = (4, 7), 3, 4, (3, 8), (4, 10)


def random_needs(random: Random, patience: int) -> tuple[Hardware, tuple[Load, ...], tuple[Need, ...]]:
    """Hardware, where data are, and needs by their cycles: drawn until all can be met one after the other, `patience`
    cycles late at most. Data lie in a memory; other nodes and wires are narrow."""
    while True:
        hardware = Hardware()
        count = random.randint(*_NODES)
        for number in range(count):
            hardware.node(size=random.choice([None, 1, 2, 3]), name=f"N{number}")
        hardware.node(size=None, name="MEM", keeps=True)
        names = list(hardware.nodes)
        for _ in range(_WIRES * count):
            source, destination = random.sample(names, 2)
            if destination != "MEM":
                hardware.wire(
                    source=source,
                    destination=destination,
                    bandwidth=random.choice([1, 1, 2]),
                    cost=random.choice([1, 2, 3, 5]),
                    delay=random.choice([1, 1, 2, 3]),
                    size=random.choice([None, None, 1, 2]),
                )
        loads = tuple(Load(datum, "MEM") for datum in range(_DATA))
        needs = [
            Need(random.randrange(_DATA), random.choice(names[:-1]), random.randint(*_DUE))
            for _ in range(random.randint(*_NEEDS))
        ]
        needs.sort(key=lambda need: need.cycle)
        try:
            routed(hardware, loads, needs, patience)
        except TimingFault:
            continue
        return hardware, loads, tuple(needs)
