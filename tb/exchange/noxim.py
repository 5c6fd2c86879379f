"""Traffic of Noxim: a table of communications (`-traffic table FILE`), or packets by cycle (`-traffic hardcoded`).

A line of a table is `src dst pir por t_on t_off t_period`, of which all after `pir` may be left out: the chance that a
packet is sent in a cycle, the same in the cycle after one was, and when in each period. Packets are drawn as Noxim
does, by numbers of ours. In a list of packets a line is `src dst`, and `-1` ends a cycle. `%` and `#` begin remarks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from meshloom.sched.support.text import whole_number

from .interface import ImportFileError, text_of
from .noc_traffic import NocTransfer, NocWorkload, TrafficSettings, placing

TOOL = "noxim"
_TABLE = "src dst pir por t_on t_off t_period"
#: A line with its number.
_Line = tuple[int, list[str]]


@dataclass(frozen=True)
class _Communication:
    """A line of a table. `after`: `por`; `begin`, `end`, `period`: in cycles, of each period."""

    line: int
    source: int
    target: int
    rate: float
    after: float
    begin: int
    end: int
    period: int


def read(path: Path, settings: TrafficSettings) -> NocWorkload:
    """The traffic of a file. Raises ImportFileError, OSError."""
    place = placing(settings.side, path)
    numbered = ((number, text.split()) for number, text in enumerate(text_of(path).splitlines(), 1))
    lines = [(number, words) for number, words in numbered if words and words[0][0] not in "%#"]
    ends = any(words[0] == "-1" for _, words in lines)
    if ends or all(len(words) == 2 for _, words in lines):
        packets, notes = _listed(lines, path), ()
    else:
        packets = _drawn([_communication(words, number, path, settings) for number, words in lines], settings)
        notes = (f"packets are drawn over {settings.cycles:,} cycles with seed {settings.seed}",)
    if not packets:
        raise ImportFileError(
            f"{path}: has no packets; it must be a table of Noxim ({_TABLE}), or src dst line by line, with -1 "
            "after each cycle"
        )
    transfers = tuple(
        NocTransfer(place(source, line), (place(target, line),), 0, 1, 0.0, cycle, "NOC_0", False, settings.flits)
        for cycle, source, target, line in packets
    )
    return NocWorkload(TOOL, transfers, notes=(*notes, f"packets have {settings.flits} flits"))


#: Cycle, source, target, and the line that says so.
_Packet = tuple[int, int, int, int]


def _listed(lines: Sequence[_Line], path: Path) -> list[_Packet]:
    """Packets that are listed cycle by cycle. Raises ImportFileError."""
    packets: list[_Packet] = []
    cycle = 0
    for number, words in lines:
        if words[0] == "-1":
            cycle += 1
            continue
        nodes = [node for word in words if (node := whole_number(word)) is not None]
        if not len(words) == len(nodes) == 2:
            raise ImportFileError(
                f"{path}:{number}: {' '.join(words)[:80]!r} must be two nodes, src and dst, or -1 at the end of a cycle"
            )
        packets.append((cycle, nodes[0], nodes[1], number))
    return packets


def _communication(words: Sequence[str], line: int, path: Path, settings: TrafficSettings) -> _Communication:
    """A line of a table. Raises ImportFileError."""
    where = f"{path}:{line}: {' '.join(words)[:80]!r}"
    try:
        nodes, times = [int(word) for word in words[:2]], [int(word) for word in words[4:7]]
        rates = [float(word) for word in words[2:4]]
    except ValueError:
        raise ImportFileError(f"{where} must be numbers: {_TABLE}") from None
    if not 3 <= len(words) <= 7 or min(nodes) < 0:
        raise ImportFileError(f"{where} must have three to seven numbers: {_TABLE}")
    if not all(0 <= rate <= 1 for rate in rates):
        raise ImportFileError(f"{where} must have rates from 0 to 1 as pir and por: packets a cycle")
    begin, end, period = (*times, *(0, settings.cycles, settings.cycles + 1)[len(times) :])
    if not 0 <= begin < end or (len(times) == 3 and period <= end):
        raise ImportFileError(f"{where} must have t_on below t_off, and t_off below t_period")
    return _Communication(line, nodes[0], nodes[1], rates[0], rates[-1], begin, end, period)


def _drawn(table: Sequence[_Communication], settings: TrafficSettings) -> list[_Packet]:
    """Packets of a table: in each cycle a node sends one at most, with the chances of its lines together."""
    random, packets = Random(settings.seed), list[_Packet]()
    by_source = {each.source: [other for other in table if other.source == each.source] for each in table}
    sent = dict.fromkeys(by_source, False)
    for cycle in range(settings.cycles):
        for source, own in by_source.items():
            chance, before = random.random(), sent[source]
            sent[source] = False
            total = 0.0
            for each in own:
                if each.begin < cycle % each.period < each.end:
                    total += each.after if before else each.rate
                    if chance < total:
                        packets.append((cycle, source, each.target, each.line))
                        sent[source] = True
                        break
    return packets
