"""Synthesis for an ECP5 by Yosys, with two things of arrays that it does not see: an accumulator's first product
switches its old sum off in the carry chain's own LUTs, and products beyond the FPGA's multipliers are rows of sums.
An FPGA whose LUTs would be full has instructions in its block RAM."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

from meshloom.hw.spec.config import ChipConfig

from ..builder import BuildError
from ..synthesis import yosys
from .boards import Room
from .carries import without_feeds
from .layout import LUTS

#: What is mapped by hand.
SUMS = Path(__file__).with_name("ecp5_sums.v")
#: Bits of an ECP5's multiplier, for each operand; narrower operands or products are not worth one (Yosys' bounds).
_BITS, _LEAST_OPERAND, _LEAST_PRODUCT = 18, 2, 9
#: Picoseconds that a net takes, for the choice of LUTs: nextpnr's take this long. Yosys' 300 give more levels.
_WIRE = 1000
#: What ABC says, and goes on, if its result differs from what it was given.
_DIFFERENT = "NOT EQUIVALENT"
#: Of a cycle, what ABC's estimate may take: it has nets of one length, and no clock's way.
_SHARE = 0.5
#: Of an FPGA's LUTs, what may be taken before others do without some: packing adds to them.
_FULL = 0.85
#: Bits that a block RAM reads at once; words that a memory may have which Yosys makes of LUTs otherwise.
_BLOCK, _BLOCK_WIDTH, _SMALL = "DP16KD", 36, 16
#: Operands and product of a processing element.
_ELEMENT = (8, 8, 16)


def synthesise(
    chip: ChipConfig, read: str, top: str, netlist: str, folder: Path, room: Room | None = None, clock: float = 0.0
) -> str:
    """Writes the netlist of what the script `read` reads in `folder`, as JSON: cells of an ECP5 under the module `top`.
    Returns what Yosys printed. Raises BuildError.

    `room`: of the FPGA, for which products of arrays do without multipliers, and, if its LUTs are nearly all taken,
    instructions lie in block RAM, which is slower. `clock`: in MHz, that is enough; 0: as fast as can be.
    """
    from meshloom.hw.core.array import sum_bits

    mapper = _Mapper(chip, top, netlist, folder)
    bits = sum_bits(chip)
    (folder / "pattern.v").write_text(_pattern(bits), encoding="utf-8")
    (folder / "sums.v").write_text(SUMS.read_text(encoding="utf-8") + _accumulator(bits), encoding="utf-8")
    printed = mapper.run(
        f"{read}; synth_ecp5 -top {top} -run begin:coarse; proc; flatten; opt; wreduce; opt_clean; "
        f"extract -map pattern.v; select {top}; write_rtlil -selected flat.il; "
        "select t:$mul m:*; write_json -selected contents.json"
    )
    contents = json.loads((folder / "contents.json").read_text(encoding="utf-8"))["modules"].get(top, {})
    rows = _without_multiplier(contents.get("cells", {}), room.multipliers if room else None)
    steps = ["read_rtlil flat.il"]
    if rows:
        steps += [f"select -set rows {' '.join(f'c:{name}' for name in rows)}", "techmap -map sums.v @rows"]
    steps += ["techmap -map sums.v t:sum_from_first", f"synth_ecp5 -top {top} -run begin:map_luts"]
    target = f" -D {_SHARE * 1e6 / clock:.0f}" if clock else ""
    steps += ["techmap -map +/lattice/latches_map.v", f"abc9 -W {_WIRE}{target}", "clean"]
    steps += [f"synth_ecp5 -top {top} -run map_cells:", f"write_json {netlist}"]
    text, cells = mapper.map(steps)
    printed += text
    if room and sum(LUTS.get(kind, 0) * number for kind, number in cells.items()) > _FULL * room.luts:
        spare = room.block_rams - cells[_BLOCK]
        moved = _in_block_ram(contents.get("memories", {}), spare)
        if moved:
            steps.insert(1, f'setattr -set ram_style "block" {" ".join(f"m:{name}" for name in moved)}')
            printed += mapper.map(steps)[0]
    return printed


@dataclass(frozen=True)
class _Mapper:
    """Yosys in a folder, for one netlist."""

    chip: ChipConfig
    top: str
    netlist: str
    folder: Path

    def run(self, script: str) -> str:
        """What Yosys printed. Raises BuildError."""
        return yosys(script, self.folder, f"chip {self.chip.name} for an FPGA")

    def map(self, steps: Sequence[str]) -> tuple[str, Counter[str]]:
        """What Yosys printed, and how many cells of each kind the netlist has."""
        (self.folder / "map.ys").write_text("\n".join(steps), encoding="utf-8")
        printed = self.run("script map.ys")
        if _DIFFERENT in printed:
            raise BuildError(
                f"chip {self.chip.name} for an FPGA: ABC says that its LUTs do not compute what they were made of; "
                "report this chip"
            )
        path = self.folder / self.netlist
        design = json.loads(path.read_text(encoding="utf-8"))
        module = design["modules"][self.top]
        without_feeds(module)
        path.write_text(json.dumps(design), encoding="utf-8")
        return printed, Counter(cell["type"] for cell in module["cells"].values())


def _pattern(bits: int) -> str:
    """What an accumulator is in the chip's Verilog."""
    return dedent(f"""\
        module sum_from_first(input signed [{bits - 1}:0] total, input signed [15:0] product, input first,
                              output signed [{bits - 1}:0] sum);
          wire signed [{bits - 1}:0] start = first ? {bits}'sd0 : total;
          assign sum = start + product;
        endmodule
        """)


def _accumulator(bits: int) -> str:
    """What it becomes."""
    return dedent(f"""\
        module sum_from_first(input [{bits - 1}:0] total, input [15:0] product, input first, output [{bits - 1}:0] sum);
          switched_sum #(.WIDTH({bits}), .INIT(16'hA6AA)) chain
            (.x({{{{{bits - 16}{{product[15]}}}}, product}}), .y(total), .c(first), .carry_in(1'b0), .sum(sum));
        endmodule
        """)


def _without_multiplier(cells: dict[str, Any], most: int | None) -> list[str]:
    """The names of products that get no multiplier, spread evenly over the arrays."""
    widths = {
        name: tuple(int(cell["parameters"][f"{port}_WIDTH"], 2) for port in "ABY")
        for name, cell in cells.items()
        if cell["type"] == "$mul"
    }
    need = sum(
        -(-a // _BITS) * -(-b // _BITS)
        for a, b, product in widths.values()
        if min(a, b) >= _LEAST_OPERAND and product >= _LEAST_PRODUCT
    )
    elements = [name for name, each in widths.items() if each == _ELEMENT]
    over = 0 if most is None else min(len(elements), max(0, need - most))
    return [elements[index * len(elements) // over] for index in range(over)]


def _in_block_ram(memories: dict[str, Any], spare: int) -> list[str]:
    """The names of small memories that `spare` block RAMs hold, of those that need nothing around one."""
    moved: list[str] = []
    for name, memory in memories.items():
        need = -(-memory["width"] // _BLOCK_WIDTH)
        fits = memory["size"] <= _SMALL and need <= spare
        if fits and memory["width"] >= _BLOCK_WIDTH and int(memory["attributes"].get("no_rw_check", "0"), 2):
            moved.append(name)
            spare -= need
    return moved
