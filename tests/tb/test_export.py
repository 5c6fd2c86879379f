"""Exported workloads: images, the C driver on a chip that is played, the bench in both simulators."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.registers import Register
from meshloom.sched.program import image
from meshloom.tb.build.builder import block_compiler, tool_variables
from meshloom.tb.results import export as record
from meshloom.tb.results.record import ResultsError
from meshloom.tb.runs.export import export, texts
from meshloom.tb.runs.export.contents import Contents, Words, contents, merged
from meshloom.tb.runs.export.folder import ExportError, write_folder
from meshloom.tb.runs.kinds.interface import Listener
from meshloom.tb.runs.kinds.table import one
from meshloom.tb.runs.outputs import OutputWords

from ..transcripts import files as page_files
from ..transcripts import missing, shell, transcript
from .command_line import invoke
from .test_cli_files import saved_schedule

PAGE = Path(__file__).parents[2] / "docs" / "export.md"
TINY = load("tiny")
SOURCES = ("bench.v", "dram_model.v", "clock_gate.v", "chip/tiny.v")
COMPILERS = [name for name in ("gcc", "clang-19", "clang") if shutil.which(name)]
#: A board whose chip is played: it computes what is right but for one bit, or stops.
BOARD = """\
#include <string.h>
#include "meshloom_image.h"
extern unsigned char board_dram[1 << 16];
uint32_t board_read(uint32_t address);
void board_write(uint32_t address, uint32_t value);
#define MESHLOOM_READ(address) board_read(address)
#define MESHLOOM_WRITE(address, value) board_write(address, value)
#define MESHLOOM_DRAM(channel) (&board_dram[(channel) * 0u])
#define MESHLOOM_POLLS 100u
"""
PLAYED = """\
#include <stdio.h>
#include <string.h>
#include "board.h"
#include "meshloom_driver.h"
unsigned char board_dram[1 << 16];
static uint32_t written[64];
static int started = BEGUN;
uint32_t board_read(uint32_t address)
{
    if (address == MESHLOOM_ID) return MESHLOOM_CHIP_ID;
    if (address == MESHLOOM_CONFIG) return MESHLOOM_CHIP_CONFIG + OTHER;
    if (address == MESHLOOM_CYCLES) return 123;
    if (address == MESHLOOM_FAULT_WHO) return 0x77;
    if (address == MESHLOOM_STATUS) return started ? ENDS : READY;
    return 0;
}
void board_write(uint32_t address, uint32_t value)
{
    uint32_t i;
    written[address / 4] = value;
    if (address == MESHLOOM_CONTROL && value == MESHLOOM_CONTROL_RESET) started = 0;
    if (address != MESHLOOM_CONTROL || value != 1u) return;
    started = written[MESHLOOM_PROGRAM_COUNT / 4] == MESHLOOM_RUN_PROGRAM_COUNT;
    for (i = 0; i < MESHLOOM_OUTPUTS; i++)
        memcpy(board_dram + meshloom_outputs[i].address, meshloom_outputs[i].bytes, meshloom_outputs[i].size);
    board_dram[WRONG] ^= 0x10;
}
int main(void)
{
    struct meshloom_report report;
    enum meshloom_result result = meshloom_run(&report);
    printf("%d %u %u ", (int)result, (unsigned)report.cycles, (unsigned)report.address);
    printf("%u\\n", (unsigned)report.fault_who);
    return 0;
}
"""


@pytest.fixture
def no_verilog(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chip's Verilog is not looked at."""

    def emit(config: ChipConfig, folder: Path) -> tuple[Path, ...]:
        (folder / f"{config.name}.v").write_text("module chip;\nendmodule\n")
        return (folder / f"{config.name}.v",)

    monkeypatch.setattr(export, "emit_verilog", emit)


def written(name: str, folder: Path, chip: ChipConfig = TINY) -> Path:
    """A workload, exported to a folder."""
    (run,) = one(name, chip).prepare(chip, "loop_order", Listener())
    write_folder(folder, export.files(run, chip))
    return folder


