"""Steps that a device has run for texts, kept until all texts are served: a run that was interrupted goes on.

A step is deterministic, so what it leaves is known by what it is given: its tokens, the caches of its texts, the model,
the chip, the simulator and our sources. When a run comes to its end it forgets them: the next one runs on the device
from the first step.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.store.kinds import SOAK
from meshloom.sched.store.store import Store, key
from meshloom.sched.workload.language.integers import Integers

from ...results.identity import sources
from ..language.comparison import StepComparison
from .step import BatchOutcome, Caches, ExpertCost

Texts = Sequence[tuple[NDArray[np.int64], Caches]]


@dataclass
class KeptSteps:
    """Steps of a run on a chip. `tools`: those that run it, with their versions; `store`: where they lie; None: nothing
    is kept. `number`: steps that an earlier run had done; `places`: what decides where the weights lie."""

    integers: Integers
    chip: ChipConfig
    tools: Mapping[str, str]
    store: Store | None = field(default_factory=SOAK.store)
    number: int = 0
    places: str = ""
    _old: set[str] = field(default_factory=set[str])
    _own: set[str] = field(default_factory=set[str])

    def name(self, news: tuple[int, ...], texts: Texts) -> str:
        """What a step is kept under."""
        arrays = {
            f"{text} {name}": array
            for text, (tokens, caches) in enumerate(texts)
            for name, array in {"tokens": tokens, **caches}.items()
        }
        step = f"{news} {_digest(arrays)} {self.places} {sorted(self.tools.items())}"
        return key("tokens-step", step=step, model=self._model, chip=self.chip.digest, sources=sources())

    @cached_property
    def _model(self) -> str:
        model = self.integers.model
        sizes = f"{model.context} {model.heads} {model.top} {self.integers.weight_bits}"
        return f"{sizes} {model.decisive} {sorted(self.integers.steps.items())} {_digest(model.arrays)}"

    def get(self, name: str) -> BatchOutcome | None:
        """What a step of an earlier run has left; None if there was none, or if that is damaged."""
        data = self.store.get(name) if self.store is not None and name not in self._own else None
        if data is None:
            return None
        try:
            outcome = _read(data)
        except (ValueError, KeyError, OSError, EOFError):
            return None
        self._old.add(name)
        self.number += 1
        return outcome

    def put(self, name: str, outcome: BatchOutcome) -> None:
        """Keeps what a step has left."""
        if self.store is not None:
            self.store.put(name, _written(outcome))
            self._own.add(name)

    def forget(self) -> None:
        """All that this run has kept or used goes."""
        if self.store is None:
            return
        for name in self._old | self._own:
            self.store.drop(name)


def _digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode() + array.tobytes())
    return digest.hexdigest()


def _written(outcome: BatchOutcome) -> bytes:
    numbers: dict[str, Any] = {each.name: getattr(outcome, each.name) for each in fields(StepComparison)}
    numbers |= {"dram_bytes": outcome.dram_bytes, "experts": outcome.experts and asdict(outcome.experts)}
    arrays: dict[str, NDArray[Any]] = {f"scores {text}": scores for text, scores in enumerate(outcome.scores)}
    arrays |= {f"new {text} {name}": array for text, new in enumerate(outcome.new) for name, array in new.items()}
    arrays["numbers"] = np.frombuffer(json.dumps(numbers).encode(), np.uint8)
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _read(data: bytes) -> BatchOutcome:
    """Raises ValueError, KeyError, OSError, EOFError for what is none."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        numbers = json.loads(arrays["numbers"].tobytes())
        texts = sum(name.startswith("scores ") for name in arrays.files)
        new: list[dict[str, NDArray[np.int8]]] = [{} for _ in range(texts)]
        for each in arrays.files:
            kind, _, rest = each.partition(" ")
            if kind == "new":
                text, _, name = rest.partition(" ")
                new[int(text)][name] = arrays[each]
        scores = tuple(arrays[f"scores {text}"] for text in range(texts))
    experts, moved = numbers.pop("experts"), numbers.pop("dram_bytes")
    return BatchOutcome(
        **asdict(StepComparison(**numbers)), scores=scores, new=tuple(new), dram_bytes=moved,
        experts=None if experts is None else ExpertCost(**experts),
    )  # fmt: skip
