"""Inputs that are drawn or computed, the same everywhere: lines of text, and sounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL import Image

#: Characters that look alike neither to people nor upside down.
_LETTERS = np.array(list("ABCDEFGJKLPRTYabcdefghkrty234567"))


def page(width: int, height: int, size: int, seed: int, *, turned: int = 0) -> NDArray[np.float32]:
    """Lines of dark text on a light ground, RGB bytes [3, height, width], turned by `turned` quarters to the left.

    `size`: of the letters, in pixels; lines are as long as the picture is wide, or a little shorter.
    """
    from PIL import Image, ImageDraw, ImageFont

    random = np.random.default_rng(seed)
    if turned % 2:
        width, height = height, width
    picture = Image.new("RGB", (width, height), _colour(random, 180, 256))
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(size)
    lines = max(1, height // (size * 2))
    for line in range(lines):
        letters = int(random.integers(max(2, width // size // 2), max(3, width * 3 // size // 2)))
        words = "".join(random.choice(_LETTERS, letters).tolist())
        words = " ".join(words[at : at + 7] for at in range(0, letters, 7))
        top = height * line // lines + int(random.integers(0, max(1, height // lines - size)))
        draw.text((int(random.integers(2, size)), top), words, fill=_colour(random, 0, 110), font=font)
    turned_pixels = np.rot90(np.asarray(picture, np.float32), turned)
    return np.ascontiguousarray(turned_pixels.transpose(2, 0, 1))


def letters(ground: Image.Image, size: int, count: int, seed: int) -> NDArray[np.float32]:
    """A picture with single letters beside each other, as in a captcha, RGB bytes [3, rows, columns].

    `size`: of the letters, in pixels; they are light, and dark at their edges.
    """
    from PIL import ImageDraw, ImageFont

    random = np.random.default_rng(seed)
    picture = ground.copy()
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(size)
    for index in range(count):
        left = picture.width * index // count + int(random.integers(0, max(1, picture.width // count - size)))
        top = int(random.integers(0, picture.height - size * 3 // 2))
        text, fill = str(random.choice(_LETTERS)), _colour(random, 180, 256)
        draw.text((left, top), text, fill=fill, font=font, stroke_width=max(1, size // 32), stroke_fill="black")
    return np.ascontiguousarray(np.asarray(picture, np.float32).transpose(2, 0, 1))


def sound(seconds: float, seed: int) -> NDArray[np.float32]:
    """Vowels with gliding pitch between pauses and noise, 16,000 samples a second, of 16 bits, [1, samples]."""
    random = np.random.default_rng(seed)
    count = int(16_000 * seconds)
    time = np.arange(count) / 16_000
    pitch = random.uniform(90, 220) * (1 + 0.2 * np.sin(2 * np.pi * random.uniform(0.5, 2) * time))
    phase = 2 * np.pi * np.cumsum(pitch) / 16_000
    formants = np.repeat(random.uniform((300, 900), (900, 2600), (int(seconds * 4) + 1, 2)), 4000, axis=0)[:count]
    wave = np.zeros(count)
    for harmonic in range(1, 25):
        gain = np.exp(-((harmonic * pitch[:, None] - formants) ** 2) / (2 * 150.0**2)).sum(axis=1) + 0.02
        wave += gain * np.sin(harmonic * phase)
    loud = np.repeat(random.random(int(seconds * 4) + 1) > 0.3, 4000)[:count]
    wave = wave * loud / max(1e-9, np.abs(wave).max()) + random.normal(0, 0.003, count)
    return np.round(wave * 12_000).astype(np.float32)[None]


def _colour(random: np.random.Generator, low: int, high: int) -> tuple[int, int, int]:
    red, green, blue = random.integers(low, high, 3).tolist()
    return red, green, blue
