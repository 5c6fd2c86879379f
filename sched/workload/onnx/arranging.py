"""Pictures made of rearranged values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode

from ..graph import Place, Window, slice_size
from .bounds import Budget, check_size
from .errors import Refused
from .floats import FloatLayer
from .load import CheckedModel
from .lowering import Lowering
from .strides import MOST_STRIDE, factors
from .views import MOST_PIECES, NO_PAD, Piece, Size, View, arranged, channels_selected, turned, turned_size
from .windows import check_window

#: Pixels that may be put in another order one by one: as many channels a convolution then has.
MOST_MOVED = 1024
#: Rows or columns of zeros that one layer of the vector unit can put around a map, before and behind in all.
_MOST_PAD = min(INSTRUCTIONS[Opcode.VEC].most("pad_top"), INSTRUCTIONS[Opcode.VEC].most("kernel_h") - 1)


class Arranging(Lowering[View]):
    """`layers`: by their results. `orders`, `sizes`: as in `FloatNet`."""

    def __init__(self, model: CheckedModel) -> None:
        super().__init__(model)
        self.layers: dict[str, FloatLayer] = {}
        self.budget = Budget(sum(array.size for array in self.constants.values()))
        self.notes: list[str] = []
        self.turns = True  # whether channels and pixels may change places
        self._turned: dict[tuple[str, int, int], str] = {}
        self.orders: dict[str, NDArray[np.int64]] = {}
        self.sizes: dict[str, Size] = {}

    # -- layers ---------------------------------------------------------------------------------------------

    def emit(self, layer: FloatLayer, size: Size, shape: tuple[int, ...] | None = None) -> str:
        check_window(layer.kind, layer.window)
        if min(size) < 1:
            raise Refused("its window does not fit the input")
        check_size(shape or (1, *size))
        self.budget.spend("numbers of tensors", prod(size))
        self.budget.spend("layers", 1)
        self.budget.spend("weights of layers", 0 if layer.w is None else layer.w.size)
        self.layers[layer.output], self.sizes[layer.output] = layer, size
        self.views[layer.output] = View(layer.output, size, shape or (1, *size))
        return layer.output

    def fresh(self, name: str) -> str:
        """A name that no value has."""
        while name in self.views or name in self.layers:
            name += "_"
        return name

    def fusible(self, name: str, kinds: tuple[str, ...]) -> FloatLayer | None:
        """The layer after a tensor, if its result is used here alone and it is of one of these kinds."""
        view = self.view(name)
        layer = self.layers.get(view.value)
        return layer if layer and view.single and self.used_once(name) and layer.kind in kinds else None

    def slice_of(self, name: str, output: str, size: Size, window: Window) -> str:
        """Rows and columns of a value; itself if these are all. Steps that no instruction holds are taken one after the
        other, or, where they have no small factors, row by row."""
        window = _without_steps(window, size)
        if window == Window():
            return name
        steps = [factors(stride) for stride in (window.stride_h, window.stride_w)]
        for axis, known in enumerate(steps):
            if known is None:
                return self._one_by_one(name, output, size, window, axis)
        down, right = (each or [1] for each in steps)
        first = replace(window, stride_h=down[0], stride_w=right[0])
        made = size[0], *slice_size(first, *size[1:])
        name = self.emit(FloatLayer("slice", self.fresh(output), (name,), first), made)
        rest = Window(1, 1, window.stride_h // down[0], window.stride_w // right[0])
        return self.slice_of(name, output, made, rest)

    def _one_by_one(self, name: str, output: str, size: Size, window: Window, axis: int) -> str:
        """As `slice_of`: rows (`axis` 0) or columns one by one, then what is left to do."""
        rows, columns = slice_size(window, *size[1:])
        count = columns if axis else rows
        if count > MOST_PIECES:
            raise Refused(
                f"a step of {window.stride_w if axis else window.stride_h} through {size[axis + 1]} "
                f"{'columns' if axis else 'rows'} takes {count} copies; {MOST_PIECES} at most, or a step of factors up "
                f"to {MOST_STRIDE}"
            )
        parts: list[str] = []
        places: list[Place] = []
        for index in range(count):
            if axis:
                at = window.pad_left + index * window.stride_w
                one, place = Window(1, 1, 1, 1, 0, at, 0, size[2] - at - 1), Place(0, index, 1, 1, size[1], 1)
            else:
                at = window.pad_top + index * window.stride_h
                one, place = Window(1, 1, 1, 1, at, 0, size[1] - at - 1), Place(index, 0, 1, 1, 1, size[2])
            parts.append(self.slice_of(name, f"{output}/{index}", size, one))
            places.append(place)
        made = (size[0], size[1], count) if axis else (size[0], count, size[2])
        name = self.emit(FloatLayer("paste", self.fresh(output), tuple(parts), places=tuple(places)), made)
        rest = (
            replace(window, stride_w=1, pad_left=0, pad_right=0) if axis
            else replace(window, stride_h=1, pad_top=0, pad_bottom=0)
        )  # fmt: skip
        return self.slice_of(name, output, made, rest)

    def concat_of(self, names: Sequence[str], output: str, size: Size) -> str:
        """Channels of values of `size` one after the other."""
        return self.emit(FloatLayer("concat", output, tuple(names)), (size[0] * len(names), *size[1:]))

    # -- pictures -------------------------------------------------------------------------------------------

    def picture(self, name: str, *, padded: bool = False) -> View:
        """An operand that must be [1, channels, rows, columns], or [1, channels, columns], as a value of its own."""
        view = self.view(name)
        if len(view.shape) == 3:
            view = view.moved(view.order.reshape(*view.shape[:2], 1, view.shape[2]))
        if len(view.shape) != 4 or view.shape[0] != 1:
            raise Refused(f"its operand has shape {list(view.shape)}, must be [1, channels, rows, columns]")
        if not view.is_picture:
            view = self.arrange(name, view)
        if view.pad != NO_PAD and not padded:
            view = self._padded(name, view)
        return view

    def arrange(self, name: str, view: View) -> View:
        """A value that a view [1, channels, rows, columns] is the picture of; `name`: of the tensor. Where rows and
        columns do not move as wholes, channels and pixels change places before."""
        if view.is_picture:
            return view
        if self.turns and view.pad == NO_PAD and channels_selected(view) is None:
            for groups in _turns(view.size[0], view.shape[2] * view.shape[3]):
                channels = turned_size(view.size, groups)[0]
                if channels == view.shape[1] and _same(turned(view.order, view.size, groups)):
                    made = self.turn(view.value, view.size, groups, view.shape[2])
                    return self._became(name, view, self.views[made])
        try:
            made = self._arranged(name, view)
        except Refused:
            chosen = _rows_and_columns(view) if self.turns and view.pad == NO_PAD else None
            if chosen is None:
                raise
            made = self._put_elsewhere(name, view, *chosen)
        return self._became(name, view, made)

    def _put_elsewhere(self, name: str, view: View, channels: NDArray[np.int64], pixels: NDArray[np.int64]) -> View:
        """Some channels and pixels of a value in any order: pixels are chosen while they are channels."""
        chosen = self._select(view, channels, f"{name}/channels")
        size = len(channels), *view.size[1:]
        across = self.turn(chosen, size, 1)
        wide = View(across, turned_size(size, 1), (1, *turned_size(size, 1)))
        moved = self._select(wide, pixels, f"{name}/pixels")
        return self.views[self.turn(moved, (len(pixels), 1, size[0]), 1, view.shape[2])]

    def turn(self, value: str, size: Size, groups: int, rows: int = 1) -> str:
        """The transpose of a value in groups of channels, in so many rows."""
        key = value, groups, rows
        if key not in self._turned:
            name = self.fresh(f"{value}/turned" + (f"{groups}" if groups > 1 else ""))
            layer = FloatLayer("transpose", name, (value,), groups=groups, rows=rows)
            channels, _, pixels = turned_size(size, groups)
            self._turned[key] = self.emit(layer, (channels, rows, pixels // rows))
        return self._turned[key]

    def laid(self, name: str, view: View, index: NDArray[np.int64]) -> tuple[View, int]:
        """A value whose channels and pixels are the elements `index` [channels, pixels] of a view's value, and how many
        groups of channels changed places with pixels for it; 0 if none did. `name`: of the tensor."""
        channels, pixels = index.shape
        if channels == view.size[0] and view.moved(index).index is None:
            return replace(view, shape=(1, *view.size), index=None), 0
        for groups in _turns(view.size[0], pixels):
            size = turned_size(view.size, groups)
            if size[0] == channels and _same(turned(index, view.size, groups)):
                return View(self.turn(view.value, view.size, groups), size, (1, *size)), groups
        return self.arrange(name, view.moved(index.reshape(1, channels, 1, pixels))), 0

    def _arranged(self, name: str, view: View) -> View:
        selected, maker = channels_selected(view), self.fusible(name, ("conv",))
        if selected is not None and maker and maker.w is not None and maker.bias is not None and not maker.moves:
            del self.layers[maker.output]  # other filters, or the same in another order
            maker.w, maker.bias = maker.w[selected], maker.bias[selected]
            maker.output = self.fresh(f"{name}/channels")
            self.emit(maker, (len(selected), *view.size[1:]))
            return self.views[maker.output]
        return self._put_together(name, view, arranged(view.order[0], view.size))

    def _put_together(self, name: str, view: View, runs: list[list[Piece]]) -> View:
        """A picture of runs of channels."""
        parts = [
            self._run(view, pieces, f"{name}/moved" + (f"{index}" if len(runs) > 1 else ""))
            for index, pieces in enumerate(runs)
        ]
        if len(parts) == 1:
            return self.views[parts[0]]
        layer = FloatLayer("concat", self.fresh(f"{name}/moved"), tuple(parts))
        self.emit(layer, (view.shape[1], view.shape[2], view.shape[3]))
        return self.views[layer.output]

    def _became(self, name: str, view: View, made: View) -> View:
        """What is known of a tensor whose picture has been made: it is used again by who reads it too."""
        old = self.views[name]
        if old.order.size == view.order.size and np.array_equal(old.order.ravel(), view.order.ravel()):
            self.views[name] = replace(made, shape=old.shape)
        return made

    def _run(self, view: View, pieces: list[Piece], output: str) -> str:
        """The pieces of a run of channels."""
        chosen: dict[bytes, str] = {}
        parts: list[str] = []
        for index, piece in enumerate(pieces):
            key = piece.channels.tobytes()
            if key not in chosen:
                chosen[key] = self._select(view, piece.channels, f"{output}/channels{len(chosen)}")
            size = len(piece.channels), *view.size[1:]
            parts.append(self.slice_of(chosen[key], f"{output}/part{index}", size, piece.window))
        places = tuple(piece.place for piece in pieces)
        if len(parts) == 1 and (places[0].top, places[0].left, places[0].step_h, places[0].step_w) == (0, 0, 1, 1):
            return parts[0]
        height, width = (max(place.end[axis] for place in places) for axis in (0, 1))
        layer = FloatLayer("paste", self.fresh(output), tuple(parts), places=places)
        return self.emit(layer, (len(pieces[0].channels), height, width))

    def _select(self, view: View, channels: NDArray[np.int64], output: str) -> str:
        """Channels of a value, by a convolution that picks them."""
        count = view.size[0]
        if np.array_equal(channels, np.arange(count)):
            return view.value
        w = np.zeros((len(channels), count, 1, 1))
        w[np.arange(len(channels)), channels] = 1
        layer = FloatLayer("conv", self.fresh(output), (view.value,), w=w, bias=np.zeros(len(w)), moves=True)
        return self.emit(layer, (len(channels), *view.size[1:]))

    def _padded(self, name: str, view: View) -> View:
        """A picture with its zeros around it: depthwise layers of one tap."""
        made, (top, left, bottom, right) = replace(view, pad=NO_PAD), view.pad
        while top + left + bottom + right:
            t, le = min(top, _MOST_PAD), min(left, _MOST_PAD)
            b, r = min(bottom, _MOST_PAD - t), min(right, _MOST_PAD - le)
            w = np.zeros((view.channels, 1, t + b + 1, le + r + 1))
            w[:, :, b, r] = 1
            window = Window(t + b + 1, le + r + 1, 1, 1, t + b, le + r, t + b, le + r)
            output = self.fresh(f"{name}/padded")
            layer = FloatLayer("depthwise", output, (made.value,), window, w=w, bias=np.zeros(len(w)), moves=True)
            self.emit(layer, (made.channels, *window.output(*made.size[1:])))
            made, (top, left, bottom, right) = self.views[output], (top - t, left - le, bottom - b, right - r)
        self.views[name] = made
        return made


def _without_steps(window: Window, size: Size) -> Window:
    """The window of a slice, without a step where one row or one column is all that it takes."""
    rows, columns = slice_size(window, *size[1:])
    if rows == 1 and window.stride_h > 1:
        window = replace(window, stride_h=1, pad_bottom=size[1] - window.pad_top - 1)
    if columns == 1 and window.stride_w > 1:
        window = replace(window, stride_w=1, pad_right=size[2] - window.pad_left - 1)
    return window


def _turns(channels: int, pixels: int) -> list[int]:
    """In how many groups channels may change places with pixels, so that there are `pixels` of them then."""
    return [channels // pixels, 1] if channels % pixels == 0 and channels != pixels else [1]


def _rows_and_columns(view: View) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Channels and pixels of a value that a picture is of, if each of its channels has the same pixels."""
    channel, pixel = np.divmod(view.order[0].reshape(view.shape[1], -1), view.size[1] * view.size[2])
    alike = np.all(channel == channel[:, :1]) and np.all(pixel == pixel[:1])
    return (channel[:, 0], pixel[0]) if alike and max(pixel.shape[1], pixel.max() + 1) <= MOST_MOVED else None


def _same(index: NDArray[np.int64]) -> bool:
    """Whether elements are those of a value in its own order."""
    return np.array_equal(index.ravel(), np.arange(index.size))