@pytest.fixture
def small(tmp_path: Path, no_verilog: None) -> Path:
    return written("gemm:5x3x6", tmp_path / "small")


def test_the_manifest_says_what_the_files_hold(small: Path) -> None:
    (run,) = one("gemm:5x3x6", TINY).prepare(TINY, "loop_order", Listener())
    manifest, job = record.load(small), run.job(TINY)
    assert (manifest.chip, manifest.digest, manifest.config) == ("tiny", TINY.digest, int(TINY.digest[-8:], 16))
    assert manifest.cycles == run.timeline.cycles
    assert manifest.registers["STALL_LIMIT"] == Register.STALL_LIMIT
    assert {path.relative_to(small).as_posix() for path in small.rglob("*.*")} == {*manifest.files, record.NAME}
    (channel,) = manifest.channels
    memory = np.frombuffer((small / channel.binary).read_bytes(), np.uint8).reshape(-1, TINY.lanes)
    dram = np.zeros((TINY.dram.words, TINY.lanes), np.uint8)
    for each in channel.ranges:
        dram[each.address : each.address + each.words] = memory[each.offset : each.offset + each.words]
    for _, at, words in [*job.memory, *job.program.image(TINY)]:
        assert (dram[at : at + len(words)] == words).all()
    ((_, at, count),) = job.outputs
    assert (dram[at : at + count] == 0xA5).all()
    text = (small / channel.text).read_text().split()
    first = channel.ranges[0]
    assert text[:2] == [f"@{first.address:x}", bytes(memory[0, ::-1]).hex()]
    assert len(text) == len(memory) + len(channel.ranges)
    assert image.from_bytes((small / manifest.program).read_bytes(), TINY).boot == job.program.boot
    (output,) = manifest.outputs
    assert [(each.address, each.words) for each in output.ranges] == [(at, count)]
    assert len((small / manifest.expected.binary).read_bytes()) == count * TINY.lanes
    assert manifest.expected.compared_text is None


def test_a_damaged_manifest_is_refused(small: Path) -> None:
    path = small / record.NAME
    values = json.loads(path.read_text())
    for text, why in (
        ("{", "is no manifest of an exported workload: it is no JSON"),
        ("[]", "is no manifest of an exported workload"),
        (json.dumps(values | {"lanes": 0}), "lanes = 0 must be at least 1"),
        (json.dumps(values | {"more": 0}), "more: there is no such field"),
    ):
        path.write_text(text)
        with pytest.raises(ResultsError, match=re.escape(why)):
            record.load(small)


def test_ranges_neither_overlap_nor_touch_and_later_loads_win() -> None:
    def words(address: int, *values: int) -> Words:
        return Words(address, np.array(values, np.uint8).reshape(-1, 1))

    ranges = [*merged([words(4, 1, 1, 1), words(7, 2), words(5, 3), words(20, 9), words(0)])]
    assert [(each.address, each.words.ravel().tolist()) for each in ranges] == [(4, [1, 3, 1, 2]), (20, [9])]


def played(folder: Path, *, compiler: str = "gcc", **values: object) -> list[int]:
    """What the driver reports of a played chip."""
    shutil.copytree(folder, folder.parent / "played", dirs_exist_ok=True)
    place = folder.parent / "played"
    (place / "board.h").write_text(BOARD)
    (place / "main.c").write_text(PLAYED)
    defaults = {
        "OTHER": 0,
        "BEGUN": 0,
        "READY": "MESHLOOM_STATUS_READY",
        "ENDS": "MESHLOOM_STATUS_DONE",
        "WRONG": (1 << 16) - 1,
    }
    options = [f"-D{name}={value}" for name, value in (defaults | values).items()]
    sources = ("meshloom_driver.c", "meshloom_image.c", "main.c")
    flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", '-DMESHLOOM_BOARD="board.h"']
    subprocess.run([compiler, *flags, *options, *sources, "-o", "played"], cwd=place, check=True)
    done = subprocess.run([place / "played"], capture_output=True, text=True, check=True)
    return [int(number) for number in done.stdout.split()]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_driver_passes_a_chip_that_is_right(compiler: str, small: Path) -> None:
    assert played(small, compiler=compiler)[:2] == [0, 123]
    assert played(small, compiler=compiler, BEGUN=1)[:2] == [0, 123], "in the middle of something, it is reset"
    assert len((small / "meshloom_driver.c").read_text().splitlines()) <= 200


