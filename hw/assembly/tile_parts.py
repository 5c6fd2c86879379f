"""The parts of a tile, and the clock domains in which they sleep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, stream

from ..control.frontend import FrontEnd
from ..control.semaphores import Semaphores
from ..control.trace import Trace
from ..dtt.controller import Controller
from ..memory.dram_port import DramPort
from ..memory.mover import Mover
from ..noc.data_receiver import DataReceiver
from ..noc.interface import RequestSender, RequestTaker
from ..spec.config import ChipConfig, TileKind
from ..wiring.clocking import Sleeper, gated_domain, in_domain
from .core_tile import CoreUnits


class Sleepers:
    """The submodules of a tile's module `m`, each in a clock domain that sleeps while nothing needs it: what works
    often has a clock of its own, what is rare one for all, `control`, which all of `wake` keeps awake."""

    def __init__(self, m: Module, gated: bool, wake: Sequence[Value]) -> None:
        self.module, self.gated, self.wake = m, gated, [*wake]
        self.awake = Signal()
        self.control = gated_domain(m, "control", self.awake, gated)

    def add(self, name: str, block: Sleeper) -> Sleeper:
        """Adds a submodule in `control`; its `active` keeps that awake."""
        self.module.submodules[name] = in_domain(block, self.control)
        self.wake.append(block.active)
        return block

    def add_own(self, name: str, block: Sleeper) -> tuple[Sleeper, str]:
        """Adds a submodule in a clock domain of its own, awake while the block is `active`; returns both."""
        domain = gated_domain(self.module, name, block.active, self.gated)
        self.module.submodules[name] = in_domain(block, domain)
        return block, domain

    def finish(self) -> None:
        """Nothing is added any more."""
        self.module.d.comb += self.awake.eq(Cat(self.wake).any())


class TilePorts(Protocol):
    """What the parts of a tile see of it: what it is, its address and that of the host, and its ports."""

    config: ChipConfig
    kind: TileKind
    gated: bool
    tile: Signal
    host: Signal
    go: Signal
    ask: Signal
    post_in: stream.Interface
    post_out: stream.Interface


class DramPart(NamedTuple):
    """The DRAM port, and its clock domain."""

    port: DramPort
    domain: str


class PostChecks(NamedTuple):
    """What stands between the post plane and the semaphores: `refused`, the fault of a post that has arrived corrupted
    or by mistake; `serving`: the host counts posts itself."""

    refused: data.View  # FaultReport
    serving: Signal


class TileParts(NamedTuple):
    """The parts of a tile. `fronts`: the front end of each unit's stream, the mover's first. `moving`: the
    clock domain of the mover. `sender`: in tiles with streams."""

    sleepers: Sleepers
    mover: Mover
    moving: str
    delivery: DataReceiver
    taker: RequestTaker
    sender: RequestSender | None
    fronts: Sequence[FrontEnd]
    semaphores: Semaphores
    tracer: Trace
    core: CoreUnits | None
    controller: Controller | None
    dram: DramPart | None
