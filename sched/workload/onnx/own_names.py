"""Names of a file's tensors that none of ours can be: what is put between is named after a tensor of the file, behind
`//` (nodes) or behind `/`, in small letters and digits (layers)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from .errors import OnnxError
from .metadata import KEY
from .subgraphs import bodies, rename

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, ValueInfoProto

#: Where a name may end that another one continues: before `//`, or before `/` and a word as layers have.
_END = re.compile(r"(?=//|/[a-z0-9_]+(?:/|$))")


def give_own_names(model: ModelProto, name: str) -> None:
    """Gives tensors inside of a model other names where one continues another's as ours do. `name` is for messages.
    Raises OnnxError where an input or an output continues an input's. Networks that Meshloom has written keep their
    names."""
    if any(item.key == KEY for item in model.metadata_props):
        return
    ends = {value.name for value in (*model.graph.input, *model.graph.output)}
    own = {each: each for each in _names(model.graph)}
    used = set(own)
    fixed = {value.name for value in model.graph.input}
    while changes := dict(_continued(own, ends, fixed, name)):
        for changed, new in changes.items():
            while new in used:
                new += "_"
            used.add(new)
            own[changed] = new
    if own := {old: new for old, new in own.items() if new != old}:
        _rename(model.graph, own)
    _name_at_the_end(model, ends, used)


def _name_at_the_end(model: ModelProto, ends: Collection[str], used: set[str]) -> None:
    """Outputs that continue the name of an input or another output, or that what is put between would continue as
    another output does, have their name from an Identity, and another one inside of the model."""
    from onnx import helper

    made = {name for node in model.graph.node for name in node.output}
    names: dict[str, str] = {}
    for value in model.graph.output:
        continues = any(value.name[: end.start()] in ends for end in _END.finditer(value.name))
        if value.name in made and (continues or _is_continued(value.name, ends)):
            new = value.name.replace("/", "_")
            while new in used or _is_continued(new, used):
                new += "_"
            used.add(new)
            names[value.name] = new
    if names:
        for node in model.graph.node:
            rename(node, names)
        model.graph.node.extend(helper.make_node("Identity", [new], [old], old) for old, new in names.items())


def _is_continued(name: str, others: Iterable[str]) -> bool:
    """Whether one of other names is one that something put in between might have."""
    return any(each.startswith(f"{name}//") for each in others)


def _continued(
    own: dict[str, str], ends: Collection[str], fixed: Collection[str], name: str
) -> Iterator[tuple[str, str]]:
    """Tensors, and names that they might have instead. `own`: what they are called by now; `ends`: those that keep
    their names, `fixed`: also inside of the model. Raises OnnxError."""
    originals = {new: old for old, new in own.items()}
    for old, long in sorted(own.items()):
        for end in _END.finditer(long):
            short, at = long[: end.start()], end.start()
            if short not in originals:
                continue
            if old not in ends:
                yield old, f"{short}_{long[at + 1 :]}"
            elif originals[short] not in ends:
                yield originals[short], f"{short}_"
            elif long.startswith("//", at) and originals[short] in fixed:
                raise OnnxError(
                    f"{name}: what stands between would be named {long!r}, as an output is; name it otherwise"
                )


def _values(graph: GraphProto) -> Iterator[ValueInfoProto]:
    return (value for values in (graph.input, graph.output, graph.value_info) for value in values)


def _names(graph: GraphProto) -> Iterable[str]:
    """All names of tensors, of bodies too."""
    yield from (item.name for item in (*_values(graph), *graph.initializer))
    yield from (item.values.name for item in graph.sparse_initializer)
    for node in graph.node:
        yield from filter(None, node.output)
        for body in bodies(node):
            yield from _names(body)


def _rename(graph: GraphProto, names: dict[str, str]) -> None:
    """Every tensor of these names, of bodies too, gets another one."""
    for item in (*_values(graph), *graph.initializer, *(item.values for item in graph.sparse_initializer)):
        item.name = names.get(item.name, item.name)
    for item in graph.quantization_annotation:
        item.tensor_name = names.get(item.tensor_name, item.tensor_name)
        for pair in item.quant_parameter_tensor_names:
            pair.value = names.get(pair.value, pair.value)
    for node in graph.node:
        for fields in (node.input, node.output):
            for index, name in enumerate(fields):
                fields[index] = names.get(name, name)
        for body in bodies(node):
            _rename(body, names)
