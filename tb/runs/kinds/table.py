"""The kinds of workload, and what a name means: the one place that decides it.

A kind is registered under the prefix of its names (`gradient` for `gradient:bert/qkv`) or under the suffix of its files
(`.onnx`): those that ship, those of installed packages (entry points `meshloom.workloads`), and `FILE.py:KIND:rest`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from meshloom.sched.support.plugins import PluginError, Registry
from meshloom.sched.workload.layer_chain import is_chain
from meshloom.sched.workload.layers import WorkloadError

from ...exchange.interface import Importer
from ...exchange.registry import IMPORTERS
from ...inputs.sources import NetworkSource
from .interface import WorkloadKind, WorkloadRequest

if TYPE_CHECKING:
    from meshloom.hw.spec.config import ChipConfig
    from meshloom.sched.schedulers.registry import Chosen

#: Entry points of other packages that are kinds of workload.
GROUP = "meshloom.workloads"
#: What a name without prefix and suffix can be.
NETWORK, LAYER = "network", "layer"
#: A layer by the mapping of another tool, whose importer is the prefix.
MAPPING = "mapping"
REGRESSION = "regression"


class UnknownKindError(PluginError, WorkloadError):
    """A kind of workload that cannot be loaded."""


def _accept(name: str, thing: object) -> WorkloadKind:
    if isinstance(thing, Importer):
        return KINDS.get(MAPPING)
    if not isinstance(thing, WorkloadKind):
        raise TypeError(f"is of type {type(thing).__name__}; it must be a WorkloadKind or an Importer")
    return thing


_HERE = "meshloom.tb.runs.kinds"
_FILES = "meshloom.tb.runs.saved:KIND"
KINDS: Registry[WorkloadKind] = Registry(
    "kind of workload",
    GROUP,
    {
        NETWORK: f"{_HERE}.networks:KIND",
        ".onnx": f"{_HERE}.networks:KIND",
        LAYER: f"{_HERE}.layers:KIND",
        "conv": f"{_HERE}.layers:KIND",
        "gemm": f"{_HERE}.layers:KIND",
        MAPPING: f"{_HERE}.mappings:KIND",
        "gradient": f"{_HERE}.gradients:KIND",
        "chain": f"{_HERE}.chains:KIND",
        ".json": _FILES,
        ".bin": _FILES,
    },
    _accept,
    UnknownKindError,
)


def kind_of(name: str) -> str:
    """The registered name of the kind that reads a workload's name."""
    from meshloom.sched.workload import zoo

    prefix, colon, _ = name.partition(":")
    if colon and prefix.endswith(".py"):
        return ":".join(name.split(":")[:2])
    names = KINDS.names()
    if is_chain(name):
        return NETWORK
    if colon and prefix in names:
        return prefix
    if colon and prefix in IMPORTERS.names():
        return MAPPING
    for suffix in names:
        if suffix.startswith(".") and name.endswith(suffix):
            return suffix
    return NETWORK if name in zoo.names() else LAYER


def find(name: str, chip: ChipConfig | None = None) -> Sequence[WorkloadRequest]:
    """The requests that a name means on a chip, at least one. Without a chip: whether it means any.

    Raises WorkloadError, with the nearest names, when it means nothing.
    """
    kind = kind_of(name)
    result = KINDS.get(kind).find(name, chip)
    return result if kind in KINDS.shipped else _checked(kind, result)


def _checked(kind: str, result: object) -> Sequence[WorkloadRequest]:
    """What a kind that does not ship has returned. Raises WorkloadError if it is no requests."""
    returned = type(result).__name__
    several = cast("Sequence[object]", result) if isinstance(result, list | tuple) else ()
    parts = ("name", "scheduled_as", "check", "plan", "prepare")
    lacks = [part for one in several for part in parts if not hasattr(one, part)]
    if not several or lacks:
        what = f"something without {lacks[0]}" if lacks else f"no request, but a {returned}"
        raise WorkloadError(f"kind of workload {kind} returns {what}; it must return WorkloadRequests, at least one")
    return cast("Sequence[WorkloadRequest]", several)


def requests(
    workload: str | NetworkSource | WorkloadRequest, chip: ChipConfig | None = None
) -> Sequence[WorkloadRequest]:
    """The same for a workload that may already have been read. Raises WorkloadError."""
    if isinstance(workload, str):
        return find(workload, chip)
    if isinstance(workload, NetworkSource):
        from .networks import NetworkRequest

        return [NetworkRequest(workload)]
    return [workload]


def one(name: str, chip: ChipConfig | None = None) -> WorkloadRequest:
    """The one request that a name means. Raises WorkloadError, also for several."""
    workload_requests = find(name, chip)
    if len(workload_requests) != 1:
        raise WorkloadError(f"workload {name} is {len(workload_requests)} layers; name one of them")
    return workload_requests[0]


def is_network(name: str) -> bool:
    """Whether a name means a whole network, which can be fed."""
    return KINDS.shipped.get(kind_of(name)) == KINDS.shipped[NETWORK]


def is_file(name: str) -> bool:
    """Whether a name means a saved schedule or program."""
    return KINDS.shipped.get(kind_of(name)) == _FILES


def is_mapping(name: str) -> bool:
    """Whether a name means a layer by another tool's mapping."""
    kind = kind_of(name)
    return kind == MAPPING or KINDS.get(kind) is KINDS.get(MAPPING)


def regression(scheduler: str | Chosen) -> list[WorkloadRequest]:
    """What `make sim` runs: the networks, if the scheduler takes networks, then the layers."""
    from meshloom.sched.schedulers.registry import scheduler_of

    from ...inputs.sources import regression_networks

    networks = regression_networks() if scheduler_of(scheduler).networks is not None else ()
    return [*(request for name in networks for request in find(name)), *find(REGRESSION)]


def syntaxes() -> Iterable[str]:
    """The syntax of every kind, each once."""
    kinds = dict.fromkeys(KINDS.get(name) for name in (*KINDS.shipped, *KINDS.names()))
    return (text for kind in kinds if (text := kind.syntax()))
