"""The transaction-level model: predicts when every instruction of a program starts and ends.

It plays the streams, requests, packets, posts and DRAM bursts of a program as events, with the cycle counts that the
gateware's docstrings state (`hw/control/frontend.py`, `hw/memory/mover.py`, `hw/noc/interface.py`, `hw/timing.py`),
down to the flit, but with events only where a flow begins or ends (`flow.py`). Nothing is fitted to measurements: a
mechanism is modelled by its contract. Left out are faults, and what the program checker refuses (a MOVE that reads A
or B).
"""

from __future__ import annotations

from collections.abc import Callable

from meshloom.hw.config import ChipConfig
from meshloom.hw.contracts import GEMM_ISSUE_CYCLES, STAGE_CYCLES, VEC_ISSUE_CYCLES
from meshloom.hw.isa import Opcode, Unit, VectorOp
from meshloom.hw.timing import (
    GemmShape,
    VecShape,
    gemm_cycles,
    gemm_occupancy,
    vec_cycles,
    vec_occupancy,
)

from ..program.program import Program
from .clock import Clock
from .controller import Controller, pushed_streams
from .delivery import Packets
from .drain import DrainPath
from .dram import Dram
from .flow import OPEN, Door, Place
from .frontend import FrontEnd
from .mover import Mover, Sender
from .noc_flit import VcPlane
from .noc_flow import Packet, Plane
from .posts import LANDED_POST, PLANE_POST, UNIT_POST, PostSender, Semaphores, Trace
from .records import Executed, ModelError, Timeline

__all__ = ["Executed", "ModelError", "Timeline", "play"]


def play(program: Program, chip: ChipConfig) -> Timeline:
    """Predicts a program. Raises ModelError when it never ends, or an instruction is ready after its fire time."""
    return Machine(program, chip).play()


class Machine(Clock):
    """All state of a run, and its events."""

    def __init__(self, program: Program, chip: ChipConfig) -> None:
        super().__init__()
        self.program, self.chip = program, chip
        noc = chip.noc
        if noc.data_vcs == 1:
            self.data: Plane | VcPlane = Plane(self, noc.data_depth, noc.data_routing)
        else:
            self.data = VcPlane(self, noc.data_depth, noc.data_vcs, noc.data_routing)
        self.requests = Plane(self, noc.request_depth)
        self.posts = Plane(self, noc.post_depth)
        self.executed: list[Executed] = []
        self.cycles: int | None = None
        self.semaphores = {tile: Semaphores(self) for tile in chip.tiles}
        self.traces = {tile: Trace(self) for tile in chip.tiles}
        self.post_senders = {tile: PostSender(self, self.posts, tile) for tile in chip.tiles}
        self.doors = {tile: Door(True) for tile in chip.tiles}  # into the memories
        self.drams = {tile: Dram(self, chip) for tile in chip.drams}
        self.drains = {tile: DrainPath(chip) for tile in chip.cores}
        self.ports: dict[tuple[int, int], Place] = {
            (tile, region): port for tile, drain in self.drains.items() for region, port in drain.writes.items()
        }
        self.senders = {tile: Sender(self, tile) for tile in chip.tiles}
        self.movers = {tile: Mover(self, tile) for tile in chip.tiles}
        self.arrays = {
            (tile, unit): _Array(self, tile, unit) for tile in chip.cores for unit in (Unit.MATRIX, Unit.VECTOR)
        }
        self.packets = Packets(self)
        self.controllers = {} if chip.dtt is None else {chip.dtt: Controller(self, chip.dtt)}
        self.streams = {(s.tile, s.unit): FrontEnd(self, s) for s in (*program.streams, program.boot)}
        if self.controllers:
            pushed = pushed_streams(program, chip)
            self.streams |= {(s.tile, s.unit): FrontEnd(self, s, pushed=True) for s in pushed}

    def play(self) -> Timeline:
        """Starts the program and lets it run to its end."""
        boot = self.streams[self.program.boot.tile, Unit.MOVER]
        boot.start(0)
        self.run()
        if self.cycles is None:
            raise ModelError(
                "the program never ends: some stream waits for a post that nobody makes, or packets wait for each "
                "other in a circle; the program checker says which"
            )
        return Timeline(self.cycles, self.executed)

    # -- what arrives -----------------------------------------------------------------------------------------------

    def send_post(
        self, source: int, number: int, target: int, semaphore: int, count: int, cycle: int,
        taken: Callable[[int], None],
    ) -> None:  # fmt: skip
        """A post over the post plane, offered in `cycle`; `taken` is called when the network takes it."""

        def gate(now: int, proceed: Callable[[int], None]) -> None:
            self.semaphores[target].post(now, PLANE_POST, semaphore, count, proceed)

        self.post_senders[source].offer(cycle, number, target, Packet([(1, OPEN, None)], gate), taken)

    def landed(self, tile: int, fields: dict[str, int], cycle: int, accepted: Callable[[int], None]) -> None:
        """The last word of a MOVE is in memory; `cycle`: the notify is offered."""
        target = fields["notify_tile"]
        if target == tile:
            self.semaphores[tile].post(cycle, LANDED_POST, fields["notify_sem"], 1, accepted)
        else:
            self.send_post(tile, 0, target, fields["notify_sem"], 1, cycle, accepted)


class _Array:
    """A unit of a core that computes: the matrix or the vector unit."""

    def __init__(self, machine: Machine, tile: int, unit: Unit) -> None:
        self.machine, self.tile, self.unit = machine, tile, unit
        self.free = 0  # first cycle in which the readers can start on another instruction
        self.staged = 0  # first cycle in which the stage before the readers takes another

    def issue(
        self, opcode: Opcode, fields: dict[str, int], waited: int, cycle: int, taken: Callable[[int], None]
    ) -> None:
        """An instruction offered in `cycle`; `taken` is called when the unit takes it."""
        accepted = max(cycle, self.staged)
        lead, occupied, cycles = _lengths(opcode, fields, self.machine.chip)
        start = max(accepted + lead, self.free)
        self.free = start + occupied
        self.staged = (
            start - STAGE_CYCLES
        )  # it hands over, and takes the next, in the cycle before the first operand address
        end = start + cycles
        if opcode is Opcode.GEMM:
            self.machine.drains[self.tile].drains(self.machine.now, fields, start)

        def retire(now: int) -> None:
            self.machine.executed.append(
                Executed(self.tile, self.unit, opcode, fields.get("tag", 0), waited, start, end)
            )
            if fields.get("post_n", 0):
                post = self.machine.semaphores[self.tile].post
                post(now, UNIT_POST + self.unit, fields["post_sem"], fields["post_n"])

        self.machine.at(end, retire)
        self.machine.at(accepted, taken)


def _lengths(opcode: Opcode, fields: dict[str, int], chip: ChipConfig) -> tuple[int, int, int]:
    """Cycles from acceptance by an idle unit to the start, for which the readers are busy, and from start to end."""
    kernel = fields["kernel_h"], fields["kernel_w"]
    if opcode is Opcode.GEMM:
        gemm = GemmShape(fields["pixels"], fields["n_blocks"], fields["k_blocks"], *kernel)
        return GEMM_ISSUE_CYCLES, gemm_occupancy(chip, gemm), gemm_cycles(chip, gemm)
    vec = VecShape(VectorOp(fields.get("op", 0)), fields["pixels"], fields["blocks"], *kernel)
    return VEC_ISSUE_CYCLES, vec_occupancy(chip, vec), vec_cycles(chip, vec)
