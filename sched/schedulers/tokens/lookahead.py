"""`lookahead` for tokens: the order of the online scheduler of that name (`online.lookahead`), over texts.

Each text is shown to it as a network: a layer for each of its steps, which takes the whole chip and as many cycles as
the model predicts for that step alone. The deadline is that of the first token, and then that of the last. So it knows
how long answers will be. The first text in its order that can be read is; those that write do so beside it, unless
that costs a deadline: the chunk waits if a text that writes and stands ahead of it would come too late by what the
chunk takes, and those that write wait if the chunk's text would come too late by what they take.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..online.interface import Instance, Layer, Network, Platform, Version, View
from ..online.lookahead import Lookahead
from .interface import Batch, Text, TextView

#: The whole chip is one core: steps run one after the other.
_CHIP = Platform("steps", (0,), 1.0, programs=1)


@dataclass
class LookaheadTokens:
    """Both at once, in the order of what delay costs; a chunk or a decode alone where a limit is at stake."""

    name: str = "lookahead"
    _order: Lookahead = field(default_factory=Lookahead)
    _networks: dict[tuple[int, int], Network] = field(default_factory=dict[tuple[int, int], Network])

    def decide(self, view: TextView) -> Batch:
        """See above."""
        instances = tuple(self._instance(view, text) for text in view.texts)
        order = [one.number for one in self._order.order(View(view.now, _CHIP, (), 0, instances, ()))]
        place = {number: at for at, number in enumerate(order)}
        writing = tuple(sorted((text.number for text in view.writing), key=place.__getitem__))
        decodes = Batch(None, writing, "nothing to read")
        if not view.reading:
            return decodes
        reads = min(view.reading, key=lambda text: place[text.number])
        alone = Batch(reads.number, (), f"{place[reads.number] + 1}. of {len(order)}, alone")
        if not writing:
            return alone
        both = Batch(reads.number, writing, f"{place[reads.number] + 1}. of {len(order)}, beside {len(writing)}")
        longer = view.cycles(both) - view.cycles(decodes)
        for text in view.writing:
            if place[text.number] < place[reads.number] and 0 <= self._slack(view, text, decodes) < longer:
                return Batch(None, writing, f"{text.number} would come too late")
        chunks = -(-(reads.prompt - reads.read) // view.chunk)
        if 0 <= self._slack(view, reads, alone) < chunks * (view.cycles(both) - view.cycles(alone)):
            return alone
        return both

    def _slack(self, view: TextView, text: Text, batch: Batch) -> float:
        """By how many cycles a text meets its deadline if its next steps are all like `batch`; inf without one."""
        if text.deadline is None:
            return float("inf")
        left = text.output - text.written if text.writes else -(-(text.prompt - text.read) // view.chunk)
        return text.deadline - view.now - left * view.cycles(batch)

    def _instance(self, view: TextView, text: Text) -> Instance:
        chunks = -(-text.prompt // view.chunk)
        network = self._network(view, chunks, text.output)
        steps = -(-text.read // view.chunk) + max(0, text.written - 1)
        return Instance(text.number, network, text.arrival, text.deadline, steps)

    def _network(self, view: TextView, chunks: int, output: int) -> Network:
        """The steps of a text: chunks of its prompt, of which the last gives the first token, then a step for each."""
        key = chunks, output
        if key not in self._networks:
            read, write = (
                Layer(name, 1, (Version(1, name, view.cycles(batch), 0, 0, 0, 0.0),))
                for name, batch in (("chunk", Batch(0)), ("token", Batch(None, (0,))))
            )
            self._networks[key] = Network(
                f"text of {chunks} and {output}", 1, (read,) * chunks + (write,) * (output - 1)
            )
        return self._networks[key]
