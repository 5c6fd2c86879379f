"""What bounds a layer is what one would buy more of: tested by buying it."""

from __future__ import annotations

from typing import Any

import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import Region, address
from meshloom.sched.ir.schedule import Move, Schedule, Span
from meshloom.sched.lowering.predict import predict
from meshloom.sched.mapping.play.what_if import Resource, WhatIf
from meshloom.sched.schedulers.network.limits import NEAR, bounding, busiest, limit, totals, uses
from meshloom.sched.schedulers.registry import find
from meshloom.sched.workload.catalog import find as workloads

from ....tiers import slow_but


def variant(chip: ChipConfig, **changes: Any) -> ChipConfig:
    """A chip with changes; those of a section leave its other fields."""
    fields = chip.model_dump()
    for name, value in changes.items():
        fields[name] = fields[name] | value if isinstance(value, dict) else value
    return ChipConfig.model_validate(fields | {"name": "variant"})


def scheduled(layer: str, chip: ChipConfig) -> Schedule:
    (workload,) = workloads(layer)
    return find("loop_order:effort=0.05")(workload.shape, chip, workload.scale)


def cycles(layer: str, chip: ChipConfig) -> int:
    return predict(scheduled(layer, chip), chip).cycles


#: Chips on which each of three things can be doubled alone. DRAM sends whole packets, so that a link that is twice as
#: wide is not held by a channel that is not.
BASE = variant(load("quad16"), rows=8, cols=8, dram={"bytes_per_cycle": 8, "whole_packets": True})
CHIPS = {
    "balanced": BASE,
    "slow DRAM": variant(BASE, dram={"bytes_per_cycle": 2}),
    "one core": variant(BASE, floorplan=["dram core", "host spm"]),
    "one row of tiles": variant(BASE, floorplan=["dram spm host core core core core"], dram={"bytes_per_cycle": 8}),
    "narrow NoC": variant(BASE, floorplan=["dram dram dram core core", "host . . . spm"]),
}


def bought(chip: ChipConfig) -> dict[str, ChipConfig]:
    """The chip with twice as much of each: rows of PEs, bandwidth of DRAM, width of links."""
    return {
        "compute": variant(chip, rows=2 * chip.rows),
        "dram": variant(chip, dram={"bytes_per_cycle": 2 * chip.dram.bytes_per_cycle}),
        "noc": variant(chip, lanes=2 * chip.lanes),
    }


LAYERS = ("gemm:16x128x512", "gemm:256x64x64", "conv:14x14x64-64,k3,p1", "conv:16x16x128-64,k1")
CASES = [
    (chip, layer) if (chip, layer) == ("balanced", LAYERS[0]) else pytest.param(chip, layer, marks=pytest.mark.slow)
    for chip in CHIPS
    for layer in LAYERS
]


@pytest.mark.parametrize(("name", "layer"), CASES)
def test_nothing_else_is_worth_more_than_what_is_named(name: str, layer: str) -> None:
    chip = CHIPS[name]
    result = scheduled(layer, chip)
    before, named = predict(result, chip).cycles, limit(result, chip).split("+")
    after = {what: cycles(layer, other) for what, other in bought(chip).items()}
    assert min(after[what] for what in named) <= min(after.values()) + NEAR * before, (named, before, after)


@pytest.mark.parametrize("name", slow_but(["quad16", "quad32"], "quad32"))
def test_a_channel_that_sends_a_word_a_cycle_is_the_limit_and_not_its_port(name: str) -> None:
    """Its port sends heads, too, and is always a little busier. More channels help, wider links less than half as much
    (with half as many packets)."""
    chip, layer = load(name), "gemm:1x512x1024"
    assert chip.dram.bytes_per_cycle == chip.lanes
    assert limit(scheduled(layer, chip), chip) == "dram"
    more = variant(chip, floorplan=["dram core core dram", "spm core core .", "host spm dram dram"])
    wider = variant(chip, lanes=2 * chip.lanes)
    before = cycles(layer, chip)
    saved, saved_by_width = (before - cycles(layer, other) for other in (more, wider))
    assert saved > 0.2 * before
    assert saved_by_width < 0.5 * saved


