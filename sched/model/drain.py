"""The drain path of a core: the cycles in which it occupies ports of ACC and OUT, for which the NoC then waits.

The drain path takes precedence (`hw/core/matrix.py`). Each row of a fold is a word, so a GEMM whose folds take as many
cycles as they have rows blocks a memory for the NoC throughout. A word that waits to be written holds its packet, and
with it the path through the mesh; one that waits to be read stalls the mover that wants to send it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import ACC_TO_OUT, ADDEND_TO_ACC, OUT_TO_END
from meshloom.hw.spec.isa import Addend, Region
from meshloom.hw.spec.timing import GemmShape, gemm_folds, gemm_tail

from .flow import FOREVER, Place, User


class Port(Place):
    """A port of ACC or OUT as seen by the NoC and the mover: it passes one word a cycle."""

    def __init__(self) -> None:
        super().__init__()
        # cycles that the drain path occupies, for GEMMs issued so far: first and the one after the last
        self._claims: deque[tuple[int, int]] = deque()

    def take(self, now: int, first: int, cycles: int) -> None:
        """The drain path occupies it for `cycles` cycles from `first` on, in the future and after all earlier ones."""
        claims = self._claims
        while claims and claims[0][1] <= now:
            claims.popleft()
        if claims and claims[-1][1] == first:
            claims[-1] = claims[-1][0], first + cycles
        else:
            claims.append((first, first + cycles))
        if self.feeder is not None:
            self.feeder.plan(now)

    def _next(self, now: int) -> tuple[int, int] | None:
        """The cycles that the drain path occupies now or next."""
        while self._claims and self._claims[0][1] <= now:
            self._claims.popleft()
        return self._claims[0] if self._claims else None

    def room(self, now: int) -> bool:
        following = self._next(now)
        return following is None or now < following[0]

    def fills(self, now: int) -> int:
        following = self._next(now)
        return FOREVER if following is None else max(0, following[0] - now)

    def opens(self, now: int) -> int:
        following = self._next(now)
        return following[1] if following is not None and following[0] <= now else FOREVER


class DrainPath:
    """The ports that a core's drain path occupies.

    `writes`: by region, for words from the NoC. Of the memories that the mover reads, the drain path reads only ACC;
    the vector unit has separate read ports, which with `core.operand_sources` the mover shares for A and B.
    """

    def __init__(self, chip: ChipConfig) -> None:
        self._chip = chip
        self.writes = {Region.ACC: Port(), Region.OUT: Port()}
        self._addends = Port()
        self._walked: dict[int, Port] = {}
        if chip.core.operand_sources:
            self._walked = {Region.MAIN: Port(), Region.B: Port()}

    def reads(self, reader: User) -> dict[int, Port]:
        """By region, the ports for which the tile's mover, whose words `reader` reads, may have to wait."""
        ports: dict[int, Port] = {Region.ACC: self._addends}
        ports.update(self._walked)
        for port in ports.values():
            port.feeder = reader
        return ports

    def walks(self, now: int, first: int, cycles: int) -> None:
        """A VEC walks over its operands for `cycles` cycles from `first` on: the mover reads neither A nor B."""
        for port in self._walked.values():
            port.take(now, first, cycles)

    def drains(self, now: int, fields: Mapping[str, int], start: int) -> None:
        """A GEMM that has been issued starts in cycle `start`."""
        to_acc, adds = bool(fields.get("to_acc", 0)), fields.get("addend", 0) != Addend.NONE
        port = self.writes[Region.ACC if to_acc else Region.OUT]
        before = ADDEND_TO_ACC if to_acc else ADDEND_TO_ACC + ACC_TO_OUT
        paired = bool(fields.get("by_channel", 0))
        once = paired and fields["addend"] == Addend.BIAS  # the bias, then multipliers
        early = int(paired and not once and not to_acc)  # multipliers in the cycle before the first partial sum
        for first, rows in drained(self._chip, fields, start):
            if adds:
                self._addends.take(now, first - before - early, (2 - int(to_acc) if once else rows) + early)
            port.take(now, first, rows)


def drained(chip: ChipConfig, fields: Mapping[str, int], start: int) -> list[tuple[int, int]]:
    """First cycle and number of the writes of each fold of a GEMM that starts in `start`, to ACC or OUT."""
    pixels, to_acc = fields["pixels"], bool(fields.get("to_acc", 0))
    shape = GemmShape(pixels, fields["n_blocks"], fields["k_blocks"], fields["kernel_h"], fields["kernel_w"])
    window, groups = shape.taps * chip.lanes, -(-pixels // chip.rows)
    # a fold of one row is written in the cycle before its end
    first = start + gemm_tail(chip, 1) - OUT_TO_END - (ACC_TO_OUT if to_acc else 0)
    folds = range(gemm_folds(chip, shape))
    return [(first + (f + 1) * window, min(chip.rows, pixels - f % groups * chip.rows)) for f in folds]
