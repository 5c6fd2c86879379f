"""Shell completion: the names that a command or an option accepts."""

from __future__ import annotations

from collections.abc import Iterable


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def complete_chips(incomplete: str) -> list[str]:
    """Built-in chips."""
    from meshloom.hw.spec.config import built_in_chips

    return _starting(built_in_chips(), incomplete)


def complete_schedulers(incomplete: str) -> list[str]:
    """Registered schedulers."""
    from meshloom.sched.schedulers.registry import names

    return _starting(names(), incomplete)


def complete_online_schedulers(incomplete: str) -> list[str]:
    """Registered online schedulers."""
    from meshloom.sched.schedulers.online.registry import ONLINE

    return _starting(ONLINE.names(), incomplete)


def complete_workloads(incomplete: str) -> list[str]:
    """Built-in networks and the prefixes of shapes; after a slash, also layer names, of networks that tables list."""
    from meshloom.sched.workload import catalog, zoo

    layers = catalog.names() if "/" in incomplete else ()
    return _starting((*zoo.names(), "regression", "conv:", "gemm:", "gradient:", "chain:", *layers), incomplete)


def complete_benchmarks(incomplete: str) -> list[str]:
    """Registered benchmarks."""
    from ..benchmarks.registry import REGISTRY

    return _starting(REGISTRY.names(), incomplete)


def complete_devices(incomplete: str) -> list[str]:
    """Registered devices."""
    from ..devices.registry import REGISTRY

    return _starting(REGISTRY.names(), incomplete)


def complete_reports(incomplete: str) -> list[str]:
    """Registered forms of results, ready for a path to be appended."""
    from ..report.registry import REGISTRY

    return _starting((f"{name}=" for name in REGISTRY.names()), incomplete)


def complete_runs(incomplete: str) -> list[str]:
    """Runs in the folder of results, newest first, after `latest`."""
    from ..results.named import LATEST
    from ..results.past import names

    runs = names()
    return _starting([LATEST] * bool(runs) + runs, incomplete)
