"""Simulators assembled of blocks: shared libraries, threads, and what the C++ says about odd wires."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from meshloom.hw.assembly.partition import Partition, Piece, gates, partition
from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.store import cache
from meshloom.sched.store.kinds import BLOCKS, SIMULATORS
from meshloom.tb.build import assembled, blocks
from meshloom.tb.build.assembly import Assembly
from meshloom.tb.build.blocks import BlockError
from meshloom.tb.build.builder import block_compiler, build
from meshloom.tb.build.compiling import OBJECTS, Compiler, CompilerError, headers
from meshloom.tb.build.runtime import OBJECTS as RUNTIME
from meshloom.tb.build.runtime import runtime
from meshloom.tb.build.tools import ToolError
from meshloom.tb.devices.interface import NoDeviceError
from meshloom.tb.devices.simulated import VERILATOR, SimulatedDevice

from .test_device import CASES, CHIP, Case

#: The smallest chip that computes anything.
SMALLEST = """
name = "smallest"
lanes = 4
rows = 2
cols = 2
floorplan = ["dram core host"]
trace_records = 16
"""


def parts_of(config: ChipConfig) -> Partition:
    """The blocks of a chip as a simulator has them."""
    return _parts(config.model_dump_json())


@functools.cache  # ten seconds each
def _parts(config: str) -> Partition:
    return partition(ChipConfig.model_validate_json(config), observed=True, loops=True)


@pytest.mark.slow
def test_threads_change_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two and more than there are processors: the same bytes, cycles, records and counters as with one."""
    case = CASES["product"]
    assert isinstance(case, Case)
    device = SimulatedDevice(build(CHIP, "verilator"))
    (alone,) = device.run([case.job])
    for count in (2, 3):
        monkeypatch.setenv("MESHLOOM_THREADS", str(count))
        first, second = device.run([case.job, case.job])
        for run in (first, second):
            assert (run.cycles, run.records, run.counters) == (alone.cycles, alone.records, alone.counters)
            assert all((some == others).all() for some, others in zip(run.memory, alone.memory, strict=True))


def test_threads_are_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHLOOM_THREADS", "two")
    with pytest.raises(NoDeviceError, match="MESHLOOM_THREADS = 'two' must be a whole number"):
        VERILATOR.open(CHIP, False, lambda what: None)


@pytest.mark.slow  # builds two simulators
def test_a_block_is_compiled_once_for_all_chips_that_have_it() -> None:
    """The same chip under another name has another digest, which its host can be asked for: nothing else is new."""
    renamed = ChipConfig.model_validate(CHIP.model_dump() | {"name": "renamed"})
    assert {name.rpartition("-")[0] for name in _libraries(renamed) ^ _libraries(CHIP)} == {"tile_host"}


def test_a_simulator_is_made_of_the_libraries_of_its_blocks() -> None:
    build(CHIP, "verilator")
    texts = {path.parent.name for path in BLOCKS.folder().glob(f"*/{OBJECTS[0]}")}
    assert _libraries(CHIP) <= texts


def test_a_simulator_takes_the_runtime_as_it_was_compiled_for_all() -> None:
    folder = build(CHIP, "verilator").folder
    assert (folder / "runtime").readlink() in {path.parent for path in BLOCKS.folder().glob(f"runtime-*/{RUNTIME[0]}")}
    for name in RUNTIME:
        assert not (folder / "model" / name).exists(), f"{name} was compiled again"


