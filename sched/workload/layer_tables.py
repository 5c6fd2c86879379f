"""The benchmarks of Layer-Puzzle (Table III) as tables of layers: all that multiplies, in order.

googlenet, mobilenet_v1, resnet50: the convolutions, depthwise ones included, and fc, of `networks`. The other two are
matrix products of published dimensions:

ncf: the six products of its table in SCALE-Sim, whose numbers are the paper's (6 layers, 138000 inputs): two embeddings
as products of a one-hot row, three layers of the perceptron, the prediction.

transformer: the base model of Vaswani et al. 2017 (6 + 6 layers, d_model 512, 8 heads of 64, d_ff 2048) over TOKENS
tokens on both sides, and the projection onto 33708 words. Softmax, normalisation, residual sums and the lookup of
embeddings are left out. (The paper's 891 layers are those of SCALE-Sim's table, which lists every head by itself, for
one token: 6 * (8 * 6 + 2) of the encoder, 6 * (16 * 6 + 2) of the decoder, and three embeddings.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from . import networks
from .layers import ConvShape, WorkloadError, gemm_shape

#: Tokens of a sentence.
TOKENS = 64
_WIDTH, _HEADS, _HIDDEN, _VOCABULARY = 512, 8, 2048, 33708
_NCF = (
    ("mf_embedding", 138000, 8),
    ("mlp_embedding", 138000, 32),
    ("fc1", 64, 32),
    ("fc2", 32, 16),
    ("fc3", 16, 8),
    ("predict", 16, 1),
)


@dataclass(frozen=True)
class TableLayer:
    """A layer of a table, for its batch. `depthwise`: each output channel has one input channel (`shape.in_channels` is
    1). `copies`: independent products of that shape, each with weights of its own (heads of an attention)."""

    shape: ConvShape
    depthwise: bool = False
    copies: int = 1

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all copies."""
        return self.shape.macs * self.copies


NAMES = ("googlenet", "mobilenet_v1", "resnet50", "ncf", "transformer")


@cache
def table(name: str, batch: int = 1) -> tuple[TableLayer, ...]:
    """The layers of one of NAMES. Raises WorkloadError for other names."""
    if name == "ncf":
        found = [TableLayer(gemm_shape(f"ncf/{layer}", 1, outputs, inputs)) for layer, inputs, outputs in _NCF]
    elif name == "transformer":
        found = list(_transformer())
    elif name in NAMES:
        products = networks.GRAPHS[name]().products()
        found = [TableLayer(shape, kind == "depthwise") for kind, shape in products]
    else:
        raise WorkloadError(f"there is no table of layers of {name!r}; there are {', '.join(NAMES)}")
    return tuple(replace(layer, shape=replace(layer.shape, batch=batch)) for layer in found)


def _transformer() -> Iterator[TableLayer]:
    for side, attentions in (("encoder", ("self",)), ("decoder", ("self", "cross"))):
        for index in range(1, 7):
            for attention in attentions:
                yield from _attention(f"transformer/{side}{index}_{attention}")
            yield _product(f"transformer/{side}{index}_ff1", _HIDDEN, _WIDTH)
            yield _product(f"transformer/{side}{index}_ff2", _WIDTH, _HIDDEN)
    yield _product("transformer/projection", _VOCABULARY, _WIDTH)


def _attention(name: str) -> Iterator[TableLayer]:
    for part in ("query", "key", "value"):
        yield _product(f"{name}_{part}", _WIDTH, _WIDTH)
    yield TableLayer(gemm_shape(f"{name}_scores", TOKENS, TOKENS, _WIDTH // _HEADS), copies=_HEADS)
    yield TableLayer(gemm_shape(f"{name}_context", TOKENS, _WIDTH // _HEADS, TOKENS), copies=_HEADS)
    yield _product(f"{name}_output", _WIDTH, _WIDTH)


def _product(name: str, outputs: int, inputs: int) -> TableLayer:
    return TableLayer(gemm_shape(name, TOKENS, outputs, inputs))
