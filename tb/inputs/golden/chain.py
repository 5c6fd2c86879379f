"""Every tensor of layers in a row in training, by ONNX Runtime's integer products."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.sched.workload.chain_data import ChainData, picture

from .products import product
from .training import requantised


def chain(data: ChainData) -> dict[str, NDArray[Any]]:
    """What a chain's schedules may write, by tensor, int8 [1, channels, 1, pixels]: `dw:` and `w':`, W less dW, of each
    layer, `dy:` of all but the last, and `dx:` of the first. Raises GoldenError when a sum might leave int32."""
    arrays: dict[str, NDArray[Any]] = {}
    dy = data.dy
    for index in range(len(data.chain.layers) - 1, -1, -1):
        tag, x, w, scales = data.chain.tag(index), data.x[index], data.w[index], data.scales[index]
        dw = requantised(product(np.ascontiguousarray(x.T), dy).astype(np.int64), scales.dw)
        arrays[f"dw:{tag}"] = picture(dw.T)
        arrays[f"w':{tag}"] = picture(np.clip(w.astype(np.int16) - dw, -128, 127).astype(np.int8).T)
        dx = requantised(product(dy, np.ascontiguousarray(w.T)).astype(np.int64), scales.dx)
        if not index:
            arrays[f"dx:{tag}"] = picture(dx)
            break
        dy = np.where(x > 0, dx, np.int8(0)) if data.chain.masked(index) else dx
        arrays[f"dy:{data.chain.tag(index - 1)}"] = picture(dy)
    return arrays
