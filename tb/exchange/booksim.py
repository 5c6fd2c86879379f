"""Traces of BookSim 2: what it writes to `watch_out` about the packets that it watches.

Three kinds of lines say what a packet is; all others (of routers, credits, single flits) are passed over:

    12 | node3 | Enqueuing packet 7 at time 10.
    12 | node3 | Enqueuing flit 31 (packet 7) at time 10.
    40 | node5 | Retiring packet 7 (plat = 30, nlat = 28, frag = 0, src = 3, dest = 5).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from .interface import ImportFileError, text_of
from .noc_traffic import NocTransfer, NocWorkload, TrafficSettings, placing

TOOL = "booksim"
_WHAT = "what BookSim 2 writes to watch_out, with packets watched"
_HEAD = r"\s*(\d{1,15}) \| node(\d{1,6}) \| "
_LINES = {
    "Enqueuing packet ": re.compile(_HEAD + r"Enqueuing packet (\d{1,15}) at time (\d{1,15})\.\s*"),
    "Enqueuing flit ": re.compile(_HEAD + r"Enqueuing flit \d{1,15} \(packet (\d{1,15})\) at time (\d{1,15})\.\s*"),
    "Retiring packet ": re.compile(
        _HEAD + r"Retiring packet (\d{1,15}) \(p?lat = (\d{1,15}),(?:.*,)? src = (\d{1,6}), dest = (\d{1,6})\)\.\s*"
    ),
}
_FORMS = {
    "Enqueuing packet ": "Enqueuing packet 7 at time 10.",
    "Enqueuing flit ": "Enqueuing flit 31 (packet 7) at time 10.",
    "Retiring packet ": "Retiring packet 7 (plat = 30, nlat = 28, frag = 0, src = 3, dest = 5).",
}


@dataclass
class _Packet:
    """A packet so far. `line`: where it is enqueued; `end`: cycle in which it is retired, at `target`."""

    line: int
    source: int
    begin: int
    flits: int = 0
    end: int | None = None
    target: int = 0
    latency: int = 0


def is_trace(text: str) -> bool:
    """Whether a text is such a trace."""
    return re.search(r"^\s*\d+ \| \S+ \| ", text, re.MULTILINE) is not None


def read(path: Path, settings: TrafficSettings) -> NocWorkload:
    """The traffic of a trace; its first packet leaves in cycle 0. Raises ImportFileError, OSError."""
    place = placing(settings.side, path)
    packets = _packets(path)
    done = [each for each in packets.values() if each.end is not None and each.flits]
    if not done:
        raise ImportFileError(f"{path}: has no packet from its enqueuing to its retiring; it must be {_WHAT}")
    first = min(each.begin for each in done)
    transfers = tuple(
        NocTransfer(
            place(each.source, each.line),
            (place(each.target, each.line),),
            0, 1, 0.0, each.begin - first, "NOC_0", False, each.flits,
        )
        for each in sorted(done, key=lambda each: each.begin)
    )  # fmt: skip
    open_ones = [(number, each) for number, each in packets.items() if each.end is None or not each.flits]
    gaps = [
        f"{len(open_ones)} packets that are never retired, the first of them packet {number} of line {each.line}"
        for number, each in open_ones[:1]
    ]
    ends = [each.end for each in done if each.end is not None]
    latency = sum(each.latency for each in done) / len(done)
    return NocWorkload(TOOL, transfers, max(ends) - first, latency, tuple(gaps))


def _packets(path: Path) -> dict[int, _Packet]:
    """Packets by number. Raises ImportFileError with the line, OSError."""
    packets: dict[int, _Packet] = {}
    for line, text in enumerate(text_of(path).splitlines(), 1):
        kind = next((kind for kind in _LINES if f"| {kind}" in text), None)
        if kind is None:
            continue
        match = _LINES[kind].fullmatch(text)
        if match is None:
            raise ImportFileError(
                f"{path}:{line}: {text.strip()[:80]!r} must be like '12 | node3 | {_FORMS[kind]}': was it cut?"
            )
        time, node, number = int(match[1]), int(match[2]), int(match[3])
        if kind == "Enqueuing packet ":
            if number in packets:
                raise ImportFileError(
                    f"{path}:{line}: packet {number} is enqueued in line {packets[number].line}, too; give the trace "
                    "of one run"
                )
            packets[number] = _Packet(line, node, int(match[4]))
        elif number not in packets:
            raise ImportFileError(f"{path}:{line}: packet {number} is not enqueued before; was the beginning cut off?")
        elif kind == "Enqueuing flit ":
            packets[number].flits += 1
        else:
            own = packets[number]
            if int(match[5]) != own.source:
                raise ImportFileError(
                    f"{path}:{line}: packet {number} comes from node {match[5]}, but node {own.source} enqueues it in "
                    f"line {own.line}; give the trace of one run"
                )
            own.end, own.latency, own.target = time, int(match[4]), int(match[6])
    return packets
