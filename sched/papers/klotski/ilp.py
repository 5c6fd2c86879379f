"""Scheduling and mapping as integer programs of time slots (Klotski, Eq. 4-19), by HiGHS.

Printed and mended. Slots count from 0 here, in all equations. Of Eq. 18's precedence the second sum is over the
consumer. Eq. 8 bounds how many run at a time in all and Eq. 12 forbids two that *start* together on a core, so a
solution may have several at a time on one core: `exclusive` adds that there is one at most. Eq. 9 to 11 are not linear
in the number of a core, but a core's row and column are constants, so they are linear in X; nothing has to be decoupled
for their sake.

The length of a slot is the least of all cycles; the others are rounded up to slots. What a program finds is therefore
played on cores, in the order of its starts (`played`), before it is compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from .dag import Dag, GraphError, Ints
from .flexibility import windows
from .listing import OpPlacement, listed, makespan

#: Values of the variables, objective, bound, whether the objective is proven best, nodes of the search tree.
_Found = tuple[Any, float, float, bool, int]
#: The binary variable of each slot and core that a micro-op may start in and on.
_Starts = dict[tuple[int, int], int]
#: Variables that an integer program may have.
MOST = 60_000


@dataclass(frozen=True, eq=False)
class IlpSolution:
    """What HiGHS found. `starts`: slots; `cores`: of each, if the program maps; `makespan`, `bound`: slots (of the
    objective where that has more than the makespan); `proven`: no better solution exists; `nodes` of the search tree.
    """

    starts: Ints
    cores: Ints | None
    makespan: int
    objective: float
    bound: float
    proven: bool
    nodes: int

    @property
    def gap(self) -> float:
        """How far the objective can be above the best, as a share of the bound."""
        return self.objective / self.bound - 1 if self.bound > 0 else 0.0


class Model:
    """An integer program in the making: variables, rows of coefficients, least and most of each."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.least: list[float] = []
        self.most: list[float] = []
        self.whole: list[int] = []
        self.cells: tuple[list[int], list[int], list[float]] = [], [], []
        self.low: list[float] = []
        self.high: list[float] = []

    def variable(self, most: float, cost: float = 0.0, whole: bool = True, least: float = 0.0) -> int:
        if len(self.cost) == MOST:
            raise GraphError(
                f"the integer program has more than {MOST} variables, which is the most that HiGHS is given; "
                "longer slots make fewer, and `exact` takes graphs of any length"
            )
        self.cost.append(cost)
        self.least.append(least)
        self.most.append(most)
        self.whole.append(int(whole))
        return len(self.cost) - 1

    def row(self, terms: list[tuple[int, float]], low: float, high: float) -> None:
        rows, columns, values = self.cells
        for variable, factor in terms:
            rows.append(len(self.low))
            columns.append(variable)
            values.append(factor)
        self.low.append(low)
        self.high.append(high)

    def solve(self, nodes: int) -> _Found:
        """Values, objective, bound, whether that is proven, nodes. Raises GraphError when nothing was found."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        rows, columns, values = self.cells
        matrix = csr_array((values, (rows, columns)), shape=(len(self.low), len(self.cost)))
        found = milp(
            np.array(self.cost),
            integrality=np.array(self.whole),
            bounds=Bounds(np.array(self.least), np.array(self.most)),
            constraints=LinearConstraint(matrix, np.array(self.low), np.array(self.high)),
            options={"node_limit": nodes, "mip_rel_gap": 0.0},
        )
        if found.x is None:
            raise GraphError(f"HiGHS found nothing in {nodes} nodes: {found.message}")
        bound = found.fun if found.mip_dual_bound is None else found.mip_dual_bound
        return found.x, float(found.fun), float(bound), found.status == 0, int(found.mip_node_count or 0)


def played(dag: Dag, program: IlpSolution, cores: int) -> OpPlacement:
    """What a program's starts amount to on cores that do one micro-op at a time: a list in that order."""
    return listed(dag, cores, program.starts)


