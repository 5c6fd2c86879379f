"""What `speed` measures: layers on chips, chips at rest, threads, the model as Python and compiled, placing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from meshloom.sched.model import native

from ...build.builder import TARGET
from ...build.tools import compiler_version
from ..engine.point import Inputs, Point, Report
from ..engine.rows import StudyError
from ..points.runs import gateware, scheduled_by
from . import idle, plain_loop, relocation, threads, timeline
from .builds import chip_of
from .layers import run_layers
from .variables import set_to

#: Where templates are placed.
PLACED_ON = "lp9"
_REPEATS = 3


@dataclass(frozen=True)
class LayerSpeed:
    """A layer's run, and `plain`: cycles per CPU-second of the plain loop. `reason`: what is wrong with the run."""

    layer: str
    rtl_cycles: int
    utilisation: float
    compared: int
    wrong: int
    cpu_seconds: float
    plain: float
    reason: str = ""

    @property
    def cycles_per_second(self) -> float:
        return self.rtl_cycles / max(self.cpu_seconds, 1e-9)

    @property
    def ratio(self) -> float:
        return self.cycles_per_second / self.plain


@dataclass(frozen=True)
class ThreadSeconds:
    """Seconds of a layer with one thread and with several."""

    cycles: int
    one: float
    several: float


@dataclass(frozen=True)
class Plays:
    """A program played by Python and by compiled code."""

    pure: timeline.Played
    compiled: timeline.Played

    @property
    def same(self) -> bool:
        one, other = self.pure, self.compiled
        return (one.cycles, one.instructions, one.digest) == (other.cycles, other.instructions, other.digest)

    @property
    def speed_up(self) -> float:
        return self.compiled.speed / self.pure.speed


class TimePoint(Point):
    """Measures time: what decides its row is the code, and the machine."""

    @property
    def work(self) -> float:
        return 20.0

    def inputs(self) -> Inputs:
        more = (("gateware", gateware()), ("compiler", compiler_version()))
        return Inputs(scheduled_by("loop_order").modules, more)


@dataclass(frozen=True)
class ChipSpeed(TimePoint):
    """Layers on a chip whose simulator is compiled for a target."""

    chip: str
    target: str
    layers: tuple[str, ...]
    row: ClassVar[Any] = tuple[LayerSpeed, ...]

    @property
    def name(self) -> str:
        return f"{self.chip} compiled for {self.target}"

    def measure(self, report: Report) -> tuple[LayerSpeed, ...]:
        """Raises StudyError."""
        chip = chip_of(self.chip)
        with set_to(TARGET, self.target):  # what simulators are compiled for
            before = plain_loop.speed(chip, self.target)
            rows = [each.row for each in run_layers(self.layers, chip, report, times=_REPEATS).layers]
            plain = max(before, plain_loop.speed(chip, self.target))
        return tuple(
            LayerSpeed(
                row.workload,
                row.rtl_cycles,
                row.utilisation,
                row.bytes_checked,
                row.mismatches,
                row.cpu_seconds,
                plain,
                row.reason or "",
            )
            for row in rows
        )


@dataclass(frozen=True)
class RestSpeed(TimePoint):
    """A chip at rest."""

    chip: str
    row: ClassVar[Any] = idle.Rest

    @property
    def name(self) -> str:
        return f"{self.chip}, idle"

    def measure(self, report: Report) -> idle.Rest:
        """Raises StudyError."""
        return idle.rest(self.chip, report)


@dataclass(frozen=True)
class ThreadSpeed(TimePoint):
    """A layer on a chip by one thread and by several."""

    chip: str
    layer: str
    row: ClassVar[Any] = ThreadSeconds

    @property
    def name(self) -> str:
        return f"{self.chip} by {threads.COUNT} threads"

    def measure(self, report: Report) -> ThreadSeconds:
        """Raises StudyError if a run differs from its model."""
        chip = chip_of(self.chip)
        cycles, one = threads.seconds(self.layer, chip, 1, report)
        return ThreadSeconds(cycles, one, threads.seconds(self.layer, chip, threads.COUNT, report)[1])


@dataclass(frozen=True)
class PlaySpeed(TimePoint):
    """A layer in the timeline model, as Python and compiled."""

    chip: str
    layer: str
    row: ClassVar[Any] = Plays

    @property
    def name(self) -> str:
        return f"{self.chip}, {self.layer}"

    def measure(self, report: Report) -> Plays:
        """Raises StudyError where the model cannot be compiled."""
        report("compiling the model, unless it has been")
        try:
            native.build()
        except native.NativeError as error:
            raise StudyError(f"the timeline model cannot be compiled: {error}") from None
        with TemporaryDirectory(prefix="meshloom_") as folder:
            path = Path(folder, "schedule.json")
            timeline.schedule(self.chip, self.layer, path)
            report("playing")
            return Plays(*(timeline.apart(self.chip, path, pure=pure) for pure in (True, False)))


@dataclass(frozen=True)
class PlacingSpeed(TimePoint):
    """Compiled layers of networks, placed on other cores."""

    networks: tuple[str, ...]
    row: ClassVar[Any] = relocation.PlacedTemplates

    @property
    def name(self) -> str:
        return f"placing layers of {', '.join(self.networks)}"

    @property
    def work(self) -> float:
        return 30.0 * len(self.networks)

    def measure(self, report: Report) -> relocation.PlacedTemplates:
        return relocation.measure(PLACED_ON, self.networks, report)
