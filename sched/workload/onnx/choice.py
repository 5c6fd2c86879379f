"""The best of all ways to quantise a network: with a file's own scales, or with steps that follow from its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ..graph import Picture
from ..layers import WorkloadError
from .calibrate import FILE, Feeds, Range, measure, run_all
from .equalise import equalised
from .floats import FloatNet
from .nearness import note_of
from .outcome import Quantised, report_of
from .pins import CUT, UNCUT, Pin, cut_off, saturating
from .rounding import Rounder
from .weight_errors import LayerWeights

#: Exponents of the factors by which channels are equalised that are tried; 0 is not at all.
_STRENGTHS: Sequence[float] = (0.0, 0.5, 1.0)


@dataclass
class Choice:
    """What is chosen for. `ends`: the file's own results; `picture`: how bytes become the input; `pins`: the file's
    scales; `about`: what graphs say whatever is chosen; `by_channel`: the chip has multipliers by channel; `tables`:
    whether it has any."""

    net: FloatNet
    feeds: Sequence[Feeds]
    ends: Sequence[Feeds]
    picture: Picture | None
    pins: dict[str, Pin]
    about: dict[str, Any]
    by_channel: bool
    tables: bool

    def __post_init__(self) -> None:
        self._kept: dict[str, Pin] = {}
        self._refusal: WorkloadError | None = None
        self._measure()

    def best(self, hows: Sequence[Range], progress: Callable[[int, int], None]) -> Quantised:
        """With the file's own scales, if it has any that the chip can have. Where it has one for each channel of some
        weights and the chip has not, the better one of these and others. `hows`: how ranges may follow from values;
        `progress`: called before each way. Raises WorkloadError where none fits the chip."""
        best: Quantised | None = None
        if self.pins:
            best, why = self._with_own_scales()
            if best is not None and not why:
                return best
            self._leave_scales(why)
        for report in self._others(hows, progress):
            if best is None or _rank(report) > _rank(best):
                best = report
        if best is None:
            assert self._refusal is not None
            raise self._refusal
        return best

    def _measure(self) -> None:
        self._truth, self._statistics = run_all(self.net, self.feeds), measure(self.net, self.feeds)

    # -- the file's own scales ----------------------------------------------------------------------------------

    def _with_own_scales(self) -> tuple[Quantised | None, str]:
        """The network with the file's scales, None where they do not fit the chip, and why others are tried; empty
        where they need not be."""
        self._kept = saturating(self.net, self._statistics, self.pins)
        if self._kept:
            self._cut_off(self.pins)
        try:
            rounder = self._rounder(pins=self.pins, by_channel=self.by_channel)
            graph = replace(rounder.graph(), **self.about)
        except WorkloadError as error:
            self._refusal = error
            return None, f"do not fit the chip ({error})"
        graph = replace(graph, notes=(*graph.notes, note_of(self.net, rounder)))
        best = report_of(graph, rounder, self._truth, self.ends, 0.0, FILE)
        if all(self._fits(some[0]) for name, some in rounder.pins.items() if name in rounder.weight_steps):
            return best, ""
        several = any(len(pin.weights) > 1 for pin in self.pins.values())
        return best, f"are worse on the chip{', since some weights have one for each channel' if several else ''}"

    def _fits(self, pin: Pin) -> bool:
        """Whether the chip has as many scales as the weights have in the file."""
        return len(pin.weights) > 0 if self.by_channel else len(pin.weights) == 1

    def _leave_scales(self, why: str) -> None:
        """What saturates keeps the file's scales, or else it would not; all else has others."""
        if self._kept:
            self._kept |= {name: pin for name, pin in self.pins.items() if name.endswith((UNCUT, CUT))}
            self._cut_off(self._kept)
        but = ", but where it saturates" if self._kept else ""
        note = f"Tensors have other scales than in the file{but}: those {why}."
        self.about = {**self.about, "notes": (*self.about["notes"], note)}

    def _cut_off(self, pins: Mapping[str, Pin]) -> None:
        """The network cuts values off where 8 bits of these scales do."""
        cut_off(self.net, self._statistics, self.pins, self._rounder(pins=pins).step, self.tables)
        self._measure()

    # -- others ---------------------------------------------------------------------------------------------------

    def _others(self, hows: Sequence[Range], progress: Callable[[int, int], None]) -> Iterator[Quantised]:
        """The network with steps that follow from its values, in every way that fits the chip. Of weights that are
        drawn no way is better than the first."""
        real = bool(self.about["real"])
        each = (False, True) if self.by_channel else (False,)
        ways = list(product(hows, each)) if real else [(hows[0], self.by_channel)]
        strengths = _STRENGTHS if real else _STRENGTHS[:1]
        for turn, strength in enumerate(strengths):
            net, truth, statistics = self.net, self._truth, self._statistics
            if strength:
                net = equalised(net, statistics, strength)
                truth, statistics = run_all(net, self.feeds), measure(net, self.feeds)
            weights: dict[str, LayerWeights] = {}
            for way, (how, by_channel) in enumerate(ways, turn * len(ways)):
                progress(way + 1, len(strengths) * len(ways))
                try:
                    rounder = Rounder(
                        net, statistics, how, picture=self.picture, pins=self._kept, by_channel=by_channel,
                        weights=weights,
                    )  # fmt: skip
                    graph = replace(rounder.graph(), **self.about)
                except WorkloadError as error:  # another choice may do
                    self._refusal = self._refusal or error
                    continue
                yield report_of(graph, rounder, truth, self.ends, strength, how)

    def _rounder(self, pins: Mapping[str, Pin], by_channel: bool = False) -> Rounder:
        return Rounder(self.net, self._statistics, picture=self.picture, pins=pins, by_channel=by_channel)


def _rank(report: Quantised) -> tuple[float, float]:
    """What is sought: the float network's decisions, if it decides anything; then little noise."""
    first = report.graph.value(report.graph.outputs[0])
    decides = first.channels > 1 and first.height == first.width == 1
    return report.agreement if decides else 0.0, report.snr_db
