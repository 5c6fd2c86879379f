"""Gradients of layers in a row: the bytes of the golden model in every way, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.ir import functional
from meshloom.sched.ir.schedule import Move, Schedule
from meshloom.sched.lowering.predict import predict
from meshloom.sched.lowering.programs import planned
from meshloom.sched.mapping.play.ranked import Rank, fastest, in_order
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.papers.gradient.chain import ChainEmitter
from meshloom.sched.papers.gradient.chain_plan import ChainPlan, Update
from meshloom.sched.papers.gradient.chain_search import plans, schedule
from meshloom.sched.schedulers.registry import SchedulerError, find_chain, find_gradient
from meshloom.sched.workload.chain_data import random_chain
from meshloom.sched.workload.layers import WorkloadError, gemm_shape
from meshloom.sched.workload.training import Setting, TrainingLayer
from meshloom.sched.workload.training_chain import Chain, find
from meshloom.tb.inputs.golden.chain import chain as golden

EDGE = Setting(False, 4)


def _chain(*sizes: int, m: int = 6, rectified: bool = True, first: bool = False) -> Chain:
    """Layers of sizes[0] x sizes[1], sizes[1] x sizes[2] and so on."""
    layers = tuple(
        TrainingLayer(gemm_shape(f"net/l{at}", m, n, k), first=first and not at)
        for at, (k, n) in enumerate(zip(sizes, sizes[1:], strict=False))
    )
    return Chain("chain:net", layers, rectified)


def _emitted(chain: Chain, chip: str, plan: ChainPlan) -> tuple[ChainEmitter, Schedule]:
    config = load(chip)
    emitter = ChainEmitter(chain, config, plan)
    return emitter, Schedule(
        chip=config.name, chip_digest=config.digest, workload=chain.name, scheduler="chain",
        operations=tuple(emitter.operations), tensors=tuple(emitter.tensors.listed),
    )  # fmt: skip


def _check(chain: Chain, chip: str, plan: ChainPlan) -> Schedule:
    """Every byte is right, in the list's order and in another, whose program the checker accepts."""
    _, outcome = _emitted(chain, chip, plan)
    config, data = load(chip), random_chain(chain)
    right = golden(data)
    order, cycles = fastest(outcome, config, (Rank.WAY,), predict)
    other = in_order(outcome, order)
    assert planned(other, config).timeline.cycles == cycles <= predict(outcome, config).cycles
    for each in (outcome, other):
        result = functional.run(each, config, data.arrays())
        assert result
        for name, array in result.items():
            np.testing.assert_array_equal(array, right[name], name)
    return outcome


@pytest.mark.parametrize("update", Update)
@pytest.mark.parametrize("keep", [False, True])
def test_every_way_gives_the_bytes_of_the_golden_model(keep: bool, update: Update) -> None:
    result = _check(_chain(37, 50, 21, 9), "quad16", ChainPlan(6, 1, 32, 3, keep, not keep, update))
    names = {tensor.name for tensor in result.tensors if tensor.role == "output"}
    assert ("dy:l1" in names) == (not keep)
    assert ("dw:l0" in names) == (update is not Update.FUSED)
    assert ("w':l2" in names) == (update is not Update.NONE)


@pytest.mark.parametrize("rectified", [False, True])
def test_words_of_operands_and_results_may_differ(rectified: bool) -> None:
    """45 channels to a result's word, 64 to an operand's: columns past the last one are zero, tiles begin anywhere."""
    _check(_chain(128, 70, 50, rectified=rectified), "edge45", ChainPlan(6, 2, 45))


def test_sums_stay_from_range_to_range() -> None:
    result = _check(_chain(40, 17, 30, m=45, rectified=False), "mono16", ChainPlan(16, 3, 32, update=Update.FUSED))
    regions = {(one.src.address >> 24, one.dst.address >> 24) for one in result.operations if isinstance(one, Move)}
    assert all(2 not in pair for pair in regions)  # nothing enters or leaves ACC


