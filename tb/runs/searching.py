"""The progress of scheduling, on the screen: what is being done, and a bar for each search, with the best so far."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ..report.progress import Working, folded, whole
from .kinds.interface import Listener

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID


#: Progress of a search: `layer`, `total` and what else the bar shows (`sched.papers.flexer.search.Progress`).
SearchState = Any


def with_budget(scheduler: str, budget: str | None) -> str:
    """A scheduler's name with `budget` among its options.

    Raises SchedulerError for a scheduler that is unknown, has no budget, or has one in its name already.
    """
    return _with_option(scheduler, "budget", budget, "its work ends by itself")


def with_effort(scheduler: str, effort: str | None) -> str:
    """The same with `effort`."""
    return _with_option(scheduler, "effort", effort, "it does the same work each time, or has a budget")


def _with_option(scheduler: str, option: str, value: str | None, why: str) -> str:
    if value is None:
        return scheduler
    from meshloom.sched.schedulers.registry import SchedulerError, names, options_of, takes_option

    base, options = options_of(scheduler)
    if not takes_option(base, option):
        those = ", ".join(name for name in names() if takes_option(name, option))
        raise SchedulerError(f"--{option}: scheduler {base} has no {option}, {why}; {those} take one")
    if option in options:
        raise SchedulerError(f"scheduler {scheduler} names a {option}, and so does --{option}; give only one")
    return f"{scheduler}{',' if ':' in scheduler else ':'}{option}={value}"


@contextmanager
def searching(screen: Console) -> Generator[Listener]:
    """Yields a listener. Its `step` takes what is being done; a search reports to its `search`: tilings done, schedules
    made, and the best so far with its estimated cost; or that it is being compiled, and the functions done. In a log
    what is being done is said once it takes long."""
    columns = (
        TextColumn("{task.description}", markup=False, table_column=folded()),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[what]}", markup=False, table_column=whole()),
        TextColumn("{task.fields[best]}", markup=False, table_column=folded()),
        TimeElapsedColumn(table_column=whole()),
    )
    with ExitStack() as stack:
        bars = stack.enter_context(Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal))
        working: Working | None = None
        tasks: dict[str, TaskID] = {}
        compiling = "compiling the search, once"

        def on_progress(state: SearchState) -> None:
            if state.compiling:
                if compiling not in tasks:
                    if not screen.is_terminal:  # there are no bars, so print what takes so long
                        screen.print(compiling, markup=False)
                    tasks[compiling] = bars.add_task(compiling, total=state.total, best="", what="")
                what = f"{state.done}/{state.total} functions"
                bars.update(tasks[compiling], completed=state.done, total=state.total, what=what)
                return
            if compiling in tasks:
                bars.remove_task(tasks.pop(compiling))
            if state.layer not in tasks:
                tasks[state.layer] = bars.add_task(state.layer, total=state.total, best="", what="")
            best = ""
            if state.best is not None:
                cost = f"{state.best.cycles:,.0f} cycles, {state.best.words:,} words"
                best = f"best of {state.schedules:,}: {state.best}, {cost}"
            what = f"{state.done}/{state.total} tilings"
            bars.update(tasks[state.layer], completed=state.done, total=state.total, best=best, what=what)

        def on_step(what: str) -> None:
            nonlocal working
            if not screen.is_terminal:
                if working is None:
                    working = stack.enter_context(Working(screen, what))
                working.say(what)
            elif "" in tasks:
                bars.update(tasks[""], description=what)
            else:
                tasks[""] = bars.add_task(what, total=None, best="", what="")

        yield Listener(on_step, on_progress)
