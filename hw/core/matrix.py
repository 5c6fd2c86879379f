"""The matrix unit of a core: its four memories, the operand readers, the array and the drain path."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory, ReadPort
from amaranth.lib.wiring import In, Out

from ..spec.config import ChipConfig
from ..spec.isa import Region
from ..wiring.clocking import in_domain
from ..wiring.ecc import Code, CodedMemory, CodedRead, coded_data, error_ports, show_errors, word_memory
from ..wiring.signatures import word_read, word_write
from .array import ArrayForm
from .drain import RETIRE_LAYOUT, Drain
from .fed_array import FedArray
from .ports import OperandPort, OperandPorts, write_layout
from .readers import FAULT_LAYOUT, GEMM_LAYOUT, OperandReader

T = TypeVar("T")
#: The regions of the unit's memories, in the order of `_PerMemory`.
MEMORIES = (Region.MAIN, Region.B, Region.ACC, Region.OUT)
Words = Memory | CodedMemory
WordRead = ReadPort | CodedRead


class _PerMemory(NamedTuple, Generic[T]):
    """One item for each of the unit's memories, named as `OperandPorts` names them."""

    a: T
    b: T
    acc: T
    out: T


class MatrixUnit(wiring.Component):
    """Executes GEMMs on memories that the NoC writes and the mover reads.

    - `issue`: GEMMs whose header has been satisfied. One is held while another runs.
    - `retire`: strobe, one per GEMM, in order, in the cycle of its last write; `start` = cycle of the first operand
      address, `end` = the cycle after the last write. Timing is exactly that of `hw.spec.timing`: start = acceptance +
      2 when idle, end - start = `gemm_cycles`, and the windows of a pending instruction follow without a bubble, but
      for `gemm_bubble`.
    - `now`: the current cycle.
    - `write`: one word into A (`MAIN`), B, ACC or OUT per cycle; for other regions it is discarded. ACC and OUT are not
      ready in cycles in which the drain path writes them. The caller must keep offsets within the memory.
    - `read`: a word of any of them; a request accepted in cycle t is answered on `read_data` in cycle t + 1 and only
      then (not held). ACC is not ready in cycles in which the drain path reads: an addend for each row of a GEMM that
      has one, 1 cycle before the row's write to ACC, 3 before its write to OUT (`by_channel`: see `Drain`; each of the
      four words of P bytes in a word of ACC takes a separate read). A and B are not ready while the array reads them:
      with rows = P, until the GEMM has read its operands. With `core.operand_sources` they are read through the vector
      unit's ports instead, and not ready while a VEC reads its operands (`operands.walking`); the array never matters.
      OUT is always ready.
    - `fault`: strobe, at most one per GEMM and memory pair: ADDRESS (value = the word address), SHAPE, RESERVED_BITS
      (value = 0). See `OperandReader` and `Drain`: a faulted GEMM never accesses a word past a memory and always
      retires.
    - `operands`: the vector unit's read ports, clocked by `operand_domain`, which also has to run while `read` asks for
      A or B with `core.operand_sources`; always served, never in contention.
    - `out_write`: the result that the drain path writes to OUT in this cycle (for observers).
    - `array`: see `ArrayForm`; by default for Amaranth's simulator.
    - `busy`: a GEMM is in the unit. `reading`: this cycle belongs to a window. `draining`: the drain path, which is in
      `drain_domain`, needs its clock.
    - `corrected`, `lost` (chips with `ecc`): of each of `MEMORIES`, see `hw.wiring.ecc`.
    """

    issue: stream.Interface
    retire: data.View
    now: Signal
    write: stream.Interface
    read: stream.Interface
    read_data: Signal
    operands: OperandPort  # with a vector unit only
    out_write: data.View
    fault: data.View
    busy: Signal
    reading: Signal
    draining: Signal
    corrected: Signal  # with `ecc` only, like `lost`
    lost: Signal

    def __init__(
        self,
        config: ChipConfig,
        array: ArrayForm = ArrayForm.SUBMODULES,
        operand_domain: str = "sync",
        drain_domain: str = "sync",
    ) -> None:
        self._config, self._array = config, array
        self._operand_domain, self._drain_domain = operand_domain, drain_domain
        super().__init__(
            {
                "issue": In(stream.Signature(GEMM_LAYOUT)),
                "retire": Out(RETIRE_LAYOUT),
                "now": In(32),
                "write": In(word_write(config)),
                "read": In(word_read()),
                "read_data": Out(config.coded_bits),
                "out_write": Out(write_layout(config.core.out_words, config.word_bits)),
                "fault": Out(FAULT_LAYOUT),
                "busy": Out(1),
                "reading": Out(1),
                "draining": Out(1),
            }
            | ({"operands": In(OperandPorts(config))} if config.core.has_vector else {})
            | error_ports(config, len(MEMORIES))
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.reader = reader = OperandReader(config)
        m.submodules.array = array = FedArray(config, self._array)
        drain = Drain(config)
        m.submodules.drain = in_domain(drain, self._drain_domain)
        memories = self._memories(m)
        a_read = memories.a.read_port()
        b_read = memories.b.read_port()
        acc_read = memories.acc.read_port()
        out_read = memories.out.read_port()

        wiring.connect(m, wiring.flipped(self.issue), reader.issue)
        m.d.comb += [
            reader.now.eq(self.now),
            drain.now.eq(self.now),
            self.retire.eq(drain.retire),
            self.fault.eq(Mux(drain.fault.valid, drain.fault, reader.fault)),
            self.reading.eq(reader.step.active),
        ]
        last = self._feed(m, reader, array, a_read, b_read)
        self._drain(m, reader, array, drain, last)
        self._write(m, memories, drain)
        m.d.comb += self.out_write.eq(drain.out_write)
        shared = self._serve_operands(m, memories) if config.core.has_vector else None
        self._read(m, _PerMemory(a_read, b_read, acc_read, out_read), shared, reader, drain)
        return m

    def _memories(self, m: Module) -> _PerMemory[Words]:
        """A, B, ACC and OUT."""
        core, bits, ecc = self._config.core, self._config.word_bits, self._config.ecc
        m.submodules.a_mem = a_mem = word_memory(bits, core.a_words, ecc)
        m.submodules.b_mem = b_mem = word_memory(bits, core.b_words, ecc)
        m.submodules.acc_mem = acc_mem = word_memory(4 * bits, core.acc_words, ecc, bits)
        m.submodules.out_mem = out_mem = word_memory(bits, core.out_words, ecc)
        show_errors(m, self, a_mem, b_mem, acc_mem, out_mem)
        return _PerMemory(a_mem, b_mem, acc_mem, out_mem)

    def _feed(self, m: Module, reader: OperandReader, array: FedArray, a_read: WordRead, b_read: WordRead) -> Signal:
        """Connects the readers to the array. Returns the last cycles of folds: element i is set i cycles after the
        fold's last operand address.

        Latency: with a window's first address in cycle T the accumulator in the corner of the array takes its first
        product at the end of cycle T + 3. It has the operands in that cycle, or in the one before if products are
        registered.
        """
        config, step = self._config, reader.step
        active, first, last = (
            self._delay(m, step[field], 3 + config.cols, field) for field in ("active", "fold_first", "fold_last")
        )
        m.d.sync += [array.window.eq(step.window_first), array.a_zero.eq(step.a_zero)]
        if config.core.int4:
            m.d.sync += [array.int4.eq(step.int4), array.high.eq(step.high), array.scales.eq(step.scales)]
        with m.If(step.active):
            m.d.sync += array.phase.eq(step.phase)
        m.d.comb += [array.active.eq(active[1]), array.a_word.eq(a_read.data), array.b_word.eq(b_read.data)]
        operands = active[2 if config.product_register else 3]
        m.d.comb += [array.valid.eq(operands), array.first.eq(first[3]), array.done.eq(last[3])]
        return last

    def _drain(self, m: Module, reader: OperandReader, array: FedArray, drain: Drain, last: Signal) -> None:
        """Connects the array to the drain path.

        Latency: the last column of row 0 can be read cols + 4 cycles after the last address.
        """
        m.d.comb += [
            drain.fold.eq(reader.fold),
            drain.fold_valid.eq(reader.step.fold_last),
            drain.begin.eq(last[2 + self._config.cols]),
            array.row.eq(drain.row),
        ]
        m.d.comb += [drain.sums[index].eq(value) for index, value in enumerate(array.result)]
        m.d.comb += [
            self.busy.eq(reader.busy | last.any() | drain.busy),
            self.draining.eq(drain.fold_valid | drain.begin | drain.busy),
        ]

    def _write(self, m: Module, memories: _PerMemory[Words], drain: Drain) -> None:
        """The write ports, at the end of the same cycle: the drain path takes precedence over `write`."""
        a_write, b_write, out_write = memories.a.write_port(), memories.b.write_port(), memories.out.write_port()
        code = Code(self._config.word_bits, self._config.ecc)
        acc_write = memories.acc.write_port(granularity=code.width)
        word, valid = self.write.payload, self.write.valid
        offset = word.offset
        with m.Switch(word.region):
            with m.Case(Region.ACC):
                m.d.comb += self.write.ready.eq(~drain.acc_write.en)
            with m.Case(Region.OUT):
                m.d.comb += self.write.ready.eq(~drain.out_write.en)
            with m.Default():
                m.d.comb += self.write.ready.eq(1)
        for port, region in ((a_write, Region.MAIN), (b_write, Region.B)):
            m.d.comb += [
                port.addr.eq(offset),
                port.data.eq(word.data),
                port.en.eq(valid & (word.region == region)),
            ]
        with m.If(drain.acc_write.en):
            m.d.comb += [
                acc_write.addr.eq(drain.acc_write.addr),
                acc_write.data.eq(code.encode_all(drain.acc_write.data)),
            ]
            m.d.comb += acc_write.en.eq(0b1111)
        with m.Else():
            m.d.comb += [acc_write.addr.eq(offset >> 2), acc_write.data.eq(word.data.replicate(4))]
            with m.If(valid & (word.region == Region.ACC)):
                m.d.comb += acc_write.en.eq(1 << offset[:2])
        with m.If(drain.out_write.en):
            m.d.comb += [out_write.addr.eq(drain.out_write.addr), out_write.data.eq(code.encode(drain.out_write.data))]
        with m.Else():
            m.d.comb += [out_write.addr.eq(offset), out_write.data.eq(word.data)]
        m.d.comb += out_write.en.eq(drain.out_write.en | (valid & (word.region == Region.OUT)))

    def _serve_operands(self, m: Module, memories: _PerMemory[Words]) -> _PerMemory[WordRead]:
        """The vector unit's reads, on separate ports, which are returned. Latency: one cycle."""
        ports: dict[str, WordRead] = {}
        for name, memory in memories._asdict().items():
            wanted, port = getattr(self.operands, name), memory.read_port(domain=self._operand_domain)
            ports[name] = port
            if not self._config.core.operand_sources or name in ("acc", "out"):  # the others in `_read`
                m.d.comb += [port.en.eq(wanted.en), port.addr.eq(wanted.addr)]
            m.d.comb += getattr(self.operands, f"{name}_data").eq(port.data)
        return _PerMemory(**ports)

    def _read(
        self,
        m: Module,
        ports: _PerMemory[WordRead],
        shared: _PerMemory[WordRead] | None,
        reader: OperandReader,
        drain: Drain,
    ) -> None:
        """The other read ports: array and drain path take precedence over `read`, and where it reads A and B through
        the ports of the vector unit (`shared`), that does. Latency: one cycle."""
        request = self.read.payload
        a_owner, b_owner = reader.a_read, reader.b_read
        a_busy, b_busy = a_owner.taken, b_owner.taken
        if shared is not None and self._config.core.operand_sources:
            for port, owner in ((ports.a, a_owner), (ports.b, b_owner)):
                m.d.comb += [port.en.eq(owner.en), port.addr.eq(owner.addr)]
            ports = ports._replace(a=shared.a, b=shared.b)
            a_owner, b_owner = self.operands.a, self.operands.b
            a_busy = b_busy = self.operands.walking  # a word that the vector unit has read stays until its next read
        m.d.comb += drain.acc_data.eq(ports.acc.data)
        for port, owner, busy, region, shift in (
            (ports.a, a_owner, a_busy, Region.MAIN, 0),
            (ports.b, b_owner, b_busy, Region.B, 0),
            (ports.acc, drain.acc_read, drain.acc_read.en, Region.ACC, 2),
        ):
            mine = Signal(name=f"read_{region.name.lower()}")
            m.d.comb += [
                mine.eq(self.read.valid & (request.region == region)),
                port.en.eq(Mux(busy, owner.en, mine)),
                port.addr.eq(Mux(busy, owner.addr, request.offset >> shift)),
            ]
        m.d.comb += [
            ports.out.en.eq(self.read.valid & (request.region == Region.OUT)),
            ports.out.addr.eq(request.offset),
        ]
        with m.Switch(request.region):
            for region, busy in ((Region.MAIN, a_busy), (Region.B, b_busy), (Region.ACC, drain.acc_read.en)):
                with m.Case(region):
                    m.d.comb += self.read.ready.eq(~busy)
            with m.Default():
                m.d.comb += self.read.ready.eq(1)
        region = Signal(2)
        part = Signal(2)
        with m.If(self.read.valid):
            m.d.sync += [region.eq(request.region), part.eq(request.offset)]
        with m.Switch(region):
            with m.Case(Region.MAIN):
                m.d.comb += self.read_data.eq(coded_data(ports.a))
            with m.Case(Region.B):
                m.d.comb += self.read_data.eq(coded_data(ports.b))
            with m.Case(Region.ACC):
                m.d.comb += self.read_data.eq(coded_data(ports.acc).word_select(part, self._config.coded_bits))
            with m.Case(Region.OUT):
                m.d.comb += self.read_data.eq(coded_data(ports.out))

    @staticmethod
    def _delay(m: Module, flag: Signal, cycles: int, name: str) -> Signal:
        """Element i is `flag` i cycles ago."""
        chain, later = Signal(cycles + 1, name=f"{name}_ago"), Signal(cycles, name=f"{name}_later")
        m.d.comb += chain.eq(Cat(flag, later))
        m.d.sync += later.eq(chain)
        return chain
