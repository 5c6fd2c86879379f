"""The chip as a block of a system: what tools look for, and a run of it far up in a large address space."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from meshloom.hw.board.system import TOP, files
from meshloom.hw.spec.config import ChipConfig, load
from meshloom.tb.build.builder import tool_variables
from meshloom.tb.build.fpga.system import emit_system
from meshloom.tb.results import export as record

from .command_line import invoke
from .test_export import written

TINY = load("tiny")
TWO = ChipConfig.model_validate(TINY.model_dump() | {"name": "two", "floorplan": ["dram core", "host dram"]})
#: Signals of an AXI4 manager's address channel; those of the others are plain.
ADDRESS = {f"a{way}{name}" for way in "rw" for name in (
    "id", "addr", "len", "size", "burst", "lock", "cache", "prot", "qos", "region", "valid", "ready",
)}  # fmt: skip
MANAGER = ADDRESS | {
    "wdata", "wstrb", "wlast", "wvalid", "wready", "bid", "bresp", "bvalid", "bready", "rid", "rdata", "rresp", "rlast",
    "rvalid", "rready",
}  # fmt: skip
BASE, BITS, ID = 0x12_4000_0000, 40, 5
PORT = re.compile(r"^    (?:\(\*.*\*\) )?(input|output) (?:\[[^]]*\] )?(\w+),?$", re.MULTILINE)


def test_ports_have_the_names_that_tools_look_for() -> None:
    text = files(TWO)["two_axi.v"]
    names = [name for _, name in PORT.findall(text)]
    assert len(names) == len(set(names))
    for prefix in ("m_axi_0_", "m_axi_1_"):
        assert {name.removeprefix(prefix) for name in names if name.startswith(prefix)} == MANAGER
    assert {name for name in names if not name.startswith(("m_axi_", "s_axi_"))} == {"aclk", "aresetn", "irq"}
    assert "ASSOCIATED_BUSIF s_axi:m_axi_0:m_axi_1, ASSOCIATED_RESET aresetn" in text
    assert re.findall(r"parameter \[63:0\] (\w+)", text) == ["BASE_0", "BASE_1"]


def test_each_file_is_written_under_its_own_name(tmp_path: Path) -> None:
    paths = emit_system(TINY, tmp_path)
    assert {path.name: path.read_text(encoding="utf-8") for path in paths} == files(TINY)
    assert {path.parent for path in paths} == {tmp_path}


@pytest.mark.slow  # a linter reads the chip's Verilog
def test_the_files_of_tools_name_what_is_there(folder: Path) -> None:
    """All in one folder, that of the Verilog."""
    done = invoke("verilog", "--chip", "tiny", "--out", "there", "--system")
    assert done.exit_code == 0, done.output
    names = {path.name for path in Path("there").iterdir()}
    assert {f"there/{name}" for name in names} == set(done.stdout.split())
    assert names == {"tiny.v", "tiny.json", "tiny.rdl", "tiny.vlt", "tiny_axi.v", "tiny.core", "tiny.tcl"}
    core = Path("there/tiny.core").read_text()
    assert core.startswith("CAPI=2:\n"), "FuseSoC wants it in the first line"
    values = yaml.safe_load(core.removeprefix("CAPI=2:\n"))
    listed = [name for each in values["filesets"].values() for name in each["files"]]
    assert set(listed) <= names
    for target in values["targets"].values():
        assert (target["toplevel"], set(target["filesets"]) <= values["filesets"].keys()) == (TOP, True)
        assert set(target["parameters"]) <= values["parameters"].keys()
    assert re.fullmatch(r"meshloom:chips:tiny:\d+\.\d+\.\d+", values["name"])
    script = Path("there/tiny.tcl").read_text()
    assert set(re.findall(r"(tiny\w*\.v)\]", script)) == {"tiny.v", "tiny_axi.v"}
    assert script.count("{") == script.count("}")
    assert script.count("[") == script.count("]")
    lint = ["verilator", "--lint-only", "-Wall", "--top-module", TOP, "tiny.vlt", "tiny.v", "tiny_axi.v"]
    said = subprocess.run(lint, cwd="there", capture_output=True, text=True, env=tool_variables(), check=False)
    assert (said.returncode, said.stderr) == (0, "")


def adapter(chip: ChipConfig) -> str:
    """The module `chip` again, around `chip_axi`: addresses less the base, and past all memory if that was not in it or
    if the ID is another; answers have other IDs."""
    text = module(Path(f"chip/{chip.name}.v").read_text(), "chip")
    ports = re.findall(r"^  (input|output) (\[\d+:0\] )?(\S+);$", text, re.MULTILINE)
    wires, pins = list[str](), [".aclk(clk)", ".aresetn(~rst)", ".irq(irq)"]
    for _, _, name in ports:
        if name.startswith("bus__"):
            pins.append(f".s_axi_{name.removeprefix('bus__')}({name})")
        elif match := re.fullmatch(r"axi_(\d)__(\w+)", name):
            index, signal = match.groups()
            pin = f"m_axi_{index}_{signal}"
            if signal in ("awaddr", "araddr"):
                wires.append(f"  wire [{BITS - 1}:0] {pin};")
                wires.append(f"  wire [{BITS - 1}:0] {pin}_less = {pin} - {BITS}'d{BASE};")
                wrong = f"|{pin}_less[{BITS - 1}:32] || {pin[:-4]}id != 4'd{ID}"
                wires.append(f"  assign {name} = {pin}_less[31:0] | {{32{{{wrong}}}}};")
                pins.append(f".{pin}({pin})")
            elif signal in ("awid", "arid"):
                wires.append(f"  wire [3:0] {pin};")
                pins.append(f".{pin}({pin})")
            else:
                value = "4'd9" if signal in ("bid", "rid") else name
                pins.append(f".{pin}({value})")
    parameters = f".BASE_0(64'd{BASE}), .ADDRESS_BITS({BITS}), .ID_BITS(4), .ID(4'd{ID})"
    return "\n".join([
        f"module chip({', '.join(name for _, _, name in ports)});",
        *(f"  {way} {width}{name};" for way, width, name in ports),
        *wires,
        f"  {TOP} #({parameters}) system({', '.join(pins)});",
        "endmodule\n",
    ])  # fmt: skip


def module(text: str, name: str) -> str:
    match = re.search(rf"^module {name}\(.*?^endmodule", text, re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[0]


def test_it_runs_with_its_dram_at_a_base(folder: Path) -> None:
    """The exported bench around it, in Icarus: the same bytes in the same cycles."""
    written("gemm:8x8x8", folder / "gemm")
    shutil.copytree("gemm/chip", "chip")
    text, top = Path("chip/tiny.v").read_text(), files(TINY)["tiny_axi.v"]
    Path("inner.v").write_text(re.sub(r"^module chip\(", "module inner_chip(", text, flags=re.MULTILINE))
    Path("top.v").write_text(top.replace("  chip chip (", "  inner_chip chip ("))
    Path("adapter.v").write_text(adapter(TINY))
    sources = ["bench.v", "dram_model.v", "clock_gate.v", *(f"../{name}.v" for name in ("inner", "top", "adapter"))]
    build = ["iverilog", "-g2005", "-Wall", "-s", "bench", "-o", "../bench.vvp", *sources]
    said = subprocess.run(build, cwd="gemm", check=True, capture_output=True, text=True)
    assert said.stderr == ""
    done = subprocess.run(["vvp", "-n", "../bench.vvp"], cwd="gemm", check=True, capture_output=True, text=True)
    cycles = record.load(Path("gemm")).cycles
    assert done.stdout == f"PASS: 64 bytes, {cycles} cycles (predicted {cycles})\n"


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (".ADDRESS_BITS(24)", "ADDRESS_BITS is 24 and must be 32 to 64"),
        (".BASE_0(64'h8000_0800)", "BASE_0 is 0x80000800 and must be a multiple of 4096"),
        (".BASE_1(64'hfffff000)", "BASE_1 is 0xfffff000: 4194304 bytes from there on need more than ADDRESS_BITS"),
        (".BASE_1(64'hfffff000), .ADDRESS_BITS(33)", ""),
        (".BASE_1(64'hffc00000)", ""),  # its last byte is the last that there is
        (".BASE_1(64'hffc01000)", "BASE_1 is 0xffc01000: 4194304 bytes from there on need more than ADDRESS_BITS"),
    ],
)
def test_a_parameter_that_cannot_be_is_named(parameters: str, words: str, folder: Path) -> None:
    Path("top.v").write_text(files(TWO)["two_axi.v"].replace("  chip chip (", "  inner chip ("))
    pins = ", ".join(
        re.findall(r"^    \.(axi_\d__\w+|bus__\w+|clk|rst|irq)\(", Path("top.v").read_text(), re.MULTILINE)
    )
    Path("inner.v").write_text(f"module inner({pins}); input {pins}; endmodule\n")
    Path("bench.v").write_text(f"module bench; {TOP} #({parameters}) dut(.aclk(1'b0), .aresetn(1'b0)); endmodule\n")
    build = ["iverilog", "-g2005", "-s", "bench", "-o", "bench.vvp", "bench.v", "top.v", "inner.v"]
    subprocess.run(build, check=True)
    done = subprocess.run(["vvp", "-n", "bench.vvp"], check=True, capture_output=True, text=True)
    assert done.stdout == (f"{TOP}: {words}\n" if words else "")


@pytest.mark.parametrize("clock", [None, 12.5])
def test_the_clock_of_the_description_is_that_of_the_script(clock: float | None) -> None:
    chip = TINY.model_copy(update={"clock_mhz": clock})
    assert f"[lindex $argv 1] : {clock or 100:g}}}]" in files(chip)["tiny.tcl"]
