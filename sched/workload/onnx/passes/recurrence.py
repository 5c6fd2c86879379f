"""LSTM, GRU and RNN as the nodes of each of their steps: as many as the input is long.

After the operators' definitions in ONNX. What gates take of the input is one product for all steps. Each gate has
weights and a tensor of its own, so that its step fits it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..constant_nodes import computable, computed
from ..errors import Refused
from ..instead import Instead
from ..load import CheckedModel
from ..nodes import Node, attributes

#: Gates of each operator, in the order of its weights, and its functions unless it says others.
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_FUNCTIONS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
#: Functions of gates that have no numbers of their own.
_PLAIN = {"Relu", "Sigmoid", "Softplus", "Softsign", "Tanh"}
#: What is more than the gates: it stays as it is, and is refused.
_OTHERS = ("clip", "input_forget", "layout")
#: Steps that are written down.
_MOST_STEPS = 512


def unroll_recurrences(model: CheckedModel) -> CheckedModel:
    """The model with the steps of such operators where weights are constant, the input's length is known and no
    element of the batch is shorter; it computes the same tensors."""
    nodes: list[Node] = []
    if any(node.op_type in _GATES for node in model.nodes):
        model = _with_constants(model)
    for node in model.nodes:
        steps = _steps(model, node) if node.op_type in _GATES and node.domain in ("", "ai.onnx") else None
        nodes += [node] if steps is None else steps
    return model.with_nodes(nodes)


def _with_constants(model: CheckedModel) -> CheckedModel:
    """The model with what is computed of constants alone for such operators (gates in another order) as constants."""
    from onnx import helper, numpy_helper

    makers = {name: node for node in model.nodes for name in node.output if name}
    known, folded = dict(model.constants), dict[str, NDArray[Any]]()

    def fold(name: str) -> bool:
        if name in known or not name:
            return True
        node = makers.get(name)
        if node is None or not node.input or not computable(node) or not all(map(fold, node.input)):
            return False
        try:
            results = computed(node, known, model.opset)
        except Refused:
            return False
        known.update(results)
        folded.update(results)
        return True

    for node in model.nodes:
        if node.op_type in _GATES:
            for name in node.input[1:]:
                fold(name)
    if not folded:
        return model
    nodes: list[Node] = []
    for node in model.nodes:
        some = [name for name in node.output if name in folded]
        nodes += [
            helper.make_node("Constant", [], [name], value=numpy_helper.from_array(folded[name], name)) for name in some
        ] or [node]
    return model.with_nodes(nodes)


def _steps(model: CheckedModel, node: Node) -> list[Node] | None:
    """The nodes that take the place of one."""
    options = attributes(node)
    names = [*node.input, *[""] * 8][:8]
    x, w, r, bias, lengths, _, _, peepholes = names
    shape = model.shapes.get(x)
    if not shape or len(shape) != 3 or not 0 < shape[0] <= _MOST_STEPS or peepholes:
        return None
    if any(name not in model.constants for name in (w, r)) or (bias and bias not in model.constants):
        return None
    if lengths and np.any(model.constants.get(lengths, 0) != shape[0]):
        return None
    functions = options.get("activations") or [*_FUNCTIONS[node.op_type]] * len(model.constants[w])
    functions = [each.decode() if isinstance(each, bytes) else each for each in functions]
    if any(options.get(name) for name in _OTHERS) or not _PLAIN.issuperset(functions):
        return None
    return _Unrolled(model, node, shape[:2], functions).written()


class _Unrolled(Instead):
    """Writes the nodes of one operator of so many steps of so many rows (`sizes`)."""

    def __init__(self, model: CheckedModel, node: Node, sizes: Sequence[int], functions: Sequence[str]) -> None:
        super().__init__(node)
        self.options = attributes(node)
        self.steps, self.rows = sizes
        self.names = [*node.input, *[""] * 8][:8]
        self.w, self.r = (model.constants[name].astype(np.float32) for name in self.names[1:3])
        gates, directions = _GATES[node.op_type], len(self.w)
        self.hidden = self.r.shape[2]
        zeros = np.zeros((directions, 2 * gates * self.hidden), np.float32)
        self.bias = model.constants[self.names[3]].astype(np.float32) if self.names[3] else zeros
        each = len(functions) // directions
        self.functions = [functions[at * each : (at + 1) * each] for at in range(directions)]

    def written(self) -> list[Node]:
        """All nodes."""
        direction = self.options.get("direction", "forward")
        direction = direction.decode() if isinstance(direction, bytes) else direction
        ends = [self._direction(at, direction == "reverse" or at == 1) for at in range(len(self.w))]
        outputs = [*self.node.output, "", "", ""][:3]
        if outputs[0]:
            both = self._join([end[0] for end in ends], 2)
            shape = self.integers(self.steps, self.rows, len(ends), self.hidden)
            self.op("Transpose", self.op("Reshape", both, shape), to=outputs[0], perm=[0, 2, 1, 3])
        for at in (1, 2):
            if outputs[at]:
                self.op("Identity", self._join([end[at] for end in ends], 0), to=outputs[at])
        return self.nodes

    def _direction(self, at: int, reverse: bool) -> tuple[str, str, str]:
        """All results of one direction, [steps, rows, hidden], and the last state and cell."""
        gates, hidden = _GATES[self.node.op_type], self.hidden
        biases = self.bias[at].reshape(2, gates, hidden)
        whole = [  # what is added to a reset state comes before the reset
            biases[0, gate] + (0 if self._resets_sums() and gate == 2 else biases[1, gate]) for gate in range(gates)
        ]
        inputs = [
            self._linear(self.names[0], self.w[at][gate * hidden : (gate + 1) * hidden], whole[gate])
            for gate in range(gates)
        ]
        state, cell = (self._initial(self.names[index], at) for index in (5, 6))
        states: list[str] = []
        for step in range(self.steps)[:: -1 if reverse else 1]:
            now = [self.op("Gather", each, self.integers(step), axis=0) for each in inputs]
            state, cell = getattr(self, f"_{self.node.op_type.lower()}")(at, now, state, cell, biases)
            states.append(state)
        return self._join(states[:: -1 if reverse else 1], 0), state, cell

    def _lstm(self, at: int, now: Sequence[str], state: str, cell: str, _: NDArray[Any]) -> tuple[str, str]:
        f, g, h = self.functions[at]
        sums = [self._with_state(at, gate, each, state) for gate, each in enumerate(now)]
        into, out = (self.op(f, sums[gate]) for gate in (0, 1))
        new = self.op("Mul", into, self.op(g, sums[3]))
        if cell:
            new = self.op("Add", self.op("Mul", self.op(f, sums[2]), cell), new)
        return self.op("Mul", out, self.op(h, new)), new

    def _gru(self, at: int, now: Sequence[str], state: str, cell: str, biases: NDArray[Any]) -> tuple[str, str]:
        f, g = self.functions[at]
        update = self.op(f, self._with_state(at, 0, now[0], state))
        reset = self.op(f, self._with_state(at, 1, now[1], state))
        part = self._weights(at, 2)
        if self._resets_sums():
            sums = self._linear(state, part, biases[1, 2]) if state else self._real(biases[1, 2])
            new = self.op(g, self.op("Add", now[2], self.op("Mul", reset, sums)))
        elif state:
            new = self.op(g, self.op("Add", now[2], self._linear(self.op("Mul", reset, state), part)))
        else:
            new = self.op(g, now[2])
        rest = self.op("Mul", self.op("Sub", self._real(np.ones(1)), update), new)
        return (self.op("Add", rest, self.op("Mul", update, state)) if state else rest), cell

    def _rnn(self, at: int, now: Sequence[str], state: str, cell: str, _: NDArray[Any]) -> tuple[str, str]:
        return self.op(self.functions[at][0], self._with_state(at, 0, now[0], state)), cell

    def _resets_sums(self) -> bool:
        return self.node.op_type == "GRU" and bool(self.options.get("linear_before_reset"))

    def _weights(self, at: int, gate: int) -> NDArray[Any]:
        return self.r[at][gate * self.hidden : (gate + 1) * self.hidden]

    def _with_state(self, at: int, gate: int, now: str, state: str) -> str:
        return self.op("Add", now, self._linear(state, self._weights(at, gate))) if state else now

    def _initial(self, name: str, at: int) -> str:
        """A direction's part of a state that is given, [1, rows, hidden]; nothing if none is."""
        return self.op("Gather", name, self.integers(at), axis=0) if name else ""

    def _linear(self, x: str, w: NDArray[Any], bias: NDArray[Any] | None = None) -> str:
        sums = self.op("MatMul", x, self._real(w.T))
        return sums if bias is None or not bias.any() else self.op("Add", sums, self._real(bias))

    def _real(self, numbers: NDArray[Any]) -> str:
        return self.array(numbers, np.float32)

    def _join(self, names: Sequence[str], axis: int) -> str:
        return names[0] if len(names) == 1 else self.op("Concat", *names, axis=axis)
