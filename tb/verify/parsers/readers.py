"""All that reads what users bring, each as a function of a file, with good files to begin with."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from PIL import Image

from meshloom.hw.board.frames import Decoder, Frame, Kind, encode
from meshloom.hw.spec.config import load as load_chip
from meshloom.sched.lowering.programs import check_program
from meshloom.sched.program.disasm import listing
from meshloom.sched.workload import scenario, texts, topology
from meshloom.sched.workload.catalog import find
from meshloom.sched.workload.language import checkpoint, pretrained
from meshloom.sched.workload.language.onnx_file import DecoderFile
from meshloom.sched.workload.onnx.host import fold_to_end
from meshloom.sched.workload.onnx.load import is_float_model, load_model
from meshloom.sched.workload.onnx.reader import read as read_network

from ...build.builder import ROOT
from ...exchange import traffic
from ...exchange.chips import CHIP_IMPORTERS
from ...exchange.noc_traffic import TrafficSettings
from ...exchange.registry import CHIP_EXPORTERS, IMPORTERS
from ...inputs.class_names import read_names
from ...inputs.numbers import read_numbers
from ...inputs.pictures import open_picture
from ...results import energy, exits, saved, schema
from ...results import sweep as sweeps
from ...runs.kinds import grouped
from ...runs.sweeps import grid

#: Good files, in a checkout.
EXAMPLES, KEPT = ROOT / "examples", ROOT / "tests" / "data" / "v0.1"
#: Characters of a message.
LONGEST = 20_000


class UnclearError(Exception):
    """A reader refuses a file in no words, or in too many."""


@dataclass(frozen=True)
class Parser:
    """`read`: reads a file and all that it says, or raises an error of ours. `suffix`: of the file's name, which is `f`
    otherwise. `seeds`: good files. `beside`: files that lie in the same folder, by name."""

    suffix: str
    read: Callable[[Path], object]
    seeds: Callable[[], Iterable[bytes]]
    beside: Mapping[str, Path] = field(default_factory=dict[str, Path])

    def file(self, folder: Path) -> Path:
        """Where the file lies in a folder, beside which all others are now."""
        for name, source in self.beside.items():
            (folder / name).write_bytes(source.read_bytes())
        return folder / f"f.{self.suffix}"


def problem(parser: Parser, path: Path) -> str:
    """The message of the error that reading gives; empty if there is none. Raises UnclearError for one in no words or
    in too many, and whatever else a reader raises that is no error of ours."""
    try:
        parser.read(path)
    except Exception as error:
        refusal = exits.expected(error)
        if refusal is None:
            raise
        if not 0 < len(refusal[0].strip()) <= LONGEST:
            raise UnclearError(f"{len(refusal[0]):,} characters: {refusal[0][:200]!r}") from error
        return refusal[0]
    return ""


def _from(*patterns: str, within: Path = EXAMPLES) -> Callable[[], Iterable[bytes]]:
    return lambda: (path.read_bytes() for pattern in patterns for path in sorted(within.glob(pattern)))


def _bytes(*some: bytes) -> Callable[[], Iterable[bytes]]:
    return lambda: some


def _check(path: Path) -> None:
    chip, program, schedule = saved.read(path, str(KEPT / "chip.toml"))
    list(listing(program, chip))
    check_program(program, chip, schedule)


def _network(path: Path) -> None:
    model = load_model(path)
    if is_float_model(model):
        fold_to_end(model, path.stem, normalised=False)
    else:
        read_network(path)


def _frames(path: Path) -> None:
    """Whatever comes over the line, a frame behind it is read."""
    decoder, last = Decoder(), Frame(Kind.HELLO, 1, 2, b"end")
    frames = decoder.feed(path.read_bytes() + encode(last))
    if not frames or frames[-1] != last:
        raise AssertionError(f"the frame behind is not read: {frames[-1:]}")


def _networks() -> Iterable[bytes]:
    """A convolution, a matrix product with what is beside it, and a recurrence: float, small."""
    value = partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT)

    def weights(name: str, *shape: int) -> TensorProto:
        array = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32)
        return helper.make_tensor(name, TensorProto.FLOAT, shape, array)

    def model(nodes: list[onnx.NodeProto], given: list[int], result: list[int], *tensors: TensorProto) -> bytes:
        graph = helper.make_graph(nodes, "g", [value("x", shape=given)], [value("y", shape=result)], tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()

    node = helper.make_node
    conv = node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    yield model(
        [conv, node("Relu", ["c"], ["r"]), node("GlobalAveragePool", ["r"], ["y"])],
        [1, 3, 6, 6], [1, 4, 1, 1], weights("w", 4, 3, 3, 3), weights("b", 4),
    )  # fmt: skip
    yield model(
        [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["a"]), node("Softmax", ["a"], ["y"], axis=-1)],
        [1, 5, 4], [1, 5, 6], weights("w", 4, 6), weights("b", 6),
    )  # fmt: skip
    yield model(
        [node("LSTM", ["x", "w", "r"], ["h", "y"], hidden_size=2)],
        [1, 1, 4], [1, 1, 2], weights("w", 1, 8, 4), weights("r", 1, 8, 2),
    )  # fmt: skip


def _pictures() -> Iterable[bytes]:
    for form, mode in (("png", "RGB"), ("png", "P"), ("jpeg", "L"), ("webp", "RGB"), ("gif", "L"), ("bmp", "RGB")):
        out = io.BytesIO()
        Image.new(mode, (8, 6), 3).save(out, form)
        yield out.getvalue()


def _arrays(archive: bool) -> Iterable[bytes]:
    out = io.BytesIO()
    if archive:
        np.savez_compressed(out, a=np.arange(6), b=np.arange(6))
    else:
        np.save(out, np.arange(6))
    yield out.getvalue()


def _lines() -> Iterable[bytes]:
    yield encode(Frame(Kind.HELLO, 1, 1)) + encode(Frame(Kind.READ, 1, 2, b"\x7e\x7d\0\xff" * 3))


def _mapping(tool: str, layer: str = "") -> Callable[[Path], object]:
    shape = find(layer)[0].shape if layer else None
    return lambda path: IMPORTERS.get(tool).read(path, shape)


def _hardware(tool: str) -> Callable[[Path], object]:
    return lambda path: CHIP_IMPORTERS.get(tool).read(path)


def _groups(path: Path) -> object:
    return grouped.read("stream", path, "conv:8x8x8-8,k3,p1+conv:8x8x8-8,k3,p1")


def _exported(tool: str) -> Callable[[], Iterable[bytes]]:
    """The hardware file of a built-in chip, as the exporter writes it for the tool."""

    def seeds() -> Iterable[bytes]:
        files = CHIP_EXPORTERS.get(tool).texts(load_chip("tiny"), energy.load())
        yield next(text for name, text in files.items() if "mapping" not in name).encode()

    return seeds


def _decoder(name: str) -> Parser:
    """A file of the folder of a language model, the others of which are good."""
    folder = ROOT / "tests" / "sched" / "workload" / "decoders"
    places = {
        checkpoint.CONFIG: folder / "llama" / checkpoint.CONFIG,
        checkpoint.WEIGHTS: folder / "llama" / checkpoint.WEIGHTS,
        checkpoint.TOKENIZER: folder / checkpoint.TOKENIZER,
    }

    def read(path: Path) -> object:
        path.with_name(name).write_bytes(path.read_bytes())
        return pretrained.of_folder(path.parent, "what light is the sun?", "the sun")

    beside = {each: place for each, place in places.items() if each != name}
    return Parser(Path(name).suffix[1:], read, lambda: [places[name].read_bytes()], beside)


_GGUFS = [ROOT / "tests" / "sched" / "workload" / "ggufs" / f"{name}.gguf" for name in ("llama_pieces", "gpt2")]
SWEEP = b'name = "s"\nchips = ["tiny"]\nworkloads = ["gemm:{m}x8x8"]\nwhere = ["macs > 1"]\n[parameters]\nm = [4, 8]\n'
TOPOLOGY = b"Layer name, H, W, FH, FW, Channels, Num Filter, Strides,\nc1,8,8,3,3,2,4,1,\ng,1,4,1,4,8,8,1,\n"
_TRAFFIC = TrafficSettings(side=(4, 4), cycles=100)

#: By name: what is said of each in `docs/security.md`.
PARSERS = {
    "chip": Parser("toml", load_chip, _from("boards/*.toml")),
    "sweep": Parser("toml", lambda path: grid.points(sweeps.read(path), path.parent), _bytes(SWEEP)),
    "scenario": Parser("toml", scenario.load, _from("scenarios/*.toml")),
    "texts": Parser(
        "toml", texts.load, _from("texts/*.toml"), {"traced.csv": EXAMPLES / "texts" / "traced.csv"}
    ),
    "energy": Parser("toml", energy.load, lambda: [energy.DEFAULT.read_bytes()]),
    "results": Parser("json", schema.load, _from("results.json", within=KEPT)),
    "schedule": Parser("json", _check, _from("schedule.json", within=KEPT)),
    "image": Parser("bin", _check, _from("program*.bin", within=KEPT)),
    "topology": Parser("csv", topology.layers, _bytes(TOPOLOGY)),
    "labels": Parser("txt", read_names, _bytes(b"cat\ndog\n")),
    "npy": Parser("npy", lambda path: read_numbers(path, ["a", "b"]), partial(_arrays, False)),
    "npz": Parser("npz", lambda path: read_numbers(path, ["a", "b"]), partial(_arrays, True)),
    "picture": Parser("png", open_picture, _pictures),
    "network": Parser("onnx", _network, _networks),
    "frames": Parser("bin", _frames, _lines),
    "decoder": _decoder(checkpoint.CONFIG),
    "decoder weights": _decoder(checkpoint.WEIGHTS),
    "tokenizer": _decoder(checkpoint.TOKENIZER),
    "gguf": Parser(
        "gguf",
        lambda path: pretrained.load(str(path)),
        lambda: [path.read_bytes() for path in _GGUFS],
    ),
    "onnx weights": Parser(
        "onnx",
        lambda path: DecoderFile(path).tensors,
        _from("*.onnx", within=ROOT / "tests" / "sched" / "workload" / "onnx_decoders"),
    ),
    "zigzag": Parser("json", _mapping("zigzag"), _from("mappings/zigzag/tiny/*.json")),
    "timeloop": Parser("yaml", _mapping("timeloop", "conv:8x8x8-16,k3,p1"), _from("mappings/timeloop/tiny/conv*.yaml")),
    "stream": Parser(
        "yaml", _mapping("stream", "resnet8/conv4_1_2"), _from("mappings/stream/quad8/*conv4_1_2/mapping.yaml")
    ),
    "stream groups": Parser("yaml", _groups, _from("mappings/stream/fused/tiny/*/mapping.yaml")),
    "maestro": Parser(
        "m",
        _mapping("maestro"),
        _from("mappings/maestro/tiny/*.m"),
        {"f.hw": EXAMPLES / "mappings" / "maestro" / "tiny" / "conv_8x8x8-16_k3_p1.hw"},
    ),
    "accelforge": Parser("yaml", _mapping("accelforge"), _from("mappings/accelforge/*/*.yaml")),
    "zigzag chip": Parser("yaml", _hardware("zigzag"), _exported("zigzag")),
    "timeloop chip": Parser("yaml", _hardware("timeloop"), _exported("timeloop")),
    "stream chip": Parser("yaml", _hardware("stream"), _exported("stream")),
    "scalesim chip": Parser("cfg", _hardware("scalesim"), _exported("scalesim")),
    "accelforge chip": Parser("yaml", _hardware("accelforge"), _exported("accelforge")),
    "traffic": Parser("json", lambda path: traffic.read(path, _TRAFFIC), _from("traffic/*.json")),
    "traffic text": Parser("txt", lambda path: traffic.read(path, _TRAFFIC), _from("traffic/*.txt")),
}  # fmt: skip
