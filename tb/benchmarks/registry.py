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
GEMM = module(
    "cycles of random GEMMs against the timing formulas; utilisation of a core fed from its own memories", "gemm"
)
SPEED = module(
    "simulated cycles per CPU-second of whole chips that run real layers; the timeline model beside itself", "speed"
)
BUILDS = module("seconds to a simulator: whole chips, a changed part, chips with many equal cores", "builds")
VECTOR = module(
    "windows that the vector unit computes at once: cycles of networks on the RTL, cells after synthesis", "vector"
)
OPERATORS = module(
    "ONNX's node tests of all operators of float files, in 8 bits on the RTL of a small chip", "operators"
)
FILES = module("trained model files out of packages on the RTL, and their answers beside float's", "files", parts=True)
CHANNEL_SCALES = module("what a scale for each channel of the weights is worth", "channel_scales")
AREA = module("cells of tiles with and without what serving many networks at once takes, after synthesis", "area")
REGRESSION = module("error of the model, layer by layer, on four chips", "regression")
NETWORKS = module(
    "whole networks: labels, cycles, CPU-seconds, the model's error, and where the arrays' time goes", "networks"
)
NOC = module(
    "the network by itself: latency and saturation against BookSim 2, flits per CPU-second, cells of a router", "noc"
)
FLEXER = module(
    "out-of-order schedules against static ones, all layers of four networks on eight chips, in the model",
    "flexer",
    parts=True,
    paper="flexer",
)
FLEXER_ASSUMPTIONS = module(
    "what the paper leaves open: which assumption yields which part of its speed-up",
    "flexer_assumptions",
    parts=True,
    paper="flexer",
)
FLEXER_POLICIES = module(
    "its search: time, priorities and memory policies, what ours adds, what de-duplication costs",
    "flexer_policies",
    paper="flexer",
)
FLEXER_OPTIMUM = module(
    "its sequences beside the best of all, on small random layers; looking ahead", "flexer_optimum", paper="flexer"
)
FLEXER_RTL = module(
    "the same on the RTL: layers of all four networks, and three of these whole",
    "flexer_rtl",
    parts=True,
    paper="flexer",
)
LAYER_PUZZLE = module(
    "many networks at once by five online schedulers, on the RTL and in the model; closed forms; versions",
    "layer_puzzle",
    parts=True,
    paper="layer_puzzle",
)
LAYER_LATENCY = module(
    "latencies of random layers, alone and beside others, predicted and measured in the model and on the RTL",
    "layer_latency",
    parts=True,
    paper="layer_puzzle",
)
MODELS = module(
    "closed forms (SCALE-Sim's, Layer-Puzzle's, Timeloop's, ZigZag's, ours) against the RTL: random layers, five chips",
    "models",
)
ONLINE_ABLATION = module(
    "our online scheduler with each of its parts switched off, ten workloads in the model",
    "online_ablation",
    paper="layer_puzzle",
)
KLOTSKI = module(
    "networks in micro-ops beside both baselines of Klotski and loop nests, in the model and on the RTL",
    "klotski",
    parts=True,
    paper="klotski",
)
KLOTSKI_SOLVERS = module(
    "micro-ops scheduled and mapped by lists, CP-SAT and integer programs, against proven bounds",
    "klotski_solvers",
    paper="klotski",
)
KLOTSKI_PARTITION = module(
    "networks cut into micro-ops: Bayesian optimisation beside baselines and what beats it, in the model",
    "klotski_partition",
    paper="klotski",
)
SWEEP = module("sweeps with two workers, one killed, against a serial run: rows, milliseconds for each point", "sweep")
SCALESIM = module("cycles and CPU-seconds side by side with SCALE-Sim v3", "scale_sim")


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
        return list(studies.SHIPPED), list(SHIPPED)
    benchmarks = [name for name in names if name in SHIPPED]
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
