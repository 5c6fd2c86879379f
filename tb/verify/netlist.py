"""`python -m meshloom.tb.verify.netlist`, which `make netlist` runs: what Yosys makes of a chip is what was meant.

A workload runs on the netlist of the whole chip, in gates and flip-flops, on the test bench that `meshloom export`
writes: every byte and the cycles must be the RTL's. And each of the chip's modules that is small enough is proven equal
to its netlist, by induction over the registers of both.

Exit status: 0 all is well; 1 something is not; 2 bad input.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from meshloom.hw.assembly.verilog import verilog
from meshloom.hw.spec.config import ChipConfig, ConfigError, load

from ..build.builder import ROOT, BuildError, tool_variables
from ..build.synthesis import yosys

#: What runs, on which chip, unless others are named.
WORKLOAD, CHIP = "gemm:8x8x8", str(ROOT / "examples" / "boards" / "fpga4.toml")
#: Bits of wires up to which a module is proven equal, or of memories: beyond it takes more than a minute.
BITS = 2_000
#: Everything but memories, which stay arrays, in gates of two inputs, multiplexers and flip-flops.
_SYNTHESIS = (
    "synth -flatten -top {top} -run begin:fine; opt -fast -full; opt -undriven -fine; techmap; opt; abc; opt_clean"
)
#: A module as it is written, with its memories as flip-flops, so that these correspond to those of the netlist, and
#: nets that are one there as one. But an output that is another's net gets a buffer, else one of the two is compared
#: with itself.
_GOLD = "read_verilog chip.v; hierarchy -top {top}; proc; flatten; opt_clean; memory; opt -full; opt_clean; insbuf; "
#: The names of all its wires, and of its ports and registers: these are compared. What lies between may differ where
#: nobody sees it.
_LISTS = (
    "tee -o all.txt select -list w:*; "
    "tee -o kept.txt select -list i:* o:* %u t:$*dff* t:$*dlatch* %u %co1:+[Q] w:* %i %u"
)
#: By induction over both, first with unknown values as such, which a netlist may make anything of, then without.
_PROOF = (
    f"{_GOLD}design -save gold; "
    "synth -top {top}; insbuf; design -stash gate; "
    "design -copy-from gold -as gold {top}; design -copy-from gate -as gate {top}; "
    "equiv_make -blacklist inner.txt gold gate both; hierarchy -top both; "
    "equiv_simple -undef; equiv_induct -undef; equiv_simple; equiv_induct; "
    "tee -o status.txt equiv_status"
)
_MODULE = re.compile(r"^module (\S+?)\s*\(.*?^endmodule$", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"\w+")
#: Routers of a plane and what is in them are the same but for their place: one of each stands for all.
_PLACE = re.compile(r"_\d+_\d+")


@dataclass(frozen=True)
class Verdict:
    """Of a module: `bits` of its wires; `points` where it was compared with its netlist, and how many of these are
    `unproven`."""

    module: str
    bits: int
    points: int
    unproven: int

    @property
    def passed(self) -> bool:
        """Whether it was compared anywhere, and is equal everywhere."""
        return self.points > 0 and self.unproven == 0


def netlist(text: str, top: str) -> str:
    """A module of a Verilog text, with all below it, as Verilog of gates. Clock gates stay instances. Raises
    BuildError."""
    with tempfile.TemporaryDirectory(prefix="meshloom_") as place:
        folder = Path(place)
        (folder / "chip.v").write_text(text, encoding="utf-8")
        yosys(f"read_verilog chip.v; {_SYNTHESIS.format(top=top)}; write_verilog -noattr net.v", folder, top)
        return (folder / "net.v").read_text(encoding="utf-8")


def modules(text: str) -> list[str]:
    """The modules of a chip's Verilog that are not the same as another but for their place."""
    names = {_PLACE.sub("", name): name for name in reversed(_MODULE.findall(text))}
    return sorted(names.values())


def part(text: str, module: str) -> str:
    """Of a chip's Verilog a module and those that it is made of: Yosys reads these in a moment."""
    bodies = {match[1]: match[0] for match in _MODULE.finditer(text)}
    names, left = {module}, [module]
    while left:
        more = bodies.keys() & set(_WORD.findall(bodies[left.pop()])) - names
        names |= more
        left += sorted(more)
    return "\n".join(body for name, body in bodies.items() if name in names) + "\n"


