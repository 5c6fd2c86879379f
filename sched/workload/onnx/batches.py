"""Whether the first axis of an input is a batch, and models where it is none: sequences, single pictures.

The chip takes one sample after the other, so a batch becomes 1. An axis of steps or of tokens must not: what is
computed for one of them depends on the others. Names and shapes don't say which it is; ONNX Runtime does, by running
both.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import OnnxError
from .runtime import run, session

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

#: Samples of a batch that are run on their own.
_SAMPLES = 2
#: How far their results may be off, as a share of the largest: of sums in another order; of bytes that are rounded the
#: other way; of scales that are taken from all samples together. By operators of which a model must have one.
_EXACT, _TOLERANCES = (
    1e-3,
    ((("DynamicQuantizeLinear",), 0.1), (("QuantizeLinear", "QLinearConv", "QLinearMatMul"), 0.02)),
)
#: What names an open axis that is a batch begin with.
_BATCH = "batch"
#: Entries of an open first axis by which is seen whether it is a batch.
_DRAWN = 2


class FirstAxis(NamedTuple):
    """The first axis of an input. `size`: 0 if it is open; `symbol`: the name that the model gives it; `batch`: whether
    it surely is one."""

    size: int
    symbol: str
    batch: bool


def without_batches(model: ModelProto, firsts: Mapping[str, FirstAxis], name: str) -> ModelProto:
    """A copy of a model whose batches are 1. Inputs whose first axis is none get a batch of 1 in front; where other
    sizes are open this cannot be seen, and they stay as they are. `firsts`: of inputs that may have a batch. Raises
    OnnxError for a first axis that is none and has no size."""
    unsure = {key: axis for key, axis in firsts.items() if not axis.batch}
    single = _sized(model, dict.fromkeys(firsts, 1))
    if unsure and not _all_fixed(single):
        return _sized(model, {key: 1 for key in firsts if key not in unsure})
    _rebatch(single, {axis.size for axis in firsts.values()})
    whole = _sized(model, {key: 1 if axis.batch else axis.size or _DRAWN for key, axis in firsts.items()})
    if not unsure or is_batch(whole, single, name):
        return single
    unsized = [axis.symbol or f"{key}:0" for key, axis in unsure.items() if not axis.size]
    if unsized:
        raise OnnxError(
            f"{name}: the first axis of its inputs is no batch, since what it computes for one entry depends on "
            f"others, and has no size; give it one (--bind {unsized[0]}=N)"
        )
    return with_batch(whole, list(unsure))


def _sized(model: ModelProto, sizes: Mapping[str, int]) -> ModelProto:
    """A copy of a model with other sizes of some inputs' first axes, and without the shapes that follow from these."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in copy.graph.input:
        if value.name in sizes:
            value.type.tensor_type.shape.dim[0].dim_value = sizes[value.name]
    for value in copy.graph.output:
        value.type.tensor_type.ClearField("shape")
    del copy.graph.value_info[:]
    return copy


def _all_fixed(model: ModelProto) -> bool:
    """Whether all sizes of a model's inputs are there."""
    return all(dim.dim_value > 0 for value in model.graph.input for dim in value.type.tensor_type.shape.dim)


def _rebatch(model: ModelProto, batches: Container[int]) -> None:
    """A batch of 1 in the shapes that a model reshapes and resizes to."""
    from onnx import numpy_helper

    shapes = {node.input[1] for node in model.graph.node if node.op_type in ("Reshape", "Expand")}
    shapes |= {node.input[3] for node in model.graph.node if node.op_type == "Resize" and len(node.input) > 3}
    for item in model.graph.initializer:
        if item.name in shapes:
            array = numpy_helper.to_array(item).copy()
            if array.size > 1 and array[0] > 1 and int(array[0]) in batches:
                array[0] = 1
                item.CopyFrom(numpy_helper.from_array(array, item.name))


def is_open_batch(value: ValueInfoProto) -> bool:
    """Whether the first axis of an input is open and, by its name or by what else it has, a batch: of pictures."""
    dims = value.type.tensor_type.shape.dim
    return not dims[0].HasField("dim_value") and (len(dims) > 3 or dims[0].dim_param.lower().startswith(_BATCH))


