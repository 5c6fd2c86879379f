"""Two runs side by side: differences add up, what only one has is said, and a regression is told to CI."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.model.timeline import Executed
from meshloom.tb.cli.main import app
from meshloom.tb.compare.compared import CompareRunsError, against_model, compare
from meshloom.tb.compare.energy import energy_of
from meshloom.tb.results.artefacts import load as load_artefacts
from meshloom.tb.results.comparison import Comparison, Comparisons
from meshloom.tb.results.energy import EnergyTable
from meshloom.tb.results.energy import load as load_energy
from meshloom.tb.results.figures import LayerFigures, NetworkFigures
from meshloom.tb.results.named import find
from meshloom.tb.results.schema import RowError

from .kept_runs import keep, results_file

TINY = load("tiny")
SLOW = ChipConfig.model_validate(TINY.model_dump() | {"name": "slow", "dram": {"latency": 200, "bytes_per_cycle": 1}})
SHAPE, OTHER = "gemm:17x33x9", "gemm:5x6x7"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of the same layers on two chips, and one whose RTL is late from some cycle on."""
    root = tmp_path_factory.mktemp("runs")

    def late(entry: Executed) -> tuple[int, int, int]:
        more = 40 * (entry.start > 400)
        return entry.wait + more, entry.start + more, entry.end + more

    return {
        "tiny": keep(root / "tiny", SHAPE, TINY),
        "other": keep(root / "tiny", OTHER, TINY),
        "slow": keep(root / "slow", SHAPE, SLOW),
        "late": keep(root / "late", SHAPE, TINY, measured=late),
    }


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def assert_adds_up(comparison: Comparison) -> None:
    """Causes, layers and cycles tell of the same difference."""
    assert comparison.a.cycles is not None
    assert comparison.b.cycles is not None
    assert sum(comparison.a_causes.values()) == pytest.approx(comparison.a.cycles)
    assert sum(comparison.b_causes.values()) == pytest.approx(comparison.b.cycles)
    assert sum(layer.change for layer in comparison.layers) == pytest.approx(comparison.change)
    for layer in comparison.layers:
        assert sum(layer.causes.values()) == pytest.approx(layer.change)


def test_two_chips(folders: dict[str, Path]) -> None:
    comparisons = compare(find(str(folders["tiny"])), find(str(folders["slow"])), load_energy())
    (one,) = comparisons.workloads
    assert_adds_up(one)
    assert (one.a.chip, one.b.chip) == ("tiny", "slow")
    (layer,) = one.layers
    assert layer.layer == SHAPE
    assert next(iter(layer.causes)) in ("dram", "dram queue")
    shown = invoke(folders["tiny"], folders["slow"]).output
    assert one.chip_fields == {"dram.latency": ("40", "200"), "dram.bytes_per_cycle": ("4", "1")}
    assert "chip: tiny -> slow\n    dram.bytes_per_cycle: 4 -> 1\n    dram.latency: 40 -> 200\n" in shown
    assert f"{SHAPE}: {one.a.cycles:,} -> {one.b.cycles:,} cycles" in shown


def test_the_model_and_the_rtl_of_a_run(folders: dict[str, Path]) -> None:
    (one,) = against_model(find(str(folders["late"]))).workloads
    assert_adds_up(one)
    assert (one.a.source, one.b.source, one.change) == ("model", "rtl", 40)
    assert invoke(folders["tiny"]).exit_code == 0
    assert "+0 (+0.00 %)" in invoke(folders["tiny"]).output


def test_layers_that_only_one_has(folders: dict[str, Path]) -> None:
    (one,) = compare(find(str(folders["tiny"])), find(str(folders["other"])), load_energy()).workloads
    assert_adds_up(one)
    assert [(layer.layer, layer.a is None, layer.b is None) for layer in one.layers] == [
        (SHAPE, False, True),
        (OTHER, True, False),
    ]
    shown = invoke(folders["tiny"], folders["other"]).output
    assert f"{SHAPE} (only before)" in shown
    assert f"{OTHER} (only after)" in shown


