"""What the names on the command line mean: layers, built-in networks, ONNX files; and what a network is fed."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshloom.sched.workload.graph import Graph, Picture
from meshloom.sched.workload.layer_chain import INPUT, chain, is_chain
from meshloom.sched.workload.layers import WorkloadError

from .arrays import SUFFIXES
from .class_names import best_of, check_names, classes, named, read_names, scores_of
from .feeding import fed_bytes, fed_numbers, fed_real, normalised, per_channel
from .network_source import Feed, NetworkSource
from .onnx_files import OnnxFile, opened
from .samples import samples_of

if TYPE_CHECKING:
    from onnx import ModelProto

    from meshloom.hw.spec.config import ChipConfig
    from meshloom.sched.workload.onnx.floats import FloatNet
    from meshloom.sched.workload.onnx.quantise import Quantised


def is_network(name: str) -> bool:
    """Whether a name on the command line means a whole network."""
    from meshloom.sched.workload.zoo import names

    return name.endswith(".onnx") or name in names() or is_chain(name)


#: What is to be said of a float model that is quantised with an input that is drawn, and of a run on one.
UNFED = (
    "It is quantised with an input that is drawn, since no files are given (--calibrate; in a scenario: calibrate): "
    "that decides results, and of cycles only whether layers have a multiplier for each channel."
)
DRAWN = "The input is drawn with --seed, since no files are given (--input): its results mean nothing."


def check_files(source: NetworkSource) -> None:
    """Raises WorkloadError for the first file of a network that is not there or cannot be opened, or for layers that do
    not follow each other."""
    if is_chain(source.name):
        chain(source.name)
    model = (Path(source.name),) if source.name.endswith(".onnx") else ()
    labels = () if source.labels is None else (source.labels,)
    for path in (*model, *source.inputs, *source.calibration, *labels):
        try:
            if path.exists() and not path.is_file() and not path.is_dir():  # a pipe would have it wait
                raise WorkloadError(f"{path}: cannot be read: it is a device, a pipe or a socket, not a file")
            with path.open("rb"):
                pass
        except OSError as error:
            raise WorkloadError(f"{path}: cannot be read: {error.strerror}") from error


def model_settings(source: NetworkSource) -> dict[str, Any]:
    """What decided the network: fields of `results.Settings`; none for a built-in one."""
    if not source.name.endswith(".onnx"):
        return {}
    from meshloom.sched.workload.onnx.reader import as_it_is

    values: dict[str, Any] = {"model_digest": _sha256(Path(source.name))}
    files = source.calibration or source.inputs
    file = opened(source.name, dict(source.bind), source.seed, files)
    if file.drawn or not files:
        values["seed"] = source.seed
    if as_it_is(file.model, source.name, source.by_channel) is None:
        values["calibration"] = tuple(f"{path.name} {_sha256(path)}" for path in files)
        values |= {"mean": source.mean, "std": source.std}
    if source.bind:
        values["bind"] = tuple(f"{name}={size}" for name, size in source.bind)
    return values


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


#: Called with what is being done, "reading" first.
OnStep = Callable[[str], None]


def load(source: NetworkSource, on_step: OnStep = lambda what: None) -> Graph:
    """The network itself; a float model is quantised first. Raises WorkloadError (OnnxError) when that cannot be."""
    return _network(source, on_step)[0]


def ready(source: NetworkSource, on_step: OnStep = lambda what: None) -> tuple[Graph, list[Feed]]:
    """The network and what it is fed, compared with its own file.

    An integer model is run in ONNX Runtime as it is, on the very inputs, and must give every byte that the golden model
    gives; of a float model, feeds get what it makes of them (its layers are compared when it is quantised). Raises as
    `load` and `feeds` do, and OnnxError, naming node and tensor, where file and network differ.
    """
    graph, file, quantisation = _network(source, on_step)
    if file is None:
        return graph, feeds(source, graph)
    if quantisation is None:
        result = fed_bytes(source, file, graph)
    elif quantisation.start is not None:
        result = fed_numbers(source, file, quantisation, quantisation.start)
    else:
        result = fed_real(_for_bytes(source, file.model), file, quantisation)
    if not (source.inputs or source.calibration or file.drawn):
        graph = replace(graph, notes=(*graph.notes, DRAWN))
    if quantisation is not None:
        graph = named(
            source.labels, graph, file.model, quantisation, [(feed.detecting, feed.floats) for feed in result]
        )
    finish = quantisation.finish if quantisation is not None and quantisation.host is not None else None
    snr = {layer.name: layer.snr_db for layer in quantisation.layers} if quantisation is not None else {}
    result = [replace(feed, notes=graph.notes, finish=finish, snr_db=snr) for feed in result]
    if quantisation is not None and finish is not None:
        scores = scores_of(file.model)
        result = [
            replace(
                feed, scores=scores, float_label=best_of(quantisation.said(feed.floats), scores) if feed.floats else -1
            )
            for feed in result
        ]
    return graph, result


def _network(source: NetworkSource, on_step: OnStep) -> tuple[Graph, OnnxFile | None, Quantised | None]:
    """The network; of a file also that, and how its quantisation went if it is a float one."""
    from meshloom.sched.workload import zoo
    from meshloom.sched.workload.onnx.labels import labels_in
    from meshloom.sched.workload.onnx.reader import as_it_is

    names = None if source.labels is None else read_names(source.labels)
    file = quantisation = None
    if is_chain(source.name):
        graph, _ = chain(source.name)
    elif not source.name.endswith(".onnx"):
        graph = zoo.load(source.name)
    else:
        file = opened(source.name, dict(source.bind), source.seed, source.calibration or source.inputs)
        exact = as_it_is(file.model, source.name, source.by_channel)
        if exact is None:
            quantisation = _quantised(_for_bytes(source, file.model), file, on_step)
            exact = quantisation.graph
        notes = file.notes
        if quantisation is not None and not (source.calibration or source.inputs or file.drawn):
            notes = (*notes, UNFED)
        graph = replace(exact, notes=(*notes, *exact.notes)) if notes else exact
        own = labels_in(file.model)
        if not graph.labels and len(own) == classes(graph):
            graph = replace(graph, labels=own)
    if names is not None and source.labels is not None:
        if quantisation is None or classes(graph):  # what others say is known when the float model has said it
            check_names(source.labels, len(names), graph, {classes(graph)})
        graph = replace(graph, labels=names)
    return graph, file, quantisation


def described(
    path: Path, bind: Mapping[str, int], by_channel: bool = False, chip: ChipConfig | None = None
) -> list[str]:
    """What the chip would run of an ONNX file, in lines for people; nothing is run. `by_channel`: as in a
    `NetworkSource`. Raises WorkloadError; DoesNotFit if cores of `chip` lack units that its layers need, or
    room for the maps that they normalise."""
    from meshloom.sched.mapping.emit.fields import UnitUser, check_map, check_units, units_lacking
    from meshloom.sched.workload.onnx.dequantised import in_real_numbers
    from meshloom.sched.workload.onnx.host import fold_for_units
    from meshloom.sched.workload.onnx.reader import as_it_is
    from meshloom.sched.workload.onnx.runtime import session
    from meshloom.sched.workload.onnx.start import Start, examples, looks_up

    check_files(NetworkSource(str(path)))
    file = opened(str(path), bind)
    model = file.model
    operators = len(model.graph.node)
    first: tuple[str, ...] = ()
    start: Start | None = None
    graph, kind = as_it_is(model, str(path), by_channel), "float"
    if graph is None:
        model, pins, own = in_real_numbers(model, str(path))
        kind = "8 bits, with the chip's scales nearest to its own" if own or pins else kind
    if graph is None and looks_up(model):
        start = Start(model, str(path), [examples(model)])
        model, first = start.rest, tuple(filter(None, [start.note]))
    if graph is None:
        net = fold_for_units(model, str(path), normalised=True, lacks=() if chip is None else units_lacking(chip))
        sizes = {name: list(source.shape) for name, source in net.inputs.items()}
        layers, notes = list[UnitUser](net.layers), (*first, *net.notes)
        maps = {layer.output: net.sizes[layer.output][1:] for layer in net.layers if layer.by is not None}
        files = _data_for(net)
        if start is not None:
            named = f".npz files with arrays {', '.join(start.inputs)}"
            files = named if start.real else "text: .npz or .npy files of numbers"
        what = f"{kind}; it is quantised with {files} (--input or --calibrate)"
    else:
        sizes = {value.name: list(value.shape) for value in graph.inputs}
        layers, notes = list[UnitUser](graph.layers), graph.notes
        values = {layer.output: graph.value(layer.output) for layer in graph.layers if layer.by is not None}
        maps = {name: (value.height, value.width) for name, value in values.items()}
        what = "8 bits; it runs as it is"
    session(file.model, str(path))  # `run` compares with the file itself
    if chip is not None:
        check_units(layers, chip)
        for name, (rows, width) in maps.items():
            check_map(name, rows, width, chip)
    kinds = Counter(layer.kind for layer in layers)
    by_kind = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    inputs = ", ".join(f"{name} {size}" for name, size in sizes.items())
    return [
        f"{path}: {operators} nodes can run as {len(layers)} layers ({by_kind}); input {inputs}; {what}",
        *file.notes,
        *notes,
    ]


def _data_for(net: FloatNet) -> str:
    """What files calibrate a float network."""
    if len(net.inputs) > 1:
        return f".npz files with arrays {', '.join(net.inputs)}"
    ((size, shape),) = [(source.size, source.shape) for source in net.inputs.values()]
    picture = len(shape) == 4 and size[0] in (1, 3) and min(size[1:]) > 1
    return "pictures or .npy files" if picture else f".npy files {list(shape)}"


def _quantised(source: NetworkSource, file: OnnxFile, on_step: OnStep) -> Quantised:
    """A float model as an int8 network; without files, of an input that is drawn. Raises WorkloadError."""
    from meshloom.sched.workload.onnx.dequantised import in_real_numbers
    from meshloom.sched.workload.onnx.quantise import quantise_with_report
    from meshloom.sched.workload.onnx.start import examples, looks_up, real_inputs

    from .numbers import numbers_in

    model, files = file.model, source.calibration or source.inputs
    name = Path(source.name).stem
    how: dict[str, Any] = {"ranges": source.ranges, "by_channel": source.by_channel, "real": not file.drawn}

    def on_way(way: int, ways: int) -> None:
        on_step(f"reading: quantising, {way} of {ways} ways")

    how |= {"progress": on_way, "lacks": source.lacks}
    if looks_up(in_real_numbers(model, source.name)[0]):
        real = real_inputs(model)
        numbers = [each for path in files for each in numbers_in(path, file.inputs, real, file.unused)]
        return quantise_with_report(model, numbers or [examples(model)], name=name, **how)
    samples = file.samples(files)
    shown = [sample.pixels for sample in samples if sample.pixels is not None]
    own = in_real_numbers(model, source.name)[2]
    data = [
        {file.inputs[0].name: normalised(source, sample.pixels)}
        if sample.pixels is not None
        else {name: array if own is None else own.real(name, array) for name, array in sample.arrays.items()}
        for sample in samples
    ]
    if not shown:
        return quantise_with_report(model, data, name=name, **how)
    channels = shown[0].shape[1]
    mean, std = (per_channel(source, numbers, channels) for numbers in (source.mean, source.std))
    picture = Picture("RGB" if channels == 3 else "L", mean, std)
    return quantise_with_report(model, data, name=name, picture=picture, **how)


#: `TensorProto` says so.
_UINT8, _INT8 = 2, 3


def _for_bytes(source: NetworkSource, model: ModelProto) -> NetworkSource:
    """Pictures for an input of 8 bits are its bytes, signed ones those less 128, if nobody says otherwise: the network
    takes the real numbers that they stand for. Raises InputError for what would make other numbers of them."""
    from meshloom.sched.workload.onnx.dequantised import in_real_numbers

    from .pictures import InputError

    usual = NetworkSource("")
    own = in_real_numbers(model, source.name)[2]
    first = model.graph.input[0].type.tensor_type.elem_type
    if own is None and first in (_UINT8, _INT8):  # a file that begins with what makes real numbers of bytes
        if {*source.mean, *usual.mean} == {*usual.mean} and {*source.std, *usual.std} == {*usual.std}:
            return replace(source, mean=(0.0 if first == _UINT8 else 128.0,), std=(1.0,))
        if {*source.std} != {1.0} or any(number % 1 for number in source.mean):
            raise InputError(
                f"{source.name}: its input takes bytes, which with --mean and --std would be no whole numbers; leave "
                "them out"
            )
    if (source.mean, source.std) != (usual.mean, usual.std) or own is None or len(own.inputs) != 1:
        return source
    ((scale, zero),) = own.inputs.values()
    first = 0 if zero.dtype == np.uint8 else 128
    mean = tuple((zero.astype(np.float64).ravel() + first).tolist())
    return replace(source, mean=mean, std=tuple((1 / scale.astype(np.float64).ravel()).tolist()))


def feeds(source: NetworkSource, graph: Graph) -> list[Feed]:
    """What to run a network with: the files asked for, otherwise the first stored picture, or arrays.

    Raises InputError for a file that does not fit, WorkloadError when there is nothing to feed it.
    """
    from meshloom.sched.workload import zoo

    from .pictures import as_input, declared_by, read_picture

    pairs: dict[Path, tuple[int, int]] = {}
    stored: dict[str, NDArray[np.int8]] = {}
    if source.name in zoo.names():
        pictures = zoo.pictures(source.name)
        floats = zoo.float_top1(source.name)
        for index, (path, label) in enumerate(pictures):
            pairs[path.resolve()] = (-1 if label is None else label), floats[index] if index < len(floats) else -1
        stored = zoo.arrays(source.name)
    elif is_chain(source.name):
        stored = {INPUT: chain(source.name)[1]}
    files = source.inputs or tuple(list(pairs)[:1])
    if files:
        result: list[Feed] = []
        for path in files:
            label, float_label = pairs.get(path.resolve(), (-1, -1))
            if path.suffix not in SUFFIXES:
                result.append(Feed(path.name, {graph.inputs[0].name: read_picture(path, graph)}, label, float_label))
                continue
            for sample in samples_of((path,), [declared_by(graph, value) for value in graph.inputs]):
                arrays = {value.name: as_input(sample.arrays[value.name], value) for value in graph.inputs}
                result.append(Feed(sample.name, arrays, label, float_label))
        return result
    if stored:
        return [Feed("stored arrays" if graph.real else "random bytes", stored)]
    raise WorkloadError(f"network {graph.name}: give it something to work on with --input")


def pictures(name: str) -> tuple[Path, ...]:
    """All pictures stored for a built-in network."""
    from meshloom.sched.workload import zoo

    return tuple(path for path, _ in zoo.pictures(name))


def regression_networks() -> Sequence[str]:
    """The networks of `make sim`."""
    return ("resnet8",)
