"""Which loop nest of a layer is fastest once it is timed ahead, with the sources of its MOVEs as given or the nearest.

`loop_order` ranks its nests by what they take when cores ask, and each core asks DRAM or a scratchpad. Timed ahead, and
with what one core has read taken from there, others may win: those that would load the same tile for several cores.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path

from pydantic import TypeAdapter

from meshloom.hw.config import ChipConfig

from ...ir.schedule import Schedule
from ...lowering.timed.sources import Chosen
from ...mapping.emit import build
from ...mapping.tiling import Candidate
from ...store.findings import SearchCache
from ...workload.layers import ConvShape
from ..loop_order.scheduler import kind, search

_CANDIDATE = TypeAdapter(Candidate)


def best_nest(
    shape: ConvShape,
    chip: ChipConfig,
    scale: int,
    nests: int,
    lay: Callable[[Schedule], Chosen],
    asked: Hashable,
    folder: Path | None,
) -> Schedule:
    """The fastest of `loop_order`'s best `nests`, no two of a kind (ways to share a layer, what is staged); of equally
    fast ones that with fewer flit-hops. `lay` gives each its cores and sources, by the options that `asked` names.

    The choice is kept below `folder`, by layer, chip, options and the code that decides it. Raises DoesNotFit.
    """
    memory = SearchCache(folder, chip, "dtt-nest", f"{__package__}.entry".partition(".")[2])
    key = shape, scale, nests, asked
    found = memory.get(key, _CANDIDATE)
    if found is None:
        leaders: dict[Hashable, Candidate] = {}
        for ranked in search(shape, chip, scale).ranked:
            leaders.setdefault(kind(ranked.candidate), ranked.candidate)
        tried = [(lay(build(shape, chip, one, scale)), one) for one in [*leaders.values()][:nests]]
        found = min(tried, key=lambda entry: (entry[0].cycles, entry[0].flit_hops))[1]
        memory.put(key, _CANDIDATE, found)
    return lay(build(shape, chip, found, scale)).schedule
