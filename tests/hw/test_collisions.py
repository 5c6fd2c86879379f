"""Words that are read while they are written: no unit uses them, so synthesis may leave them undefined."""

from __future__ import annotations

import re
from typing import Any

import pytest
from amaranth.hdl import Cat, Elaboratable, Module, Signal
from amaranth.lib.memory import Memory

from meshloom.hw.assembly.verilog import verilog
from meshloom.hw.control import frontend
from meshloom.hw.core import matrix, vector
from meshloom.hw.memory import bank
from meshloom.hw.spec.config import load
from meshloom.hw.spec.isa import ACCEPTS
from meshloom.hw.wiring import ecc

from ..tiers import slow_but
from . import test_frontend, test_matrix, test_vector


class _Shown:
    """A read port whose bits, if they collided with a write of them, are wrong."""

    def __init__(self, port: Any, domain: str, number: int) -> None:
        self.port, self.addr, self.en, self.domain = port, port.addr, port.en, domain
        self.data = Signal.like(port.data, name=f"shown_{number}")


class CollidingMemory(Elaboratable):
    """A memory with ports as `Memory` has them."""

    def __init__(self, memory: Memory) -> None:
        self.memory, self._reads, self._writes = memory, list[_Shown](), list[Any]()

    def write_port(self, **options: Any) -> Any:
        self._writes.append(self.memory.write_port(**options))
        return self._writes[-1]

    def read_port(self, *, domain: str = "sync") -> Any:
        self._reads.append(_Shown(self.memory.read_port(domain=domain), domain, len(self._reads)))
        return self._reads[-1]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = self.memory
        for number, shown in enumerate(self._reads):
            bits = len(shown.data)
            collision, collided = (Signal(bits, name=f"{name}_{number}") for name in ("collision", "collided"))
            for write in self._writes:
                written = Cat(enable.replicate(bits // len(write.en)) for enable in write.en)
                with m.If(write.addr == shown.addr):
                    m.d.comb += collision.eq(written)
            with m.If(shown.en):
                m.d[shown.domain] += collided.eq(collision)
            m.d.comb += shown.data.eq(shown.port.data ^ collided)
        return m


@pytest.fixture
def collisions(monkeypatch: pytest.MonkeyPatch) -> list[CollidingMemory]:
    """Puts such memories into cores, scratchpads and rings."""
    memories: list[CollidingMemory] = []

    def memory(bits: int, depth: int, coded: bool, part: int | None = None) -> Any:
        plain = ecc.word_memory(bits, depth, coded, part)
        if coded:
            return plain
        assert isinstance(plain, Memory)
        memories.append(CollidingMemory(plain))
        return memories[-1]

    for module in (matrix, vector, bank, frontend):
        monkeypatch.setattr(module, "word_memory", memory)
    return memories


@pytest.mark.slow
@pytest.mark.parametrize("name", test_matrix.CHIPS)
def test_the_matrix_unit_uses_none(name: str, collisions: list[CollidingMemory]) -> None:
    test_matrix.test_random_sequences(name, 0)
    assert len(collisions) >= 4


@pytest.mark.slow
def test_nor_do_the_shortest_gemms(collisions: list[CollidingMemory]) -> None:
    test_matrix.test_shortest_gemms_back_to_back(False)
    test_matrix.test_memories_are_usable_while_gemms_run(True)
    assert collisions


@pytest.mark.parametrize("name", slow_but(test_vector.CHIPS, "4"))
def test_the_vector_unit_uses_none(name: str, collisions: list[CollidingMemory]) -> None:
    test_vector.test_random_sequences(name)
    assert collisions


@pytest.mark.slow
def test_nor_do_both_at_once(collisions: list[CollidingMemory]) -> None:
    test_vector.test_gemms_and_vecs_at_once_do_not_disturb_each_other()
    assert collisions


@pytest.mark.parametrize("lanes", [4, 32])
def test_rings_use_none(lanes: int, collisions: list[CollidingMemory]) -> None:
    for unit in ACCEPTS:
        test_frontend.test_long_programs_come_in_order_through_the_ring(lanes, unit)
    test_frontend.test_a_pushed_instruction_can_be_loaded_in_the_next_cycle()
    test_frontend.test_a_controller_with_a_code_channel_asks_for_all_of_its_code(lanes)
    test_frontend.test_a_controller_asks_for_the_first_ring_and_is_brought_the_rest(lanes)
    assert len(collisions) == len(ACCEPTS) + 3


@pytest.mark.slow
def test_verilog_says_so_of_words_and_rings_and_of_nothing_else() -> None:
    text = verilog(load("tiny"))
    attributes = r"""  \(\* no_rw_check = 32'd1 \*\)\n  \(\* rw_addr_collision = "no" \*\)\n  reg \[\d+:0\] (\w+) """
    memories = re.findall(attributes, text)
    assert set(memories) >= {"a_mem", "b_mem", "acc_mem", "out_mem", "ring_memory"}
    assert text.count("(* ") == 2 * len(memories)
