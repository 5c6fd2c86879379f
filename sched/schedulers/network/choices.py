"""The loop nests that a network's convolutions choose from: each kind of convolution is searched once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig

from ...mapping.tiling.problem import DoesNotFit
from ...mapping.tiling.tiles import Candidate
from ...store.findings import SearchCache
from ...support.spare import Helpers, spare
from . import conv

_CANDIDATES = TypeAdapter(list[Candidate])


class Choices:
    """Candidates by what decides them (`conv.decisive`), in this process (`held`) and in `memory`.

    Once one has to be searched for, copies of the process search for those of the other `tasks`, on processors that
    nobody else uses: the last first, so that they meet the process in the middle. `end` ends them.
    """

    def __init__(
        self,
        chip: ChipConfig,
        memory: SearchCache | None,
        held: dict[tuple[object, ...], list[Candidate]],
        tasks: Callable[[], Sequence[conv.ConvTask]],
    ) -> None:
        self._chip, self._memory, self._held, self._tasks = chip, memory, held, tasks
        self._helpers: Helpers | None = None

    def of(self, task: conv.ConvTask) -> list[Candidate]:
        """The candidates of a convolution, the best first. Raises DoesNotFit."""
        key = conv.decisive(task)
        if key not in self._held:
            self._held[key] = self._kept(key) or self._search(key, task)
        return self._held[key]

    def end(self) -> None:
        """Nothing is left to choose."""
        if self._helpers is not None:
            self._helpers.end()

    def _kept(self, key: object) -> list[Candidate] | None:
        return self._memory.get(key, _CANDIDATES) if self._memory is not None else None

    def _search(self, key: object, task: conv.ConvTask) -> list[Candidate]:
        memory = self._memory
        if self._helpers is None and memory is not None and memory.shared:
            self._helpers = Helpers(spare(), self._search_others)
        candidates = conv.choose(task, self._chip)
        if memory is not None:
            memory.put(key, _CANDIDATES, candidates)
        return candidates

    def _search_others(self, number: int, count: int) -> None:
        """In a copy of the process, one of `count`: searches for its share of what is not there yet."""
        tasks = {conv.decisive(task): task for task in self._tasks()}
        for key, task in list(reversed(tasks.items()))[number::count]:
            if key not in self._held and self._kept(key) is None:
                with suppress(DoesNotFit):
                    self._search(key, task)
