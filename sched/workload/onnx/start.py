"""What stands at the beginning of a float model and runs on the host: numbers of words looked up in tables.

A model of text takes whole numbers: of words, of places, and a mask that says which of them count. What is computed of
these before the first layer that the chip is for (the sum of rows of tables, as a rule) is a model of its own, which
ONNX Runtime runs; the chip's network begins with its results. So it does with whole numbers that a layer weighs: the
waves of a time step, an age. What else depends on no number that is looked up, such as the term that a mask adds to
scores, must be the same for all inputs, and is a constant of the network. Inputs in real numbers, such as keys and
values of earlier tokens, are inputs of the network as they are, unless all that they do is shift scores. A model that
looks nothing up begins on the host, too, if it has masks beside real numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .choosing import choose_by_products
from .errors import OnnxError, operator_name
from .runtime import run, session
from .subgraphs import reads

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

#: Operators with which the chip's part begins.
_ON_CHIP = {
    "Attention", "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "Einsum", "Elu", "Erf", "GRU", "Gelu",
    "Gemm", "GlobalAveragePool", "InstanceNormalization", "LSTM", "LayerNormalization", "LeakyRelu", "MatMul",
    "MaxPool", "Pow", "RMSNormalization", "RNN", "ReduceMean", "Relu", "Resize", "Sigmoid",
    "SimplifiedLayerNormalization", "SkipLayerNormalization",
    "Softmax", "Tanh",
}  # fmt: skip
#: Operators that make a table of constants.
_TABLES = {"Cast", "Constant", "DequantizeLinear", "Identity", "Reshape", "Transpose"}
#: Operators that pass on what is added to scores, and those that add it.
_SHIFTS = {"Cast", "Expand", "Identity", "Mul", "Reshape", "Slice", "Squeeze", "Sub", "Transpose", "Unsqueeze"}
#: Operators whose results depend on the sizes of their operands alone.
_SIZES = {"Shape", "Size"}
#: Operators that weigh their first operand where all others are constants, and those that pass on what is weighed.
_WEIGH = {"Conv", "GRU", "Gemm", "LSTM", "MatMul", "RNN"}
_PASS = {"Cast", "Concat", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
#: Operators that leave whole numbers what they are.
_KEEP = {"Cast", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
#: Operators that make numbers of rows of an input's: columns, with an offset, or others in their place. Not those that
#: count.
_NUMBER = {
    "Add", "And", "Clip", "Concat", "Equal", "Gather", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min",
    "Mod", "Mul", "Not", "Or", "Split", "Sub", "Where", *_KEEP,
}  # fmt: skip
_NAMED = 4
#: From this version of the format on constants need not be inputs.
_CONSTANTS_ALONE = 4

Feeds = Mapping[str, NDArray[Any]]


class Start:
    """The nodes before the chip's. `inputs`: of the model; `real`: those in real numbers, of which the network reads
    `passed`; `rest`: the model behind them, with fixed sizes, whose inputs are in `sources` and `passed`; `fixed`: what
    must be the same for all inputs."""

    def __init__(self, model: ModelProto, name: str, data: Sequence[Feeds]) -> None:
        """Raises OnnxError when the model begins otherwise, or inputs differ in what must be the same."""
        import onnx
        from onnx import helper, numpy_helper

        self._name = f"{name}: what runs on the host before"
        cut = _Cut(model)
        if (chosen := choose_by_products(model, name, cut.host, cut.fixed)) is not model:
            model, cut = chosen, _Cut(chosen)
        alike = {mask for mask in cut.masks if all(np.array_equal(item[mask], data[0][mask]) for item in data)}
        cut = _Cut(model, alike=alike)
        while turned := self._batches(model, cut, data):
            cut = _Cut(model, cut.left | turned, alike)
        self.inputs, self.real, self.nodes, self._tables = cut.inputs, cut.real, cut.nodes, cut.tables
        self._first, self.fixed = _beginning(model, cut), dict[str, NDArray[Any]]()
        borders = [self._border(self._first, item) for item in data]
        own = cut.looked_up | cut.weighed
        self.sources = tuple(
            tensor
            for tensor in cut.border
            if borders[0][tensor].dtype.kind == "f" and (cut.depends[tensor] & cut.numbers or tensor in own)
        )
        inner = {output for node in cut.nodes for output in node.output if node.op_type != "Constant"}
        nodes = [node for node in model.graph.node if not inner.intersection(node.output)]
        read = {tensor for node in nodes for tensor in reads(node)}
        self.passed = tuple(name for name in cut.inputs if name in cut.real - cut.masks and name in read)
        if not self.sources and not self.passed:
            raise OnnxError(f"{name}: nothing that the chip computes depends on what is looked up; simplify the model")
        self.fixed = {tensor: borders[0][tensor] for tensor in cut.border if tensor not in self.sources}
        self._said = [tensor for tensor in self.fixed if cut.depends[tensor]]  # others are constants
        for item in borders[1:]:
            self._same(item)
        self.rest = onnx.ModelProto()
        self.rest.CopyFrom(model)
        self.rest.ir_version = max(model.ir_version, _CONSTANTS_ALONE)
        graph = self.rest.graph
        del graph.node[:], graph.input[:], graph.output[:], graph.initializer[:], graph.value_info[:]
        graph.node.extend(nodes)
        graph.input.extend(
            helper.make_tensor_value_info(
                tensor, helper.np_dtype_to_tensor_dtype(borders[0][tensor].dtype), borders[0][tensor].shape
            )
            for tensor in self.sources
        )
        graph.input.extend(
            helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, np.shape(data[0][value.name]))
            for value in model.graph.input
            if value.name in self.passed
        )
        graph.output.extend(value for value in model.graph.output if value.name not in inner)
        graph.initializer.extend(item for item in model.graph.initializer if item.name in read)
        graph.initializer.extend(numpy_helper.from_array(array, tensor) for tensor, array in self.fixed.items())
        for value in graph.output:
            value.type.tensor_type.ClearField("shape")

    def _batches(self, model: ModelProto, cut: _Cut, data: Sequence[Feeds]) -> set[str]:
        """Results of transposes that would be inputs of the chip's part with tokens, say, where an input has its batch:
        these are left to it."""
        makers = {output: node for node in cut.nodes for output in node.output}
        turned = [name for name in cut.border if name in makers and makers[name].op_type == "Transpose"]
        if not turned:
            return set()
        border = self._border(_beginning(model, cut), data[0])
        return {name for name in turned if border[name].ndim > 2 and border[name].shape[0] > 1}

    def _border(self, first: ModelProto, feeds: Feeds) -> dict[str, NDArray[Any]]:
        if not first.graph.output:
            return {}
        live = session(first, self._name)
        types: Mapping[str, Any] = {"float": np.float32, "double": np.float64}
        inputs: dict[str, NDArray[Any]] = {}
        for value in live.get_inputs():
            kind = value.type.removeprefix("tensor(").removesuffix(")")
            array = np.asarray(feeds[value.name]).astype(types.get(kind, kind))
            inputs[value.name] = array[0] if array.shape[:1] == (1,) and array.ndim == len(value.shape) + 1 else array
        return run(live, inputs, self._name)

    def _same(self, border: Feeds) -> None:
        for tensor, known in self.fixed.items():
            if border[tensor].shape != known.shape or not np.array_equal(border[tensor], known):
                raise OnnxError(
                    f"{self._name}: tensor {tensor!r} is not the same for all inputs; it is no row of a table (of a "
                    "mask, say), so it is a constant of the network: give inputs of one size and mask"
                )

    def run(self, feeds: Feeds) -> dict[str, NDArray[Any]]:
        """The inputs of the rest for inputs of the model. Raises OnnxError where what must be the same is not."""
        border = self._border(self._first, feeds)
        self._same(border)
        return self._inputs(border, feeds)

    def _inputs(self, border: Feeds, feeds: Feeds) -> dict[str, NDArray[Any]]:
        """Of the rest."""
        arrays = {tensor: border[tensor] for tensor in self.sources} | {name: feeds[name] for name in self.passed}
        return {name: np.asarray(array, np.float32) for name, array in arrays.items()}

    @property
    def note(self) -> str:
        """Which nodes they are, in a sentence for people; empty if there are none."""
        if not self.nodes and not self.fixed:
            return ""
        work = [node for node in self.nodes if node.op_type not in {"Constant", *_SIZES, *_KEEP}]
        first = self._tables or (work if self.sources else [])
        named = [f"{operator_name(node)} {node.output[0]}" for node in first[:_NAMED]]
        more = len(work) - len(named)
        fixed = [tensor for tensor in self._said if self.fixed[tensor].dtype.kind == "f" or not self._tables]
        constant = f"; {', '.join(fixed[:_NAMED])} must be the same for all inputs" if fixed else ""
        if not named:
            return "" if self.sources and not constant else f"Masks are made ready on the host{constant}."
        verb = "runs" if len(work) == 1 else "run"
        return f"{', '.join(named)}{f' and {more} more' if more else ''} at the beginning {verb} on the host{constant}."


def _beginning(model: ModelProto, cut: _Cut) -> ModelProto:
    """The nodes before the chip's as a model."""
    import onnx
    from onnx import helper

    first = onnx.ModelProto()
    first.CopyFrom(model)
    del first.graph.node[:], first.graph.output[:], first.graph.value_info[:]
    first.graph.node.extend(cut.nodes)
    first.graph.output.extend(helper.make_empty_tensor_value_info(tensor) for tensor in cut.border)
    return first


