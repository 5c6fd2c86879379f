"""The operations of a fused group in order: each GEMM in the iteration in which it is planned, or as soon after it as
its inputs are there and those who read its result have room for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshloom.hw.spec.isa import Region, address

from ...mapping.emit.task import LayerTask, TaskError
from ...mapping.nodes import Node, Run
from ...mapping.tiling.tiles import MTile, Range
from ..nest.mapping import MappingError
from .parts import FusedPart, InputWindow, InputWindows, rows_of


@dataclass(eq=False)
class _OutResult:
    """What a GEMM has left in OUT, word `at` on, and the windows that still have to get it."""

    part: FusedPart
    tile: MTile
    n: Range
    at: int
    targets: list[tuple[InputWindows, InputWindow]]

    @property
    def box(self) -> tuple[Range, Range, Range]:
        return self.n, (self.tile.r0, self.tile.r1), (self.tile.c0, self.tile.c1)


class GroupFlow:
    """Adds the operations of a group to its layers' tasks, and has all of them in one order."""

    def __init__(self, parts: Sequence[FusedPart]) -> None:
        self.parts = parts
        self.nodes: list[Node] = []
        self._readers: dict[str, list[InputWindows]] = {}
        for part in parts:
            if part.windows is not None:
                self._readers.setdefault(part.layer.source, []).append(part.windows)
        self._waiting: dict[int, list[_OutResult]] = {part.core: [] for part in parts}  # by core
        self._out = dict.fromkeys(self._waiting, 0)  # words of OUT from where the next result may lie
        self._taken: dict[LayerTask, int] = {}

    def run(self) -> list[Node]:
        """All operations. Raises MappingError if the group comes to a halt for want of room."""
        while heads := [part for part in self.parts if part.step is not None]:
            heads.sort(key=_planned)
            ready = next((part for part in heads if self._is_ready(part)), None)
            if ready is None:
                raise MappingError(self._halt(heads))
            self._add(ready)
        for core in self._waiting:
            self._send(core)
        return self.nodes

    def _is_ready(self, part: FusedPart) -> bool:
        windows = part.windows
        if windows is not None and windows.all[part.inputs[part.next]].missing:
            return False
        return all(
            sum(window.at is None for window in touched) <= reader.free for reader, touched in self._targets(part)
        )

    def _targets(self, part: FusedPart) -> list[tuple[InputWindows, list[InputWindow]]]:
        """Who gets the result of a part's next GEMM."""
        assert part.step is not None
        gemm, task = part.step.gemm, part.layer.task
        readers = self._readers.get(part.layer.name, ())
        if not readers or not task.ends(gemm.k, gemm.taps)[1]:
            return []
        tile = gemm.tile
        box = gemm.n, (tile.r0, tile.r1), (tile.c0, tile.c1)
        return [(reader, touched) for reader in readers if (touched := reader.touched(*box))]

    def _halt(self, heads: Sequence[FusedPart]) -> str:
        for part in heads:
            for reader, touched in self._targets(part):
                if (need := sum(window.at is None for window in touched)) > reader.free:
                    shelf, core = reader.shelf, reader.part
                    return (
                        f"A of a {core.layer.task.chip.name} core has room for {shelf.slots} input tiles of "
                        f"{core.layer.name} ({shelf.words} words each), and {shelf.slots - reader.free + need} are "
                        "needed at a time; take smaller tiles, or cut the group there"
                    )
        return f"{heads[0].layer.name} waits for what no layer of its group makes; cut the group there"

    def _add(self, part: FusedPart) -> None:
        """The next GEMM of a part, with what it needs before and what it leaves."""
        assert part.step is not None
        gemm, task, core, index = part.step.gemm, part.layer.task, part.core, part.next
        places, windows = part.places, part.windows
        if places["bias"].fresh[index]:
            task.load_bias(core, gemm.n, places["bias"].at[index])
        if places["b"].fresh[index]:
            task.load_weights(core, gemm.n, gemm.k, places["b"].at[index], gemm.taps)
        a = places["a"].at[index] if windows is None else 0
        if windows is None and places["a"].fresh[index]:
            task.load_input(core, gemm.tile, gemm.k, a, gemm.taps)
        self._collect(part)
        if windows is not None:
            window = windows.all[part.inputs[index]]
            assert window.at is not None
            a = window.at
            for other, results in self._waiting.items():
                if any(to is window for result in results for _, to in result.targets):
                    self._send(other)
        ends = task.ends(gemm.k, gemm.taps)[1]
        out = self._room(core, task.result_words(gemm.tile, gemm.n)) if ends else 0
        task.gemm(
            core, gemm.tile, gemm.n, gemm.k, a=a, b=places["b"].at[index], bias=places["bias"].at[index],
            sums=places["sums"].at[index], out=out, taps=gemm.taps,
        )  # fmt: skip
        self._collect(part)
        self._send(core)
        if ends:
            targets = [(reader, window) for reader, touched in self._targets(part) for window in touched]
            result = _OutResult(part, gemm.tile, gemm.n, out, targets)
            for reader, window in targets:
                reader.take(window)
                window.missing -= _common(result, reader, window)
            self._waiting[core].append(result)
        if windows is not None:
            windows.used(part.inputs[index])
        part.next += 1

    def _room(self, core: int, words: int) -> int:
        """Where a result lies in OUT: behind the last one, or at the beginning. One that waits there leaves first."""
        end = next(part.layer.task.chip.core.out_words for part in self.parts)
        at = self._out[core] if self._out[core] + words <= end else 0
        self._out[core] = at + words
        for result in self._waiting[core]:
            size = result.part.layer.task.result_words(result.tile, result.n)
            if at < result.at + size and result.at < at + words:
                self._send(core)
                break
        return at

    def _collect(self, part: FusedPart) -> None:
        """Takes the operations that the task of a part has got since the last time."""
        task = part.layer.task
        try:
            every = task.operations()
        except TaskError:  # none yet
            return
        first = self._taken.get(task, 0)
        new = every[first:]
        for node in new:
            node.label = f"{part.layer.name}: {node.label}"
        self.nodes += new
        self._taken[task] = first + len(new)

    def _send(self, core: int) -> None:
        """Sends what waits in a core's OUT to those who read it, and to DRAM."""
        results, self._waiting[core] = self._waiting[core], []
        for result in results:
            task = result.part.layer.task
            for reader, window in result.targets:
                for source, target, words in _moves(result, reader, window):
                    task.move(core, source, target, words, f"to {reader.part.layer.name}")
            if result.part.layer.stored:
                task.store(core, result.tile, result.n, result.at)
            self._collect(result.part)


