"""Deliberately broken gateware: each mutant is a few words of a source file replaced by others.

A proof that cannot fail proves nothing; each of these must be refuted by the bench that proves the original.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from .engine import ProveError


@dataclass(frozen=True)
class Mutant:
    """`changes`: module of `package` (in `hw`) to (words, words instead) pairs, each of which must occur there exactly
    once."""

    name: str
    meaning: str
    changes: Mapping[str, Sequence[tuple[str, str]]]
    package: str = "noc"


@contextmanager
def mutated(mutant: Mutant, *rebuilt: str) -> Generator[Mapping[str, ModuleType]]:
    """The mutant's modules, and the modules `rebuilt` on top of them, by name; gone afterwards.

    Raises ProveError when the words to be replaced are not there: the mutant has to follow its source.
    """
    package = f"meshloom.hw.{mutant.package}."
    names = [*mutant.changes, *(name for name in rebuilt if name not in mutant.changes)]
    originals = {name: importlib.import_module(package + name) for name in names}
    types: dict[str, ModuleType] = {}
    with tempfile.TemporaryDirectory(prefix="meshloom_") as folder:
        try:
            for name in names:
                path = Path(folder) / f"{name}.py"
                path.write_text(_changed(mutant, name, Path(str(originals[name].__file__)).read_text()))
                spec = importlib.util.spec_from_file_location(package + name, path)
                if spec is None or spec.loader is None:
                    raise ProveError(f"{path} cannot be imported")
                types[name] = sys.modules[package + name] = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(types[name])
            yield types
        finally:
            for name, module in originals.items():
                sys.modules[package + name] = module


def _changed(mutant: Mutant, name: str, text: str) -> str:
    for old, new in mutant.changes.get(name, ()):
        if text.count(old) != 1:
            raise ProveError(f"mutant {mutant.name}: {name}.py has {text.count(old)} times {old!r}; fix the mutant")
        text = text.replace(old, new)
    return text


MIXED_ORDER = Mutant(
    "mixed-order",
    "XY routing in every other router, YX in the rest, and turns that neither allows alone",
    {
        "input_unit": [
            ("first = router.plane.routing[0]", 'first = "xy"[(router.x + router.y) % 2]'),
            (
                "for port in ROUTINGS[router.plane.routing][self.port] if port in router.ports and port != LOCAL",
                "for port in router.ports if port not in (self.port, LOCAL)",
            ),
        ]
    },
)
IGNORES_FULL = Mutant(
    "ignores-full",
    "a buffer takes a flit when it is full",
    {"input_unit": [("write.en.eq(self.arrives & self.ready)", "write.en.eq(self.arrives)")]},
)
IGNORES_READY = Mutant(
    "ignores-ready",
    "the multiplexer of the channels chooses one whose buffer is full",
    {"output_unit": [("self._offers & link.ready, turn)", "self._offers, turn)")]},
)
UNFAIR = Mutant(
    "unfair",
    "the first that asks always wins",
    {"output_unit": [("pool.eq(Mux(later.any(), later, asks))", "pool.eq(asks)")]},
)
LETS_GO = Mutant(
    "lets-go",
    "an output is granted anew for every flit",
    {"output_unit": [("channel.held.eq(~(self._go[vc] & last))", "channel.held.eq(~self._go[vc])")]},
)
GRANTS_NOBODY = Mutant(
    "grants-nobody",
    "the next in turn is granted, whether it asks or not",
    {
        "output_unit": [
            ("next_.eq(pool & ~behind)", "next_.eq(Mux(asks.any(), (before << 1) | before[-1] | ~before.any(), 0))")
        ]
    },
)
IGNORES_ROOM = Mutant(
    "ignores-room",
    "a tile's queue of requests for DRAM takes one when it is full",
    {"arbitration": [("write.en.eq(self.w_en & self.w_rdy)", "write.en.eq(self.w_en)")]},
)
NEVER_PAYS = Mutant(
    "never-pays",
    "a round gives no credit to a tile that owes words",
    {"arbitration": [("credit.eq(Mux(positive, most, credit + most))", "credit.eq(Mux(positive, most, credit))")]},
)
WAITS_FOR_ALL = Mutant(
    "waits-for-all",
    "a round ends when nobody asks, instead of nobody that has credit",
    {"arbitration": [("ends.eq(~solvent.any())", "ends.eq(~self.asking.any())")]},
)
BEGINS_AT_REST = Mutant(
    "begins-at-rest",
    "a DRAM port that is to come to rest still takes what it is asked for",
    {"dram_port": [("runs.ready.eq(may & ~self._rest & (", "runs.ready.eq(may & (")]},
    "memory",
)
LEAVES_WRITES = Mutant(
    "leaves-writes",
    "a DRAM port counts as at rest although words of a burst are missing",
    {"dram_port": [("self._open += [axi.awvalid, writes.r_rdy, left != 0]", "self._open += [axi.awvalid]")]},
    "memory",
)
GRABS_BOTH = Mutant(
    "grabs-both",
    "a head that a tile takes on its way asks for the channels to the tile and to the next router at once",
    {"router": [("(~marked | self.landing[number])", "(marked | ~marked)")]},
)
BOTH_WAYS = Mutant("both-ways", "not a mutant: routers copy packets that go east and packets that go west", {})
ANY_ROUTES = Mutant("any-routes", "not a mutant: packets choose their routes, which may form cycles", {})
_ALL = (
    *(MIXED_ORDER, ANY_ROUTES, IGNORES_FULL, IGNORES_READY, UNFAIR, LETS_GO, GRANTS_NOBODY),
    *(GRABS_BOTH, BOTH_WAYS, IGNORES_ROOM, NEVER_PAYS, WAITS_FOR_ALL, BEGINS_AT_REST, LEAVES_WRITES),
)
#: All of them, by name.
MUTANTS: Mapping[str, Mutant] = {mutant.name: mutant for mutant in _ALL}
