"""Estimates of energy: what is counted is what the run did, and tables are checked when they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshloom.hw.spec.config import load as load_chip
from meshloom.sched.workload.catalog import find
from meshloom.tb.compare.energy import energy
from meshloom.tb.results.artefacts import Artefacts
from meshloom.tb.results.artefacts import load as load_artefacts
from meshloom.tb.results.energy import DEFAULT, EnergyError, EnergyFigures, EnergyTable, load

from .kept_runs import keep

SHAPE = "conv:9x7x5-6,k3,p1,relu"
TINY = load_chip("tiny")


@pytest.fixture(scope="module")
def run_artefacts(tmp_path_factory: pytest.TempPathFactory) -> Artefacts:
    return load_artefacts(keep(tmp_path_factory.mktemp("runs"), SHAPE, TINY))


def estimate(artefacts: Artefacts, table: EnergyTable) -> EnergyFigures:
    return energy(artefacts.row, artefacts.schedule, artefacts.program, artefacts.chip, table)


def counting(**parts: float) -> EnergyTable:
    """A table with which only some parts take energy."""
    sram = [{"bytes": 1, "byte": parts.pop("sram", 0.0)}]
    none = {"name": "t", "sram": sram, "product": 0.0, "dram_byte": 0.0, "link_byte": 0.0}
    return EnergyTable.model_validate(none | parts)


def test_counts_are_those_of_the_run(run_artefacts: Artefacts) -> None:
    counts = {name: part.count for name, part in estimate(run_artefacts, counting()).parts.items()}
    assert counts["products"] == find(SHAPE)[0].shape.macs
    rows = [row for row in run_artefacts.tables["instructions"].to_pylist() if row["bytes"] is not None]
    assert counts["links"] == sum(row["bytes"] * row["hops"] for row in rows)
    drams = set(TINY.drams)
    moved = sum(row["bytes"] * ((row["src_tile"] in drams) + (row["dst_tile"] in drams)) for row in rows)
    program = sum(len(stream.instructions) for stream in (*run_artefacts.program.streams, run_artefacts.program.boot))
    assert counts["DRAM"] == moved + program * TINY.instruction_words * TINY.lanes
    # each word that a core takes or gives is written or read there once, and arrays read all operands
    ends = 2 * sum(row["bytes"] for row in rows) - moved
    arrays = counts["operand memories"] + counts["result memories"] + counts.get("scratchpads", 0) - ends
    gemms = [op for op in run_artefacts.schedule.operations if op.kind == "gemm"]
    least = sum(op["pixels"] * op["n_blocks"] * (op.taps + 1) for op in gemms) * TINY.lanes
    assert arrays >= least


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        ({"product": 2.0}, {"products"}),
        ({"dram_byte": 2.0}, {"DRAM"}),
        ({"link_byte": 2.0}, {"links"}),
        ({"sram": 2.0}, {"operand memories", "result memories", "scratchpads"}),
    ],
)
def test_each_price_is_paid_for_its_part(run_artefacts: Artefacts, parts: dict[str, float], names: set[str]) -> None:
    figures = estimate(run_artefacts, counting(**parts))
    paid = {name: part for name, part in figures.parts.items() if part.picojoules}
    assert set(paid) == names & set(figures.parts)
    assert figures.microjoules == pytest.approx(sum(2.0 * part.count for part in paid.values()) / 1e6)


def test_memories_between_the_sizes_of_the_table() -> None:
    table = load()
    assert [round(table.sram_byte(size), 6) for size in (8192, 32768, 1 << 20)] == [1.25, 2.5, 12.5]
    assert 1.25 < table.sram_byte(16384) < 2.5
    assert table.sram_byte(1024) < 1.25
    assert table.sram_byte(1 << 22) > 12.5
    assert table.source


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("product = 0.3", "product = -1"), "product"),
        (("product = 0.3", "products = 1"), "products"),
        (("bytes = 32768", "bytes = 8192"), "list them from small to large"),
        (("byte = 2.5", "byte = 0"), "energies above 0"),
        (("byte = 2.5", "bite = 2.5"), r"sram\.\d\.bite: there is no such field; did you mean byte"),
        (
            ("byte = 2.5", "product = 2.5"),
            r"sram\.\d\.product: there is no such field; product belongs in front of",
        ),
        (("[[sram]]", "[[sram"), "malformed TOML"),
    ],
)
def test_tables_are_checked(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(DEFAULT.read_text().replace(*change))
    with pytest.raises(EnergyError, match=message) as raised:
        load(path)
    assert str(path) in str(raised.value)
    with pytest.raises(EnergyError, match="cannot be read"):
        load(tmp_path / "none.toml")