def _planned(part: FusedPart) -> tuple[tuple[int, ...], int, int, int]:
    """The order in which GEMMs are planned: by the group's loops, its layers, and by cores in turn."""
    step = part.step
    assert step is not None
    return step.turn, part.layer.number, step.number, part.core


def _parts_of(result: _OutResult, reader: InputWindows, window: InputWindow) -> tuple[Range, Range, Range]:
    """Planes, rows (of the window) and columns that a result and a window have in common."""
    planes, rows, columns = result.box
    step = reader.part.layer.task.problem.row_step
    return (
        (max(planes[0], window.planes[0]), min(planes[1], window.planes[1])),
        rows_of(window, rows, step),
        (max(columns[0], window.columns[0]), min(columns[1], window.columns[1])),
    )


def _common(result: _OutResult, reader: InputWindows, window: InputWindow) -> int:
    planes, rows, columns = _parts_of(result, reader, window)
    return (planes[1] - planes[0]) * (rows[1] - rows[0]) * (columns[1] - columns[0])


def _moves(result: _OutResult, reader: InputWindows, window: InputWindow) -> list[tuple[Run, Run, int]]:
    """The MOVEs of what a result and a window have in common: source in OUT, target in A, words."""
    planes, rows, columns = _parts_of(result, reader, window)
    assert window.at is not None
    step, tile = reader.part.layer.task.problem.row_step, result.tile
    count, wide = rows[1] - rows[0], columns[1] - columns[0]
    tall, across = tile.r1 - tile.r0, tile.c1 - tile.c0
    high, broad = window.rows[1] - window.rows[0], window.columns[1] - window.columns[0]

    def source(plane: int, row: int) -> int:
        line = (plane - result.n[0]) * tall + row * step - tile.r0
        return address(Region.OUT, result.at + line * across + columns[0] - tile.c0)

    def target(plane: int, row: int) -> int:
        line = (plane - window.planes[0]) * high + row - window.rows[0]
        return address(Region.MAIN, (window.at or 0) + line * broad + columns[0] - window.columns[0])

    to = reader.part.core
    some: list[tuple[Run, Run, int]] = []
    if step == 1 and wide == across == broad:  # whole rows: a run for each plane
        words = (planes[1] - planes[0]) * count * wide
        runs = _run(count * wide, tall * across, words), _run(count * wide, high * broad, words)
        return [
            (
                Run(result.part.core, source(planes[0], rows[0]), *runs[0]),
                Run(to, target(planes[0], rows[0]), *runs[1]),
                words,
            )
        ]
    for plane in range(*planes):
        for row in range(*rows) if step > 1 else rows[:1]:
            lines = 1 if step > 1 else count
            runs = _run(wide, across, lines * wide), _run(wide, broad, lines * wide)
            some.append(
                (
                    Run(result.part.core, source(plane, row), *runs[0]),
                    Run(to, target(plane, row), *runs[1]),
                    lines * wide,
                )
            )
    return some


def _run(run: int, stride: int, words: int) -> tuple[int, int]:
    """Words of a run and from one to the next; one run if they lie side by side."""
    return (words, words) if run >= words or run == stride else (run, stride)
