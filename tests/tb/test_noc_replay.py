"""Traffic of tt-npe on the RTL of a mesh: what its files say, what the NoC lacks, and what became of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meshloom.tb.devices.noc import replay as replays
from meshloom.tb.devices.noc.build import Mesh
from meshloom.tb.devices.noc.replay import LinkUse, NocPacket, PacketTimes, ReplayedTraffic
from meshloom.tb.devices.noc.traffic import TrafficError
from meshloom.tb.exchange.interface import ImportFileError
from meshloom.tb.exchange.tt_npe import read
from meshloom.tb.results.noc import NocReplay
from meshloom.tb.runs import noc_replay
from meshloom.tb.runs.noc_replay import ReplayError, ReplaySettings, replayed

from .command_line import invoke

EXAMPLES = Path(__file__).parents[2] / "examples" / "traffic"
CROSSING, MULTICAST = EXAMPLES / "crossing.json", EXAMPLES / "multicast.json"
GOOD: dict[str, Any] = {"packet_size": 64, "num_packets": 2, "src_x": 0, "src_y": 0, "dst_x": 1, "dst_y": 1}


def written(folder: Path, *transfers: dict[str, Any], **more: Any) -> Path:
    path = folder / "w.json"
    path.write_text(json.dumps({"phases": [{"transfers": transfers}], **more}))
    return path


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[NocPacket]:
    """Replaces the mesh: packet n leaves when it may and comes 10 cycles later. Returns the packets."""
    packets: list[NocPacket] = []

    def carry(mesh: Mesh, some: list[NocPacket], limit: int) -> ReplayedTraffic:
        packets.extend(some)
        times = tuple(PacketTimes(each.leaves, each.leaves + 10) for each in some)
        links = (LinkUse(0, "east", 3, 1), LinkUse(0, "local", 0, 0), LinkUse(1, "local", 9, 0))
        return ReplayedTraffic(max(time.came for time in times), 9, times, links)

    monkeypatch.setattr(noc_replay, "replay", carry)
    return packets


# -- files ------------------------------------------------------------------------------------------------------------


def test_transfers_are_read_by_the_names_that_tt_npe_has() -> None:
    workload = read(CROSSING)
    assert workload.claimed_cycles == 292
    first = workload.transfers[0]
    assert (first.source, first.targets, first.size, first.packets) == ((0, 0), ((3, 0),), 2048, 4)
    assert (first.rate, first.offset, first.noc, first.multicast) == (28.1, 0, "NOC_0", False)
    cast, other = read(MULTICAST).transfers
    assert cast.targets == ((1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (3, 1))
    assert (cast.multicast, other.noc) == (True, "NOC_1")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"packet_size": 0}, "phases.0.transfers.0.packet_size: Input should be greater"),
        ({"src_x": "0"}, "phases.0.transfers.0.src_x"),
        ({"dst_y": None}, "has no destination; give dst_x and dst_y"),
        ({"dst_x": None}, "has no destination; give dst_x and dst_y"),
        ({"dst_x": None, "dst_y": None}, "has no destination; give dst_x and dst_y"),
        ({"injection_rate": -1}, "injection_rate"),
    ],
)
def test_bad_files_are_one_line(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(ImportFileError, match=says):
        read(written(tmp_path, {**GOOD, **change}))


def test_what_is_no_workload_at_all(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    for text, says in (
        ("{", "is not JSON"), ("{}", "phases: is missing"), ('{"phases": []}', "has no transfers; it must be a"),
        ("[]", "is a list, as traces of NoC events by tt-metal's profiler are"),
        ("3", "the file: must be a table of fields"), ('{"phases": [{}]}', "phases.0.transfers: is missing"),
    ):  # fmt: skip
        path.write_text(text)
        with pytest.raises(ImportFileError, match=says):
            read(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ImportFileError, match="is not UTF-8 text"):
        read(path)


# -- packets ----------------------------------------------------------------------------------------------------------


def test_transfers_become_packets_with_heads(sent: list[NocPacket], tmp_path: Path) -> None:
    """5000 bytes are 157 flits of 32: three packets, of 63, 63 and 31 and a head each."""
    path = written(tmp_path, {**GOOD, "packet_size": 5000, "injection_rate": 25.0, "phase_cycle_offset": 7})
    result = replayed(path, ReplaySettings())
    assert [(each.source, each.target, each.leaves, each.flits) for each in sent] == [
        (0, 3, 7, 64), (0, 3, 7, 64), (0, 3, 7, 32), (0, 3, 207, 64), (0, 3, 207, 64), (0, 3, 207, 32),
    ]  # fmt: skip
    assert (result.bytes, result.mean_latency, result.worst_latency, result.cycles) == (10_000, 10.0, 10, 217)
    (flow,) = result.flows
    assert (flow.begin, flow.end, flow.packets) == (7, 217, 2)
    assert [(link.port, link.busy) for link in result.links] == [("local", 9), ("east", 3)]
    assert result.claimed_cycles is None
    assert result.beyond_claim_percent is None


def test_what_the_noc_lacks_is_refused_or_becomes_unicasts(sent: list[NocPacket]) -> None:
    with pytest.raises(ReplayError, match="has multicasts, NOC_1, which the NoC has not; --nearest sends unicasts"):
        replayed(MULTICAST, ReplaySettings())
    assert not sent
    result = replayed(MULTICAST, ReplaySettings(nearest=True))
    assert [flow.target for flow in result.flows] == [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (3, 1), (0, 1)]
    assert result.changes == (
        "1 multicasts are unicasts to each tile of their boxes",
        "NOC_1 is NOC_0, which goes along x and then along y",
    )


def test_meshes_that_cannot_be(sent: list[NocPacket], tmp_path: Path) -> None:
    wide = written(tmp_path, {**GOOD, "dst_x": 9, "dst_y": 11})
    with pytest.raises(ReplayError, match="a mesh of 10x12 is too large; up to 64 routers are built"):
        replayed(wide, ReplaySettings())
    with pytest.raises(ReplayError, match="needs a mesh of 10x12, 4x4 is too small; raise --mesh"):
        replayed(wide, ReplaySettings(side=(4, 4)))
    many = written(tmp_path, {**GOOD, "num_packets": 300_000})
    with pytest.raises(ReplayError, match="has more than 200,000 packets; replay a part of it"):
        replayed(many, ReplaySettings())
    with pytest.raises(ValueError, match="there must be packets, of 1 to 64 flits"):
        replays.replay(Mesh(2, 2), [], 10)


def test_the_command_prints_and_writes(sent: list[NocPacket], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = invoke("noc", "replay", CROSSING, "--json", "a.json")
    assert shown.exit_code == 0, shown.output
    result = NocReplay.model_validate_json((folder / "a.json").read_text())
    assert f"tt-npe says 292 ({result.beyond_claim_percent:+.2f} %)" in shown.output
    assert "(0, 0) east" in shown.output
    piped = invoke("noc", "replay", CROSSING, "--json", "-")
    assert NocReplay.model_validate_json(piped.stdout) == result
    assert "(0, 0) east" in piped.stderr
    monkeypatch.setenv("COLUMNS", "20")
    assert f"tt-npe says 292 ({result.beyond_claim_percent:+.2f} %)\n" in invoke("noc", "replay", CROSSING).output
    monkeypatch.setenv("COLUMNS", "120")
    noted = invoke("noc", "replay", MULTICAST, "--nearest", "--mesh", "4x2")
    assert "note: 1 multicasts are unicasts" in noted.output
    wrong = invoke("noc", "replay", CROSSING, "--mesh", "4")
    assert wrong.exit_code == 2
    assert "must be like 4x4" in " ".join(wrong.output.split())
    refused = invoke("noc", "replay", MULTICAST)
    assert refused.exit_code == 2
    assert "--nearest sends unicasts" in refused.output


def test_what_the_command_is_not_told_is_as_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ReplaySettings] = []

    def refuse(path: Path, settings: ReplaySettings) -> NocReplay:
        asked.append(settings)
        raise ReplayError("not now")

    monkeypatch.setattr("meshloom.tb.runs.noc_replay.replayed", refuse)
    assert invoke("noc", "replay", CROSSING).exit_code == 2
    assert asked == [ReplaySettings()]


# -- RTL --------------------------------------------------------------------------------------------------------------


def test_a_simulator_that_cannot_run_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bench"
    monkeypatch.setattr(replays, "_simulator", lambda mesh: program)
    for line, says in (("no such library", "status 3: no such library"), ("ERROR stuck: no flit", "2.*: stuck")):
        program.write_text(f"#!/bin/sh\necho {line}\nexit 3\n")
        program.chmod(0o755)
        with pytest.raises(TrafficError, match=says):
            replays.replay(Mesh(2, 2), [NocPacket(0, 0, 1, 1)], 10)


@pytest.mark.slow
def test_packets_take_a_cycle_for_each_router_and_flit_and_wait_for_each_other() -> None:
    """A column of 2 and a row of 4: from one corner to the other there are 5 routers."""
    mesh = Mesh(4, 2, 2)
    alone = replays.replay(mesh, [NocPacket(0, 5, 7, 3), NocPacket(3, 400, 3, 1)], 10_000)
    (left, came), (_, own) = ((time.left, time.came) for time in alone.times)
    assert left == 6
    assert came == 5 + 5 + 3
    assert own == 400 + 1 + 1
    assert alone.flits == 4
    busy = {(use.node, use.port): use.busy for use in alone.links if use.busy}
    assert busy == {(0, "east"): 3, (1, "east"): 3, (2, "east"): 3, (3, "south"): 3, (7, "local"): 3, (3, "local"): 1}
    both = replays.replay(mesh, [NocPacket(0, 0, 3, 20), NocPacket(1, 0, 3, 20), NocPacket(0, 0, 1, 2)], 10_000)
    assert max(time.came for time in both.times) >= 40, "two times 20 flits leave by one link"
    assert sum(use.blocked for use in both.links) > 0
    with pytest.raises(TrafficError, match="not done: 0 of 1 packets have arrived in 20 cycles"):
        replays.replay(mesh, [NocPacket(0, 100, 3, 20)], 20)


@pytest.mark.slow
def test_the_examples_run(folder: Path) -> None:
    shown = invoke("noc", "replay", CROSSING, "--json", "a.json")
    assert shown.exit_code == 0, shown.output
    result = NocReplay.model_validate_json((folder / "a.json").read_text())
    assert result.cycles > 256
    assert sum(link.busy for link in result.links if link.port == "local") == result.flits
