"""Proofs about gateware: a bench is turned into a netlist and put to Yosys' `sat` command (MiniSat inside).

Questions that can be asked of a `Netlist`:

`induction`  do all invariants and properties hold in every cycle from reset on, without any bound? Base: they hold in
             the first cycle. Step: if they hold in a cycle, then in the next, for all values of registers and inputs.
`layered`    the same in two steps: the invariants by induction, then the properties from the invariants alone.
`refute`     a search from reset, some cycles deep, for one in which a property does not hold.
`reach`      the like for one in which a witness happens.

A trace of `refute` begins at reset and is a real run. One of `induction` or `layered` begins in any state that the
invariants allow; it may be out of reach, and then an invariant is missing.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from amaranth.hdl import Cat, Const, Module, Signal, Value

from meshloom.hw.assembly.verilog import YOSYS, to_rtlil

_PREPARE = (
    "read_rtlil bench.il; hierarchy -top bench; proc; flatten; memory -nomap; memory_map; "
    "opt -full -nodffe -nosdff; wreduce; opt_clean; dffunmap; opt -nodffe -nosdff; opt_clean; write_rtlil ready.il"
)
_SEARCH = "-tempinduct -tempinduct-baseonly -maxsteps"
_PROVED = re.compile(
    r"^(Induction step proven: SUCCESS!|SAT proof finished - no model found: SUCCESS!"
    r"|Reached maximum number of time steps -> proved base case for \d+ steps: SUCCESS!)",
    re.MULTILINE,
)
_ROW = re.compile(r"^ +(\d+) \\(\S+) +\S+ +\S+ +([01x]+) *$", re.MULTILINE)
#: Seconds of wall time after which a question is given up.
PATIENCE = 1200


class ProveError(RuntimeError):
    """A question could not be put to the solver, or got no answer in time."""


@dataclass(frozen=True)
class Shown:
    """A line of a trace: values, lowest bits first, and how they are written together (default: in hexadecimal)."""

    values: Sequence[Value]
    text: Callable[[int], str] = "{:x}".format


@dataclass
class Bench:
    """Gateware and what is claimed of it.

    `inputs` are free in every cycle. `assume`: what the surroundings keep to, in every cycle. `invariants`: claims
    about registers, proved like the rest but of interest only because the rest follows from them. `properties`: the
    theorem. `witnesses`: what must be able to happen, or else the theorem says nothing. All are values of one bit.
    `shown`: lines of a trace, by name.
    """

    module: Module
    inputs: Sequence[Signal]
    properties: Mapping[str, Value]
    invariants: Mapping[str, Value] = field(default_factory=dict[str, Value])
    assume: Mapping[str, Value] = field(default_factory=dict[str, Value])
    shown: Mapping[str, Shown] = field(default_factory=dict[str, Shown])
    witnesses: Mapping[str, Value] = field(default_factory=dict[str, Value])


@dataclass(frozen=True)
class Answer:
    """`holds`: all that was claimed. If not, `trace` has for each line its text in every cycle, and `broken` names the
    claims that fail in the last of them."""

    holds: bool
    trace: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    broken: Sequence[str] = ()

    @property
    def cycles(self) -> int:
        """Length of the trace."""
        return len(next(iter(self.trace.values()), ()))

    def table(self) -> str:
        """The trace, a line for each signal and a column for each cycle; lines with nothing but 0 or - are left out."""
        lines = {name: cells for name, cells in self.trace.items() if {*cells} - {"0", "-"}}
        lines = {"cycle": [str(cycle) for cycle in range(self.cycles)], **lines}
        widths = [max(len(cells[cycle]) for cells in lines.values()) for cycle in range(self.cycles)]
        title = max(map(len, lines))
        rows: list[str] = []
        for name, cells in lines.items():
            padded = "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
            rows.append(f"{name:<{title}}  {padded}".rstrip())
        return "\n".join(rows)


class Netlist:
    """A bench ready for questions. It can be asked any number of them; `seconds` adds up the CPU time of all.

    Raises ProveError, here and in the questions, when the solver gives no answer.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.seconds = 0.0
        began = time.process_time()
        text = self._convert()
        self.seconds += time.process_time() - began
        _, self._netlist = self._yosys({"bench.il": text}, _PREPARE, "ready.il")

    def _convert(self) -> str:
        """The bench as RTLIL. Outputs: vectors of claims, `all_<vector>` for each, and the lines of traces."""
        bench, ports = self.bench, [*self.bench.inputs]
        vectors = {"assume": bench.assume, "invariants": bench.invariants, "properties": bench.properties}
        for claims in vectors.values():
            for claim, value in claims.items():
                if len(value) != 1:
                    raise ProveError(f"{claim} has {len(value)} bits; a claim has one")
        top = Module()
        top.submodules.bench = bench.module
        for number, witness in enumerate(bench.witnesses.values()):
            port = Signal(name=f"witness_{number}")
            top.d.comb += port.eq(witness)
            ports.append(port)
        for name, claims in vectors.items():
            vector, whole = Signal(len(claims) + 1, name=name), Signal(name=f"all_{name}")
            top.d.comb += [vector.eq(Cat(*claims.values(), Const(1, 1))), whole.eq(vector.all())]
            ports += [vector, whole]
        self._lines: dict[str, tuple[str, Shown]] = {}
        for number, (name, shown) in enumerate(bench.shown.items()):
            value = Cat(*shown.values)
            port = Signal(len(value), name=f"shown_{number}")
            top.d.comb += port.eq(value)
            ports.append(port)
            self._lines[port.name] = (name, shown)
        return to_rtlil(top, "bench", ports)

    def induction(self) -> Answer:
        """Invariants and properties, together by induction."""
        return self._ask("-tempinduct -maxsteps 1", "invariants", "properties")

    def layered(self) -> Answer:
        """Invariants by induction, then the properties from them."""
        invariants = self._ask("-tempinduct -maxsteps 1", "invariants")
        if not invariants.holds:
            return invariants
        # Any state in which the invariants hold: initial values are forgotten.
        return self._ask("-seq 1 -set all_invariants 1", "properties", before="setattr -unset init w:*; ")

    def refute(self, prefix: str, cycles: int) -> Answer:
        """The properties that begin with `prefix`, in the first `cycles` cycles from reset; no trace is shorter."""
        numbers = [number for number, name in enumerate(self.bench.properties) if name.startswith(prefix)]
        if not numbers:
            raise ProveError(f"no property begins with {prefix!r}; there are: {', '.join(self.bench.properties)}")
        proving = " ".join(f"-prove properties[{number}] 1" for number in numbers)
        return self._solve(f"{_SEARCH} {cycles} {proving}", ["properties"])

    def reach(self, witness: str, cycles: int) -> Answer:
        """That a witness does *not* happen within `cycles` cycles: if `holds` is false, the trace shows how it does."""
        number = list(self.bench.witnesses).index(witness)
        return self._solve(f"{_SEARCH} {cycles} -prove witness_{number} 0", ())

    def _ask(self, how: str, *claims: str, before: str = "") -> Answer:
        proving = " ".join(f"-prove all_{name} 1" for name in claims)
        return self._solve(f"{how} {proving}", claims, before)

    def _solve(self, how: str, claims: Sequence[str], before: str = "") -> Answer:
        show = " ".join(f"-show {port}" for port in [*claims, *self._lines])
        script = f"read_rtlil ready.il; {before}sat -set rst 0 -set all_assume 1 {how} {show} bench"
        output, _ = self._yosys({"ready.il": self._netlist}, script)
        if _PROVED.search(output):
            return Answer(True)
        start = output.rfind("Time Signal Name")
        if start < 0:
            raise ProveError(f"no answer from the solver:\n{output[-2000:]}")
        bits: dict[str, dict[int, int]] = {}
        for cycle, port, value in _ROW.findall(output, start):
            bits.setdefault(port, {})[int(cycle)] = int(value.replace("x", "0"), 2)
        trace = {
            name: [shown.text(value) for _, value in sorted(bits.get(port, {}).items())]
            for port, (name, shown) in self._lines.items()
        }
        broken: list[str] = []
        for vector in claims:
            final = bits[vector][max(bits[vector])]
            names = getattr(self.bench, vector)
            broken += [name for number, name in enumerate(names) if not final >> number & 1]
        return Answer(False, trace, broken)

    def _yosys(self, files: Mapping[str, str], script: str, result: str = "") -> tuple[str, str]:
        """(output, text of the file `result`) of a script that finds `files` in its folder."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with tempfile.TemporaryDirectory(prefix="meshloom_") as folder:
            for name, text in files.items():
                (Path(folder) / name).write_text(text)
            command = [sys.executable, "-c", YOSYS, script]
            try:
                done = subprocess.run(
                    command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
                )
            except subprocess.TimeoutExpired as error:
                raise ProveError(f"no answer within {PATIENCE} s") from error
            value = (Path(folder) / result).read_text() if result and not done.returncode else ""
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.seconds += after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if done.returncode:
            raise ProveError(f"the solver failed: {(done.stderr or done.stdout).strip()[-2000:]}")
        return done.stdout, value
