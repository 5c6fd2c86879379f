"""Long schedules in the manner of a network: layer after layer, tiles in turns, GEMM -> VEC -> store, many sources."""

from __future__ import annotations

from random import Random

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Addend, Region, VectorOp, address
from meshloom.sched.ir.schedule import Gemm, Move, Operation, Span, Vec

_SPM_WORDS = 320
_ACC_WORDS = 34
#: Words of a plane of 4 x 4 pixels; every tile is one plane.
_PLANE = 16
_WINDOW = {"kernel_h": 1, "kernel_w": 1, "stride_h": 1, "stride_w": 1, "dilation": 1, "out_w": 4, "clamp": 127}


def _span(tile: int, region: Region, offset: int, words: int) -> Span:
    return Span(tile=tile, address=address(region, offset), run=words, stride=words)


class _Layers:
    """Grows a schedule. Each core has two halves of every memory, used in turns."""

    def __init__(self, chip: ChipConfig, random: Random) -> None:
        self.chip, self.random = chip, random
        self.operations: list[Operation] = []
        self.turn = dict.fromkeys(chip.cores, 0)

    def move(self, issuer: int, src: Span, dst: Span, words: int) -> None:
        self.operations.append(Move(issuer=issuer, src=src, dst=dst, words=words))

    def fetch(self, core: int, source: tuple[int, Region, int], goal: tuple[Region, int], words: int) -> None:
        """Words into a memory of a core, pulled or pushed."""
        issuer = self.random.choice((core, core, source[0]))
        self.move(issuer, _span(*source, words), _span(core, *goal, words), words)

    def fill(self) -> None:
        """Writes every word that layers may read before any layer writes it."""
        chip, dram = self.chip, self.chip.drams[0]
        for spm in chip.spms:
            self.move(spm, _span(dram, Region.MAIN, 0, _SPM_WORDS), _span(spm, Region.MAIN, 0, _SPM_WORDS), _SPM_WORDS)
        sizes = {Region.MAIN: 4 * _PLANE, Region.B: 4 * chip.cols, Region.ACC: 4 * _ACC_WORDS}
        copy = _WINDOW | {"op": VectorOp.MAX, "blocks": 2, "in_w": 4, "x_plane": _PLANE, "pixels": _PLANE}
        for core in chip.cores:
            for region, words in sizes.items():
                self.move(core, _span(dram, Region.MAIN, 0, words), _span(core, region, 0, words), words)
            self.operations.append(Vec(core=core, fields=copy))

    def layer(self, number: int) -> None:
        """One layer: weights, then on each core one tile after the other."""
        chip, random = self.chip, self.random
        kind = random.choice(("conv", "conv", "depthwise", "add", "pool", "partial"))
        words = 2 * chip.cols
        store = random.choice((*chip.spms, *chip.drams))
        home = random.choice((*chip.spms, None))
        weights = (random.choice(chip.drams), Region.MAIN, 1024 + number % 64 * words)
        if home is not None:  # once into the scratchpad, from there to every core
            self.move(home, _span(*weights, words), _span(home, Region.MAIN, number % 2 * words, words), words)
            weights = (home, Region.MAIN, number % 2 * words)
        for tile in range(random.randint(1, 3)):
            for core in chip.cores:
                half = self.turn[core] = 1 - self.turn[core]
                self.tile(core, half, kind, weights, (store, number * 7 + tile), tile == 0)

    def tile(
        self, core: int, half: int, kind: str, weights: tuple[int, Region, int], store: tuple[int, int], first: bool
    ) -> None:
        chip, random = self.chip, self.random
        a, b, out, acc = half * 2 * _PLANE, half * 2 * chip.cols, half * _PLANE, half * _PLANE
        other = random.choice(chip.cores)
        source = random.choice(
            [(dram, Region.MAIN, random.randrange(8) * _PLANE) for dram in chip.drams]
            + [(spm, Region.MAIN, 256 + random.randrange(4) * _PLANE) for spm in chip.spms]
            + [(other, Region.VEC, random.randrange(2) * _PLANE)] * 2
        )
        if source[0] != core:
            self.fetch(core, source, (Region.MAIN, a), _PLANE)
        else:
            self.move(core, _span(*source, _PLANE), _span(core, Region.MAIN, a, _PLANE), _PLANE)
        if first and kind != "pool":
            self.fetch(core, weights, (Region.B, b), 2 * chip.cols)
            self.fetch(core, (random.choice(chip.drams), Region.MAIN, 900), (Region.ACC, 4 * (2 * _PLANE + half)), 4)
        shape = {"in_w": 4, "pixels": _PLANE, "scale": 3000}
        bias = 2 * _PLANE + half
        gemm = _WINDOW | shape | {"a_base": a, "a_plane": _PLANE, "k_blocks": 1, "b_base": b, "n_blocks": 1}
        if kind == "partial":
            gemm |= {"to_acc": 1, "dest_base": acc}
            self.operations.append(Gemm(core=core, fields=gemm))
            gemm |= {"addend": int(Addend.PARTIAL), "addend_base": acc, "b_base": b + chip.cols}
            self.operations.append(Gemm(core=core, fields=gemm))
        elif kind in ("conv", "add"):
            gemm |= {"addend": int(Addend.BIAS), "addend_base": bias, "dest_base": out}
            self.operations.append(Gemm(core=core, fields=gemm))
        vec = _WINDOW | shape | {"blocks": 1, "x_plane": _PLANE, "dest_base": out, "x_base": a}
        after: dict[str, dict[str, int]] = {
            "conv": {"op": VectorOp.MAX, "x_out": 1, "x_base": out, "kernel_h": 2, "kernel_w": 2, "relu": 1},
            "add": {"op": VectorOp.ADD, "y_base": out},
            "pool": {"op": VectorOp.SUM},
            "depthwise": {"op": VectorOp.MAC, "y_base": b, "addend": 1, "addend_base": bias, "kernel_w": 2},
            "partial": {"op": VectorOp.REQUANT, "x_base": acc},
        }
        result = Region.VEC
        if kind == "conv" and random.random() < 0.5:
            result = Region.OUT
        else:
            self.operations.append(Vec(core=core, fields=vec | after[kind]))
        tile, slot = store
        room = (256, 4) if tile in chip.spms else (0, 8)
        goal = _span(tile, Region.MAIN, room[0] + slot % room[1] * _PLANE, _PLANE)
        self.move(core, _span(core, result, out, _PLANE), goal, _PLANE)


def network_like(chip: ChipConfig, random: Random, operations: int) -> list[Operation]:
    """At least so many operations; for chips with A >= 64 words, B >= 4 * cols, ACC >= 34 (of P int32), OUT and
    VEC >= 32, SPM >= 320, DRAM >= 4096."""
    layers = _Layers(chip, random)
    layers.fill()
    number = 0
    while len(layers.operations) < operations:
        layers.layer(number)
        number += 1
    return layers.operations