def test_regressions_are_told_to_ci(folders: dict[str, Path], tmp_path: Path) -> None:
    tiny, slow, late = (folders[name] for name in ("tiny", "slow", "late"))
    for bound, status in (("1%", 1), ("0.5", 1), ("50 %", 0)):
        assert invoke(tiny, late, "--max-regression", bound).exit_code == status
    assert invoke(tiny, slow).exit_code == 0
    assert invoke(slow, tiny, "--max-regression", "0%").exit_code == 0
    for wrong in ("x", "-1%", "nan"):
        assert invoke(tiny, slow, "--max-regression", wrong).exit_code == 2
    both = results_file(tmp_path / "both.json", tiny, folders["other"])
    alone = results_file(tmp_path / "alone.json", tiny)
    comparisons = Comparisons.model_validate_json(invoke(both, alone, "--max-regression", "2%", "--json", "-").output)
    assert (comparisons.only_a, comparisons.only_b, comparisons.regressions) == (
        (OTHER,),
        (),
        (f"{OTHER}: is not in the second run",),
    )
    assert invoke(alone, both, "--max-regression", "2%").exit_code == 0
    broken = RowError(kind="DoesNotFit", stage="scheduling", message="too large")
    failed = results_file(tmp_path / "failed.json", tiny, error=broken)
    shown = invoke(alone, failed, "--max-regression", "2%")
    assert shown.exit_code == 1
    assert f"worse: {SHAPE}: failed" in shown.output
    assert "too large" in shown.output


def test_runs_that_have_nothing_in_common(folders: dict[str, Path], tmp_path: Path) -> None:
    one = results_file(tmp_path / "one.json", folders["tiny"], folders["tiny"])
    other = results_file(tmp_path / "other.json", folders["other"])
    with pytest.raises(CompareRunsError, match=rf"no workload in common: {SHAPE}, {SHAPE} in the first, {OTHER} in"):
        compare(find(str(one)), find(str(other)), load_energy())


def test_without_artefacts_the_shares_of_the_rows(folders: dict[str, Path], tmp_path: Path) -> None:
    """A network's layers as its results have them; of a layer by itself only the cycles are known."""
    alone = results_file(tmp_path / "alone.json", folders["tiny"], artefacts=None)
    (one,) = compare(find(str(alone)), find(str(folders["slow"])), load_energy()).workloads
    assert (one.layers, one.a_causes) == ((), {})
    assert "were not kept" in one.note
    assert one.change is not None
    moved = results_file(tmp_path / "moved.json", folders["tiny"], artefacts="nowhere/run/gemm")
    (one,) = compare(find(str(moved)), find(str(folders["slow"])), load_energy()).workloads
    assert one.change is not None
    assert "nowhere/run/gemm any more" in one.note

    def network(*parts: int) -> NetworkFigures:
        layers = tuple(
            LayerFigures(name=f"conv{number}", kind="conv", macs=1, limit="dram", rtl_cycles=part, model_cycles=part,
                         core_cycles=2 * part, utilisation=0.5, shares={"compute": 50.0, "dram": 50.0})
            for number, part in enumerate(parts)
        )  # fmt: skip
        return NetworkFigures(macs=3, tensors_checked=1, dram_bytes=0, layers=layers, shares={})

    before, after = (
        results_file(
            tmp_path / f"{number}.json", folders["tiny"], artefacts=None, rtl_cycles=sum(parts), network=network(*parts)
        )
        for number, parts in enumerate([(100, 200), (100, 150, 50)])
    )
    (one,) = compare(find(str(before)), find(str(after)), load_energy()).workloads
    assert_adds_up(one)
    assert [(layer.layer, layer.change) for layer in one.layers] == [("conv0", 0.0), ("conv1", -50.0), ("conv2", 50.0)]
    assert one.layers[1].causes == {"compute": -25.0, "dram": -25.0}


def test_energies_are_compared_by_one_table(folders: dict[str, Path], tmp_path: Path) -> None:
    """Rows that were estimated by the same table are taken as they are, with or without artefacts; others again."""
    mine = load_energy().model_copy(update={"name": "mine", "product": 7.0})

    def file(name: str, table: EnergyTable | None, artefacts: str | None) -> str:
        left = load_artefacts(folders[name])
        spent = None if table is None else energy_of(left, table)
        texts = {} if artefacts is None else {"artefacts": artefacts}
        return str(results_file(tmp_path / f"{name}.json", folders[name], energy=spent, **texts))

    def compared(table: EnergyTable | None = None) -> tuple[str | None, str | None]:
        (one,) = compare(find(a), find(b), table).workloads
        return one.a_energy and one.a_energy.table, one.b_energy and one.b_energy.table

    a, b = file("tiny", mine, "nowhere"), file("slow", mine, None)
    assert compared() == ("mine", "mine")
    assert compared(load_energy()) == (None, "45 nm")
    b = file("slow", load_energy(), None)
    assert compared() == (None, "45 nm")
    b = file("slow", None, None)
    assert compared(mine) == ("mine", "mine")
