"""Tokens that are guessed from the text so far, to be verified in one step (speculative decoding)."""

from __future__ import annotations

from collections.abc import Sequence

#: How many tokens at the end of a text are looked for earlier in it: the most first.
_LONGEST, _SHORTEST = 8, 2


def guess(tokens: Sequence[int], count: int) -> list[int]:
    """What followed the last tokens where they stood before, `count` tokens of it; empty if they are new. The most of
    them count first, then the place that is nearest to the end. (Prompt lookup: the text is its own draft model.)"""
    for length in range(min(_LONGEST, len(tokens) - 1), _SHORTEST - 1, -1):
        last = list(tokens[-length:])
        for place in range(len(tokens) - length - 1, -1, -1):
            if list(tokens[place : place + length]) == last:
                follows = list(tokens[place + length :])
                # what is less than `count` away from the end goes round
                return [follows[at % len(follows)] for at in range(count)]
    return []


def accept(guesses: Sequence[int], verified: Sequence[int]) -> list[int]:
    """The tokens that a step has given. `verified`: what the model takes behind the last token, and behind each of the
    guesses: one more than these. They are those of a step for each token: the first that is no guess ends them."""
    agreed = 0
    while agreed < len(guesses) and guesses[agreed] == verified[agreed]:
        agreed += 1
    return list(verified[: agreed + 1])