def test_what_is_as_good_is_named_too_and_what_helps_only_with_others_if_nothing_else_does() -> None:
    compute, dram, noc = Resource.COMPUTE, Resource.DRAM, Resource.NOC

    def never() -> dict[Resource, float]:
        raise AssertionError("what is missed is played only if nothing else helps")

    assert bounding({compute: 30, dram: 20, noc: 0}, never, 100) == "compute"
    assert bounding({compute: 25, dram: 30, noc: 0}, never, 100) == "dram+compute"
    # alone none gains: what would be missed most if all else were bought
    assert bounding({compute: 4, dram: 5, noc: 1}, lambda: {compute: 48, dram: 50, noc: 20}, 100) == "dram+compute"


def moves(chip: ChipConfig, *ways: tuple[int, int], words: int = 640) -> Schedule:
    """A schedule that moves so many words from one tile to another, for each pair of tiles."""

    def span(tile: int) -> Span:
        region = Region.OUT if tile in chip.cores else Region.MAIN
        return Span(tile=tile, address=address(region, 0), run=words, stride=words)

    operations = tuple(Move(issuer=target, src=span(source), dst=span(target), words=words) for source, target in ways)
    return Schedule(
        chip=chip.name, chip_digest=chip.digest, workload="w", scheduler="s", operations=operations, tensors=()
    )


def test_one_core_that_takes_from_one_channel_needs_more_of_both() -> None:
    tiny = load("tiny")
    assert set(limit(moves(tiny, (tiny.drams[0], tiny.cores[0])), tiny).split("+")) == {"dram", "noc"}


def test_a_link_on_which_several_channels_meet_is_the_nocs_or_drams() -> None:
    chip = variant(load("quad16"), floorplan=["dram dram core core core", "host . . . ."])
    first, second = chip.drams
    to = chip.cores
    result = moves(chip, (first, to[0]), (first, to[1]), (second, to[1]), (second, to[2]))
    flits = 640 * (1 + 1 / 64)
    # a wider link helps, and so do channels elsewhere
    assert set(limit(result, chip).split("+")) == {"noc", "dram"}
    # nothing but a channel's own words, or nearly so: it is the channel's
    assert limit(moves(chip, (second, to[0]), (second, to[1]), (second, to[2])), chip) == "dram"
    assert totals(result, chip) == pytest.approx(
        {"compute": 0, "vector": 0, "receiving": 2 * flits, "sending": 0, "dram": 2 * flits, "memories": 0}
    )


@pytest.mark.parametrize(("others", "noc"), [(1, 11), (3, 33)])
def test_a_link_that_one_channel_all_but_fills_is_that_channel_s(others: int, noc: int) -> None:
    """Three cores take ten times as many words as a MOVE has, over one link; a MOVE or three come from farther away."""
    chip = variant(load("quad16"), floorplan=["dram dram core core core", "host . . . ."])
    first, second = chip.drams
    ways = [(second, core) for core in chip.cores] * 10 + [(first, chip.cores[1])] * others
    used = busiest(moves(chip, *ways), chip, lambda op: "all")["all"]
    assert used["noc"] == pytest.approx(noc * 640 * (1 + 1 / chip.packet_words))


def test_a_link_between_cores_is_the_noc_s() -> None:
    """Two of four cores in a row send to the other two: over the link in the middle, from and to ports of their own."""
    chip = variant(load("quad16"), floorplan=["dram core core core core", "host . . . ."])
    a, b, c, d = chip.cores
    used = busiest(moves(chip, (a, c), (b, d)), chip, lambda op: "all")["all"]
    assert used["noc"] == pytest.approx(2 * 640 * (1 + 1 / chip.packet_words))


def test_every_tile_that_takes_words_is_busy_with_them() -> None:
    """Three cores take the same words at once: DRAM's port sends them once, each core's receives them."""
    chip = variant(load("quad8"), noc={"multicast": ["east"]}, floorplan=["dram core core core", "host spm spm spm"])
    plain = moves(chip, (0, 3))
    (op,) = plain.operations
    copied = plain.model_copy(update={"operations": (op.model_copy(update={"copies": 2}),)})
    for schedule, taking in ((plain, 1), (copied, 3)):
        flits = [(use.kind, use.tile, use.cycles) for use in uses(schedule, chip) if use.what in ("in", "out")]
        assert [kind for kind, *_ in flits] == ["dram"] + ["receiving"] * taking
        assert len({cycles for *_, cycles in flits}) == 1
    assert len(WhatIf(copied.operations, chip).links[0]) == 3 + 4
