"""Everything that is proved of the network and of DRAM's port; everything that is broken on purpose and must be
refuted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType

from meshloom.hw.noc.link import Plane
from meshloom.hw.noc.router import Router

from . import arbiter, buffer, mesh, mutants, port, router, sharing
from .engine import Bench, Netlist
from .mutants import Mutant, mutated
from .surroundings import plane

#: Modules of a mutant, by name.
Modules = Mapping[str, ModuleType]


@dataclass(frozen=True)
class Result:
    """What came out: `passed` is what is wanted, a proof or, for a mutant, a counterexample. `seconds` of CPU."""

    name: str
    method: str
    passed: bool
    verdict: str
    seconds: float
    trace: str = ""


@dataclass(frozen=True)
class Proof:
    """A theorem. `layered`: its properties follow from its invariants. `quick`: the tests run it.

    Its witnesses, if `depth` is not 0, must be reached within that many cycles.
    """

    name: str
    make: Callable[[], Bench]
    layered: bool = False
    quick: bool = False
    depth: int = 8

    def run(self) -> Result:
        """Proves it. Raises ProveError when the solver gives no answer."""
        netlist = Netlist(self.make())
        method = "invariants by induction" if self.layered else "induction"
        answer = netlist.layered() if self.layered else netlist.induction()
        if not answer.holds:
            verdict = "NOT PROVED: " + _list(answer.broken)
            return Result(self.name, method, False, verdict, netlist.seconds, answer.table())
        missed = []
        if self.depth:
            missed = [name for name in netlist.bench.witnesses if netlist.reach(name, self.depth).holds]
        if missed:
            verdict = f"VACUOUS: in {self.depth} cycles there is never: {_list(missed)}"
            return Result(self.name, method, False, verdict, netlist.seconds)
        return Result(self.name, method, True, "proved", netlist.seconds)


@dataclass(frozen=True)
class Refutation:
    """A mutant of gateware that must break a property whose name begins with `breaks` within `depth` cycles from reset.

    `make` builds the bench from the mutant's modules: those changed and those `rebuilt` upon them.
    """

    name: str
    mutant: Mutant
    make: Callable[[Modules], Bench]
    rebuilt: Sequence[str]
    breaks: str
    depth: int = 10
    quick: bool = False

    def run(self) -> Result:
        """Looks for the counterexample. Raises ProveError when the mutant no longer fits its source."""
        with mutated(self.mutant, *self.rebuilt) as modules:
            netlist = Netlist(self.make(modules))
        answer = netlist.refute(self.breaks, self.depth)
        method = "search from reset"
        if answer.holds:
            verdict = f"NOT REFUTED in {self.depth} cycles"
            return Result(self.name, method, False, verdict, netlist.seconds)
        broken = [name for name in answer.broken if name.startswith(self.breaks)]
        verdict = f"refuted in cycle {answer.cycles - 1}: {_list(broken)}"
        return Result(self.name, method, True, verdict, netlist.seconds, answer.table())


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _title(of: Plane) -> str:
    channels = f"-{of.vcs}vc" + (f"-{of.allocate}" if of.vcs > 1 else "")
    buffers = f"-depth{of.depth}" if of.depth > 2 else ""
    copies = "" if of.copies is None else "-copies-" + "-".join(of.copies.directions)
    return of.routing + channels + buffers + ("-routed" if of.routes else "") + copies


def _buffers() -> Iterator[Proof]:
    for depth in (2, 3, 4, 8):
        yield Proof(f"buffer-{depth}", partial(buffer.bench, depth), quick=depth < 4, depth=depth + 2)


def _arbiters() -> Iterator[Proof]:
    for count in (2, 3, 4, 5, 16):
        yield Proof(f"arbiter-{count}", partial(arbiter.bench, count), quick=count < 16, depth=count + 1)


def _sharing() -> Iterator[Proof]:
    for count, credits, quick in (
        (4, (), True),
        (2, (1, 2), True),
        (3, (2, 1, 3), False),
        (4, (1, 4, 1, 2), False),
    ):
        name = f"dram-turns-{count}" + "".join(f"-{credit}" for credit in credits)
        yield Proof(name, partial(sharing.turns, count, credits), quick=quick, depth=count + 2)
    for depth, tile in ((1, 0), (2, 1), (3, 2)):
        name = f"dram-queues-{depth}-of-{tile}"
        yield Proof(name, partial(sharing.queues, depth, tile), quick=depth == 2, depth=depth + 3)
    yield Proof("dram-rest", port.resting, quick=True, depth=10)


def _router(claim: Callable[[Router], Bench], x: int, y: int, of: Plane) -> Bench:
    return claim(Router(x, y, of))


def _routers() -> Iterator[Proof]:
    """All nine kinds of place (corners, edges, centre) with one channel, the centre with more."""
    everywhere = [(x, y) for y in range(3) for x in range(3)]
    centre = [(1, 1)]
    for of, places, quick in (
        (plane(3, 3), everywhere, True),
        (plane(3, 3, routing="yx"), everywhere, False),
        (plane(3, 3, 2), centre, False),
        (plane(3, 3, 2, "yx"), centre, False),
        (plane(3, 3, 2, allocate="free"), centre, False),
        (plane(3, 3, 4), centre, False),
        (plane(3, 3, routed=True), everywhere, False),
        (plane(3, 3, 2, "yx", routed=True), centre, False),
    ):
        for x, y in places:
            for claim in (router.packets, router.conduct):
                name = f"router-{claim.__name__}-{_title(of)}-at-{x}{y}"
                make = partial(_router, claim, x, y, of)
                yield Proof(name, make, quick=quick and (x, y) == (1, 1), depth=4)


def _meshes() -> Iterator[Proof]:
    for of, quick in (
        (plane(2, 2), True),
        (plane(2, 2, routing="yx"), True),
        (plane(3, 3), True),
        (plane(3, 3, routing="yx"), True),
        (plane(4, 1), False),
        (plane(2, 4, routing="yx"), False),
        (plane(4, 4), False),
        (plane(4, 4, routing="yx"), False),
        (plane(2, 2, 2), False),
        (plane(3, 3, 2), False),
        (plane(3, 3, 2, "yx"), False),
        (plane(2, 2, depth=4), False),
        (plane(2, 2, 4), False),
        (plane(2, 2, 4, depth=4), False),
        (plane(3, 3, 4), False),
        (plane(2, 2, 2, allocate="free"), False),
        (plane(3, 3, 2, allocate="free"), False),
        (plane(2, 2, copied=("east", "south")), True),
        (plane(3, 2, copied=("east", "south")), False),
        (plane(3, 3, copied=("east", "south")), False),
        *((plane(3, 3, copied=ways), False) for ways in (("west", "north"), ("east", "north"), ("west", "south"))),
        *((plane(3, 3, routing="yx", copied=(x, y)), False) for x in ("east", "west") for y in ("north", "south")),
        (plane(4, 2, copied=("west",)), False),
        (plane(2, 4, routing="yx", copied=("north",)), False),
    ):
        name = f"mesh-{of.width}x{of.height}-{_title(of)}"
        depth = of.width + of.height + 2 if of.width * of.height * of.vcs < 9 else 0
        yield Proof(name, partial(mesh.bench, of), layered=True, quick=quick, depth=depth)


def _refutations() -> Iterator[Refutation]:
    one, two, small = plane(3, 3), plane(3, 3, 2), plane(2, 2)

    def of_buffer(modules: Modules) -> Bench:
        return buffer.bench(3, modules["input_unit"])

    def of_arbiter(modules: Modules) -> Bench:
        return arbiter.bench(3, modules["output_unit"])

    def of_turns(modules: Modules) -> Bench:
        return sharing.turns(2, (1, 2), source=modules["arbitration"])

    def of_queues(modules: Modules) -> Bench:
        return sharing.queues(2, 1, modules["arbitration"])

    def of_port(modules: Modules) -> Bench:
        return port.resting(modules["dram_port"])

    def of_router(claim: Callable[[Router], Bench], of: Plane, modules: Modules) -> Bench:
        return claim(modules["router"].Router(1, 0, of))

    def of_mesh(modules: Modules) -> Bench:
        return mesh.bench(small, modules["mesh"].VcMesh(small))

    def of_routed_mesh(modules: Modules) -> Bench:
        return mesh.bench(plane(2, 2, routed=True))

    def of_copying_mesh(modules: Modules) -> Bench:
        of = plane(2, 3, copied=("south",))
        return mesh.bench(of, modules["mesh"].VcMesh(of))

    def of_both_ways(modules: Modules) -> Bench:
        of = plane(4, 1, copied=("east",))
        object.__setattr__(of.copies, "directions", ("east", "west"))  # what it refuses
        return mesh.bench(of)

    packets = partial(of_router, router.packets)
    conduct = partial(of_router, router.conduct)
    above = ("output_unit", "arbitration", "router", "mesh")
    for subject, mutant, make, breaks, quick in (
        ("buffer", mutants.IGNORES_FULL, of_buffer, "nothing changed", True),
        ("arbiter", mutants.UNFAIR, of_arbiter, "all: ", True),
        ("arbiter", mutants.GRANTS_NOBODY, of_arbiter, "granted", True),
        ("dram-turns", mutants.UNFAIR, of_turns, "all: ", True),
        ("dram-turns", mutants.NEVER_PAYS, of_turns, "0 waits for 3 rounds", True),
        ("dram-turns", mutants.WAITS_FOR_ALL, of_turns, "a round ends", True),
        ("dram-queues", mutants.IGNORES_ROOM, of_queues, "nothing", True),
        ("router", mutants.IGNORES_FULL, partial(packets, one), "together", False),
        ("router", mutants.LETS_GO, partial(packets, one), "together: not mixed", True),
        ("router", mutants.MIXED_ORDER, partial(packets, one), "route", True),
        ("router", mutants.UNFAIR, partial(conduct, one), "fair", False),
        ("router", mutants.GRANTS_NOBODY, partial(conduct, one), "grant", False),
        ("router-2vc", mutants.IGNORES_READY, partial(packets, two), "together: as many", True),
        ("router-2vc", mutants.IGNORES_READY, partial(conduct, two), "stable: room", False),
        ("mesh", mutants.MIXED_ORDER, of_mesh, "progress", True),
        ("mesh", mutants.IGNORES_FULL, of_mesh, "progress", False),
        ("mesh", mutants.ANY_ROUTES, of_routed_mesh, "progress", True),
        ("mesh", mutants.GRABS_BOTH, of_copying_mesh, "progress", False),
        ("mesh", mutants.BOTH_WAYS, of_both_ways, "progress", True),
    ):
        name = f"broken-{subject}-{mutant.name}-{breaks.split(':')[0].replace(' ', '-')}"
        yield Refutation(name, mutant, make, above, breaks, quick=quick)
    for mutant in (mutants.BEGINS_AT_REST, mutants.LEAVES_WRITES):
        yield Refutation(f"broken-dram-rest-{mutant.name}-at-rest", mutant, of_port, (), "at rest", quick=True)


#: All proofs and refutations, by name.
PROOFS: Mapping[str, Proof | Refutation] = {
    item.name: item for item in (*_buffers(), *_arbiters(), *_sharing(), *_routers(), *_meshes(), *_refutations())
}


def run(name: str) -> Result:
    """Proves or refutes one item of `PROOFS`. Raises KeyError for an unknown name, ProveError without an answer."""
    return PROOFS[name].run()
