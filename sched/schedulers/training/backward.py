"""Both gradients of every layer, from the last to the first, for a core's images.

dX of a convolution is the convolution of dY with the flipped weights. dW is a convolution too: its input is X with the
images as channels, its kernel dY with the images as channels, its result has a pixel for each tap. So lanes become
images in X and dY, and output channels in W: the vector unit transposes. Nothing is unfolded.

    W  --> A --> TRANSPOSE --> B: [k block][n block][flipped tap][input channel], a lane for each output channel
    dY --> A: as it lies       --> TRANSPOSE --> B: [n block][pixel][output channel], a lane for each image
    X  --> A                   --> TRANSPOSE --> A: [input channel][pixel], a lane for each image

A fully connected layer has one pixel and one tap, and images are pixels of dX. ReLU's gradient is taken on the pooled
map, where it is the same and smaller: MASK. A max pool hands its gradient to every position that is equal to the
maximum: EQUAL, then MASK, each word of the pooled map serving its whole window.
"""

from __future__ import annotations

from collections.abc import Iterator

from meshloom.hw.spec.isa import Addend, Pair, VectorOp

from ...ir.bodies import GemmFields, VecFields
from ...mapping.tiling.tiles import Range
from .core import Core, Place, check
from .forward import WIDEST
from .geometry import Geometry
from .orders import Nest, Order, TileProduct, alone, nests, steps
from .pair import Tiling


