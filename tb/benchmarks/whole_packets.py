"""Slow DRAM channels that send packets once they have read them whole: cycles on the RTL with and without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

from meshloom.hw.spec.config import ChipConfig, load

from ..report.console import percent
from ..results.events import Event, OnEvent, RowCount
from ..results.schema import Row
from .interface import all_ran
from .results import Result, Sheet

SCHEDULER = "loop_order"
_SMALL = ("gemm:64x256x128", "conv:16x16x32-32,k3,p1", "conv:28x28x32-64,k1")
_LAYERS = ("resnet50/conv3_2_1", "resnet50/conv4_1_shortcut", "resnet50/conv5_1_2")
#: Four channels around the cores of quad8.
_FOUR = ("dram core core dram", "host core core dram", "spm  spm  dram .")


@dataclass(frozen=True)
class Case:
    """A chip of ours with some of its settings changed, and what runs there."""

    base: str
    changes: Mapping[str, Any]
    workloads: Sequence[str]

    def chip(self, whole: bool) -> ChipConfig:
        """The chip; `whole`: packets leave whole."""
        values = load(self.base).model_dump() | {key: value for key, value in self.changes.items() if key != "dram"}
        values["dram"] |= dict(self.changes.get("dram", {})) | {"whole_packets": whole}
        return ChipConfig.model_validate(values | {"name": f"{self.base}{'_whole' * whole}"})


CASES = (
    Case("quad8", {}, _SMALL),
    Case("quad8", {"dram": {"bytes_per_cycle": 4}}, _SMALL),
    Case("quad8", {"dram": {"bytes_per_cycle": 4}, "floorplan": _FOUR}, _SMALL),
    Case("quad8", {"dram": {"bytes_per_cycle": 2}, "floorplan": _FOUR}, _SMALL),
    Case("arch1", {}, _LAYERS),
    Case("arch5", {}, _LAYERS),
)


def _failures(row: Row, chip: ChipConfig) -> list[str]:
    if row.reason or row.rtl_cycles != row.model_cycles:
        return [f"{row.workload} on {chip.name}: {row.reason or f'the model is {row.error_percent} % off'}"]
    return []


def run(on_progress: OnEvent) -> Result:
    """Runs every case on both chips. Raises BenchmarkError if one does not run."""
    from ..runs import runner

    def pass_on(event: Event) -> None:
        if not isinstance(event, RowCount):  # the plan of all cases has been told
            on_progress(event)

    on_progress(RowCount(rows=2 * sum(len(case.workloads) for case in CASES)))
    rows: list[tuple[str, ...]] = []
    gains: dict[bool, list[float]] = {False: [], True: []}
    failures: list[str] = []
    for case in CASES:
        chips = [case.chip(whole) for whole in (False, True)]
        ran = [all_ran(runner.run(case.workloads, chip, SCHEDULER, pass_on)) for chip in chips]
        channels, rate = len(chips[0].drams), chips[0].dram.bytes_per_cycle / chips[0].lanes
        for off, on in zip(*ran, strict=True):
            failures += [text for row, chip in zip((off, on), chips, strict=True) for text in _failures(row, chip)]
            assert off.rtl_cycles is not None
            assert on.rtl_cycles is not None
            gain = off.rtl_cycles / on.rtl_cycles
            gains[rate < 1].append(gain)
            cells = (f"{row.rtl_cycles:,}" for row in (off, on))
            error = max(abs(row.error_percent or 0) for row in (off, on))
            checked, wrong = off.bytes_checked + on.bytes_checked, off.mismatches + on.mismatches
            rows.append(
                (case.base, f"{channels} x {rate:.2f}", off.workload, *cells, f"{gain:.3f}", percent(error),
                 f"{checked:,}", f"{wrong}")
            )  # fmt: skip
    means = [
        (name, f"{len(gains[slow])}", f"{geometric_mean(gains[slow]):.3f}", f"{min(gains[slow]):.3f}",
         f"{max(gains[slow]):.3f}")
        for name, slow in (("less than a word a cycle", True), ("a word a cycle", False))
    ]  # fmt: skip
    columns = (
        "chip", "channels x words a cycle", "layer", "cycles as words come>", "in whole packets>", "times as fast>",
        "model error, worst>", "bytes>", "wrong>",
    )  # fmt: skip
    return Result(
        "whole_packets",
        "DRAM channels that send whole packets",
        "A channel slower than a word a cycle that sends words as they come keeps the path of its packet open between "
        "them, and other channels wait for the link to the same tile. With `dram.whole_packets` a packet leaves once "
        "it has been read: the first one later, all of them without gaps. Layers by `loop_order`, on the RTL, every "
        "byte compared.",
        (
            Sheet("Cycles on the RTL", columns, rows),
            Sheet("Times as fast, by channels", ("channels with", "runs>", "mean>", "worst>", "best>"), means),
        ),
        failures=tuple(failures),
    )
