"""What reads the mapping of a layer from a file of another tool, and what writes a chip as the tool reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.exact import Exact
from meshloom.sched.ir.schedule import ToolClaim
from meshloom.sched.schedulers.groups.mapping import GroupedNetwork
from meshloom.sched.schedulers.nest.mapping import Dimension, LayerMapping
from meshloom.sched.schedulers.nest.schedule import sizes_of
from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.layers import ConvShape

from ..results.energy import EnergyTable

M = TypeVar("M", bound=Exact)


class ImportFileError(ValueError):
    """A file that is no mapping of the tool, or of another layer; the message names file, place and mend."""


@dataclass(frozen=True)
class ToolLayer:
    """A layer as a tool mapped it. `claim`: what the tool says of the mapping."""

    shape: ConvShape
    mapping: LayerMapping
    claim: ToolClaim


#: Reads how a tool maps a network: the file; the network; the tool's names of layers with the name of what each makes
#: in the network, or the layer with which it is computed (None: layers are in the network's order).
GroupReader = Callable[[Path, Graph, Mapping[str, str] | None], GroupedNetwork]


@dataclass(frozen=True)
class Importer:
    """A reader of a tool's files.

    `read(path, shape)` returns the layer; `shape`: the one that the user names (None: the file has to say it). Or
    `module:function`, which is imported on the first call. It raises ImportFileError, MappingError and OSError.
    `summary`: one line for lists. `groups`: reads the same tool's mappings of networks (None: it has none).
    `named(path, name)` reads the layer that the file itself calls so, and returns None if it has no such layer (None:
    its files have no names).
    """

    name: str
    summary: str
    reader: Callable[[Path, ConvShape | None], ToolLayer] | str
    groups: GroupReader | str | None = None
    named: Callable[[Path, str], ToolLayer | None] | None = None

    def read(self, path: Path, shape: ConvShape | None) -> ToolLayer:
        """See above."""
        reader = self.reader if callable(self.reader) else _imported(self.reader)
        return reader(path, shape)

    def read_groups(self, path: Path, graph: Graph, names: Mapping[str, str] | None) -> GroupedNetwork:
        """See `GroupReader`. Raises ImportFileError, MappingError, OSError."""
        if self.groups is None:
            raise ImportFileError(
                f"{path}: {self.name} maps layers one by one here, {graph.name} has {len(graph.layers)}; name one of "
                "them with --workload"
            )
        reader = self.groups if callable(self.groups) else _imported(self.groups)
        return reader(path, graph, names)


def _imported(place: str) -> Callable[..., Any]:
    """What `module:name` means."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


@dataclass(frozen=True)
class ChipExporter:
    """A writer of chips as another tool reads them. `texts(chip, energy)`: the files by name; `left`: what the tool has
    no word for. `summary`: one line for lists."""

    name: str
    summary: str
    texts: Callable[[ChipConfig, EnergyTable], Mapping[str, str]]
    left: tuple[str, ...] = ()


def text_of(path: Path) -> str:
    """A file's text. Raises ImportFileError, OSError."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ImportFileError(f"{path}: is not UTF-8 text") from error


def validated(model: type[M], value: object, path: Path, what: str) -> M:
    """A value as a model has it. Raises ImportFileError that names the place; `what`: what the file should be."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        plain = {"missing": "is missing", "model_type": "must be a table of fields"}
        why = plain.get(first["type"]) or first["msg"].removeprefix("Value error, ")
        raise ImportFileError(f"{path}: {where}: {why}; it must be {what}") from None


def check_layer(path: Path, shape: ConvShape, sizes: Mapping[Dimension, int]) -> None:
    """Raises ImportFileError if the layer that the user names has other sizes than the file's."""
    own = sizes_of(shape)
    for dimension, size in sizes.items():
        if own[dimension] != size:
            raise ImportFileError(
                f"{path}: is of another layer: {dimension} = {size}, but {shape.name} has {dimension} = "
                f"{own[dimension]}; name its own with --workload"
            )