def is_batch(whole: ModelProto, single: ModelProto, name: str) -> bool:
    """Whether a model computes for each sample of a batch what it computes for that one alone. `whole`: the model with
    the sizes of the batch; `single`: with a batch of 1. True as well where the former cannot be run."""
    try:
        live = session(whole, name)
        feeds = _drawn(whole)
        together = run(live, feeds, name)
    except OnnxError:
        return True
    sizes = _sizes(single)
    split = [key for key, array in feeds.items() if array.shape != sizes[key]]
    try:
        live = session(single, name)
        for index in range(min(_SAMPLES, *(len(feeds[key]) for key in split))):
            own = {key: array[index : index + 1] if key in split else array for key, array in feeds.items()}
            if not _agree(together, run(live, own, name), index, _tolerance(whole)):
                return False
    except OnnxError:
        return False
    return True


def with_batch(model: ModelProto, names: Sequence[str]) -> ModelProto:
    """A copy of a model in which some inputs have one more axis in front, a batch of 1. What these names stand for in
    the model is `NAME/sample` there."""
    import onnx
    from onnx import helper, numpy_helper

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    renamed = {name: f"{name}/sample" for name in names}
    for node in copy.graph.node:
        for index, operand in enumerate(node.input):
            node.input[index] = renamed.get(operand, operand)
    for value in copy.graph.input:
        if value.name in renamed:
            shape = value.type.tensor_type.shape
            sizes = [dim.dim_value for dim in shape.dim]
            del shape.dim[:]
            for size in (1, *sizes):
                shape.dim.add().dim_value = size
            target = f"{value.name}/shape"
            copy.graph.initializer.append(numpy_helper.from_array(np.array(sizes, np.int64), target))
            reshape = helper.make_node("Reshape", [value.name, target], [renamed[value.name]], f"{value.name}/sample")
            copy.graph.node.insert(0, reshape)
    return copy


def _drawn(model: ModelProto) -> dict[str, NDArray[Any]]:
    """Numbers for all inputs: normal ones, or integers of which every table has an entry."""
    from onnx import helper

    random, constants = np.random.default_rng(0), {item.name for item in model.graph.initializer}
    feeds: dict[str, NDArray[Any]] = {}
    for value in model.graph.input:
        if value.name not in constants:
            kind = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
            drawn = random.normal(0, 1, shape) if kind.kind == "f" else random.integers(0, 2, shape)
            feeds[value.name] = drawn.astype(kind)
    return feeds


def _sizes(model: ModelProto) -> Mapping[str, tuple[int, ...]]:
    return {value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim) for value in model.graph.input}


def _tolerance(model: ModelProto) -> float:
    operators = {node.op_type for node in model.graph.node}
    return next((share for some, share in _TOLERANCES if operators.intersection(some)), _EXACT)


def _agree(together: Mapping[str, NDArray[Any]], own: Mapping[str, NDArray[Any]], index: int, tolerance: float) -> bool:
    """Whether results of a batch are, for the sample number `index`, those of the sample on its own."""
    for name, array in own.items():
        whole, share = together[name], tolerance
        if whole.shape == array.shape:
            share = _EXACT / 10  # no result of a sample, but a constant
        elif array.ndim and len(whole) > index * len(array):
            whole = whole[index * len(array) : (index + 1) * len(array)]
        if whole.shape != array.shape or not _near(whole, array, share):
            return False
    return True


def _near(a: NDArray[Any], b: NDArray[Any], share: float) -> bool:
    """Whether two arrays of one shape are the same, but for a share of the largest number or, of integers, one step.
    What is no number in both is the same: roots and logarithms of what was drawn."""
    if not a.size or a.dtype.kind not in "fiu":
        return True
    step = 1.0 if a.dtype.kind in "iu" else 1e-6
    a, b = a.astype(np.float64), b.astype(np.float64)
    largest = np.abs(b[np.isfinite(b)]).max(initial=0.0)
    with np.errstate(invalid="ignore"):  # of infinite ones
        near = np.abs(a - b) <= max(share * largest, step)
    return bool((near | (a == b) | (np.isnan(a) & np.isnan(b))).all())
