"""Nodes that belong together, as exporters write them: products over named axes, choices, three axes, groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from .nodes import window
from .partial_model import Drawing, UnfitError

#: Equations of products by a constant, by the operand's axes; and of a tensor by itself.
_BY_CONSTANT: Mapping[int, Sequence[str]] = {
    2: ("bi,io->bo", "bi,oi->bo", "bi,i->bi"),
    3: ("bti,io->bto", "bti,oi->bot", "bti,ti->bti", "bti,us->bus", "bti,st->bsi", "bti,hio->bhto"),
    4: ("bchw,dc->bdhw", "bchw,hk->bckw", "bchw,c->bchw", "bchw,wk->bkhc", "bchw,chw->bc", "nhqd,hde->nhqe"),
}
_BY_ITSELF: Mapping[int, Sequence[str]] = {
    3: ("bti,bsi->bts", "bti,bti->bt", "bti,btj->bij"),
    4: ("nhqd,nhkd->nhqk", "bchw,bdhw->bcd", "bchw,bchw->bhw"),
}
_ALONE: Mapping[int, Sequence[str]] = {
    3: ("bti->bit", "bti->bt", "bti->bi"), 4: ("bchw->bhwc", "bchw->bch", "bchw->bwc", "bchw->bc"),
}  # fmt: skip


def _einsum(drawing: Drawing) -> None:
    random, x = drawing.random, drawing.tensor()
    shape = drawing.shapes[x]
    equations = random.choice((_BY_CONSTANT, _BY_CONSTANT, _BY_ITSELF, _ALONE)).get(len(shape), ())
    if not equations:
        raise UnfitError
    equation = random.choice(equations)
    left = equation.partition("->")[0]
    first, _, second = left.partition(",")
    sizes = dict(zip(first, shape, strict=True))
    operands = [x]
    if second and equation in _BY_CONSTANT.get(len(shape), ()):
        size = [sizes.setdefault(axis, random.randint(1, 8)) for axis in second]
        operands.append(drawing.normal(*size, scale=shape[-1] ** -0.5))
    elif second:
        operands.append(x)
    drawing.node("Einsum", operands, equation=equation)


def _choice(drawing: Drawing) -> None:
    """A Where that a comparison of the same tensor decides, or a constant."""
    random, x = drawing.random, drawing.tensor()
    shape = drawing.shapes[x]
    if random.random() < 0.3:
        size = random.choice((shape, shape[-1:], (shape[1], *[1] * (len(shape) - 2))))
        bits = [random.random() < 0.5 for _ in range(prod(size))]
        mask = drawing.constant(np.array(bits).reshape(size), np.bool_)
    else:
        bound = drawing.constant(random.choice((0.0, 0.5, -1.0)))
        mask = f"m{len(drawing.nodes)}"
        operands = [x, bound] if random.random() < 0.7 else [bound, x]
        drawing.hidden_node(random.choice(("Less", "Greater")), operands, mask)
        if random.random() < 0.2:
            inverse = f"m{len(drawing.nodes)}"
            drawing.hidden_node("Not", [mask], inverse)
            mask = inverse
    scaled = f"m{len(drawing.nodes)}"
    drawing.hidden_node(random.choice(("Mul", "Add")), [x, drawing.constant(random.choice((0.1, 0.5, 2.0)))], scaled)
    branches = random.sample((x, scaled, drawing.constant(random.choice((0.0, 1.0)))), 2)
    drawing.node("Where", [mask, *branches])


def _three_axes(drawing: Drawing) -> None:
    """A convolution or pool of three axes on a picture whose channels become maps of one depth."""
    random, x = drawing.random, drawing.tensor((4,))
    _, channels, height, width = drawing.shapes[x]
    maps = random.choice([size for size in range(1, channels + 1) if channels % size == 0])
    deep = channels // maps
    sides = (deep, height, width)
    volume = f"m{len(drawing.nodes)}"
    drawing.hidden_node("Reshape", [x, drawing.constant([1, maps, *sides], np.int64)], volume)
    end = f"m{len(drawing.nodes)}"
    values = window(drawing, sides, padded=random.random() < 0.5)
    if random.random() < 0.6:
        filters = random.randint(1, 6)
        weights = drawing.normal(filters, maps, *values["kernel_shape"], scale=(maps * 4) ** -0.5)
        drawing.hidden_node("Conv", [volume, weights], end, **values)
    else:
        values.pop("dilations", None)
        drawing.hidden_node(random.choice(("MaxPool", "AveragePool")), [volume], end, **values)
    sizes = drawing.sizes(end)
    drawing.node("Reshape", [end, drawing.constant([1, sizes[1] * sizes[2], *sizes[3:]], np.int64)])


def _group_normalisation(drawing: Drawing) -> None:
    """As exporters write it: an InstanceNormalization of each group, then a gain for each channel."""
    random, x = drawing.random, drawing.tensor((4,))
    _, channels, height, width = drawing.shapes[x]
    groups = random.choice([size for size in range(1, channels + 1) if channels % size == 0])
    if channels // groups * height * width == 1:
        raise UnfitError
    flat, even, shaped = (f"m{len(drawing.nodes)}_{number}" for number in range(3))
    drawing.hidden_node("Reshape", [x, drawing.constant([0, groups, -1], np.int64)], flat)
    ones, zeros = drawing.constant(np.ones(groups)), drawing.constant(np.zeros(groups))
    drawing.hidden_node("InstanceNormalization", [flat, ones, zeros], even, epsilon=1e-5)
    drawing.hidden_node("Reshape", [even, drawing.constant(drawing.shapes[x], np.int64)], shaped)
    if random.random() < 0.8:
        scaled = f"m{len(drawing.nodes)}"
        drawing.hidden_node("Mul", [shaped, drawing.positive(channels, 1, 1)], scaled)
        drawing.node("Add", [scaled, drawing.normal(channels, 1, 1)])
    else:
        drawing.node("Mul", [shaped, drawing.positive(channels, 1, 1)])


def _elements(drawing: Drawing) -> None:
    """A GatherElements with constant places."""
    random, x = drawing.random, drawing.tensor()
    shape = list(drawing.shapes[x])
    axis = random.randrange(1, len(shape))
    size, shape[axis] = shape[axis], random.randint(1, 5)
    places = np.array([random.randrange(size) for _ in range(prod(shape))]).reshape(shape)
    drawing.node("GatherElements", [x, drawing.constant(places, np.int64)], axis=axis)


#: How often each is drawn, relative to single nodes.
PATTERNS: dict[Callable[[Drawing], None], float] = {
    _einsum: 1.2,
    _choice: 1,
    _three_axes: 1,
    _group_normalisation: 0.6,
    _elements: 0.4,
}
