"""A simulator in which a bit of a register or of a memory flips in the middle of a run (`tb.verify.upsets`).

The gateware that ships knows nothing of it: a module beside the bench (`upset`) reads which bit is to flip, and when,
in each job, and changes it between two edges of the clock, as a particle does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.store.kinds import SIMULATORS as KIND
from meshloom.sched.store.store import OnProgress, Recipe, key

from . import bench
from .builder import OUTPUT, PROGRAMS, Build, BuildError, ingredients, tool_environment

#: What the simulator reads, in the folder of the run: a line for each job. What it writes: jobs in which a bit flipped.
UPSETS, FLIPPED = "upsets.hex", "flipped.txt"
#: Cycles of a job after which the simulator ends: the chip's own watchdog may be what was hit.
MOST_CYCLES = 30_000
_MODULE = re.compile(r"^module (\\\S+ |\w+)\s*\(", re.MULTILINE)
_INSTANCE = re.compile(r"^  (\\\S+ |\w+) (\\\S+ |\w+)\s*\($", re.MULTILINE)
#: A register has a value from the start, a memory has words; what has neither is a net.
_REGISTER = re.compile(r"^  reg (?:\[(\d+):0\] )?(\\\S+ |\w+) = ", re.MULTILINE)
_MEMORY = re.compile(r"^  reg \[(\d+):0\] (\\\S+ |\w+) ?\[(\d+):0\];", re.MULTILINE)

_UPSET = """
module upset;
  reg [127:0] upsets [0:4095];
  initial $readmemh("{upsets}", upsets);
  wire [127:0] wanted = upsets[bench.job];
  wire [31:0] cycle = wanted[31:0], word_ = wanted[79:48], target = wanted[111:80];
  wire [15:0] bit_ = wanted[47:32], second = wanted[127:112];
  reg [31:0] here = 0, spent = 0, done = 32'hffffffff;
  integer file;
  always @(negedge bench.clk) begin
    spent = here == bench.job ? spent + 1 : 0;
    here = bench.job;
    if (spent > {most}) $finish;
    if (bench.dut.{tile}.now == cycle && done != bench.job) begin
      done = bench.job;
      file = $fopen("{flipped}", "a");
      $fdisplay(file, "%0d", bench.job);
      $fclose(file);
      case (target)
{cases}
        default: ;
      endcase
    end
  end
endmodule
"""


@dataclass(frozen=True)
class StatePlace:
    """A register (`words`: 1), or a memory: its instance below the chip, its name, its module, and its size."""

    instance: str
    name: str
    module: str
    bits: int
    words: int

    @property
    def path(self) -> str:
        """How the bench refers to it."""
        return f"bench.dut.{self.instance}{'.' if self.instance else ''}{self.name}"


@dataclass(frozen=True)
class Upset:
    """Bit `bit` of a word (0 in a register) of place `place`, and bit `second` with it, in a cycle of the run."""

    place: int
    word: int
    bit: int
    cycle: int
    second: int | None = None

    def line(self) -> str:
        """A line of `UPSETS`."""
        second = _NONE if self.second is None else self.second
        return f"{second << 112 | self.place << 80 | self.word << 48 | self.bit << 32 | self.cycle:032x}"


#: The second bit of a flip of one bit: no word is as wide.
_NONE = 0xFFFF
#: The line of a job in which nothing flips.
NOTHING = "f" * 32


def places(text: str, top: str = "chip") -> list[StatePlace]:
    """All registers and memories of the chip in its Verilog, in the order of their paths."""
    starts = list(_MODULE.finditer(text))
    ends = [*(start.start() for start in starts[1:]), len(text)]
    bodies = {start[1]: text[start.end() : end] for start, end in zip(starts, ends, strict=True)}

    def below(module: str, instance: str) -> Iterator[StatePlace]:
        body = bodies[module]
        for width, name in _REGISTER.findall(body):
            yield StatePlace(instance, name, module.strip(), int(width or 0) + 1, 1)
        for width, name, last in _MEMORY.findall(body):
            yield StatePlace(instance, name, module.strip(), int(width) + 1, int(last) + 1)
        for kind, name in _INSTANCE.findall(body):
            if kind in bodies:
                yield from below(kind, f"{instance}.{name}" if instance else name)

    return list(below(top, ""))


def _case(number: int, place: StatePlace) -> str:
    mask = f"{{{{{place.bits - 1}{{1'b0}}}}, 1'b1}}" if place.bits > 1 else "1'b1"
    bit = f"(({mask} << bit_) | ({mask} << second))"
    target = place.path if place.words == 1 else f"{place.path}[word_]"
    return f"        {number}: {target} = {target} ^ {bit};"


def build_with_upsets(config: ChipConfig, on_progress: OnProgress = lambda what: None) -> Build:
    """The simulator of a chip whose bits flip, from the cache if it is there. Raises BuildError, StoreError."""

    def make(folder: Path, log: Path) -> None:
        from meshloom.hw.assembly.verilog import EmitError

        try:
            _compile(folder, config, log)
        except EmitError as error:
            raise BuildError(f"icarus did not build {config.name}: {error}") from error

    parts = ingredients(config, "icarus", False) | {"upsets": Path(__file__).read_text(encoding="utf-8")}
    folder, fresh = KIND.store(OUTPUT, on_progress).build(
        Recipe(key(f"{config.name}-upsets", **parts), make, PROGRAMS["icarus"])
    )
    return Build(config, "icarus", False, folder, fresh)


def places_of(build: Build) -> list[StatePlace]:
    """The registers and memories of a chip in its simulator."""
    return places((build.folder / "chip.v").read_text(encoding="utf-8"))


def _compile(folder: Path, config: ChipConfig, log: Path) -> None:
    from meshloom.hw.assembly import verilog as chip_verilog

    chip, top, module = folder / "chip.v", folder / "bench.v", folder / "upset.v"
    text = chip_verilog.verilog(config, gated=False, observed=True, loops=False)
    chip.write_text(text)
    head, end, tail = bench.verilog(config, False).rpartition("endmodule")
    top.write_text(f"{head}  upset upset_0();\n{end}{tail}")
    some = places(text)
    tile = next(place.instance.partition(".")[0] for place in some if place.module == "tile_core")
    cases = "\n".join(_case(number, place) for number, place in enumerate(some))
    module.write_text(_UPSET.format(upsets=UPSETS, flipped=FLIPPED, most=MOST_CYCLES, tile=tile, cases=cases))
    sources = [chip, *sorted((Path(__file__).parent / "verilog").glob("*.v")), top, module]
    with tool_environment():
        from cocotb_tools.runner import get_runner

        try:
            get_runner("icarus").build(
                sources=sources, hdl_toplevel="bench", build_dir=folder / "model", timescale=("1ns", "1ns"),
                always=True, log_file=log,
            )  # fmt: skip
        except (SystemExit, RuntimeError, OSError) as error:
            raise BuildError(f"icarus did not build {config.name}: {error}; its output is in {log}") from error
