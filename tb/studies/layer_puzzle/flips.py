"""Assumptions as a page shows them: a setting, how requests are counted, what schedulers are held to; and which of them
flip a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..engine.rows import Rows
from . import paired
from .assumed import SEEDS, AssumedPoint, Lives, Setting
from .paired import Counting, Interval
from .views import FOUR, THEIRS

#: What every other assumption is compared with: the page `layer_puzzle` has the same.
BASE = Setting()
#: What is added to a scheduler's name that cuts all layers by output channels.
HELD = ":schemes=output"
_SCRIPT = "python scripts/puzzle_scenario.py"


def lives(rows: Rows, setting: Setting, scheduler: str) -> dict[int, Lives]:
    """What a scheduler has served under a setting, by seed."""
    some = ((seed, rows.get(AssumedPoint(setting, seed, scheduler))) for seed in SEEDS)
    return {seed: row for seed, row in some if row is not None}


@dataclass(frozen=True)
class Assumption:
    """`others`, `theirs`: what the others, and Layer-Puzzle, are held to."""

    setting: Setting
    counting: Counting = paired.ALL
    others: str = ""
    theirs: str = ""

    @property
    def words(self) -> str:
        """What is assumed, for a table."""
        more = (
            "time alone on one core" if self.counting.one else "",
            "" if self.counting.short else "NCF not counted",
            "all by output channels" if self.theirs else "others by output channels" if self.others else "",
        )
        return ", ".join((self.setting.words, *filter(None, more)))

    @property
    def option(self) -> str:
        """What to tell the command line: of the script that writes a scenario, of `meshloom serve`, of neither."""
        one, script, serve = self.setting, list[str](), list[str]()
        if one.arrivals == "poisson":
            script.append(f"--load {one.load:g}")
        elif one.arrivals == "trace":
            script.append("--trace")
        if not one.short:
            script.append("--without-ncf")
        if one.mix != "two":
            script.append(f"--mix {one.mix}")
        if one.batch > 1:
            script.append(f"--batch {one.batch}")
        if one.arbitration != "fifo":
            serve.append(f"--set dram.arbitration={one.arbitration}")
        if one.mix == "whole":
            serve.append("--set core.vec_whole=true")
        if self.others:
            serve.append(f"--scheduler prema{self.others}")
        texts = [f"`{_SCRIPT} {' '.join(script)}`"] * bool(script) + [f"`{each}`" for each in serve]
        texts += ["field `one` of the rows"] * self.counting.one
        texts += ["slowdowns of the others, in the results"] * (not self.counting.short)
        return ", ".join(texts)

    def better(self, rows: Rows, metric: str, one: str, other: str) -> Interval | None:
        """How many times as good a scheduler is as another by a metric; None where nothing was measured, and for one
        that cannot be held."""
        names = [
            name + (self.theirs if name == THEIRS else self.others if name in FOUR else "") for name in (one, other)
        ]
        first, second = (lives(rows, self.setting, name) for name in names)
        return paired.better(metric, first, second, self.counting)


def assumptions(settings: Sequence[Setting]) -> Iterator[Assumption]:
    """All of them, that of `BASE` first."""
    for setting in settings:
        yield Assumption(setting)
        yield Assumption(setting, Counting(one=True))
        if setting.short:
            yield Assumption(setting, Counting(short=False))
    yield Assumption(BASE, others=HELD)
    yield Assumption(BASE, others=HELD, theirs=HELD)


def flips(
    rows: Rows, settings: Sequence[Setting]
) -> Iterator[tuple[Assumption, str, str, Interval, Interval, str]]:  # fmt: skip
    """Assumptions under which Layer-Puzzle's comparison with another by a metric has another sign than with `BASE`
    ("flips"), or none any more ("undecided"): both intervals, or that of `BASE` alone, leave out 1. Where fewer
    workloads were served than with `BASE`, nothing is said."""
    base = Assumption(BASE)
    for metric in paired.METRICS:
        for other in FOUR[:3]:
            before = base.better(rows, metric, THEIRS, other)
            if before is None or not before.side:
                continue
            for each in assumptions(settings):
                after = each.better(rows, metric, THEIRS, other)
                if after is not None and after.side != before.side and after.seeds >= before.seeds:
                    yield each, metric, other, before, after, "flips" if after.side else "undecided"
