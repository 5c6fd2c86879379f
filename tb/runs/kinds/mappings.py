"""Layers, and networks in fused groups, by mappings that other tools have made: `zigzag:FILE`, `stream:FILE`, or by an
importer of anybody's."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshloom.sched.lowering.programs import Planned, planned
from meshloom.sched.mapping.tiling.room import check_room
from meshloom.sched.schedulers.nest.mapping import MappingError
from meshloom.sched.schedulers.nest.schedule import schedule
from meshloom.sched.workload import catalog, topology
from meshloom.sched.workload.catalog import Workload
from meshloom.sched.workload.layers import WorkloadError

from ...exchange.interface import ToolLayer
from ...exchange.reading import is_foreign, read_layer, read_named
from ...exchange.registry import IMPORTERS
from . import grouped
from .interface import Listener, WorkloadKind
from .layers import LayerRun, SingleLayer
from .networks import NetworkRun

if TYPE_CHECKING:
    from meshloom.hw.spec.config import ChipConfig
    from meshloom.sched.schedulers.registry import Chosen

    from ...inputs.sources import NetworkSource


@dataclass(frozen=True)
class MappedSource:
    """A layer by the mapping in a file. `importer`: by name; `workload`: the layer, if the file does not say it, or by
    its name in the file, if that is a topology (.csv) or the tool's files have names; or the network, or several layers
    in a row (`LAYER+LAYER`) whose fused groups the file has; `nearest`: whether the nearest mapping is run where the
    chip cannot do what the file says."""

    importer: str
    path: Path
    workload: str | None = None
    nearest: bool = False

    scheduled_as = None
    first_stage = "reading"
    activity = "reading the mapping"
    runs = 1

    @property
    def name(self) -> str:
        """Its name until it has been read."""
        return f"{self.importer}:{self.path}"

    @property
    def reference(self) -> str:
        return self.name

    @property
    def macs(self) -> int | None:
        return None

    def layer(self) -> tuple[Workload, ToolLayer]:
        """The layer, with its data, and how the tool mapped it. Raises the errors of the file, and WorkloadError."""
        if self.workload is None:
            mapped = read_layer(self.importer, self.path, None)
            return Workload(mapped.shape), mapped
        if (named := read_named(self.importer, self.path, self.workload)) is not None:
            return Workload(named.shape), named
        inside = self.path.suffix == topology.SUFFIX and topology.has_layer(self.path, self.workload)
        layers = catalog.find(f"{self.path.as_posix()}/{self.workload}" if inside else self.workload)
        if len(layers) != 1:
            raise WorkloadError(f"workload {self.workload} is {len(layers)} layers; name one of them")
        return layers[0], read_layer(self.importer, self.path, layers[0].shape)

    def check(self, chip: ChipConfig) -> None:
        """Raises the errors of the file, and of the layer that it is of. An importer of somebody's is not called: what
        it does is in the row of this workload alone."""
        if is_foreign(self.importer):
            IMPORTERS.get(self.importer)
            self.path.open("rb").close()
        elif not grouped.is_grouped(self.workload):
            self.layer()
        else:
            grouped.read(self.importer, self.path, self.workload)

    def plan(self, chip: ChipConfig, scheduler: str | Chosen, progress: Listener) -> LayerRun | NetworkRun:
        """Its run; `scheduler` has no say. Raises the errors of the file, MappingError, DoesNotFit."""
        progress.step("reading")
        if grouped.is_grouped(self.workload):
            mapped_network = grouped.read(self.importer, self.path, self.workload)
            return grouped.plan(mapped_network, chip, self._origin(), progress, nearest=self.nearest)
        layer, mapped = self.layer()
        check_room(layer.shape, chip)
        progress.step("scheduling")
        try:
            result = schedule(layer.shape, chip, layer.scale, mapped.mapping, mapped.claim, nearest=self.nearest)
        except MappingError as error:
            raise MappingError(f"{self.path}: {error}") from error
        origin = {"scheduler": result.scheduler} | self._origin()
        return LayerRun(layer, planned(result, chip, progress.step), origin)

    def _origin(self) -> dict[str, Any]:
        return {"file": self.path.name, "file_digest": hashlib.sha256(self.path.read_bytes()).hexdigest()}

    def prepare(self, chip: ChipConfig, scheduler: str | Chosen, progress: Listener) -> Sequence[LayerRun | NetworkRun]:
        return [self.plan(chip, scheduler, progress)]

    def feed_with(self, source: NetworkSource) -> MappedSource:
        """Raises WorkloadError if there are inputs: a layer has its own."""
        if source.inputs:
            raise WorkloadError(f"computes layer {self.name}, which has its own input; --input is for networks")
        return self

    def expected(self) -> None:
        return None

    def restored(self, planned: Planned, chip: ChipConfig, title: str, origin: Mapping[str, Any]) -> Sequence[LayerRun]:
        return SingleLayer(self.layer()[0]).restored(planned, chip, title, origin)


def source_of(name: str) -> MappedSource:
    """What `TOOL:FILE` means. Raises UnknownImporterError, and WorkloadError without a file."""
    importer, file = IMPORTERS.split(name)
    IMPORTERS.get(importer)
    if not file:
        raise WorkloadError(f"workload {name!r} names no file: {importer}:FILE")
    return MappedSource(importer, Path(file))


def _find(name: str, chip: ChipConfig | None) -> Sequence[MappedSource]:
    return [source_of(name)]


def _syntax() -> str:
    return (
        "mappings: TOOL:FILE, a layer (stream: a fused group) as another tool maps it\n"
        f"  tools: {', '.join(IMPORTERS.names())}\n"
        "  or FILE.py:NAME, an importer of yours"
    )


KIND = WorkloadKind(_find, _syntax)