def equal(text: str, module: str, most: int = BITS) -> Verdict | None:
    """Whether a module of a Verilog text is equal to its netlist; None if it is larger than `most` (`BITS`). Raises
    BuildError."""
    with tempfile.TemporaryDirectory(prefix="meshloom_") as place:
        folder = Path(place)
        (folder / "chip.v").write_text(part(text, module), encoding="utf-8")
        bits = _bits(folder, module)
        if bits > most:
            return None
        yosys(_GOLD.format(top=module) + _LISTS, folder, module)
        wires, kept = (set(_listed(folder / name)) for name in ("all.txt", "kept.txt"))
        (folder / "inner.txt").write_text("".join(f"{name}\n" for name in sorted(wires - kept)), encoding="utf-8")
        yosys(_PROOF.format(top=module), folder, module)
        status = (folder / "status.txt").read_text(encoding="utf-8")
    count = re.search(
        r"Found (\d+) \$equiv cells.*?Of those cells (\d+) are proven and (\d+) are unproven", status, re.DOTALL
    )
    points, unproven = (int(count[1]), int(count[3])) if count else (0, 0)
    return Verdict(module, bits, points, unproven)


def _listed(path: Path) -> Iterator[str]:
    """The names of a list that Yosys has written, without that of their module."""
    for line in path.read_text(encoding="utf-8").splitlines():
        _, slash, name = line.partition("/")
        if slash:
            yield name.strip()


def _bits(folder: Path, module: str) -> int:
    """Of wires, or of memories if these are more: as flip-flops they would be as many."""
    yosys(
        f"read_verilog chip.v; hierarchy -top {module}; proc; flatten; opt_clean; tee -o before.txt stat",
        folder,
        module,
    )
    text = (folder / "before.txt").read_text(encoding="utf-8")
    counts = re.findall(r"(\d+) (?:memory|wire) bits", text)
    return max(map(int, counts), default=0)


def run_netlist(folder: Path) -> str:
    """What the test bench in a folder that `meshloom export` has written prints when the netlist is in the chip's
    place, under Verilator. Raises BuildError."""
    (chip,) = (path for path in (folder / "chip").glob("*.v"))
    (folder / "netlist.v").write_text(netlist(chip.read_text(encoding="utf-8"), "chip"), encoding="utf-8")
    sources = sorted(path.name for path in folder.glob("*.v"))
    command = [
        "verilator",
        "--binary",
        "--timing",
        "-Wno-lint",
        "-Wno-style",
        "-Wno-UNOPTFLAT",
        "-O1",
        "--top-module",
        "bench",
    ]
    _run([*command, "-CFLAGS", "-std=c++20 -O0", "--Mdir", "model", *sources], folder)
    return printed(folder)


def printed(folder: Path) -> str:
    """What the bench prints there once it is compiled. Raises BuildError."""
    return _run([str(folder / "model" / "Vbench")], folder)


def _run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, env=tool_variables(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{command[0]} failed on the netlist: {(done.stderr or done.stdout).strip()[-1000:]}")
    return done.stdout


def exported(chip: ChipConfig, workload: str, folder: Path) -> None:
    """Writes a layer as `meshloom export` does. Raises WorkloadError, EmitError."""
    from ..runs.export.export import files
    from ..runs.kinds.interface import Listener
    from ..runs.kinds.table import one

    request = one(workload)
    request.check(chip)
    (run,) = request.prepare(chip, "loop_order", Listener())
    for name, content in files(run, chip).items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def verdicts(text: str, names: Sequence[str]) -> Iterator[tuple[str, Verdict | None]]:
    """Of all of these, as they come, two at a time."""

    def judge(name: str) -> Verdict | None:
        return equal(text, name)

    with ThreadPoolExecutor(2) as pool:
        yield from zip(names, pool.map(judge, names), strict=True)


app = typer.Typer()


@app.command()
def main(
    chip: Annotated[str, typer.Option(metavar="NAME|TOML")] = CHIP,
    workload: Annotated[str, typer.Option(metavar="LAYER")] = WORKLOAD,
    module: Annotated[list[str] | None, typer.Option(metavar="PART", help="Modules with this in their name.")] = None,
) -> None:
    """Run a layer on the netlist of a chip, and prove modules equal to theirs."""
    try:
        config = load(chip)
    except ConfigError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    failures = 0
    if not module:
        with tempfile.TemporaryDirectory(prefix="meshloom_") as place:
            exported(config, workload, Path(place))
            said = run_netlist(Path(place)).splitlines()
        failures += not said or not said[0].startswith("PASS")
        typer.echo(f"{workload} on the netlist of {config.name}: {said[0] if said else 'nothing was printed'}")
    text = verilog(config)
    names = [name for name in modules(text) if not module or any(part in name for part in module)]
    if not names:
        typer.echo(f"error: no module of {config.name} has {' or '.join(module or ())} in its name", err=True)
        raise typer.Exit(2)
    proven = large = 0
    for name, verdict in verdicts(text, names):
        if verdict is None:
            large += 1
            continue
        proven += verdict.passed
        failures += not verdict.passed
        words = "equal" if verdict.passed else f"NOT PROVEN at {verdict.unproven} of {verdict.points} points"
        typer.echo(f"{name:<50} {verdict.bits:>6,} bits  {words}")
    typer.echo(f"{proven} modules are equal to their netlists, {large} are too large to be tried")
    raise typer.Exit(int(failures > 0))


if __name__ == "__main__":
    app()
