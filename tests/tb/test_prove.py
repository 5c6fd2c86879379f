# amaranth: UnusedElaboratable=no
"""The proofs that take seconds, and that the prover itself can tell true from false. All of them: `make prove`."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from amaranth.hdl import Module, Mux, Signal

from meshloom.hw.noc import output_unit
from meshloom.hw.noc.router import Router
from meshloom.tb.verify.prove import PROOFS, Proof, ProveError, Refutation, Result, arbiter, buffer, mutants, run
from meshloom.tb.verify.prove.engine import Bench, Netlist, Shown
from meshloom.tb.verify.prove.opened import OpenRouter
from meshloom.tb.verify.prove.probe import Inside
from meshloom.tb.verify.prove.surroundings import plane

from ..tiers import slow_but

DOC = Path(__file__).parents[2] / "docs" / "proofs.md"


def counter(limit: int, claimed: int, helped: bool = True) -> Bench:
    """Counts from 0 to `limit` and round, when enabled; claimed to stay below `claimed`."""
    top, enable, count = Module(), Signal(name="enable"), Signal(4, name="count")
    with top.If(enable):
        top.d.sync += count.eq(Mux(count == limit, 0, count + 1))
    invariants = {"at most limit": count <= limit} if helped else {}
    shown = {"count": Shown([count], str), "enable": Shown([enable])}
    witnesses = {"half": count == limit // 2, "never": count == limit + 1}
    return Bench(top, [enable], {f"below {claimed}": count < claimed}, invariants, {}, shown, witnesses)


def test_a_true_claim_is_proved_and_a_false_one_is_not() -> None:
    assert Netlist(counter(5, 6)).induction().holds
    assert Netlist(counter(5, 6)).layered().holds
    assert not Netlist(counter(6, 6)).induction().holds
    assert not Netlist(counter(6, 6)).layered().holds


def test_a_claim_without_its_invariant_is_not_proved() -> None:
    answer = Netlist(counter(5, 9, helped=False)).induction()
    assert not answer.holds, "from the unreachable 8 on the counter reaches 9"
    assert answer.trace["count"] == ["8", "9"]
    assert answer.broken == ["below 9"]


def test_a_counterexample_is_a_run_from_reset_and_as_short_as_any() -> None:
    netlist = Netlist(counter(6, 4))
    assert netlist.refute("below", 4).holds, "four cycles reach 3"
    answer = netlist.refute("below", 9)
    assert answer.trace == {"count": list("01234"), "enable": ["1", "1", "1", "1", answer.trace["enable"][-1]]}
    assert answer.broken == ["below 4"]
    assert answer.table().splitlines()[:2] == ["cycle   0  1  2  3  4", "count   0  1  2  3  4"]


def test_a_witness_that_cannot_happen_makes_the_proof_vacuous() -> None:
    netlist = Netlist(counter(5, 6))
    assert not netlist.reach("half", 5).holds
    assert netlist.reach("never", 5).holds
    result = Proof("counter", lambda: counter(5, 6)).run()
    assert (result.passed, result.verdict) == (False, "VACUOUS: in 8 cycles there is never: never")


def test_assumptions_are_kept_to() -> None:
    bench = counter(6, 6)
    bench.assume = {"never enabled": ~bench.inputs[0]}
    assert Netlist(bench).refute("below", 9).holds


def test_a_proof_about_broken_gateware_fails_with_a_trace() -> None:
    with mutants.mutated(mutants.UNFAIR) as modules:
        result = Proof("unfair", lambda: arbiter.bench(3, modules["output_unit"])).run()
    assert not result.passed
    assert result.verdict.startswith("NOT PROVED: all: ")
    assert "granted" in result.trace


def test_gateware_that_is_not_broken_is_not_refuted() -> None:
    harmless = mutants.Mutant("harmless", "nothing", {})
    result = Refutation("none", harmless, lambda modules: buffer.bench(2), (), "nothing", 6).run()
    assert (result.passed, result.verdict) == (False, "NOT REFUTED in 6 cycles")


def test_names_that_do_not_exist_are_said() -> None:
    router = Router(0, 0, plane(2, 1))
    with pytest.raises(ProveError, match="Router has no memory 'north_0_buffer'"):
        Inside(router, ["north_0_buffer"])
    inner = Inside(Router(0, 0, plane(2, 1)))
    with pytest.raises(ProveError, match=r"has 0 signals 'north_output\.held_0'; it has "):
        inner["north_output.held_0"]
    with pytest.raises(ProveError, match="no property begins with 'above'; there are: below 6"):
        Netlist(counter(5, 6)).refute("above", 3)
    gone = mutants.mutated(mutants.Mutant("gone", "", {"output_unit": [("no such words", "")]}))
    with pytest.raises(ProveError, match=r"mutant gone: output_unit.py has 0 times 'no such words'"), gone:
        pass
    top = Module()
    opened = OpenRouter(top, Router(0, 0, plane(2, 1)))
    assert set(opened.queues) == set(opened.channels) == {("east", 0), ("local", 0)}


def test_mutants_leave_no_trace() -> None:
    before = sys.modules["meshloom.hw.noc.output_unit"]
    with mutants.mutated(mutants.UNFAIR, "router") as modules:
        assert modules["router"].Output is modules["output_unit"].Output is not output_unit.Output
    assert sys.modules["meshloom.hw.noc.output_unit"] is before is output_unit


QUICK = [name for name, item in PROOFS.items() if item.quick]
#: Parts of the names of those that take seconds, or one and show what others show, too.
DEAR = ("3x3", "mesh-2x2-yx", "any-routes", "copies", "both-ways")


@cache
def result_of(name: str) -> Result:
    return run(name)


@pytest.mark.parametrize("name", slow_but(QUICK, *(name for name in QUICK if not any(one in name for one in DEAR))))
def test_quick(name: str) -> None:
    result = result_of(name)
    assert result.passed, f"{result.verdict}\n{result.trace}"


def test_the_deadlock_of_mixed_orders_is_a_circle_of_four() -> None:
    trace = result_of("broken-mesh-mixed-order-progress").trace.splitlines()[1:]
    between = [line.split("  ") for line in trace if "local" not in line]
    stuck = {cells[0].split(".")[0] for cells in between if cells[-1].strip() != "-"}
    one_way = {"(0,0) south", "(0,1) east", "(1,1) north", "(1,0) west"}
    other_way = {"(0,0) east", "(1,0) south", "(1,1) west", "(0,1) north"}
    assert stuck in (one_way, other_way)


def test_the_document_names_what_is_proved() -> None:
    """Families in docs/proofs.md are names up to the first digit or place."""
    text = DOC.read_text()
    kinds = {name.split("-")[0] for name in PROOFS}
    assert kinds == {"buffer", "arbiter", "dram", "router", "mesh", "broken"}
    assert all(f"`{kind}-" in text for kind in kinds)
    assert all(f"`{mutant}`" in text for mutant in mutants.MUTANTS)


def test_command_line() -> None:
    command = [sys.executable, "-m", "meshloom.tb.verify.prove"]
    done = subprocess.run([*command, "buffer-2", "arbiter-2"], capture_output=True, text=True)
    assert done.returncode == 0
    assert re.search(r"^buffer-2 +induction +\d+\.\d s  proved$", done.stdout, re.MULTILINE)
    assert "2 of 2 as expected" in done.stdout
    done = subprocess.run([*command, "nothing-of-the-kind"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "nothing is called nothing-of-the-kind" in done.stderr
