"""Numbers of prose: each knows how it is written and what stands behind it; and what templates may do with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from .rows import StudyError

#: The first number of a cell, with its commas and without a plus.
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


class Origin(IntEnum):
    """What stands behind a number, the best first: rows of the whole study, the page of before, rows of the sample."""

    FULL = 0
    EARLIER = 1
    QUICK = 2


#: How a number of each origin is shown.
_SHOWN = {Origin.FULL: "{}", Origin.EARLIER: "*{}*", Origin.QUICK: "{} (quick)"}


@dataclass(frozen=True)
class ProseNumber:
    """A number, how it is written, and what stands behind it."""

    number: float
    text: str
    origin: Origin

    def __str__(self) -> str:
        return _SHOWN[self.origin].format(self.text)

    @classmethod
    def of_cell(cls, cell: str, origin: Origin, nth: int = 1) -> ProseNumber:
        """The number of a cell, the `nth` if it has several. Raises StudyError if it has not so many."""
        texts = NUMBER.findall(cell)
        if len(texts) < nth:
            raise StudyError(f"{cell!r} has no number {nth}")
        return cls(float(texts[nth - 1].replace(",", "")), texts[nth - 1], origin)


#: A number, or some.
_Values = ProseNumber | Sequence[ProseNumber]


def _listed(value: _Values) -> Sequence[ProseNumber]:
    return [value] if isinstance(value, ProseNumber) else value


def _shown(values: Sequence[ProseNumber], text: str) -> str:
    """A text that some numbers stand behind, as that of the worst of them is shown."""
    return _SHOWN[max(value.origin for value in values)].format(text)


def span(values: Sequence[ProseNumber], between: str = " to ") -> str:
    """The least and the most, or the only one: `20 to 33`."""
    low, high = least(values), most(values)
    return _shown(values, low.text if low.text == high.text else f"{low.text}{between}{high.text}")


def most(values: Sequence[ProseNumber]) -> ProseNumber:
    """The largest."""
    return max(values, key=lambda each: each.number)


def least(values: Sequence[ProseNumber]) -> ProseNumber:
    """The smallest."""
    return min(values, key=lambda each: each.number)


def _each(value: _Values, of: Callable[[ProseNumber], ProseNumber]) -> _Values:
    return of(value) if isinstance(value, ProseNumber) else [of(each) for each in value]


def written(value: _Values, form: str = "{:,.0f}") -> _Values:
    """Numbers written otherwise."""
    return _each(value, lambda each: replace(each, text=form.format(each.number)))


def size(value: _Values) -> _Values:
    """Numbers without their sign."""
    return _each(value, lambda each: replace(each, number=abs(each.number), text=each.text.lstrip("-")))


def bare(value: _Values) -> _Values:
    """Numbers that do not show what stands behind them: where a sentence says it of all."""
    return _each(value, lambda each: replace(each, origin=Origin.FULL))


def _pairwise(one: _Values, other: _Values, form: str, of: Callable[[float, float], float]) -> _Values:
    """What becomes of two numbers, or of each of a list with its own of another."""
    pairs = zip(_listed(one), _listed(other), strict=True)
    values = [(of(a.number, b.number), max(a.origin, b.origin)) for a, b in pairs]
    some = [ProseNumber(number, form.format(number), origin) for number, origin in values]
    return some[0] if isinstance(one, ProseNumber) else some


def fewer(new: _Values, old: _Values, form: str = "{:.1f}") -> _Values:
    """By how many percent numbers are below others."""
    return _pairwise(new, old, form, lambda new, old: 100 * (1 - new / old))


def ratio(one: _Values, other: _Values, form: str = "{:.2f}") -> _Values:
    """Numbers divided by others."""
    return _pairwise(one, other, form, lambda one, other: one / other)


def behind(some: Sequence[ProseNumber], others: Sequence[ProseNumber]) -> str:
    """How many numbers are below their counterparts, of how many: `8 of 9`."""
    below = sum(one.number < other.number for one, other in zip(some, others, strict=True))
    return _shown([*some, *others], f"{below} of {len(some)}")


def verdict(values: _Values, above: str, below: str, than: float = 1.0, mixed: str = "both") -> str:
    """The word for numbers above a bound, for those that are not, or for numbers on both sides of it."""
    sides = {each.number > than for each in _listed(values)}
    return mixed if len(sides) > 1 else above if True in sides else below


def said(text: str) -> str:
    """What a paper says: a number that nothing here speaks for."""
    return text


def with_settings(text: str, **settings: float) -> str:
    """Prose in which `{{ name }}` is a constant of the code; figures are filled in later."""
    for name, value in settings.items():
        text = text.replace(f"{{{{ {name} }}}}", f"{value:,}")
    return text


#: What templates may do with numbers.
FILTERS: Mapping[str, Callable[..., object]] = {
    each.__name__: each for each in (span, most, least, written, size, bare, verdict)
}
FUNCTIONS: Mapping[str, Callable[..., object]] = {each.__name__: each for each in (fewer, ratio, behind, said)}
