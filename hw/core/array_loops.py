"""The array and its edges as Verilog whose elements and lanes are loops over memories, for compiled simulators.

A simulator that compiles the netlist of an array makes a block of straight-line code for each instance, tens of
kilobytes for 16 x 16 elements: more than a first-level cache holds, and vectorised well or badly as the compiler's
heuristics for straight-line code happen to do. Loops over memories are compiled once, to a few hundred bytes, and every
compiler vectorises them. `FedArray` remains the definition: tests compare the two cycle by cycle, and the second
simulator runs the netlist.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..spec.config import ChipConfig

#: Verilator unrolls loops of known length unless it is told not to.
_LOOP = "/* verilator unroll_disable */ for"


def _size(count: int) -> int:
    """Size of a memory for `count` elements: a power of two, so that an index needs no check."""
    return 1 << (count - 1).bit_length()


def module_name(config: ChipConfig) -> str:
    """The name of a chip's module."""
    return f"array_loops_{config.rows}x{config.cols}_{config.lanes}{'_int4' if config.core.int4 else ''}"


def inputs(config: ChipConfig) -> dict[str, int]:
    """Its inputs besides clock and reset, those of `FedArray`, and their widths; no `row` if there is only one."""
    flags = dict.fromkeys(("a_zero", "window", "active", "valid", "first", "done"), 1)
    flags |= dict.fromkeys(("int4", "high", "scales"), 1) if config.core.int4 else {}
    words = {"a_word": config.word_bits, "b_word": config.word_bits}
    numbers = {"phase": (config.lanes - 1).bit_length(), "row": (config.rows - 1).bit_length()}
    return {name: width for name, width in (words | flags | numbers).items() if width}


def verilog(config: ChipConfig) -> str:
    """A module with the ports of `FedArray` and with its contract, latency and throughput; `result` is the sums of all
    columns, that of column 0 lowest.

    The elements' state lies in memories, element (m, n) at m * cols + n: `west`, `north` the operands on their way,
    each at the element that multiplies it next; `sums`; and for each column `finished_<n>`, the sums that are read, by
    row. That of the edges: `a_held`, `b_held` the words that lanes play, a row of bytes for each lane; `index` the
    byte that each lane plays; `a_played`, `b_played` the operands in front of the array. Everything but these is
    assigned at once and read by this process alone, in an order in which each value is used before it is replaced.
    """
    ports = inputs(config)
    return (
        "\n".join(
            [
                f"module {module_name(config)}(clk, rst, {', '.join(ports)}, result);",
                "  input clk, rst;",
                *(f"  input [{width - 1}:0] {name};" for name, width in ports.items()),
                f"  output [{32 * config.cols - 1}:0] result;",
                *_declarations(config),
                # unsigned and set before all else: only then are they locals in C++, and the loops vectorised
                "  reg [31:0] d, e, m, n;",
                "  always @(posedge clk) begin",
                "    d = 0;",
                "    e = 0;",
                "    m = 0;",
                "    n = 0;",
                "    part = 0;",
                *_stores(config),
                *_elements(config),
                *_lanes(config),
                "    if (rst) begin",
                "      valid_later <= 0;",
                "      first_later <= 0;",
                "      storing <= 0;",
                "      from_row <= 0;",
                "      load_later <= 0;",
                "      played_later <= 0;",
                f"      {_LOOP} (e = 0; e < {_most(config)}; e = e + 1) index[e] = 0;",
                f"      {_LOOP} (m = 0; m < {config.rows}; m = m + 1) a_played[m] = 0;",
                f"      {_LOOP} (n = 0; n < {config.cols}; n = n + 1) b_played[n] = 0;",
                "    end",
                "  end",
                "endmodule",
            ]
        )
        + "\n"
    )


def _most(config: ChipConfig) -> int:
    """Lanes of the longer edge, which are those of the control of both."""
    return max(config.rows, config.cols)


def _bits(config: ChipConfig) -> int:
    """Bits of a row's number."""
    return max(1, (config.rows - 1).bit_length())


def _far(config: ChipConfig) -> int:
    """Anti-diagonals."""
    return config.rows + config.cols - 1


