"""Routing beside the optimum: the mean is of what is proven and timely; more rounds must come near, none below."""

from __future__ import annotations

from fractions import Fraction

from meshloom.sched.papers.dtt.exact_routing import Optimum
from meshloom.tb.studies.dtt.dtt_optimum import ROUNDS, STUDY, NeedsRouted, RandomNeeds

from .made_rows import page_of


def routed(first: tuple[int, int], last: tuple[int, int], best: Optimum) -> NeedsRouted:
    """`first`, `last`: cycles late and energy without repair, and with the most rounds."""
    ways = [first] * (len(ROUNDS) - 1) + [last]
    return NeedsRouted(4, tuple((late, Fraction(energy)) for late, energy in ways), best)


def test_energies_are_compared_where_nothing_is_later() -> None:
    page = page_of(
        STUDY,
        {
            RandomNeeds(0): routed((0, 12), (0, 10), Optimum(0, Fraction(10), True)),
            RandomNeeds(1): routed((3, 8), (1, 10), Optimum(1, Fraction(10), True)),
            RandomNeeds(2): routed((0, 99), (0, 99), Optimum(0, Fraction(10), False)),
        },
    )
    rows = page.tables[0].rows
    assert rows[0] == ("none: in the order of their cycles", "0 of 2", "1", "2", "20.00", "20.0")
    assert rows[-1] == ("1600", "2 of 2", "0", "0", "0.00", "0.0")
    assert (page.texts["proven"], page.texts["cases"], page.texts["plain"]) == ("2", "3", "20.00 %")
    assert page.missed == []


def test_bars() -> None:
    page = page_of(
        STUDY,
        {
            RandomNeeds(0): routed((0, 9), (0, 11), Optimum(0, Fraction(10), True)),
            RandomNeeds(1): routed((0, 10), (2, 10), Optimum(0, Fraction(10), True)),
        },
    )
    missed = [text for text in page.missed if ROUNDS and not text.startswith(("25 ", "100 ", "400 "))]
    assert missed == [
        "0 rounds: 1 cases are better than what the solver has proven",
        "energy above the least, 1,600 rounds, mean: 10.00 %, not at most 1.00 %",
        "cycles later than the optimum, 1,600 rounds, all cases: 2, not exactly 0",
    ]


def test_rows_keep_their_fractions() -> None:
    row = routed((0, 12), (0, 10), Optimum(0, Fraction(1, 3), True))
    assert RandomNeeds.load(RandomNeeds.dump(row)) == row
