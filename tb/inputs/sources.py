"""What the names on the command line mean: layers, built-in networks, ONNX files; and what a network is fed."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshloom.sched.workload.graph import Graph, Picture
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.onnx.detections import MAX_IOU, MIN_SCORE

from .class_names import check_names, classes, named, read_names
from .detecting import Detecting, is_picture, shown

if TYPE_CHECKING:
    from onnx import ModelProto

    from meshloom.sched.workload.onnx.detections import Detector
    from meshloom.sched.workload.onnx.quantise import Quantised
    from meshloom.sched.workload.onnx.start import Start


@dataclass(frozen=True)
class NetworkSource:
    """A network by built-in name or by the path of an ONNX file, with the files that it is fed, one run for each.

    A float model is quantised with `calibration` (if empty: with the inputs), the ranges of its tensors chosen as
    `ranges` says (`onnx.calibrate.ranges`). `mean`, `std`: how its pictures are
    normalised, (byte - mean) / std, one number for all channels or one for each. `labels`: a file with the name of a
    class on each line. `bind`: sizes that the file leaves open, by name. `tensors`: folder in which outputs are saved
    that are no vectors. `min_score`, `max_iou`: of what a detector finds (`onnx.detections.Detector.detect`).
    `by_channel`: layers may have a multiplier for each channel (`registry.scales_by_channel`).
    """

    name: str
    inputs: tuple[Path, ...] = ()
    calibration: tuple[Path, ...] = ()
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (255.0,)
    labels: Path | None = None
    bind: tuple[tuple[str, int], ...] = ()
    tensors: Path | None = field(default=None, compare=False)
    ranges: str = "best"
    min_score: float = MIN_SCORE
    max_iou: float = MAX_IOU
    by_channel: bool = False

    @property
    def title(self) -> str:
        """Its name in tables."""
        return Path(self.name).stem if self.name.endswith(".onnx") else self.name


@dataclass(frozen=True, eq=False)
class Feed:
    """One run's inputs, where they are from, and the class that they show, if that is known (index, or -1).

    `floats`: what the float model that was quantised makes of them, float [1, C, H, W] by name of the network's output.
    `notes`: what the run is to say about the network's file. `finish`: what the host makes of the network's real
    outputs, [1, C, H, W] by name: those of the model that the chip leaves to it. `snr_db`: how far each layer's result
    is from the float model's over the calibration data, by name (inf: not at all). `detecting`: of a detector.
    """

    name: str
    arrays: dict[str, NDArray[np.int8]]
    label: int = -1
    float_label: int = -1
    floats: dict[str, NDArray[np.float64]] = field(default_factory=dict[str, NDArray[np.float64]])
    notes: tuple[str, ...] = ()
    finish: Callable[[Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]] | None = None
    snr_db: Mapping[str, float] = field(default_factory=dict[str, float])
    detecting: Detecting | None = None


def is_network(name: str) -> bool:
    """Whether a name on the command line means a whole network."""
    from meshloom.sched.workload.zoo import names

    return name.endswith(".onnx") or name in names()


def check_files(source: NetworkSource) -> None:
    """Raises WorkloadError for the first file of a network that is not there or cannot be opened."""
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
    from meshloom.sched.workload.onnx.load import bound, load_model
    from meshloom.sched.workload.onnx.reader import as_it_is

    found: dict[str, Any] = {"model_digest": _sha256(Path(source.name))}
    model = bound(load_model(source.name), {}, dict(source.bind), source.name)
    if as_it_is(model, source.name, source.by_channel) is None:
        files = source.calibration or source.inputs
        found["calibration"] = tuple(f"{path.name} {_sha256(path)}" for path in files)
        found |= {"mean": source.mean, "std": source.std}
    if source.bind:
        found["bind"] = tuple(f"{name}={size}" for name, size in source.bind)
    return found


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def load(source: NetworkSource) -> Graph:
    """The network itself; a float model is quantised first. Raises WorkloadError (OnnxError) when that cannot be."""
    return _network(source)[0]


def ready(source: NetworkSource) -> tuple[Graph, list[Feed]]:
    """The network and what it is fed, compared with its own file.

    An integer model is run in ONNX Runtime as it is, on the very inputs, and must give every byte that the golden model
    gives; of a float model, feeds get what it makes of them (its layers are compared when it is quantised). Raises as
    `load` and `feeds` do, and OnnxError, naming node and tensor, where file and network differ.
    """
    graph, model, found = _network(source)
    made = feeds(source, graph) if found is None or found.start is None else _looked_up(source, found, found.start)
    if model is None:
        return graph, made
    if found is None:
        from meshloom.sched.workload.onnx.original import check_integer

        from .golden.graph import golden_values

        cases = ((feed.arrays, golden_values(graph, feed.arrays)) for feed in made)
        check_integer(model, graph, cases, source.name)
    else:
        made = _with_floats(_for_bytes(source, model), model, found, made)
        graph = named(source.labels, graph, model, found, [(feed.detecting, feed.floats) for feed in made])
    finish = found.finish if found is not None and found.host is not None else None
    snr = {layer.name: layer.snr_db for layer in found.layers} if found is not None else {}
    return graph, [replace(feed, notes=graph.notes, finish=finish, snr_db=snr) for feed in made]


def _network(source: NetworkSource) -> tuple[Graph, ModelProto | None, Quantised | None]:
    """The network; of a file also the model in it, and how its quantisation went if it is a float one."""
    from meshloom.sched.workload import zoo
    from meshloom.sched.workload.onnx.labels import labels_in
    from meshloom.sched.workload.onnx.load import bound, load_model
    from meshloom.sched.workload.onnx.reader import as_it_is

    names = None if source.labels is None else read_names(source.labels)
    model = found = None
    if not source.name.endswith(".onnx"):
        graph = zoo.load(source.name)
    else:
        model = bound(load_model(source.name), {}, dict(source.bind), source.name)
        exact = as_it_is(model, source.name, source.by_channel)
        if exact is None:
            found = _quantised(_for_bytes(source, model), model)
            exact = found.graph
        graph = exact
        own = labels_in(model)
        if not graph.labels and len(own) == classes(graph):
            graph = replace(graph, labels=own)
    if names is not None and source.labels is not None:
        if found is None or classes(graph):  # what others say is known when the float model has said it
            check_names(source.labels, len(names), graph, {classes(graph)})
        graph = replace(graph, labels=names)
    return graph, model, found


def _looked_up(source: NetworkSource, found: Quantised, start: Start) -> list[Feed]:
    """Feeds of a network whose model begins on the host, one for each file. Raises InputError."""
    from .numbers import read_numbers
    from .pictures import quantise_input

    feeds: list[Feed] = []
    for path in source.inputs:
        begun = start.run(read_numbers(path, start.inputs))
        values = {value.name: value for value in found.graph.inputs}
        arrays = {name: quantise_input(found.sources[name].value(array), values[name]) for name, array in begun.items()}
        feeds.append(Feed(path.name, arrays))
    if not feeds:
        raise WorkloadError(f"network {found.graph.name}: give it something to work on with --input")
    return feeds


def described(path: Path, bind: Mapping[str, int], by_channel: bool = False) -> list[str]:
    """What the chip would run of an ONNX file, in lines for people; nothing is run. `by_channel`: as in a
    `NetworkSource`. Raises WorkloadError."""
    from meshloom.sched.workload.onnx.dequantised import in_real_numbers
    from meshloom.sched.workload.onnx.host import fold_to_end
    from meshloom.sched.workload.onnx.load import bound, load_model
    from meshloom.sched.workload.onnx.reader import as_it_is
    from meshloom.sched.workload.onnx.start import Start, examples, looks_up

    check_files(NetworkSource(str(path)))
    model = bound(load_model(path), {}, bind, str(path))
    operators = len(model.graph.node)
    first: tuple[str, ...] = ()
    graph, kind = as_it_is(model, str(path), by_channel), "float"
    if graph is None:
        model, pins, own = in_real_numbers(model, str(path))
        kind = "8 bits, with the chip's scales nearest to its own" if own or pins else kind
    if graph is None and looks_up(model):
        start = Start(model, str(path), [examples(model)])
        model, first = start.rest, (start.note,)
    if graph is None:
        net = fold_to_end(model, str(path), normalised=True)
        sizes = {name: list(source.shape) for name, source in net.inputs.items()}
        kinds, notes = Counter(layer.kind for layer in net.layers), (*first, *net.notes)
        files = "text: .npz or .npy files of numbers" if first else "pictures"
        what = f"{kind}; it is quantised with {files} (--input or --calibrate)"
    else:
        sizes = {value.name: list(value.shape) for value in graph.inputs}
        kinds, notes = Counter(layer.kind for layer in graph.layers), graph.notes
        what = "8 bits; it runs as it is"
    layers = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    inputs = ", ".join(f"{name} {size}" for name, size in sizes.items())
    count = sum(kinds.values())
    return [f"{path}: {operators} nodes can run as {count} layers ({layers}); input {inputs}; {what}", *notes]


def _quantised(source: NetworkSource, model: ModelProto) -> Quantised:
    """A float model as an int8 network. Raises WorkloadError when there is nothing to calibrate it with."""
    from meshloom.sched.workload.onnx.dequantised import in_real_numbers
    from meshloom.sched.workload.onnx.quantise import quantise_with_report
    from meshloom.sched.workload.onnx.start import looks_up

    from .numbers import read_numbers

    files = source.calibration or source.inputs
    if not files:
        raise WorkloadError(
            f"{source.name}: is a float model; give pictures to calibrate it with (--input or --calibrate)"
        )
    name = Path(source.name).stem
    how: dict[str, Any] = {"ranges": source.ranges, "by_channel": source.by_channel}
    if looks_up(in_real_numbers(model, source.name)[0]):
        names = [value.name for value in model.graph.input]
        numbers = [read_numbers(path, names) for path in files]
        return quantise_with_report(model, numbers, name=name, **how)
    arrays = [array for path in files for array in _reals(path)]
    if all(path.suffix == ".npy" for path in files):
        return quantise_with_report(model, arrays, name=name, **how)
    channels = arrays[0].shape[1]
    mean, std = (_per_channel(source, numbers, channels) for numbers in (source.mean, source.std))
    picture = Picture("RGB" if channels == 3 else "L", mean, std)
    data = [_normalised(source, array) for array in arrays]
    return quantise_with_report(model, data, name=name, picture=picture, **how)


def _for_bytes(source: NetworkSource, model: ModelProto) -> NetworkSource:
    """Pictures for an input of 8 bits are its bytes, signed ones those less 128, if nobody says otherwise: the network
    takes the real numbers that they stand for."""
    from meshloom.sched.workload.onnx.dequantised import in_real_numbers

    usual = NetworkSource("")
    if (source.mean, source.std) != (usual.mean, usual.std):
        return source
    own = in_real_numbers(model, source.name)[2]
    if own is None or len(own.inputs) != 1:
        return source
    ((scale, zero),) = own.inputs.values()
    first = 0 if zero.dtype == np.uint8 else 128
    mean = tuple((zero.astype(np.float64).ravel() + first).tolist())
    return replace(source, mean=mean, std=tuple((1 / scale.astype(np.float64).ravel()).tolist()))


def _normalised(source: NetworkSource, array: NDArray[np.float32]) -> NDArray[np.float32]:
    """A picture as a float model takes it."""
    shape = (1, array.shape[1], 1, 1)
    mean, std = (
        np.reshape(_per_channel(source, numbers, array.shape[1]), shape) for numbers in (source.mean, source.std)
    )
    return ((array - mean) / std).astype(np.float32)


def _with_floats(source: NetworkSource, model: ModelProto, found: Quantised, made: list[Feed]) -> list[Feed]:
    """The feeds with what the float model makes of the same files. A float model cannot take int8 files."""
    from meshloom.sched.workload.onnx.detector_forms import recognised
    from meshloom.sched.workload.onnx.labels import labels_in
    from meshloom.sched.workload.onnx.original import Original

    from .numbers import read_numbers

    done: list[Feed] = []
    detector: Detector | None = None
    graph, start = found.graph, found.start
    model = found.reference or model
    original = Original(model, source.name, found.origins.values(), found.sources)
    if start is not None:
        for path, feed in zip(source.inputs, made, strict=True):
            begun = start.run(read_numbers(path, start.inputs))
            values = original.run({name: found.sources[name].value(array) for name, array in begun.items()})
            done.append(replace(feed, **_floats(found, values)))
        return done
    given = [(path, x) for path in source.inputs for x in _reals(path)]
    for (path, x), feed in zip(given, made, strict=True):
        if path.suffix == ".npy":
            if np.load(path, mmap_mode="r", allow_pickle=False).dtype != np.float32:
                done.append(feed)
                continue
            x = x.reshape(graph.inputs[0].shape)
            given_x = x
        else:
            given_x = _normalised(source, x)
        feed = replace(feed, **_floats(found, original.run({original.inputs[0]: given_x})))
        if is_picture(graph.inputs[0]):
            said = found.said(feed.floats)
            if detector is None:
                by = () if found.host is None else found.host.suppressions
                outputs = {name: said[name] for name in original.outputs if name in said}
                detector = recognised(outputs, graph.inputs[0].shape[2:], len(labels_in(model)), by, said)
            if detector is not None:
                thresholds = source.min_score, source.max_iou
                picture, exact = shown(x, as_it_is=path.suffix != ".npy"), detector.detect(said, *thresholds)
                feed = replace(feed, detecting=Detecting(detector, found.said, picture, *thresholds, exact))
        done.append(feed)
    return done


def _floats(found: Quantised, values: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """What a float model made, as fields of a feed."""
    graph = found.graph
    floats = {name: found.ends[name].value(values[origin].astype(np.float64)) for name, origin in found.origins.items()}
    best = int(floats[graph.outputs[0]].argmax()) if classes(graph) > 1 else -1
    return {"floats": floats, "float_label": best}


def _per_channel(source: NetworkSource, numbers: tuple[float, ...], channels: int) -> tuple[float, ...]:
    if len(numbers) not in (1, channels):
        raise WorkloadError(f"{source.name}: --mean and --std take 1 or {channels} numbers, not {len(numbers)}")
    return numbers * channels if len(numbers) == 1 else numbers


def _real(path: Path) -> NDArray[np.float32]:
    """Calibration data from a file: a picture's bytes, or an array, as float32 [1, channels, rows, columns]."""
    if path.suffix == ".npy":
        try:
            array = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise WorkloadError(f"{path}: cannot be read as an .npy file ({error})") from error
        return np.asarray(array, np.float32)
    from .pictures import open_picture

    image = open_picture(path)
    pixels = np.asarray(image.convert("L" if image.mode in ("1", "L", "LA") else "RGB"), np.float32)
    return pixels[None, None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])


