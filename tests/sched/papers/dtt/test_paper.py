"""Dijkstra Through Time: the case studies of the paper, and its objects one by one."""

from __future__ import annotations

import heapq
from collections import defaultdict
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from meshloom.hw.spec.config import built_in_chips, load
from meshloom.sched.papers.dtt import examples, routing
from meshloom.sched.papers.dtt.placing import DOT, Operation, cached, dot_product, first, first_best_fit
from meshloom.sched.papers.dtt.reduction import Reduction, ReductionPlan, reduce
from meshloom.sched.papers.dtt.routing import FreeRouteSearch, Movement
from meshloom.sched.papers.dtt.schedule import Outcome, plan
from meshloom.sched.routing.hardware import Actor, DttError, Hardware, TimingFault
from meshloom.sched.routing.mesh import hardware_of

#: Table IV as printed but for one misprint: datum 4 goes to PE_1_input; the wire to PE_0_input carries datum 3 then.
TABLE_IV = """
0 DRAM 3 SRAM_input_0 7      0 SRAM_input_0 7 PE_0_input 8
1 DRAM 2 SRAM_input_0 6      1 SRAM_input_0 6 PE_0_input 7
2 DRAM 1 SRAM_input_0 5      2 SRAM_input_0 5 PE_0_input 6
3 DRAM 0 SRAM_input_0 4      3 SRAM_input_0 4 PE_0_input 5
1 SRAM_input_0 7 PE_1_input 8
2 SRAM_input_0 6 PE_1_input 7
3 SRAM_input_0 5 PE_1_input 6
4 DRAM 0 SRAM_input_0 4      4 SRAM_input_0 4 PE_1_input 5
2 DRAM 3 SRAM_input_1 7      2 SRAM_input_1 7 PE_2_input 8
3 DRAM 2 SRAM_input_1 6      3 SRAM_input_1 6 PE_2_input 7
4 DRAM 1 SRAM_input_1 5      4 SRAM_input_1 5 PE_2_input 6
5 DRAM 0 SRAM_input_1 4      5 SRAM_input_1 4 PE_2_input 5
100 PE_0_output 21 SRAM_output 22   100 SRAM_output 22 DRAM 23   100 DRAM 23 SRAM_input_0 27   100 SRAM_input_0 27 PE_0_input 28
101 PE_1_output 20 SRAM_output 21   101 SRAM_output 21 DRAM 22   101 DRAM 22 SRAM_input_0 26   101 SRAM_input_0 26 PE_0_input 27
102 PE_2_output 19 SRAM_output 20   102 SRAM_output 20 DRAM 21   102 DRAM 21 SRAM_input_0 25   102 SRAM_input_0 25 PE_0_input 26
103 PE_2_output 18 SRAM_output 19   103 SRAM_output 19 DRAM 20   103 DRAM 20 SRAM_input_0 24   103 SRAM_input_0 24 PE_0_input 25
"""  # noqa: E501  (the table's rows, one datum's way to a line)


def rows(text: str) -> list[Movement]:
    words = text.split()
    return [
        Movement(int(datum), source, int(start), destination, int(end))
        for datum, source, start, destination, end in zip(*(words[at::5] for at in range(5)), strict=True)
    ]


def step_by_step(wait_cost: float | Fraction = Fraction(1, 1000), **options: Any) -> Outcome:
    hardware = examples.step_by_step()
    hardware.wait_cost = wait_cost
    initial = {"DRAM": range(6)}
    distribution = options.pop("distribution", examples.STEP_BY_STEP_DISTRIBUTION)
    return plan(hardware, examples.step_by_step_workload(), initial, distribution, **options)


# -- Section III-A ----------------------------------------------------------------------------------------------------


def test_table_iii_placing() -> None:
    result = [(one.operation.result, one.cycle, one.actor, one.operation.data) for one in step_by_step().placed]
    assert result == [
        (100, 8, "PE_0", (0, 1, 2, 3)),
        (101, 8, "PE_1", (1, 2, 3, 4)),
        (102, 8, "PE_2", (2, 3)),
        (103, 8, "PE_2", (4, 5)),
        (104, 28, "PE_0", (100, 101, 102, 103)),
    ]


