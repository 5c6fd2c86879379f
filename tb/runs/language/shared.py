"""The DRAM that steps of a model share, each with a program of its own: what lies where, and what of it is there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import stats_words
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.program.program import ProgramError
from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.regions import ConstantPlace

from ...devices import readout
from ..network import PreparedNetwork, prepare
from .fitting import OnProgress, check_records, end

Range = tuple[int, int, int]


@dataclass(eq=False)
class SharedDram:
    """Caches come first. Behind them lie the steps one after the other, but for constants of convolutions: they lie
    where the first step has put them, and later ones read them there. `begin`: the first word of each tile behind all.

    If it is given (behind caches of several texts), steps may come in any order: each begins where a burst does, and
    the first of a bank's rows, so that what it takes does not depend on those before.
    """

    chip: ChipConfig
    begin: int = 0
    _places: dict[str, tuple[ConstantPlace, ...]] = field(default_factory=dict[str, "tuple[ConstantPlace, ...]"])
    _arrays: dict[str, NDArray[Any]] = field(default_factory=dict[str, "NDArray[Any]"])
    _steps: list[PreparedNetwork] = field(default_factory=list[PreparedNetwork])
    _there: set[Range] = field(default_factory=set[Range])

    def __post_init__(self) -> None:
        self._any_order = self.begin > 0
        self.begin = self._aligned(self.begin)

    def _aligned(self, word: int) -> int:
        if not self._any_order:
            return word
        banks, words = self.chip.dram.banks, self.chip.packet_words
        rows = math.lcm(words, banks.count * -(-banks.row_bytes // self.chip.lanes)) if banks else words
        return -(-word // rows) * rows

    def beside(self, graph: Graph, scheduler: str, on_progress: OnProgress) -> PreparedNetwork | None:
        """A step beside those that are there; None for the first one if `begin` does not say where, and where the DRAM
        has no room for it or for records behind it."""
        if not self.begin:
            return None
        try:
            graph = replace(graph, begin=self.begin, constants=self._places)
            prepared = prepare(graph, self.chip, on_progress, scheduler)
            behind = self._aligned(max(self.begin, end(prepared, self.chip)))
            for each in (*self._steps, prepared):
                readout.plan(each.program, self.chip, stats_words(self.chip), behind)
        except (DoesNotFit, ProgramError):
            return None
        return prepared

    def add(self, prepared: PreparedNetwork) -> None:
        """Takes the first step, or one that has been made `beside` the others; arrays of its constants that they have,
        too, are theirs from now on."""
        self._steps.append(prepared)
        self.begin = self._aligned(max(self.begin, end(prepared, self.chip)))
        constants = prepared.network_schedule.constants
        for tensor in prepared.network_schedule.schedule.tensors:
            if tensor.role != "constant":
                continue
            places = tuple(ConstantPlace(each.tile, each.address, each.first, each.words) for each in tensor.pieces)
            if self._places.setdefault(tensor.name, places) != places:
                continue  # a small one, which each step has for itself
            array = self._arrays.setdefault(tensor.name, constants[tensor.name])
            assert np.array_equal(array, constants[tensor.name]), f"{tensor.name} is not the same in all steps"
            constants[tensor.name] = array

    def check_records(self) -> None:
        """Raises LanguageError, with the words that are enough, if the records of a step have no room behind all."""
        for each in self._steps:
            check_records(each, self.chip, self.begin)

    def present(self, lasting: Sequence[Range], before: object) -> list[Range]:
        """Of what a step leaves as it finds it what is there; and the end of all steps, behind which alone a device may
        write. `before`: that of the step that ran before it on the device."""
        if before is not self:
            self._there.clear()
        return [
            *(each for each in lasting if each in self._there),
            *((tile, self.begin, 0) for tile in self.chip.drams),
        ]

    def record(self, lasting: Sequence[Range]) -> None:
        """A step has run that leaves this."""
        self._there.update(lasting)
