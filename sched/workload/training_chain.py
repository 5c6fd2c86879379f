"""Layers in a row in training: dX of each, behind the rectifier's mask if there is one, is dY of the layer before.

The rows are those of `gradient:` (J. Kim et al., "Improving Data Reuse in NPU On-chip Memory with Interleaved Gradient
Order for DNN Training", MICRO 2023, table 4). A row ends where the network has something else between two layers (a
depthwise convolution, a pool, a sum of branches, products of two activations), and where a layer is unfolded, whose dX
the host folds. Networks with other activation functions than a rectifier (BERT) are taken to have one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from meshloom.hw.spec.config import near

from .layers import WorkloadError
from .training import PREFIX as GRADIENT
from .training import Setting, TrainingLayer
from .training import find as find_layers

PREFIX = "chain:"
#: Rows of each network, as (first, last) layer; whether there is a rectifier between its layers. An expansion reads the
#: projection before it as it is (M. Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018).
ROWS: dict[str, tuple[tuple[str, str, bool], ...]] = {
    "ncf": (("mlp1", "mlp3", True),),
    "dlrm": (("bottom1", "bottom3", True), ("top1", "top5", True)),
    "bert": (("ff1", "ff2", True),),
    # where the next block adds nothing of this one's result to its own
    "rcnn": tuple((f"block{n}_project", f"block{n + 1}_expand", False) for n in (1, 3, 6, 10, 12)),
}

SYNTAX = """\
chain:NETWORK[,bBATCH]              layers in a row (each row of a network):
                                    dX of each is dY of the one before
chain:NETWORK/FIRST..LAST[,bBATCH]  such a row, or a part of one"""


@dataclass(frozen=True)
class Chain:
    """Layers, the first one first. `rectified`: X of all but the first is the result of a rectifier."""

    name: str
    layers: tuple[TrainingLayer, ...]
    rectified: bool

    @property
    def m(self) -> int:
        """Rows of all X and dY."""
        return self.layers[0].m

    @property
    def macs(self) -> int:
        """Products of all gradients."""
        return sum(layer.macs for layer in self.layers)

    def masked(self, index: int) -> bool:
        """Whether dX of a layer is masked by the sign of its X before it is dY of the layer before."""
        return self.rectified and index > 0

    def tag(self, index: int) -> str:
        """A layer's name within its network."""
        return self.layers[index].name.partition("/")[2].partition(",")[0]


def is_chain(name: str) -> bool:
    """Whether a name on the command line means layers in a row."""
    return name.startswith(PREFIX)


def find(name: str, setting: Setting) -> tuple[Chain, ...]:
    """The rows that a name means. Raises WorkloadError."""
    text, comma, batch = name.removeprefix(PREFIX).partition(",")
    network, slash, part = text.partition("/")
    if network not in ROWS:
        hint = near(network, tuple(ROWS)) or f"rows are known of {', '.join(ROWS)}"
        raise WorkloadError(f"unknown workload {name!r}: {hint}")
    layers = find_layers(f"{GRADIENT}{network}{comma}{batch}", setting)
    names = [layer.name.partition("/")[2].partition(",")[0] for layer in layers]
    if not slash:
        return tuple(_row(network, layers, names, *row) for row in ROWS[network])
    match = re.fullmatch(r"(\w+)\.\.(\w+)", part)
    if match is None:
        raise WorkloadError(
            f"workload {name!r}: {part!r} is not FIRST..LAST, such as {'..'.join(ROWS[network][0][:2])}"
        )
    for end in match.groups():
        if end not in names:
            hint = near(end, names) or f"{network} has {', '.join(names)}"
            raise WorkloadError(f"unknown workload {name!r}: {hint}")
    first, last = map(names.index, match.groups())
    for begin, end, rectified in ROWS[network]:
        if names.index(begin) <= first <= last <= names.index(end):
            return (_row(network, layers, names, names[first], names[last], rectified),)
    parts = ", ".join(f"{begin}..{end}" for begin, end, _ in ROWS[network])
    raise WorkloadError(f"workload {name!r}: is no part of a row of {network}, which are {parts}")


def _row(
    network: str, layers: Sequence[TrainingLayer], names: Sequence[str], first: str, last: str, rectified: bool
) -> Chain:
    some = tuple(layers[names.index(first) : names.index(last) + 1])
    batch = some[0].name.rpartition(",")[2]
    return Chain(f"{PREFIX}{network}/{first}..{last},{batch}", some, rectified)