@pytest.mark.parametrize("wait_cost", [0, 0.001, 1, Fraction(5, 2), 5])
def test_table_iv_all_37_rows_in_order(wait_cost: float | Fraction) -> None:
    expected = rows(TABLE_IV)
    assert len(expected) == 37
    assert list(step_by_step(wait_cost).movements) == expected


def test_the_misprint_of_table_iv_cannot_be() -> None:
    # with datum 4 in PE_0_input, the wire there would carry two data in cycle 4, and PE_0 would hold five of four
    moves = step_by_step().movements
    to_pe_0 = [move.start for move in moves if move.destination == "PE_0_input" and move.end <= 8]
    assert to_pe_0 == [7, 6, 5, 4]
    hardware = examples.step_by_step()
    router = FreeRouteSearch(hardware)
    for datum in range(5):
        router.load(datum, "DRAM")
    for datum in range(4):
        router.route(datum, "PE_0_input", 8)
    with pytest.raises(TimingFault, match=r"PE_0_input is full in cycle 8 \(4 data: 0, 1, 2, 3\)"):
        router.route(4, "PE_0_input", 8)


def test_ties_do_not_depend_on_the_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(1)

    def pop_any_of_the_least(heap: list[tuple[int, int, int]]) -> tuple[int, int, int]:
        least = min(entry[0] for entry in heap)
        chosen = random.choice([entry for entry in heap if entry[0] == least])
        heap.remove(chosen)
        heapq.heapify(heap)
        return chosen

    expected = step_by_step(1).movements
    monkeypatch.setattr(routing, "heappop", pop_any_of_the_least)
    for _ in range(5):
        assert step_by_step(1).movements == expected


def test_reuse_and_forwarding_of_section_iii() -> None:
    moves = step_by_step().movements
    # datum 1 was brought for PE_0 and is taken for PE_1 from the input SRAM, not from DRAM again
    assert [move.source for move in moves if move.datum == 1] == ["DRAM", "SRAM_input_0", "SRAM_input_0"]
    assert {move.source for move in moves if move.datum == 100} >= {"PE_0_output"}


def test_an_underestimated_latency_is_a_fault_that_names_operation_cycle_and_wire() -> None:
    with pytest.raises(TimingFault, match=r"operation 100: datum 3 cannot be in PE_0_input in cycle 7") as result:
        step_by_step(distribution=7)
    assert result.value.operation == "100"
    # four operands over one wire of one byte and a bus of four cycles take eight
    assert result.value.wire == "SRAM_input_0 -> PE_0_input"
    assert result.value.cycle in range(4, 8)
    with pytest.raises(
        TimingFault, match=r"no route is fast enough, even over free wires, the last of them SRAM_input_0 -> PE_0_inp"
    ):
        step_by_step(distribution=4)


def test_a_late_operation_is_moved_and_its_readers_with_it() -> None:
    result = step_by_step(distribution=7, patience=20)
    assert [(one.operation, one.planned, one.actual) for one in result.retimed[:1]] == [("100", 7, 8)]
    by_result = {one.operation.result: one for one in result.placed}
    assert by_result[100].ready == 9
    for move in result.movements:
        if move.source == "PE_0_output":
            assert move.start >= by_result[move.datum].ready
    # a derived offset is too short for four results over the one way back: the reader comes later, and says so
    operations = [*examples.step_by_step_workload()[:4], dot_product(104, (100, 101), (102, 103))]
    hardware = examples.step_by_step()
    with pytest.raises(TimingFault, match="operation 104"):
        plan(hardware, operations, {"DRAM": range(6)}, 8)
    again = plan(hardware, operations, {"DRAM": range(6)}, 8, patience=20)
    assert again.placed[-1].cycle == 19
    assert [one.operation for one in again.retimed] == ["104"]
    with pytest.raises(TimingFault, match=r"operation 104: .* nor within 1 cycles of it"):
        plan(hardware, operations, {"DRAM": range(6)}, 8, patience=1)


def test_figure_1_placing_finds_cycle_3() -> None:
    hardware = Hardware()
    hardware.node(size=64, name="SRAM", keeps=True)
    hardware.node(size=4, name="Reg")
    hardware.node(size=2, name="PE")
    hardware.wire("SRAM", "Reg", bandwidth=4, cost=1, delay=1)
    hardware.wire("Reg", "PE", bandwidth=1, cost=1, delay=1)
    hardware.actor(Actor("MUL", "PE", "PE"))
    result = plan(hardware, [dot_product(9, (1, 2), offset=0)], {"SRAM": [1, 2]}, 1, patience=9)
    assert result.placed[0].cycle == 3
    # Figure 2 takes the opposite tie rule; either way one operand is on the 8-bit bus in each of two cycles
    assert sorted(move.start for move in result.movements if move.source == "Reg") == [1, 2]


