"""Synthesis for an ECP5 by Yosys, with two things of arrays that it does not see: an accumulator's first product
switches its old sum off in the carry chain's own LUTs, and products beyond the FPGA's multipliers are rows of sums."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

from meshloom.hw.spec.config import ChipConfig

from ..builder import BuildError
from ..synthesis import yosys

#: What is mapped by hand.
SUMS = Path(__file__).with_name("ecp5_sums.v")
#: Bits of an ECP5's multiplier, for each operand; narrower operands or products are not worth one (Yosys' bounds).
_BITS, _LEAST_OPERAND, _LEAST_PRODUCT = 18, 2, 9
#: Picoseconds that a net takes, for the choice of LUTs: nextpnr's take this long. Yosys' 300 give more levels.
_WIRE = 1000
#: What ABC says, and goes on, if its result differs from what it was given.
_DIFFERENT = "NOT EQUIVALENT"
#: A port without a net, in Yosys' JSON.
_NO_NET = "x"
#: Operands and product of a processing element.
_ELEMENT = (8, 8, 16)


def synthesise(
    chip: ChipConfig, read: str, top: str, netlist: str, folder: Path, multipliers: int | None = None
) -> str:
    """Writes the netlist of what the script `read` reads in `folder`, as JSON: cells of an ECP5 under the module `top`,
    with at most `multipliers` as far as products of an array can do without. Returns what Yosys printed. Raises
    BuildError."""
    from meshloom.hw.core.array import sum_bits

    what = f"chip {chip.name} for an FPGA"
    bits = sum_bits(chip)
    (folder / "pattern.v").write_text(_pattern(bits), encoding="utf-8")
    (folder / "sums.v").write_text(SUMS.read_text(encoding="utf-8") + _accumulator(bits), encoding="utf-8")
    printed = yosys(
        f"{read}; synth_ecp5 -top {top} -run begin:coarse; proc; flatten; opt; wreduce; opt_clean; "
        f"extract -map pattern.v; select {top}; write_rtlil -selected flat.il; "
        "select t:$mul; write_json -selected products.json",
        folder,
        what,
    )
    products = json.loads((folder / "products.json").read_text(encoding="utf-8"))["modules"]
    rows = _without_multiplier(products[top]["cells"] if top in products else {}, multipliers)
    steps = ["read_rtlil flat.il"]
    if rows:
        steps += [f"select -set rows {' '.join(f'c:{name}' for name in rows)}", "techmap -map sums.v @rows"]
    steps += ["techmap -map sums.v t:sum_from_first", f"synth_ecp5 -top {top} -run begin:map_luts"]
    steps += ["techmap -map +/lattice/latches_map.v", f"abc9 -W {_WIRE}", "clean"]
    steps += [f"synth_ecp5 -top {top} -run map_cells:", f"write_json {netlist}"]
    (folder / "map.ys").write_text("\n".join(steps), encoding="utf-8")
    printed += yosys("script map.ys", folder, what)
    if _DIFFERENT in printed:
        raise BuildError(f"{what}: ABC says that its LUTs do not compute what they were made of; report this chip")
    path = folder / netlist
    design = json.loads(path.read_text(encoding="utf-8"))
    _end_chains(design["modules"][top])
    path.write_text(json.dumps(design), encoding="utf-8")
    return printed


def _end_chains(module: dict[str, Any]) -> None:
    """Takes away the nets of carries that nobody reads: nextpnr leads a carry that has a net out of its chain."""
    cells = module["cells"]
    read = {bit for port in module["ports"].values() for bit in port["bits"]}
    for cell in cells.values():
        inputs = (bits for port, bits in cell["connections"].items() if cell["port_directions"][port] != "output")
        read.update(*inputs)
    for cell in cells.values():
        wires = cell["connections"]
        if cell["type"] == "CCU2C" and not read.intersection(wires.get("COUT", ())):
            wires["COUT"] = [_NO_NET]


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
