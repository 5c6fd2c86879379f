"""Detections drawn into their picture, as PNG."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..results.figures import DetectionFigures

#: Colours of classes, one after the other: dark ones, which white letters show on.
_COLOURS = ("#c0392b", "#1f618d", "#1e8449", "#7d3c98", "#a04000", "#117864", "#922b5b", "#34495e")
#: Letters have this share of the picture's longer side, in pixels at least and at most.
_SHARE, _LEAST, _MOST = 1 / 36, 10, 28


def drawn(picture: NDArray[np.uint8], detections: Sequence[DetectionFigures]) -> bytes:
    """The PNG of a picture, bytes [rows, columns, 3], with boxes, labels and scores, the best on top."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.fromarray(picture)
    size = round(min(_MOST, max(_LEAST, max(image.size) * _SHARE)))
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(size)
    for each in reversed(detections):
        left, top, right, bottom = each.box
        colour = _COLOURS[each.index % len(_COLOURS)]
        draw.rectangle((left, top, max(left, right), max(top, bottom)), outline=colour, width=max(2, size // 6))
        text = f"{each.name} {each.score:.2f}"
        _, above, width, height = draw.textbbox((0, 0), text, font=font)
        x = min(max(0.0, left), max(0.0, image.width - width - 4))
        y = top - height - 3 if top >= height + 3 else max(0.0, top)
        draw.rectangle((x, y, x + width + 3, y + height + 2), fill=colour)
        draw.text((x + 2, y + 1 - above / 2), text, fill="white", font=font)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