# -- Section III-B: reductions, backwards -----------------------------------------------------------------------------


def batches(sizes: tuple[int, ...], count: int) -> list[Reduction]:
    result = []
    for _ in range(count):
        at = 0
        for size in sizes:
            result.append(Reduction(len(result), tuple(f"MUL_{i}" for i in range(at, at + size))))
            at += size
    return result


def replay(found: ReductionPlan, reductions: list[Reduction], network: Hardware) -> None:
    """Plays a reduction forwards with numbers: every adder passes on what has met in it, and the sums are right."""
    random = Random(len(reductions))
    products = {(one.result, name): random.randint(1, 1 << 30) for one in reductions for name in one.multipliers}
    held: defaultdict[tuple[int, str], int] = defaultdict(int)
    used: defaultdict[tuple[str, str, int], int] = defaultdict(int)
    wires = {(wire.source, wire.destination): wire for wire in network.wires}
    end = max(move.end for move in found.movements)
    in_flight: defaultdict[int, list[tuple[int, str, int]]] = defaultdict(list)
    for cycle in range(min(found.start.values()), end + 1):
        for result, node, value in in_flight.pop(cycle, []):
            held[result, node] += value
        for one in reductions:
            if found.start[one.result] == cycle:
                for name in one.multipliers:
                    held[one.result, name] += products[one.result, name]
        for move in found.movements:
            if move.start == cycle:
                wire = wires[move.source, move.destination]
                used[move.source, move.destination, cycle] += 1
                assert used[move.source, move.destination, cycle] <= wire.bandwidth
                assert move.end - move.start == wire.delay
                value = held.pop((move.datum, move.source))  # KeyError: nothing there to be passed on
                in_flight[move.end].append((move.datum, move.destination, value))
        for name, node in network.nodes.items():
            assert node.size is not None
            assert sum(value != 0 for (_, where), value in held.items() if where == name) <= node.size or (
                name in network.out_nodes
            )
    out = network.out_nodes[0]
    sums = {result: value for (result, node), value in held.items() if node == out}
    assert sums == {one.result: sum(products[one.result, name] for name in one.multipliers) for one in reductions}


@pytest.mark.parametrize("sizes", [(8,), (4, 4), (2, 2, 2, 2), (3, 3, 2), (2, 4, 2), (1, 2, 2, 2, 1), (5, 3)])
@pytest.mark.parametrize("lead", [0, 1])
@pytest.mark.parametrize("maeri_style", [False, True])
def test_reductions_add_every_product_once(sizes: tuple[int, ...], lead: int, maeri_style: bool) -> None:
    network, todo = examples.reduction_network(maeri_style), batches(sizes, 3)
    replay(reduce(network, todo, lead=lead), todo, network)


def test_the_augmented_link_saves_energy_and_time_where_sums_cross_the_middle() -> None:
    todo = batches((2, 4, 2), 6)
    plain, augmented = (reduce(examples.reduction_network(style), todo) for style in (False, True))
    # one wire of cost 2 less for each sum over the middle
    assert plain.energy - augmented.energy == pytest.approx(12, abs=0.1)
    assert (plain.runtime, augmented.runtime) == (14, 12)
    assert sum(augmented.utilisation[wire] for wire in examples.AUGMENTED) == pytest.approx(6 / 12)
    assert not set(examples.AUGMENTED) & plain.utilisation.keys()
    same = reduce(examples.reduction_network(True).without(*examples.AUGMENTED), todo)
    assert (same.movements, same.energy) == (plain.movements, plain.energy)


def test_the_augmented_link_is_idle_where_no_sum_crosses() -> None:
    todo = batches((4, 4), 6)
    plain, augmented = (reduce(examples.reduction_network(style), todo) for style in (False, True))
    assert augmented.utilisation[examples.AUGMENTED[0]] == 0
    assert (plain.energy, plain.runtime) == (augmented.energy, augmented.runtime)
    # the two wires into the output carry a sum in every cycle but those of filling and draining
    assert plain.utilisation["ADD_10 -> ADD_20"] == pytest.approx(6 / 8)


