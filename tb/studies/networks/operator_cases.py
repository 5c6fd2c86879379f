"""ONNX's own backend node tests of the operators that float files may have: which there are, and what comes of each."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import load
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.onnx.pointwise import JUMPS, TRUTHS, UNARY

if TYPE_CHECKING:
    from onnx import ModelProto

    from meshloom.sched.workload.onnx.quantise import Quantised

CHIP = "tiny"
#: A result whose signal-to-noise ratio against ONNX Runtime is less is wrong: no rounding to 8 bits costs so much.
LEAST_DB = 20.0
#: Newest opset and IR version of the cases: ONNX Runtime lags behind the package that has them.
OPSET, IR_VERSION = 23, 10
#: What each operator becomes, and where that ends.
HOW: Mapping[str, tuple[str, str]] = {
    "Add": ("add; constants folded, or a depthwise layer; of one tensor a table", "two tensors"),
    "Attention": ("as MatMul and Softmax", "no cache"),
    "AveragePool": (
        "average pools; with borders of fewer pixels one for each number, pasted; three axes: a conv behind",
        "no dilations",
    ),
    "BatchNormalization": ("folded, or a depthwise layer", "for inference"),
    "ConvInteger": ("as Conv", "weights of 8 bits"),
    "DequantizeLinear": ("nothing", "one scale, or one for each channel of an input"),
    "DynamicQuantizeLinear": ("nothing: what it quantises stays", "where MatMulInteger or ConvInteger read it"),
    "MatMulInteger": ("as MatMul", ""),
    "QLinearConv": ("as Conv, with the file's scales or the nearest around 0", "constant scales"),
    "QLinearMatMul": ("as MatMul, with the file's scales or the nearest around 0", "constant scales"),
    "QuantizeLinear": ("nothing: the step of what it quantises", "one scale, or one for each channel of an input"),
    "Cast": ("nothing", "to floating point"),
    "CastLike": ("nothing", "to floating point"),
    "CenterCropPad": ("as Pad and Slice", "a constant shape"),
    "Clip": ("in the layer before, or a max pool; other bounds a table", ""),
    "Col2Im": ("as ConvTranspose, with filters of one number each", "constant sizes"),
    "Compress": ("as Gather", "a constant condition"),
    "Concat": ("channels: planes of one tensor; rows, columns: a paste; else a change of layout before", ""),
    "Constant": ("nothing", ""),
    "Conv": (
        "conv or depthwise; large kernels and strides as parts and phases in the channels, as is the third axis",
        "one to three axes",
    ),
    "ConvTranspose": ("one conv for each phase, pasted", "one or two axes"),
    "CumSum": ("as Conv of rows, columns or channels, else as MatMul with a triangle of ones", "a constant axis"),
    "DepthToSpace": ("convs that select channels, pasted", ""),
    "Div": ("as Mul, by a table's reciprocal", "two tensors"),
    "Dropout": ("nothing", "for inference"),
    "Einsum": ("rearrangements around a MatMul or a Mul", "one or two tensors"),
    "Expand": ("slices, pasted", "rows and columns"),
    "Flatten": ("nothing", ""),
    "Gather": ("channels: a conv; rows, columns: slices, pasted", "constant indices"),
    "GatherElements": ("as Gather", "constant indices"),
    "GatherND": ("as Gather", "constant indices"),
    "Gemm": ("a conv whose kernel is the map, or of 1x1 over several vectors", "one constant factor"),
    "GlobalAveragePool": ("average pools", "31x31 pixels, or sides with small divisors"),
    "GlobalLpPool": ("as ReduceL1 or ReduceL2", "p of 1 or 2"),
    "GlobalMaxPool": ("max pools", "31x31 pixels, or sides with small divisors"),
    "GroupNormalization": ("as InstanceNormalization, gains and offsets a depthwise layer", "epsilon is left out"),
    "Identity": ("nothing", ""),
    "InstanceNormalization": ("as LayerNormalization, without transposes", "epsilon is left out"),
    "LayerNormalization": (
        "less the mean, over the root mean square; a transpose before and behind; gains and offsets a depthwise layer",
        "the first result; epsilon is left out",
    ),
    "LRN": ("a table, a conv over the channels, a table, and a mul", ""),
    "LogSoftmax": ("less the maximum, less a table of the sum of exponentials", "at the end left out, or the host's"),
    "LpNormalization": ("as ReduceL1 or ReduceL2, and Div", ""),
    "LpPool": ("average pools between two tables", "p of 1 or 2; no dilations, no ceil_mode"),
    "MatMul": ("as Gemm, also with a matrix for each head; of two tensors a product, heads as groups of channels", ""),
    "MaxPool": (
        "max pools; beyond 31 one behind the other; three axes: Max of several maps",
        "one to three axes; no indices",
    ),
    "Mean": ("as Sum, times a constant", ""),
    "MeanVarianceNormalization": ("as LayerNormalization", "epsilon is left out"),
    "Mul": ("mul; constants folded, or a depthwise layer; of one tensor a table", "two tensors"),
    "Neg": ("folded, or a depthwise layer", ""),
    "PRelu": ("a table; with a slope for each channel a depthwise layer and an add behind it", "constant slopes"),
    "Pad": (
        "zeros: in the layer behind, or a layer of one tap, filters of zeros, or a paste; copies: slices, pasted",
        "no other constants",
    ),
    "ReduceL1": ("as ReduceSum, behind a table", ""),
    "ReduceL2": ("as ReduceSum, between two tables", ""),
    "ReduceLogSum": ("as ReduceSum, and a table", ""),
    "ReduceLogSumExp": ("as ReduceMax, and a table of the sum of exponentials of what is left", ""),
    "ReduceMax": ("a max pool; over channels behind a transpose", ""),
    "ReduceMean": ("an average pool; over channels a conv, or behind a transpose", ""),
    "ReduceMin": ("as ReduceMax, between two tables", ""),
    "ReduceProd": ("parts multiplied one by one", "64 along an axis"),
    "ReduceSum": ("an average pool with a larger scale; over channels a conv, or behind a transpose", ""),
    "ReduceSumSquare": ("as ReduceSum, behind a table", ""),
    "ReverseSequence": ("as Gather", "equal, constant lengths"),
    "RotaryEmbedding": ("parts of channels, multiplied and joined", "not interleaved"),
    "RMSNormalization": (
        "as LayerNormalization, without the mean: gains a depthwise layer or in the weights behind",
        "epsilon is left out",
    ),
    "SimplifiedLayerNormalization": ("as RMSNormalization", "ONNX Runtime's name"),
    "Relu": ("in the layer before, or a max pool", ""),
    "Reshape": ("nothing, where who reads it can tell channels, rows and columns", "whole words of channels"),
    "Resize": ("nearest: slices, pasted; linear, cubic: depthwise layers, pasted", "no numbers from outside"),
    "Scatter": ("as ScatterElements, its older name", "constant indices"),
    "ScatterElements": ("parts of both tensors, joined; sums a product with ones and zeros", "constant indices"),
    "ScatterND": ("as ScatterElements", "constant indices"),
    "Shape": ("nothing: a constant", ""),
    "Slice": ("a slice; channels: a conv that selects them", "rows and columns move as wholes"),
    "STFT": ("a conv with waves", "one real signal"),
    "Softmax": (
        "less the maximum, a table of exponentials, over the sum; a transpose before if its axis are channels",
        "at the end left out, or the host's",
    ),
    "SpaceToDepth": ("slices, one behind the other in the channels", ""),
    "Split": ("as Slice; nothing where a conv reads the part", ""),
    "Squeeze": ("nothing", ""),
    "Sub": ("as Add, of a table's negative", "two tensors"),
    "Sum": ("as Add, one after the other", ""),
    "Tile": ("slices, pasted", "rows and columns"),
    "Transpose": (
        "nothing, where channels stay whole; channels and pixels: a transpose; pixels: one, a conv, and one back",
        "1,024 pixels one by one",
    ),
    "Unsqueeze": ("nothing", ""),
    "Where": (
        "of one tensor by its values: a table; by a constant: products with ones and zeros; before a softmax it takes "
        "scores out",
        "a constant condition, or one of the same tensor",
    ),
    "Upsample": ("as Resize", ""),
    **dict.fromkeys(sorted(name for name in UNARY if "." not in name), ("a table", "")),
    **dict.fromkeys(sorted(JUMPS), ("a table, where the host cannot do it", "of one tensor")),
    **dict.fromkeys(sorted(TRUTHS), ("part of the table of a Where or a Cast", "where only these read it")),
    **dict.fromkeys(("Max", "Min"), ("a table; of several tensors a paste and a max pool", "")),
    "Pow": ("a table", "with a constant"),
}


#: Operators whose operands are all inputs of the network, if they are of floating point.
OF_TENSORS = {"Add", "Concat", "Div", "MatMul", "Max", "Mean", "Min", "Mul", "Sub", "Sum"}
#: Inputs of others that are inputs of the network, besides the first.
FACTORS: Mapping[str, tuple[str, ...]] = {"MatMulInteger": ("B",), "QLinearMatMul": ("b",)}


@dataclass(frozen=True, eq=False)
class NodeTest:
    """A node test: its operator, the model with all inputs but the first (or of `OF_TENSORS` none) as constants and its
    first result alone, and what the others are given."""

    name: str
    operator: str
    model: ModelProto
    inputs: Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Outcome:
    """What came of a case: `refused` why, `wrong` how, both empty where it passed. `snr_db`: of the worst result, None
    where there is no difference."""

    refused: str = ""
    wrong: str = ""
    cycles: int = 0
    snr_db: float | None = None

    @property
    def nothing(self) -> bool:
        """Whether no layer is left of it."""
        return self.refused.endswith("nothing is left to compute; give a model with layers")


@cache
def cases() -> tuple[NodeTest, ...]:
    """All node tests whose nodes are operators of `HOW` alone, by name."""
    import onnx
    from onnx import numpy_helper
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package casts numbers beyond their types, on purpose
        collected: list[Any] = collect_testcases(None)
    tests: dict[str, NodeTest] = {}
    for test in collected:
        operators = [node.op_type for node in test.model.graph.node]
        data: tuple[Any, ...] = tuple(test.data_sets[0][0])
        arrays: list[NDArray[Any]] = [np.asarray(array) for array in data if hasattr(array, "dtype")]
        if (
            not operators
            or not set(operators) <= HOW.keys()
            or len(arrays) != len(test.model.graph.input)
            or not arrays
        ):
            continue
        model = onnx.ModelProto()
        model.CopyFrom(test.model)
        model.opset_import[0].version = min(OPSET, model.opset_import[0].version)
        model.ir_version = min(IR_VERSION, model.ir_version)
        if operators[0] == "LayerNormalization":
            del model.graph.output[1:]
        floats = all(array.dtype.kind == "f" for array in arrays)
        inputs = {model.graph.input[0].name: arrays[0]}
        for value, array in list(zip(model.graph.input, arrays, strict=True))[1:]:
            if (operators[0] in OF_TENSORS and floats) or value.name in FACTORS.get(operators[0], ()):
                inputs[value.name] = array
                continue
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
            model.graph.input.remove(value)
        tests[test.name] = NodeTest(test.name, operators[0], model, inputs)
    return tuple(tests[name] for name in sorted(tests))


def outcome(case: NodeTest) -> Outcome:
    """Quantises, schedules and runs one case, and compares every byte, every cycle, and the result in real numbers."""
    from meshloom.sched.workload.onnx.dequantised import in_real_numbers
    from meshloom.sched.workload.onnx.load import bound, in_standard_form
    from meshloom.sched.workload.onnx.quantise import quantise_with_report

    try:
        model = bound(in_standard_form(case.model, case.name), {}, {}, case.name)
        # a batch is one picture after the other; another first axis stays whole behind a batch of 1
        ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in model.graph.input}
        inputs = {
            name: x[None] if ranks[name] > x.ndim else x[:1] if x.ndim > 2 else x for name, x in case.inputs.items()
        }
        own = in_real_numbers(model, case.name)[2]
        if own is not None:
            inputs = {name: own.real(name, x) for name, x in inputs.items()}
        report = quantise_with_report(model, [inputs], name=case.name)
        return _run(case, model, report, inputs)
    except (WorkloadError, DoesNotFit) as error:
        return Outcome(refused=str(error).splitlines()[-1].strip())


def _run(case: NodeTest, model: ModelProto, report: Quantised, inputs: Mapping[str, NDArray[Any]]) -> Outcome:
    from meshloom.sched.workload.onnx.original import Original

    from ...build.builder import build
    from ...devices.simulated import SimulatedDevice
    from ...inputs.pictures import quantise_input
    from ...inputs.sources import Feed
    from ...runs import network

    chip = load(CHIP)
    values = {name: source.value(inputs[name].astype(np.float32)) for name, source in report.sources.items()}
    feed = Feed(case.name, {each.name: quantise_input(values[each.name], each) for each in report.graph.inputs})
    prepared = network.prepare(report.graph, chip)
    (run,) = SimulatedDevice(build(chip, "verilator")).run([network.job(prepared, feed.arrays, chip, 4, 20_000)])
    row = network.row(prepared, case.name, feed, run, chip)
    if row.reason or row.rtl_cycles != row.model_cycles:
        return Outcome(wrong=row.reason or f"{row.rtl_cycles} cycles, the model says {row.model_cycles}")
    original = Original(report.reference or model, case.name, report.origins.values(), report.sources)
    exact = original.run(values)
    rounded = original.run({each.name: feed.arrays[each.name] * each.step for each in report.graph.inputs})
    least = min(_decibels(exact[origin], rounded[origin]) for origin in report.origins.values())
    if least < LEAST_DB:
        return Outcome(refused=f"{case.name}: 8 bits cannot say its inputs: rounding them alone costs so much")
    computed = network.results(prepared, run)
    worst = min(
        _decibels(exact[origin], report.ends[tensor].array(computed[tensor]) * report.graph.value(tensor).step)
        for tensor, origin in report.origins.items()
    )
    wrong = "" if worst >= LEAST_DB else f"signal-to-noise ratio {worst:.1f} dB"
    return Outcome(wrong=wrong, cycles=row.rtl_cycles, snr_db=worst if np.isfinite(worst) else None)


def _decibels(exact: NDArray[Any], result: NDArray[Any]) -> float:
    exact = exact.astype(np.float64)
    if exact.shape != result.shape:
        return -np.inf
    signal, noise = float((exact**2).sum()), float(((result - exact) ** 2).sum())
    return float(10 * np.log10(signal / noise)) if signal and noise else np.inf if not noise else -np.inf
