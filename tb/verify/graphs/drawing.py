"""Random float ONNX models: operators, attributes, shapes and opsets as exporters write them, and some as none does."""

from __future__ import annotations

from random import Random

import numpy as np
import onnx
from numpy.typing import NDArray

from .nodes import NODES
from .partial_model import Drawing, UnfitError
from .patterns import PATTERNS

#: Opsets of the models; in between, some operators take attributes as operands.
OPSETS = (9, 11, 12, 13, 15, 17, 18, 20, 21)
#: Tries for a node that fits the tensors there are.
_TRIES = 40
_KINDS = NODES | PATTERNS


def draw(seed: int, size: int) -> tuple[onnx.ModelProto, list[dict[str, NDArray[np.float32]]]]:
    """A model of `size` nodes, constants aside, and inputs for it. ONNX Runtime may refuse it."""
    random = Random(f"graph {seed}")
    drawing = Drawing(random, random.choice(OPSETS))
    for number in range(1 + (random.random() < 0.15)):
        drawing.inputs.append(f"x{number}")
        drawing.shapes[f"x{number}"] = _input(random)
    for _ in range(size):
        _grow(drawing)
    read = {name for node in drawing.nodes for name in node.input}
    drawing.inputs = [name for name in drawing.inputs if name in read]
    made = [name for node in drawing.nodes for name in node.output]
    ends = [name for name in made if name in drawing.shapes and name not in read]
    model = drawing.model(ends or made[-1:])
    generator = np.random.default_rng(seed)
    shapes = {name: drawing.shapes[name] for name in drawing.inputs}
    data = [
        {name: generator.normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()} for _ in range(3)
    ]
    return model, data


def _input(random: Random) -> tuple[int, ...]:
    match random.choices(("picture", "last", "vector", "sequence", "line"), (10, 2, 2, 3, 2))[0]:
        case "picture":
            return 1, random.choice((1, 2, 3, 4, 5, 8, 16)), random.randint(1, 12), random.randint(1, 12)
        case "last":
            return 1, random.randint(3, 9), random.randint(3, 9), random.choice((1, 3, 8))
        case "vector":
            return 1, random.choice((1, 3, 7, 8, 32, 50))
        case "sequence":
            return 1, random.randint(1, 9), random.choice((4, 6, 8, 16))
        case _:
            return 1, random.randint(1, 8), random.randint(2, 20)


def _grow(drawing: Drawing) -> None:
    """Adds one of the nodes that fit; none if no try does."""
    kinds, weights = list(_KINDS), list(_KINDS.values())
    for _ in range(_TRIES):
        before = len(drawing.nodes), len(drawing.initialisers)
        try:
            drawing.random.choices(kinds, weights)[0](drawing)
        except UnfitError:
            del drawing.nodes[before[0] :], drawing.initialisers[before[1] :]
        else:
            return
