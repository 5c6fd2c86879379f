"""One layer on one chip, for the author of a scheduler: counts words of tiles, and adds operations one by one.

The operations mean what they would mean if each ran after the previous one has ended. On the chip all independent
operations overlap: each core issues its loads and stores in the order in which they were added, and likewise its GEMMs.
Two ranges of a memory used in turn make double buffering; a store added before the next tile's loads delays these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from inspect import currentframe, signature
from operator import index
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Addend, Region, address

from ...ir import bodies
from ...ir.schedule import Box, Piece, Schedule
from ...support.text import line_of
from ...workload.layers import ConvShape
from ..memory.placement import Allocator, Dram, Stored, Transfer
from ..memory.tensors import tensors_of
from ..nodes import Node, Run, sites_of
from ..tiling.plan import box, gemm_cycles
from ..tiling.problem import (
    FLAT_WIDTH,
    MAX_IN_WIDTH,
    MAX_K_BLOCKS,
    MAX_N_BLOCKS,
    MAX_PAD,
    MAX_PIXELS,
    MAX_PLANE,
    DoesNotFit,
    Problem,
    Taps,
    pose,
)
from ..tiling.tiles import MTile, Range
from .fields import window_fields

_P = ParamSpec("_P")
_R = TypeVar("_R")


class TaskError(ValueError):
    """An operation that the layer does not have: an unknown tile, block or core, or words outside a memory."""


def ranges(end: int, step: int) -> list[Range]:
    """[0, end) in ranges of `step`; the last one holds the remainder."""
    return [(at, min(at + step, end)) for at in range(0, end, step)]


def progressions(numbers: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Rising numbers as (first, end, step), as few as a walk along them finds."""
    at = 0
    while at < len(numbers):
        step = numbers[at + 1] - numbers[at] if at + 1 < len(numbers) else 1
        count = 1
        while at + count < len(numbers) and numbers[at + count] - numbers[at + count - 1] == step:
            count += 1
        yield numbers[at], numbers[at + count - 1] + 1, step
        at += count


def _site() -> str:
    """The innermost line outside this file that is being executed: `line 12 of first.py`."""
    frame = currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return line_of(frame.f_code.co_filename, frame.f_lineno) if frame is not None else ""


def _with_ints(method: Callable[Concatenate[LayerTask, _P], _R]) -> Callable[Concatenate[LayerTask, _P], _R]:
    """The same method for whole numbers of any type, such as numpy's: it gets ints. Others raise TaskError."""
    kinds = {name: str(each.annotation) for name, each in signature(method).parameters.items()}
    kinds.pop("self")

    @wraps(method)
    def called(task: LayerTask, *args: _P.args, **named: _P.kwargs) -> _R:
        ordered: list[Any] = [_int(task, *kind, value) for kind, value in zip(kinds.items(), args, strict=False)]
        others: dict[str, Any] = {name: _int(task, name, kinds.get(name, ""), value) for name, value in named.items()}
        same: Any = method
        return same(task, *ordered, *args[len(kinds) :], **others)

    return called


def _int(task: LayerTask, name: str, kind: str, value: Any) -> Any:
    """An argument as an int, or with ints in it; what is annotated as neither stays as it is."""
    if type(value) is int or value is None or kind == "str":
        return value
    try:
        return _ints(value) if kind.startswith("int") or isinstance(value, tuple | list | np.ndarray) else value
    except TypeError:
        raise TaskError(
            f"layer {task.shape.name}: {name} = {value!r}: whole numbers are wanted; give ints, such as int(...)"
        ) from None


def _ints(value: Any) -> Any:
    """Raises TypeError for what is no whole number."""
    if isinstance(value, tuple | list) or np.ndim(value):
        some = cast("Sequence[Any]", value)
        if all(type(each) is int for each in some):
            return some
        ints = [_ints(each) for each in some]
        return type(some)(*ints) if isinstance(some, MTile | Run) else tuple(ints)
    return index(value)


