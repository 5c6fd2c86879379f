"""The tables of `meshloom bench gradient` and `training`: which order is chosen, what is summed, and the bars."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from meshloom.sched.workload.training_chain import Chain
from meshloom.tb.benchmarks import gradient_chain
from meshloom.tb.benchmarks import gradient_chain_runs as chain_runs
from meshloom.tb.benchmarks.interface import BenchmarkError
from meshloom.tb.results.training import TrainingResults


def test_chains_are_measured_against_their_layers_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A way that is refused counts as the layers by themselves; the fastest of each is taken in the last row."""
    monkeypatch.setattr(chain_runs, "argmin", lambda chip, chain: chain_runs.Taken(1000, 500, plain=1100))
    refused = chain_runs.Taken(0, 0, "too small")

    def cycles_of(chip: str, chain: Chain, way: str) -> chain_runs.Taken:
        return refused if "bottom" in chain.name and way != "one program" else chain_runs.Taken(800, 400)

    monkeypatch.setattr(chain_runs, "taken", cycles_of)
    sheet = gradient_chain._rows("edge45", ("dlrm",))
    bottom, top, every, best = sheet.rows
    assert bottom[3:7] == ("+20.0", "refused", "refused", "refused")
    assert top == ("dlrm/top1..top5,b4", "1,100", "1,000", "+20.0", "+20.0", "+20.0", "+20.0", "500", "400")
    assert every[3:7] == ("+20.0", "+10.0", "+10.0", "+10.0")
    assert best[6] == "+20.0"
    assert [row[0] for row in gradient_chain._updates().rows[:2]] == ["edge45", "edge45"]


def test_siblings_are_layers_that_read_the_same_map() -> None:
    some = chain_runs.siblings("edge45", "goo")
    assert len(some) == 9
    assert some[0].joined == "gradient:gemm:3136x176x192"  # 64 + 96 + 16 outputs; the projection reads the pool
    (two,) = chain_runs.siblings("edge45", "res")
    assert two.joined == "gradient:gemm:12544x320x64"
    for layers in (one.layers for one in (*some, two)):
        assert len({(layer.m, layer.k) for layer in layers}) == 1


def test_what_is_not_measured_across_layers_is_a_missed_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("step", "ran", "learned", "argmin", "taken", "apart", "joined"):
        monkeypatch.setattr(chain_runs, name, lambda *value: None)
    page = gradient_chain.run(lambda event: None, ["kept"])
    assert all("not measured" in failure for failure in page.failures)
    assert len(page.failures) == len(chain_runs.STEP_WAYS) + len(page.sheets[-1].rows)
    with pytest.raises(BenchmarkError, match="'dense' is none of steps, edge45"):
        gradient_chain.run(lambda event: None, ["dense"])


@pytest.fixture
def result() -> Callable[..., TrainingResults]:
    base = TrainingResults(
        started=datetime(2026, 1, 1, tzinfo=UTC), environment={}, code="", network="digits", chip="quad16",
        chip_digest="", order="plain", simulator="", batch=64, seed=0, learning_rate=0.05, momentum=0.9, complete=True,
        steps=2, losses=(4.0, 0.5), accuracy=0.95, float_accuracy=0.96, step_cycles=1, model_cycles=2, bytes_checked=1,
        mismatches=0, divergences=0, cpu_seconds=0.0, checkpoint="",
    )  # fmt: skip
    return lambda **changes: base.model_copy(update=changes)


def test_wrong_bytes_and_cycles_are_reasons(result: Callable[..., TrainingResults]) -> None:
    assert result().ok
    wrong = result(mismatches=3, first_mismatch="step 1, y", divergences=2, first_divergence="step 2")
    assert wrong.reasons == ("3 of 1 bytes are wrong: step 1, y", "2 cycles are not those of the model: step 2")
