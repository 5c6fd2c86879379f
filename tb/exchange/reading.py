"""Reads a layer by any importer: one that does not ship with Meshloom in a process of its own, within limits, and what
it returns is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from traceback import extract_tb

from meshloom.sched.ir.schedule import ToolClaim
from meshloom.sched.schedulers.groups.mapping import GroupedNetwork
from meshloom.sched.schedulers.nest.mapping import Dimension, LayerMapping, MappingError
from meshloom.sched.schedulers.nest.schedule import sizes_of
from meshloom.sched.support import apart
from meshloom.sched.support.limits import Limits, limits_for, memory_text
from meshloom.sched.support.sockets import refused
from meshloom.sched.support.text import line_of
from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.layers import ConvShape

from .interface import ImportFileError, ToolLayer
from .registry import IMPORTERS

#: What the file itself may be to blame for: it is raised as it is.
_OF_THE_FILE = (ImportFileError, MappingError, OSError)


class ImporterError(ValueError):
    """An importer of somebody's that failed, or that returned something else; the message names it, and its line."""


def is_foreign(importer: str) -> bool:
    """Whether an importer, by name, runs in a process of its own: it does not ship, and there are limits."""
    return importer not in IMPORTERS.shipped and limits_for(shipped=False) is not None


def read_layer(importer: str, path: Path, shape: ConvShape | None) -> ToolLayer:
    """The layer of a file by an importer. `shape`: as `Importer.read` takes it.

    Raises ImporterError, UnknownImporterError, ImportFileError, MappingError, OSError.
    """
    reader = IMPORTERS.get(importer)
    if not is_foreign(importer):
        return reader.read(path, shape)
    (layer,) = read_layers(importer, path, [shape])
    if isinstance(layer, Exception):
        raise layer
    return layer


def read_named(importer: str, path: Path, name: str) -> ToolLayer | None:
    """The layer that a file calls so, by an importer that ships; None if the file has none, or its layers no names.

    Raises UnknownImporterError, ImportFileError, MappingError, OSError.
    """
    named = None if is_foreign(importer) else IMPORTERS.get(importer).named
    return named(path, name) if named else None


def read_layers(
    importer: str, path: Path, shapes: Sequence[ConvShape | None]
) -> Sequence[ToolLayer | ImportFileError | MappingError]:
    """The same for several layers that a file may be of, in one process; of each its mapping, or what the file lacks.

    Raises ImporterError, UnknownImporterError, OSError.
    """
    reader, limits = IMPORTERS.get(importer), limits_for(shipped=False)

    def read(shape: ConvShape | None) -> ToolLayer | ImportFileError | MappingError:
        try:
            layer = reader.read(path, shape)
        except (ImportFileError, MappingError) as error:
            return error
        return layer if importer in IMPORTERS.shipped else _checked(importer, path, layer, shape)

    if limits is None or importer in IMPORTERS.shipped:
        return [read(shape) for shape in shapes]
    try:
        return apart.call(
            lambda report: [read(shape) for shape in shapes], limits, lambda error: _explained(importer, error, limits)
        )
    except apart.DiedError as death:
        raise ImporterError(f"importer {importer} {death.what} on {path}") from None


def read_groups(importer: str, path: Path, graph: Graph, names: Mapping[str, str] | None) -> GroupedNetwork:
    """How the tool of an importer maps a network; see `interface.GroupReader`.

    Raises ImporterError, UnknownImporterError, ImportFileError, MappingError, OSError.
    """
    reader, limits = IMPORTERS.get(importer), limits_for(shipped=False)
    if limits is None or importer in IMPORTERS.shipped:
        return reader.read_groups(path, graph, names)
    try:
        mapped = apart.call(
            lambda report: reader.read_groups(path, graph, names),
            limits,
            lambda error: _explained(importer, error, limits),
        )
    except apart.DiedError as death:
        raise ImporterError(f"importer {importer} {death.what} on {path}") from None
    return _checked_groups(importer, path, mapped)


def _checked_groups(importer: str, path: Path, mapped: object) -> GroupedNetwork:
    """What an importer has returned, if it is the mapping of a network. Raises ImporterError."""
    if not isinstance(mapped, GroupedNetwork):
        raise ImporterError(f"importer {importer} returned a {type(mapped).__name__} of {path}, not a GroupedNetwork")
    return mapped


def _explained(importer: str, error: BaseException, limits: Limits) -> BaseException:
    """What is raised instead of an error in the process of an importer."""
    if (refusal := refused(error)) is not None:
        return ImporterError(f"importer {importer} failed: {refusal}")
    if isinstance(error, (*_OF_THE_FILE, ImporterError)):
        return error
    kind, what = type(error).__name__, str(error)
    if isinstance(error, MemoryError) and limits.megabytes is not None:
        return ImporterError(f"importer {importer} {memory_text(limits.megabytes)}")
    source = importer.partition(":")[0]
    own = str(Path(source).expanduser().resolve()) if source.endswith(".py") else ""
    lines = [frame.lineno or 0 for frame in extract_tb(error.__traceback__) if frame.filename == own]
    where = f" ({line_of(own, lines[-1])})" if lines else ""
    return ImporterError(f"importer {importer} failed: {kind}{': ' * bool(what)}{what}{where}")


def _checked(importer: str, path: Path, layer: object, shape: ConvShape | None) -> ToolLayer:
    """What an importer has returned, if it is the mapping of that layer. Raises ImporterError."""
    if not isinstance(layer, ToolLayer):
        raise ImporterError(f"importer {importer} returned a {type(layer).__name__} of {path}, not a ToolLayer")
    for name, kind in (("shape", ConvShape), ("mapping", LayerMapping), ("claim", ToolClaim)):
        value: object = getattr(layer, name)
        if not isinstance(value, kind):
            raise ImporterError(
                f"importer {importer} returned a {type(value).__name__} as the {name} of {path}, not a {kind.__name__}"
            )
    if shape is not None and layer.shape != shape:
        raise ImportFileError(f"{path}: is of another layer, by importer {importer}; name its own with --workload")
    sizes, own = layer.mapping.sizes, sizes_of(layer.shape)
    if any(sizes.get(dimension, 1) != own.get(dimension, 1) for dimension in Dimension):
        raise ImporterError(f"importer {importer} returned a mapping of {path} that is not of its layer's sizes")
    return layer
