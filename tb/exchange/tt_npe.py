"""Traffic of tt-npe (Tenstorrent's NoC performance estimator): its workload files in JSON.

An object with `phases`, each with `transfers`, and perhaps `golden_result` with the `cycles` that a chip took. A
transfer has `packet_size` (bytes), `num_packets`, `src_x`, `src_y`, and `dst_x`, `dst_y`, or for a multicast
`mcast_start_x`, `mcast_start_y`, `mcast_end_x`, `mcast_end_y`; `injection_rate` (bytes a cycle, 0: as fast as it goes),
`phase_cycle_offset`, `noc_type` (NOC_0 or NOC_1), `noc_event_type`. All phases begin in cycle 0, as in tt-npe's engine.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field

from meshloom.hw.spec.exact import Exact
from meshloom.sched.support.reading import parse_json

from .interface import ImportFileError, text_of, validated
from .noc_traffic import NocTransfer, NocWorkload

TOOL = "tt-npe"
_WHAT = "a workload of tt-npe: phases of transfers with packet_size, num_packets, src_x, src_y, dst_x, dst_y"
_Coordinate = Annotated[int, Field(ge=0)]


class _File(Exact):
    """Fields that tt-npe does not read either are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Transfer(_File):
    packet_size: Annotated[int, Field(ge=1)]
    num_packets: Annotated[int, Field(ge=1)]
    src_x: _Coordinate
    src_y: _Coordinate
    dst_x: _Coordinate | None = None
    dst_y: _Coordinate | None = None
    mcast_start_x: _Coordinate | None = None
    mcast_start_y: _Coordinate | None = None
    mcast_end_x: _Coordinate | None = None
    mcast_end_y: _Coordinate | None = None
    injection_rate: Annotated[float, Field(ge=0)] = 0.0
    phase_cycle_offset: Annotated[int, Field(ge=0)] = 0
    noc_type: str = "NOC_0"
    noc_event_type: str = ""


class _Phase(_File):
    transfers: list[_Transfer]


class _Golden(_File):
    cycles: int | None = None


class _Workload(_File):
    phases: list[_Phase]
    golden_result: _Golden = _Golden()


def read(path: Path) -> NocWorkload:
    """The traffic of a file. Raises ImportFileError, OSError."""
    try:
        value = parse_json(text_of(path))
    except ValueError as error:
        if isinstance(error, ImportFileError):
            raise
        raise ImportFileError(f"{path}: is not JSON: {error}; it must be {_WHAT}") from error
    if isinstance(value, list):
        raise ImportFileError(
            f"{path}: is a list, as traces of NoC events by tt-metal's profiler are, which are not read here; it must "
            f"be {_WHAT}"
        )
    workload = validated(_Workload, value, path, _WHAT)
    transfers = tuple(
        _transfer(each, f"{path}: phases.{phase}.transfers.{at}")
        for phase, part in enumerate(workload.phases)
        for at, each in enumerate(part.transfers)
    )
    if not transfers:
        raise ImportFileError(f"{path}: has no transfers; it must be {_WHAT}")
    return NocWorkload(TOOL, transfers, workload.golden_result.cycles)


def _transfer(each: _Transfer, where: str) -> NocTransfer:
    source, noc = (each.src_x, each.src_y), each.noc_type
    common = each.packet_size, each.num_packets, each.injection_rate, each.phase_cycle_offset, noc
    if each.dst_x is not None and each.dst_y is not None:
        return NocTransfer(source, ((each.dst_x, each.dst_y),), *common, False)
    corners = each.mcast_start_x, each.mcast_start_y, each.mcast_end_x, each.mcast_end_y
    numbers = [number for number in corners if number is not None]
    if len(numbers) < 4:
        raise ImportFileError(f"{where}: has no destination; give dst_x and dst_y, or all four of mcast_start_x, ...")
    left, right = sorted((numbers[0], numbers[2]))
    top, bottom = sorted((numbers[1], numbers[3]))
    box = tuple((x, y) for y, x in product(range(top, bottom + 1), range(left, right + 1)))
    return NocTransfer(source, box, *common, True)
