"""The policies that are usual: which text goes first, and whether a step mixes prompts with decoding.

They know no lengths of answers, and look at no deadline.
"""

from __future__ import annotations

from .interface import Batch, Text, TextView


def _numbers(texts: tuple[Text, ...]) -> tuple[int, ...]:
    return tuple(text.number for text in texts)


def fcfs(view: TextView) -> Batch:
    """One text at a time, in order of arrival, to its end."""
    text = view.texts[0]
    if text.writes:
        return Batch(None, (text.number,), "the oldest writes")
    return Batch(text.number, (), "the oldest reads")


def prefill_first(view: TextView) -> Batch:
    """Prompts first: whoever has a seat or gets one is read before anybody writes on; then all write together."""
    if view.reading:
        return Batch(view.reading[0].number, (), f"{len(view.reading)} to read")
    return Batch(None, _numbers(view.writing), "nothing to read")


def decode_first(view: TextView) -> Batch:
    """Answers first: texts are read together, then write together, and nobody joins before all of them have ended."""
    begun = any(text.written > 1 for text in view.texts)
    if view.reading and not begun:
        return Batch(view.reading[0].number, (), f"{len(view.writing)} of the batch have been read")
    return Batch(None, _numbers(view.writing), "the batch writes")


def chunked(view: TextView) -> Batch:
    """Both at once: each step has the next token of all that write, and beside them a chunk of the oldest prompt."""
    chunk = view.reading[0].number if view.reading else None
    return Batch(chunk, _numbers(view.writing), f"{len(view.writing)} write")
