"""What DRAM with banks costs: workloads on the RTL with a flat channel and with a part's rows and refreshes; row hits
by arbitration; and patterns of bursts beside what DRAMsim3 takes for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.program.program import Program

from ...results.schema import Row
from ...runs.kinds.interface import Listener
from ...runs.kinds.table import one
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count, mean_ratio, ratio, share, table
from ..points.runs import Changes, RunPoint, chip_of, scheduled_by, wrong_with
from . import dram_traffic
from .dram_traffic import CHANNELS, COUNT, PATTERNS, Replay

CHIP = "quad16"
#: The first are those of the quick study.
WORKLOADS = ("gemm:256x256x256", "resnet8", "ds_cnn", "minilm_block", "vww", "squeezenet")
QUICK = 3
#: At 800 MHz a word a cycle is all that the part has; with the way to it a read of a closed row takes 40 cycles, as
#: with a flat channel by default.
PART = "lpddr4_3200"
BANKS: Changes = (("clock_mhz", 800), ("dram.latency", 11), ("dram.banks.part", PART))
#: The same DRAM controller and bus with rows that are always open, to a cycle or two, and without refreshes.
_NAMES = ("rcd", "rp", "ras", "rtp", "wr", "wtr", "rtw", "rrd", "faw", "rfc")
OPEN: Changes = (("dram.banks.t_refi", 1_000_000), *((f"dram.banks.t_{name}", 1) for name in _NAMES))
TURNS: Changes = (("dram.arbitration", "round_robin"),)
#: What DRAMsim3 took; `scripts/dramsim3.py` measures it.
KEPT = Path(__file__).with_name("dramsim3.json")
IN_ORDER, REORDERED = "in order", "FR-FCFS"


@cache
def kept() -> dict[tuple[str, str, str], dict[str, int]]:
    """Cycles, activates and accesses of DRAMsim3 by part (or chip), pattern (or workload) and queues."""
    rows: list[dict[str, Any]] = json.loads(KEPT.read_text(encoding="utf-8"))["rows"]
    return {(row["part"], row["pattern"], row["queues"]): row for row in rows}


def program_of(workload: str, chip: ChipConfig) -> Program:
    """What runs of a workload by `loop_order`."""
    (run,) = one(workload, chip).prepare(chip, "loop_order", Listener())
    return run.program


@dataclass(frozen=True)
class Opened:
    """What rows of all channels did in a run, which took `cycles` in the model; with rows that are always open, and a
    schedule for these, it takes `open` cycles."""

    cycles: int
    open: int
    hits: int
    misses: int
    conflicts: int
    turns: int
    refreshes: int

    @property
    def share(self) -> float:
        """Row hits, of all bursts."""
        return self.hits / (self.hits + self.misses + self.conflicts)


@dataclass(frozen=True)
class OpenedPoint(Point):
    """A workload on a chip with banks, in the model."""

    workload: str
    changes: Changes
    row: ClassVar[Any] = Opened

    @property
    def config(self) -> ChipConfig:
        """The chip."""
        return chip_of(CHIP, self.changes)

    @property
    def name(self) -> str:
        return f"rows of {self.workload} on {CHIP}" + "".join(f", {field} = {value}" for field, value in self.changes)

    @property
    def work(self) -> float:
        return 20.0

    def inputs(self) -> Inputs:
        scheduled = scheduled_by("loop_order")
        return Inputs((*scheduled.modules, "tb.runs.kinds.table"), (("chip", self.config.digest),))

    def measure(self, report: Report) -> Opened:
        """Raises what scheduling raises."""
        report("scheduling")
        cycles, channels = dram_traffic.played(program_of(self.workload, self.config), self.config)
        always = chip_of(CHIP, self.changes + OPEN)
        banks = [channel.banks for channel in channels]
        return Opened(
            cycles,
            dram_traffic.played(program_of(self.workload, always), always)[0],
            sum(each.hits for each in banks),
            sum(each.misses for each in banks),
            sum(each.conflicts for each in banks),
            sum(each.turns for each in banks),
            sum(each.refreshes for each in banks),
        )


@dataclass(frozen=True)
class PatternPoint(Point):
    """Bursts by a pattern, without a chip."""

    part: str
    pattern: str
    row: ClassVar[Any] = Replay

    @property
    def name(self) -> str:
        return f"{self.pattern}, {self.part}"

    def inputs(self) -> Inputs:
        return Inputs(("tb.studies.chip.dram_traffic",), (("chip", CHANNELS[self.part].digest),))

    def measure(self, report: Report) -> Replay:
        """Replays them."""
        chip = CHANNELS[self.part]
        return dram_traffic.replay(chip, list(PATTERNS[self.pattern](chip, COUNT)))


def points(full: bool) -> list[Point]:
    """Each workload with a flat channel and with banks, by arbitration, and its rows; all patterns."""
    result: list[Point] = []
    for workload in WORKLOADS if full else WORKLOADS[:QUICK]:
        for turns in ((), TURNS):
            result += [RunPoint(CHIP, workload, changes=changes + turns) for changes in ((), BANKS)]
            result.append(OpenedPoint(workload, BANKS + turns))
    return result + [PatternPoint(part, pattern) for part in CHANNELS for pattern in PATTERNS]


class _Case:
    """A workload with one arbitration."""

    def __init__(self, workload: str, turns: Changes, flat: Row, banks: Row, opened: Opened) -> None:
        self.workload, self.arbitration = workload, "round robin" if turns else "fifo"
        self.flat, self.banks, self.opened = flat, banks, opened


def _cases(rows: Rows, *arbitrations: Changes) -> Iterator[_Case]:
    for workload in WORKLOADS:
        for turns in arbitrations or ((), TURNS):
            some = (
                *(RunPoint(CHIP, workload, changes=changes + turns) for changes in ((), BANKS)),
                OpenedPoint(workload, BANKS + turns),
            )
            if all(point in rows for point in some):
                yield _Case(workload, turns, *(rows[point] for point in some))


def cycles(rows: Rows) -> Table:
    """Every workload with a flat channel and with banks."""
    columns: dict[str, Callable[[_Case], str]] = {
        "workload": lambda case: case.workload,
        "arbitration": lambda case: case.arbitration,
        "flat>": lambda case: count(case.flat.rtl_cycles),
        "with banks>": lambda case: count(case.banks.rtl_cycles),
        "if rows were open>": lambda case: count(case.opened.open),
        "times that>": lambda case: ratio(case.opened.cycles, case.opened.open),
        "bursts>": lambda case: count(case.opened.hits + case.opened.misses + case.opened.conflicts),
        "row hits>": lambda case: share(case.opened.share),
        "conflicts>": lambda case: count(case.opened.conflicts),
        "turns>": lambda case: count(case.opened.turns),
        "wrong bytes>": lambda case: count(case.flat.mismatches + case.banks.mismatches),
    }
    return table(f"Cycles on the RTL of {CHIP}, flat or {PART} at 800 MHz", columns, _cases(rows))


def patterns(rows: Rows) -> Table:
    """Every pattern here and in DRAMsim3."""
    pairs = [(point, row) for point, row in rows.items() if isinstance(point, PatternPoint)]

    def use(pair: tuple[PatternPoint, Replay], cycles: int) -> str:
        point, row = pair
        chip = CHANNELS[point.part]
        return share(row.words * chip.lanes / chip.dram.bytes_per_cycle / cycles)

    columns: dict[str, Callable[[tuple[PatternPoint, Replay]], str]] = {
        "part": lambda pair: pair[0].part,
        "bursts": lambda pair: pair[0].pattern,
        "cycles>": lambda pair: count(pair[1].cycles),
        "bandwidth used>": lambda pair: use(pair, pair[1].cycles),
        "DRAMsim3, in order>": lambda pair: use(pair, _theirs(pair[0], IN_ORDER)),
        "FR-FCFS>": lambda pair: use(pair, _theirs(pair[0], REORDERED)),
    }
    return table(f"{COUNT:,} bursts as fast as the channel takes them", columns, pairs)


def _theirs(point: PatternPoint, queues: str) -> int:
    return kept()[point.part, point.pattern, queues]["cycles"]


def reordering(rows: Rows) -> Table:
    """The bursts of workloads, here and with a controller that reorders them."""
    cases = [case for case in _cases(rows, ()) if (CHIP, case.workload, REORDERED) in kept()]

    def theirs(case: _Case, queues: str) -> int:
        return kept()[CHIP, case.workload, queues]["cycles"]

    columns: dict[str, Callable[[_Case], str]] = {
        "workload": lambda case: case.workload,
        "cycles of the run>": lambda case: count(case.banks.rtl_cycles),
        "of its bursts at once>": lambda case: count(kept()[CHIP, case.workload, REORDERED]["here"]),
        "DRAMsim3, in order>": lambda case: count(theirs(case, IN_ORDER)),
        "FR-FCFS>": lambda case: count(theirs(case, REORDERED)),
    }
    return table("The bursts of the busiest channel, as fast as it takes them", columns, cases)


def _slower(turns: Changes) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        return mean_ratio((case.opened.cycles, case.opened.open) for case in _cases(rows, turns))

    return value


def _hits(turns: Changes) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        shares = [100 * case.opened.share for case in _cases(rows, turns)]
        return sum(shares) / len(shares) if shares else None

    return value


def _off(rows: Rows) -> float:
    runs = [row for point, row in rows.items() if isinstance(point, RunPoint)]
    return sum(abs(row.rtl_cycles - row.model_cycles) for row in runs)


def _apart(names: tuple[str, ...]) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        pairs = [(point, row) for point, row in rows.items() if isinstance(point, PatternPoint)]
        some = [abs(row.cycles / _theirs(point, REORDERED) - 1) for point, row in pairs if point.pattern in names]
        return 100 * max(some) if some else None

    return value


def _wrong(rows: Rows) -> list[str]:
    return [text for point, row in rows.items() if isinstance(point, RunPoint) for text in wrong_with(point, row, True)]


STUDY = Study(
    name="dram_banks",
    title="DRAM with banks",
    question="How much slower are workloads if rows of DRAM have to be opened and refreshed?",
    answer="They take {{ fifo }} times as many cycles as if rows were always open, and {{ turns }} times with requests "
    "in turn; {{ fifo_hits }} of bursts hit an open row, {{ turns_hits }} in turn.",
    about=prose(__file__),
    points=points,
    tables=(cycles, patterns, reordering),
    figures=(
        Figure("fifo", "times the cycles if rows were open, fifo", _slower(())),
        Figure("turns", "times the cycles if rows were open, round robin", _slower(TURNS)),
        Figure("fifo_hits", "bursts that hit an open row, fifo, mean", _hits(()), "{:.1f} %"),
        Figure("turns_hits", "bursts that hit an open row, round robin, mean", _hits(TURNS), "{:.1f} %"),
        Figure("off", "cycles that the model is off, all runs", _off, "{:,.0f}", Bar("exactly", 0)),
        Figure(
            "streams",
            "off DRAMsim3, streams and rows of one bank, at most",
            _apart(("a stream of reads", "a stream of writes", "rows of one bank, an access each")),
            "{:.1f} %",
            Bar("at most", 1),
        ),
    ),
    checks=_wrong,
)