class Backward:
    """Emits the gradients of one layer. `at`: X, W as they lie, dY, and (unless it is the first layer) room for dX, in
    A; `places`: in DRAM. Raises DoesNotFit."""

    def __init__(
        self, core: Core, layer: Geometry, at: tuple[int, int, int, int], places: dict[str, Place], first: bool
    ) -> None:
        self.core, self.layer, self.places, self.first = core, layer, places, first
        self.x, self.w, self.dy, self.dx = at
        self.name = layer.layer.name
        #: Sizes in the units of orders: images, blocks.
        self.m, self.k, self.n = core.images, layer.kb, layer.nb
        self._places: dict[tuple[str, Range, Range], int] = {}
        self._sums: dict[tuple[str, Range, Range], int] = {}

    def emit(self, order: Order, only: str = "") -> None:
        """All steps of both products in an order, or those of `only` one of them."""
        listed = [step for step in self._steps(order) if only in ("", step.of)]
        left: dict[tuple[str, Range, Range], int] = {}
        for step in listed:
            left[step.result] = left.get(step.result, 0) + 1
        begun: set[tuple[str, Range, Range]] = set()
        for step in listed:
            left[step.result] -= 1
            edges = step.result not in begun, not left[step.result]
            begun.add(step.result)
            if step.of == "dx":
                self._dx(step, *edges)
            else:
                self._dw(step, *edges)
        self._free()

    def products(self, k: Range, m: Range) -> Iterator[tuple[GemmFields, int]]:
        """The products for some channels of X (blocks, if fully connected) of all of dW and a range of images: fields
        but for addend and destination, and the first row of the result, of all of these channels."""
        layer, cols = self.layer, self.core.chip.cols
        x, dy = self._columns((0, layer.kb), m), self._kernels((0, layer.nb), m)
        fields: GemmFields = {"b_base": dy, "n_blocks": layer.nb}
        if layer.flat:
            words = (k[1] - k[0]) * cols
            own: GemmFields = {
                "a_base": x + k[0] * cols,
                "a_plane": words,
                "in_w": words,
                "out_w": words,
                "pixels": words,
            }
            yield fields | own, 0
            return
        for channel in range(*k):
            row = (channel - k[0]) * layer.nb * layer.taps
            yield fields | self._dw_channel(x + channel * layer.x_pixels), row

    def let_go(self) -> None:
        """Gives back X, dY and what was made of them."""
        self._free()
        self.core.a.free(self.x, self.dy)

    def _free(self) -> None:
        for (name, _, _), at in self._places.items():
            (self.core.a if name == "x" else self.core.b).free(at)
        self._places.clear()

    def _steps(self, order: Order) -> list[TileProduct]:
        lanes = self.core.chip.lanes
        if order is Order.SEQUENTIAL or self.first:
            nest = Nest(Tiling(lanes, min(self.k, WIDEST), min(self.n, WIDEST)))
            both = [] if self.first else alone(self, "dx", nest)
            return both + alone(self, "dw", nest)
        return steps(self, order, nests(order, Tiling(lanes, 1, 1))[0])

    # -- dX -----------------------------------------------------------------------------------------------------------

    def _dx(self, step: TileProduct, first: bool, last: bool) -> None:
        core, layer = self.core, self.layer
        blocks, rows = step.k[1] - step.k[0], (step.k[1] - step.k[0]) * layer.x_pixels
        weights = self._weights(step.k, step.n)
        key, count = step.result, step.m[1] - step.m[0]
        if first and not last:
            self._sums[key] = core.acc.take(count * rows)
        sums = self._sums.get(key, 0)
        addend = Addend.NONE if first else Addend.PARTIAL
        many = count if layer.flat else max(1, core.out.words // 2 // rows)
        for begin in range(*step.m, many) if not layer.flat else [step.m[0]]:
            end = min(step.m[1], begin + many)
            out = core.out.once((end - begin) * rows) if last else 0
            for image in [begin] if layer.flat else range(begin, end):
                at = sums + (image - step.m[0]) * rows
                fields: GemmFields = {
                    "b_base": weights, "n_blocks": blocks, "addend": addend, "addend_base": 0 if first else at,
                    "dest_base": out + (image - begin) * rows if last else at,
                }  # fmt: skip
                window = self._dx_images(step, end - begin) if layer.flat else self._dx_image(step, image)
                core.product(f"{self.name} dx {image} k{step.k[0]} n{step.n[0]}", window | fields,
                          f"dx:{self.name}" if last else "")  # fmt: skip
            if last:
                self._keep(step, begin, end, out)
        if last and key in self._sums:
            core.acc.free(self._sums.pop(key))

    def _dx_image(self, step: TileProduct, image: int) -> GemmFields:
        """The fields of the convolution of dY of an image with flipped weights."""
        layer = self.layer
        return {
            "a_base": self.dy + image * layer.y_words + step.n[0] * layer.y_pixels, "a_plane": layer.y_pixels,
            "in_w": layer.out_w, "k_blocks": step.n[1] - step.n[0], "kernel_h": layer.kernel_h,
            "kernel_w": layer.kernel_w, "pad_top": layer.kernel_h - 1 - layer.pad_top,
            "pad_left": layer.kernel_w - 1 - layer.pad_left, "out_w": layer.in_w, "pixels": layer.x_pixels,
        }  # fmt: skip

    def _dx_images(self, step: TileProduct, images: int) -> GemmFields:
        """The same of a fully connected layer: all images at once, blocks of dY along the columns of the kernel."""
        return {
            "a_base": self.dy + step.m[0] * self.n + step.n[0], "a_plane": images * self.n, "in_w": self.n,
            "kernel_w": step.n[1] - step.n[0], "out_w": 1, "pixels": images,
        }  # fmt: skip

    def _keep(self, step: TileProduct, begin: int, end: int, out: int) -> None:
        """A part of dX from OUT to A, where the layer before takes it, and to DRAM: [image][block][pixel]."""
        core, layer, count = self.core, self.layer, end - begin
        tile, home = self.places[f"dx:{self.name}"]
        label = f"{self.name} dx k{step.k[0]}"
        for target in ((tile, home), core.in_a(self.dx)):
            if layer.flat:  # [block][image]
                for block in range(*step.k):
                    source = core.in_out(out + (block - step.k[0]) * count)
                    place = target[0], target[1] + begin * layer.kb + block
                    core.move(label, source, place, count, target_runs=(1, layer.kb))
                continue
            run = (step.k[1] - step.k[0]) * layer.x_pixels
            place = target[0], target[1] + begin * layer.x_words + step.k[0] * layer.x_pixels
            core.move(label, core.in_out(out), place, count * run, target_runs=(run, layer.x_words))

    def _weights(self, k: Range, n: Range) -> int:
        """Wᵀ of a tile in B: [k block][n block][flipped tap][input channel]."""
        key = "w", k, n
        if key in self._places:
            return self._places[key]
        core, layer, cols, lanes = self.core, self.layer, self.core.chip.cols, self.core.chip.lanes
        wide, taps = n[1] - n[0], layer.taps
        at = self._places[key] = core.b.take((k[1] - k[0]) * wide * taps * cols)
        many = max(1, core.vec.words // 2 // lanes)
        for block in range(*k):
            for output in range(*n):
                place = at + ((block - k[0]) * wide + output - n[0]) * taps * cols
                tile = self.w + (output * layer.kb + block) * taps * cols
                for first in range(0, taps, many):
                    count = min(many, taps - first)
                    vec = core.vec.once(count * lanes)
                    fields: VecFields = {
                        "x_base": tile + first * cols, "x_plane": cols, "in_w": cols, "blocks": count, "out_w": cols,
                        "pixels": cols, "dest_base": vec,
                    }  # fmt: skip
                    core.vector(f"{self.name} wt k{block} n{output}", VectorOp.TRANSPOSE, fields)
                    for tap in range(first, first + count):
                        source = core.in_vec(vec + (tap - first) * lanes)
                        core.move(f"{self.name} wt", source, core.in_b(place + (taps - 1 - tap) * cols), cols)
        return at

    # -- dW -----------------------------------------------------------------------------------------------------------

    def _dw(self, step: TileProduct, first: bool, last: bool) -> None:
        core, layer, cols = self.core, self.layer, self.core.chip.cols
        wide = step.n[1] - step.n[0]
        channels = sum(layer.channels(block) for block in range(*step.k))
        rows, key = channels * wide * layer.taps, step.result
        if first:
            self._sums[key] = core.acc.take(rows)
        sums = self._sums[key]
        x, dy = self._columns(step.k, step.m), self._kernels(step.n, step.m)
        addend = Addend.NONE if first else Addend.PARTIAL
        fields: GemmFields = {"b_base": dy, "n_blocks": wide, "addend": addend}
        if layer.flat:
            own: GemmFields = {
                "a_base": x, "a_plane": channels, "in_w": cols, "out_w": cols, "pixels": channels, "dest_base": sums,
                "addend_base": 0 if first else sums,
            }  # fmt: skip
            core.product(f"{self.name} dw k{step.k[0]} n{step.n[0]} m{step.m[0]}", fields | own)
        else:
            for channel in range(channels):
                at = sums + channel * wide * layer.taps
                own = self._dw_channel(x + channel * layer.x_pixels)
                own |= {"dest_base": at, "addend_base": 0 if first else at}
                core.product(f"{self.name} dw c{channel} n{step.n[0]} m{step.m[0]}", fields | own)
        if last:
            self._sums_out(step, sums, rows)
            core.acc.free(self._sums.pop(key))

    def _dw_channel(self, base: int) -> GemmFields:
        """The fields of the convolution of an input channel with all of dY: a pixel for each tap."""
        layer = self.layer
        s = layer.layer.shape
        for what, value in (("rows", layer.out_h), ("columns", layer.out_w)):
            check(f"{self.name} dw", f"{what} of its result", value, "kernel", WIDEST)
        if s.stride_h != s.stride_w:
            check(f"{self.name} dw", "as stride of rows or columns, which must be equal", 2, "dilation", 1)
        return {
            "a_base": base, "a_plane": layer.x_pixels, "in_w": layer.in_w, "kernel_h": layer.out_h,
            "kernel_w": layer.out_w, "dilation": s.stride_h, "pad_top": layer.pad_top, "pad_left": layer.pad_left,
            "out_w": layer.kernel_w, "pixels": layer.taps,
        }  # fmt: skip

    def _sums_out(self, step: TileProduct, sums: int, rows: int) -> None:
        """Complete sums of dW to DRAM: [channel][n block][tap], of a fully connected layer [n block][k block][channel]
        (`Geometry.sums`)."""
        core, layer, cols = self.core, self.layer, self.core.chip.cols
        tile, home = self.places[f"dw:{self.name}"]
        if layer.flat:
            run, stride = rows // (step.n[1] - step.n[0]), layer.kb * cols
            at = step.n[0] * stride + step.k[0] * cols
        else:
            run, stride = (step.n[1] - step.n[0]) * layer.taps, layer.nb * layer.taps
            at = step.k[0] * cols * stride + step.n[0] * layer.taps
        target = tile, home + 4 * at
        core.move(f"{self.name} dw k{step.k[0]} n{step.n[0]}", core.in_acc(sums), target, 4 * rows,
                  target_runs=(4 * run, 4 * stride))  # fmt: skip

    def _columns(self, k: Range, m: Range) -> int:
        """X of a tile in A with images as lanes: [channel][pixel], of a fully connected layer [block][channel]."""
        key = "x", k, m
        if key in self._places:
            return self._places[key]
        core, layer, lanes = self.core, self.layer, self.core.chip.lanes
        channels = [layer.channels(block) for block in range(*k)]
        at = self._places[key] = core.a.take(sum(channels) * layer.x_pixels)
        place = at
        for block, count in zip(range(*k), channels, strict=True):
            base = self.x + m[0] * layer.x_words + block * layer.x_pixels
            words = [base + pixel for pixel in range(layer.x_pixels)]
            label = f"{self.name} xt k{block}"
            for first, some, vec in core.transposed(label, words, layer.x_words, m[1] - m[0]):
                if layer.flat:
                    core.move(label, core.in_vec(vec), core.in_a(place), count)
                    continue
                for channel in range(count):
                    target = core.in_a(place + channel * layer.x_pixels + first)
                    core.move(label, core.in_vec(vec + channel), target, some, source_runs=(1, lanes))
            place += count * layer.x_pixels
        return at

    def _kernels(self, n: Range, m: Range) -> int:
        """dY of a tile in B with images as lanes: [n block][pixel][output channel]."""
        key = "dy", n, m
        if key in self._places:
            return self._places[key]
        core, layer = self.core, self.layer
        cols, lanes = core.chip.cols, core.chip.lanes
        at = self._places[key] = core.b.take((n[1] - n[0]) * layer.y_pixels * cols)
        for block in range(*n):
            base = self.dy + m[0] * layer.y_words + block * layer.y_pixels
            words = [base + pixel for pixel in range(layer.y_pixels)]
            label = f"{self.name} dyt n{block}"
            for first, some, vec in core.transposed(label, words, layer.y_words, m[1] - m[0]):
                target = core.in_b(at + ((block - n[0]) * layer.y_pixels + first) * cols)
                core.move(label, core.in_vec(vec), target, some * cols, source_runs=(cols, lanes))
        return at


def backward(
    core: Core, layers: list[Geometry], places: dict[str, Place], order: Order, keep: bool, update: bool
) -> list[Backward]:
    """Emits all gradients. `places`: in DRAM, of `dy`, what the last layer's sums should be less of, int8; for each
    layer by name of its input `x:`, weights `w:`, gradients `dx:` and `dw:`; of all layers but the last the map `y:`
    if it has a pool, and the gradient `g:` at its sums unless `keep` (`across.Across`). With `update` dW is left to
    `update.updates`, which takes what is returned: the gradients layer by layer. Raises DoesNotFit."""
    last, result = layers[-1], list[Backward]()
    dy = core.a.take(core.images * last.y_words)
    core.move("dy", places["dy"], core.in_a(dy), core.images * last.y_words)
    for index in range(len(layers) - 1, -1, -1):
        layer, name, first = layers[index], layers[index].layer.name, not index
        words = core.images * layer.x_words
        x = core.a.take(words)
        core.move(f"{name} x", places[f"x:{name}"], core.in_a(x), words)
        w = dx = -1
        if not first:
            w, dx = core.a.take(layer.w_words), core.a.take(words)
            core.move(f"{name} w", places[f"w:{name}"], core.in_a(w), layer.w_words)
        one = Backward(core, layer, (x, w, dy, dx), places, first)
        one.emit(order, "dx" if update else "")
        if update:
            result.append(one)
        else:
            core.a.free(dy)
        if not first:
            before = layers[index - 1]
            core.a.free(w)
            dy = core.a.take(core.images * before.y_words)
            _activation(core, before, (x, dx, dy), places, keep)
            core.a.free(dx)
        if not update:
            core.a.free(x)
    return result


def _activation(core: Core, layer: Geometry, at: tuple[int, int, int], places: dict[str, Place], keep: bool) -> None:
    """The gradient of a layer's ReLU and pool. `at`, in A: the result, its gradient, and room for the gradient at the
    sums of the layer. OUT holds a quarter for each of result, map and positions. `keep`: the result comes from A by way
    of VEC, and the gradient stays."""
    name, pool = layer.layer.name, layer.layer.pool
    result, output, dy = at
    for first, end in core.share(layer.y_words, core.out, 4):
        small, words = (end - first) * layer.pooled_words, (end - first) * layer.y_words
        after, source = first * layer.pooled_words, f"{'p' if pool > 1 else 'y'}:{name}"
        out = core.out.once(small)
        if keep:
            copy = core.vec.once(small)
            fields: VecFields = {"x_base": result + after, "x_plane": small, "pixels": small, "dest_base": copy}
            core.vector(f"{name} relu copy", VectorOp.MAX, fields)
            core.move(f"{name} relu", core.in_vec(copy), core.in_out(out), small)
        else:
            tile, place = places[source]
            core.move(f"{name} relu", (tile, place + after), core.in_out(out), small)
        vec = core.vec.once(small)
        pair_of(core, f"{name} relu", Pair.MASK, (output + after, out, vec), (small, 1, 1))
        if pool > 1:
            held = core.a.once(small)
            core.move(f"{name} relu", core.in_vec(vec), core.in_a(held), small)
            out, vec = core.out.once(words), core.vec.once(words)
            tile, place = places[f"y:{name}"]
            core.move(f"{name} map", (tile, place + first * layer.y_words), core.in_out(out), words)
            pair_of(core, f"{name} equal", Pair.EQUAL, (result + after, out, vec), (words, layer.out_w, pool))
            out = core.out.once(words)
            core.move(f"{name} equal", core.in_vec(vec), core.in_out(out), words)
            vec = core.vec.once(words)
            pair_of(core, f"{name} pool", Pair.MASK, (held, out, vec), (words, layer.out_w, pool))
        core.move(f"{name} g", core.in_vec(vec), core.in_a(dy + first * layer.y_words), words)
        if not keep:
            tile, place = places[f"g:{name}"]
            core.move(f"{name} g out", core.in_vec(vec), (tile, place + first * layer.y_words), words)


def pair_of(core: Core, label: str, what: Pair, at: tuple[int, int, int], size: tuple[int, int, int]) -> None:
    """A PAIR of x in A and y in OUT to VEC (`at`) for a number of words, of rows of some `width`; each word of x serves
    `times` rows and columns."""
    words, width, times = size
    fields: VecFields = {
        "x_base": at[0], "y_base": at[1], "dest_base": at[2], "pair": what, "x_plane": words // times**2,
        "in_w": width // times, "out_w": width, "pixels": words, "repeat": times - 1,
    }  # fmt: skip
    core.vector(label, VectorOp.PAIR, fields)
