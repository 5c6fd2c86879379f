"""ONNX files as they are run: weights drawn that are not in them, sizes bound, and their samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshloom.sched.workload.onnx.errors import OnnxError

from .arrays import Declared, declared
from .samples import Sample, samples_of

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True, eq=False)
class OnnxFile:
    """The model in the file `name`, and its inputs as the file declares them. `drawn`: whether weights were drawn, with
    `seed`; `notes`: what is to be said of the file; `unused`: inputs that it declares and does not use."""

    name: str
    model: ModelProto
    inputs: tuple[Declared, ...]
    drawn: bool
    seed: int
    notes: tuple[str, ...]
    unused: tuple[str, ...] = ()

    def samples(self, files: Sequence[Path]) -> list[Sample]:
        """All samples of files, whose names say how weights were drawn if they were; a drawn one if there are no files.
        Raises WorkloadError."""
        if not files:
            return [
                self.noise(f"input and weights of seed {self.seed}" if self.drawn else f"input of seed {self.seed}")
            ]
        samples = samples_of(files, self.inputs, self.unused)
        if not self.drawn:
            return samples
        return [replace(each, name=f"{each.name}, weights of seed {self.seed}") for each in samples]

    def fed(self, inputs: Sequence[Path], calibration: Sequence[Path]) -> list[Sample]:
        """What runs work on: all samples of `inputs`; without them the first that the model is calibrated with; without
        those, too, a drawn one. Raises WorkloadError."""
        return self.samples(inputs) if inputs else self.samples(calibration[:1])[:1]

    def noise(self, name: str) -> Sample:
        """A sample that is drawn. Raises OnnxError where a size is not fixed."""
        random, arrays = np.random.default_rng(self.seed), dict[str, NDArray[Any]]()
        for each in self.inputs:
            shape = tuple(1 if size == 0 and axis == 0 else size for axis, size in enumerate(each.shape))  # one sample
            if 0 in shape:
                raise OnnxError(
                    f"{self.name}: input {each.name!r} has a size that is not fixed; give it one "
                    f"(--bind {each.name}:{shape.index(0)}=32; in a scenario: bind)"
                )
            arrays[each.name] = _noise(random, replace(each, shape=shape))
        return Sample(name, Path(), arrays)


def _noise(random: np.random.Generator, declared: Declared) -> NDArray[Any]:
    """Numbers for an input: all integers of a type with 8 bits, otherwise normal ones."""
    if declared.type.kind in "iu" and declared.type.itemsize == 1:
        limits = np.iinfo(declared.type)
        return random.integers(limits.min, limits.max, declared.shape, declared.type, endpoint=True)
    return random.normal(0, 1, declared.shape).astype(declared.type)


def opened(name: str, bind: Mapping[str, int], seed: int = 0, files: Sequence[Path] = ()) -> OnnxFile:
    """The file of that name. Sizes that it leaves open are those that `bind` says, or those of the first of `files`.
    Raises OnnxError."""
    from meshloom.sched.workload.onnx.load import bound, load_model, without_unused
    from meshloom.sched.workload.onnx.missing_weights import lacks_numbers, with_weights
    from meshloom.sched.workload.onnx.start import looks_up

    raw, unused = without_unused(bound(load_model(name), {}, bind, name))
    inputs = declared(raw, Path(name).stem)
    drawn = any(map(lacks_numbers, raw.graph.initializer))
    model, notes = with_weights(raw, name, seed)
    notes = (*notes, *(f"Input {each} is not used." for each in unused))
    if files and not all(all(each.shape) for each in inputs) and not looks_up(model):
        first = samples_of(files[:1], inputs, unused)[0]
        shapes = {each: array.shape for each, array in first.arrays.items()}
        if first.pixels is not None:
            shapes = {each.name: first.pixels.shape for each in inputs[:1]}
        raw, model = (bound(each, shapes, {}, name) for each in (raw, model))
    return OnnxFile(name, model, declared(raw, Path(name).stem), drawn, seed, notes, unused)