def test_a_first_layer_has_no_input_gradient() -> None:
    result = _check(_chain(13, 20, 9, first=True), "quad16", ChainPlan(6, 2, 16, 2))
    assert not any(tensor.name.startswith("dx") for tensor in result.tensors)


def test_dx_stays_in_the_cores() -> None:
    chain = _chain(48, 48, 48)
    kept, through = (_emitted(chain, "quad16", ChainPlan(6, 1, 48, 4, keep, False)) for keep in (True, False))
    # written once and read by each of four cores: three blocks of six rows
    assert through[0].dram_words - kept[0].dram_words == 3 * 6 * (1 + 4)


def test_dw_that_is_put_off_goes_to_the_cores_with_the_least_to_do() -> None:
    """dX of one block of columns is one core's work; pieces of dW are everybody's."""
    chain = _chain(16, 64, m=4)
    cores = {
        defer: {one.core for one in _emitted(chain, "quad16", ChainPlan(4, 1, 16, 4, True, defer))[1].operations
                if one.kind == "gemm"}
        for defer in (False, True)
    }  # fmt: skip
    assert len(cores[False]) == 1
    assert len(cores[True]) == 4


def test_the_search_finds_no_worse_with_dw_put_off() -> None:
    chain, chip = _chain(32, 48, 16), load("quad16")
    request = ChainPlan(0, 0, 0, 4, True, False)
    result = [schedule(chain, chip, replace(request, defer=defer), "chain") for defer in (False, True)]
    cycles = [one.schedule.predicted.cycles for one in result if one.schedule.predicted is not None]
    assert cycles[1] <= cycles[0]
    assert set(plans(chain, chip, request)) < set(plans(chain, chip, replace(request, defer=True)))
    assert result[0].schedule.scheduler == "chain"


def test_what_cannot_be_done_is_refused() -> None:
    with pytest.raises(DoesNotFit, match="words of W have 64 channels on edge45, those of results 45"):
        _emitted(_chain(64, 64), "edge45", ChainPlan(6, 1, 45, update=Update.FUSED))
    with pytest.raises(DoesNotFit, match="several ranges of rows are for one core"):
        _emitted(_chain(16, 16, m=40), "quad16", ChainPlan(16, 1, 16, 2))
    with pytest.raises(DoesNotFit, match=r"no tiles fit mono16 \(.* is too small: .*\); its layers do one by one"):
        schedule(_chain(512, 512, 512, m=2048), load("mono16"), ChainPlan(0, 0, 0), "chain")
    with pytest.raises(SchedulerError, match="gradient does not schedule chains; take one of chain"):
        find_chain("gradient")
    with pytest.raises(SchedulerError, match="chain does not schedule gradients; take one of gradient"):
        find_gradient("chain")


def test_rows_are_found_by_name() -> None:
    assert [len(chain.layers) for chain in find("chain:dlrm", EDGE)] == [3, 5]
    (part,) = find("chain:dlrm/top2..top4,b8", EDGE)
    assert part.name == "chain:dlrm/top2..top4,b8"
    assert find(part.name, EDGE) == (part,)
    assert (part.m, part.tag(0), part.masked(0), part.masked(1)) == (8, "top2", False, True)
    assert part.macs == sum(layer.macs for layer in part.layers)
    for network in ("ncf", "dlrm", "bert", "rcnn"):
        for chain in find(f"chain:{network}", EDGE):
            for before, after in zip(chain.layers, chain.layers[1:], strict=False):
                assert (before.m, before.n, after.unfolded) == (after.m, after.k, False)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("chain:dlmr", "did you mean dlrm"),
        ("chain:mob", "rows are known of ncf, dlrm"),
        ("chain:dlrm/top1", "'top1' is not FIRST..LAST, such as bottom1..bottom3"),
        ("chain:dlrm/top1..tp3", "did you mean top3"),
        ("chain:dlrm/bottom2..top2", r"is no part of a row of dlrm, which are bottom1\.\.bottom3, top1\.\.top5"),
        ("chain:dlrm,x4", "'x4' is not bBATCH"),
    ],
)
def test_other_names_are_refused_with_what_there_is(name: str, said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        find(name, EDGE)
