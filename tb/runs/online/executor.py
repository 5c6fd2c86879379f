"""What runs the layers of a scenario: templates placed in the windows of their instances, on a session.

The session is the RTL or the timeline model. On the RTL, instances have data: inputs and constants are written when one
is admitted, and every tensor that its layers have left is compared when it is released.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import OFFSET_BITS, ChipConfig, tile_position
from meshloom.sched.checker.concurrent import Grant, Placed, check_concurrent
from meshloom.sched.lowering.templates.relocate import place_program
from meshloom.sched.lowering.templates.template import ProgramPlace
from meshloom.sched.model.session import Fault, Launch, Session
from meshloom.sched.schedulers.online.drive import Ended
from meshloom.sched.schedulers.online.interface import Instance, Placement, Platform
from meshloom.sched.schedulers.online.windows import DramWindows, Window
from meshloom.sched.workload.stages import unclean

from ...results.scenario import ProgramRow
from .networks import Compiled
from .rtl_session import RtlSession

_OFFSET = (1 << OFFSET_BITS) - 1


@dataclass
class Outcome:
    """What an instance has left: bytes that were compared, those that differ, and where the first of them is."""

    checked: int = 0
    wrong: int = 0
    first: str = ""


@dataclass
class LayerLaunch:
    """A layer that was launched, as `row` says. `end`: None while it runs; `fault`: what stopped it."""

    row: ProgramRow
    end: int | None = None
    fault: str | None = None


@dataclass
class SessionExecutor:
    """See `sched.schedulers.online.drive.Executor`. `networks`: by name and batch size. `memory`: the session, if it
    has data.

    Every launch is checked together with all programs that run, or will (`check_concurrent`); a successor together with
    all but the program that it follows.
    """

    session: Session
    networks: Mapping[tuple[str, int], Compiled]
    memory: RtlSession | None = None
    on_compare: Callable[[int], None] = lambda instance: None
    outcomes: dict[int, Outcome] = field(default_factory=dict[int, Outcome])
    programs: list[LayerLaunch] = field(default_factory=list[LayerLaunch])
    _windows: dict[int, Window] = field(default_factory=dict[int, Window])
    _running: dict[int, tuple[LayerLaunch, Placed]] = field(default_factory=dict[int, tuple[LayerLaunch, Placed]])
    _after: dict[int, tuple[LayerLaunch, Placed]] = field(default_factory=dict[int, tuple[LayerLaunch, Placed]])

    def __post_init__(self) -> None:
        self._dram = DramWindows(self.session.chip)
        self._by_network = {id(one.network): one for one in self.networks.values()}  # two files may have one name
        self._inputs: dict[int, list[dict[str, NDArray[np.int8]]]] = {}

    @property
    def chip(self) -> ChipConfig:
        return self.session.chip

    @property
    def platform(self) -> Platform:
        return Platform.of(self.chip)

    @property
    def now(self) -> int:
        return self.session.now

    def admit(self, instance: Instance) -> bool:
        """See `Executor.admit`. Raises WindowError for an instance that never fits."""
        compilation = self._compiled(instance)
        window = self._dram.allot(compilation.pages, instance.label)
        if window is None:
            return False
        self._windows[instance.number] = window
        if self.memory is not None:
            images = compilation.inputs(instance.number)
            self._inputs[instance.number] = images
            stacked = {name: np.concatenate([image[name] for image in images]) for name in images[0]}
            self.memory.load(_segments(compilation, stacked, window.base, self.chip))
        return True

    def release(self, instance: Instance) -> None:
        """See `Executor.release`: compares what the instance has left, if it came to its end."""
        window = self._windows.pop(instance.number)
        if self.memory is not None:
            images = self._inputs.pop(instance.number)
            if instance.next == len(instance.network.layers):
                self.on_compare(instance.number)
                compilation = self._compiled(instance)
                self.outcomes[instance.number] = _compare(compilation, images, window.base, self.memory)
        self._dram.give_back(window)

    def launch(self, slot: int, instance: Instance, placement: Placement) -> None:
        """See `Executor.launch`. Raises CheckError for a program that would not leave the others alone."""
        launched, placed = self._placed(slot, instance, placement)
        self.programs.append(launched)
        self._running[slot] = launched, placed
        self.session.launch(Launch(slot, placed.program), placement.start)

    def follow(self, slot: int, instance: Instance, placement: Placement) -> None:
        """See `Executor.follow`. Raises CheckError as `launch` does."""
        _, placed = self._after[slot] = self._placed(slot, instance, placement)
        self.session.launch(Launch(slot, placed.program, follows=True), placement.start)

    def _placed(self, slot: int, instance: Instance, placement: Placement) -> tuple[LayerLaunch, Placed]:
        """The program of a layer, checked against all that may run at the same time."""
        compilation, window = self._compiled(instance), self._windows[instance.number]
        template = compilation.templates[placement.layer][placement.version]
        code = window.first_page + compilation.code_page_of(placement.layer)
        place = ProgramPlace(placement.cores, window.first_page, code, window.end_page, slot)
        program = place_program(template, self.chip, place)
        placed = Placed(
            f"{instance.label}/{instance.layer.name}",
            program,
            Grant(slot, placement.cores, window.first_page, window.end_page),
        )
        others = [other for each in (self._running, self._after) for at, (_, other) in each.items() if at != slot]
        check_concurrent([placed], self.chip, others)
        launched = LayerLaunch(
            ProgramRow(
                instance=instance.number, network=instance.network.label, layer=instance.layer.name,
                scheme=placement.version.scheme, cores=placement.cores, slot=slot, launched=placement.start,
                instructions=program.instructions, code_bytes=template.size + 32 * len(program.boot.instructions),
            )
        )  # fmt: skip
        return launched, placed

    def advance(self, until: int | None) -> Sequence[Ended]:
        """See `Executor.advance`."""
        endeds: list[Ended] = []
        for done in self.session.advance(until):
            launched, _ = self._running.pop(done.slot)
            launched.end = done.cycle
            if done.fault is not None:
                fault = done.fault
                launched.fault = described(fault)
            after = self._after.pop(done.slot, None)
            if after is not None and done.fault is None:
                self._running[done.slot] = after
                next_row = after[0].row
                after[0].row = next_row.model_copy(update={"launched": max(next_row.launched, done.cycle)})
                self.programs.append(after[0])
            endeds.append(Ended(done.slot, done.cycle, launched.fault))
        return endeds

    def _compiled(self, instance: Instance) -> Compiled:
        return self._by_network[id(instance.network)]


def described(fault: Fault) -> str:
    """One readable line."""
    x, y = tile_position(fault.tile)
    return f"{fault.cause.name} in core@({x},{y}) {fault.unit.name.lower()}, tag {fault.tag}, value {fault.value:#x}"


def _segments(
    compilation: Compiled, inputs: Mapping[str, NDArray[np.int8]], base: int, chip: ChipConfig
) -> list[tuple[int, int, NDArray[np.uint8]]]:
    """What is written to DRAM for an instance whose window begins with word `base`."""
    served, values = compilation.served, list[tuple[int, int, NDArray[np.uint8]]]()
    for name, array in served.arrays(inputs).items():
        tensor = served.tensors[name]
        packed = tensor.layout.pack(array, chip.lanes)
        for piece in tensor.pieces:
            words = packed[piece.first : piece.first + piece.words]
            values.append((piece.tile, base + (piece.address & _OFFSET), words))
    return values


def _compare(
    compilation: Compiled, images: Sequence[Mapping[str, NDArray[np.int8]]], base: int, memory: RtlSession
) -> Outcome:
    """Compares every tensor of an instance with ONNX Runtime's: whole words, so that lanes without a channel must be
    zero (unless `unclean`)."""
    from ...inputs.golden.graph import golden_values

    served, chip = compilation.served, memory.chip
    golden = [golden_values(served.graph, image) for image in images]
    tensors = [each for each in served.results() if each.name in golden[0]]  # but for copies that a concatenation needs
    pieces = [(piece.tile, piece.address & _OFFSET, piece.words) for each in tensors for piece in each.pieces]
    bounds = {
        tile: (min(at for t, at, _ in pieces if t == tile), max(at + n for t, at, n in pieces if t == tile))
        for tile in {tile for tile, _, _ in pieces}
    }
    order = sorted(bounds)
    dumped = memory.dump([(tile, base + bounds[tile][0], bounds[tile][1] - bounds[tile][0]) for tile in order])
    left = dict(zip(order, dumped, strict=True))
    outcome, free = Outcome(), unclean(served.graph)
    for tensor in tensors:
        values = [one[tensor.name] for one in golden]
        right = tensor.layout.pack(served.stacked(tensor.name, values), chip.lanes)
        used = np.ones(right.shape, np.bool_)
        if tensor.name in free:
            ones = served.stacked(tensor.name, [np.ones_like(one) for one in values])
            used = tensor.layout.pack(ones, chip.lanes) == 1
        array = np.concatenate(
            [
                left[piece.tile][at : at + piece.words]
                for piece in tensor.pieces
                for at in [(piece.address & _OFFSET) - bounds[piece.tile][0]]
            ]
        )
        differ = np.argwhere((array != right) & used)
        outcome.checked += int(used.sum())
        outcome.wrong += len(differ)
        if len(differ) and not outcome.first:
            word, lane = (int(each) for each in differ[0])
            outcome.first = (
                f"tensor {tensor.name}, word {word}, lane {lane}: {int(array[word, lane].astype(np.int8))} instead of "
                f"{int(right[word, lane].astype(np.int8))}; {len(differ)} bytes of it differ"
            )
    return outcome
