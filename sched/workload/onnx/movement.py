"""Operators of float models that move values and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..graph import Place
from .bounds import check_size
from .constants import Constants
from .errors import Refused
from .floats import FloatLayer
from .views import NO_PAD, View, natural
from .windows import slices

if TYPE_CHECKING:
    from onnx import NodeProto


class Movement(Constants):
    # -- the same values in another order -------------------------------------------------------------------

    def settled(self, name: str) -> View:
        """An operand without zeros that are still to come."""
        view = self.view(name)
        return view if view.pad == NO_PAD else self.picture(name)

    def move(self, node: NodeProto, index: NDArray[np.int64], output: int = 0) -> None:
        """Result `output` has these elements of the operand's value."""
        if not index.size:
            raise Refused("its result is empty")
        self.budget.spend("places of rearranged numbers", index.size)
        self.see(node, self.view(node.input[0]).moved(np.ascontiguousarray(index)), output)

    def identity(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        self.pass_on(node)

    def dropout(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        training = self.optional(node, 2, "training mode")
        if training is not None and training.any():
            raise Refused("training_mode; export the model for inference")
        if len(node.output) > 1 and self.model.uses[node.output[1]]:
            raise Refused("its mask output is used")
        self.pass_on(node)

    def cast(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        from onnx import TensorProto

        if attributes["to"] not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
            raise Refused(f"to {TensorProto.DataType.Name(attributes['to'])}; only floating point is quantised")
        self.pass_on(node)

    def transpose(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        order = self.settled(node.input[0]).order
        self.move(node, order.transpose(attributes.get("perm", tuple(range(order.ndim))[::-1])))

    def flatten(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view = self.settled(node.input[0])
        axis = attributes.get("axis", 1)
        axis += len(view.shape) if axis < 0 else 0
        self.move(node, view.order.reshape(prod(view.shape[:axis]), -1))

    def reshape(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view = self.settled(node.input[0])
        wanted = self.constant(node, 1, "shape").tolist()
        if not attributes.get("allowzero"):
            wanted = [view.shape[i] if size == 0 and i < len(view.shape) else size for i, size in enumerate(wanted)]
        try:
            self.move(node, view.order.reshape(wanted))
        except ValueError:
            raise Refused(f"from {list(view.shape)} to {wanted}, which has another number of elements") from None

    def squeeze(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view, axes = self.settled(node.input[0]), self._axes(node, attributes)
        self.move(node, np.squeeze(view.order, None if axes is None else tuple(axes)))

    def unsqueeze(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view, axes = self.settled(node.input[0]), self._axes(node, attributes) or []
        self.move(node, np.expand_dims(view.order, tuple(axes)))

    def _axes(self, node: NodeProto, attributes: dict[str, Any]) -> list[int] | None:
        axes = self.optional(node, 1, "axes")
        return attributes.get("axes") if axes is None else axes.tolist()

    # -- some of the values ---------------------------------------------------------------------------------

    def slice(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view = self.settled(node.input[0])
        if self.model.opset < 10:
            starts, ends = np.array(attributes["starts"]), np.array(attributes["ends"])
            axes, steps = attributes.get("axes"), None
            axes = None if axes is None else np.array(axes)
        else:
            starts, ends = self.constant(node, 1, "starts"), self.constant(node, 2, "ends")
            axes, steps = self.optional(node, 3, "axes"), self.optional(node, 4, "steps")
        self.move(node, view.order[slices(view.shape, starts, ends, axes, steps)])

    def gather(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view = self.settled(node.input[0])
        indices, axis = self.constant(node, 1, "indices"), attributes.get("axis", 0) % len(view.shape)
        check_size((*view.shape[:axis], *indices.shape, *view.shape[axis + 1 :]))
        self.move(node, np.take(view.order, indices, axis))

    def split(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view, count = self.settled(node.input[0]), len(node.output)
        axis: int = attributes.get("axis", 0)
        given = attributes.get("split") if self.model.opset < 13 else self.optional(node, 1, "sizes")
        whole = view.shape[axis]
        each = -(-whole // count)
        sizes = (
            [min(each, whole - each * index) for index in range(count)]
            if given is None
            else [int(size) for size in given]
        )
        if sum(sizes) != whole:
            raise Refused(f"into parts of {sizes} of {whole}")
        parts = np.split(view.order, np.cumsum(np.array(sizes, np.int64))[:-1], axis)
        for index, part in enumerate(parts):
            if node.output[index]:
                self.move(node, part, index)
                self.views[node.output[index]] = replace(self.views[node.output[index]], single=count == 1)

    # -- between channels and pixels ------------------------------------------------------------------------

    def space_to_depth(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        order, block = self.picture(node.input[0]).order, attributes["blocksize"]
        _, c, h, w = order.shape
        if h % block or w % block:
            raise Refused(f"{h} rows and {w} columns in blocks of {block}")
        blocks = order.reshape(c, h // block, block, w // block, block).transpose(2, 4, 0, 1, 3)
        self.move(node, blocks.reshape(1, -1, h // block, w // block))

    def depth_to_space(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        order, block = self.picture(node.input[0]).order, attributes["blocksize"]
        _, c, h, w = order.shape
        if c % (block * block):
            raise Refused(f"{c} channels in blocks of {block}x{block}")
        if attributes.get("mode", "DCR") == "DCR":
            blocks = order.reshape(block, block, -1, h, w).transpose(2, 3, 0, 4, 1)
        else:
            blocks = order.reshape(-1, block, block, h, w).transpose(0, 3, 1, 4, 2)
        self.move(node, blocks.reshape(1, -1, h * block, w * block))

    # -- some of them several times -------------------------------------------------------------------------

    def tile(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        order, repeats = self.settled(node.input[0]).order, self.constant(node, 1, "repeats").tolist()
        check_size([size * count for size, count in zip(order.shape, repeats, strict=True)])
        self.move(node, np.tile(order, repeats))

    def expand(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        order, shape = self.settled(node.input[0]).order, tuple(self.constant(node, 1, "shape").tolist())
        whole = np.broadcast_shapes(order.shape, shape)
        check_size(whole)
        self.move(node, np.broadcast_to(order, whole))

    def pad(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view, mode = self.view(node.input[0]), attributes.get("mode", "constant")
        rank = len(view.shape)
        if self.model.opset < 11:
            pads, value = list(attributes["pads"]), attributes.get("value", 0.0)
        else:
            given = self.constant(node, 1, "padding").tolist()
            constant, axes = self.optional(node, 2, "value"), self.optional(node, 3, "axes")
            value = 0.0 if constant is None else float(constant.flat[0])
            places = range(rank) if axes is None else [axis % rank for axis in axes.tolist()]
            pads = [0] * (2 * rank)
            for index, axis in enumerate(places):
                pads[axis], pads[axis + rank] = given[index], given[index + len(given) // 2]
        check_size([max(0, size + pads[axis] + pads[axis + rank]) for axis, size in enumerate(view.shape)])
        if mode != "constant":
            view = self.settled(node.input[0])
            if min(pads) < 0:
                raise Refused(f"mode = {mode} with pads {pads}; they must be 0 or more")
            sides = list(zip(pads[:rank], pads[rank:], strict=True))
            modes: dict[str, Any] = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}
            self.move(node, np.pad(view.order, sides, modes[mode]))
            return
        if min(pads) < 0:
            cut = tuple(
                slice(max(0, -a), view.shape[axis] - max(0, -b))
                for axis, (a, b) in enumerate(zip(pads[:rank], pads[rank:], strict=True))
            )
            view = self.settled(node.input[0])
            self.move(node, view.order[cut])
            pads = [max(0, pad) for pad in pads]
        else:
            self.pass_on(node)
        if not any(pads):
            return
        if value == 0:
            self._zeros(node.output[0], pads)
            return
        self.only_if_generous(f"pads with {value:g}")
        if not np.isfinite(value) or abs(value) > 1e4:
            raise Refused(f"pads with {value:g}")
        name, view = node.output[0], self.settled(node.output[0])  # zeros around what is less by the value
        less = self._moved_by(view, -value, f"{name}/less")
        self.views[name] = less
        self._zeros(name, pads)
        self.views[name] = self._moved_by(self.settled(name), value, f"{name}/padded")

    def _moved_by(self, view: View, number: float, name: str) -> View:
        """A tensor and a number."""
        ones = np.ones((view.channels, 1, 1, 1))
        layer = FloatLayer("depthwise", self.fresh(name), (view.value,), w=ones, bias=np.full(view.channels, number))
        self.emit(layer, view.size)
        return replace(view, value=layer.output, single=True)

    def _zeros(self, name: str, pads: Sequence[int]) -> None:
        """Zeros around a tensor; they wait for who reads it."""
        view = self.views[name]
        if view.pad == NO_PAD and (axes := natural(view)) and len(axes) == 4:
            pads = [*(pads[axis] for axis in axes), *(pads[axis + 4] for axis in axes)]
            if axes != (0, 1, 2, 3):
                self.views[name] = view = view.moved(view.order.transpose(axes))
                back = tuple(np.argsort(axes).tolist())
                if not any(pads[at] for at in (0, 1, 4, 5)):
                    padded = self._padded(name, replace(view, pad=(pads[2], pads[3], pads[6], pads[7])))
                    self.views[name] = padded.moved(padded.order.transpose(back))
                    return
        view = self.picture(name, padded=True)
        if len(pads) == 6:
            pads = [*pads[:2], 0, pads[2], *pads[3:5], 0, pads[5]]
        if any(pads[at] for at in (0, 1, 4, 5)):
            raise Refused(f"pads {list(pads)}; only rows and columns can be padded")
        top, left, bottom, right = (a + b for a, b in zip(view.pad, (pads[2], pads[3], pads[6], pads[7]), strict=True))
        self.views[name] = replace(view, pad=(top, left, bottom, right))

    # -- several values -------------------------------------------------------------------------------------

    def concat(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        rank = len(next(self.view(name) for name in node.input if name in self.views).shape)
        axis = attributes["axis"] % rank
        self._made_tensors(node, axis)
        views = [self.settled(name) for name in node.input]
        orders = {natural(view) for view in views}
        order = orders.pop() if len(orders) == 1 else None
        if rank <= 2 and all(view.size == (view.shape[-1], 1, prod(view.shape[:-1])) for view in views):
            self.only_if_generous("operands are flattened pictures; concatenate them before")
            self._vectors_together(node, [self.laid_out(name) for name in node.input], axis)
            return
        if order is None:
            if rank == 2 or any(len(view.shape) == 2 for view in views):
                raise Refused("operands are flattened pictures; concatenate them before")
            views, order = [self.picture(name) for name in node.input], tuple(range(rank))
        where = order.index(axis) + (rank == 3 and order.index(axis) == 2)
        sizes = [view.size for view in views]
        names = tuple(view.value for view in views)
        if where == 0 or len({(*size[: where - 1], *size[where:]) for size in sizes}) > 1:
            raise Refused(f"along axis {axis} of operands of shapes {[list(view.shape) for view in views]}")
        if len(names) == 1:
            self.pass_on(node)
            return
        whole = sum(size[where - 1] for size in sizes)
        size = tuple(whole if at == where - 1 else part for at, part in enumerate(sizes[0]))
        places: list[Place] = []
        first = 0
        for _, rows, columns in sizes if where > 1 else ():
            places.append(Place(first * (where == 2), first * (where == 3), 1, 1, rows, columns))
            first += rows if where == 2 else columns
        kind = "paste" if places else "concat"
        self.emit(FloatLayer(kind, node.output[0], names, places=tuple(places)), (size[0], size[1], size[2]))
        made = self.views[node.output[0]]
        shape = (1, size[0], size[2]) if rank == 3 else (1, *size)[:rank]
        self.keep_view(node.output[0], made.moved(made.order.reshape(shape).transpose(np.argsort(order))))

    def laid_out(self, name: str) -> View:
        """Vectors [vectors, features] or [features] as a picture of one row, features being channels."""
        view = self.settled(name)
        rows = view.order.reshape(-1, view.shape[-1])
        return self.laid(name, view, np.ascontiguousarray(rows.T))[0]

    def _vectors_together(self, node: NodeProto, views: Sequence[View], axis: int) -> None:
        if len(views) == 1:
            self.pass_on(node)
            return
        rank = len(self.view(node.input[0]).shape)
        names, sizes = tuple(view.value for view in views), [view.size for view in views]
        if axis == rank - 1:
            self.emit(FloatLayer("concat", node.output[0], names), (sum(size[0] for size in sizes), *sizes[0][1:]))
        else:
            first = np.cumsum([0, *(size[2] for size in sizes)]).tolist()
            places = tuple(Place(0, left, 1, 1, 1, size[2]) for left, size in zip(first, sizes, strict=False))
            self.emit(FloatLayer("paste", node.output[0], names, places=places), (sizes[0][0], 1, first[-1]))
        made = self.views[node.output[0]]
        features, _, vectors = made.size
        index = made.order.reshape(features, vectors).T
        self.keep_view(node.output[0], made.moved(np.ascontiguousarray(index[0] if rank == 1 else index)))

    def _made_tensors(self, node: NodeProto, axis: int) -> None:
        """Makes tensors of constant operands; as many rows, columns or channels of the first tensor as they have."""
        like = self.settled(next(name for name in node.input if name in self.views))
        for name in node.input:
            if name in self.views:
                continue
            array = self.constants[name]
            if array.shape[:axis] + array.shape[axis + 1 :] != like.shape[:axis] + like.shape[axis + 1 :]:
                raise Refused(f"a constant of shape {list(array.shape)} beside an operand of {list(like.shape)}")
            order = natural(like)
            if order is None or len(order) < 3:
                raise Refused("a constant beside flattened pictures; concatenate it before")
            moved = array.transpose(order)
            moved = moved[:, :, None] if moved.ndim == 3 else moved
            value = self.map_of(moved[0], like, f"{node.output[0]}/constant")
            made = View(value, moved.shape[1:], (1, *moved.shape[1:]))
            shape = tuple(array.shape[at] for at in order)
            self.views[name] = made.moved(made.order.reshape(shape).transpose(np.argsort(order)))


MOVEMENT = {
    "Cast": "cast",
    "Concat": "concat",
    "DepthToSpace": "depth_to_space",
    "Dropout": "dropout",
    "Expand": "expand",
    "Flatten": "flatten",
    "Gather": "gather",
    "Identity": "identity",
    "Pad": "pad",
    "Reshape": "reshape",
    "Slice": "slice",
    "SpaceToDepth": "space_to_depth",
    "Split": "split",
    "Squeeze": "squeeze",
    "Tile": "tile",
    "Transpose": "transpose",
    "Unsqueeze": "unsqueeze",
}
