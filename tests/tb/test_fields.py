"""`--set FIELD=VALUE` and `--weight-bits`: what a text of the command line makes of a chip."""

from __future__ import annotations

from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner

from meshloom.hw.spec.config import ConfigError, load
from meshloom.tb.cli.fields import WeightBits, check_weight_bits, with_fields
from meshloom.tb.inputs.chips import changed


@pytest.mark.parametrize(
    ("texts", "changes"),
    [
        (["spm_words=4096"], {"spm_words": 4096}),
        ([" dram.latency = 25 ", "clock_mhz=1_00.5"], {"dram.latency": 25, "clock_mhz": 100.5}),
        (["core.int4=true"], {"core.int4": True}),
        (["dram.arbitration=round_robin"], {"dram.arbitration": "round_robin"}),
        (["dram.arbitration='round_robin'"], {"dram.arbitration": "round_robin"}),
        (["noc.multicast=[east,south]"], {"noc.multicast": ["east", "south"]}),  # quotation marks are the shell's
        (["noc.multicast=east, south"], {"noc.multicast": ["east", "south"]}),
        (["noc.multicast=[east]"], {"noc.multicast": ["east"]}),
        (
            ["dram.weights=3", "dram.weights=[3]", "dram.arbitration=weighted"],
            {"dram.weights": [3], "dram.arbitration": "weighted"},
        ),
        (["floorplan=[dram core,host spm,core .]"], {"floorplan": ["dram core", "host spm", "core ."]}),
        (["spm_words=1024", "spm_words=2048"], {"spm_words": 2048}),
    ],
)
def test_a_value_is_toml_or_a_word(texts: list[str], changes: dict[str, Any]) -> None:
    chip = load("tiny")
    result = with_fields(chip, texts)
    assert result == changed(chip, changes)
    assert result != chip


@pytest.mark.parametrize(("name", "array"), [("tiny", (8, 8)), ("pe12x14", (12, 14))])
def test_an_array_as_large_as_words_allow_follows_them(name: str, array: tuple[int, int]) -> None:
    chip = with_fields(load(name), ["lanes=8" if name == "tiny" else "lanes=32"])
    assert (chip.rows, chip.cols) == array


def test_without_a_field_it_is_the_same_chip() -> None:
    chip = load("tiny")
    assert with_fields(chip, None) is with_fields(chip, []) is chip


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("core.int4", "--set core.int4: give FIELD=VALUE, such as dram.arbitration=round_robin"),
        ("spm_words=", "--set spm_words=: give FIELD=VALUE, such as dram"),
        (" =4096", "--set  =4096: give FIELD=VALUE, such as dram"),
        ("spm_words=many", 'chip tiny with other fields: spm_words = "many" must be a whole number'),
        ("spm_words=[1", r'chip tiny with other fields: spm_words = "\[1" must be a whole number'),
        ("core.a_words=1,024", r"core.a_words = \[1, \"024\"\] must be a whole number"),
        pytest.param("spm_words=" + "[" * 5000, "--set spm_words: its value is nested too deeply", id="deep"),
    ],
)
def test_what_is_no_value_is_refused(text: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        with_fields(load("tiny"), [text])


@pytest.mark.parametrize(("bits", "status"), [(3, 2), (4, 0), (5, 2), (7, 2), (8, 0), (9, 2)])
def test_weights_have_four_or_eight_bits(bits: int, status: int) -> None:
    app = Typer()

    @app.command()
    def weigh(weight_bits: WeightBits) -> None:
        check_weight_bits(weight_bits)

    result = CliRunner().invoke(app, ["--weight-bits", str(bits)])
    assert result.exit_code == status, result.output
    assert ("--weight-bits" in result.output) == bool(status)
