"""How a chain of layers in training is computed, and where its tensors lie."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from meshloom.hw.spec.config import ChipConfig

from ...ir.schedule import Tensor
from ...mapping.memory.placement import Dram, Stored
from ...schedulers.training.pair import check_sums
from ...workload.layout import ActivationLayout
from ...workload.training_chain import Chain


class Update(StrEnum):
    """What becomes of dW."""

    NONE = "none"  #: dW, int8, is the result
    APART = "apart"  #: W' = sat8(W - dW), once all of dW is in DRAM
    FUSED = "fused"  #: the same as soon as a tile of dW is complete, which does not go to DRAM


@dataclass(frozen=True)
class ChainPlan:
    """How a chain is computed: rows (`m`) and blocks of columns of X (`k`) of a tile, columns of W (`n`) of a piece of
    dW; cores that share it; whether dX stays in the cores, and dW is put off."""

    m: int
    k: int
    n: int
    cores: int = 1
    keep: bool = True
    defer: bool = True
    update: Update = Update.NONE

    def __str__(self) -> str:
        return f"{self.m}x{self.k}x{self.n}" + (f" on {self.cores} cores" if self.cores > 1 else "")


class Tensors:
    """Where a chain's tensors lie in DRAM. Raises DoesNotFit if it is too small, or if sums may leave int32."""

    def __init__(self, chain: Chain, chip: ChipConfig, plan: ChainPlan) -> None:
        self.chain, self.chip = chain, chip
        for layer in chain.layers:
            check_sums(f"{layer.name} dw", layer.m, "take a smaller batch")
            check_sums(f"{layer.name} dx", layer.n, "take fewer output channels")
        self._dram, self.listed = Dram(chip), list[Tensor]()
        lanes, cols, m = chip.lanes, chip.cols, chain.m
        last = chain.layers[-1]
        self.x, self.w, self.dw, self.updated = list[Stored](), list[Stored](), list[Stored](), list[Stored]()
        self.dy = [Stored(_Nowhere(), 1, 1, 1, [], lambda plane, _: 0) for _ in chain.layers]
        self.dy[-1] = self._put("dy", "input", last.n, m, cols)
        for index, layer in enumerate(chain.layers):
            tag = chain.tag(index)
            self.x.append(self._put(f"x:{tag}", "input", layer.k, m, cols if chain.masked(index) else lanes))
            self.w.append(self._put(f"w:{tag}", "constant", layer.k, layer.n, lanes))
            if plan.update is not Update.FUSED:
                self.dw.append(self._put(f"dw:{tag}", "output", layer.k, layer.n, cols))
            if plan.update is not Update.NONE:
                self.updated.append(self._put(f"w':{tag}", "output", layer.k, layer.n, cols))
            if index and not plan.keep:
                self.dy[index - 1] = self._put(f"dy:{chain.tag(index - 1)}", "output", layer.k, m, cols)
        first = chain.layers[0]
        self.dx = None if first.first else self._put(f"dx:{chain.tag(0)}", "output", first.k, m, cols)

    def _put(self, name: str, role: str, channels: int, pixels: int, block: int) -> Stored:
        homes = self.chip.drams
        stored = Stored(self._dram, ceil(channels / block), pixels, 1, [0], lambda plane, _: homes[plane % len(homes)])
        layout = ActivationLayout(batch=1, channels=channels, height=1, width=pixels, block=block)
        self.listed.append(
            Tensor.model_validate({"name": name, "role": role, "layout": layout, "pieces": stored.pieces()})
        )
        return stored


class _Nowhere:
    def take(self, tile: int, words: int) -> int:
        return 0
