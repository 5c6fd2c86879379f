"""The networks that come with examples to train them with."""

from __future__ import annotations

from collections.abc import Callable

from meshloom.hw.spec.config import near_or_all

from .layers import WorkloadError
from .training_examples import Examples
from .training_net import TrainingNet, training_net


def _digits() -> tuple[TrainingNet, Examples]:
    from . import digits

    return training_net(digits.network()), digits.digits()


#: Networks that come with examples.
TRAINABLE: dict[str, Callable[[], tuple[TrainingNet, Examples]]] = {"digits": _digits}


def load(name: str) -> tuple[TrainingNet, Examples]:
    """The network of that name and its examples.

    Raises WorkloadError for a name that means none, for a network with an operator that has no gradient, and for one
    without examples.
    """
    if name in TRAINABLE:
        return TRAINABLE[name]()
    from . import zoo

    if name not in zoo.names():
        raise WorkloadError(f"unknown network {name!r}: {near_or_all(name, tuple(TRAINABLE))}")
    net = training_net(zoo.load(name))
    raise WorkloadError(f"network {net.name} has no examples to train with; there are some for {', '.join(TRAINABLE)}")
