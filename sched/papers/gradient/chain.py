"""Gradients of layers in a row as one list of operations (`workload.training_chain`).

    for each range of rows (m), for each layer from the last to the first, for each range of columns of X (k):
        dX[m, k] = dY[m, :]·W[k, :]ᵀ    over OUT, behind a rectifier MASK by X, to where it is wanted as dY
        dW[k, :] += X[m, k]ᵀ·dY[m, :]   sums stay in ACC from range of rows to range of rows

dX does not leave the cores if it is kept: it goes from VEC to A of each core that needs it as dY, over the mesh. With a
single range of rows, each dX[k] is computed by one core and dW is cut into pieces which any core may compute: put off,
they go to the cores that have the least to do. W' = sat8(W - dW) can take the place of dW as soon as a tile of that is
complete; it is the vector unit's SUBTRACT, where words of W and of results have the same channels.

Channels of X behind a rectifier, of dY and of results lie `cols` to a word, as the chip's results do; those of W and of
other X `lanes`. Transposing is the vector unit's, as in `gradient.emit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Addend, Pair, VectorOp

from ...ir.bodies import GemmFields
from ...ir.schedule import Operation
from ...mapping.memory.placement import Stored
from ...mapping.tiling.problem import MAX_IN_WIDTH, MAX_K_BLOCKS, MAX_N_BLOCKS, DoesNotFit
from ...mapping.tiling.tiles import Range
from ...schedulers.training.core import Place, check
from ...schedulers.training.pair import cut
from ...workload.training_chain import Chain
from ...workload.training_data import scales_of
from .chain_core import ChainCore
from .chain_plan import ChainPlan, Tensors, Update


@dataclass
class _Layer:
    """A layer of the chain in words. `depth`: blocks of channels of dY; `xs`: channels of a word of X."""

    index: int
    k: int
    n: int
    depth: int
    columns: int
    xs: int
    dx_scale: int
    dw_scale: int


class ChainEmitter:
    """The operations of a plan, in `operations`. Words to and from DRAM: `dram_words`. Raises DoesNotFit when
    something has no room, or an instruction cannot hold a number."""

    def __init__(self, chain: Chain, chip: ChipConfig, plan: ChainPlan) -> None:
        if plan.update is not Update.NONE and chip.cols != chip.lanes:
            raise DoesNotFit(
                f"{chain.name}: words of W have {chip.lanes} channels on {chip.name}, those of results {chip.cols}; "
                "W - dW needs as many in both: take update=none"
            )
        self.chain, self.chip, self.plan = chain, chip, plan
        self.operations = list[Operation]()
        self.tensors = Tensors(chain, chip, plan)
        self.cores = [ChainCore(chip, tile, self.operations) for tile in chip.cores[: plan.cores]]
        self.layers = [
            _Layer(
                index, layer.k, layer.n, ceil(layer.n / chip.cols), ceil(layer.k / chip.cols),
                chip.cols if chain.masked(index) else chip.lanes, scales_of(layer).dx, scales_of(layer).dw,
            )
            for index, layer in enumerate(chain.layers)
        ]  # fmt: skip
        self.rows = cut(chain.m, plan.m)
        if len(self.rows) > 1 and plan.cores > 1:
            raise DoesNotFit(f"{chain.name}: several ranges of rows are for one core; take cores=1 or all rows at once")
        for m in self.rows:
            self._range(m, m is self.rows[0], m is self.rows[-1])
        if plan.update is Update.APART:
            for layer in reversed(self.layers):
                self._apart(layer)

    @property
    def dram_words(self) -> int:
        return sum(core.dram_words for core in self.cores)

    # -- the order of all work ----------------------------------------------------------------------------------------

    def _range(self, m: Range, first: bool, last: bool) -> None:
        """All layers for a range of rows."""
        count = m[1] - m[0]
        for core in self.cores:
            layer = self.layers[-1]
            self._hold_dy(core, layer, m)
        put_off: list[_Layer] = []
        self._load_x(m)
        for layer in reversed(self.layers):
            if layer.index or not self.chain.layers[0].first:
                if layer.index:
                    for core in self.cores:
                        core.dy[layer.index - 1] = core.a.take(layer.columns * count)
                for number, k in enumerate(cut(layer.columns, self.plan.k)):
                    self._dx(self.cores[number % len(self.cores)], layer, m, k, last)
                if layer.index and not self.plan.keep:
                    for core in self.cores:
                        self._load_dy(core, self.layers[layer.index - 1], m)
            if self.plan.defer:
                put_off.append(layer)
            else:
                self._all_dw(layer, m, first, last)
        for layer in put_off:
            self._all_dw(layer, m, first, last)

    def _all_dw(self, layer: _Layer, m: Range, first: bool, last: bool) -> None:
        """dW of a layer for a range of rows, by its pieces; then no core needs the layer's dY any more."""
        for number, k in enumerate(cut(layer.columns, self.plan.k)):
            home = self.cores[number % len(self.cores)]
            held: dict[int, int] = {}  # Xᵀ in B, by core
            for n in cut(layer.n, self.plan.n):
                core = min(self.cores, key=lambda one: one.load) if self.plan.defer else home
                core.load += (k[1] - k[0]) * (n[1] - n[0])
                if core.tile not in held:
                    held[core.tile] = self._x(core, layer, m, k)
                self._dw(core, layer, m, k, n, held[core.tile], first, last)
            for core in self.cores:
                if core.tile in held:
                    core.b.free(held[core.tile])
        for core in self.cores:
            core.a.free(core.dy.pop(layer.index))
            for key in [key for key in core.dyt if key[0] == layer.index]:
                core.a.free(core.dyt.pop(key))

    def _load_x(self, m: Range) -> None:
        """X of all layers, first: it is little beside W if there are few rows, and no dX shall wait for it behind W."""
        for layer in reversed(self.layers):
            for number, k in enumerate(cut(layer.columns, self.plan.k)):
                home = self.cores[number % len(self.cores)]
                if self.chain.masked(layer.index):
                    signs = home.signs[layer.index, k] = home.out.take((k[1] - k[0]) * (m[1] - m[0]))
                    home.fetch(f"x {layer.index} signs", self.tensors.x[layer.index], k, m, home.in_out(signs)[1])

    # -- dX -----------------------------------------------------------------------------------------------------------

    def _hold_dy(self, core: ChainCore, layer: _Layer, m: Range) -> None:
        core.dy[layer.index] = core.a.take(layer.depth * (m[1] - m[0]))
        self._load_dy(core, layer, m)

    def _load_dy(self, core: ChainCore, layer: _Layer, m: Range) -> None:
        place = core.in_a(core.dy[layer.index])
        core.fetch(f"dy {layer.index}", self.tensors.dy[layer.index], (0, layer.depth), m, place[1])

    def _dx(self, core: ChainCore, layer: _Layer, m: Range, k: Range, last: bool) -> None:
        """dX of some blocks of columns, to where it is wanted."""
        count, label = m[1] - m[0], f"dx {layer.index} m{m[0]} k{k[0]}"
        check(self.chain.name, "blocks of channels", layer.depth, "k_blocks", MAX_K_BLOCKS)
        w = self._w(core, layer, k)
        core.load += (k[1] - k[0]) * layer.n
        at_once = max(1, min(k[1] - k[0], self.chip.core.out_words // 2 // count, MAX_N_BLOCKS))
        for begin in range(*k, at_once):
            blocks = min(at_once, k[1] - begin)
            out = core.out.once(blocks * count)
            core.gemm(label, {
                "a_base": core.dy[layer.index], "a_plane": count, "in_w": count, "out_w": count, "pixels": count,
                "k_blocks": layer.depth, "b_base": w + (begin - k[0]) * layer.depth * self.chip.cols,
                "n_blocks": blocks, "dest_base": out, "scale": layer.dx_scale,
            })  # fmt: skip
            place = core.in_out(out)
            if self.chain.masked(layer.index):
                signs = core.signs[layer.index, k] + (begin - k[0]) * count
                place = self._masked(core, label, blocks * count, out, signs)
            self._hand_on(core, layer, label, m, (begin, begin + blocks), place)
        if (layer.index, k) in core.signs:
            core.out.free(core.signs.pop((layer.index, k)))
        if last:
            core.b.free(core.wt.pop((layer.index, k)))

    def _masked(self, core: ChainCore, label: str, words: int, out: int, signs: int) -> Place:
        """dX where X is above 0, in VEC. `out`, `signs`: where in OUT they are."""
        held, vec = core.a.once(words), core.vec.once(words)
        core.move(label, core.in_out(out), core.in_a(held), words)
        core.pair(f"{label} mask", Pair.MASK, held, signs, vec, words)
        return core.in_vec(vec)

    def _hand_on(self, core: ChainCore, layer: _Layer, label: str, m: Range, k: Range, place: Place) -> None:
        """dX to the cores that need it as dY of the layer before, or to DRAM."""
        count = m[1] - m[0]
        if not layer.index or not self.plan.keep:
            stored = self.tensors.dy[layer.index - 1] if layer.index else self.tensors.dx
            assert stored is not None
            core.store(label, stored, k, m, place[1])
            return
        for other in self.cores:
            core.move(label, place, other.in_a(other.dy[layer.index - 1] + k[0] * count), (k[1] - k[0]) * count)

    # -- dW -----------------------------------------------------------------------------------------------------------

    def _dw(  # a piece
        self, core: ChainCore, layer: _Layer, m: Range, k: Range, n: Range, x: int, first: bool, last: bool
    ) -> None:
        """A piece of dW for a range of rows; `x`: Xᵀ in B. The sums stay in ACC until the last range."""
        depth, count, columns = self._groups(m), n[1] - n[0], k[1] - k[0]
        dyt, label = self._dyt(core, layer, m, n), f"dw {layer.index} m{m[0]} k{k[0]} n{n[0]}"
        wide = ceil(count / self.chip.cols) * self.chip.cols
        key = layer.index, k, n
        if first and not last:
            core.sums[key] = core.acc.take(columns * count)
        fields: GemmFields = {
            "a_base": dyt, "a_plane": wide, "in_w": wide, "out_w": wide, "pixels": count, "k_blocks": depth,
            "addend": Addend.NONE if first else Addend.PARTIAL,
        }  # fmt: skip
        if not last:
            fields |= {"b_base": x, "n_blocks": columns, "to_acc": 1, "dest_base": core.sums[key]}
            if not first:
                fields["addend_base"] = core.sums[key]
            core.gemm(label, fields)
            return
        at_once = max(1, min(columns, self.chip.core.out_words // 2 // count, MAX_N_BLOCKS))
        for begin in range(0, columns, at_once):
            blocks = min(at_once, columns - begin)
            out = core.out.once(blocks * count)
            own: GemmFields = {
                "b_base": x + begin * depth * self.chip.cols, "n_blocks": blocks, "dest_base": out,
                "scale": layer.dw_scale,
            }  # fmt: skip
            if not first:
                own["addend_base"] = core.sums[key] + begin * count
            core.gemm(label, fields | own)
            part = k[0] + begin, k[0] + begin + blocks
            if self.plan.update is Update.FUSED:
                w = core.w.get((layer.index, k, n))
                self._updated(core, layer, label, part, n, out, None if w is None else w + begin * count)
            else:
                core.store(label, self.tensors.dw[layer.index], part, n, core.in_out(out)[1])
        if key in core.sums:
            core.acc.free(core.sums.pop(key))
        if key in core.w:
            core.a.free(core.w.pop(key))
            core.resident -= columns * count

    def _updated(
        self, core: ChainCore, layer: _Layer, label: str, k: Range, n: Range, out: int, w: int | None = None
    ) -> None:
        """W' = sat8(W - dW) for a piece of dW in OUT, to DRAM. `w`: where W is in A, None if it is not there."""
        words = (k[1] - k[0]) * (n[1] - n[0])
        vec = core.vec.once(words)
        if w is None:
            w = core.a.once(words)
            core.fetch(f"{label} w", self.tensors.w[layer.index], k, n, core.in_a(w)[1])
        core.pair(f"{label} update", Pair.SUBTRACT, w, out, vec, words)
        core.store(label, self.tensors.updated[layer.index], k, n, core.in_vec(vec)[1])

    def _apart(self, layer: _Layer) -> None:
        """All of W' of a layer, dW being in DRAM."""
        most = max(1, min(layer.n, self.chip.core.out_words // 2, MAX_IN_WIDTH))
        for k in cut(layer.columns, 1):
            for n in cut(layer.n, most):
                core = self.cores[k[0] % len(self.cores)]
                label, out = f"update {layer.index} k{k[0]} n{n[0]}", core.out.once(n[1] - n[0])
                core.fetch(f"{label} dw", self.tensors.dw[layer.index], k, n, core.in_out(out)[1])
                self._updated(core, layer, label, k, n, out)

    # -- operands -----------------------------------------------------------------------------------------------------

    def _groups(self, m: Range) -> int:
        return ceil((m[1] - m[0]) / self.chip.lanes)

    def _w(self, core: ChainCore, layer: _Layer, k: Range) -> int:
        """Wᵀ of some blocks of columns in B, [block of columns][block of n][column], for all ranges of rows."""
        if (layer.index, k) in core.wt:
            return core.wt[layer.index, k]
        cols = self.chip.cols
        at = core.wt[layer.index, k] = core.b.take((k[1] - k[0]) * layer.depth * cols)
        for n in cut(layer.n, self.plan.n):
            self._columns(
                core, f"w {layer.index} k{k[0]}", self.tensors.w[layer.index], (k, layer.k), n, self.chip.lanes, cols,
                (at, layer.depth, n[0] // cols), self._held(core, layer, k, n),
            )  # fmt: skip
        return at

    def _held(self, core: ChainCore, layer: _Layer, k: Range, n: Range) -> int | None:
        """Room in A for a tile of W that the update will find there; None if it is to be loaded again."""
        words = (k[1] - k[0]) * (n[1] - n[0])
        if not self.plan.keep or self.plan.update is not Update.FUSED or 2 * (core.resident + words) > core.a.words:
            return None
        core.resident += words
        at = core.w[layer.index, k, n] = core.a.take(words)
        return at

    def _x(self, core: ChainCore, layer: _Layer, m: Range, k: Range) -> int:
        """Xᵀ of some blocks of columns in B: [block of columns][group of rows][column]."""
        depth = self._groups(m)
        at = core.b.take((k[1] - k[0]) * depth * self.chip.cols)
        self._columns(
            core, f"x {layer.index} k{k[0]}", self.tensors.x[layer.index], (k, layer.k), m, layer.xs, self.chip.lanes,
            (at, depth, 0),
        )  # fmt: skip
        return at

    def _columns(  # what, which, where to
        self,
        core: ChainCore,
        label: str,
        stored: Stored,
        of: tuple[Range, int],
        pixels: Range,
        channels: int,
        unit: int,
        to: tuple[int, int, int],
        held: int | None = None,
    ) -> None:
        """Loads blocks of columns (`of`: which, and channels in all) of an array whose words have some `channels`, for
        a range of pixels, and transposes them into B: groups of `unit` pixels. `to`: where in B, groups that each
        column has there, and the first of these; `held`: where in A, if it stays there."""
        k, end = of
        chip, (at, depth, begin), count = self.chip, to, pixels[1] - pixels[0]
        cols, lanes = chip.cols, chip.lanes
        planes = k[0] * cols // channels, min(ceil(end / channels), ceil(k[1] * cols / channels))
        blocks = planes[1] - planes[0]
        check(self.chain.name, "pixels of a tile", count, "in_w", MAX_IN_WIDTH)
        plain = core.a.once(blocks * count) if held is None else held
        core.fetch(label, stored, planes, pixels, core.in_a(plain)[1])
        wide, skip, needed = blocks * lanes, k[0] * cols - planes[0] * channels, (k[1] - k[0]) * cols
        words = needed if channels == cols else min(needed, wide - skip)
        for group, groups, vec in self._transposed(core, label, plain, count, blocks, unit):
            for index in range(groups):
                target = at + (begin + group + index) * cols
                source = vec + index * wide + skip
                runs = (cols, lanes) if channels == cols else (words, words)
                core.move(label, core.in_vec(source), core.in_b(target), words, runs, (cols, depth * cols))
        if short := needed - words:
            if not core.zeros:
                core.zeros = True
                core.vector("zeros", VectorOp.TRANSPOSE, {
                    "x_plane": 1, "in_w": 1, "out_w": 1, "pixels": 1, "pad_left": 1,
                })  # fmt: skip
            some = ceil(count / unit)
            target = at + ((k[1] - k[0] - 1) * depth + begin) * cols + cols - short
            core.move(label, core.in_vec(0), core.in_b(target), short * some, (short, 0), (short, cols))

    def _dyt(self, core: ChainCore, layer: _Layer, m: Range, n: Range) -> int:
        """Columns of dY of a range of rows in A: [group of rows][column], a lane for each row."""
        key = layer.index, n
        if key in core.dyt:
            return core.dyt[key]
        cols, lanes, count = self.chip.cols, self.chip.lanes, m[1] - m[0]
        blocks = ceil((n[1] - n[0]) / cols)
        wide = blocks * cols
        check(self.chain.name, "columns of a piece", wide, "in_w", MAX_IN_WIDTH)
        at = core.dyt[key] = core.a.take(self._groups(m) * wide)
        plain = core.dy[layer.index] + n[0] // cols * count
        label = f"dyt {layer.index} n{n[0]}"
        for group, groups, vec in self._transposed(core, label, plain, count, blocks, lanes):
            core.move(label, core.in_vec(vec), core.in_a(at + group * wide), groups * wide, (cols, lanes))
        return at

    def _transposed(self, core: ChainCore, label: str, plain: int, count: int, blocks: int, unit: int):  # noqa: ANN202
        """Transposes `blocks` planes of `count` words of A, groups of `unit` pixels: yields the first group, how many,
        and the word of VEC at which [group][lane] begins."""
        lanes, wide = self.chip.lanes, blocks * self.chip.lanes
        at_once = max(1, core.vec.words // 2 // wide) if unit == lanes else 1
        for group in range(0, ceil(count / unit), at_once):
            first = group * unit
            pixels = min(at_once * unit, count - first)
            vec = core.vec.once(ceil(pixels / unit) * wide)
            core.vector(label, VectorOp.TRANSPOSE, {
                "x_base": plain + first, "x_plane": count, "in_w": count, "blocks": blocks, "out_w": count,
                "pixels": pixels, "dest_base": vec,
            })  # fmt: skip
            yield group, ceil(pixels / unit), vec
