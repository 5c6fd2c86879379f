"""How much a search may do.

A budget of steps is one of work: the search counts what it does, so what it finds is the same on every machine, with
any number of threads and after any interruption. A budget of seconds is a convenience: what is found in it depends on
the machine and on what else runs there, and schedules that were found so say it (`labelled`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Letters behind a number of steps, and what they multiply it by.
_UNITS = {"k": 10**3, "M": 10**6, "G": 10**9}
_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kMGs])")


class BudgetError(ValueError):
    """A budget that cannot be read; the message says what one looks like."""


@dataclass(frozen=True)
class Budget:
    """Of one search: so many `steps` of work, or so many `seconds` of every thread's processor."""

    steps: int | None = None
    seconds: float | None = None

    @classmethod
    def parse(cls, text: str) -> Budget:
        """`100M` or `5s`. Raises BudgetError."""
        match = _FORM.fullmatch(text.strip())
        number, unit = (float(match[1]), match[2]) if match else (0.0, "")
        amount = number * _UNITS.get(unit, 1)
        if unit == "s" and 0 < amount < 1e9:
            return cls(seconds=amount)
        if unit in _UNITS and 1 <= amount < 1e18:
            return cls(steps=round(amount))
        raise BudgetError(
            f"budget {text!r} must be steps of work above 0, as in 500k, 100M or 2G, or seconds, as in 5s, "
            "whose result depends on the machine"
        )

    def over(self, steps: int, seconds: float) -> bool:
        """Whether a search that has done so much is at its end."""
        return (self.steps is not None and steps >= self.steps) or (
            self.seconds is not None and seconds >= self.seconds
        )

    def __str__(self) -> str:
        if self.seconds is not None:
            return f"{self.seconds:.15g}s"
        steps = self.steps or 0
        for unit, size in reversed(_UNITS.items()):
            if steps >= size and steps % (size // 1000) == 0:
                return f"{steps / size:.15g}{unit}"
        return f"{steps / 1000:.15g}k"


def labelled(name: str, budget: Budget | None) -> str:
    """What a schedule that `name` has found calls its scheduler: with the budget, if that was seconds."""
    if budget is None or budget.seconds is None:
        return name
    return f"{name}{',' if ':' in name else ':'}budget={budget}"