def _declarations(config: ChipConfig) -> Iterator[str]:
    rows, cols, lanes, most, bits, far = (
        config.rows,
        config.cols,
        config.lanes,
        _most(config),
        _bits(config),
        _far(config),
    )
    count = rows * cols
    yield f"  reg [7:0] west [0:{_size(count) - 1}];"
    yield f"  reg [7:0] north [0:{_size(count) - 1}];"
    yield f"  reg signed [31:0] sums [0:{_size(count) - 1}];"
    if config.product_register:
        yield f"  reg [15:0] product [0:{_size(count) - 1}];"
    # a memory for each column: several writes to one memory at an edge would have to be queued
    yield from (f"  reg signed [31:0] finished_{n} [0:{_size(rows) - 1}];" for n in range(cols))
    row = "row" if rows > 1 else "0"
    yield f"  assign result = {{{', '.join(f'finished_{n}[{row}]' for n in reversed(range(cols)))}}};"
    # bit d of a chain is the flag at anti-diagonal d
    yield f"  reg [{far}:1] valid_later, first_later;"
    yield f"  wire [{far}:0] valid_at = {{valid_later, valid}}, first_at = {{first_later, first}};"
    # a row number for each column, from which it stores a sum in this cycle if its bit is set
    yield f"  reg [{cols - 1}:0] storing;"
    yield f"  reg [{bits * cols - 1}:0] from_row;"
    yield f"  wire next_storing = done | (storing[0] & (from_row[{bits - 1}:0] != {rows - 1}));"
    yield f"  wire [{bits - 1}:0] next_row = done ? {bits}'d0 : from_row[{bits - 1}:0] + {bits}'d1;"
    yield f"  reg [7:0] a_held [0:{_size(rows) - 1}][0:{lanes - 1}];"
    yield f"  reg [7:0] b_held [0:{_size(cols) - 1}][0:{lanes - 1}];"
    if config.core.int4:
        yield f"  reg [7:0] scale [0:{_size(cols) - 1}];"
        yield f"  reg [7:0] b_scale [0:{_size(cols) - 1}];"
        yield f"  reg [7:0] b_shift [0:{_size(cols) - 1}];"
        yield f"  reg [7:0] b_int4 [0:{_size(cols) - 1}];"
    yield "  reg [31:0] part;"
    yield f"  reg [7:0] index [0:{_size(most) - 1}];"
    yield f"  reg [7:0] a_played [0:{_size(rows) - 1}];"
    yield f"  reg [7:0] b_played [0:{_size(cols) - 1}];"
    # bit i of a chain is the flag at lane i
    yield f"  reg [{most}:1] load_later;"
    yield f"  reg [{most}:1] played_later;"
    yield f"  wire [{most}:0] load = {{load_later, window}};"
    yield f"  wire playing = |played_later[{most}:1];"
    # cycles since the last window, which is where that loads; those before it, if they still do, are further on
    yield "  reg [7:0] age;"
    yield "  wire [7:0] at = window ? 8'd0 : age;"
    yield f"  wire several = |(load[{most - 1}:0] & (load[{most - 1}:0] - 1'b1));"


def _stores(config: ChipConfig) -> Iterator[str]:
    """Finished sums are stored: one a column."""
    cols, bits, far = config.cols, _bits(config), _far(config)
    yield f"    valid_later <= valid_at[{far - 1}:0];"
    yield f"    first_later <= first_at[{far - 1}:0];"
    yield "    storing <= {storing, next_storing};"
    yield "    if (done | (|storing)) from_row <= {from_row, next_row};"
    # all are written if one is: under one condition they share one of the flags that the simulator tests in every cycle
    yield "    if (|storing) begin"
    for n in range(cols):
        row = f"from_row[{n * bits} +: {bits}]"
        yield f"      finished_{n}[{row}] <= storing[{n}] ? sums[{row} * {cols} + {n}] : finished_{n}[{row}];"
    yield "    end"


