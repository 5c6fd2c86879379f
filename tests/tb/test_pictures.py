"""Input files: pictures and arrays become the input tensor as the network says, or a clear error."""

from __future__ import annotations

import struct
import zlib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from meshloom.sched.workload.graph import Graph, Layer, Picture, Value
from meshloom.tb.inputs.arrays import Declared
from meshloom.tb.inputs.pictures import MOST_PIXELS, InputError, open_picture, read_picture
from meshloom.tb.inputs.samples import samples_of

MEAN, STD, STEP = (120.0, 100.5, 90.0), (60.0, 64.0, 50.0), 1 / 32


def net(picture: Picture | None, channels: int = 3, step: float = STEP, inputs: int = 1) -> Graph:
    values = tuple(Value(f"x{index}", channels, 4, 6, step) for index in range(inputs))
    return Graph("net", values, (Layer("max_pool", "y", ("x0",)),), ("y",), picture=picture)


RGB = net(Picture("RGB", MEAN, STD))
GREY = net(Picture("L", (128.0,), (128.0,)), 1, 1 / 128)


@pytest.fixture
def pixels():
    return np.random.default_rng(5).integers(0, 256, (4, 6, 3)).astype(np.uint8)


def test_colours(tmp_path, pixels):
    Image.fromarray(pixels).save(tmp_path / "a.png")
    array = read_picture(tmp_path / "a.png", RGB)
    assert array.dtype == np.int8
    assert array.shape == (1, 3, 4, 6)
    for c, y, x in np.ndindex(3, 4, 6):
        exact = (int(pixels[y, x, c]) - Fraction(MEAN[c])) / Fraction(STD[c]) / Fraction(STEP)
        assert array[0, c, y, x] == max(-128, min(127, round(exact)))  # half to even


def test_all_bytes_of_a_grey_picture(tmp_path):
    ramp = np.arange(24, dtype=np.uint8).reshape(4, 6)
    for first in (0, 100, 232):
        Image.fromarray(ramp + np.uint8(first)).save(tmp_path / "a.png")
        array = read_picture(tmp_path / "a.png", GREY)
        np.testing.assert_array_equal(array[0, 0], (ramp + np.uint8(first)).astype(int) - 128)


def test_modes_are_converted(tmp_path, pixels):
    image = Image.fromarray(pixels)
    image.save(tmp_path / "rgb.png")
    array = read_picture(tmp_path / "rgb.png", RGB)
    opaque = image.copy()
    opaque.putalpha(255)
    opaque.save(tmp_path / "opaque.png")
    np.testing.assert_array_equal(read_picture(tmp_path / "opaque.png", RGB), array)
    image.quantize(24).save(tmp_path / "palette.png")
    np.testing.assert_array_equal(read_picture(tmp_path / "palette.png", RGB), array)
    image.convert("L").save(tmp_path / "grey.png")
    grey = read_picture(tmp_path / "grey.png", GREY)
    np.testing.assert_array_equal(read_picture(tmp_path / "rgb.png", GREY), grey)
    image.convert("1").save(tmp_path / "bits.png")
    assert set(np.unique(read_picture(tmp_path / "bits.png", GREY))) <= {-128, 127}


def test_arrays(tmp_path):
    graph = net(None)
    array = np.random.default_rng(1).integers(-128, 128, (1, 3, 4, 6)).astype(np.int8)
    np.save(tmp_path / "a.npy", array)
    np.testing.assert_array_equal(read_picture(tmp_path / "a.npy", graph), array)
    np.save(tmp_path / "a.npy", array[0])
    np.testing.assert_array_equal(read_picture(tmp_path / "a.npy", graph), array)
    real = np.linspace(-6, 6, 72, dtype=np.float32).reshape(1, 3, 4, 6)
    np.save(tmp_path / "a.npy", real)
    np.testing.assert_array_equal(
        read_picture(tmp_path / "a.npy", graph), np.clip(np.rint(real.astype(float) * 32), -128, 127)
    )


def refused(path, graph, message):
    with pytest.raises(InputError, match=message) as caught:
        read_picture(path, graph)
    assert "\n" not in str(caught.value)


def test_wrong_pictures(tmp_path, pixels):
    image, path = Image.fromarray(pixels), tmp_path / "a.png"
    image.resize((8, 4)).save(path)
    refused(path, RGB, r"a.png: is 8x4 pixels \(width x height\), network net takes 6x4; crop or resize")
    image.putalpha(254)
    image.save(path)
    refused(path, RGB, "has transparent pixels; put it on a background")
    refused(
        path, net(None), r"the input of network net is not a picture; give an .npy file, int8 or float32 \[1, 3, 4, 6\]"
    )
    refused(path, net(RGB.picture, 1), "another number of channels than input x0")
    refused(path, net(RGB.picture, inputs=2), "network net has inputs x0, x1; a picture can be the input of one")
    Image.fromarray(np.zeros((4, 6), np.uint16)).save(path)
    refused(path, GREY, "more than 8 bits for a channel")
    refused(tmp_path / "none.png", RGB, "none.png: cannot be read")
    path.write_bytes(b"not a picture")
    refused(path, RGB, "is not a picture; give PNG, WebP or JPEG, or an .npy file")
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (300, 300, 3)).astype(np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:5000])
    refused(path, RGB, "a.png: is 300x300 pixels")
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (4, 6, 3)).astype(np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:90])
    refused(path, RGB, "a.png: cannot be read")


