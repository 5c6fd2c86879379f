"""`lookahead` to the registry: its options, and the function behind it."""

from __future__ import annotations

from pydantic import Field

from ..interface import Options
from .interface import OnlineScheduler, Platform
from .registry import OnlineMaker


class LookaheadOptions(Options):
    """Options of `lookahead`. All but the first switch a part of it off."""

    penalty: float = Field(default=2.0, ge=0, le=1000, description="cost of a missed deadline, in turnaround times")
    weights: bool = Field(default=True, description="order networks by what their delay costs, not by arrival")
    deadlines: bool = Field(default=True, description="search for an order that meets deadlines")
    pace: bool = Field(default=True, description="correct predicted times by what earlier ones have taken")
    ahead: bool = Field(default=True, description="launch the next layer of a network while one runs, as its successor")
    beside: bool = Field(default=True, description="run layers of others beside those of the first network")
    queues: bool = Field(default=True, description="count what layers wait for each other's words at the DRAM channels")
    reserve: bool = Field(default=True, description="let the first network wait for cores of layers that end soon")


def lookahead(platform: Platform, options: LookaheadOptions) -> OnlineScheduler:
    """See `lookahead.py`."""
    from .lookahead import Lookahead, Parts

    return Lookahead(options.penalty, Parts(**options.model_dump(exclude={"penalty"})))


LOOKAHEAD = OnlineMaker(
    "lookahead",
    "order by cost of delay, layers launched ahead, others beside them where it pays",
    lookahead,
    LookaheadOptions,
)
