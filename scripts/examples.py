"""Labelled inputs of the trained networks, as the files that are stored beside them."""

from __future__ import annotations

import hashlib
import io
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sources import PACKAGES

if TYPE_CHECKING:
    from PIL.Image import Image

#: A file's name and its bytes. The last part of the name is the label: `cifar10_01_8.png`.
Files = dict[str, bytes]

KEYWORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
#: Labels of the keyword network: the keywords, then these two.
UNKNOWN = len(KEYWORDS)
VOICES = ("rms", "slt")
#: sha256 of all synthesised recordings, one behind the other.
_SPEECH = "3405465b3ac52fd1c84df12f29b0f91190bfd0e46a748560e9f742a43126539f"
#: Pictures with (0) and without (1) a person: package, member, label.
_PERSONS = (
    ("scikit-image", "skimage/data/astronaut.png", 0),
    ("scikit-image", "skimage/data/camera.png", 0),
    ("matplotlib", "matplotlib/mpl-data/sample_data/grace_hopper.jpg", 0),
    ("scikit-image", "skimage/data/chelsea.png", 1),
    ("scikit-image", "skimage/data/coffee.png", 1),
    ("scikit-image", "skimage/data/rocket.jpg", 1),
    ("scikit-image", "skimage/data/coins.png", 1),
    ("scikit-image", "skimage/data/clock_motion.png", 1),
    ("scikit-image", "skimage/data/brick.png", 1),
    ("scikit-image", "skimage/data/moon.png", 1),
)


def cifar10(folder: Path) -> Files:
    """Twenty pictures of 32x32, unaltered."""
    package = PACKAGES["foolbox"]
    names = sorted(name for name in package.names(folder) if name.startswith("foolbox/data/cifar10_"))
    return {Path(name).name: package.read(folder, name) for name in names}


def imagenet(folder: Path) -> Files:
    """Twenty pictures: shorter side resized to 256 (bicubic), middle 224x224."""
    from PIL import Image

    package, found = PACKAGES["foolbox"], {}
    for name in sorted(name for name in package.names(folder) if name.startswith("foolbox/data/imagenet_")):
        image = Image.open(io.BytesIO(package.read(folder, name))).convert("RGB")
        ratio = 256 / min(image.size)
        image = image.resize((round(image.width * ratio), round(image.height * ratio)), Image.Resampling.BICUBIC)
        left, top = (image.width - 224) // 2, (image.height - 224) // 2
        found[f"{Path(name).stem}.webp"] = _webp(image.crop((left, top, left + 224, top + 224)))
    return found


def persons(folder: Path) -> Files:
    """Ten pictures, resized to 96x96 (Lanczos) whatever their shape, as the network's training pictures were."""
    from PIL import Image

    found = {}
    for package, member, label in _PERSONS:
        image = Image.open(io.BytesIO(PACKAGES[package].read(folder, member))).convert("RGB")
        found[f"{Path(member).stem}_{label}.webp"] = _webp(image.resize((96, 96), Image.Resampling.LANCZOS))
    return found


def keywords(folder: Path) -> Files:
    """Spectrograms as grey pictures, 10 wide, 50 high: the keywords, spoken by two voices, and five read sentences."""
    from PIL import Image

    found, spoken = {}, hashlib.sha256()
    for voice in VOICES:
        for label, word in enumerate(KEYWORDS):
            path = folder / "speech" / f"{word}-{voice}.wav"
            if not path.exists():
                raise SystemExit(f"{path}: is missing; how to make it stands at the top of convert_networks.py")
            content = path.read_bytes()
            spoken.update(content)
            found[f"{word}_{voice}_{label}.png"] = _wave(content)
    if spoken.hexdigest() != _SPEECH:
        raise SystemExit(f"{folder}/speech: sha256 is {spoken.hexdigest()}, expected {_SPEECH}; take flite 2.2-5")
    package = PACKAGES["pocketsphinx-testdata"]
    for name in sorted(name for name in package.names(folder) if "/librivox/" in name and name.endswith(".wav")):
        found[f"sentence_{name[-8:-4]}_{UNKNOWN}.png"] = _wave(package.read(folder, name))
    return {name: _png(Image.fromarray(log_mel(_second(samples)))) for name, samples in found.items()}


def _wave(content: bytes) -> NDArray[np.float64]:
    with wave.open(io.BytesIO(content)) as file:
        if (file.getframerate(), file.getsampwidth(), file.getnchannels()) != (16000, 2, 1):
            raise SystemExit("a recording that is not 16 kHz, 16 bits, mono")
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float64)


def _second(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """16,000 samples: the middle of what is not silent, on faint noise (its level: 8 of 32768)."""
    loud = np.flatnonzero(np.abs(samples) > 200)
    samples = samples[loud[0] : loud[-1] + 1]
    cut = max(0, len(samples) - 16000) // 2
    samples = samples[cut : cut + 16000]
    # raw numbers, because only those are the same in every version of NumPy; twelve of them summed are nearly normal
    raw = np.random.PCG64(0).random_raw(12 * 16000).astype("<u8") >> np.uint64(32)
    made = 8 * (raw.reshape(12, 16000).astype(np.float64).sum(0) / 2**32 - 6)
    start = (16000 - len(samples)) // 2
    made[start : start + len(samples)] += samples
    return made


def log_mel(samples: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Spectrogram [50, 10] of one second at 16 kHz: ten mel bands from 125 to 4000 Hz, windows of 30 ms every 20 ms.

    Logarithm of the amplitude, stretched to 0..255; the 49 windows are 50 rows because the last stands twice. The
    network was trained on such pictures; the makers' tool has the bands and windows as defaults or in its notes, the
    stretching and the last row were found by trying what the network recognises.
    """
    windows = np.lib.stride_tricks.sliding_window_view(samples, 480)[::320] * np.hanning(481)[:-1]
    power = np.abs(np.fft.rfft(windows, 512)) ** 2
    low, high, bins = (1127 * np.log1p(np.array(f) / 700) for f in (125, 4000, np.arange(257) * 16000 / 512))
    edges = np.linspace(low, high, 12)[:, None]
    left, middle, right = edges[:-2], edges[1:-1], edges[2:]
    bands = np.maximum(0, np.minimum((bins - left) / (middle - left), (right - bins) / (right - middle)))
    level = np.log(np.sqrt(power @ bands.T) + 1)
    level = (level - level.min()) / (level.max() - level.min()) * 255
    return np.vstack([level, level[-1:]]).round().astype(np.uint8)


def _png(image: Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def _webp(image: Image) -> bytes:
    """Lossless, and of photographs a quarter smaller than the smallest PNG."""
    file = io.BytesIO()
    image.save(file, "WEBP", lossless=True, quality=100, method=6)
    return file.getvalue()


#: Folder of pictures to what makes them.
PICTURES: dict[str, Callable[[Path], Files]] = {
    "cifar10": cifar10,
    "imagenet": imagenet,
    "persons": persons,
    "keywords": keywords,
}


def imagenet_labels(folder: Path) -> Iterator[str]:
    """The names of the 1000 classes, first word of each."""
    package = PACKAGES["timm"]
    lemmas = package.read(folder, "timm/data/_info/imagenet_synset_to_lemma.txt").decode()
    names = dict(line.split("\t") for line in lemmas.splitlines())
    synsets = package.read(folder, "timm/data/_info/imagenet_synsets.txt").decode().split()
    return (names[synset].partition(",")[0] for synset in synsets)
