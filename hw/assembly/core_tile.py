"""What a core tile has besides the parts of every tile: the matrix unit, the vector unit, and how they are wired.

front end (matrix) --> matrix unit --+--> posts of the finished ----> semaphores
front end (vector) --> vector unit --+--> records of the finished --> trace
     A, B, ACC, OUT of the matrix unit --> second read ports --> vector unit

The vector unit is there in chips with some `core.vec_ops`.
"""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import Out, connect

from ..control.frontend import FrontEnd
from ..core.array import ArrayForm
from ..core.matrix import MatrixUnit
from ..core.vector import VectorUnit
from ..spec.config import ChipConfig
from ..spec.isa import Opcode, Region, Unit
from ..wiring.clocking import gated_domain, in_domain
from ..wiring.signatures import WAITED_BITS, PortObject, SemPost, TraceRecord

#: The compute units of a core and the opcode that each one executes.
EXECUTES = {Unit.MATRIX: Opcode.GEMM, Unit.VECTOR: Opcode.VEC}
#: Instructions in a unit and finished ones that are still to be reported.
QUEUE = 8


class ProbePort(wiring.Signature):
    """Every result word of a core in the cycle in which it is written: `out_*` by the drain path to OUT, `vec_*` by the
    vector unit to VEC (`en`, word address in the region, P bytes). For benches; packets delivered to OUT do not show.
    """

    def __init__(self, config: ChipConfig) -> None:
        super().__init__(
            {
                f"{memory}_{name}": Out(width)
                for memory in ("out", "vec")
                for name, width in (("en", 1), ("addr", 16), ("data", config.word_bits))
            }
        )


class CoreUnits:
    """The units of a core as submodules of the tile's module `m`, each with a clock of its own in a gated chip.

    `control` is the domain of the tile's rarely used parts; `wake` are signals that have to keep it running. `loops`:
    see `hw.assembly.verilog.verilog`.
    """

    def __init__(self, m: Module, config: ChipConfig, control: str, gated: bool, loops: bool, now: Value) -> None:
        self._control = control
        self.wake: list[Value] = []
        working = Signal()
        walking = Signal()
        computing = gated_domain(m, "array", working, gated)
        walk = gated_domain(m, "walk", walking, gated)
        form = ArrayForm.LOOPS if loops else ArrayForm.INSTANCES
        draining = Signal()
        drain = gated_domain(m, "drain", draining, gated)
        self.matrix = matrix = MatrixUnit(config, form, operand_domain=walk, drain_domain=drain)
        self.vector = vector = VectorUnit(config) if config.core.has_vector else None
        # flags and operands travel on through the array when the last row has been drained
        hold = Signal(range(config.rows + config.cols + 17), init=config.rows + config.cols + 16)
        used = matrix.busy | matrix.issue.valid | matrix.write.valid | matrix.read.valid
        walks: Value = Const(0) if vector is None else vector.busy | vector.issue.valid | vector.read.en
        if config.core.operand_sources:  # the mover reads A and B by the vector unit's ports
            region = matrix.read.payload.region
            walks |= matrix.read.valid & ((region == Region.MAIN) | (region == Region.B))
        m.d[computing] += hold.eq(Mux(used, hold.init, hold - (hold != 0)))
        m.d.comb += [
            working.eq(used | (hold != 0)),
            draining.eq(matrix.draining),
            walking.eq(walks),
            matrix.now.eq(now),
        ]
        m.submodules.matrix = in_domain(matrix, computing)
        self.units: dict[Unit, MatrixUnit | VectorUnit] = {Unit.MATRIX: matrix}
        self._domains = {Unit.MATRIX: computing, Unit.VECTOR: walk}
        if vector is not None:
            m.d.comb += vector.now.eq(now)
            m.submodules.vector = in_domain(vector, walk)
            connect(m, vector.operands, matrix.operands)
            self.units[Unit.VECTOR] = vector

    def observe(self, m: Module, seen: PortObject) -> None:
        """Drives a port of signature `ProbePort`."""
        writes = {"out": self.matrix.out_write} | ({} if self.vector is None else {"vec": self.vector.write})
        for name, write in writes.items():
            m.d.comb += [
                getattr(seen, f"{name}_en").eq(write.en),
                getattr(seen, f"{name}_addr").eq(write.addr),
                getattr(seen, f"{name}_data").eq(write.data),
            ]

    def reading(self, m: Module, unit: Unit, counting: Value) -> Signal:
        """Counts the cycles in which a unit reads operands, while `counting`."""
        total = Signal(32, name=f"{unit.name.lower()}_reading")
        with m.If(self.units[unit].reading & counting):
            m.d[self._domains[unit]] += total.eq(total + 1)
        return total

    def connect(self, m: Module, unit: Unit, front: FrontEnd, post: stream.Interface, record: stream.Interface) -> None:
        """Instructions into a unit; its completions into semaphores and trace, each through a small queue of its own:
        no post waits for a record."""
        name, block = unit.name.lower(), self.units[unit]
        # Cycles that the instructions in the unit waited. They are fewer than `QUEUE` by themselves; who comes last at
        # the semaphores' ports for long has to be sure of its place among the finished, though.
        waits = fifo.SyncFIFO(width=WAITED_BITS, depth=QUEUE)
        posts = fifo.SyncFIFO(width=SemPost.size, depth=QUEUE)
        retired = fifo.SyncFIFO(width=TraceRecord.size, depth=QUEUE)
        for part, queue in (("waits", waits), ("posts", posts), ("retired", retired)):
            m.submodules[f"{name}_{part}"] = in_domain(queue, self._control)
        self.wake += [waits.w_en, block.retire.valid, posts.r_rdy, retired.r_rdy]
        room = Signal(name=f"{name}_room")
        m.d.comb += [
            room.eq((waits.w_level + posts.w_level < QUEUE) & (waits.w_level + retired.w_level < QUEUE)),
            block.issue.valid.eq(front.issue.valid & room),
            block.issue.payload.eq(front.issue.payload.code),
            front.issue.ready.eq(block.issue.ready & room),
            waits.w_en.eq(block.issue.valid & block.issue.ready),
            waits.w_data.eq(front.issue.payload.waited),
        ]
        post_of, record_of = Signal(SemPost, name=f"{name}_post"), Signal(TraceRecord, name=f"{name}_record")
        m.d.comb += [
            post_of.sem.eq(block.retire.post_sem),
            post_of.n.eq(block.retire.post_n),
            record_of.tag.eq(block.retire.tag),
            record_of.unit.eq(int(unit)),
            record_of.opcode.eq(int(EXECUTES[unit])),
            record_of.wait.eq(waits.r_data),
            record_of.start.eq(block.retire.start),
            record_of.end.eq(block.retire.end),
            waits.r_en.eq(block.retire.valid),
            posts.w_en.eq(block.retire.valid & (block.retire.post_n != 0)),
            posts.w_data.eq(post_of),
            retired.w_en.eq(block.retire.valid),
            retired.w_data.eq(record_of),
        ]
        for queue, port in ((posts, post), (retired, record)):
            m.d.comb += [
                port.valid.eq(queue.r_rdy),
                port.payload.eq(queue.r_data),
                queue.r_en.eq(port.ready),
            ]
