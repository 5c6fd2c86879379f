"""The emitted Verilog: synthesisable, complete, the same every time, and what the manifest says it is."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from amaranth.back import rtlil as backend  # pyright: ignore[reportAttributeAccessIssue]
from systemrdl.compiler import RDLCompiler

from meshloom.hw.assembly import verilog as emission
from meshloom.hw.assembly.readable import WAIVED, readable
from meshloom.hw.assembly.system_rdl import system_rdl
from meshloom.hw.core.array import ArrayForm, SystolicArray
from meshloom.hw.spec.config import ChipConfig, Direction, load
from meshloom.hw.spec.registers import LAYOUTS, Register, registers_of
from meshloom.tb.build import verilog_files
from meshloom.tb.build.verilog_files import emit_verilog
from meshloom.tb.verify.fuzz.chips import random_chips

from ..tiers import slow_but

CHIP = load("tiny")
MODULE = re.compile(r"^module (\S+?)\((.*?)\);\n(.*?)^endmodule$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Verilog and manifest of `tiny`."""
    return emit_verilog(CHIP, tmp_path_factory.mktemp("verilog") / "new" / "folder")


@pytest.fixture(scope="module")
def text(written: tuple[Path, ...]) -> str:
    return written[0].read_text()


@pytest.fixture(scope="module")
def modules(text: str) -> dict[str, str]:
    """Module name to what stands between its ports and `endmodule`."""
    return {match[1]: match[3] for match in MODULE.finditer(text)}


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


@pytest.mark.parametrize(
    "construct",
    [
        r"\$(display|write|monitor|finish|stop|time|readmem\w*|writemem\w*|random|fatal|error)\b",
        r"\binitial\b",  # memories start unknown, as on a board
        r"(^|[^\w'$\\])#\s*[\d(]",  # delays; parameters of instances look alike, and there are none
        r"(?<![\\\w$.])(assert|assume|cover|fork|forever|wait|force|real|event)\b",
        r"`timescale|\bspecify\b",
    ],
)
def test_nothing_is_for_simulation_only(construct: str, text: str) -> None:
    result = re.search(construct, without_comments(text), re.MULTILINE)
    assert result is None, result


def test_the_search_for_such_constructs_can_find_them() -> None:
    sample = "  always #5 a = 1;\n"
    assert re.search(r"(^|[^\w'$\\])#\s*[\d(]", sample)


def test_the_manifest_names_the_ports_of_the_module(written: tuple[Path, ...], text: str) -> None:
    manifest = json.loads(written[1].read_text())
    header = next(match for match in MODULE.finditer(text) if match[1] == manifest["top"])
    listed = [name.strip() for name in header[2].replace("\n", " ").split(",")]
    declared = {
        name: (direction, int(high) + 1 if high else 1)
        for direction, high, name in re.findall(r"^  (input|output) (?:\[(\d+):0\] )?(\S+);$", header[3], re.MULTILINE)
    }
    assert sorted(listed) == sorted(declared)
    ports = {port["name"]: (port["direction"], port["width"]) for port in manifest["ports"]}
    assert len(ports) == len(manifest["ports"])
    assert ports == declared


@pytest.mark.slow
def test_an_observed_chip_shows_every_result_of_every_core(text: str) -> None:
    """Ports `seen_<core>__...`, of the chip as of its manifest; and no others more than usual."""
    values = CHIP.model_dump() | {"floorplan": ["dram core", "host core"], "lanes": 8, "rows": 2, "cols": 2}
    config = ChipConfig.model_validate(values)
    ports = {port["name"]: port for port in emission.manifest(config, observed=True)["ports"]}
    usual = {port["name"] for port in emission.manifest(config)["ports"]}
    widths = {"out_en": 1, "out_addr": 16, "out_data": 64, "vec_en": 1, "vec_addr": 16, "vec_data": 64}
    expected = {f"seen_{core}__{name}": width for core in (0, 1) for name, width in widths.items()}
    assert {name: ports[name]["width"] for name in ports.keys() - usual} == expected
    assert {ports[name]["direction"] for name in expected} == {"output"}
    bodies = {match[1]: match[2] for match in emission.MODULE.finditer(emission.rtlil(config, observed=True))}
    shown = re.compile(r"^  wire width (\d+) output \d+ +\\(seen_\S+)$", re.MULTILINE)
    assert {name: int(width) for width, name in shown.findall(bodies["chip"])} == expected
    assert {name: int(width) for width, name in shown.findall(bodies["tile_core"])} == {
        f"seen__{name}": width for name, width in widths.items()
    }
    assert "seen_0" not in text


