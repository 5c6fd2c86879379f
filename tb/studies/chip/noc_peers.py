"""What BookSim 2 gives for the same network and traffic: the figures that the mesh is held against.

Measured once with BookSim 2 (github.com/booksim/booksim2) on k x k meshes: XY routing, 4 virtual channels of 4 flits,
separable allocators, links, injection and ejection of one cycle, no internal speed-up, Bernoulli injection, source
queues without bound; packet latency from creation to the ejection of the last flit. A4 is its router of four cycles
(without load 2 + 5 cycles for each router), C2 its speculative one of two (2 + 3). Largest spread over three seeds:
0.009.
"""

from __future__ import annotations

from dataclasses import dataclass

VCS, DEPTH = 4, 4
#: How far apart the peer's own runs lie: less is no difference.
SPREAD = 0.009


@dataclass(frozen=True)
class Figures:
    """Mean packet latency in cycles without load, and saturation: offered flits per node and cycle at which the latency
    reaches three times that."""

    zero_load: float
    saturation: float


@dataclass(frozen=True)
class Peer:
    """One traffic pattern on one mesh of `side` x `side`, with packets of `length` flits; A4 and C2 as above."""

    side: int
    pattern: str
    length: int
    four: Figures
    two: Figures


def _rows() -> tuple[Peer, ...]:
    table = (
        (3, "uniform", (16.0, 0.821), (21.0, 0.619), (10.4, 0.860), (15.4, 0.674)),
        (4, "uniform", (19.4, 0.728), (24.6, 0.604), (12.4, 0.751), (17.5, 0.619)),
        (5, "uniform", (22.9, 0.611), (28.0, 0.541), (14.5, 0.635), (19.6, 0.549)),
        (4, "transpose", (19.5, 0.332), (24.8, 0.316), (12.5, 0.332), (17.7, 0.316)),
        (3, "hotmix", (15.6, 0.394), (20.4, 0.378), (10.1, 0.386), (15.1, 0.370)),
        (4, "hotmix", (19.0, 0.277), (24.1, 0.277), (12.2, 0.285), (17.2, 0.277)),
        (5, "hotmix", (22.2, 0.168), (27.3, 0.168), (14.1, 0.168), (19.2, 0.161)),
    )
    return tuple(
        Peer(side, pattern, length, Figures(*four), Figures(*two))
        for side, pattern, four_1, four_5, two_1, two_5 in table
        for length, four, two in ((1, four_1, two_1), (5, four_5, two_5))
    )


#: All that was measured. Uniform: every tile, oneself included, is as likely. Hotmix: the centre is `HOT_WEIGHTS` times
#: as likely as any other. Transpose: (x, y) sends to (y, x).
PEERS = _rows()
HOT_WEIGHTS = {3: 3, 4: 4, 5: 7}


def pattern(peer: Peer) -> dict[str, int]:
    """The settings of the traffic bench for a peer's pattern."""
    if peer.pattern == "transpose":
        return {"transposed": 1}
    if peer.pattern == "hotmix":
        centre = peer.side // 2
        return {"hot": centre * peer.side + centre, "weight": HOT_WEIGHTS[peer.side]}
    return {}