def _reals(path: Path) -> list[NDArray[np.float32]]:
    """As `_real`, for each tensor of an .npy file that holds several, [N, channels, rows, columns]."""
    array = _real(path)
    return np.split(array, len(array)) if path.suffix == ".npy" and array.ndim == 4 and len(array) > 1 else [array]


def feeds(source: NetworkSource, graph: Graph) -> list[Feed]:
    """What to run a network with: the files asked for, otherwise the first stored picture, or arrays.

    Raises InputError for a file that does not fit, WorkloadError when there is nothing to feed it.
    """
    from meshloom.sched.workload import zoo

    from .pictures import read_pictures

    known: dict[Path, tuple[int, int]] = {}
    stored: dict[str, NDArray[np.int8]] = {}
    if source.name in zoo.names():
        pictures = zoo.pictures(source.name)
        floats = zoo.float_top1(source.name)
        for index, (path, label) in enumerate(pictures):
            known[path.resolve()] = (-1 if label is None else label), floats[index] if index < len(floats) else -1
        stored = zoo.arrays(source.name)
    files = source.inputs or tuple(list(known)[:1])
    if files:
        found: list[Feed] = []
        for path in files:
            label, float_label = known.get(path.resolve(), (-1, -1))
            arrays = read_pictures(path, graph)
            for index, array in enumerate(arrays):
                name = path.name if len(arrays) == 1 else f"{path.name}[{index}]"
                found.append(Feed(name, {graph.inputs[0].name: array}, label, float_label))
        return found
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
