"""Pictures made of rearranged values, and slices of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode

from ...graph import PastePlace, Window, slice_size
from ..errors import Refused
from ..floats import FloatLayer
from .axes import extents_along, place_along, side_of, size_along, stride_along, window_along
from .context import FloatContext
from .strides import MOST_STRIDE, factors
from .views import (
    MOST_PIECES,
    NO_PAD,
    Layout,
    Piece,
    Size,
    View,
    find_channels,
    split_into_pieces,
    turn_index,
    turn_size,
)
from .ways import find_way


def emit_slice(context: FloatContext, name: str, output: str, size: Size, window: Window) -> str:
    """Rows and columns of a value; itself if these are all. Steps that no instruction holds are taken one after the
    other, or, where they have no small factors, row by row."""
    window = _without_steps(window, size)
    if window == Window():
        return name
    steps = [factors(stride) for stride in (window.stride_h, window.stride_w)]
    for axis, small in enumerate(steps):
        if small is None:
            return _slice_one_by_one(context, name, output, size, window, axis)
    down, right = (each or [1] for each in steps)
    first = replace(window, stride_h=down[0], stride_w=right[0])
    first_size = size[0], *slice_size(first, *size[1:])
    name = context.emit(FloatLayer("slice", context.fresh(output), (name,), first), first_size)
    rest = Window(1, 1, window.stride_h // down[0], window.stride_w // right[0])
    return emit_slice(context, name, output, first_size, rest)


def _slice_one_by_one(context: FloatContext, name: str, output: str, size: Size, window: Window, axis: int) -> str:
    """As `emit_slice`: rows (`axis` 0) or columns one by one, then what is left to do."""
    count = slice_size(window, *size[1:])[axis]
    _, stride, before = extents_along(window, axis)
    if count > MOST_PIECES:
        raise Refused(
            f"a step of {stride} through {size[axis + 1]} {side_of(axis)} takes {count} copies; {MOST_PIECES} at most, "
            f"or a step of factors up to {MOST_STRIDE}"
        )
    parts: list[str] = []
    for index in range(count):
        at = before + index * stride
        one = window_along(axis, before=at, behind=size[axis + 1] - at - 1)
        parts.append(emit_slice(context, name, f"{output}/{index}", size, one))
    places = [place_along(axis, index, 1, size_along(axis, size, 1)) for index in range(count)]
    whole = size_along(axis, size, count)
    name = emit_paste(context, context.fresh(output), parts, places, whole)
    return emit_slice(context, name, output, whole, stride_along(window, axis, 1))


def emit_paste(
    context: FloatContext, output: str, names: Sequence[str], places: Sequence[PastePlace], size: Size
) -> str:
    """A map of `size` that values lie in, each at its place."""
    return context.emit(FloatLayer("paste", output, tuple(names), places=tuple(places)), size)


def emit_concat(context: FloatContext, names: Sequence[str], output: str, size: Size) -> str:
    """Channels of values of `size` one after the other."""
    return context.emit(FloatLayer("concat", output, tuple(names)), (size[0] * len(names), *size[1:]))


def _without_steps(window: Window, size: Size) -> Window:
    """The window of a slice, without a step where one row or one column is all that it takes."""
    rows, columns = slice_size(window, *size[1:])
    if rows == 1 and window.stride_h > 1:
        window = replace(window, stride_h=1, pad_bottom=size[1] - window.pad_top - 1)
    if columns == 1 and window.stride_w > 1:
        window = replace(window, stride_w=1, pad_right=size[2] - window.pad_left - 1)
    return window


#: Pixels that may be put in another order one by one: as many channels a convolution then has.
MOST_MOVED = 1024

#: Channels of the widest word that chips have.
_WIDEST_WORD = 32

#: Weights of all convolutions that select channels for one picture.
_MOST_SELECTED = 1 << 22

#: Copies of parts of a map that take longer than to exchange channels and pixels a few times.
_MANY = 12

#: Rows or columns of zeros that one layer of the vector unit can put around a map, before and behind in all.
_MOST_PAD = min(INSTRUCTIONS[Opcode.VEC].most("pad_top"), INSTRUCTIONS[Opcode.VEC].most("kernel_h") - 1)

#: Words of a row of what an instruction takes as a whole map.
_WIDEST = INSTRUCTIONS[Opcode.VEC].most("in_w")


def as_picture(context: FloatContext, name: str, *, padded: bool = False) -> View:
    """An operand that must be [1, channels, rows, columns], or [1, channels, columns], as a value of its own."""
    view = context.view(name)
    if line := len(view.shape) == 3:
        view = view.moved(view.order.reshape(*view.shape[:2], 1, view.shape[2]))
    if len(view.shape) != 4 or view.shape[0] != 1:
        raise Refused(f"its operand has shape {list(view.shape)}, must be [1, channels, rows, columns]")
    if not view.is_picture:
        view = arrange(context, name, view)
    if view.pad != NO_PAD and not padded:
        view = pad_picture(context, name, view)
        if line:  # as others read it
            context.see_as(name, (*view.shape[:2], view.shape[3]))
    return view


def arrange(context: FloatContext, name: str, view: View, groups: int = 0) -> View:
    """A value that a view [1, channels, rows, columns] is the picture of; `name`: of the tensor. Where rows and
    columns do not move as wholes, channels and pixels change places before. `groups`: of channels that who reads it
    takes apart."""
    if view.is_picture:
        return view
    if context.turns and view.pad == NO_PAD and find_channels(view) is None:
        for groups in _turns(view.size[0], view.shape[2] * view.shape[3]):
            size = turn_size(view.size, groups)
            if size[0] == view.shape[1] and _is_whole(turn_index(view.order, view.size, groups), size):
                picture = turn(context, view.value, view.size, groups, view.shape[2])
                return _remember(context, name, view, context.views[picture])
    try:
        picture = _build_picture(context, name, view, groups)
    except Refused as refusal:
        picture = _build_otherwise(context, name, view, groups)
        if picture is None:
            raise refusal from None
    return _remember(context, name, view, picture)


def _build_otherwise(context: FloatContext, name: str, view: View, groups: int) -> View | None:
    """A picture whose rows and columns do not move as wholes: channels and pixels change places, once or several
    times, or parts of rows move. None if nothing of that makes it."""
    if context.turns and view.pad == NO_PAD:
        if (chosen := _rows_and_columns(view)) is not None:
            return _put_elsewhere(context, name, view, *chosen)
        if (laid := _change_places(context, name, view, groups)) is not None:
            return laid
    try:
        runs = split_into_pieces(view.order[0], view.size, by_rows=True)
    except Refused:
        runs = None
    turns = context.turns and view.pad == NO_PAD
    if runs is not None:
        across = _put_together_across(context, name, view, sum(map(len, runs)) // 4) if turns else None
        return across or _put_together(context, name, view, runs)
    if (alike := _put_alike_together(context, name, view)) is not None or not turns:
        return alike
    return _put_together_across(context, name, view, MOST_PIECES) or _put_together_turned(context, name, view)


def _put_together_across(context: FloatContext, name: str, view: View, most: int) -> View | None:
    """As `_build_otherwise`, of at most so many pieces: channels and pixels change places when all is put together."""
    _, channels, rows, columns = view.shape
    across = view.moved(view.order.reshape(channels, -1).T.reshape(1, rows * columns, 1, channels))
    runs = _affordable(across.order, view.size)
    if runs is None or sum(map(len, runs)) > most:
        return None
    picture = _put_together(context, f"{name}/across", across, runs)
    return context.views[turn(context, picture.value, picture.size, 1, rows)]


def _put_together_turned(context: FloatContext, name: str, view: View) -> View | None:
    """As `_build_otherwise`: channels and pixels change places before parts of rows move."""
    _, _, rows, columns = view.shape
    for groups in _turns(view.size[0], rows * columns):
        size = turn_size(view.size, groups)
        if (runs := _affordable(turn_index(view.order, view.size, groups), size)) is not None:
            turned = View(turn(context, view.value, view.size, groups), size, view.shape)
            return _put_together(context, name, turned, runs)
    return None


def _affordable(order: NDArray[np.int64], size: Size) -> list[list[Piece]] | None:
    """A picture as parts of rows of a value; None if they are too many, or what selects their channels is too large."""
    try:
        runs = split_into_pieces(order[0], size, by_rows=True)
    except Refused:
        return None
    selected = {(piece.channels.tobytes(), len(piece.channels)) for pieces in runs for piece in pieces}
    return runs if sum(count for _, count in selected) * size[0] <= _MOST_SELECTED else None


def _has_maps(view: View) -> bool:
    """Whether each channel of a picture is a part of one channel of several rows."""
    channel = view.channel_of.reshape(view.shape[1], -1)
    return view.size[1] > 1 and bool(np.all(channel == channel[:, :1]))


def _put_alike_together(context: FloatContext, name: str, view: View) -> View | None:
    """As `_build_otherwise`: channels with the same pixels beside each other, and then each at its place."""
    pixel = view.order[0].reshape(view.shape[1], -1) % (view.size[1] * view.size[2])
    _, kinds = np.unique(pixel, axis=0, return_inverse=True)
    order = np.argsort(kinds.ravel(), kind="stable")
    if kinds.max() * 2 + 2 > np.count_nonzero(np.diff(kinds.ravel())) + 1:
        return None  # few more runs of channels than there are kinds
    beside = np.ascontiguousarray(view.order[:, order])
    for by_rows in (False, True):
        try:
            runs = split_into_pieces(beside[0], view.size, by_rows=by_rows)
        except Refused:
            continue
        picture = _put_together(context, f"{name}/alike", view.moved(beside), runs)
        plain = View(picture.value, picture.size, (1, *picture.size))
        return context.views[_select(context, plain, np.argsort(order), f"{name}/apart")]
    return None


def _change_places(context: FloatContext, name: str, view: View, groups: int) -> View | None:
    """As `_build_otherwise`, by the cheapest of the ways in which channels and pixels change places."""
    _, channels, rows, columns = view.shape
    steps = find_way(view.order.reshape(channels, rows * columns), view.size)
    if steps is None:
        return None
    value, size = view.value, view.size
    for at, step in enumerate(steps):
        ends = 0 < at == len(steps) - 1 and steps[at - 1].groups == groups
        if ends and np.array_equal(step.channels, np.arange(size[0])):
            break  # groups begin with words already
        # made anew even if all stay where they are: groups begin with words of their own in what a convolution makes
        value = _select(context, View(value, size, (1, *size)), step.channels, f"{name}/way{at}")
        size = len(step.channels), *size[1:]
        if step.groups:
            value = turn(context, value, size, step.groups)
            size = turn_size(size, step.groups)
    if rows > 1:
        row = View(value, size, (1, channels, rows, columns), np.arange(prod(size)).reshape(1, channels, rows, columns))
        return _put_together(context, name, row, split_into_pieces(row.order[0], size, by_rows=True))
    return context.views[value]


def place(context: FloatContext, name: str, view: View) -> View:
    """As `arrange`, also for tensors that have no name in the file."""
    if name in context.views or view.is_picture:
        return arrange(context, name, view)
    context.views[name] = view
    picture = arrange(context, name, view)
    del context.views[name]
    return picture


def spread(context: FloatContext, name: str, view: View, layout: Layout | None = None) -> View:
    """A view, some of whose elements may be repeated, as all of a value of its own. `name`: of the tensor, or a new
    one; `layout`: in which maps of a value lie, otherwise a picture's axes are as they are, and of other tensors
    the last axis along channels."""
    rank = len(view.shape)
    rows = view.size[1] if view.order.size % (view.size[1] * view.size[2]) == 0 else 1
    if layout is None:
        flat = rank < 3 or view.shape[0] != 1
        layout = Layout((rank - 1,), tuple(range(rank - 1))) if flat else Layout((1,), tuple(range(2, rank)))
        rows = 1 if flat or rank < 4 else view.shape[2]
    laid = layout.of(view.order)
    picture = place(context, name, view.moved(laid.reshape(1, len(laid), rows, -1)))
    whole = View(picture.value, picture.size, (1, *picture.size))
    return whole.moved(layout.index(view.shape))


def unrepeated(context: FloatContext, name: str, view: View) -> View:
    """A view itself, or, where elements of its value are in it several times, a value that has them so. `name`: as in
    `spread`."""
    if view.order.size <= prod(view.size) and np.all(np.bincount(view.order.ravel()) <= 1):
        return view
    return spread(context, context.fresh(name), view)


def _put_elsewhere(
    context: FloatContext, name: str, view: View, channels: NDArray[np.int64], pixels: NDArray[np.int64]
) -> View:
    """Some channels and pixels of a value in any order: pixels are chosen while they are channels."""
    chosen = emit_selection(context, view, channels, f"{name}/channels")
    size = len(channels), *view.size[1:]
    across = turn(context, chosen, size, 1)
    wide = View(across, turn_size(size, 1), (1, *turn_size(size, 1)))
    moved = emit_selection(context, wide, pixels, f"{name}/pixels")
    return context.views[turn(context, moved, (len(pixels), 1, size[0]), 1, view.shape[2])]


def turn(context: FloatContext, value: str, size: Size, groups: int, rows: int = 1) -> str:
    """The transpose of a value in groups of channels, in so many rows."""
    key = value, groups, rows
    if key not in context.transposes:
        name = context.fresh(f"{value}/turned" + (f"{groups}" if groups > 1 else ""))
        layer = FloatLayer("transpose", name, (value,), groups=groups, rows=rows)
        channels, _, pixels = turn_size(size, groups)
        context.transposes[key] = context.emit(layer, (channels, rows, pixels // rows))
    return context.transposes[key]


def lay(
    context: FloatContext,
    name: str,
    view: View,
    index: NDArray[np.int64],
    groups_of_reader: int = 0,
    *,
    as_wholes: bool = False,
) -> tuple[View, int]:
    """A value whose channels and pixels are the elements `index` [channels, pixels] of a view's value, and how many
    groups of channels changed places with pixels for it; 0 if none did. `name`: of the tensor; `groups_of_reader`: as
    in `arrange`; `as_wholes`: who reads it takes maps as wholes, so rows are no longer than an instruction's."""
    channels, pixels = index.shape
    rows = _fewest_rows(pixels) if as_wholes else 1
    if channels == view.size[0] and view.moved(index).index is None and (rows == 1 or view.size[2] <= _WIDEST):
        return replace(view, shape=(1, *view.size), index=None), 0
    for groups in _turns(view.size[0], pixels):
        size = turn_size(view.size, groups)
        if size[0] == channels and _is_whole(turn_index(index, view.size, groups), size):
            size = size[0], rows, pixels // rows
            return View(turn(context, view.value, view.size, groups, rows), size, (1, *size)), groups
    if (stacked := _stack_maps(context, name, view, index)) is not None:
        return stacked, 0
    if channels == 1 and context.turns and view.size[1] * view.size[2] < min(view.size[0], MOST_PIECES):
        size = turn_size(view.size, 1)
        if _is_whole(turn_index(index, view.size, 1), size):  # pixel by pixel
            whole = View(turn(context, view.value, view.size, 1), size, (1, *size))
            names = [_select(context, whole, np.array([at]), f"{name}/pixel{at}") for at in range(size[0])]
            places = [PastePlace(0, at * size[2], 1, 1, 1, size[2]) for at in range(size[0])]
            return context.views[emit_paste(context, context.fresh(f"{name}/behind"), names, places, (1, 1, pixels))], 0
    return arrange(context, name, view.moved(index.reshape(1, channels, rows, -1)), groups_of_reader), 0