class LayerTask:
    """A convolution (or matrix product) to be scheduled, and its operations so far.

    The layer has `images` x `rows` x `columns` pixels of output, `n_blocks` blocks of output channels (`chip.cols`
    each) and `k_blocks` blocks of input channels (`chip.lanes` each). A 1x1 layer without strides is one column of
    pixels. Ranges are (first, end). `core` is a tile of `cores`; addresses are words in the memory that an operation
    names: A (inputs), B (weights), ACC (32-bit sums and biases, in rows of the array's width), OUT (results).

    In a network `x` and `y` are already placed and `dram` allocates the rest; `result` is the name of the output. With
    `flat=False` a 1x1 layer keeps its rows and columns of pixels.
    Raises DoesNotFit for a layer that the chip cannot run at all.
    """

    def __init__(  # a network places each of the layer's tensors; a single layer places none
        self,
        shape: ConvShape,
        chip: ChipConfig,
        scale: int,
        *,
        x: Stored | None = None,
        y: Stored | None = None,
        dram: Allocator | None = None,
        packed: bool | None = None,
        flat: bool = True,
        result: str = "",
    ) -> None:
        self.shape, self.chip, self.cores = shape, chip, chip.cores
        self.problem: Problem = pose(shape, chip, packed, flat)
        self._result, self._nodes = result, list[Node]()
        self._fixed = {"scale": scale, "relu": int(shape.relu), "clamp": shape.clamp}
        p, homes = self.problem, chip.drams
        dram = dram or Dram(chip)

        def home(plane: int, _: int) -> int:
            return homes[plane % len(homes)]

        def seen(stored: Stored) -> Stored:
            return stored.flattened() if p.flat else stored

        self._x = seen(x) if x else Stored(dram, p.images * p.k_blocks, p.stored_rows, p.in_w, [0], home)
        self._y = seen(y) if y else Stored(dram, p.images * p.n_blocks, p.out_rows, p.out_w, [0], home)
        self._w = Stored(dram, p.n_blocks, p.k_blocks * p.taps, p.cols, [0], home)
        self._bias = Stored(dram, 1, p.n_blocks, 4, [0], lambda _, __: homes[-1])

    # -- the layer ----------------------------------------------------------------------------------------------------

    @property
    def images(self) -> int:
        return self.problem.images

    @property
    def rows(self) -> int:
        """Rows of output."""
        return self.problem.out_rows

    @property
    def columns(self) -> int:
        """Columns of output."""
        return self.problem.out_w

    @property
    def n_blocks(self) -> int:
        """Blocks of output channels."""
        return self.problem.n_blocks

    @property
    def k_blocks(self) -> int:
        """Blocks of input channels."""
        return self.problem.k_blocks

    @_with_ints
    def tiles(self, rows: int, columns: int | None = None) -> list[MTile]:
        """All output tiles of at most `rows` x `columns` pixels, image by image and row by row. Raises TaskError for
        numbers below 1."""
        for what, number in (("rows", rows), ("columns", columns)):
            if number is not None and number < 1:
                raise TaskError(f"layer {self.shape.name}: there are no tiles of {number} {what}; give 1 or more")
        return [
            MTile(image, r0, r1, c0, c1)
            for image in range(self.images)
            for r0, r1 in ranges(self.rows, rows)
            for c0, c1 in ranges(self.columns, columns or self.columns)
        ]

    @_with_ints
    def input_words(self, tile: MTile, k: Range, taps: Taps | None = None) -> int:
        """Words of A for the inputs of a tile: those that its windows reach in input blocks `k`. `taps`: rows and
        columns of the kernel (None: all), here and below."""
        (i0, i1), (j0, j1), _, _ = box(self._part(taps), tile)
        return (i1 - i0) * (j1 - j0) * (k[1] - k[0])

    @_with_ints
    def weight_words(self, n: Range, k: Range, taps: Taps | None = None) -> int:
        """Words of B for the weights of output blocks `n` and input blocks `k`."""
        return (n[1] - n[0]) * (k[1] - k[0]) * self._part(taps).taps * self.problem.cols

    @_with_ints
    def result_words(self, tile: MTile, n: Range) -> int:
        """Words of OUT, or rows of ACC, for the results or sums of a tile."""
        return tile.pixels * (n[1] - n[0])

    @_with_ints
    def fits_gemm(self, tile: MTile, n: Range, k: Range, taps: Taps | None = None) -> bool:
        """Whether one GEMM instruction can compute it: its fields have a limited width."""
        return not self._beyond(tile, n, k, taps)

    # -- operations ---------------------------------------------------------------------------------------------------

    @_with_ints
    def load_input(self, core: int, tile: MTile, k: Range, at: int, taps: Taps | None = None) -> None:
        """Inputs of a tile for input blocks `k`, from DRAM to word `at` of A, as `[block][row][column]`."""
        self._in_range("k", k, self.k_blocks)
        (i0, i1), columns, _, _ = box(self._part(taps), tile)
        p, first = self.problem, tile.image * self.k_blocks
        self._inside(core, "A", at, self.input_words(tile, k, taps), self.chip.core.a_words)
        rows = i0 * p.row_step, (i1 - 1) * p.row_step + 1, p.row_step
        there = self._x.transfers((first + k[0], first + k[1]), rows, columns, core, address(Region.MAIN, at))
        self._load(core, f"x i{tile.image} y{tile.r0} x{tile.c0} k{k[0]}", there)

    @_with_ints
    def load_weights(self, core: int, n: Range, k: Range, at: int, taps: Taps | None = None) -> None:
        """Weights from DRAM to word `at` of B."""
        p, ((ky0, ky1), (kx0, kx1)) = self.problem, taps or self._whole()
        self._in_range("n", n, self.n_blocks)
        self._in_range("k", k, self.k_blocks)
        self._inside(core, "B", at, self.weight_words(n, k, taps), self.chip.core.b_words)
        windows = [
            (block * p.kernel_h + ky) * p.kernel_w + kx
            for block in range(*k)
            for ky in range(ky0, ky1)
            for kx in range(kx0, kx1)
        ]
        done, plane = 0, len(windows) * p.cols
        for first, end, step in progressions(windows):
            to = address(Region.B, at + done * p.cols)
            there = self._w.transfers(n, (first, end, step), (0, p.cols), core, to, plane)
            self._load(core, f"w n{n[0]} k{k[0]}", there)
            done += len(range(first, end, step))

    @_with_ints
    def load_bias(self, core: int, n: Range, at: int) -> None:
        """Biases from DRAM to row `at` of ACC, one row for each output block."""
        self._in_range("n", n, self.n_blocks)
        self._inside(core, "ACC", at, n[1] - n[0], self.chip.core.acc_words)
        there = self._bias.transfers((0, 1), (*n, 1), (0, 4), core, address(Region.ACC, 4 * at))
        self._load(core, f"bias n{n[0]}", there)

    @_with_ints
    def gemm(  # one address for each memory that it uses
        self, core: int, tile: MTile, n: Range, k: Range, *, a: int, b: int, bias: int, sums: int, out: int,
        taps: Taps | None = None,
    ) -> None:  # fmt: skip
        """Computes a tile for output blocks `n` from input blocks `k`: inputs at word `a` of A, weights at `b` of B.

        With the first input block and tap it adds the biases at row `bias` of ACC, otherwise the sums at row `sums`.
        With the last ones it requantises the results to word `out` of OUT, otherwise it leaves the sums at `sums`.
        """
        self._in_range("n", n, self.n_blocks)
        self._in_range("k", k, self.k_blocks)
        if beyond := self._beyond(tile, n, k, taps):
            raise TaskError(f"layer {self.shape.name}: a GEMM has {beyond}; cut the tile")
        first, last, p = *self.ends(k, taps), self._part(taps)
        words, core_has = self.result_words(tile, n), self.chip.core
        self._inside(core, "A", a, self.input_words(tile, k, taps), core_has.a_words)
        self._inside(core, "B", b, self.weight_words(n, k, taps), core_has.b_words)
        if last:
            self._inside(core, "OUT", out, words, core_has.out_words)
        if not (first and last):
            self._inside(core, "ACC", sums, words, core_has.acc_words)
        if first and not last and bias < sums + words and sums < bias + n[1] - n[0]:
            raise TaskError(
                f"layer {self.shape.name}: bias = {bias} and sums = {sums} of a GEMM overlap in ACC, which has "
                f"{n[1] - n[0]} rows of biases and {words} of sums; give sums other rows"
            )
        body = bodies.gemm(
            **window_fields(p, tile, a, b, n[1] - n[0], k[1] - k[0]),
            addend=Addend.BIAS if first else Addend.PARTIAL,
            addend_base=bias if first else sums,
            to_acc=int(not last),
            dest_base=out if last else sums,
        )
        cycles = gemm_cycles(p, n[1] - n[0], tile.pixels, (k[1] - k[0]) * p.taps)
        label = f"i{tile.image} y{tile.r0} x{tile.c0} n{n[0]} k{k[0]}"
        box = self._box(tile, n) if last else None
        self._add(Node(core, [], label, fields=body | self._fixed, cycles=cycles, result=box))

    @_with_ints
    def store(self, core: int, tile: MTile, n: Range, at: int) -> None:
        """Results at word `at` of OUT to their place in DRAM."""
        self._in_range("n", n, self.n_blocks)
        self._inside(core, "OUT", at, self.result_words(tile, n), self.chip.core.out_words)
        first = tile.image * self.n_blocks
        planes, rows, columns = (first + n[0], first + n[1]), (tile.r0, tile.r1, 1), (tile.c0, tile.c1)
        label = f"y i{tile.image} y{tile.r0} x{tile.c0} n{n[0]}"
        for t in self._y.transfers(planes, rows, columns, core, address(Region.OUT, at)):
            self._add(t.store(core, label))

    @_with_ints
    def move(self, issuer: int, source: Run, target: Run, words: int, label: str = "") -> None:
        """Any other MOVE, such as one to a scratchpad bank. `issuer`: the tile whose mover stream issues it."""
        self._add(Node(issuer, [], label, source, target, words))

    # -- results --------------------------------------------------------------------------------------------------

    def operations(self) -> list[Node]:
        """The operations so far, in order. Raises TaskError if there are none."""
        if not self._nodes:
            raise TaskError(
                f"layer {self.shape.name}: the scheduler has added no operation; call gemm and store "
                "of its task (what it returns does not count)"
            )
        return self._nodes

    def constants(self) -> dict[str, tuple[Piece, ...]]:
        """Where weights ("w") and biases ("bias") are stored."""
        return {"w": self._w.pieces(), "bias": self._bias.pieces()}

    def schedule(self, scheduler: str) -> Schedule:
        """The layer's Schedule, made by `scheduler`."""
        pieces = {"x": self._x.pieces(), "y": self._y.pieces()} | self.constants()
        return Schedule(
            chip=self.chip.name,
            chip_digest=self.chip.digest,
            workload=self.shape.name,
            scheduler=scheduler,
            operations=tuple(node.operation() for node in self.operations()),
            tensors=tensors_of(self.shape, self.chip, self.problem.packed, pieces),
            sites=sites_of(self.operations()),
        )

    def ends(self, k: Range, taps: Taps | None = None) -> tuple[bool, bool]:
        """Whether a GEMM of these input blocks and taps begins sums, and whether it completes them."""
        (ky0, ky1), (kx0, kx1) = taps or self._whole()
        whole = self.problem.kernel_h, self.problem.kernel_w
        return k[0] == ky0 == kx0 == 0, k[1] == self.k_blocks and (ky1, kx1) == whole

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _add(self, node: Node) -> None:
        """Adds an operation, with the line of its author's that asks for it."""
        node.site = _site()
        self._nodes.append(node)

    def _load(self, core: int, label: str, there: Iterable[Transfer]) -> None:
        for t in there:
            self._add(t.load(core, label))

    def _box(self, tile: MTile, n: Range) -> Box | None:
        if not self._result or tile.image:
            return None
        return Box(
            tensor=self._result, plane=n[0], planes=n[1] - n[0], row=tile.r0, rows=tile.r1 - tile.r0, column=tile.c0,
            columns=tile.c1 - tile.c0,
        )  # fmt: skip

    def _whole(self) -> Taps:
        return (0, self.problem.kernel_h), (0, self.problem.kernel_w)

    def _part(self, taps: Taps | None) -> Problem:
        return self.problem if taps is None else self.problem.part(taps)

    def _beyond(self, tile: MTile, n: Range, k: Range, taps: Taps | None) -> str:
        """The first count of a GEMM that exceeds its instruction field; empty if all fit."""
        (i0, i1), (j0, j1), top, left = box(self._part(taps), tile)
        for what, value, limit in (
            ("pixels", tile.pixels, MAX_PIXELS),
            ("input columns", FLAT_WIDTH if self.problem.flat else j1 - j0, MAX_IN_WIDTH),
            ("words in a plane of inputs", (i1 - i0) * (j1 - j0), MAX_PLANE),
            ("output blocks", n[1] - n[0], MAX_N_BLOCKS),
            ("input blocks", k[1] - k[0], MAX_K_BLOCKS),
            ("rows or columns of padding", max(top, left), MAX_PAD),
        ):
            if value > limit:
                return f"{value} {what}, at most {limit} are possible"
        return ""

    def _in_range(self, what: str, some: Range, end: int) -> None:
        try:
            first, last = some
        except (TypeError, ValueError):
            raise TaskError(
                f"layer {self.shape.name}: blocks {what} = {some!r} are no pair; give the first and the end, such as "
                f"(0, {end})"
            ) from None
        if not 0 <= first < last <= end:
            raise TaskError(f"layer {self.shape.name}: blocks {what} = {some} are not within (0, {end})")

    def _inside(self, core: int, memory: str, at: int, words: int, have: int) -> None:
        if core not in self.cores:
            raise TaskError(f"layer {self.shape.name}: {self.chip.name} has no core {core}; take one of {self.cores}")
        if at < 0:
            raise TaskError(f"layer {self.shape.name}: {memory} has no word {at}; its words are 0..{have - 1}")
        if at + words > have:
            raise DoesNotFit(
                f"layer {self.shape.name}: {memory} of a {self.chip.name} core is too small: words {at}.."
                f"{at + words - 1} are used, it has {have}"
            )