def looks_up(model: ModelProto) -> bool:
    """Whether a model begins on the host: with numbers that it looks up in tables or weighs, or with masks beside real
    ones."""
    cut = _Cut(model)
    return bool(cut.numbers or cut.looked_up or cut.weighed or (cut.real - cut.masks and (cut.masks or cut.wide)))


def real_inputs(model: ModelProto) -> frozenset[str]:
    """Inputs in real numbers."""
    return _Cut(model).real


def examples(model: ModelProto) -> dict[str, NDArray[Any]]:
    """An input for a model that looks up numbers: the first row of each table, normal ones where it is in real
    numbers, nothing that shifts scores, everything else 1. Raises OnnxError where a size is not fixed."""
    cut, random = _Cut(model), np.random.default_rng(0)
    feeds: dict[str, NDArray[Any]] = {}
    for value in model.graph.input:
        if value.name in cut.inputs:
            shape = value.type.tensor_type.shape.dim
            dims = [dim.dim_value or int(axis == 0) for axis, dim in enumerate(shape)]
            if 0 in dims:
                size = shape[dims.index(0)].dim_param or f"{value.name}:{dims.index(0)}"
                raise OnnxError(
                    f"input {value.name!r} has a size that is not fixed; give it one (--bind {size}=32; in a scenario: "
                    "bind)"
                )
            if value.name in cut.masks:
                feeds[value.name] = np.zeros(dims, np.float32)
            elif value.name in cut.real:
                feeds[value.name] = random.normal(0, 1, dims).astype(np.float32)
            else:
                feeds[value.name] = np.full(dims, value.name not in cut.numbers, np.int64)
    return feeds


