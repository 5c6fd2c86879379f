"""The loop nests that a network's convolutions choose from: each kind of convolution is searched once."""

from __future__ import annotations

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig

from ...mapping.tiling.tiles import Candidate
from ...store.findings import SearchCache
from . import conv

_CANDIDATES = TypeAdapter(list[Candidate])


class Choices:
    """Candidates by what decides them (`conv.decisive`), in this process (`held`) and in `memory`."""

    def __init__(
        self, chip: ChipConfig, memory: SearchCache | None, held: dict[tuple[object, ...], list[Candidate]]
    ) -> None:
        self._chip, self._memory, self._held = chip, memory, held

    def of(self, task: conv.ConvTask) -> list[Candidate]:
        """The candidates of a convolution, the best first. Raises DoesNotFit."""
        key, memory = conv.decisive(task), self._memory
        if key not in self._held:
            candidates = memory.get(key, _CANDIDATES) if memory is not None else None
            if candidates is None:
                candidates = conv.choose(task, self._chip)
                if memory is not None:
                    memory.put(key, _CANDIDATES, candidates)
            self._held[key] = candidates
        return self._held[key]
