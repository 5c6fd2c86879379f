"""Chips: the built-in ones load, and each kind of mistake gives one error that names the place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError

from meshloom.hw.spec.config import (
    CHIP_FOLDER,
    ChipConfig,
    ConfigError,
    TileKind,
    built_in_chips,
    load,
    tile_address,
    tile_position,
)
from meshloom.hw.spec.isa import data_flit_bits

GOOD = """
name = "good"
lanes = 16
floorplan = ["dram core", "host spm"]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "chip.toml"
    path.write_text(text)
    return path


def test_the_chips_that_ship() -> None:
    assert {"tiny", "quad8", "quad16", "pe12x14"} <= set(built_in_chips())
    assert "quad16" in built_in_chips()


@pytest.mark.parametrize("name", built_in_chips())
def test_built_in_chip(name: str) -> None:
    chip = load(name)
    assert chip.name == name
    drawn = {tile_address(x, y): kind for y, row in enumerate(chip.floorplan) for x, kind in enumerate(row)}
    assert chip.tiles | dict.fromkeys(chip.gaps, TileKind.NONE) == drawn
    assert not chip.tiles.keys() & set(chip.gaps)
    others = 1 + (chip.dtt is not None) + len(chip.gaps)
    assert len(chip.cores) + len(chip.spms) + len(chip.channels) + others == chip.width * chip.height
    assert chip.tiles[chip.host] is TileKind.HOST
    assert chip.instruction_words * chip.lanes >= 32
    assert chip.trace_words * chip.lanes >= 16
    assert 2 * chip.fetch_chunk == chip.ring_instructions
    assert data_flit_bits(chip) >= max(64, chip.word_bits)
    if not chip.noc.arrivals and not chip.noc.route_hops:
        assert data_flit_bits(chip) == max(64, chip.word_bits)
    assert 1 <= chip.rows <= chip.lanes
    assert 1 <= chip.cols <= chip.lanes


@pytest.mark.parametrize(("lanes", "words"), [(4, 64), (16, 64), (64, 64), (128, 32)])
def test_a_packet_is_a_burst_inside_4_kib(lanes: int, words: int) -> None:
    """The longest packets that are: AXI4 bursts have 256 beats at most and cross no multiple of 4 KiB."""
    values = {"name": "x", "lanes": lanes, "floorplan": [["dram", "core"], ["host", "core"]]}
    chip = ChipConfig.model_validate(values | {"dram": {"bytes_per_cycle": 4}})
    assert chip.packet_words == words
    assert 4096 % (chip.packet_words * lanes) == 0
    assert data_flit_bits(chip) == max(64, 8 * lanes)


def test_server_chips_have_8_mib_a_core() -> None:
    for cores in (1, 2, 4, 8):
        chip = load(f"server{cores}")
        core = chip.core
        words = core.a_words + core.b_words + 4 * core.acc_words + core.out_words + core.vec_words
        assert words * chip.lanes == 8 << 20
        assert (len(chip.cores), len(chip.drams), chip.rows, chip.cols) == (cores, cores, 128, 128)


def test_sizes_of_the_regression_chips() -> None:
    tiny, quad16, odd = load("tiny"), load("quad16"), load("pe12x14")
    assert (len(tiny.cores), tiny.rows, tiny.cols) == (1, 4, 4)
    assert (len(quad16.cores), quad16.rows, len(quad16.drams), len(quad16.spms)) == (4, 16, 2, 2)
    assert (odd.rows, odd.cols) == (12, 14)


def test_a_code_channel_is_the_dram_beside_the_controller() -> None:
    values = {"name": "t", "lanes": 8, "floorplan": ["dram core dtt", "host dram dram"], "controller_channel": True}
    chip = ChipConfig.model_validate(values)
    assert (chip.code_channel, chip.drams, chip.channels) == (0x12, (0x00, 0x11), (0x00, 0x11, 0x12))
    shared = chip.model_copy(update={"controller_channel": False})
    assert (shared.code_channel, shared.drams) == (None, chip.channels)
    assert shared.digest != chip.digest


