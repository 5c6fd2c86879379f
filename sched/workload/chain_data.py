"""The numbers of layers in a row in training: random operands, the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .training_chain import Chain
from .training_data import Scales, random_gradients


@dataclass(frozen=True, eq=False)
class ChainData:
    """The operands of a chain's gradients: of each layer `x` int8 [M, K] and `w` int8 [K, N], of the last one `dy` int8
    [M, N]; `scales`: the multipliers with which each layer's gradients become int8."""

    chain: Chain
    x: tuple[NDArray[np.int8], ...]
    w: tuple[NDArray[np.int8], ...]
    dy: NDArray[np.int8]
    scales: tuple[Scales, ...]

    def arrays(self) -> dict[str, NDArray[np.int8]]:
        """The operands as the tensors of a schedule: int8 [1, channels, 1, pixels]."""
        result = {"dy": picture(self.dy)}
        for index, (x, w) in enumerate(zip(self.x, self.w, strict=True)):
            tag = self.chain.tag(index)
            result |= {f"x:{tag}": picture(x), f"w:{tag}": picture(w.T)}
        return result


def picture(array: NDArray[np.int8]) -> NDArray[np.int8]:
    """[pixel, channel] as [1, channel, 1, pixel]."""
    return np.ascontiguousarray(array.T)[None, :, None, :]


def random_chain(chain: Chain) -> ChainData:
    """Operands over the full int8 range, seeded by the layers' names, as each layer's gradients have them."""
    gradients = [random_gradients(layer) for layer in chain.layers]
    return ChainData(
        chain, tuple(one.x for one in gradients), tuple(one.w for one in gradients), gradients[-1].dy,
        tuple(one.scales for one in gradients),
    )  # fmt: skip