def test_reductions_that_cannot_be() -> None:
    network = examples.reduction_network()
    with pytest.raises(DttError, match="reduction 1 names no multiplier"):
        reduce(network, [Reduction(1, ())])
    with pytest.raises(DttError, match="reduction 1 is there twice"):
        reduce(network, [Reduction(1, ("MUL_0",)), Reduction(1, ("MUL_1",))])
    with pytest.raises(DttError, match="one outNode, this one has 0"):
        reduce(Hardware(), [])
    two = examples.reduction_network()
    two.outNode(1, "another")
    with pytest.raises(DttError, match="one outNode, this one has 2"):
        reduce(two, [])
    with pytest.raises(TimingFault, match=r"reduction 0: .* nor within 1 cycles from 0 on"):
        reduce(network, [Reduction(0, ("MUL_0",))], patience=1)


# -- Section III-C: the butterfly -------------------------------------------------------------------------------------


def butterfly_workload() -> list[Operation]:
    kinds = ("matmul", DOT, "matmul")
    result = [Operation(100 + i, tuple((i + k) % 6 for k in range(4)), kinds[i % 3], slots=4) for i in range(12)]
    result.append(Operation(112, (100, 101), "custom"))
    result.append(Operation(113, (102, 112, 5), "matmul", slots=4))
    result.append(Operation(114, (113, 112), "custom"))
    return result


def test_butterfly_with_seven_accelerators_and_a_processor() -> None:
    hardware = examples.butterfly()
    outcome = plan(hardware, butterfly_workload(), {"DRAM": range(6)}, examples.BUTTERFLY_DISTRIBUTION, filtered=True)
    actors = {one.operation.result: one.actor for one in outcome.placed}
    assert {actors[result] for result in (112, 114)} == {"CPU"}
    assert set(actors.values()) == {*(f"NPU_{i}" for i in range(7)), "CPU"}
    ready = {one.operation.result: one.ready for one in outcome.placed}
    for one in outcome.placed:
        assert one.ready - one.cycle == hardware.actors[one.actor].cycles(one.operation.kind)
        for datum in one.operation.data:
            assert outcome.router.has(datum, f"{one.actor}_input", one.cycle)
    for move in outcome.movements:
        assert move.start >= ready.get(move.datum, 0)
    # a shared operand passes the DRAM's wire once where the switches are shared
    from_dram = sum(move.source == "DRAM" for move in outcome.movements)
    assert from_dram < sum(len(one.operation.data) for one in outcome.placed)
    assert outcome.runtime == max(ready.values())
    # with all kinds allowed everywhere custom functions would go to an accelerator, which cannot do them
    with pytest.raises(DttError, match="cannot do 'custom'"):
        first_best_fit([Operation(1, (0,), "custom")], hardware.actors, 14)


def test_in_the_butterfly_each_endpoint_has_one_way_from_each_first_switch() -> None:
    wires = examples.butterfly().wires
    for start in range(4):
        ways = {f"SW_0{start}": 1}
        for wire in wires:  # described stage by stage
            if wire.source in ways:
                ways[wire.destination] = ways.get(wire.destination, 0) + ways[wire.source]
        assert sorted(name for name in ways if name.endswith("_input")) == sorted(
            [*(f"NPU_{i}_input" for i in range(7)), "CPU_input"]
        )
        assert {count for name, count in ways.items() if name.endswith("_input")} == {1}


# -- placing ----------------------------------------------------------------------------------------------------------


def actors(*names: str, **options: Any) -> dict[str, Actor]:
    return {name: Actor(name, "in", "out", **options) for name in names}


def test_affinity_decides_and_can_be_replaced() -> None:
    operations = [Operation(10, (1, 2)), Operation(11, (3, 4)), Operation(12, (3, 4), offset=5)]
    assert [one.actor for one in first_best_fit(operations, actors("a", "b"), 3)] == ["a", "b", "b"]
    assert [one.actor for one in first_best_fit(operations, actors("a", "b"), 3, first)] == ["a", "b", "a"]

    def last(actor: Actor, operation: Operation, placing: Any) -> float:
        return -cached(actor, operation, placing) + (actor.name == "b") / 2

    assert [one.actor for one in first_best_fit(operations, actors("a", "b"), 3, last)] == ["b", "a", "b"]


