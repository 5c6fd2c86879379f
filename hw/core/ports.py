"""Ports of a core's memories."""

from __future__ import annotations

from typing import Protocol

from amaranth.hdl import Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import ChipConfig
from ..wiring.signatures import PortObject


def address_bits(words: int) -> int:
    """Width of an address of a memory of `words` words."""
    return max(1, (words - 1).bit_length())


def read_layout(words: int) -> data.StructLayout:
    """A read of a memory of `words` words."""
    return data.StructLayout({"en": 1, "addr": address_bits(words)})


def write_layout(words: int, bits: int) -> data.StructLayout:
    """A write to a memory of `words` words of `bits` bits."""
    return data.StructLayout({"en": 1, "addr": address_bits(words), "data": bits})


class OperandPort(PortObject, Protocol):
    """A port with the signature `OperandPorts`."""

    a: data.View
    a_data: Signal
    b: data.View
    b_data: Signal
    out: data.View
    out_data: Signal
    acc: data.View
    acc_data: Signal
    walking: Signal


class OperandPorts(wiring.Signature):
    """The vector unit's read ports on the matrix unit's memories, seen from the vector unit.

    `<memory>` = {en, addr}; the word is on `<memory>_data` from the next cycle on, until the next read. `walking`
    (chips with `core.operand_sources`): a VEC walks over its operands; in other cycles A and B are the mover's.
    """

    def __init__(self, config: ChipConfig) -> None:
        core, bits = config.core, config.word_bits
        sizes = {
            "a": (core.a_words, bits),
            "b": (core.b_words, bits),
            "out": (core.out_words, bits),
            "acc": (core.acc_words, 4 * bits),
        }
        members = {name: Out(read_layout(words)) for name, (words, _) in sizes.items()}
        if core.operand_sources:
            members["walking"] = Out(1)
        super().__init__(members | {f"{name}_data": In(width) for name, (_, width) in sizes.items()})
