"""Where a network of micro-ops keeps what lies in DRAM: inputs, weights and biases, outputs, and what is spilled."""

from __future__ import annotations

from collections.abc import Sequence

from meshloom.hw.spec.config import ChipConfig, tile_position

from ...ir.schedule import Piece
from ...mapping.memory.placement import Dram, Stored
from ...schedulers.network.storage import banded, homes
from ...schedulers.network.tensors import NetworkTensors
from ...workload.stages import Stages
from .muops import MuOp
from .work import StageWork

#: Words that a DRAM tile may send more than another for being nearer by one link, in words of the pull.
NEAR = 4
#: A tile keeps one part in so many for other things than copies of constants.
SPARE = 4
#: Instead of a tile: across all of them.
EVERYWHERE = -1


class _Room(Dram):
    """DRAM tiles that can say how much is left."""

    def left(self, tile: int) -> int:
        """Words of `tile` that nobody has taken."""
        return self._words - self._used[tile]


class Homes:
    """Places tensors in DRAM when they are first asked for. `copies`: constants may lie there more than once. Raises
    DoesNotFit when DRAM is full."""

    def __init__(self, stages: Stages, works: Sequence[StageWork], chip: ChipConfig, copies: bool = True) -> None:
        self.stages, self.works, self.chip, self.copies = stages, works, chip, copies
        self.dram = _Room(chip)
        self.tensors = NetworkTensors(stages, chip, self.dram, banded)
        self.spilled: set[str] = set()
        self._packed = {name: work for work in works for name in work.reads if name not in stages.roots}
        self._inputs = {value.name for value in stages.graph.inputs}
        self._stored: dict[str, Stored] = {}
        self._constants: dict[tuple[int, int], tuple[Stored, Stored]] = {}  # by stage and tile
        self._sent = dict.fromkeys(chip.drams, 0)  # words of constants that are pulled from each

    def root(self, name: str) -> tuple[str, int]:
        """The tensor that a tensor is part of, and its first plane there."""
        return self.stages.roots.get(name, (name, 0))

    def result(self, op: MuOp) -> str:
        """The tensor that a micro-op makes part of."""
        return self.stages.stages[op.stage].y

    def is_output(self, op: MuOp) -> bool:
        """Whether the host reads what a micro-op makes."""
        root, first = self.root(self.result(op))
        planes = first + op.result.planes[0], first + op.result.planes[1]
        for name in self.stages.graph.outputs:
            at, begin = self.root(name)
            if at == root and begin < planes[1] and planes[0] < begin + self._planes(name):
                return True
        return False

    def _planes(self, name: str) -> int:
        return sum(self.stages.members[name])

    def stored(self, root: str) -> Stored:
        """Where a tensor lies, packed ones included."""
        if root not in self._stored:
            if root in self._packed:
                self._stored[root] = self.tensors.packed_input(self._packed[root].stage.layer)
            elif root in self._inputs:
                self._stored[root] = self.tensors.plain_input(self.stages.values[root])
            else:
                value, members = self.stages.values[root], self.stages.members[root]
                cuts, home = homes(members, value.height, self.chip.drams)
                self.spilled.add(root)
                self._stored[root] = Stored(self.dram, sum(members), value.height, value.width, cuts, home)
        return self._stored[root]

    def sums(self, name: str, words: int) -> Stored:
        """Room for partial sums, one run of words."""
        if name not in self._stored:
            tile = self.chip.drams[len(self._stored) % len(self.chip.drams)]
            self._stored[name] = Stored(self.dram, 1, 1, words, [], lambda _plane, _segment: tile)
            self.spilled.add(name)
        return self._stored[name]

    def constants(self, stage: int, core: int, words: int) -> tuple[Stored, Stored]:
        """Weights (planes of output blocks, rows of windows; of a depthwise convolution planes of blocks, one row of
        windows) and biases (rows of output blocks) of a stage, from which a core pulls so many words.

        Each DRAM tile that is near to a core which needs them gets a copy, as long as it has room; of all tiles that is
        taken which is near and has had little to send so far. Without room, one copy lies across all tiles.
        """
        work = self.works[stage]
        whole = work.whole.planes * (
            4 + work.problem.taps * (work.problem.k_blocks * work.problem.cols if work.op is None else 1)
        )
        drams = self.chip.drams
        tile = min(drams, key=lambda dram: self._sent[dram] + NEAR * words * _hops(dram, core))
        room = self.dram.left(tile) - whole >= self.chip.dram.words // SPARE
        if not self.copies or ((stage, tile) not in self._constants and not room):
            tile = EVERYWHERE
        else:
            self._sent[tile] += words
        if (stage, tile) not in self._constants:
            self._constants[stage, tile] = self._laid(stage, tile)
        return self._constants[stage, tile]

    def _laid(self, stage: int, tile: int) -> tuple[Stored, Stored]:
        """Constants of a stage: a copy in one DRAM tile, or those across `EVERYWHERE`, which bear the stage's name."""
        turn, copy = (self.chip.drams, "") if tile == EVERYWHERE else ((tile,), f"@{tile:#04x}")
        work = self.works[stage]
        problem, layer, planes = work.problem, work.stage.layer, work.whole.planes
        if work.op is None:
            w = Stored(
                self.dram, planes, problem.k_blocks * problem.taps, problem.cols, [],
                lambda plane, _: turn[(plane + stage) % len(turn)],
            )  # fmt: skip
        else:
            w = Stored(self.dram, planes, 1, problem.taps, [], lambda plane, _: turn[plane * len(turn) // planes])
        bias = Stored(self.dram, 1, planes, 4, [], lambda _plane, _at: turn[stage % len(turn)])
        pieces: dict[str, tuple[Piece, ...]] = {"w": w.pieces(), "bias": bias.pieces()}
        if work.op is None:
            self.tensors.conv_constants(layer, pieces, copy)
        else:
            self.tensors.depthwise_constants(layer, pieces, copy)
        return w, bias

    def outputs(self) -> None:
        """Names the tensors that the host reads."""
        for name in dict.fromkeys(self.stages.graph.outputs):
            root, first = self.root(name)
            stored, planes = self.stored(root), self._planes(name)
            self.tensors.output(name, stored if planes == stored.planes else stored.part(first, planes))


def _hops(one: int, other: int) -> int:
    """Links between two tiles."""
    (x, y), (to_x, to_y) = tile_position(one), tile_position(other)
    return abs(x - to_x) + abs(y - to_y)
