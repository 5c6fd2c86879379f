"""Scores that are less the farther a key is away (Press et al., "Train Short, Test Long", 2022: ALiBi)."""

from __future__ import annotations


def slopes(heads: int, most: float = 8.0) -> tuple[float, ...]:
    """By head, by how much a score is less with each token: a geometric row down to 2 to the power of minus `most`. If
    `heads` is no power of two, those of the next smaller one, and every second one of the next larger."""
    near = 1 << heads.bit_length() - 1
    own = tuple(2 ** (-most * (head + 1) / near) for head in range(near))
    return own if near == heads else (*own, *slopes(2 * near, most)[::2][: heads - near])