def test_cooldown_slots_and_length_keep_an_actor_busy() -> None:
    one = actors("a", slots=2, cooldown=3)
    assert [p.cycle for p in first_best_fit([Operation(i, ()) for i in range(5)], one, 10)] == [10, 10, 13, 13, 16]
    long = [Operation(1, (), cycles=7), Operation(2, (), cycles=2), Operation(3, ())]
    assert [p.cycle for p in first_best_fit(long, actors("a", cooldown=3), 0)] == [0, 7, 10]
    # who waits for data lets others pass, and is not overrun
    waiting = [Operation(1, (), offset=4), Operation(2, (), cycles=4), Operation(3, (), cycles=4)]
    assert [p.cycle for p in first_best_fit(waiting, actors("a", cooldown=2), 0)] == [4, 0, 6]


def test_placing_that_cannot_be() -> None:
    with pytest.raises(DttError, match="operation dots needs 3 slots at once; the largest of 1 actors has 2"):
        first_best_fit([Operation(1, (), slots=3, label="dots")], actors("a", slots=2), 1)
    with pytest.raises(DttError, match="operation 1: no actor with 1 slots performs 'conv'"):
        first_best_fit([Operation(1, (), "conv")], actors("a", latency={"dot": 1}), 1, filtered=True)
    with pytest.raises(DttError, match="operation 1: datum 2 is computed later"):
        first_best_fit([Operation(1, (2,)), Operation(2, ())], actors("a"), 1)
    with pytest.raises(DttError, match="distribution latency -1"):
        first_best_fit([], {}, -1)


# -- hardware ---------------------------------------------------------------------------------------------------------


def test_hardware_that_cannot_be() -> None:
    hardware = Hardware()
    hardware.node(size=1, name="A")
    hardware.node(size=1, name="B")
    for wrong, message in (
        (lambda: hardware.node(size=1, name="A"), "node 'A' is described twice"),
        (lambda: hardware.node(size=0, name="C"), "size = 0 must be at least 1"),
        (lambda: hardware.node(size=1, name="C", delay=-1), "delay = -1 must not be negative"),
        (lambda: hardware.wire("A", "C", 1, 1, 1), "there is no node 'C'"),
        (lambda: hardware.wire("A", "A", 1, 1, 1), "leads nowhere"),
        (lambda: hardware.wire("A", "B", 0, 1, 1), "bandwidth = 0"),
        (lambda: hardware.wire("A", "B", 1, 1, 0), "delay = 0"),
        (lambda: hardware.actor(Actor("P", "A", "X")), "there is no node 'X'"),
        (lambda: Actor("P", "A", "B", slots=0), "slots = 0"),
        (lambda: hardware.without("A -> B"), "there is no wire 'A -> B'"),
        (lambda: FreeRouteSearch(hardware).route(1, "A", 3, "op"), "operation op: datum 1 is nowhere"),
        (lambda: FreeRouteSearch(hardware).load(1, "Z"), "there is no node 'Z'"),
        (lambda: FreeRouteSearch(hardware).undo(), "there is no routed datum to take back"),
        (lambda: FreeRouteSearch(Hardware(wait_cost=-1)), "wait_cost = -1"),
    ):
        with pytest.raises(DttError, match=message):
            wrong()


@pytest.mark.parametrize("chip", built_in_chips())
def test_hardware_of_a_chip(chip: str) -> None:
    config = load(chip)
    hardware = hardware_of(config)
    assert len(hardware.nodes) == config.width * config.height
    assert len(hardware.wires) == 2 * (config.width * (config.height - 1) + config.height * (config.width - 1))
    assert {(wire.bandwidth, wire.delay) for wire in hardware.wires} == {(1, 1)}
    router = FreeRouteSearch(hardware)
    source, target = f"dram {config.drams[0]:#04x}", f"core {config.cores[-1]:#04x}"
    router.load(7, source)
    path = router.route(7, target, 20, "layer")
    hops = abs(config.drams[0] % 16 - config.cores[-1] % 16) + abs(config.drams[0] // 16 - config.cores[-1] // 16)
    assert len(path.movements) == hops
    assert path.movements[-1].end == 20
