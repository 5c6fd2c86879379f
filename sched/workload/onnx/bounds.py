"""How much a model may make of a few bytes: numbers of tensors, weights, rearrangements, layers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from .errors import Refused

#: Numbers of one tensor of a network, and of one constant that is computed from others.
MOST_ELEMENTS = 1 << 24
#: Numbers of all tensors of a network, and layers.
MOST_IN_ALL, MOST_LAYERS = 1 << 27, 1 << 15
#: Numbers in which the places of rearranged tensors are written down, and weights that are made for layers; besides
#: them, `PER_ELEMENT` for each number in the file.
MOST_PLACES, MOST_WEIGHTS, PER_ELEMENT = 1 << 25, 1 << 24, 16


def check_size(shape: Sequence[int], what: str = "its result") -> None:
    """Raises Refused for a tensor of too many numbers."""
    if prod(int(size) for size in shape) > MOST_ELEMENTS:
        raise Refused(
            f"{what} would have the shape {[int(size) for size in shape]}; a tensor may have {MOST_ELEMENTS:,} "
            "numbers: export the model with smaller sizes, or bind smaller ones (--bind)"
        )


class Budget:
    """What may still be made; `given`: numbers in the file."""

    def __init__(self, given: int) -> None:
        self._most = {
            "numbers of tensors": MOST_IN_ALL,
            "layers": MOST_LAYERS,
            "places of rearranged numbers": MOST_PLACES + PER_ELEMENT * given,
            "weights of layers": MOST_WEIGHTS + PER_ELEMENT * given,
            "numbers computed from constants": MOST_ELEMENTS + PER_ELEMENT * given,
        }
        self._spent = dict.fromkeys(self._most, 0)

    def spend(self, what: str, count: int) -> None:
        """Raises Refused where there would be more of something than there may be."""
        self._spent[what] += count
        if self._spent[what] > self._most[what]:
            raise Refused(
                f"with it there would be {self._spent[what]:,} {what}; {self._most[what]:,} at most for a file of this "
                "size: export a smaller model, or bind smaller sizes (--bind)"
            )