@pytest.mark.parametrize(
    ("floorplan", "message"),
    [
        (["dram core core", "host dram dram"], 'needs a "dtt" tile with a "dram" tile beside it'),
        (["dram core dtt", "dram host core"], 'needs a "dtt" tile with a "dram" tile beside it'),
        (["core dtt dram", "host core spm"], 'leaves no "dram" tile for data'),
    ],
)
def test_a_code_channel_needs_its_place(floorplan: list[str], message: str) -> None:
    values = {"name": "t", "lanes": 8, "floorplan": floorplan, "controller_channel": True}
    with pytest.raises(ValidationError, match=message):
        ChipConfig.model_validate(values)


def test_defaults_and_overrides(tmp_path: Path) -> None:
    chip = load(write(tmp_path, GOOD + "cols = 5\n[core]\na_words = 100\n[dram]\nbytes_per_cycle = 8\n"))
    assert (chip.rows, chip.cols, chip.core.a_words, chip.core.b_words) == (16, 5, 100, 4096)
    assert chip.tiles == {0: TileKind.DRAM, 1: TileKind.CORE, 16: TileKind.HOST, 17: TileKind.SPM}


def fields(model: type[BaseModel], place: str = "") -> Iterator[tuple[str, Any]]:
    for name, info in model.model_fields.items():
        kind: Any = info.annotation
        if type(None) in get_args(kind):  # a value that need not be there
            kind = next(each for each in get_args(kind) if each is not type(None))
            kind = get_args(kind)[0] if get_args(kind) else kind
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from fields(kind, f"{place}{name}.")
        else:
            yield f"{place}{name}", kind


@pytest.mark.parametrize(("field", "kind"), list(fields(ChipConfig)), ids=lambda each: str(each))
def test_a_value_is_what_it_looks_like(tmp_path: Path, field: str, kind: Any) -> None:
    """Of every field: no number for a text, no `true` for a number, and so on."""
    table, _, name = field.rpartition(".")
    head = f"\n[{table}]\n" if table else ""
    for value, right in (("true", bool), ('"12"', str), ("12.0", float), ("1", int)):
        if kind is right or (kind is float and right is int):
            continue
        text = "".join(line for line in GOOD.splitlines(True) if not line.startswith(f"{field} "))
        with pytest.raises(ConfigError, match=re.escape(field)):
            load(write(tmp_path, f"{text}{head}{name} = {value}\n"))


def test_a_copy_of_a_built_in_chip_is_that_chip(tmp_path: Path) -> None:
    copy = write(tmp_path, (CHIP_FOLDER / "tiny.toml").read_text())
    assert load(copy) == load("tiny")
    assert load(CHIP_FOLDER / "tiny.toml") == load("tiny")


def test_digest_follows_content(tmp_path: Path) -> None:
    ending = "[dram]\nbytes_per_cycle = 8\n"
    one = load(write(tmp_path, GOOD + ending))
    assert load(write(tmp_path, "# a comment\n" + GOOD + ending)).digest == one.digest
    assert load(write(tmp_path, GOOD + ending + "latency = 41\n")).digest != one.digest
    digests = {load(name).digest for name in built_in_chips()}
    assert len(digests) == len(built_in_chips())


def test_a_chip_is_frozen() -> None:
    chip = load("tiny")
    with pytest.raises(ValidationError, match="frozen"):
        chip.lanes = 8


def test_tile_addresses() -> None:
    for y in range(16):
        for x in range(16):
            assert tile_position(tile_address(x, y)) == (x, y)


