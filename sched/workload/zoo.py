"""The built-in networks by name, and what to feed them.

Trained ones are integer ONNX models in `data/`, made by scripts/convert_networks.py (data/SOURCES.md says from what);
those of which only the shapes matter are built by `networks` with random weights.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import near_or_all

from . import networks
from .graph import Graph
from .layers import ConvShape, WorkloadError, random_data

DATA = Path(__file__).parent / "data"
#: Trained networks: the folder in `data/` with their labelled pictures, or with their input arrays.
TRAINED = {
    "resnet8": "cifar10",
    "ds_cnn": "keywords",
    "vww": "persons",
    "squeezenet": "imagenet",
    "efficientnet_lite0": "imagenet",
    "minilm_block": "minilm_block",
}


def names() -> tuple[str, ...]:
    """All built-in networks, trained ones first."""
    return *TRAINED, *networks.GRAPHS


@lru_cache(maxsize=4)
def load(name: str) -> Graph:
    """The network of that name.

    Raises WorkloadError, with the nearest names, when there is none, and OnnxError (a WorkloadError) when its file is
    missing or damaged.
    """
    _require(name)
    if name in networks.GRAPHS:
        return networks.graph(name)
    from .onnx.reader import read  # onnx is slow to import

    return read(file(name))


def file(name: str) -> Path:
    """The integer ONNX model of a trained network. Raises WorkloadError as `load` does, and for a random network."""
    _require(name)
    if name not in TRAINED:
        raise WorkloadError(f"network {name!r} has random weights and no file; there are {', '.join(TRAINED)}")
    return DATA / f"{name}.onnx"


def pictures(name: str) -> list[tuple[Path, int | None]]:
    """Pictures of exactly the network's size, each with its label (index of its class), in the order of their names.

    Random networks of 224x224 get the ImageNet pictures without labels. Empty if nothing stored fits (minilm_block,
    yolov2, ncf, both transformers): see `arrays`. The pictures of ds_cnn are spectrograms. Raises WorkloadError as
    `load` does.
    """
    _require(name)
    if name in TRAINED:
        return [(path, int(path.stem.rpartition("_")[2])) for path in _pictures_in(TRAINED[name])]
    if networks.size(name) != 224:
        return []
    return [(path, None) for path in _pictures_in(TRAINED["squeezenet"])]


def _pictures_in(folder: str) -> list[Path]:
    return sorted(path for path in (DATA / folder).iterdir() if path.suffix in (".png", ".webp"))


def arrays(name: str) -> dict[str, NDArray[np.int8]]:
    """Inputs of a network for which there is no picture, int8 by name: real activations, else random bytes.

    Empty if there are pictures. Raises WorkloadError as `load` does.
    """
    if pictures(name):
        return {}
    if name in TRAINED:
        return {path.stem: _array(path) for path in sorted((DATA / TRAINED[name]).glob("*.npy"))}
    return {
        source: random_data(ConvShape(f"{name}/{source}", 1, *shape, 1)).x
        for source, shape in networks.inputs(name).items()
    }


def float_top1(name: str) -> tuple[int, ...]:
    """What the float network says about each of `pictures`: index of the class with the highest score.

    Empty for networks that are random or take no pictures. Raises WorkloadError as `load` does.
    """
    return _top1(name, "float")


def int8_top1(name: str) -> tuple[int, ...]:
    """The same of the integer network, as ONNX Runtime computed it when the network was converted."""
    return _top1(name, "int8")


def top1_note(kind: str, name: str, classes: list[int]) -> str:
    """The note of a network that says which classes it gives to its stored pictures; `kind`: float or int8."""
    return f"{_top1_head(kind, name)}{' '.join(map(str, classes))}"


def _top1_head(kind: str, name: str) -> str:
    return f"{kind} top-1 of data/{TRAINED[name]}: "


def _top1(name: str, kind: str) -> tuple[int, ...]:
    _require(name)
    if name not in TRAINED:
        return ()
    head = _top1_head(kind, name)
    figures = [note.removeprefix(head) for note in load(name).notes if note.startswith(head)]
    return tuple(int(number) for note in figures for number in note.split())


def _array(path: Path) -> NDArray[np.int8]:
    try:
        return np.asarray(np.load(path, allow_pickle=False), np.int8)
    except (OSError, ValueError, EOFError) as error:
        raise WorkloadError(f"{path}: cannot be read ({error}); restore it") from error


def _require(name: str) -> None:
    if name not in names():
        raise WorkloadError(f"unknown network {name!r}: {near_or_all(name, names())}")
