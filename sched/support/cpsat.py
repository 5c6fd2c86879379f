"""CP-SAT (ortools) under a limit of deterministic work, in a way that Ctrl-C ends.

What it finds depends on no clock: one strategy by itself, stopped by deterministic time, the solver's own count of work
(one of it takes some seconds). Several that take turns would be deterministic too (`interleave_search`), but went far
beyond the limit of work on these models.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, CpSolver

#: Told of the best objective so far and the bound that is proven, whenever a better solution is found.
OnBetter = Callable[[float, float], None]


def solve(model: CpModel, work: float, on_better: OnBetter | None = None) -> CpSolver | None:
    """The solver, with the best solution found by deterministic time `work`; None if there is none. Raises what arrives
    meanwhile (KeyboardInterrupt) when the search has ended."""
    from ortools.sat.python import cp_model

    class Heard(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            if on_better is not None:
                on_better(self.objective_value, self.best_objective_bound)

    solver, heard = cp_model.CpSolver(), Heard()
    chosen = solver.parameters
    chosen.max_deterministic_time, chosen.random_seed, chosen.num_workers = work, 1, 1
    chosen.catch_sigint_signal = False
    ended: list[bool] = []
    solved = (cp_model.OPTIMAL, cp_model.FEASIBLE)
    thread = Thread(target=lambda: ended.append(solver.solve(model, heard) in solved), daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.1)  # a join without an end could not be interrupted
    except BaseException:
        solver.stop_search()
        thread.join()
        raise
    return solver if ended and ended[0] else None
