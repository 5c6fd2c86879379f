"""What reports say of MOVEs that several tiles take: where words came from, what was written, what it costs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Opcode, Region, Unit, address
from meshloom.sched.ir.schedule import Move, Operation, Span
from meshloom.sched.lowering.programs import unchecked
from meshloom.sched.program.routes import default_route
from meshloom.tb.compare.energy import estimate
from meshloom.tb.compare.links import Transfer, _packets
from meshloom.tb.compare.mismatch import _back, _Word
from meshloom.tb.compare.tiles import layers_of
from meshloom.tb.devices.interface import Run
from meshloom.tb.devices.readout import Record, records_expected
from meshloom.tb.report.tables import _operation
from meshloom.tb.results.energy import DEFAULT, load
from meshloom.tb.verify.random_schedules import schedule_of

CHIP = ChipConfig.model_validate(
    {"name": "copier", "lanes": 4, "floorplan": ["dram core core core", "host spm . ."]}
    | {"noc": {"multicast": ["east"], "arrivals": True}, "dram": {"words": 1 << 16}}
)
DRAM, NEAR, MIDDLE, FAR = 0x00, 0x01, 0x02, 0x03


def operations(copies: int) -> list[Operation]:
    """Words come to ACC of a core, and of those before it; another of these, if any, sends them back."""
    there = Span(tile=FAR, address=address(Region.ACC, 8), run=4)
    back = Span(tile=NEAR if copies == 2 else FAR, address=address(Region.ACC, 8), run=4)
    out, home = (Span(tile=DRAM, address=at, run=4) for at in (0, 100))
    return [
        Move(issuer=DRAM, src=out, dst=there, words=4, copies=copies),
        Move(issuer=back.tile, src=back, dst=home, words=4),
    ]


@pytest.mark.parametrize("copies", [0, 2])
def test_a_word_is_traced_back_through_whatever_tile_took_it(copies: int) -> None:
    assert list(_back(operations(copies), _Word(DRAM, Region.MAIN, 102), CHIP)) == [1, 0]
    assert list(_back(operations(copies)[:1], _Word(MIDDLE, Region.ACC, 9), CHIP)) == ([0] if copies else [])


@pytest.mark.parametrize("copies", [0, 2])
def test_words_that_a_core_took_on_their_way_are_known_words(copies: int) -> None:
    (layer,) = layers_of(schedule_of(operations(copies), CHIP), CHIP).values()
    assert layer.flows["DRAM", "ACC"].moved == layer.flows["ACC", "DRAM"].moved == 4


def test_each_memory_that_is_written_costs_energy_and_each_link_once() -> None:
    table, figures = load(DEFAULT), {}
    for copies in (0, 2):
        schedule = schedule_of(operations(copies)[:1], CHIP)
        figures[copies] = estimate(None, schedule, unchecked(schedule, CHIP), CHIP, table).parts
    names = ("links", "result memories")
    assert [figures[0][name].count for name in names] == [4 * 4 * 3, 4 * 4]
    assert [figures[2][name].count for name in names] == [4 * 4 * 3, 3 * 4 * 4]


@pytest.mark.parametrize(("copies", "words"), [(0, ""), (1, ", 1 copy on the way"), (2, ", 2 copies on the way")])
def test_a_table_says_how_many_take_them(copies: int, words: str) -> None:
    verb, rest = _operation(operations(copies)[0])
    assert (verb, rest) == ("MOVE by (0,0)", f"4 words (0,0) MAIN[0] -> (3,0) ACC[8]{words}")


def test_every_tile_that_takes_a_packet_records_it() -> None:
    """Of a program that no checker would accept the destination alone is counted on."""
    program = unchecked(schedule_of(operations(2)[:1], CHIP), CHIP)
    expected = records_expected(program, CHIP)
    assert [expected[tile] for tile in (NEAR, MIDDLE, FAR)] == [1, 1, 1]
    wrong = ChipConfig.model_validate(CHIP.model_dump(mode="json") | {"noc": {"arrivals": True}})
    assert [records_expected(program, wrong)[tile] for tile in (NEAR, MIDDLE, FAR)] == [0, 0, 1]


def test_packets_are_told_apart_where_several_tiles_take_those_of_one_tag() -> None:
    """Two MOVEs of one tag: of three tiles that take the first one, the nearest takes the second one alone."""
    first = {"tag": 5, "src_tile": DRAM, "src": 0, "src_run": 4, "dst_tile": FAR, "dst": 0, "dst_run": 4, "words": 4}
    second = first | {"dst_tile": NEAR}
    arrivals = [(NEAR, 10, 17), (MIDDLE, 10, 19), (FAR, 10, 21), (NEAR, 50, 100)]
    records = [Record(tile, Unit.NONE, Opcode.MOVE, 5, 4, 0, start, end) for tile, start, end in arrivals]
    run = SimpleNamespace(records=records)
    senders = [Record(DRAM, Unit.MOVER, Opcode.MOVE, 5, 0, 0, start, start + 9) for start in (9, 49)]
    moved = [
        Transfer(fields, default_route(CHIP, DRAM, fields["dst_tile"]), record)
        for fields, record in zip((first | {"copies": 2}, second), senders, strict=True)
    ]
    figures = _packets(moved, cast("Run", run), CHIP)
    assert figures is not None
    assert (figures.count, figures.worst) == (2, 50)