def test_the_driver_is_cpp_too(small: Path) -> None:
    command = [*block_compiler().command, "-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-Werror"]
    command += [
        "-DMESHLOOM_REGISTERS=0x40000000",
        "-DMESHLOOM_DRAM(n)=(0x80000000u + ((n) << 24))",
        "-c",
        "meshloom_driver.c",
        "meshloom_image.c",
    ]
    subprocess.run(command, cwd=small, check=True)
    names = subprocess.run(["nm", "meshloom_driver.o"], cwd=small, capture_output=True, text=True, check=True).stdout
    assert " T meshloom_run\n" in names, "as C calls it"


def test_the_driver_says_what_went_wrong(small: Path) -> None:
    place = record.load(small).outputs[0].ranges[0]
    wrong = place.address * TINY.lanes + 9
    assert played(small, OTHER=1)[0] == 1
    assert played(small, READY=0)[0] == 2
    assert played(small, ENDS="MESHLOOM_STATUS_FAULT") == [3, 123, 0, 0x77]
    assert played(small, ENDS="MESHLOOM_STATUS_RUNNING")[0] == 4
    assert played(small, WRONG=wrong) == [5, 123, wrong, 0]


def test_the_driver_needs_memcpy_alone(small: Path) -> None:
    command = ["gcc", "-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-DMESHLOOM_REGISTERS=0x40000000"]
    command += ["-DMESHLOOM_DRAM(n)=(0x80000000u + ((n) << 24))", "-c", "meshloom_driver.c"]
    subprocess.run(command, cwd=small, check=True)
    needs = subprocess.run(["nm", "-u", "meshloom_driver.o"], cwd=small, capture_output=True, text=True, check=True)
    assert set(needs.stdout.split()) - {"U"} <= {"memcpy", "memset", "meshloom_loads", "meshloom_outputs"}


def test_bytes_that_do_not_count_are_not_compared(tmp_path: Path, no_verilog: None, monkeypatch: Any) -> None:
    whole: Any = contents

    def partly(job: Any, outputs: Any, chip: ChipConfig) -> Contents:
        (one,) = outputs
        count = np.ones_like(one.words, np.bool_)
        count[1, 2] = False
        return whole(job, [OutputWords(one.name, one.locations, one.words, count)], chip)

    monkeypatch.setattr(export, "contents", partly)
    folder = written("gemm:5x3x6", tmp_path / "partly")
    place = record.load(folder).outputs[0].ranges[0].address * TINY.lanes
    assert (folder / "compared.bin").read_bytes()[4:8] == b"\xff\xff\0\xff"
    assert '$readmemh("compared.hex", compared);' in (folder / "bench.v").read_text()
    assert played(folder, WRONG=place + 6)[0] == 0
    assert played(folder, WRONG=place + 7)[:3] == [5, 123, place + 7]


def test_a_folder_of_somebody_else_stays(small: Path, tmp_path: Path) -> None:
    before = (small / record.NAME).read_bytes()
    write_folder(small, {record.NAME: before})  # its own it replaces whole
    assert [path.name for path in small.iterdir()] == [record.NAME]
    (small / "mine").touch()
    with pytest.raises(ExportError, match="has mine, which `meshloom export` did not write; move it away first"):
        write_folder(small, {"a": b""})
    other = tmp_path / "other"
    other.mkdir()
    write_folder(other, {"a": b"1", "b/c": b"2"})
    assert (other / "b" / "c").read_bytes() == b"2"
    with pytest.raises(ExportError, match="has files that `meshloom export` did not write; empty it"):
        write_folder(other, {"a": b""})
    with pytest.raises(ExportError, match="is no folder; name another place"):
        write_folder(other / "a", {})
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(ExportError, match="is a link that leads nowhere"):
        write_folder(tmp_path / "link", {})