#: Three rows with 33 cores.
ROWS = ", ".join([f'"dram{" core" * 11}"'] * 3)
MALFORMED = [
    ("lanes = \n", "malformed TOML: Invalid value (at line 1"),
    ("lanes = 8\nlanes = 8\n", "malformed TOML: Cannot overwrite a value (at line 2"),
    ("", "name, lanes and floorplan are missing; there are no defaults for them"),
    (GOOD + "[dram.banks]", "[dram.banks]: count, row_bytes, access_bytes, bandwidth, t_cl"),
    (GOOD.replace("lanes = 16", ""), "lanes: is missing"),
    (GOOD.replace("floorplan", "floor_plan"), "floor_plan: there is no such field; did you mean floorplan?"),
    (GOOD + "[core]\nc_words = 3", "core.c_words: there is no such field; did you mean vec_words, acc_words, b_words?"),
    (GOOD.replace('"good"', '"no good"'), 'name = "no good" must be letters, digits and _, with a letter first'),
    (GOOD.replace("16", "12"), "lanes = 12 must be a power of two"),
    (GOOD.replace("16", "2"), "lanes = 2 must be at least 4"),
    (GOOD.replace("16", "256"), "lanes = 256 must be at most 128"),
    (GOOD.replace("16", "128") + "rows = 129", "rows = 129 must be at most 128"),
    (GOOD.replace("16", "128") + "[dram]\nbytes_per_cycle = 143", "dram.bytes_per_cycle = 143 must be at most 128"),
    (GOOD.replace("16", '"sixteen"'), 'lanes = "sixteen" must be a whole number'),
    (GOOD + "rows = 17", "rows = 17 exceeds lanes = 16"),
    (GOOD + "cols = 20", "cols = 20 exceeds lanes = 16"),
    (GOOD + "cols = 0", "cols = 0 must be at least 1"),
    (GOOD.replace("dram core", "core core"), 'floorplan has no "dram" tile'),
    (GOOD.replace("dram core", "dram spm"), 'floorplan has no "core" tile'),
    (GOOD.replace("host spm", "spm spm"), 'floorplan has 0 "host" tiles; exactly one is needed'),
    (GOOD.replace("host spm", "host host"), 'floorplan has 2 "host" tiles'),
    (GOOD.replace("host spm", "host"), "floorplan rows differ in length: [2, 1]"),
    (GOOD.replace("host spm", "host npu"), 'row 1, column 1 is "npu"; a place is one of core, spm, dram, host, dtt, .'),
    (GOOD.replace('["dram core", "host spm"]', "[]"), "floorplan: expected a list of text rows"),
    (GOOD.replace('["dram core", "host spm"]', '"dram core"'), "floorplan: expected a list of text rows"),
    (GOOD.replace('"dram core"', f'"dram core{" core" * 15}"').replace('"host spm"', f'"host{" spm" * 16}"'),
     "floorplan is 17x2, tile coordinates reach 16x16"),
    (GOOD + "ring_instructions = 24", "ring_instructions = 24 must be a power of two"),
    (GOOD + "trace_records = 1000", "trace_records = 1000 must be a power of two"),
    (GOOD + "trace_records = 8", "trace_records = 8 are fewer than a run makes; set at least 16, or 0 for a chip"),
    (GOOD + "trace_records = 0\n[noc]\narrivals = true",
     "noc.arrivals = true leaves a trace record for each packet, and trace_records = 0 keeps none; set trace_records"),
    (GOOD.replace("host spm", "host dtt") + "trace_records = 0",
     'trace_records = 0 on a floorplan with a "dtt" tile: that its packets arrive when planned is known by trace rec'),
    (GOOD + "semaphores = 65", "semaphores = 65 must be at most 64"),
    (GOOD + "semaphores = 7", "semaphores = 7 must be at least 8"),
    (GOOD + "spm_words = 0", "spm_words = 0 must be at least 1"),
    (GOOD + "[core]\na_words = 65537", "core.a_words = 65537 must be at most 65536"),
    (GOOD + "[core]\nacc_words = 16385", "core.acc_words = 16385 must be at most 16384"),
    (GOOD + "[dram]\nwords = 16777217", "dram.words = 16777217 must be at most 16777216"),
    (GOOD + "[dram]\nlatency = 0", "dram.latency = 0 must be at least 1"),
    (GOOD + "[dram]\nbytes_per_cycle = 32",
     'dram.bytes_per_cycle = 32 exceeds one word a cycle (16 bytes); draw more "dram" tiles, each of which is a ch'),
    (GOOD + "[noc]\ndata_depth = 1", "noc.data_depth = 1 must be at least 2"),
    (GOOD.replace("host spm", "host .") + "[noc]\nroute_hops = 3", 'route_hops = 3 on a floorplan with ".": no tile'),
    (GOOD + "[dram]\nsemaphores = 8", "dram.semaphores: there is no such field; semaphores belongs in front of all"),
    (GOOD + "latency = 8", "latency: there is no such field; latency belongs into [dram]"),
    (GOOD + "[dram]\nspeed = 8", "dram.speed: there is no such field; there are words, bytes_per_cycle, latency"),
    (GOOD.replace("host spm", "host cpre"), 'floorplan: row 1, column 1 is "cpre"; did you mean core?'),
    (GOOD.replace('"host spm"', "7"), 'floorplan.1 = 7 must be text such as "dram core"'),
    (GOOD + "core = 3", "core = 3 must be a table of fields"),
    (GOOD + "[dram]\nlatency = true", "dram.latency = true must be a whole number"),
    (GOOD + 'rows = "12"', 'rows = "12" must be a whole number'),
    (GOOD + "rows = 12.0", "rows = 12.0 must be a whole number"),
    (GOOD + "product_register = 1", "product_register = 1 must be true or false"),
    (GOOD + 'product_register = "yes"', 'product_register = "yes" must be true or false'),
    (GOOD + "[noc]\ndata_routing = true", 'noc.data_routing = true must be "xy" or "yx"'),
    (GOOD.replace("good", "quad16"), 'name = "quad16" is the name of a built-in chip, a different one; take another'),
    (GOOD + "product_register = 3", "product_register = 3 must be true or false"),
    (GOOD.replace('"good"', "3"), "name = 3 must be text in quotes"),
    (GOOD.replace('"good"', f'"{"a" * 41}"'), "must have at most 40 characters"),
    (
        GOOD + '[noc]\nmulticast = ["east", "up"]',
        'noc.multicast.1 = "up" must be "north", "east", "south" or "west"',
    ),
    (GOOD + '[noc]\nmulticast = "east"',
     'noc.multicast = "east" must be a list, such as ["north"] or ["north", "east"]'),
    (GOOD + '[dram]\narbitration = "weighted"\nweights = 3', "dram.weights = 3 must be a list, such as [1] or [1, 2]"),
    (GOOD + '[noc]\ndata_routing = "zigzag"', 'noc.data_routing = "zigzag" must be "xy" or "yx"'),
    (GOOD + '[dram]\narbitration = "fair"', 'dram.arbitration = "fair" must be "fifo", "round_robin" or "weighted"'),
    (GOOD + '[dram]\narbitration = "weighted"\nweights = [17]', "dram.weights.0 = 17 must be at most 16"),
    (GOOD + '[dram]\narbitration = "weighted"\nweights = [1, 2]',
     "dram.weights has 2 numbers for 1 cores; write one for each, in floorplan order"),
    (GOOD + '[dram]\narbitration = "round_robin"\nweights = [1]',
     'dram.weights need dram.arbitration = "weighted", and it is "round_robin"; set that or leave the weights out'),
    (GOOD.replace("host spm", "host dtt") + '[dram]\narbitration = "round_robin"',
     'dram.arbitration = "round_robin" on a floorplan with a "dtt" tile: the controller orders the requests of the'),
    (GOOD + "mover_queue = 0", "mover_queue = 0 must be at least 1"),
    (GOOD + "programs = -1", "programs = -1 must be at least 0"),
    (GOOD + "programs = 32", "programs = 32 must be at most 31"),
    (GOOD.replace("host spm", "host dtt") + "programs = 2",
     'programs = 2 on a floorplan with a "dtt" tile: a controller'),
    (GOOD.replace('"dram core"', ROWS).replace("host spm", "host" + " spm" * 11) + "programs = 2",
     "programs = 2 on a floorplan with 33 cores: rights name at most 32; set programs = 0 or draw fewer cores"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), MALFORMED, ids=[message for _, message in MALFORMED])
