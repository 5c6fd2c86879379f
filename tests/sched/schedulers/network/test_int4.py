"""Networks with weights of four bits: schedules, programs and their checks, in NumPy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.checker.check import CheckError, check
from meshloom.sched.ir.schedule import Gemm, ScheduleError
from meshloom.sched.ir.validation import validate
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.program.program import Stream
from meshloom.sched.schedulers.network.restored import restored
from meshloom.sched.schedulers.network.scheduler import NetworkSchedule, schedule
from meshloom.sched.schedulers.registry import find_network
from meshloom.sched.workload.graph import Graph, Value, Window
from meshloom.sched.workload.layout import WeightLayout

from ...network_graphs import Grower, inputs_of, mismatches, perform, random_network, square
from ...random_graphs import by_channel, defined_values, in_groups
from .test_network import computes, variant

CHIPS = {
    "tiny": variant("tiny", {"int4": True}),
    "quad16": variant("quad16", {"int4": True}),
    "12x14": variant("pe12x14", {"int4": True, "channel_scales": True}),
    "virtual channels": variant("nine8", {"int4": True}),
}


def products(width: int = 64, side: int = 3) -> Graph:
    """Layers that can have such weights, and others: an odd number of words, a larger kernel, a pool behind."""
    g = Grower(5, Value("x", width, side, side, 0.5))
    g.conv("wide", "x", 2 * width, relu=True)
    g.conv("odd", "wide", 3 * width // 2 + 1)
    g.conv("spatial", "odd", width, square(3, 1, 1))
    g.conv("more", "spatial", width)
    g.add("sum", "more", "spatial")
    g.conv("head", "sum", 7, Window(side, side))
    return g.graph("products", "head")


def layers_with(outcome: NetworkSchedule) -> set[str]:
    """Layers whose weights lie in DRAM with four bits."""
    tensors = outcome.schedule.tensors
    return {t.name.partition("/")[0] for t in tensors if isinstance(t.layout, WeightLayout) and t.layout.int4}


def gemms(outcome: NetworkSchedule) -> list[Gemm]:
    return [op for op in outcome.schedule.operations if isinstance(op, Gemm) and op["int4"]]


@pytest.mark.parametrize("name", CHIPS)
def test_every_product_that_may(name: str) -> None:
    chip = CHIPS[name]
    graph = in_groups(products(4 * chip.cols), chip.cols)  # words hold as many channels as the array has columns
    result = computes(graph, chip)
    # the host writes words of P channels, of two groups if the array has fewer columns
    assert layers_with(result) == {"odd", "more"} | ({"wide"} if chip.cols == chip.lanes else set())
    plain = schedule(graph, chip.model_copy(update={"core": chip.core.model_copy(update={"int4": False})}))
    assert not gemms(plain)

    def words(outcome: NetworkSchedule) -> int:
        return sum(t.words for t in outcome.schedule.tensors if t.name == "more/w")

    assert words(result) * 2 * chip.cols == words(plain) * (chip.cols + 1)


@pytest.mark.slow
@pytest.mark.parametrize("core", [{"b_words": 160, "a_words": 300}, {"b_words": 90, "a_words": 60, "acc_words": 40}])
def test_sums_in_parts(core: dict[str, int]) -> None:
    """K is cut between pairs of words, whatever fits."""
    result = computes(by_channel(in_groups(products(128), 4)), variant("tiny", core | {"int4": True}))
    assert any(op["to_acc"] for op in gemms(result))
    assert all(op["k_blocks"] % 2 == 0 for op in gemms(result))


@pytest.mark.parametrize("seed", range(4))
def test_random_networks(seed: int) -> None:
    graph, chip = in_groups(random_network(seed), 8), CHIPS["tiny" if seed % 2 else "virtual channels"]
    computes(graph, chip, seed)


def test_groups_narrower_than_words_stay_bytes() -> None:
    assert not gemms(computes(in_groups(products(), 8), CHIPS["quad16"]))


@pytest.mark.parametrize("name", ["loop_order", pytest.param("paper_static", marks=pytest.mark.slow)])
def test_schedulers_of_whole_networks(name: str) -> None:
    """The search around the nests; a scheduler of others' convolutions leaves the weights bytes."""
    graph, chip = in_groups(products(32, 2), 16), CHIPS["quad16"]
    result = find_network(name)(graph, chip, None)
    inputs = inputs_of(graph)
    outputs, observed = perform(result, chip, inputs)
    golden = defined_values(graph, inputs)
    assert (outputs["head"] == golden["head"]).all()
    assert mismatches(result, chip, observed, golden) == []
    again = restored(graph, result.schedule, chip)
    assert all((again.constants[tensor] == array).all() for tensor, array in result.constants.items())
    assert name != "loop_order" or gemms(result)


def bare(chip: ChipConfig) -> ChipConfig:
    return chip.model_copy(update={"core": chip.core.model_copy(update={"int4": False})})


def test_chips_without_refuse() -> None:
    chip = CHIPS["tiny"]
    result = computes(in_groups(products(), 16), chip)
    same = result.schedule.model_copy(update={"chip_digest": bare(chip).digest})
    with pytest.raises(ScheduleError, match=r"have no weights of four bits; set core\.int4 = true in its file"):
        validate(same, bare(chip))
    program = replace(lower(result.schedule, chip), chip_digest=bare(chip).digest)
    with pytest.raises(CheckError, match=r"GEMM with int4 = 1.*cannot: core\.int4 is off"):
        check(program, bare(chip))


def shortened(stream: Stream) -> Stream:
    """Without the last word of channels of each GEMM with weights of four bits."""
    code = tuple(
        replace(one, fields=one.fields | {"k_blocks": one.fields["k_blocks"] - 1}) if one.fields.get("int4") else one
        for one in stream.instructions
    )
    return replace(stream, instructions=code)


def test_wrong_instructions_are_refused() -> None:
    chip = CHIPS["tiny"]
    result = computes(in_groups(products(), 16), chip)
    operations = list(result.schedule.operations)
    at = operations.index(gemms(result)[0])
    op = operations[at]
    assert isinstance(op, Gemm)
    operations[at] = op.model_copy(update={"fields": op.fields | {"k_blocks": op["k_blocks"] - 1}})
    wrong = result.schedule.model_copy(update={"operations": tuple(operations)})
    with pytest.raises(ScheduleError, match="windows; weights of four bits lie in pairs of windows: give it an even"):
        validate(wrong, chip)
    program = lower(result.schedule, chip)
    with pytest.raises(CheckError, match=r"an odd number of windows.*such weights lie in pairs of windows"):
        check(replace(program, streams=tuple(map(shortened, program.streams))), chip)
    # the last words of B, which nobody has written
    words = op["n_blocks"] * op.weights(chip.cols)
    operations[at] = op.model_copy(update={"fields": op.fields | {"b_base": chip.core.b_words - words}})
    wrong = result.schedule.model_copy(update={"operations": tuple(operations)})
    with pytest.raises(CheckError, match=r"\bB\b"):
        check(lower(wrong, chip), chip, wrong)