def test_wrong_arrays(tmp_path):
    path = tmp_path / "a.npy"
    for array in (np.zeros((1, 3, 4, 5), np.int8), np.full((1, 3, 4, 6), 0.1), np.zeros((), np.int8)):
        np.save(path, array)
        refused(path, RGB, r"a.npy: holds .*; input x0 of network net is int8 or float32 \[1, 3, 4, 6\]")
    np.save(path, np.full((1, 3, 4, 6), np.nan, np.float32))
    refused(path, RGB, "numbers of x0 are not a number")
    np.save(path, np.zeros((1, 3, 4, 6), np.float32))
    refused(path, net(None, step=0.0), "input x0 has no step; give an int8 .npy file")
    np.save(path, np.array([{}], object), allow_pickle=True)
    refused(path, RGB, "cannot be read as an .npy file")
    path.write_bytes(path.read_bytes()[:20])
    refused(path, RGB, "cannot be read as an .npy file")
    refused(tmp_path / "none.npy", RGB, "none.npy: cannot be read")


@pytest.mark.parametrize("kind", ["PNG", "GIF", "TIFF", "BMP", "WEBP"])
def test_sizes_are_looked_at_before_pixels(tmp_path, monkeypatch, kind):
    """Pictures of one colour: few bytes, many pixels."""
    side, path = int(MOST_PIXELS**0.5) + 1, tmp_path / "p"
    Image.new("RGB" if kind == "WEBP" else "1", (side, side)).save(path, kind)
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda _: pytest.fail("pixels are decoded"))
    with pytest.raises(
        InputError, match=f"is {side}x{side} pixels .*; a picture may have 5,592,405: crop or resize it"
    ):
        open_picture(path)
    with pytest.raises(
        InputError, match=f"is {side}x{side} pixels .*, network net takes 8x8; crop or resize it to that"
    ):
        open_picture(path, (8, 8), "net")


@pytest.mark.parametrize(
    ("side", "message"), [(10_000, "is 10000x10000 pixels"), (14_000, "is too large; a picture may")]
)
def test_large_headers(tmp_path, recwarn, side, message):
    """As Pillow itself sees them: it warns of the first and refuses the second."""
    chunk = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    parts = [(b"IHDR", chunk), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    body = b"".join(struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in parts)
    (tmp_path / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    with pytest.raises(InputError, match=message):
        open_picture(tmp_path / "p.png")
    assert not recwarn.list


def test_the_first_frame_counts(tmp_path):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "p.gif", save_all=True, append_images=frames[1:])
    assert open_picture(tmp_path / "p.gif", (8, 8), "net").convert("RGB").getpixel((0, 0)) == (255, 0, 0)


def test_an_array_of_several_inputs_is_not_one_picture(tmp_path: Path) -> None:
    np.save(tmp_path / "three.npy", np.zeros((3, 3, 4, 6), np.int8))
    with pytest.raises(InputError, match=r"three\.npy: holds 3 inputs, not one$"):
        read_picture(tmp_path / "three.npy", RGB)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_picture_is_turned_as_its_camera_says(tmp_path: Path, kind: str) -> None:
    """Kept lying on its side, 4 pixels wide: the network takes 6 by 4."""
    upright = np.zeros((4, 6, 3), np.uint8)
    upright[:, :3] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned to the right by a quarter
    Image.fromarray(np.rot90(upright)).save(
        tmp_path / "p", kind, exif=exif, **({"lossless": True} if kind == "WEBP" else {})
    )
    array = read_picture(tmp_path / "p", RGB)
    assert (array[0, :, :, :3] > 0).all()
    assert (array[0, :, :, 3:] < 0).all()
    with pytest.raises(InputError, match=r"is 6x4 pixels \(width x height\), network net takes 4x6"):
        open_picture(tmp_path / "p", (4, 6), "net")


@pytest.mark.parametrize("shape", [(0, 3, 4, 6), (0, 4, 6, 3), (0, 3, 0, 0)])
def test_a_picture_has_the_channels_of_the_input(tmp_path: Path, pixels: np.ndarray, shape: tuple[int, ...]) -> None:
    """Of a float model, which is calibrated with it before the network is known; its size is compared as well."""
    Image.fromarray(pixels[..., 0]).save(tmp_path / "grey.png")
    Image.fromarray(pixels[:, :5]).save(tmp_path / "narrow.png")
    inputs = [Declared("x", np.dtype(np.float32), shape, "net")]
    (sample,) = samples_of([tmp_path / "grey.png"], inputs)
    np.testing.assert_array_equal(sample.pixels, np.repeat(pixels[None, None, ..., 0], 3, axis=1))
    if shape[2]:
        with pytest.raises(InputError, match=r"narrow.png: is 5x4 pixels .*, network net takes 6x4; crop or resize"):
            samples_of([tmp_path / "narrow.png"], inputs)
    Image.fromarray(np.zeros((4, 6), np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(InputError, match="more than 8 bits for a channel"):
        samples_of([tmp_path / "deep.png"], inputs)
