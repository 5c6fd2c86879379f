"""The routing step solved to the optimum, for comparison: all data at once, by CP-SAT.

A variable says for each datum, node and cycle whether it is there, and for each wire and cycle whether it starts there;
time only goes forward, so whoever is somewhere has come from where it was, and trees of common routes need no further
rule. Grows with data x cycles x wires: for small hardware.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from ...routing.hardware import DttError, Hardware, integer_costs
from ...support.cpsat import solve
from .repair import Load, Need

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, IntVar


@dataclass(frozen=True)
class Optimum:
    """`late`: cycles later than needs should be met, the least that all can have; `energy`: the least cost of movements
    and waits with that. `proven`: whether the solver had time to prove it; if not, it is what it found."""

    late: int
    energy: Fraction
    proven: bool


class _Times:
    """The variables of a datum through time."""

    def __init__(self, model: CpModel, hardware: Hardware, datum: int, loads: Sequence[Load], cycles: int) -> None:
        names = list(hardware.nodes)
        loaded = {(load.node, cycle) for load in loads if load.datum == datum for cycle in range(load.since, cycles)}
        self.held = {(name, cycle): model.new_bool_var("") for name in names for cycle in range(cycles)}
        self.waits: dict[tuple[str, int], IntVar] = {}
        self.starts: dict[tuple[int, int], IntVar] = {}
        into: defaultdict[tuple[str, int], list[IntVar]] = defaultdict(list)
        for number, wire in enumerate(hardware.wires):
            delay = wire.delay + hardware.nodes[wire.destination].delay
            for cycle in range(cycles - delay):
                start = self.starts[number, cycle] = model.new_bool_var("")
                model.add_implication(start, self.held[wire.source, cycle])
                into[wire.destination, cycle + delay].append(start)
        for (name, cycle), held in self.held.items():
            if (name, cycle) in loaded:
                model.add(held == 1)
                continue
            sources = into[name, cycle]
            if cycle:
                wait = self.waits[name, cycle] = model.new_bool_var("")
                model.add_implication(wait, self.held[name, cycle - 1])
                sources = [*sources, wait]
            model.add_bool_or([*sources, held.negated()])


def optimum(hardware: Hardware, loads: Sequence[Load], needs: Sequence[Need], patience: int, work: float) -> Optimum:
    """The least lateness, and the least energy with it, by deterministic time `work` (`cpsat.solve`).

    Raises DttError for nodes that keep what they get, where they can get anything or somebody needs it (waiting there
    costs nothing later, which is not modelled), and if nothing has been found.
    """
    from ortools.sat.python import cp_model

    reached = [*(need.node for need in needs), *(wire.destination for wire in hardware.wires)]
    if keeping := [name for name in reached if hardware.nodes[name].keeps]:
        raise DttError(f"node {keeping[0]} keeps what it gets; the exact routing knows only such as get nothing")
    unit, costs, wait_cost = integer_costs(hardware)
    model = cp_model.CpModel()
    cycles = max((need.cycle for need in needs), default=0) + patience + 1
    data = sorted({need.datum for need in needs} | {load.datum for load in loads})
    times = {datum: _Times(model, hardware, datum, loads, cycles) for datum in data}
    for name, node in hardware.nodes.items():
        if node.size is not None:
            for cycle in range(cycles):
                model.add(sum(each.held[name, cycle] for each in times.values()) <= node.size)
    for number, wire in enumerate(hardware.wires):
        delay = wire.delay + hardware.nodes[wire.destination].delay
        for cycle in range(cycles - delay):
            model.add(sum(each.starts[number, cycle] for each in times.values()) <= wire.bandwidth)
            if wire.size is not None:
                window = range(cycle, min(cycle + delay, cycles - delay))
                model.add(sum(each.starts[number, at] for each in times.values() for at in window) <= wire.size)
    lateness: list[tuple[int, IntVar]] = []
    for need in needs:
        met = [model.new_bool_var("") for _ in range(patience + 1)]
        model.add_exactly_one(met)
        for late, chosen in enumerate(met):
            model.add_implication(chosen, times[need.datum].held[need.node, need.cycle + late])
            lateness.append((late, chosen))
    spent = [costs[wire] * start for each in times.values() for (wire, _), start in each.starts.items()]
    spent += [wait_cost * wait for each in times.values() for wait in each.waits.values()]
    late = sum(cycles_ * chosen for cycles_, chosen in lateness)
    most = 1 + sum(costs) * cycles * len(data) + wait_cost * cycles * len(data) * len(hardware.nodes)
    model.minimize(most * late + sum(spent))
    solver = solve(model, work)
    if solver is None:
        raise DttError(f"no routes for {len(needs)} needs were found; raise the work or the patience")
    value = round(solver.objective_value)
    proven = value - solver.best_objective_bound < 1
    return Optimum(value // most, Fraction(value % most, unit), proven)