def test_the_manifest_describes_the_chip(written: tuple[Path, ...]) -> None:
    manifest = json.loads(written[1].read_text())
    assert ChipConfig.model_validate(manifest["parameters"]) == CHIP
    assert manifest["digest"] == CHIP.digest
    assert manifest["registers"] == {register.name: int(register) for register in registers_of(CHIP)}
    assert Register.LAUNCH not in registers_of(CHIP)
    assert manifest["axi"] == {"axi_0": CHIP.drams[0]}
    assert manifest["tiles"] == {str(tile): kind.value for tile, kind in CHIP.tiles.items()}
    assert {path.name for path in written[0].parent.iterdir()} == {
        "tiny.v",
        "tiny.json",
        "tiny.rdl",
        "tiny.vlt",
    }  # nothing half-written


@pytest.mark.parametrize("more", [{}, {"programs": 2}, {"counters": False}, {"name": "reg", "programs": 1}])
def test_the_registers_are_system_rdl(more: dict[str, Any], tmp_path: Path) -> None:
    """As a compiler of others reads it: each register of the chip at its address, with its fields."""
    config = ChipConfig.model_validate(CHIP.model_dump() | more)
    path = tmp_path / "chip.rdl"
    path.write_text(system_rdl(config), encoding="utf-8")
    compiler = RDLCompiler()
    compiler.compile_file(str(path))
    listed = list(compiler.elaborate().top.registers())
    assert {register.inst_name: register.absolute_address for register in listed} == {
        register.name: int(register) for register in registers_of(config)
    }
    for register in listed:
        layout = LAYOUTS.get(Register[register.inst_name])
        if layout is not None:
            fields = {field.inst_name: (field.low, field.width) for field in register.fields()}
            assert fields == {name: place for name, place in layout.offsets.items() if name != "zero"}