def _time_indexed(model: Model, dag: Dag, horizon: int, kinds: int) -> tuple[list[_Starts], int]:
    """X for each micro-op, by slot and core (one core where nothing is mapped), and T; with Eq. 5 to 7."""
    span = windows(dag, horizon)
    lengths = dag.cycles.tolist()
    x: list[_Starts] = []
    for first, last in zip(span.first.tolist(), span.last.tolist(), strict=True):
        x.append({(slot, core): model.variable(1) for slot in range(first, last + 1) for core in range(kinds)})
    end = model.variable(horizon, 1.0)
    for op, some in enumerate(x):
        model.row([(which, 1) for which in some.values()], 1, 1)
        model.row([(end, -1), *((which, slot + lengths[op]) for (slot, _), which in some.items())], -np.inf, 0)
    for producer, consumer in dag.pairs:
        before = [(which, slot) for (slot, _), which in x[producer].items() if slot]
        after = [(which, -slot) for (slot, _), which in x[consumer].items() if slot]
        model.row([*before, *after], -np.inf, -lengths[producer])
    return x, end


def scheduled(
    dag: Dag, cores: int, relaxed: bool = False, nodes: int = 1000, horizon: int | None = None
) -> IlpSolution:
    """Starts by Eq. 18, or with its last constraint relaxed to Eq. 19, which bounds only how many start in a slot.

    `dag`: in slots; `nodes`: of the search tree, at most; `horizon`: slots (None: what a list takes). Raises GraphError
    when there are too many variables or nothing was found.
    """
    model, most = Model(), makespan(dag, listed(dag, cores)) if horizon is None else horizon
    x, _ = _time_indexed(model, dag, most, 1)
    for slot in range(most):
        running = [
            (which, 1.0)
            for op, some in enumerate(x)
            for (start, _), which in some.items()
            if start <= slot < start + (1 if relaxed else dag.cycles[op])
        ]
        if len(running) > cores:
            model.row(running, 0, cores)
    return _result(model.solve(nodes), x, dag, None)


def unified(
    dag: Dag, hops: Ints, beta: float, exclusive: bool = True, nodes: int = 1000, horizon: int | None = None
) -> IlpSolution:
    """Starts and cores by Eq. 15: makespan (slots) + `beta` x hops of all edges, each counted once (Eq. 14).

    `hops` [cores, cores]: the sum of distances in rows and columns. `exclusive`: one micro-op at a time on a core;
    otherwise Eq. 8 and 12 as printed. Raises GraphError as `scheduled`.
    """
    cores = len(hops)
    model, most = Model(), makespan(dag, listed(dag, cores)) if horizon is None else horizon
    x, _ = _time_indexed(model, dag, most, cores)
    for slot in range(most):
        running: list[list[tuple[int, float]]] = [[] for _ in range(cores)]
        together: list[list[tuple[int, float]]] = [[] for _ in range(cores)]
        for op, some in enumerate(x):
            for (start, core), which in some.items():
                if start <= slot < start + dag.cycles[op]:
                    running[core].append((which, 1.0))
                if start == slot:
                    together[core].append((which, 1.0))
        if not exclusive:
            model.row(list(chain.from_iterable(running)), 0, cores)
        for some in running if exclusive else together:
            model.row(some, 0, 1)
    on = [[[(w, 1.0) for (_, at), w in some.items() if at == core] for core in range(cores)] for some in x]
    for producer, consumer in dag.pairs:
        way = model.variable(float(hops.max(initial=0)), beta, whole=False)
        for core in range(cores):  # from `core`: at least its distance to wherever the consumer is
            far = [(which, -float(hops[core, to])) for to in range(cores) for which, _ in on[consumer][to]]
            farthest = float(hops[core].max())
            model.row([(way, 1.0), *far, *((which, -farthest) for which, _ in on[producer][core])], -farthest, np.inf)
    return _result(model.solve(nodes), x, dag, cores)


def _result(found: _Found, x: list[_Starts], dag: Dag, cores: int | None) -> IlpSolution:
    values, objective, bound, proven, nodes = found
    chosen = [max(some, key=lambda place: values[some[place]]) for some in x]
    starts = np.array([slot for slot, _ in chosen], np.int64)
    where = None if cores is None else np.array([core for _, core in chosen], np.int64)
    end = int((starts + dag.cycles).max(initial=0))
    if cores is None:  # whole slots
        bound = float(np.ceil(bound - 1e-6))
    return IlpSolution(starts, where, end, objective, bound, proven, nodes)
