"""Words as text: for `$readmemh`, and as C."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.registers import CONTROL, FAULT_WHO, ID_VALUE, STATUS, Register

from ...results.export import ExportManifest, WordRange
from .contents import Words

#: Registers that a run uses, and the bits of STATUS.
REGISTERS = (
    Register.ID,
    Register.CONFIG,
    Register.CONTROL,
    Register.STATUS,
    Register.PROGRAM_TILE,
    Register.PROGRAM_ADDR,
    Register.PROGRAM_COUNT,
    Register.WATCHDOG,
    Register.CYCLES,
    Register.FAULT_WHO,
    Register.FAULT_VALUE,
    Register.STALL_LIMIT,
)
STATUS_BITS = ("running", "done", "fault", "ready")
#: What is written to CONTROL.
START = CONTROL.pack({"start": 1})
_BYTES_A_LINE = 16


def masks() -> dict[str, int]:
    """Masks of the bits of STATUS."""
    return {name: STATUS.pack({name: 1}) for name in STATUS_BITS}


def readmemh(ranges: Iterable[Words]) -> str:
    """Words as `$readmemh` reads them, a word a line, the highest lane first."""
    lines: list[str] = []
    for each in ranges:
        lines.append(f"@{each.address:x}")
        lines += [bytes(word).hex() for word in each.words[:, ::-1]]
    return "\n".join(lines) + "\n"


def header(manifest: ExportManifest, ranges: int, outputs: int) -> str:
    """The C header: registers, numbers of the run, and the tables of `source`."""
    registers = "\n".join(
        f"#define MESHLOOM_{name} {address:#04x}u" for name, address in sorted(manifest.registers.items(), key=_second)
    )
    bits = "\n".join(f"#define MESHLOOM_STATUS_{name.upper()} {mask:#x}u" for name, mask in manifest.status.items())
    boot = "\n".join(f"#define MESHLOOM_RUN_{name} {value}u" for name, value in manifest.boot.model_dump().items())
    at, width = FAULT_WHO.offsets["tile"]
    return f"""\
/* {_comment(manifest.workload)} on chip {manifest.chip}, scheduled by {_comment(manifest.scheduler)}; from Meshloom
 * {manifest.meshloom}. The registers are described in docs/isa.md, this folder in docs/export.md. */
#ifndef MESHLOOM_IMAGE_H
#define MESHLOOM_IMAGE_H

#include <stdint.h>

/* Byte addresses of registers, and bits of STATUS. */
{registers}
{bits}
/* What CONTROL takes to reset the chip. */
#define MESHLOOM_CONTROL_RESET {CONTROL.pack({"reset": 1}):#x}u
/* The tile in FAULT_WHO. */
#define MESHLOOM_FAULT_TILE(who) (((who) >> {at}) & {(1 << width) - 1:#x}u)

/* What ID and CONFIG read on this chip. */
#define MESHLOOM_CHIP_ID {ID_VALUE:#x}u
#define MESHLOOM_CHIP_CONFIG {manifest.config:#x}u
/* What is written before CONTROL, and to it. */
{boot}
#define MESHLOOM_RUN_CONTROL {manifest.start}u
/* What the model predicts for DRAM as the chip's description has it. */
#define MESHLOOM_RUN_CYCLES {manifest.cycles}u

/* Bytes of a DRAM channel from byte `address` on. `compared`: bits that count; null: all do. */
struct meshloom_range {{
    uint32_t channel;
    uint32_t address;
    uint32_t size;
    const uint8_t *bytes;
    const uint8_t *compared;
}};

/* What is in DRAM before the run, and what must be there after it. */
#define MESHLOOM_LOADS {ranges}u
#define MESHLOOM_OUTPUTS {outputs}u
extern const struct meshloom_range meshloom_loads[MESHLOOM_LOADS];
extern const struct meshloom_range meshloom_outputs[MESHLOOM_OUTPUTS];

#endif
"""


def _second(pair: tuple[str, int]) -> int:
    return pair[1]


def _comment(text: str) -> str:
    """Text that ends no comment of C."""
    return "".join(letter if letter.isprintable() else " " for letter in text).replace("*/", "* /")


def source(
    lanes: int,
    loads: Iterable[tuple[WordRange, NDArray[np.uint8]]],
    outputs: Iterable[tuple[WordRange, NDArray[np.uint8], NDArray[np.uint8] | None]],
) -> str:
    """The C source with the bytes: of each range its words, and for an output the bits that count."""
    parts = ['#include "meshloom_image.h"\n']
    entries: dict[str, list[str]] = {"loads": [], "outputs": []}
    rows = [("loads", place, words, None) for place, words in loads]
    rows += [("outputs", place, words, compared) for place, words, compared in outputs]
    for kind, place, words, compared in rows:
        name = f"{kind}_{len(entries[kind])}"
        parts.append(_array(name, words))
        if compared is not None:
            parts.append(_array(f"{name}_compared", compared))
        entries[kind].append(
            f"    {{{place.channel}u, {place.address * lanes:#x}u, {words.size}u, {name}, "
            f"{'0' if compared is None else f'{name}_compared'}}},"
        )
    for kind, lines in entries.items():
        body = "\n".join(lines)
        parts.append(f"const struct meshloom_range meshloom_{kind}[MESHLOOM_{kind.upper()}] = {{\n{body}\n}};\n")
    return "\n".join(parts)


def _array(name: str, words: NDArray[np.uint8]) -> str:
    lines = "\n".join(f"    {line}" for line in _lines(words.reshape(-1)))
    return f"static const uint8_t {name}[] = {{\n{lines}\n}};\n"


def _lines(numbers: NDArray[np.uint8]) -> Iterator[str]:
    for at in range(0, len(numbers), _BYTES_A_LINE):
        yield " ".join(f"{number}," for number in numbers[at : at + _BYTES_A_LINE].tolist())
