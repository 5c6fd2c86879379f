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
    """Registered schedulers; behind the colon of one, its options, and the values of an option that has few."""
    from meshloom.sched.schedulers.registry import REGISTRY, names

    base, colon, _ = incomplete.partition(":")
    if not colon or base not in names():
        return _starting(names(), incomplete)
    scheduler = REGISTRY.get(base)
    models = [getattr(scheduler, kind).options for kind in scheduler.kinds]
    return _with_options(
        incomplete, [(name, field.annotation) for one in models for name, field in one.model_fields.items()]
    )


def complete_online_schedulers(incomplete: str) -> list[str]:
    """Registered online schedulers, and their options as `complete_schedulers` has them."""
    from meshloom.sched.schedulers.online.registry import ONLINE

    base, colon, _ = incomplete.partition(":")
    if not colon or base not in ONLINE.names():
        return _starting(ONLINE.names(), incomplete)
    return _with_options(
        incomplete, [(name, field.annotation) for name, field in ONLINE.get(base).options.model_fields.items()]
    )


def complete_token_schedulers(incomplete: str) -> list[str]:
    """Registered token schedulers, which have no options, and `all`."""
    from meshloom.sched.schedulers.tokens.registry import TOKENS

    return _starting([*TOKENS.names(), "all"], incomplete)


def _with_options(incomplete: str, options: list[tuple[str, object]]) -> list[str]:
    """What can stand at the end of `name:option=value,...`: an option that is not there yet, or the value of one."""
    base, _, rest = incomplete.partition(":")
    *before, last = rest.split(",")
    head = f"{base}:{''.join(f'{each},' for each in before)}"
    name, equals, _ = last.partition("=")
    if equals:
        values = next((_values(kind) for option, kind in options if option == name), ())
        return _starting((f"{head}{name}={value}" for value in values), incomplete)
    there = {each.partition("=")[0] for each in before}
    return _starting((f"{head}{option}=" for option, _ in options if option not in there), incomplete)


def _values(annotation: object) -> tuple[str, ...]:
    """The values of an option, if they can be listed."""
    from typing import Literal, get_args, get_origin

    if annotation is bool:
        return "yes", "no"
    return tuple(map(str, get_args(annotation))) if get_origin(annotation) is Literal else ()


def complete_workloads(incomplete: str) -> list[str]:
    """Built-in networks and the prefixes of shapes; after a slash, also layer names, of networks that tables list."""
    from meshloom.sched.workload import catalog, zoo

    layers = catalog.names() if "/" in incomplete else ()
    return _starting((*zoo.names(), "regression", "conv:", "gemm:", "gradient:", "chain:", *layers), incomplete)


def complete_studies(incomplete: str) -> list[str]:
    """Registered studies."""
    from ..studies.registry import REGISTRY

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
