"""Entries of an arena: schedulers by name, of a package or a file, and mappings that other tools have made.

A mapping is an entry in the layer that it is of. It is read where it is run, like a scheduler: an importer that does
not ship with Meshloom has a process of its own there, with the limits of a scheduler.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.ir.schedule import ToolClaim
from meshloom.sched.store import provenance
from meshloom.sched.workload import catalog

from ...exchange.interface import ToolLayer
from ...exchange.reading import read_layers
from ...exchange.registry import IMPORTERS
from .. import runner
from ..failures import Failure
from ..kinds.interface import PreparedRun
from ..kinds.mappings import MappedSource


class EntryError(ValueError):
    """An entry that has nothing to do on a board; the message says which layer it wants."""


def mapping_of(entry: str) -> MappedSource | None:
    """The mapping that an entry names (`TOOL:FILE`, `FILE.py:NAME:FILE`); None if it names a scheduler.

    `zigzag` is a tool and a scheduler: behind its colon a scheduler has `option=value`.
    """
    importer, file = IMPORTERS.split(entry)
    known = importer in IMPORTERS.names() or importer.partition(":")[0].endswith(".py")
    if not file or not known or ("=" in file and not Path(file).is_file()):
        return None
    return MappedSource(importer, Path(file))


def mapped_layers(source: MappedSource, workloads: Sequence[str]) -> dict[str, ToolClaim]:
    """Of these layers those that a mapping is of, by name, with what its tool claims.

    Raises EntryError if it is of none, the errors of the file, ImporterError of an importer of somebody's.
    """
    shapes = {name: layers[0].shape for name in workloads if len(layers := catalog.find(name)) == 1}
    layers = dict(zip(shapes, read_layers(source.importer, source.path, list(shapes.values())), strict=True))
    claims = {name: layer.claim for name, layer in layers.items() if isinstance(layer, ToolLayer)}
    if not claims:
        reasons = [layer for layer in layers.values() if isinstance(layer, Exception)]
        if reasons and not any(" of another layer" in str(each) or "multiply up" in str(each) for each in reasons):
            raise reasons[0]
        raise EntryError(f"entry {source.name}: is of none of the layers of the board; name its own with --workload")
    return claims


def prepared(source: MappedSource, workload: str, chip: ChipConfig) -> Sequence[PreparedRun] | Failure:
    """A layer by a mapping, ready to run; or why it is not."""
    return runner.prepared_here(replace(source, workload=workload), chip, "")


def decided_by(source: MappedSource) -> str:
    """A digest of the file of a mapping, and of the code that reads it. Raises OSError."""
    digest = hashlib.sha256(source.path.read_bytes())
    place = IMPORTERS.place(source.importer)
    if place.startswith("meshloom."):
        digest.update(provenance.digest(place.removeprefix("meshloom.")).encode())
    elif place.endswith(".py"):
        digest.update(provenance.of_file(Path(place)).encode())
    else:
        digest.update(provenance.of_module(place).encode())
    return digest.hexdigest()[:16]
