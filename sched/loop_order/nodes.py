"""Operations on their way into a schedule: light, and with what they wait for."""

from __future__ import annotations

from dataclasses import dataclass

from meshloom.sched.schedule import Gemm, Move, Span


@dataclass(frozen=True, slots=True)
class Run:
    """A strided set of words in one tile (address includes the region), before it becomes a Span."""

    tile: int
    address: int
    run: int
    stride: int

    def span(self) -> Span:
        return Span(tile=self.tile, address=self.address, run=self.run, stride=self.stride)


_NOWHERE = Run(0, 0, 1, 0)


@dataclass(eq=False, slots=True)
class Node:
    """A move, or (`fields`) a GEMM of core `issuer`; `after`: the nodes it waits for, `cycles`: of the GEMM."""

    issuer: int
    after: list[Node]
    label: str
    source: Run = _NOWHERE
    target: Run = _NOWHERE
    words: int = 0
    fields: dict[str, int] | None = None
    cycles: int = 0

    def operation(self) -> Move | Gemm:
        """The operation of the schedule."""
        if self.fields is not None:
            return Gemm(core=self.issuer, fields=self.fields, label=self.label)
        return Move(
            issuer=self.issuer, src=self.source.span(), dst=self.target.span(), words=self.words, label=self.label
        )
