"""Mapping as the mixed-integer program of Eq. 20 to 28 (Klotski), by HiGHS; for small cases.

What is linearised: the row of core a of rows of x is floor(a / x), an integer in [a / x - .999, a / x] (Eq. 22); the
column is what is left, a = p x + r (Eq. 23-24); a distance is the least k1 + k2 with k1 - k2 = the difference (Eq. 21);
two different cores are apart by more than .001 one way or the other (Eq. 25).

As printed it minimises something else. p of Eq. 23 is floor(a / x) again, the row, so that Eq. 21 counts the distance
in rows twice and that in columns (r1 - r2) never; and Eq. 27 numbers cores from 1, so the last of each row counts to
the next. Mended, the difference is that of r, and cores count from 0. Eq. 14 counts hops; here they are weighed with
words. Variables of a micro-op are shared by all of its edges, and pairs that overlap are those of Eq. 25 (the paper
says it has a need for them and not which: with Eq. 12 alone a core may do several at a time).
"""

from __future__ import annotations

import numpy as np

from .dag import Dag, GraphError, Ints
from .ilp import Model
from .mapping import Mapped, hop_words, overlapping

#: The small constants of Eq. 22 and 25.
EPSILON, DELTA = 0.999, 0.001


def mapped(
    dag: Dag, starts: Ints, rows: int, columns: int, printed: bool = False, nodes: int = 1000
) -> tuple[Mapped, bool]:
    """The cores of a mesh of `rows` x `columns` (number: row x columns + column), and whether the program was solved to
    its end; the bound is one of the true cost only where the program is mended. `nodes`: of the search tree, at most.
    Raises GraphError when there are too many variables or nothing was found."""
    model, cores, first = Model(), rows * columns, 1 if printed else 0
    y = [[model.variable(1) for _ in range(cores)] for _ in range(len(dag))]
    number, row, column = list[int](), list[int](), list[int]()
    for some in y:
        a = model.variable(cores, whole=False)
        x, p, r = model.variable(rows), model.variable(rows), model.variable(columns - 1, whole=False)
        model.row([(which, 1) for which in some], 1, 1)
        model.row(
            [(a, -1), *((which, core + first) for core, which in enumerate(some) if core + first)], 0, 0
        )  # Eq. 27
        model.row([(x, 1), (a, -1 / columns)], -EPSILON, 0)  # Eq. 22
        model.row([(a, 1), (p, -columns), (r, -1)], 0, 0)  # Eq. 23
        number.append(a)
        row.append(x)
        column.append(p if printed else r)
    for (one, two), words in zip(dag.pairs, dag.words.tolist(), strict=True):
        for places in (row, column):  # Eq. 20 and 21
            more, less = (model.variable(cores, float(words), whole=False) for _ in range(2))
            model.row([(places[one], 1), (places[two], -1), (more, -1), (less, 1)], 0, 0)
    others, ends = overlapping(dag, starts)
    big = cores + 1
    for one in range(len(dag)):
        for two in others[ends[one - 1] if one else 0 : ends[one]].tolist():
            if one < two:  # Eq. 25
                z = model.variable(1)
                model.row([(number[one], 1), (number[two], -1), (z, -big)], DELTA - big, np.inf)
                model.row([(number[one], 1), (number[two], -1), (z, -big)], -np.inf, -DELTA)
    values, _, bound, proven, _ = model.solve(nodes)
    cores_of = np.array([max(range(cores), key=lambda core: values[some[core]]) for some in y], np.int64)
    for one in range(len(dag)):
        same = others[ends[one - 1] if one else 0 : ends[one]]
        if (cores_of[same] == cores_of[one]).any():
            raise GraphError(f"HiGHS put micro-op {one} on a core with another one")
    place = np.stack(np.divmod(np.arange(cores), columns))
    hops = np.abs(place[:, :, None] - place[:, None, :]).sum(axis=0)
    least = 0 if printed else max(0, int(np.ceil(bound - 1e-6)))
    return Mapped(cores_of, hop_words(dag, cores_of, hops), least), proven
