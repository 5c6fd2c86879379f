"""Random layers on the RTL and in the timeline model, alone and beside others, by the same launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.lowering.templates.template import Template
from meshloom.sched.model.modelled import ModelSession
from meshloom.sched.model.session import Session
from meshloom.sched.papers.layer_puzzle.samples import Alone, Draw, Runs, compiled, mixes
from meshloom.sched.store.findings import SearchCache
from meshloom.sched.store.kinds import SCHEDULES

from ..build.builder import build
from ..devices.serving import ServedChip
from ..runs.online.rtl_session import RtlSession

#: Layers of a chunk that run beside others, and cycles of the longest that runs at all (a few take millions).
MIXES, LONGEST = 4, 32_768


@dataclass(frozen=True)
class Pair:
    """A layer on both. `expected`: its cycles as compiled, alone; `rtl`, `model`: cycles from launch to completion
    here; `others`: that run beside it, as `draws` of theirs."""

    draw: Draw
    expected: int
    rtl: int
    model: int
    others: tuple[Draw, ...] = ()


@dataclass(frozen=True)
class RtlChunk:
    """What has been measured of a chunk. `programs`: completions that were compared, of the others too; `differ`: of
    these, how many came in another cycle; `cycles`: simulated."""

    alone: tuple[Pair, ...]
    beside: tuple[Pair, ...]
    programs: int
    differ: int
    cycles: int


_CHUNK = TypeAdapter(RtlChunk)


def _short(alone: Sequence[Alone]) -> list[Draw]:
    return [one.draw for one in alone if one.measures.cycles <= LONGEST]


def kept(number: int, alone: Sequence[Alone], memory: SearchCache) -> RtlChunk | None:
    """What `measured` has found of a chunk."""
    return memory.get((number, tuple(_short(alone))), _CHUNK)


def measured(chip: ChipConfig, number: int, alone: Sequence[Alone], memory: SearchCache | None = None) -> RtlChunk:
    """A chunk on the RTL, from `memory` if it has run before: its layers of at most `LONGEST` cycles one after another,
    then `MIXES` of them beside others. `alone`: what the model says of its layers. Raises DeviceError and its kin."""
    short = _short(alone)
    if memory is not None and (found := kept(number, alone, memory)) is not None:
        return found
    layers = compiled(short, chip)
    with ServedChip(build(chip, "verilator")) as served:
        rtl = _runs(RtlSession(served), layers, number)
    model = _runs(ModelSession(chip), layers, number)
    pairs = [
        Pair(layers[layer][0], layers[layer][1].measures.cycles, took, said, tuple(layers[one][0] for one in others))
        for (layer, others, took), (_, _, said) in zip(rtl.found, model.found, strict=True)
    ]
    made = RtlChunk(
        tuple(pair for pair in pairs if not pair.others),
        tuple(pair for pair in pairs if pair.others),
        len(rtl.completions),
        sum(one != other for one, other in zip(rtl.completions, model.completions, strict=True)),
        rtl.session.now,
    )
    if memory is not None:
        memory.put((number, tuple(short)), _CHUNK, made)
    return made


class _Found(Runs):
    """`found`: (layer, others, cycles) of each run."""

    found: list[tuple[int, list[int], int]]


def _runs(session: Session, layers: Sequence[tuple[Draw, Template]], number: int) -> _Found:
    """The runs of a chunk on one session, each when nothing is left of the one before."""
    runs = _Found(session, layers)
    runs.found = [(layer, [], runs.alone(layer)) for layer in range(len(layers))]
    for index, (layer, others) in enumerate(mixes(layers, session.chip, Random(number))):
        if index == MIXES:
            break
        runs.found.append((layer, others, runs.beside(layer, others, number * MIXES + index)))
        runs.drain()
    return runs


def rtl_cache(chip: ChipConfig) -> SearchCache:
    """Where chunks are kept. Raises SettingError."""
    return SearchCache(SCHEDULES.folder(), chip, "layers on the RTL", __name__.partition(".")[2])