def _fewest_rows(pixels: int) -> int:
    """In how many rows pixels lie if none may be too long; 1 where they do not divide so."""
    return next((rows for rows in range(1, MOST_PIECES) if pixels % rows == 0 and pixels // rows <= _WIDEST), 1)


def _stack_maps(context: FloatContext, name: str, view: View, index: NDArray[np.int64]) -> View | None:
    """As `lay`, if each channel is whole maps of a value one after the other: below each other."""
    channels, (count, rows, columns) = len(index), view.size
    each = count // channels
    if rows == 1 or columns == 1 or not 1 < each <= MOST_PIECES or view.pad != NO_PAD:
        return None
    if index.size != prod(view.size) or not _is_whole(index, view.size):
        return None
    whole = View(view.value, view.size, (1, *view.size))
    names = [_select(context, whole, np.arange(at, count, each), f"{name}/maps{at}") for at in range(each)]
    places = [PastePlace(at * rows, 0, 1, 1, rows, columns) for at in range(each)]
    size = channels, each * rows, columns
    return context.views[emit_paste(context, context.fresh(f"{name}/below"), names, places, size)]


def begin_words(context: FloatContext, view: View, groups: int) -> View:
    """A value whose groups of channels begin with words of their own: what is put together from parts is made anew by
    a convolution, unless its groups fill words of any chip."""
    layer = context.layers.get(view.value)
    if groups == 1 or layer is None or layer.kind != "concat" or view.size[0] // groups % _WIDEST_WORD == 0:
        return view
    raw = View(view.value, view.size, (1, *view.size))
    return context.views[_select(context, raw, np.arange(view.size[0]), f"{view.value}/words")]


def _build_picture(context: FloatContext, name: str, view: View, groups: int) -> View:
    selected, maker = find_channels(view), context.fusible(name, ("conv",))
    if selected is not None and maker and maker.w is not None and maker.bias is not None and not maker.moves:
        del context.layers[maker.output]  # other filters, or the same in another order
        maker.w, maker.bias = maker.w[selected], maker.bias[selected]
        maker.output = context.fresh(f"{name}/channels")
        context.emit(maker, (len(selected), *view.size[1:]))
        return context.views[maker.output]
    runs = split_into_pieces(view.order[0], view.size)
    many = sum(map(len, runs)) > _MANY and context.turns and view.pad == NO_PAD
    laid = _put_alike_together(context, name, view) if sum(map(len, runs)) > _MANY and _has_maps(view) else None
    if laid is None and many:
        laid = _change_places(context, name, view, groups)
    return laid or _put_together(context, name, view, runs)


def _put_together(context: FloatContext, name: str, view: View, runs: list[list[Piece]]) -> View:
    """A picture of runs of channels."""
    parts = [
        _emit_run(context, view, pieces, f"{name}/moved" + (f"{index}" if len(runs) > 1 else ""))
        for index, pieces in enumerate(runs)
    ]
    if len(parts) == 1:
        return context.views[parts[0]]
    layer = FloatLayer("concat", context.fresh(f"{name}/moved"), tuple(parts))
    context.emit(layer, (view.shape[1], view.shape[2], view.shape[3]))
    return context.views[layer.output]


def _remember(context: FloatContext, name: str, view: View, picture: View) -> View:
    """What is known of a tensor whose picture has been made: it is used again by who reads it too."""
    old = context.views[name]
    if old.order.size == view.order.size and np.array_equal(old.order.ravel(), view.order.ravel()):
        context.views[name] = replace(picture, shape=old.shape)
    return picture


def _emit_run(context: FloatContext, view: View, pieces: list[Piece], output: str) -> str:
    """The pieces of a run of channels."""
    chosen: dict[bytes, str] = {}
    parts: list[str] = []
    for index, piece in enumerate(pieces):
        key = piece.channels.tobytes()
        if key not in chosen:
            chosen[key] = emit_selection(context, view, piece.channels, f"{output}/channels{len(chosen)}")
        size = len(piece.channels), *view.size[1:]
        parts.append(emit_slice(context, chosen[key], f"{output}/part{index}", size, piece.window))
    places = tuple(piece.place for piece in pieces)
    if len(parts) == 1 and (places[0].top, places[0].left, places[0].step_h, places[0].step_w) == (0, 0, 1, 1):
        return parts[0]
    height, width = (max(place.end[axis] for place in places) for axis in (0, 1))
    return emit_paste(context, context.fresh(output), parts, places, (len(pieces[0].channels), height, width))


def emit_selection(context: FloatContext, view: View, channels: NDArray[np.int64], output: str) -> str:
    """Channels of a value, by a convolution that picks them."""
    if np.array_equal(channels, np.arange(view.size[0])):
        return view.value
    return _select(context, view, channels, output)


def _select(context: FloatContext, view: View, channels: NDArray[np.int64], output: str) -> str:
    count = view.size[0]
    w = np.zeros((len(channels), count, 1, 1))
    w[np.arange(len(channels)), channels] = 1
    layer = FloatLayer("conv", context.fresh(output), (view.value,), w=w, bias=np.zeros(len(w)), moves=True)
    return context.emit(layer, (len(channels), *view.size[1:]))


def pad_picture(context: FloatContext, name: str, view: View) -> View:
    """A picture with its zeros around it: depthwise layers of one tap."""
    padded, (top, left, bottom, right) = replace(view, pad=NO_PAD), view.pad
    while top + left + bottom + right:
        t, le = min(top, _MOST_PAD), min(left, _MOST_PAD)
        b, r = min(bottom, _MOST_PAD - t), min(right, _MOST_PAD - le)
        w = np.zeros((view.channels, 1, t + b + 1, le + r + 1))
        w[:, :, b, r] = 1
        window = Window(t + b + 1, le + r + 1, 1, 1, t + b, le + r, t + b, le + r)
        output = context.fresh(f"{name}/padded")
        layer = FloatLayer("depthwise", output, (padded.value,), window, w=w, bias=np.zeros(len(w)), moves=True)
        context.emit(layer, (padded.channels, *window.output(*padded.size[1:])))
        padded, (top, left, bottom, right) = context.views[output], (top - t, left - le, bottom - b, right - r)
    context.views[name] = padded
    return padded


def _turns(channels: int, pixels: int) -> list[int]:
    """In how many groups channels may change places with pixels, so that there are `pixels` of them then."""
    return [channels // pixels, 1] if channels % pixels == 0 and channels != pixels else [1]


def _rows_and_columns(view: View) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Channels and pixels of a value that a picture is of, if each of its channels has the same pixels."""
    channel, pixel = np.divmod(view.order[0].reshape(view.shape[1], -1), view.size[1] * view.size[2])
    alike = np.all(channel == channel[:, :1]) and np.all(pixel == pixel[:1])
    return (channel[:, 0], pixel[0]) if alike and max(pixel.shape[1], pixel.max() + 1) <= MOST_MOVED else None


def _is_whole(index: NDArray[np.int64], size: Size) -> bool:
    """Whether elements are all of a value, in its own order."""
    return index.size == prod(size) and np.array_equal(index.ravel(), np.arange(index.size))


def settle(context: FloatContext, name: str) -> View:
    """An operand without zeros that are still to come."""
    if context.view(name).pad != NO_PAD:
        as_picture(context, name)
    return context.view(name)