def _elements(config: ChipConfig) -> Iterator[str]:
    """The array does a cycle."""
    rows, cols, far = config.rows, config.cols, _far(config)
    count = rows * cols
    yield "    if (|valid_at) begin"
    if config.product_register:
        yield from _operands(config)
    yield f"      {_LOOP} (m = 0; m < {rows}; m = m + 1) west[m * {cols}] = a_played[m];"
    yield f"      {_LOOP} (n = 0; n < {cols}; n = n + 1) north[n] = b_played[n];"
    # the elements of few diagonals begin anew, so the others are left alone
    yield f"      if (|first_at[{far - 1}:0]) begin"
    yield f"        {_LOOP} (d = 0; d < {far}; d = d + 1) if (first_at[d]) begin"
    yield f"          {_LOOP} (m = d < {cols} ? 0 : d - {cols - 1}; m < {rows} && m <= d; m = m + 1)"
    yield f"            sums[m * {cols} + d - m] = 0;"
    yield "        end"
    yield "      end"
    # compilers know this form of sign extension, and not that of the simulator
    west, north = (f"(({{24'd0, {name}[e]}} ^ 32'h80) - 32'h80)" for name in ("west", "north"))
    before = "((({16'd0, product[e]} ^ 32'h8000) - 32'h8000))"
    product = before if config.product_register else f"{west} * {north}"
    yield f"      {_LOOP} (e = 0; e < {count}; e = e + 1) sums[e] = sums[e] + {product};"
    if config.product_register:
        yield f"      {_LOOP} (e = 0; e < {count}; e = e + 1) product[e] = {west} * {north};"
    # the first column and row are overwritten by what comes in
    yield f"      {_LOOP} (e = {count - 1}; e > 0; e = e - 1) west[e] = west[e - 1];"
    yield f"      {_LOOP} (e = {count - 1}; e >= {cols}; e = e - 1) north[e] = north[e - {cols}];"
    yield "    end"


def _operands(config: ChipConfig) -> Iterator[str]:
    """Each lane plays a byte."""
    rows, cols = config.rows, config.cols
    yield f"      {_LOOP} (m = 0; m < {rows}; m = m + 1) a_played[m] = a_held[m][index[m]];"
    if not config.core.int4:
        yield f"      {_LOOP} (n = 0; n < {cols}; n = n + 1) b_played[n] = b_held[n][index[n]];"
    else:
        yield f"      {_LOOP} (n = 0; n < {cols}; n = n + 1) begin"
        yield "        part = {24'd0, b_held[n][index[n]]};"
        yield "        if (b_int4[n] != 0)"
        yield "          part = ((((part >> b_shift[n]) & 15) ^ 8) - 8) * {24'd0, b_scale[n]};"
        yield "        b_played[n] = part[7:0];"
        yield "      end"


def _lanes(config: ChipConfig) -> Iterator[str]:
    """The edges do a cycle: lanes play a byte each (for registered products `_elements` has them do so), and one of
    them loads a word."""
    rows, cols, lanes, most = config.rows, config.cols, config.lanes, _most(config)
    yield f"    load_later <= load[{most - 1}:0];"
    yield f"    played_later <= {{played_later[{most}:1], active}};"
    yield "    age <= at + (at != 255);"
    if not config.product_register:
        yield "    if (playing) begin"
        yield from _operands(config)
        yield "    end"
    yield f"    if (|load[{most - 1}:0]) begin"
    yield f"      {_LOOP} (d = at; d < (several ? {most} : at + 1); d = d + 1) if (load[d]) begin"
    for count, held, word in ((rows, "a_held", "a_word"), (cols, "b_held", "b_word")):
        if count < most:
            yield f"        if (d < {count}) begin"
        if held == "b_held" and config.core.int4:
            yield "        b_int4[d] = {7'd0, int4};"
            yield "        b_shift[d] = high ? 8'd4 : 8'd0;"
            yield "        b_scale[d] = high ? scale[d] >> 4 : scale[d] & 8'd15;"
            yield "        if (!high) begin"
        if held == "a_held":
            yield "        if (a_zero) begin"
            yield f"          {_LOOP} (e = 0; e < {lanes}; e = e + 1) a_held[d][e] = 0;"
            yield "        end else begin"
        for byte in range(lanes):
            if byte % 4 == 0:  # bytes of a copy, so that compilers store all four at once
                yield f"          part = {word}[{8 * byte + 31}:{8 * byte}];"
            yield f"          {held}[d][{byte}] = part[{byte % 4 * 8 + 7}:{byte % 4 * 8}];"
        if held == "a_held" or config.core.int4:
            yield "        end"
        if count < most:
            yield "        end"
    yield "      end"
    yield "    end"
    if config.core.int4:
        yield "    if (scales) begin"
        yield from (f"      scale[{n}] = b_word[{8 * n + 7}:{8 * n}];" for n in range(cols))
        yield "    end"
    yield "    if (active | playing) begin"
    yield f"      {_LOOP} (e = {most - 1}; e > 0; e = e - 1) index[e] = index[e - 1];"
    yield "      index[0] = phase;"
    yield "    end"