def test_malformed_chip(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as error:
        load(path)
    result = str(error.value)
    assert result.startswith(f"{path}: ")
    assert message in result
    assert "\n" not in result
    assert "nput" not in result, "pydantic's words are not ours"


@pytest.mark.parametrize("lanes", ["2", "256", '"sixteen"', "2.5"])
def test_fields_that_nobody_wrote_are_not_blamed(tmp_path: Path, lanes: str) -> None:
    """An array is as large as the word unless said otherwise: its rows and cols are then no mistakes of their own."""
    path = write(tmp_path, GOOD.replace("16", lanes))
    with pytest.raises(ConfigError) as error:
        load(path)
    assert str(error.value).startswith(f"{path}: lanes = {lanes} must be ")
    assert "rows" not in str(error.value)
    assert "cols" not in str(error.value)
    with pytest.raises(ConfigError, match=r"; rows = 129 must be at most 128$"):
        load(write(tmp_path, GOOD.replace("16", lanes) + "rows = 129"))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown chip 'quad17': built in are .*quad16.*; did you mean quad16, "):
        load("quad17")
    with pytest.raises(ConfigError, match=r"unknown chip 'zz': built in are .*; or give a \.toml$"):
        load("zz")
    with pytest.raises(ConfigError, match=r"nowhere\.toml: cannot be read: No such file"):
        load(tmp_path / "nowhere.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        load(binary)


def test_one_error_per_mistake(tmp_path: Path) -> None:
    """Two mistakes in different fields are both named, in one line."""
    with pytest.raises(ConfigError) as error:
        load(write(tmp_path, GOOD + "semaphores = 1\nspm_words = 0"))
    text = str(error.value)
    assert "semaphores = 1 must" in text
    assert "spm_words = 0 must" in text
    assert "\n" not in text


def test_from_python() -> None:
    values = {"name": "x", "lanes": 4, "floorplan": [["dram", "core"], ["host", "core"]]}
    chip = ChipConfig.model_validate(values | {"dram": {"bytes_per_cycle": 4}})
    assert len(chip.cores) == 2


def test_a_chip_whose_requests_for_dram_come_first_is_the_chip_of_before() -> None:
    values = {"name": "x", "lanes": 4, "floorplan": ["dram core", "host core"], "dram": {"bytes_per_cycle": 4}}
    before = ChipConfig.model_validate(values)
    values["dram"] = {"bytes_per_cycle": 4, "arbitration": "fifo", "weights": []}
    assert ChipConfig.model_validate(values).digest == before.digest
    values["dram"] = {"bytes_per_cycle": 4, "arbitration": "weighted", "weights": [1, 2]}
    weighted = ChipConfig.model_validate(values)
    assert weighted.dram.weights == (1, 2)
    assert weighted.digest != before.digest


def test_several_programs_at_once() -> None:
    """As many as fit, on as many cores as rights can name; the chip of one program is another chip."""
    rows = [*["dram core core core core core core core core"] * 4, "host dram dram dram dram dram dram dram dram"]
    values = {"name": "x", "lanes": 4, "floorplan": rows, "dram": {"bytes_per_cycle": 4}}
    one, many = ChipConfig.model_validate(values), ChipConfig.model_validate(values | {"programs": 31})
    assert (one.programs, many.programs, len(many.cores)) == (0, 31, 32)
    assert one.digest != many.digest
