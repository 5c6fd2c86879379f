"""The example of a scheduler outside: it computes every layer and network right, on odd chips too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.checker.check import check
from meshloom.sched.ir.functional import run
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.schedulers import registry
from meshloom.sched.schedulers.network import authored
from meshloom.sched.schedulers.network.sharing import SharingOptions
from meshloom.sched.workload.layers import random_data
from meshloom.sched.workload.shapes import parse
from meshloom.tb.inputs.golden.layer import golden

from ...tiers import slow_but
from .network.test_networks import computes, every_kind, small

EXAMPLE = f"{Path(__file__).parents[3] / 'examples' / 'scheduler' / 'in_turn' / '__init__.py'}:schedule"
SHAPES = (
    "conv:6x6x20-20,k3,p1,relu",
    "gemm:5x9x17",
    "gemm:1x130x515",
    "conv:9x7x3-10,k3,s2,p1",
    "conv:8x8x16-8,k1,s2",
    "conv:20x20x40-24,k3,p2,d2",
)


def tight() -> ChipConfig:
    """Two cores whose memories hold next to nothing."""
    core = load("tiny").core.model_dump() | {"a_words": 64, "b_words": 160, "acc_words": 48, "out_words": 32}
    changed = load("quad8").model_dump() | {"name": "tight", "core": load("quad8").core.model_dump() | {
        key: core[key] for key in ("a_words", "b_words", "acc_words", "out_words")}}  # fmt: skip
    return ChipConfig.model_validate(changed)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("chip", [load("tiny"), load("pe12x14"), tight()], ids=lambda chip: chip.name)
@pytest.mark.parametrize("options", ["", ":rows=1"])
def test_it_computes_every_layer(shape: str, chip: ChipConfig, options: str) -> None:
    data = random_data(parse(shape))
    outcome = registry.find(f"{EXAMPLE}{options}")(data.shape, chip, data.scale)
    assert outcome.scheduler == EXAMPLE
    result = run(outcome, chip, {"x": data.x, "w": data.w, "bias": data.bias})
    assert np.array_equal(result["y"], golden(data))
    check(lower(outcome, chip), chip, outcome)


@pytest.mark.parametrize("chip", [load("quad8"), small()], ids=lambda chip: chip.name)
def test_it_computes_every_kind_of_network_layer(chip: ChipConfig) -> None:
    result = registry.find_network(EXAMPLE)(every_kind(), chip, None)
    assert result.schedule.scheduler == EXAMPLE
    computes(result, chip)


def test_it_is_short() -> None:
    """What the tutorial promises: some sixty lines of code."""
    lines = Path(EXAMPLE.rpartition(":")[0]).read_text().splitlines()
    code = [line for line in lines if line.strip() and not line.strip().startswith("#")]
    assert len(code) < 75


TUNED = f"{Path(EXAMPLE).parents[1] / 'tuned.py'}:TUNED"


@pytest.mark.parametrize("shape", slow_but(SHAPES[1:4], SHAPES[1]))
def test_tuned_computes_every_layer(shape: str) -> None:
    data, chip = random_data(parse(shape)), tight()
    outcome = registry.find(TUNED)(data.shape, chip, data.scale)
    result = run(outcome, chip, {"x": data.x, "w": data.w, "bias": data.bias})
    assert np.array_equal(result["y"], golden(data))
    check(lower(outcome, chip), chip, outcome)


@pytest.mark.parametrize("options", slow_but(("", ":between=dram,first=short"), ""))
def test_tuned_computes_every_kind_of_network_layer(options: str) -> None:
    result = registry.find_network(TUNED + options)(every_kind(), small(), None)
    assert result.schedule.scheduler == "tuned"
    computes(result, small())


def test_what_no_function_of_a_task_makes_is_refused() -> None:
    with pytest.raises(ValueError, match="makes convolutions alone; give `fused=False`"):
        authored.schedule(every_kind(), small(), lambda task: None, "x", sharing=SharingOptions())