@pytest.mark.slow
def test_a_cache_may_have_any_name(tmp_path: Path) -> None:
    """Built from nothing where makefiles cannot build, and run there."""
    root = tmp_path / 'it\'s a "$X" #é:%'
    (tmp_path / "smallest.toml").write_text(SMALLEST)
    command = [sys.executable, "-m", "meshloom.tb.cli.main", "run", "gemm:4x4x4", "--chip", "smallest.toml"]
    for _ in range(2):
        ran = subprocess.run(
            command, cwd=tmp_path, env=os.environ | {cache.VARIABLE: str(root)}, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert [path.name.partition("-")[0] for path in SIMULATORS.folder(root).glob("*-*") if path.is_dir()] == [
        "smallest"
    ]


def test_a_runtime_that_cannot_be_compiled_is_named(tmp_path: Path) -> None:
    compiler = replace(block_compiler(), machine={"flags": "none"})
    with pytest.raises(CompilerError, match=r"the compiler failed on Verilator's headers; its output is in \S+\.log"):
        headers(tmp_path, replace(compiler, command=[*compiler.command, "--no-such-option"]), lambda what: None)
    with pytest.raises(CompilerError, match=r"the compiler failed on Verilator's runtime; its output is in \S+\.log"):
        runtime(tmp_path, compiler, tmp_path / "none", lambda what: None)
    assert list(BLOCKS.folder(tmp_path).glob("*-*/*")) == []


@pytest.mark.slow
def test_whoever_waits_hears_how_many_blocks_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """But nothing of the last, which needs no waiting."""
    lines: list[str] = []
    blocks: list[Future[Path]] = [Future() for _ in range(3)]
    for block in blocks:
        block.set_result(Path())
    assembled._report(blocks, lines.append)
    assert lines == []
    monkeypatch.setattr(assembled, "_REPORT_SECONDS", -1.0)
    assembled._report(blocks, lines.append)
    assert lines == [f"building the simulator: {count} of 3 blocks compiled" for count in (1, 2)]
    blocks[1] = Future()
    blocks[1].set_exception(ToolError("no room"))
    with pytest.raises(ToolError, match="no room"):
        assembled._report(blocks, lines.append)


def test_headers_that_have_changed_are_compiled_again(tmp_path: Path) -> None:
    """A compiler refuses a compiled header if one that it was made of has another date."""
    compiler = block_compiler()
    include = tmp_path / "include"
    shutil.copytree(compiler.include, include)
    compiler = replace(compiler, include=include)

    def compiled() -> tuple[Path, int]:
        folder = headers(tmp_path, compiler, lambda what: None)
        return folder, (folder / "fast.h.gch").stat().st_ino

    first = compiled()
    assert compiled() == first
    (include / "verilated.h").write_text((include / "verilated.h").read_text() + "// later\n")
    second = compiled()
    assert second[0] == first[0]
    assert second != first
    (tmp_path / "a.cpp").write_text("int a = sizeof(VerilatedContext);\n")
    with (tmp_path / "log").open("w") as printed:
        compiler.object("a.cpp", tmp_path, "fast", second[0], printed, "a")
    assert (tmp_path / "a.o").exists()


def test_each_gate_of_a_block_has_its_clock_from_outside() -> None:
    block = parts_of(CHIP).blocks["tile_spm"]
    text, own = blocks.source(block, CHIP), gates(block.verilog(), block.name)
    assert len(own) > 1
    for number, gate in enumerate(own):
        assert f".{gate}_clk(clocks[{number}])" in text
        assert re.search(rf"clock_gate {gate} \(\s+\.clk\({gate}_clk\)", text)
    with pytest.raises(BlockError, match="the gate other of tile_spm is not written as it should be"):
        blocks.clocked(block.verilog(), block.name, ["other"])


def _libraries(config: ChipConfig) -> set[str]:
    """Names under which its blocks are kept."""
    parts = parts_of(config)
    return {blocks.name(block, config, block_compiler()) for block in parts.blocks.values()}


@pytest.mark.slow
def test_wide_inputs_are_put_together_of_their_pieces() -> None:
    """A host that hears of more than 64 tiles, and narrow ones of several pieces with constants in between."""
    config = load("tiny")
    parts = parts_of(config)
    target = ("tile_16", "any_moved")
    pieces = (Piece(1, "tile_0", "moved"), Piece(3, value=5), *(Piece(1, "tile_1", "moved") for _ in range(70)))
    kinds = parts.blocks["tile_host"]
    ports = dict(kinds.ports) | {"any_moved": type(kinds.ports["any_moved"])(74, False)}
    wide = Partition(
        dict(parts.blocks) | {"tile_host": type(kinds)(kinds.name, kinds.rtlil, ports)},
        parts.instances,
        dict(parts.inputs) | {target: pieces},
    )
    text = Assembly(config, wide).text()
    (line,) = re.findall(r"put\(tile_16\.m->p_any_moved, (.*)\);", text)
    assert line.startswith("[&] { VlWide<3> to{}; place(to, 0, 1, bits(tile_0.m->p_moved, 0, 1)); place(to, 1, 3, 5);")
    assert "place(to, 73, 1, bits(tile_1.m->p_moved, 0, 1));" in line


def test_every_signal_and_channel_of_the_chip_is_in_the_text() -> None:
    """Each input is taken over exactly once, or set once, or the bench's; clocks are nobody's. The memory of a DRAM
    channel is given back before the next one's is made: unused ones could take most of a machine's."""
    config = load("tiny")
    parts = parts_of(config)
    text = Assembly(config, parts).text()
    for name in Assembly(config, parts).drams:
        made = f'{name}.make(context, "{name}");'
        assert f"{made}\n    give_back({name}.m->unit__DOT__model__DOT__mem);" in text
    for name, port in parts.inputs:
        pin = f"{name}.m->p_{port.replace('__', '_').replace('$', '_n')}"
        written = len(re.findall(rf"(?:put|set)\({re.escape(pin)},|{re.escape(pin)} = ", text))
        if port.startswith(("axi__", "bus__")) or port == "clk":
            continue
        assert written == 1, (name, port)


def test_payloads_are_carried_while_they_are_valid() -> None:
    """Those of all three planes, into a tile and out of it; everything else whenever its source has changed."""
    parts = parts_of(CHIP)
    lines = Assembly(CHIP, parts).text().splitlines()
    payloads = [line for line in lines if "_payload" in line and "put(" in line]
    assert len(payloads) == 6 * len(CHIP.tiles)
    for line in payloads:
        match = re.fullmatch(r" +if \((\w+\.m->p_\w+)_valid\) \w+\.\w+ \|= put\(\S+, (\w+\.m->p_\w+)_payload\);", line)
        assert match is not None, line
        assert match[1] == match[2], line
    assert not [line for line in lines if " if (" in line and "put(" in line and line not in payloads]


def test_a_block_with_logic_outside_of_its_pass_is_refused(tmp_path: Path) -> None:
    (tmp_path / "Vtile_spm.cpp").write_text("void Vtile_spm___024root___eval_act(Vtile_spm___024root* self) {}")
    block = parts_of(CHIP).blocks["tile_spm"]
    with pytest.raises(BlockError, match="tile_spm has logic in Verilator's active region"):
        blocks.single_pass(block, tmp_path)


@pytest.mark.slow
def test_what_the_compiler_says_is_kept(tmp_path: Path) -> None:
    """A tool that fails is named, with the block and the place of what it printed."""
    config = load("tiny")
    parts = parts_of(config)
    (tmp_path / "verilator").write_text("#!/bin/sh\necho broken here\nexit 3\n")
    (tmp_path / "verilator").chmod(0o755)
    compiler = Compiler([], ["false"], {"PATH": f"{tmp_path}:/usr/bin:/bin"}, tmp_path, {})
    with pytest.raises(CompilerError, match="verilator failed on tile_spm; its output is in") as caught:
        blocks.library(tmp_path / "cache", parts.blocks["tile_spm"], config, compiler, tmp_path, lambda what: None)
    log = Path(str(caught.value).rpartition(" is in ")[2])
    assert "broken here" in log.read_text()
    assert not [path for path in (tmp_path / "cache" / "blocks").iterdir() if path.is_dir() and path.name[0] != "."]
