"""The DRAM port beside a memory that answers when the test says so: which faults are told when, when it may sleep, how
it comes to rest."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from typing import Any

import pytest

from meshloom.hw.memory.dram_port import DramPort
from meshloom.hw.spec.config import load
from meshloom.hw.wiring import signatures
from meshloom.hw.wiring.axi import Response

from .delivery_bench import steady
from .unit_bench import Mood, Sink, Source, Strobe, always, back_to_back, bits, only_in, simulate

CONFIG = load("tiny")
#: (first word, words) of a run.
Run = tuple[int, int]
#: (cycle, what) of transfers.
Log = list[tuple[int, int]]


@dataclass
class Outcome:
    """Transfers at both sides of the port: (cycle, payload) of each stream, and of each AXI channel by its name; faults
    as (cycle, first word, whether it was a write); words of each burst by its address channel; WSTRB of each word that
    was written; the cycles in which the port says that it is at rest."""

    streams: dict[str, Log] = field(default_factory=dict)
    axi: dict[str, Log] = field(default_factory=lambda: {channel: [] for channel in ("ar", "aw", "w", "r", "b")})
    faults: list[tuple[int, int, bool]] = field(default_factory=list)
    lengths: dict[str, list[int]] = field(default_factory=lambda: {"ar": [], "aw": []})
    strobes: list[int] = field(default_factory=list)
    quiesced: list[int] = field(default_factory=list)


@dataclass
class _Memory:
    """The other end of AXI: takes addresses and words, and answers in order, each when the mood of its channel agrees.
    A word that is read holds its own address.
    Bursts from a word in `refused` on are answered with SLVERR, all others with OKAY. What stands on a channel that it
    has not taken must stay."""

    port: DramPort
    out: Outcome
    refused: frozenset[int]
    moods: dict[str, Mood]
    beats: deque[tuple[int, int, int]] = field(default_factory=deque)  # data, response, last
    addressed: deque[int] = field(default_factory=deque)  # responses of bursts that have an address
    written: int = 0  # bursts whose words have all come, maybe before their address
    answers: deque[int] = field(default_factory=deque)  # responses of bursts that have both
    offered: dict[str, bool] = field(default_factory=lambda: {"r": False, "b": False})
    kept: dict[str, list[int]] = field(default_factory=dict[str, list[int]])  # offers to the memory

    def set(self, cycle: int, context: Any) -> None:
        axi: Any = self.port.axi
        for channel in ("ar", "aw", "w"):
            context.set(getattr(axi, f"{channel}ready"), self.moods[channel](cycle))
        for channel, waiting in (("r", self.beats), ("b", self.answers)):
            self.offered[channel] |= bool(waiting) and self.moods[channel](cycle)
            context.set(getattr(axi, f"{channel}valid"), self.offered[channel])
        if self.offered["r"]:
            for name, value in zip(("rdata", "rresp", "rlast"), self.beats[0], strict=True):
                context.set(getattr(axi, name), value)
        if self.offered["b"]:
            context.set(axi.bresp, self.answers[0])

    def look(self, cycle: int, context: Any) -> None:
        axi: Any = self.port.axi
        if context.get(self.port.quiesced):
            self.out.quiesced.append(cycle)
        for channel, names in (("ar", ("addr", "len")), ("aw", ("addr", "len")), ("w", ("data", "strb", "last"))):
            offer = [int(context.get(getattr(axi, channel + name))) for name in ("valid", *names)]
            assert channel not in self.kept or offer == self.kept[channel], f"{channel} changed in cycle {cycle}"
            waits = offer[0] and not context.get(getattr(axi, f"{channel}ready"))
            self.kept = {name: value for name, value in self.kept.items() if name != channel}
            self.kept |= {channel: offer} if waits else {}
        went = [name for name in self.out.axi
                if context.get(getattr(axi, f"{name}valid")) and context.get(getattr(axi, f"{name}ready"))]  # fmt: skip
        payloads = {"ar": axi.araddr, "aw": axi.awaddr, "w": axi.wdata, "r": axi.rdata, "b": axi.bresp}
        for name in went:
            self.out.axi[name].append((cycle, int(context.get(payloads[name]))))
        if "ar" in went:
            first, last = context.get(axi.araddr) // CONFIG.lanes, context.get(axi.arlen)
            self.beats.extend((first + i, self._response(first), int(i == last)) for i in range(last + 1))
        if "aw" in went:
            self.addressed.append(self._response(context.get(axi.awaddr) // CONFIG.lanes))
        for name in self.out.lengths.keys() & set(went):
            self.out.lengths[name].append(int(context.get(getattr(axi, f"{name}len"))) + 1)
        if "w" in went:
            self.out.strobes.append(int(context.get(axi.wstrb)))
            ends = list(accumulate(self.out.lengths["aw"]))
            if ends and (total := len(self.out.strobes)) <= ends[-1]:  # its address has come
                assert (total in ends) == bool(context.get(axi.wlast))
        self.written += "w" in went and context.get(axi.wlast)
        if self.written and self.addressed:
            self.written -= 1
            self.answers.append(self.addressed.popleft())
        if "r" in went:
            self.beats.popleft()
        if "b" in went:
            self.answers.popleft()
        self.offered |= {name: False for name in went if name in self.offered}

    def _response(self, first: int) -> int:
        return Response.SLVERR if first in self.refused else Response.OKAY


def run(
    reads: Sequence[Run] = (),
    writes: Sequence[Run] = (),
    *,
    refused: Sequence[int] = (),
    cycles: int = 120,
    gated: bool = False,
    quiesce: int | None = None,
    **moods: Mood,
) -> Outcome:
    """Reads and writes runs as soon as the port takes them. `moods`: when a stream (by its name) or an AXI channel is
    willing; R and B answer then at the earliest. From cycle `quiesce` on the port is to come to rest."""
    port, out = DramPort(CONFIG), Outcome()
    memory = _Memory(port, out, frozenset(refused), {name: moods.get(name, always) for name in out.axi})
    words = [100 * at + i for at, count in writes for i in range(count)]
    sources = {
        "read_run": back_to_back(port.read_run, (bits(signatures.Run, offset=at, words=count) for at, count in reads)),
        "write_head": back_to_back(
            port.write_head,
            (bits(signatures.WriteHead, offset=at, words=count, notify_tile=at) for at, count in writes),
        ),
        "write_data": back_to_back(port.write_data, words),
    }
    fickle = quiesce is not None  # what is dropped is withdrawn
    sinks = {name: Sink(getattr(port, name), fickle=fickle) for name in ("read_data", "written")}
    streams: dict[str, Source | Sink] = {**sources, **sinks}
    for name, mood in moods.items():
        stream = streams.get(name)
        if isinstance(stream, Source):
            stream.offer = mood
        elif stream is not None:
            stream.ready = mood
    faults = Strobe(port.fault, {"offset": port.fault_offset, "write": port.fault_write})

    def set_all(cycle: int, context: Any) -> None:
        memory.set(cycle, context)
        context.set(port.quiesce, quiesce is not None and cycle >= quiesce)

    simulate(port, cycles, list(sources.values()), list(sinks.values()), [faults], set_all, memory.look, gated=gated)
    out.streams = {name: [(cycle, 0) for cycle in source.taken] for name, source in sources.items()}
    out.streams |= {name: sink.got for name, sink in sinks.items()}
    out.faults = [(cycle, seen["offset"], bool(seen["write"])) for cycle, seen in faults.seen]
    return out


def told(reads: dict[int, int], writes: dict[int, int], cycles: int) -> list[tuple[int, int, bool]]:
    """The faults that the contract promises for bursts that are refused: cycle of the first bad beat, or of B, to the
    first word. Two cycles later; a write after a read of the same cycle, in the next cycle without one; one that comes
    while another still waits for that is lost."""
    result: list[tuple[int, int, bool]] = []
    waiting: int | None = None
    for cycle in range(cycles):
        write = writes.get(cycle - 2)
        if cycle - 2 in reads:
            result.append((cycle, reads[cycle - 2], False))
            waiting = write if waiting is None else waiting
        else:
            first, waiting = (write, None) if waiting is None else (waiting, write)
            if first is not None:
                result.append((cycle, first, True))
    return result


@pytest.mark.parametrize("gated", [False, True])
def test_a_write_that_fails_waits_for_the_reads_and_is_told_as_itself(gated: bool) -> None:
    """Three reads fail in a row. The write that fails with the first of them waits until they have been told, whatever
    becomes of the writes after it: one that is good, and one that fails while it waits, which nobody hears of."""
    reads, writes = [(at, 1) for at in (10, 11, 12)], [(at, 1) for at in (20, 21, 22, 23)]
    for second in (21, 22):  # refused while 20 waits; 21 or none comes before the reads are over
        out = run(
            reads, writes, refused=[10, 11, 12, 20, second, 23], gated=gated,
            r=only_in((40, 41, 42)), b=only_in((40, 42, 44, 60)),
        )  # fmt: skip
        assert [cycle for cycle, _ in out.axi["b"]] == [40, 42, 44, 60]
        late = [(46, 22, True)] if second == 22 else []
        assert out.faults == [
            (42, 10, False), (43, 11, False), (44, 12, False), (45, 20, True), *late, (62, 23, True),
        ]  # fmt: skip
        assert len(out.streams["written"]) == 4, "all are answered, refused or not"


def test_a_write_that_fails_as_another_is_told_is_told_next() -> None:
    """The slot for a write that waits is free again in the cycle in which it is told."""
    out = run(
        [(10, 1), (11, 1)], [(20, 1), (21, 1)], refused=[10, 11, 20, 21], r=only_in((40, 41)), b=only_in((40, 42))
    )
    assert out.faults == [(42, 10, False), (43, 11, False), (44, 20, True), (45, 21, True)]


@pytest.mark.parametrize("seed", range(6))
def test_faults_at_any_times(seed: int) -> None:
    """Sixteen runs of one word each way, most of them refused, answered at random. Odd seeds: registers stop unless
    `active`."""
    reads, writes = [(100 + i, 1) for i in range(16)], [(200 + i, 1) for i in range(16)]
    fine = steady(seed, 0.2)
    refused = [at for at, _ in (*reads, *writes) if not fine(at)]
    late, chance = 60, (0.3, 0.6, 0.95)[seed % 3]
    moods = {name: steady(10 * seed + i, chance) for i, name in enumerate(("r", "b"))}
    out = run(
        reads, writes, refused=refused, cycles=200, gated=seed % 2 == 1,
        r=lambda cycle: cycle > late and moods["r"](cycle), b=lambda cycle: cycle > late and moods["b"](cycle),
    )  # fmt: skip
    assert [len(out.axi[name]) for name in ("r", "b")] == [16, 16]
    bad = [
        {cycle: at for (cycle, _), (at, _) in zip(out.axi[name], runs, strict=True) if at in refused}
        for name, runs in (("r", reads), ("b", writes))
    ]
    assert out.faults == told(bad[0], bad[1], 200)


def test_a_burst_is_told_once_by_its_first_word() -> None:
    """Every beat of a refused burst says so; the next burst, refused too, is told as well."""
    out = run([(64, 5), (70, 3), (80, 2)], refused=[64, 80], r=lambda cycle: cycle >= 40)
    assert [cycle for cycle, _ in out.axi["r"]] == list(range(40, 50))
    assert out.faults == [(42, 64, False), (50, 80, False)]


@pytest.mark.parametrize("seed", range(8))
def test_when_it_is_not_active_nothing_changes(seed: int) -> None:
    """With its registers stopped whenever `active` is 0, the port does the same in the same cycles, whoever stalls, and
    each for so long that nothing else goes on."""
    rare = 0.04 if seed % 2 else 0.3
    names = ("read_run", "write_head", "write_data", "read_data", "written", "ar", "aw", "w", "r", "b")
    reads, writes = [(64 * i, 1 + i) for i in range(3)], [(64 * i + 7, 1 + i) for i in range(3)]
    result = []
    for gated in (False, True):
        moods: dict[str, Any] = {name: steady(100 * seed + i, rare) for i, name in enumerate(names)}
        result.append(run(reads, writes, refused=[64, 71], cycles=900, gated=gated, **moods))
    assert result[0] == result[1]
    words = [at + i for at, count in reads for i in range(count)]  # each holds its own address
    assert [word for _, word in result[0].streams["read_data"]] == words
    assert len(result[0].streams["written"]) == 3
    assert sorted(fault[1:] for fault in result[0].faults) == [(64, False), (71, True)]


@pytest.mark.parametrize("seed", range(12))
def test_it_comes_to_rest_in_the_middle_of_bursts(seed: int) -> None:
    """Whoever stalls, and although nobody takes what is read, brings the words that are missing, or takes notices: all
    that has an address is finished, nothing new begins, and no word is written that has not come."""
    rng, begin = Random(seed), 5 + 11 * seed
    rare, full = rng.choice([0.2, 0.5, 1.0]), (1 << CONFIG.lanes) - 1
    moods: dict[str, Any] = {name: steady(100 * seed + i, rare) for i, name in enumerate(("r", "b", "ar", "aw", "w"))}
    missing = rng.randrange(40)  # words come in this many cycles

    def dead(cycle: int) -> bool:
        return cycle < begin

    reads, writes = [(20 * i, 1 + 3 * i) for i in range(12)], [(20 * i + 9, 2 + 3 * i) for i in range(12)]
    out = run(
        reads, writes, cycles=1800, gated=seed % 2 == 1, quiesce=begin,
        read_data=dead, written=dead, write_data=lambda cycle: cycle < missing, **moods,
    )  # fmt: skip
    taken = {name: [at for _, at in out.axi[name]] for name in out.axi}
    assert len(out.lengths["ar"]) == len([cycle for cycle, _ in out.streams["read_run"] if cycle <= begin])
    assert len(out.lengths["aw"]) == len([cycle for cycle, _ in out.streams["write_head"] if cycle <= begin])
    assert len(out.streams["read_run"]) + len(out.streams["write_head"]) < 24, "something was left to do"
    assert len(taken["r"]) == sum(out.lengths["ar"])
    assert len(taken["w"]) == sum(out.lengths["aw"])
    assert len(taken["b"]) == len(taken["aw"])
    came = [cycle for cycle, _ in out.streams["write_data"] if cycle <= begin]
    assert out.strobes == [full] * len(came) + [0] * (len(out.strobes) - len(came))
    ends = [cycle for log in out.axi.values() for cycle, _ in log]
    assert out.quiesced == list(range(max(*ends, begin) + 2, 1800))
