"""Traffic of BookSim and Noxim: which lines are understood, what is drawn, and bad lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshloom.hw.spec.routes import ports_at
from meshloom.tb.devices.noc import replay
from meshloom.tb.devices.noc.build import Mesh
from meshloom.tb.devices.noc.replay import NocPacket, PacketTimes, ReplayedTraffic
from meshloom.tb.exchange.interface import ImportFileError
from meshloom.tb.exchange.noc_traffic import NocTransfer, TrafficSettings
from meshloom.tb.exchange.traffic import read
from meshloom.tb.runs import noc_replay
from meshloom.tb.runs.noc_replay import ReplayError, ReplaySettings, replayed

EXAMPLES = Path(__file__).parents[3] / "examples" / "traffic"
MESH = TrafficSettings(side=(4, 4))
#: Two packets of a 4x4 mesh, and a line of a router, as BookSim 2 writes them.
TRACE = """\
100 | node3 | Enqueuing packet 7 at time 98.
100 | node3 | Enqueuing flit 31 (packet 7) at time 98.
100 | node3 | Enqueuing flit 32 (packet 7) at time 98.
101 | network_0/router_0_3 | Received flit 31 from channel at input 4.
110 | node0 | Enqueuing packet 8 at time 110.
110 | node0 | Enqueuing flit 33 (packet 8) at time 110.
128 | node5 | Retiring flit 32 (packet 7, src = 3, dest = 5, hops = 4, flat = 27).
128 | node5 | Retiring packet 7 (plat = 30, nlat = 27, frag = 0, src = 3, dest = 5).
134 | node15 | Retiring packet 8 (plat = 24, nlat = 23, frag = 0, src = 0, dest = 15).
"""
OPEN = "135 | node1 | Enqueuing packet 9 at time 135.\n135 | node1 | Enqueuing flit 34 (packet 9) at time 135.\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "traffic.txt"
    path.write_text(text)
    return path


def carry(mesh: Mesh, packets: list[NocPacket], limit: int) -> ReplayedTraffic:
    """A mesh in which every packet comes after 20 cycles."""
    times = tuple(PacketTimes(each.leaves, each.leaves + 20) for each in packets)
    return ReplayedTraffic(max(each.came for each in times), sum(each.flits for each in packets), times, ())


# -- BookSim ----------------------------------------------------------------------------------------------------------


def test_a_trace_of_booksim_is_its_packets_and_its_claims(tmp_path: Path) -> None:
    workload = read(written(tmp_path, TRACE), MESH)
    assert (workload.tool, workload.claimed_cycles, workload.claimed_latency, workload.gaps) == (
        "booksim",
        36,
        27.0,
        (),
    )
    packets = [(each.source, each.targets, each.offset, each.flits) for each in workload.transfers]
    assert packets == [((3, 0), ((1, 1),), 0, 2), ((0, 0), ((3, 3),), 12, 1)]


def test_an_older_booksim_calls_the_latency_lat(tmp_path: Path) -> None:
    text = TRACE.replace("plat = 30, nlat = 27", "lat = 30").replace("plat = 24, nlat = 23", "lat = 24")
    assert read(written(tmp_path, text), MESH).claimed_latency == 27.0


def test_packets_keep_their_flits_in_the_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noc_replay, "replay", carry)
    flits = [f"100 | node3 | Enqueuing flit {100 + number} (packet 7) at time 98.\n" for number in range(98)]
    first = TRACE.index("100 | node3 | Enqueuing flit")
    long = TRACE[:first] + "".join(flits) + TRACE[first:]
    result = replayed(written(tmp_path, long), ReplaySettings(side=(4, 4), flit_bytes=16))
    assert (result.flits, result.bytes, result.tool) == (101, 101 * 16, "booksim")
    assert [(flow.packets, flow.bytes, flow.begin, flow.end) for flow in result.flows] == [
        (1, 1600, 0, 20), (1, 16, 12, 32),
    ]  # fmt: skip
    assert (result.cycles, result.claimed_cycles, result.mean_latency, result.claimed_latency) == (32, 36, 20.0, 27.0)


def test_packets_that_are_never_retired_are_refused_or_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noc_replay, "replay", carry)
    path = written(tmp_path, TRACE + OPEN)
    with pytest.raises(
        ReplayError, match="has 1 packets that are never retired, the first of them packet 9 of line 10"
    ):
        replayed(path, ReplaySettings(side=(4, 4)))
    result = replayed(path, ReplaySettings(side=(4, 4), nearest=True))
    assert len(result.flows) == 2
    assert result.changes == ("1 packets that are never retired, the first of them packet 9 of line 10: left out",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (TRACE[:-20], "traffic.txt:9: '134 | node15 | Retiring packet 8 .* must be like .*: was it cut"),
        (TRACE.replace("packet 7 at time 98", "packet 7 at"), "traffic.txt:1: .* must be like '12 . node3"),
        (TRACE.partition("\n")[2], "traffic.txt:1: packet 7 is not enqueued before; was the beginning cut off"),
        (TRACE + TRACE, "traffic.txt:10: packet 7 is enqueued in line 1, too; give the trace of one run"),
        (TRACE.replace("src = 3, dest = 5).\n134", "src = 2, dest = 5).\n134"), "traffic.txt:8: packet 7 comes from"),
        (TRACE.replace("dest = 15", "dest = 16"), "traffic.txt:5: node 16 is not in a mesh of 4x4"),
        (OPEN, "has no packet from its enqueuing to its retiring; it must be what BookSim 2 writes"),
    ],
)  # fmt: skip
def test_bad_lines_of_booksim_are_named(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ImportFileError, match=says):
        read(written(tmp_path, text), MESH)


def test_nodes_with_numbers_need_a_mesh(tmp_path: Path) -> None:
    for text in (TRACE, "0 1\n"):
        with pytest.raises(ImportFileError, match="its nodes have numbers; say how they lie with --mesh, such as"):
            read(written(tmp_path, text), TrafficSettings())


# -- Noxim ------------------------------------------------------------------------------------------------------------


def test_packets_that_noxim_lists_leave_in_their_cycles(tmp_path: Path) -> None:
    text = "% two in the first cycle, none in the second\n0 5\n1 5\n-1\n# dead\n-1\n15 0\n-1 -1\n2 3\n"
    workload = read(written(tmp_path, text), TrafficSettings(side=(4, 4), flits=3))
    packets = [(each.offset, each.source, each.targets[0], each.flits) for each in workload.transfers]
    assert packets == [
        (0, (0, 0), (1, 1), 3), (0, (1, 0), (1, 1), 3), (2, (3, 3), (0, 0), 3), (3, (2, 0), (3, 0), 3),
    ]  # fmt: skip
    assert workload.notes == ("packets have 3 flits",)


def test_packets_of_a_table_come_with_its_rates(tmp_path: Path) -> None:
    """Node 0 sends in every cycle but those at the edges of its period, node 1 as often as two lines together say."""
    settings = TrafficSettings(side=(4, 4), cycles=4000, seed=5)
    path = written(tmp_path, "0 1 1 1 10 20 40\n1 2 0.1\n1 3 0.3 0.3\n")
    workload = read(path, settings)
    first = [each.offset for each in workload.transfers if each.source == (0, 0)]
    assert {offset % 40 for offset in first} == set(range(11, 20))
    assert len(first) == 9 * 100
    others = [each.targets[0] for each in workload.transfers if each.source == (1, 0)]
    assert 1450 <= len(others) <= 1750
    assert 2 * others.count((2, 0)) < others.count((3, 0)) < 4 * others.count((2, 0))
    assert workload == read(path, settings)
    assert workload.transfers != read(path, TrafficSettings(side=(4, 4), cycles=4000, seed=6)).transfers
    assert "packets are drawn over 4,000 cycles with seed 5" in workload.notes


def test_outputs_of_routers_have_the_names_of_their_directions() -> None:
    mesh = Mesh(3, 2)
    uses = replay._links(mesh, [(number, 100 + number) for number in range(5 * 6)])
    for node in range(6):
        ports = ports_at(node % 3, node // 3, 3, 2)
        numbers = range(5 * node, 5 * node + len(ports))
        expected = [(port, number, 100 + number) for port, number in zip(ports, numbers, strict=True)]
        assert [(use.port, use.busy, use.blocked) for use in uses if use.node == node] == expected


def test_what_a_file_leaves_open_has_a_usual_value(tmp_path: Path) -> None:
    notes = read(written(tmp_path, "0 1 .01\n"), TrafficSettings(side=(2, 2))).notes
    assert notes == ("packets are drawn over 10,000 cycles with seed 0", "packets have 8 flits")


@pytest.mark.parametrize(
    ("size", "flits", "lengths"),
    [
        (4, 0, [2]),
        (36, 0, [10]),
        (37, 0, [10, 2]),
        (100, 0, [10, 10, 8]),
        (0, 9, [9]),
        (0, 10, [10]),
        (0, 21, [10, 10, 1]),
    ],
)
def test_long_packets_are_cut_and_bytes_get_heads(size: int, flits: int, lengths: list[int]) -> None:
    transfer = NocTransfer((0, 0), ((1, 0),), size, 3, 0.0, 0, "NOC_0", False, flits)
    assert transfer.lengths(4, 10) == lengths
    assert transfer.bytes(4) == 3 * (size or flits * 4)


def test_por_is_the_chance_after_a_packet(tmp_path: Path) -> None:
    workload = read(written(tmp_path, "0 1 1 0\n"), TrafficSettings(side=(2, 2), cycles=100))
    assert [each.offset for each in workload.transfers] == [*range(1, 100, 2)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no packets; it must be a table of Noxim"),
        ("0 1 0\n", "has no packets; it must be a table of Noxim"),
        ("0 1 x\n", "traffic.txt:1: '0 1 x' must be numbers: src dst pir por t_on t_off t_period"),
        ("0 1 .5\n0 1\n", "traffic.txt:2: '0 1' must have three to seven numbers"),
        ("0 1 .5\n0 1 .5 .5 1 2 3 4\n", "traffic.txt:2: .* must have three to seven numbers"),
        ("-2 1 .5\n", "traffic.txt:1: .* must have three to seven numbers"),
        ("0 1 1.5\n", "traffic.txt:1: .* must have rates from 0 to 1 as pir and por"),
        ("0 1 nan\n", "traffic.txt:1: .* must have rates from 0 to 1 as pir and por"),
        ("0 1 .5 .5 9 4\n", "traffic.txt:1: .* must have t_on below t_off, and t_off below t_period"),
        ("0 1 .5 .5 1 4 4\n", "traffic.txt:1: .* must have t_on below t_off, and t_off below t_period"),
        ("0 1\n-1\n2\n", "traffic.txt:3: '2' must be two nodes, src and dst, or -1 at the end of a cycle"),
        ("0 1\n-1\n0 -2\n", "traffic.txt:3: '0 -2' must be two nodes"),
        (f"0 {'9' * 5000}\n", "traffic.txt:1: '0 9{78}' must be two nodes, src and dst"),
        ("0 1\n-1\n0 1 .5\n", "traffic.txt:3: '0 1 .5' must be two nodes"),
        ("0 16 1\n", "traffic.txt:1: node 16 is not in a mesh of 4x4, which ends with node 15; raise --mesh"),
    ],
)
def test_bad_lines_of_noxim_are_named(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ImportFileError, match=says):
        read(written(tmp_path, text), TrafficSettings(side=(4, 4), cycles=50))


# -- files of the examples --------------------------------------------------------------------------------------------


def test_a_trace_that_booksim_wrote() -> None:
    """It says where 14 of its 26 packets ended."""
    workload = read(EXAMPLES / "booksim.txt", MESH)
    assert len(workload.transfers) == 14
    assert {each.flits for each in workload.transfers} == {4}
    assert workload.claimed_cycles == 57
    assert workload.claimed_latency == pytest.approx(19.786, abs=1e-3)
    (gap,) = workload.gaps
    assert gap.startswith("12 packets that are never retired")
    for each in workload.transfers:
        (target,) = each.targets
        assert target == (each.source[1], each.source[0]), "the traffic is a transpose"


def test_a_table_of_the_examples() -> None:
    workload = read(EXAMPLES / "noxim_table.txt", TrafficSettings(side=(4, 4), cycles=2000))
    assert {each.source for each in workload.transfers} == {(0, 0), (3, 0), (0, 3)}
