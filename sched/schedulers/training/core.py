"""One core's part of training: where things lie in its memories, and the operations on them.

Operations are listed one after the other. What may overlap follows from the words that they use: places in OUT, VEC
and halves of operand memories are taken in turn, so that the next part is computed while the last one leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Region, VectorOp, address

from ...ir import bodies
from ...ir.bodies import GemmFields, VecFields
from ...ir.schedule import Gemm, Move, Operation, Span, Vec
from ...mapping.memory.placement import Dram
from ...mapping.tiling.arena import NEVER, Arena
from ...mapping.tiling.problem import DoesNotFit

#: A place in a tile: tile and word address, region included.
Place = tuple[int, int]


@dataclass
class OperationList:
    """What all cores add to: the operations, the multiplier (by name) of those that requantise, by index, and the DRAM
    that is handed out."""

    chip: ChipConfig
    dram: Dram
    operations: list[Operation] = field(default_factory=list[Operation])
    multipliers: dict[int, str] = field(default_factory=dict[int, str])


class Room:
    """A memory of a core, or `words` of it from `base` on. Raises DoesNotFit when there is no room; nothing leaves by
    itself."""

    def __init__(self, name: str, words: int, base: int = 0) -> None:
        self.words = words
        self._arena: Arena[int] = Arena(name, words, lambda key: NEVER, base=base)
        self._numbers = count()
        self._held: dict[int, int] = {}

    def take(self, words: int) -> int:
        """The first of `words` free words."""
        key = next(self._numbers)
        at = self._arena.take(key, words, 0)
        self._held[at] = key
        return at

    def free(self, *places: int) -> None:
        """Gives back what `take` gave."""
        for at in places:
            self._arena.free(self._held.pop(at))

    def once(self, words: int) -> int:
        """Words that the next operations of the list write and read, and nothing after them."""
        at = self.take(words)
        self.free(at)
        return at


class CoreOperations:
    """Core `tile`: its memories, without the first `below` words of VEC, and what it does, at the end of a list."""

    def __init__(self, chip: ChipConfig, tile: int, operations: list[Operation], below: int = 0) -> None:
        self.chip, self.tile, self.operations = chip, tile, operations
        limit, core = f"of a {chip.name} core", chip.core
        self.a = Room(f"A {limit}", core.a_words)
        self.b = Room(f"B {limit}", core.b_words)
        self.acc = Room(f"ACC {limit}", core.acc_words)
        self.out = Room(f"OUT {limit}", core.out_words)
        self.vec = Room(f"VEC {limit}", core.vec_words - below, below)

    # -- places -------------------------------------------------------------------------------------------------------

    def in_a(self, at: int) -> Place:
        return self.tile, address(Region.MAIN, at)

    def in_b(self, at: int) -> Place:
        return self.tile, address(Region.B, at)

    def in_acc(self, row: int) -> Place:
        return self.tile, address(Region.ACC, 4 * row)

    def in_out(self, at: int) -> Place:
        return self.tile, address(Region.OUT, at)

    def in_vec(self, at: int) -> Place:
        return self.tile, address(Region.VEC, at)

    # -- operations ---------------------------------------------------------------------------------------------------

    def move(
        self, label: str, source: Place, target: Place, words: int,
        source_runs: tuple[int, int] | None = None, target_runs: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        """A MOVE that this core issues. Runs: words of one, and from the start of one to that of the next."""

        def span(place: Place, runs: tuple[int, int] | None) -> Span:
            run, stride = runs or (words, words)
            return Span(tile=place[0], address=place[1], run=min(run, words), stride=stride)

        src, dst = span(source, source_runs), span(target, target_runs)
        self.operations.append(Move(issuer=self.tile, src=src, dst=dst, words=words, label=label))

    def gemm(self, label: str, fields: GemmFields) -> None:
        """A GEMM."""
        self.operations.append(Gemm(core=self.tile, fields=bodies.gemm(**fields), label=label))

    def vector(self, label: str, op: VectorOp, fields: VecFields) -> None:
        """A VEC."""
        self.operations.append(Vec(core=self.tile, fields=bodies.vec(**fields | {"op": op}), label=label))


class Core(CoreOperations):
    """A core in a step. `index`: of the core; `images`: its share of the batch."""

    def __init__(self, step: OperationList, index: int, images: int) -> None:
        super().__init__(step.chip, step.chip.cores[index], step.operations)
        self.step, self.index, self.images = step, index, images
        #: The DRAM tile that holds what belongs to this core alone.
        self.home = step.chip.drams[index % len(step.chip.drams)]

    def share(self, words: int, room: Room, part: int = 2) -> Iterator[tuple[int, int]]:
        """The images, in ranges of as many as have `words` words each in a `part`-th of a memory, at least one."""
        many = max(1, room.words // part // max(1, words))
        for first in range(0, self.images, many):
            yield first, min(self.images, first + many)

    def product(self, label: str, fields: GemmFields, multiplier: str = "") -> None:
        """A GEMM; with the name of a `multiplier` it requantises, otherwise its sums go to ACC."""
        if multiplier:
            self.step.multipliers[len(self.operations)] = multiplier
        self.gemm(label, fields | {"to_acc": int(not multiplier), "scale": int(bool(multiplier))})

    def transposed(self, label: str, words: list[int], plane: int, pixels: int) -> Iterator[tuple[int, int, int]]:
        """Turns, for each of `words` in A, the bytes of `pixels` words that are `plane` apart into lanes.

        Yields the first index, how many, and the word of VEC at which [index][lane of A] begins; a word there has a
        lane for each of the pixels. Raises DoesNotFit.
        """
        lanes = self.chip.lanes
        check(label, "words between examples", plane, "in_w", 1023)
        many = max(1, self.vec.words // 2 // lanes)
        for first in range(0, len(words), many):
            some = words[first : first + many]
            vec = self.vec.once(len(some) * lanes)
            for index, word in enumerate(some):
                fields: VecFields = {
                    "x_base": word, "x_plane": pixels * plane, "in_w": plane, "out_w": 1, "pixels": pixels,
                    "dest_base": vec + index * lanes,
                }  # fmt: skip
                self.vector(label, VectorOp.TRANSPOSE, fields)
            yield first, len(some), vec


def check(label: str, what: str, value: int, name: str, most: int) -> None:
    """Raises DoesNotFit for what a field of an instruction cannot hold."""
    if value > most:
        raise DoesNotFit(f"{label}: {value} {what}, an instruction holds at most {most} ({name})")