def test_a_file_that_was_changed_stays(small: Path) -> None:
    path = small / "meshloom_driver.c"
    path.write_text("/* mine */")
    with pytest.raises(ExportError, match=r"meshloom_driver\.c has been changed since it was written"):
        write_folder(small, {"a": b""})
    assert path.read_text() == "/* mine */"


def test_the_old_folder_stays_when_the_new_one_cannot_be_moved(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename, names = Path.rename, sorted(path.name for path in small.iterdir())

    def fails(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(OSError, match="small: cannot be written: No space left on device"):
        write_folder(small, {"a": b""})
    assert sorted(path.name for path in small.iterdir()) == names
    assert [path.name for path in small.parent.iterdir()] == ["small"]


def test_wrong_requests_are_refused_before_anything_is_done(folder: Path) -> None:
    refused = invoke("export", "gemm:4x4x4", "--chip", "tiny", "--out", "a", "--input", "x.npy")
    assert (refused.exit_code, "gemm:4x4x4 has its own input" in refused.output) == (2, True)
    saved_schedule(folder / "one.json").model_copy(update={"workload": ""}).save(folder / "one.json")
    refused = invoke("export", "one.json", "--chip", "tiny", "--out", "a")
    assert refused.exit_code == 2
    assert "nobody knows what it computes; export the workload itself" in " ".join(refused.output.split())
    assert invoke("export", "gemm:4x4x4", "--chip", "tiny").exit_code == 2
    assert not (folder / "a").exists()


def test_a_network_is_exported_for_one_input(folder: Path) -> None:
    pair = folder / "pair.npy"
    np.save(pair, np.zeros((2, 16, 3, 3), np.uint8))
    network(folder / "net.onnx")
    refused = invoke("export", "net.onnx", "--chip", "tiny", "--out", "a", "--input", "pair.npy")
    text = " ".join(refused.output.replace("│", "").split())
    assert (refused.exit_code, "has 2 inputs; give one sample, [1, 16, 3, 3]" in text) == (2, True)
    np.savez(folder / "pair.npz", **{onnx.load("net.onnx").graph.input[0].name: np.load(pair)})
    late = invoke("export", "net.onnx", "--chip", "tiny", "--out", "a", "--input", "pair.npz")
    assert (late.exit_code, "has 2 inputs; give one" in " ".join(late.output.split())) == (2, True)


def network(path: Path) -> None:
    """A float model of a layer and a sigmoid, whose lanes without a channel hold no zeros."""
    rng = np.random.default_rng(1)
    weights = onnx.numpy_helper.from_array(rng.normal(size=(6, 16, 1, 1)).astype(np.float32), "w")
    nodes = [onnx.helper.make_node("Conv", ["x", "w"], ["c"]), onnx.helper.make_node("Sigmoid", ["c"], ["y"])]
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 16, 3, 3])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 6, 3, 3])
    graph = onnx.helper.make_graph(nodes, "net", [x], [y], [weights])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)


def icarus(folder: Path, place: Path | None = None) -> str:
    """What the bench prints in Icarus, run in its folder or another one."""
    program = folder.parent / f"{folder.name}.vvp"
    if not program.exists():
        command = ["iverilog", "-g2005", "-Wall", "-s", "bench", "-o", program, *SOURCES]
        said = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        assert said.stderr == ""
    return subprocess.run(
        ["vvp", "-n", program], cwd=place or folder, capture_output=True, text=True, check=True
    ).stdout


