"""What a shell offers behind a command: names of chips, schedulers, workloads and benchmarks."""

from __future__ import annotations

from collections.abc import Iterable


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def complete_chips(incomplete: str) -> list[str]:
    """Built-in chips."""
    from meshloom.hw.config import built_in_chips

    return _starting(built_in_chips(), incomplete)


def complete_schedulers(incomplete: str) -> list[str]:
    """Registered schedulers."""
    from meshloom.sched.schedulers.registry import names

    return _starting(names(), incomplete)


def complete_workloads(incomplete: str) -> list[str]:
    """Built-in networks; behind a slash, the layers of one that tables list; the beginnings of shapes."""
    from meshloom.sched.workload import catalog, zoo

    layers = catalog.names() if "/" in incomplete else ()
    return _starting((*zoo.names(), "regression", "conv:", "gemm:", *layers), incomplete)


def complete_benchmarks(incomplete: str) -> list[str]:
    """Benchmarks of `meshloom bench`."""
    from ..benchmarks import BENCHMARKS

    return _starting(BENCHMARKS, incomplete)
