"""The host's registers as SystemRDL 2.0 (Accellera), from which other tools make headers, pages and IP-XACT."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..spec.config import ChipConfig
from ..spec.isa import Field
from ..spec.registers import LAYOUTS, MEANINGS, TAKING, WIDTH, WIDTHS, Register, registers_of

#: Fields of IRQ_STATUS that writing 1 clears.
_ACKNOWLEDGED = ("done", "fault")


def system_rdl(config: ChipConfig) -> str:
    """The address map of the registers that a chip has, as its host sees them. Ends with a newline."""
    lines = [
        f"addrmap chip_{config.name} {{",
        f"    name = {_text(f'host registers of chip {config.name}')};",
        f"    desc = {_text(f'AXI4-Lite; digest of the chip: {config.digest}')};",
        f"    default regwidth = {WIDTH};",
        f"    default accesswidth = {WIDTH};",
    ]
    for register in registers_of(config):
        lines += _register(register)
    return "\n".join([*lines, "};", ""])


def _register(register: Register) -> Iterator[str]:
    use, meaning = MEANINGS[register]
    layout = LAYOUTS.get(register)
    fields = layout.fields if layout else (Field("value", WIDTHS.get(register, WIDTH), meaning),)
    yield "    reg {"
    yield f"        desc = {_text(meaning)};"
    at = 0
    for field in fields:
        if field.name != "zero":
            properties = f"sw = {use}; {_effects(register, field)}desc = {_text(field.doc)};"
            yield f"        field {{ {properties} }} {field.name}[{at + field.width - 1}:{at}];"
        at += field.width
    external = "external " if any(_effects(register, field).endswith("user; ") for field in fields) else ""
    yield f"    }} {external}{register.name} @ {int(register):#x};"


def _effects(register: Register, field: Field) -> str:
    """What an access does besides."""
    if register in TAKING:
        return "onread = ruser; "
    if register is Register.IRQ_STATUS and field.name in _ACKNOWLEDGED:
        return "onwrite = woclr; "
    if register in (Register.DONE, Register.COUNT):
        return "onwrite = wuser; "
    return ""


def _text(text: str) -> str:
    """A string of SystemRDL."""
    return json.dumps(text.replace("`", ""), ensure_ascii=True)
