"""The forward pass of a core's images: convolutions, ReLU in the requantiser, max pools in the vector unit.

Every map goes to DRAM as well, since the gradients need it; the sums of the last layer are read back as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from meshloom.hw.spec.isa import Addend, VectorOp

from ...ir.bodies import GemmFields, VecFields
from .core import Core, Place, check
from .geometry import Geometry

#: Words along K that one GEMM takes of a fully connected layer: columns of its kernel.
WIDEST = 15


def forward(core: Core, layers: list[Geometry], places: dict[str, Place]) -> None:
    """Emits the pass. `places`: in DRAM, of `x`, and for each layer by name of its weights `w:`, its map `y:`, the
    pooled map `p:` if it has a pool, and of the last layer's `sums`. Raises DoesNotFit."""
    words = layers[0].x_words
    x = core.a.take(core.images * words)
    for image in range(core.images):
        tile, at = places["x"]
        core.move(f"x {image}", (tile, at + image * words), core.in_a(x + image * words), words)
    for index, layer in enumerate(layers):
        w = core.b.take(layer.w_words)
        core.move(f"{layer.layer.name} w", places[f"w:{layer.layer.name}"], core.in_b(w), layer.w_words)
        if index == len(layers) - 1:
            _scores(core, layer, x, w, places["sums"])
            core.a.free(x)
        else:
            after = core.a.take(core.images * layer.pooled_words)
            _layer(core, layer, (x, w, after), places)
            core.a.free(x)
            x = after
        core.b.free(w)


def _layer(core: Core, layer: Geometry, at: tuple[int, int, int], places: dict[str, Place]) -> None:
    """A layer with the pool behind it. `at`: X in A, W in B, the result in A."""
    name, pool = layer.layer.name, layer.layer.pool
    x, w, after = at
    if layer.flat:
        _hidden(core, layer, at, places[f"y:{name}"])
        return
    for first, end in core.share(layer.y_words, core.out):
        out = core.out.once((end - first) * layer.y_words)
        for image in range(first, end):
            fields: GemmFields = {
                "a_base": x + image * layer.x_words, "b_base": w, "dest_base": out + (image - first) * layer.y_words,
            }  # fmt: skip
            core.product(f"{name} y {image}", _window(layer) | fields, f"y:{name}")
        words, source = (end - first) * layer.y_words, core.in_out(out)
        core.move(f"{name} y out", source, _behind(places[f"y:{name}"], first * layer.y_words), words)
        if pool > 1:
            vec = core.vec.once(words // pool**2)
            pooled: VecFields = {
                "x_out": 1, "x_base": out, "x_plane": words, "in_w": layer.out_w, "out_w": layer.out_w // pool,
                "pixels": words // pool**2, "kernel_h": pool, "kernel_w": pool, "stride_h": pool, "stride_w": pool,
                "dest_base": vec,
            }  # fmt: skip
            core.vector(f"{name} pool", VectorOp.MAX, pooled)
            words, source = words // pool**2, core.in_vec(vec)
            core.move(f"{name} p out", source, _behind(places[f"p:{name}"], first * layer.pooled_words), words)
        core.move(f"{name} next", source, core.in_a(after + first * layer.pooled_words), words)


def _behind(place: Place, words: int) -> Place:
    return place[0], place[1] + words


def _window(layer: Geometry) -> GemmFields:
    """The fields of a convolution of one image."""
    s = layer.layer.shape
    return {
        "a_plane": layer.x_pixels, "in_w": layer.in_w, "k_blocks": layer.kb, "kernel_h": layer.kernel_h,
        "kernel_w": layer.kernel_w, "stride_h": s.stride_h, "stride_w": s.stride_w, "pad_top": layer.pad_top,
        "pad_left": layer.pad_left, "out_w": layer.out_w, "pixels": layer.y_pixels, "n_blocks": layer.nb,
        "relu": int(s.relu),
    }  # fmt: skip


def _hidden(core: Core, layer: Geometry, at: tuple[int, int, int], y: Place) -> None:
    """A fully connected layer before the last: its blocks, [block][image] in OUT, become [image][block]."""
    name, count, nb = layer.layer.name, core.images, layer.nb
    x, w, after = at
    for block in range(nb):
        sums, out = core.acc.once(count), core.out.once(count)
        for fields, last in _parts(layer, count, x, w, block, sums):
            own: GemmFields = {"dest_base": out, "relu": int(layer.layer.shape.relu)} if last else {"dest_base": sums}
            core.product(f"{name} y n{block}", fields | own, f"y:{name}" if last else "")
        for target in (core.in_a(after + block), _behind(y, block)):
            core.move(f"{name} y n{block}", core.in_out(out), target, count, target_runs=(1, nb))


def _scores(core: Core, layer: Geometry, x: int, w: int, place: Place) -> None:
    """The last layer: its sums, int32 [block][image], to DRAM."""
    name, count = layer.layer.name, core.images
    for block in range(layer.nb):
        sums = core.acc.once(count)
        for fields, _ in _parts(layer, count, x, w, block, sums):
            core.product(f"{name} y n{block}", fields | {"dest_base": sums})
        core.move(f"{name} sums", core.in_acc(sums), _behind(place, 4 * block * count), 4 * count)


def _parts(
    layer: Geometry, images: int, x: int, w: int, block: int, sums: int
) -> Iterator[tuple[GemmFields, bool]]:  # fmt: skip
    """The GEMMs of a block of a fully connected layer, whose pixels are images: K lies along the columns of the kernel,
    `WIDEST` words at a time. Yields fields, and whether it is the last."""
    check(layer.layer.name, "words of an example", layer.kb, "in_w", 1023)
    for k in range(0, layer.kb, WIDEST):
        wide = min(WIDEST, layer.kb - k)
        yield {
            "a_base": x + k, "a_plane": images * layer.kb, "in_w": layer.kb, "kernel_w": wide, "out_w": 1,
            "pixels": images, "b_base": w + (block * layer.kb + k) * layer.cols,
            "addend": Addend.PARTIAL if k else Addend.NONE, "addend_base": sums if k else 0,
        }, k + wide == layer.kb  # fmt: skip
