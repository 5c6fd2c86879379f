"""The array and its edges as loops over memories (`array_loops`) against the netlist of `FedArray`, in every cycle."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from meshloom.hw.assembly.verilog import optimised, to_rtlil
from meshloom.hw.core import array_loops
from meshloom.hw.core.fed_array import FedArray
from meshloom.hw.spec.config import ChipConfig

from ..tiers import slow_but

#: Rows, columns, whether products are registered, whether the flags are random (a grid of blocks has to be used as its
#: contract says: each block has flags of its own).
SHAPES = [
    (4, 4, False, True),
    (4, 4, True, True),
    (3, 5, False, True),
    (5, 2, True, True),
    (1, 4, False, False),
    (4, 1, True, False),
    pytest.param(18, 17, False, False, marks=pytest.mark.slow),
    pytest.param(17, 18, True, False, marks=pytest.mark.slow),
]


def chip(rows: int, cols: int, registered: bool, int4: bool = False) -> ChipConfig:
    lanes = 1 << (max(rows, cols, 4) - 1).bit_length()
    values = {"name": "one", "lanes": lanes, "rows": rows, "cols": cols, "product_register": registered}
    more = {"floorplan": ["dram core host"], "dram": {"bytes_per_cycle": 4}, "core": {"int4": int4}}
    return ChipConfig.model_validate(values | more)


def bench(config: ChipConfig, free: bool, cycles: int) -> str:
    """Drives both with the same words and flags and compares all sums in every cycle, once all registers are known.

    `free`: any flags; otherwise folds as a core has them: at least `rows` products each, with pauses between GEMMs.
    """
    rows, cols, lanes, late = config.rows, config.cols, config.lanes, int(config.product_register)
    widths = array_loops.inputs(config)
    common = ", ".join(f".{pin}({pin})" for pin in ["clk", "rst", *widths])
    known = 4 * (rows + cols + lanes)
    flags = (
        ["valid <= $random; first <= $random; done <= $random;"]
        if free
        else [
            # `left` products of a fold, `rest` cycles of pause; flags reach the accumulators `late` cycles later
            "if (left == 0 && rest == 0) begin",
            f"  left <= {rows} + ({{$random}} % 9); rest <= ({{$random}} % 4) ? 0 : {{$random}} % 60; begins <= 1;",
            "end else if (left != 0) begin left <= left - 1; begins <= 0; end else rest <= rest - 1;",
            "valid <= left != 0;",
            "begun <= begins && left != 0; ended <= left == 1;",
            f"first <= {'begun' if late else 'begins && left != 0'}; done <= {'ended' if late else 'left == 1'};",
        ]
    )
    # windows as the reader makes them, one after the other with pauses, or at any time: several lanes may load at once
    windows = (
        ["window <= {$random} % 4 == 0; phase <= $random; active <= {$random} % 8 != 0;"]
        if free
        else [
            f"window <= since == {lanes - 1} && {{$random}} % 4 != 0;",
            f"active <= window || (active && phase != {lanes - 1});",
            f"phase <= window ? 0 : phase + 1; since <= since == {lanes - 1} ? (window ? 0 : since) : since + 1;",
        ]
    )
    wide = ("a_word", "b_word")
    return "\n".join(
        [
            "module bench;",
            "  reg clk = 0, rst = 1, begins = 0, begun = 0, ended = 0;",
            "  integer left = 0, rest = 3, cycle = 0, compared = 0, since = 0;",
            *[f"  reg [{width - 1}:0] {name} = 0;" for name, width in widths.items()],
            *[f"  wire signed [31:0] wanted_{n};" for n in range(cols)],
            f"  wire [{32 * cols - 1}:0] found;",
            f"  wire [{32 * cols - 1}:0] wanted = {{{', '.join(f'wanted_{n}' for n in reversed(range(cols)))}}};",
            f"  netlist one({common}, {', '.join(f'.result__{n}(wanted_{n})' for n in range(cols))});",
            f"  {array_loops.module_name(config)} two({common}, .result(found));",
            "  always #1 clk = ~clk;",
            "  always @(posedge clk) begin",
            "    cycle <= cycle + 1;",
            # within a fold only where any flags will do
            f"    rst <= cycle < 2{' || ({$random} % 400 == 0 && cycle > 1000)' if free else ''};",
            *([f"    row <= {{$random}} % {rows};"] if rows > 1 else []),
            *[f"    {name} <= {{{', '.join(['$random'] * -(-widths[name] // 32))}}};" for name in wide],
            "    a_zero <= {$random} % 4 == 0;",
            *[f"    {name} <= $random;" for name in ("int4", "high", "scales") if name in widths],
            # first all folds long enough for every register to get a value
            f"    if (cycle < {known}) begin",
            f"      valid <= 1; first <= 1; done <= cycle % {rows} == 0;",
            f"      window <= cycle % {lanes} == 3; phase <= cycle - 4; active <= cycle > 3;",
            "    end else begin",
            *[f"      {line}" for line in [*flags, *windows]],
            "    end",
            f"    if (cycle > {2 * known}) begin",
            '      if (wanted !== found) begin $display("differ in cycle %0d", cycle); $finish; end',
            "      if (^wanted !== 1'bx && |wanted) compared <= compared + 1;",
            "    end",
            f'    if (cycle == {cycles}) begin $display("equal in %0d", compared); $finish; end',
            "  end",
            "endmodule\n",
        ]
    )


def outcome(config: ChipConfig, free: bool, loops: str, folder: Path) -> str:
    netlist = to_rtlil(FedArray(config), "netlist")
    texts = {"one.v": optimised(netlist, "netlist"), "two.v": loops, "bench.v": bench(config, free, 3000)}
    for name, text in texts.items():
        (folder / name).write_text(text)
    command = ["iverilog", "-g2012", "-s", "bench", "-o", "sim", *texts]
    subprocess.run(command, check=True, cwd=folder, capture_output=True)
    return subprocess.run(["vvp", "-n", "sim"], check=True, cwd=folder, capture_output=True, text=True).stdout


@pytest.mark.parametrize(("rows", "cols", "registered", "free"), SHAPES)
def test_loops_are_the_array(rows: int, cols: int, registered: bool, free: bool, tmp_path: Path) -> None:
    config = chip(rows, cols, registered)
    message = outcome(config, free, array_loops.verilog(config), tmp_path)
    assert message.startswith("equal in "), message
    assert int(message.split()[-1]) > 2000, message


@pytest.mark.parametrize(
    "way", slow_but([(4, 4, False, True), (5, 3, True, True), (3, 4, False, False)], (4, 4, False, True))
)
def test_loops_of_weights_of_four_bits_are_the_array(way: tuple[int, int, bool, bool], tmp_path: Path) -> None:
    rows, cols, registered, free = way
    config = chip(rows, cols, registered, int4=True)
    message = outcome(config, free, array_loops.verilog(config), tmp_path)
    assert message.startswith("equal in "), message
    assert int(message.split()[-1]) > 2000, message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("high ? 8'd4 : 8'd0", "8'd0"),
        ("scale[d] >> 4 : scale[d] & 8'd15", "scale[d] & 8'd15 : scale[d] & 8'd15"),
        ("^ 8) - 8)", "^ 0) - 0)"),
        ("if (!high) begin", "if (1) begin"),
        ("{7'd0, int4}", "8'd1"),
        ("if (scales) begin", "if (1) begin"),
    ],
)
def test_a_wrong_array_for_weights_of_four_bits_is_noticed(right: str, wrong: str, tmp_path: Path) -> None:
    config = chip(4, 4, False, int4=True)
    text = array_loops.verilog(config)
    assert right in text
    assert "differ in cycle" in outcome(config, True, text.replace(right, wrong), tmp_path)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("west[e - 1]", "west[e]"),
        ("if (first_at[d])", "if (first_at[d + 1])"),
        ("&& m <= d", "&& m < d"),
        ("from_row[1:0] != 3", "from_row[1:0] != 2"),
        ("if (|valid_at)", "if (valid)"),
        ("done | (storing[0]", "(storing[0]"),
        ("a_held[m][index[m]]", "a_held[m][index[0]]"),
        ("storing[1] ? sums", "storing[0] ? sums"),
        ("part = b_word[31:0]", "part = a_word[31:0]"),
        ("if (active | playing)", "if (active)"),
        ("d < (several ? 4 : at + 1)", "d < at + 1"),
        ("d = at;", "d = age;"),
        ("if (a_zero)", "if (0)"),
        ("b_played[n] = 0", "b_played[n] = b_played[n]"),
    ],
)
def test_a_wrong_array_is_found(right: str, wrong: str, tmp_path: Path) -> None:
    config = chip(4, 4, False)
    text = array_loops.verilog(config)
    assert right in text
    assert "differ in cycle" in outcome(config, True, text.replace(right, wrong), tmp_path)