class _Cut:
    """Which nodes run on the host before the chip's. `numbers`: inputs that are looked up in tables (by `tables`);
    `real`: inputs in real numbers; `masks`: those of them that shift scores; `wide`: inputs in whole numbers that are
    no bytes; `border`: tensors that nodes behind read; `depends`: for each tensor, on the values of which inputs;
    `looked_up`: what depends on rows of tables whose numbers are computed (of a column of an input, with an offset);
    `weighed`: what of the border depends on `wide` inputs and has weights in a layer. `host`: tensors that are the
    host's, and constants; `fixed`: those of them that depend on no input.
    `left`: results of nodes that do not, although they could; `alike`: inputs that may be masks, if not all."""

    def __init__(self, model: ModelProto, left: set[str] | None = None, alike: set[str] | None = None) -> None:
        from onnx import TensorProto, helper

        self.left = set[str]() if left is None else left

        constants = {item.name for item in model.graph.initializer}
        values = [value for value in model.graph.input if value.name not in constants]
        self.inputs = tuple(value.name for value in values)
        types = {value.name: helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type) for value in values}
        whole = {name for name, kind in types.items() if kind.kind in "iub"}
        self.wide = {name for name in whole if types[name].kind == "b" or types[name].itemsize > 1}
        self.real = frozenset(self.inputs) - whole
        self.masks = _masks(model, self.real if alike is None else self.real & alike)
        types_of_tables = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE
        tables = {item.name for item in model.graph.initializer if item.data_type in types_of_tables}
        self.depends: dict[str, frozenset[str]] = {name: frozenset((name,)) for name in self.inputs}
        shaped: dict[str, str] = {name: name for name in whole}  # tensors that are an input's numbers in another shape
        numbered = whole | constants  # what rows of tables may have as numbers
        host = constants | whole | self.masks
        self.numbers: set[str] = set()
        self.looked_up: set[str] = set()
        self.nodes: list[NodeProto] = []
        self.tables: list[NodeProto] = []
        border: dict[str, None] = {}
        for node in model.graph.node:
            read = reads(node)
            depends = frozenset[str]().union(*(self.depends.get(name, frozenset()) for name in read))
            sizes = node.op_type in _SIZES
            for output in node.output:
                self.depends[output] = frozenset() if sizes else depends
            if node.op_type == "Gather" and read[0] in tables and read[1] in shaped:
                self.numbers.add(shaped[read[1]])
                self.tables.append(node)
            elif node.op_type == "OneHot" and depends:  # rows of a table of zeros and ones
                self.looked_up.update(node.output)
            elif node.op_type == "Gather" and read[0] in tables and read[1] in numbered and self.depends.get(read[1]):
                self.looked_up.update(node.output)
                self.tables.append(node)
            if node.op_type in _TABLES and constants.union(tables).issuperset(read):
                tables.update(node.output)
            if node.op_type in _KEEP and read[0] in shaped:
                shaped |= dict.fromkeys(node.output, shaped[read[0]])
            if not read or (node.op_type in _NUMBER and numbered.issuperset(read)):
                numbered.update(node.output)
            begins = node.op_type in _ON_CHIP or not self.left.isdisjoint(node.output)
            here = host | self.real if sizes else host
            if here.issuperset(read) and not begins and (read or node.op_type == "Constant"):
                self.nodes.append(node)
                host.update(node.output)
                if not self.looked_up.isdisjoint(read):
                    self.looked_up.update(node.output)
                continue
            border |= dict.fromkeys(name for name in read if name in host and name not in constants)
        constant = {name for node in self.nodes if node.op_type == "Constant" for name in node.output}
        self.border = tuple(name for name in border if name not in constant)
        self.host = host
        self.fixed = frozenset(name for name in host if not self.depends.get(name))
        self.weighed = self._weighed(model)

    def _weighed(self, model: ModelProto) -> frozenset[str]:
        readers: dict[str, list[NodeProto]] = {}
        for node in model.graph.node:
            for name in reads(node):
                readers.setdefault(name, []).append(node)

        def weighed(first: str) -> bool:
            names = [first]
            for name in names:
                for node in readers.get(name, ()):
                    others = {other for other in reads(node) if other != name}
                    if node.op_type in _WEIGH and not any(self.depends.get(other) for other in others):
                        return True
                    if node.op_type in _PASS and node.output[0] not in names:
                        names.append(node.output[0])
            return False

        return frozenset(name for name in self.border if self.depends[name] & self.wide and weighed(name))


def _masks(model: ModelProto, real: Collection[str]) -> frozenset[str]:
    """Inputs of which nothing else is made than what is added to scores, before a softmax."""
    readers: dict[str, list[NodeProto]] = {}
    for node in model.graph.node:
        for name in reads(node):
            readers.setdefault(name, []).append(node)
    ends = {value.name for value in model.graph.output}

    def shifts(first: str) -> bool:
        open_ = [(first, False)]  # tensors, and whether they have been added to scores
        seen = set(open_)
        while open_:
            name, added = open_.pop()
            if name in ends or not readers.get(name):
                return False
            for node in readers[name]:
                adds = node.op_type == "Add" and name in node.input
                if node.op_type == "Softmax" and added:
                    continue
                if not adds and (added or node.op_type not in _SHIFTS):
                    return False
                following = node.output[0], added or adds
                if following not in seen:
                    seen.add(following)
                    open_.append(following)
        return True

    return frozenset(name for name in real if shifts(name))
