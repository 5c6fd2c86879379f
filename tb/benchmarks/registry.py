"""Benchmarks by name: `meshloom bench NAME` runs one, `make bench` all. Each prints tables and commits them as text.

Those of installed packages are entry points `meshloom.benchmarks`; any `package.module:BENCHMARK` and
`FILE.py:BENCHMARK` is one, too, and so is a function of `on_progress`. What was measured lands in
`docs/results/<name>.md` whether or not its bars were reached. Nothing heavy is imported before a benchmark runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from meshloom.sched.schedulers.papers import papers
from meshloom.sched.support.plugins import PluginError, Registry

from ..studies import registry as studies
from .interface import Benchmark, BenchmarkError, module

if TYPE_CHECKING:
    from ..results.events import OnEvent
    from .results import Result

#: Entry points of other packages that are benchmarks.
GROUP = "meshloom.benchmarks"


class UnknownBenchmarkError(PluginError):
    """A name that means no benchmark; the message lists those there are."""


#: What ships, in the order of a run of all: the long one last.
FLEXER_POLICIES = module(
    "its search: time, priorities and memory policies, what ours adds, what de-duplication costs",
    "flexer_policies",
    paper="flexer",
)
LAYER_LATENCY = module(
    "latencies of random layers, alone and beside others, predicted and measured in the model and on the RTL",
    "layer_latency",
    parts=True,
    paper="layer_puzzle",
)


def _accept(name: str, thing: object) -> Benchmark:
    if isinstance(thing, Benchmark):
        return thing
    if callable(thing):
        return Benchmark((thing.__doc__ or name).strip().partition("\n")[0], cast("Callable[[OnEvent], Result]", thing))
    raise TypeError(f"is of type {type(thing).__name__}; it must be a Benchmark or a function of `on_progress`")


#: By name, but studies of a paper that is not there.
SHIPPED = {
    name.lower(): f"{__name__}:{name}"
    for name, thing in tuple(globals().items())
    if isinstance(thing, Benchmark) and (not thing.paper or thing.paper in papers())
}
REGISTRY: Registry[Benchmark] = Registry("benchmark", GROUP, SHIPPED, _accept, UnknownBenchmarkError)


def split(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names of studies, and of what is still a benchmark (none named: all of both)."""
    if not names:
        return list(studies.SHIPPED), [name for name in SHIPPED if name not in studies.SHIPPED]
    benchmarks = [name for name in names if name in SHIPPED and name not in studies.SHIPPED]
    return [name for name in names if name not in benchmarks], benchmarks


def run(names: Sequence[str], parts: Sequence[str] = ()) -> bool:
    """Runs benchmarks (none named = all that ship), prints and writes their results; whether all reached their bars.

    `parts`: what those are held to that have parts. Raises UnknownBenchmarkError before anything runs, BenchmarkError
    if parts are named and a benchmark has none. A benchmark that cannot run counts as one that failed.
    """
    from ..build.builder import BuildError
    from ..devices.interface import DeviceError
    from ..report.console import Reporter, console
    from .results import print_result, save_result

    chosen = {name: REGISTRY.get(name) for name in names or SHIPPED}
    if parts and (whole := [name for name, benchmark in chosen.items() if not benchmark.parts]):
        raise BenchmarkError(f"{', '.join(whole)}: no parts to choose from; name a benchmark that has parts")
    screen = console()
    good = True
    for name, benchmark in chosen.items():
        screen.print(f"{name}: {benchmark.summary}", style="bold", markup=False, soft_wrap=True)
        try:
            with Reporter(screen) as on_progress:
                result = benchmark.run(on_progress, parts) if parts else benchmark.run(on_progress)
        except (BenchmarkError, BuildError, DeviceError) as error:
            screen.print(f"{name}: did not run: {error}", style="red", markup=False, soft_wrap=True)
            good = False
            continue
        print_result(result, screen)
        screen.print(f"results: {save_result(result)}", markup=False, soft_wrap=True)
        good &= result.passed
    return good
