"""Workloads from Python: layers, networks and files, with what they are fed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.workload.layers import NO_CLAMP, ConvShape, WorkloadError, gemm_shape
from meshloom.sched.workload.shapes import describe

from ..inputs.arrays import files_of
from ..inputs.sources import NetworkSource
from ..runs.kinds import table
from ..runs.kinds.interface import WorkloadRequest
from ..runs.kinds.mappings import MappedSource
from ..runs.saved import SavedSource


@dataclass(frozen=True)
class Workload:
    """Something to schedule and run: layers by name, a network with what it is fed, or a saved schedule.

    `Workload.of` takes everything that the command line takes; the other constructors take numbers and arguments.
    """

    source: str | NetworkSource | SavedSource | MappedSource

    @classmethod
    def of(cls, workload: Workload | str | Path | Schedule, meaning: Workload | str | Path | None = None) -> Workload:
        """A workload by its name on the command line, a file (.onnx; .json and .bin: schedules and programs), or a
        Schedule. `meaning`: what a schedule or a program computes, if it does not say so; "" leaves its bytes
        unchecked. Raises WorkloadError if a name means nothing."""
        saved: SavedSource | None = None
        if isinstance(workload, Schedule):
            saved = SavedSource(Path(workload.workload or "schedule"), unsaved=workload)
        elif not isinstance(workload, Workload) and table.is_file(str(workload)):
            saved = SavedSource(Path(workload))
        elif isinstance(workload, Workload) and isinstance(workload.source, SavedSource):
            saved = workload.source
        if saved is not None:
            return cls(_with_meaning(saved, meaning))
        if meaning is not None:
            raise WorkloadError(
                f"workload {workload}: only schedules and programs compute something else than their name"
            )
        if isinstance(workload, Workload):
            return workload
        name = str(workload)
        if not table.is_network(name):
            table.find(name)
            return cls(name)
        return cls(NetworkSource(name))

    @classmethod
    def gemm(cls, m: int, n: int, k: int, *, relu: bool = False, clamp: int = NO_CLAMP) -> Self:
        """The product of an m x k and a k x n matrix of int8, requantised to int8. Raises WorkloadError."""
        m, n, k, clamp = map(plain, (m, n, k, clamp))
        return cls(describe(gemm_shape("gemm", m, n, k, relu=relu, clamp=clamp)))

    @classmethod
    def conv(
        cls,
        height: int,
        width: int,
        channels: int,
        filters: int,
        *,
        kernel: int | tuple[int, int] = 1,
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] | tuple[int, int, int, int] = 0,
        dilation: int = 1,
        batch: int = 1,
        relu: bool = False,
        clamp: int = NO_CLAMP,
    ) -> Self:  # what a convolution has, by name
        """A convolution of a batch x channels x height x width input; pairs are (rows, columns), padding may be (top,
        left, bottom, right). Raises WorkloadError."""
        kernel_h, kernel_w = _numbers("kernel", kernel, 2)
        stride_h, stride_w = _numbers("stride", stride, 2)
        top, left, bottom, right = _numbers("padding", padding, 4)
        batch, channels, height, width, filters = map(plain, (batch, channels, height, width, filters))
        shape = ConvShape(
            "conv", batch, channels, height, width, filters, kernel_h, kernel_w, stride_h, stride_w,
            top, left, bottom, right, plain(dilation), relu, plain(clamp),
        )  # fmt: skip
        return cls(describe(shape))

    @classmethod
    def network(
        cls,
        name: str | Path,
        *,
        inputs: str | Path | Iterable[str | Path] = (),
        calibration: str | Path | Iterable[str | Path] = (),
        mean: float | tuple[float, ...] = 0.0,
        std: float | tuple[float, ...] = 255.0,
        labels: str | Path | None = None,
        bind: Mapping[str, int] | None = None,
        ranges: str = "best",
        seed: int = 0,
    ) -> Self:  # the options of `meshloom run` for networks, by name
        """A built-in network, or an .onnx file, run once for each of `inputs` (files of pictures or arrays, or one
        such file). The others are those of `meshloom run`: see `NetworkSource`; `ranges` is its `--calibration`. Raises
        WorkloadError if the name is of no network, or if what should be a file's name is something else; OnnxError for
        other `ranges`."""
        from meshloom.sched.workload.onnx import calibrate

        if not table.is_network(str(name)):
            raise WorkloadError(f"{name}: is no network; give a built-in one's name or an .onnx file")
        calibrate.ranges(ranges)
        return cls(
            NetworkSource(
                str(name),
                _files(inputs, "inputs"),
                _files(calibration, "calibration"),
                mean if isinstance(mean, tuple) else (mean,),
                std if isinstance(std, tuple) else (std,),
                None if labels is None else Path(labels),
                tuple((size, plain(number)) for size, number in (bind or {}).items()),
                ranges=ranges,
                seed=seed,
            )
        )

    @classmethod
    def mapped(cls, tool: str, file: str | Path, layer: str | None = None, *, nearest: bool = False) -> Self:
        """A layer, or a fused group, by the mapping that another tool wrote ("zigzag", "stream", another name, or
        FILE.py:NAME). `layer`: its name or shape, if the file does not say it; of a group the network, or LAYER+LAYER.
        `nearest`: where the chip cannot do what the mapping says, do what is nearest; `Schedule.claim` and `Row.claim`
        list the changes beside what the tool claims."""
        return cls(MappedSource(tool, Path(file), layer, nearest))

    @property
    def name(self) -> str:
        """Its name in tables."""
        if isinstance(self.source, str):
            return self.source
        return self.source.title if isinstance(self.source, NetworkSource) else self.source.name

    def requests(self, chip: ChipConfig) -> Sequence[WorkloadRequest]:
        """What it means on a chip: one workload, or several layers. Raises WorkloadError."""
        return table.requests(self.source, chip)

    def layers(self) -> tuple[Workload, ...]:
        """Its layers, each to be run by itself: of a built-in network, of gradients, of a topology's file. Raises
        WorkloadError for other files."""
        if isinstance(self.source, SavedSource | MappedSource):
            raise WorkloadError(f"workload {self.name}: is one schedule or program, of which no layer runs by itself")
        name = self.source if isinstance(self.source, str) else f"{self.source.name}/*"
        return tuple(Workload(request.reference) for request in table.find(name))


def plain(value: Any) -> Any:
    """A number of another library, such as numpy's, as an int or a float; all else as it is."""
    if isinstance(value, bool | int | float) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def _numbers(name: str, value: Any, most: int) -> Sequence[Any]:
    """The numbers of rows and columns, or of all sides, that one number, a pair or all of them say. Raises
    WorkloadError."""
    several: object = value
    given: list[Any] = list(value) if isinstance(several, Iterable) else [value, value]
    if len(given) not in (2, most):
        sides = " or (top, left, bottom, right)" if most > 2 else ""
        raise WorkloadError(f"{name} = {value!r} must be a number, (rows, columns){sides}")
    return [plain(each) for each in given * (most // len(given))]


def _files(paths: Any, what: str) -> tuple[Path, ...]:
    """The files that an argument names, also by their folder. Raises WorkloadError for anything else, such as an array
    itself."""
    value: object = paths
    single = isinstance(value, str | Path) or hasattr(value, "dtype") or not isinstance(value, Iterable)
    each: list[object] = [paths] if single else list(paths)
    for path in each:
        if not isinstance(path, str | Path):
            raise WorkloadError(
                f"{what}: a {type(path).__name__} is no file; give the names of files (an array's own: numpy.save)"
            )
    return files_of(Path(path) for path in each if isinstance(path, str | Path))


def _with_meaning(saved: SavedSource, meaning: Workload | str | Path | None) -> SavedSource:
    if meaning is None:
        return saved
    source = meaning.source if isinstance(meaning, Workload) else str(meaning)
    if isinstance(source, SavedSource | MappedSource):
        raise WorkloadError(f"{saved.name}: computes a layer or a network, not {source.name}")
    if isinstance(source, NetworkSource):
        return replace(saved, workload=source.name, fed=source)
    return replace(saved, workload=source)