@pytest.mark.slow
def test_every_time_the_same_text(text: str) -> None:
    """In another process, in which sets and hashes come in another order."""
    script = (
        "import hashlib; from meshloom.hw.spec.config import load; from meshloom.hw.assembly.verilog import files;"
        "print(hashlib.sha256(files(load('tiny'))['tiny.v'].encode()).hexdigest())"
    )
    environment = os.environ | {"PYTHONHASHSEED": "77"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == hashlib.sha256(text.encode()).hexdigest()


def test_each_module_is_there_once(text: str, modules: dict[str, str]) -> None:
    """No two modules with the same contents, and one for each kind of tile."""
    assert len(modules) == len(re.findall(r"^module ", text, re.MULTILINE))
    bodies = [re.sub(r"\s+", " ", body) for body in modules.values()]
    assert len(set(bodies)) == len(bodies)
    assert {name for name in modules if re.fullmatch(r"tile_[a-z]+", name)} == {
        "tile_core", "tile_dram", "tile_host", "tile_spm",
    }  # fmt: skip
    used = set(re.findall(r"^  (\S+) (?:\\?\S+ )?\(\n", text, re.MULTILINE))
    assert set(modules) - {"chip"} <= used, "modules that nobody instantiates"


def test_blocks_of_a_large_array_are_instances_of_few_modules() -> None:
    """32 x 17 processing elements: 2 x 2 blocks of two kinds."""
    values = {"name": "big", "lanes": 32, "cols": 17, "floorplan": ["dram core host"], "dram": {"bytes_per_cycle": 4}}
    config = ChipConfig.model_validate(values)
    array = backend.convert(SystolicArray(config, ArrayForm.INSTANCES), name="array", emit_src=False)
    cells = re.findall(r"cell \\(array_\w+)", array)
    assert sorted(cells) == ["array_16x8", "array_16x8", "array_16x9", "array_16x9"]


def test_identical_modules_are_merged_also_when_only_their_parts_were() -> None:
    """`b` and `c` differ in the name of what they contain, until that is merged."""
    leaf = "module \\{}\n  wire width 1 \\x\nend\n"
    box = "module \\{}\n  cell \\{} \\inner\n  end\nend\n"
    texts = [leaf.format("b.leaf"), leaf.format("c.leaf"), box.format("b", "b.leaf"), box.format("c", "c.leaf")]
    top = "module \\top\n  cell \\b \\first\n  end\n  cell \\c \\second\n  end\nend\n"
    merged = emission.merge("".join(texts) + top)
    assert re.findall(r"^module \\(\S+)", merged, re.MULTILINE) == ["b__leaf", "b", "top"]
    assert re.findall(r"cell \\(\S+) \\(\S+)", merged) == [("b__leaf", "inner"), ("b", "first"), ("b", "second")]


def test_icarus_accepts_it(written: tuple[Path, ...], tmp_path: Path) -> None:
    command = [
        "iverilog",
        "-g2005",
        "-Wall",
        "-t",
        "null",
        "-s",
        "chip",
        "-o",
        str(tmp_path / "nothing"),
        str(written[0]),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr
    assert "Unknown module" not in done.stderr


def test_it_is_made_once(written: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also for another clock; for another chip there is none yet."""
    monkeypatch.setattr(emission, "files", lambda config: pytest.fail(f"makes that of {config.name} again"))
    again = emit_verilog(CHIP.model_copy(update={"clock_mhz": 321.0}), tmp_path)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in written]
    with pytest.raises(pytest.fail.Exception, match="makes that of other again"):
        emit_verilog(CHIP.model_copy(update={"name": "other"}), tmp_path)


def test_a_tool_that_fails_is_an_error_with_its_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(emission, "rtlil", lambda *config, **contracts: "this is no RTLIL\n")
    monkeypatch.setattr(verilog_files, "OUTPUT", tmp_path / "cache")
    with pytest.raises(emission.EmitError, match=r"Verilog of tiny failed: [\s\S]*error"):
        emit_verilog(CHIP, tmp_path / "out")
    assert not (tmp_path / "out").exists()


#: A random chip with what tiny lacks: a controller, counters and wide words.
OTHER = 1


@pytest.mark.parametrize("chip", slow_but(["tiny", OTHER, "ecc", "copies"], "tiny"))
def test_verilator_warns_of_nothing_but_what_is_waived(chip: str | int, tmp_path: Path) -> None:
    """With the waivers; without them of no other kinds. A number: a random chip; "ecc": words have a code; "copies":
    routers copy packets."""
    config = random_chips(46, chip + 1)[chip] if isinstance(chip, int) else CHIP
    if chip == "ecc":
        config = config.model_copy(update={"name": "coded", "ecc": True})
    if chip == "copies":
        noc = config.noc.model_copy(update={"multicast": (Direction.EAST, Direction.SOUTH)})
        config = config.model_copy(update={"name": "copying", "noc": noc})
    emit_verilog(config, tmp_path)
    command = ["verilator-cli", "--lint-only", "-Wall", "--top-module", "chip"]
    clean = run_tool([*command, f"{config.name}.vlt", f"{config.name}.v"], tmp_path)
    assert (clean.returncode, "%Warning" in clean.stderr) == (0, False), clean.stderr
    alone = run_tool([*command, f"{config.name}.v"], tmp_path)
    kinds = set(re.findall(r"^%Warning-(\w+)", alone.stderr, re.MULTILINE))
    assert kinds <= set(WAIVED)
    assert len(kinds) >= len(WAIVED) - 2, "whether a wire looks like a loop, or a buffer rests, depends on the chip"


def run_tool(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=os.environ | {"PATH": path})


def test_a_reader_sees_what_each_module_is(text: str) -> None:
    lines = text.splitlines()
    assert lines[0].startswith("// Chip tiny: 2 x 2 tiles, words of 4 bytes. Digest: ")
    assert lines[1].startswith("// Written by Meshloom ")
    first = {number for number, line in enumerate(lines) if line.startswith("module ")}
    assert {lines[number] for number in first if not lines[number - 1].startswith("// ")} == set()
    assert max(map(len, (line for line in lines if line.startswith("//")))) <= 120


def test_wires_have_names(text: str) -> None:
    assert set(re.findall(r"\b_\d+_\b", text)) == set()
    escaped = set(re.findall(r"\\(\S+) ", text))
    assert {name for name in escaped if not re.fullmatch(r"[A-Za-z_]\w*", name)} == set(), "keywords alone need it"


def test_new_names_are_no_others() -> None:
    """Terms are numbered, ports renamed where they are connected, and nothing gets a name that there is."""
    part = (
        "module part(\\a$1 , b);\n  input \\a$1 ;\n  wire \\a$1 ;\n  output b;\n  wire b;\n"
        "  assign b = \\a$1 ;\nendmodule\n"
    )
    top = (
        "module top(a, y);\n  input a;\n  wire a;\n  wire a_1;\n  output y;\n  wire \\a$1 ;\n  wire \\y_$and_Y_A ;\n"
        "  wire \\y_$and_Y_B ;\n  wire _7_;\n  assign a_1 = \\a$1 ;\n  assign y = \\y_$and_Y_A  & \\y_$and_Y_B ;\n"
        "  assign _7_ = a;\n  part inner (\n    .\\a$1 (\\a$1 ),\n    .b(\\y_$and_Y_A )\n  );\nendmodule\n"
    )
    text = readable(part + top, CHIP, {"part": "What a part does."})
    assert "// What a part does.\nmodule part(a_1, b);\n  input a_1;" in text
    assert "  assign a_1 = a_1_t1;\n  assign y = y_t1 & y_t2;\n  assign net_7 = a;\n" in text
    assert "    .a_1(a_1_t1),\n    .b(y_t1)\n" in text
