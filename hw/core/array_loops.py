"""The systolic array as Verilog whose processing elements are loops over memories, for compiled simulators.

A simulator that compiles the netlist of an array makes a block of straight-line code for each instance, tens of
kilobytes for 16 x 16 elements: more than a first-level cache holds, and vectorised well or badly as the compiler's
heuristics for straight-line code happen to do. Loops over memories are compiled once, to a few hundred bytes, and every
compiler vectorises them. `SystolicArray` remains the definition: tests compare the two cycle by cycle, and the second
simulator runs the netlist.
"""

from __future__ import annotations

from ..config import ChipConfig

#: Verilator unrolls loops of known length unless it is told not to.
_LOOP = "/* verilator unroll_disable */ for"


def _size(count: int) -> int:
    """Size of a memory for `count` elements: a power of two, so that an index needs no check."""
    return 1 << (count - 1).bit_length()


def module_name(config: ChipConfig) -> str:
    """The name of a chip's module."""
    return f"array_loops_{config.rows}x{config.cols}"


def verilog(config: ChipConfig) -> str:
    """A module with the ports of `SystolicArray` (`a__<m>`, `b__<n>`, `result__<n>`; no `row` if there is only one)
    and with its contract, latency and throughput.

    The elements' state lies in memories, element (m, n) at m * cols + n: `west`, `north` the operands on their way,
    each at the element that multiplies it next; `sums`; and for each column `finished_<n>`, the sums that are read, by
    row. Everything but these is assigned at once and read by this process alone, in an order in which each value is
    used before it is replaced.
    """
    rows, cols, registered = config.rows, config.cols, config.product_register
    count, far = rows * cols, rows + cols - 1
    bits = max(1, (rows - 1).bit_length())
    a, b = [f"a__{m}" for m in range(rows)], [f"b__{n}" for n in range(cols)]
    results = [f"result__{n}" for n in range(cols)]
    flags = ["valid", "first", "done"]
    row = ["row"] if rows > 1 else []
    lines = [
        f"module {module_name(config)}({', '.join(['clk', 'rst', *a, *b, *flags, *row, *results])});",
        "  input clk, rst, valid, first, done;",
        f"  input signed [7:0] {', '.join(a + b)};",
        f"  output signed [31:0] {', '.join(results)};",
        *[f"  input [{bits - 1}:0] row;" for _ in row],
        f"  reg [7:0] west [0:{_size(count) - 1}];",
        f"  reg [7:0] north [0:{_size(count) - 1}];",
        f"  reg signed [31:0] sums [0:{_size(count) - 1}];",
        # a memory for each column: several writes to one memory at an edge would have to be queued
        *[f"  reg signed [31:0] finished_{n} [0:{_size(rows) - 1}];" for n in range(cols)],
        # bit d of a chain is the flag at anti-diagonal d
        f"  reg [{far}:1] valid_later, first_later;",
        f"  wire [{far}:0] valid_at = {{valid_later, valid}}, first_at = {{first_later, first}};",
        # a row number for each column, from which it stores a sum in this cycle if its bit is set
        f"  reg [{cols - 1}:0] storing;",
        f"  reg [{bits * cols - 1}:0] from_row;",
        f"  wire next_storing = done | (storing[0] & (from_row[{bits - 1}:0] != {rows - 1}));",
        f"  wire [{bits - 1}:0] next_row = done ? {bits}'d0 : from_row[{bits - 1}:0] + {bits}'d1;",
    ]
    if registered:
        lines.append(f"  reg [15:0] product [0:{_size(count) - 1}];")
    lines += [f"  assign {result} = finished_{n}[{'row' if row else 0}];" for n, result in enumerate(results)]
    lines += [
        # unsigned and set before all else: only then are they locals in C++, and the loops vectorised
        "  reg [31:0] d, e, m, n;",
        "  always @(posedge clk) begin",
        "    d = 0;",
        "    e = 0;",
        "    m = 0;",
        "    n = 0;",
        f"    valid_later <= valid_at[{far - 1}:0];",
        f"    first_later <= first_at[{far - 1}:0];",
        "    storing <= {storing, next_storing};",
        "    if (done | (|storing)) from_row <= {from_row, next_row};",
        "    if (|storing) begin",
        *[
            f"      if (storing[{n}]) finished_{n}[from_row[{n * bits} +: {bits}]] <= "
            f"sums[from_row[{n * bits} +: {bits}] * {cols} + {n}];"
            for n in range(cols)
        ],
        "    end",
        "    if (|valid_at) begin",
        *[f"      west[{m * cols}] = {name};" for m, name in enumerate(a)],
        *[f"      north[{n}] = {name};" for n, name in enumerate(b)],
        # the elements of few diagonals begin anew, so the others are left alone
        f"      if (|first_at[{far - 1}:0]) begin",
        f"        {_LOOP} (d = 0; d < {far}; d = d + 1) if (first_at[d]) begin",
        f"          {_LOOP} (m = d < {cols} ? 0 : d - {cols - 1}; m < {rows} && m <= d; m = m + 1)",
        f"            sums[m * {cols} + d - m] = 0;",
        "        end",
        "      end",
    ]
    # compilers know this form of sign extension, and not that of the simulator
    west, north = (f"(({{24'd0, {name}[e]}} ^ 32'h80) - 32'h80)" for name in ("west", "north"))
    before = "((({16'd0, product[e]} ^ 32'h8000) - 32'h8000))"
    product = before if registered else f"{west} * {north}"
    lines.append(f"      {_LOOP} (e = 0; e < {count}; e = e + 1) sums[e] = sums[e] + {product};")
    if registered:
        lines.append(f"      {_LOOP} (e = 0; e < {count}; e = e + 1) product[e] = {west} * {north};")
    lines += [
        # the first column and row are overwritten by what comes in
        f"      {_LOOP} (e = {count - 1}; e > 0; e = e - 1) west[e] = west[e - 1];",
        f"      {_LOOP} (e = {count - 1}; e >= {cols}; e = e - 1) north[e] = north[e - {cols}];",
        "    end",
        "    if (rst) begin",
        "      valid_later <= 0;",
        "      first_later <= 0;",
        "      storing <= 0;",
        "      from_row <= 0;",
        "    end",
        "  end",
        "endmodule",
    ]
    return "\n".join(lines) + "\n"