def test_the_bench_runs_in_icarus(tmp_path: Path) -> None:
    folder = written("gemm:8x8x8", tmp_path / "gemm")
    manifest = record.load(folder)
    assert icarus(folder) == f"PASS: 64 bytes, {manifest.cycles} cycles (predicted {manifest.cycles})\n"
    assert icarus(folder, tmp_path) == "FAIL: expected.hex is not here; run the bench in its own folder\n"
    lines = (folder / "expected.hex").read_text().split()
    lines[3] = f"{int(lines[3], 16) ^ 0x100:08x}"  # word 2, lane 1
    (folder / "expected.hex").write_text("\n".join(lines))
    place = (manifest.outputs[0].ranges[0].address + 2) * TINY.lanes + 1
    assert icarus(folder).startswith(f"FAIL: channel 0, byte address {place:#x} is 0x")


@pytest.mark.slow  # two simulations of a network
def test_a_network_of_a_user_runs_in_icarus(folder: Path) -> None:
    network(folder / "net.onnx")
    np.save(folder / "x.npy", np.random.default_rng(2).normal(size=(1, 16, 3, 3)).astype(np.float32))
    done = invoke("export", "net.onnx", "--chip", "tiny", "--input", "x.npy", "--out", "net")
    assert done.exit_code == 0, done.output
    assert "compared.hex" in done.output  # of a word of 4 lanes, 2 have no channel
    assert icarus(folder / "net").startswith("PASS: ")


@pytest.mark.slow  # compiles a simulator
def test_the_bench_runs_in_verilator(tmp_path: Path) -> None:
    folder = written("gemm:16x16x16", tmp_path / "gemm")
    command = ["verilator", "--binary", "--timing", "-Wno-lint", "-Wno-style"]
    command += ["-CFLAGS", "-std=c++20", "--top-module", "bench", "chip/tiny.vlt", *SOURCES]
    environment = tool_variables()
    subprocess.run([*command, "--Mdir", tmp_path / "model"], cwd=folder, check=True, env=environment)
    said = subprocess.run([tmp_path / "model" / "Vbench"], cwd=folder, capture_output=True, text=True, check=True)
    cycles = record.load(folder).cycles
    assert said.stdout.startswith(f"PASS: 256 bytes, {cycles} cycles (predicted {cycles})\n")


@pytest.mark.slow  # what the page shows, as it stands
def test_the_page_is_right(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    commands = transcript(text)
    assert len(commands) == 2
    for command in commands:
        done = shell(command.line, tmp_path)
        assert done.returncode == 0, done.stdout
        assert missing(command.lines, done.stdout) is None, done.stdout
    (compile_driver,) = re.findall(r"^    (cc .*)$", text, re.MULTILINE)
    assert shell(compile_driver, tmp_path / "gemm").returncode == 0
    assert page_files(text) == {}
    (main,) = re.findall(r"^    # main\.c\n((?:    .*\n|\n)+?)^    cc ", text, re.MULTILINE)
    (tmp_path / "gemm" / "main.c").write_text(re.sub(r"^    ", "", main, flags=re.MULTILINE))
    assert shell("cc -std=c99 -Wall -Wextra -Werror -c main.c", tmp_path / "gemm").returncode == 0


def test_every_file_of_the_folder_is_on_the_page(small: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in record.load(small).files:
        stem, _, end = re.sub(r"\d", "<n>", name).rpartition(".")
        assert f"`{stem}.{end}`" in text or (f"`{stem}." in text and f"`.{end}`" in text) or name.startswith("chip/")


@pytest.mark.parametrize("count", [1, 15, 16, 17, 40])
def test_bytes_of_an_array_in_c(count: int) -> None:
    text = texts._array("words", np.arange(200, 200 + count, dtype=np.uint8)[None])
    head, *lines, end = text.splitlines()
    assert (head, end) == ("static const uint8_t words[] = {", "};")
    assert [int(number) for number in " ".join(lines).replace(",", " ").split()] == [*range(200, 200 + count)]
    assert max(map(len, lines)) <= 120
