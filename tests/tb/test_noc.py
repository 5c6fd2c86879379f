"""The network's bench: traffic is checked, wrong meshes are caught, loads are searched, a soak can be interrupted.

Two small meshes are built, which the soak uses too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshloom.hw.spec.config import tile_address
from meshloom.hw.spec.routes import DIRECTIONS, decode, dimension_ordered, heading_after
from meshloom.sched.store.store import key
from meshloom.tb.devices.noc import build, traffic
from meshloom.tb.devices.noc.build import ROUTES, Mesh
from meshloom.tb.devices.noc.traffic import Counters, TrafficError
from meshloom.tb.studies.chip import noc, noc_curves
from meshloom.tb.studies.chip.noc import CurveFigures, CurvePoint
from meshloom.tb.studies.chip.noc_curves import Curve, LoadPoint
from meshloom.tb.studies.chip.noc_peers import PEERS, pattern
from meshloom.tb.studies.chip.noc_plot import draw, title
from meshloom.tb.studies.points import areas
from meshloom.tb.verify import noc_soak

from .studies.made_rows import page_of, rows_of

#: Its links at node 0 can be made to do something wrong.
MUTABLE = Mesh(3, 2, 2, 4, routed=True, mutable=True)
#: Packets overtake each other here.
FREE = Mesh(2, 2, 2, 4, "yx", "free")
FLITS = 30_000
DROP, TWICE, OVERTAKE, FLIP, LAST, CHANNEL, SHUT = range(1, 8)


def counted(**changes: Any) -> Counters:
    values: dict[str, Any] = dict.fromkeys(Counters.__dataclass_fields__, 0)
    values |= {"cpu_seconds": 0.5} | changes
    return Counters(**values)


# -- traffic that is right --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stalls", [False, True])
@pytest.mark.parametrize("mesh", [MUTABLE, FREE], ids=lambda mesh: mesh.name)
def test_everything_arrives(mesh: Mesh, stalls: bool) -> None:
    counters = traffic.soak(mesh, FLITS, seed=1, stalls=stalls)
    assert counters.sent == counters.taken >= FLITS
    assert counters.pairs == (mesh.width * mesh.height) ** 2
    assert counters.routed == counters.detours == 0
    assert counters.packets > FLITS / 64
    assert counters.moves > counters.taken  # most flits pass more than one router


def test_source_routes_are_taken_and_some_are_detours() -> None:
    counters = traffic.soak(MUTABLE, FLITS, seed=2, routed=160)
    assert counters.taken >= FLITS
    assert counters.packets / 4 < counters.routed < counters.packets
    assert 0 < counters.detours < counters.routed


def test_seeds_differ_and_repeat() -> None:
    first, again, other = (traffic.soak(MUTABLE, 5000, seed=seed) for seed in (7, 7, 8))
    assert replace(first, cpu_seconds=0) == replace(again, cpu_seconds=0)
    assert first.cycles != other.cycles


def test_stalling_sinks_cost_cycles() -> None:
    calm, stalled = (traffic.soak(MUTABLE, FLITS, seed=1, stalls=stalls) for stalls in (False, True))
    assert stalled.cycles > calm.cycles
    assert stalled.blocked > 1.2 * calm.blocked


def test_routes_need_a_mesh_with_routes() -> None:
    with pytest.raises(ValueError, match="has no source routes"):
        traffic.soak(FREE, 100, seed=1, routed=1)


# -- traffic that is wrong --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "kind", "settings", "words"),
    [
        ("eject", DROP, {}, "lost, duplicated, reordered or corrupted flit"),
        ("eject", TWICE, {}, "lost, duplicated, reordered or corrupted flit"),
        ("eject", OVERTAKE, {}, "lost, duplicated, reordered or corrupted flit"),
        ("eject", LAST, {}, "wrong length"),
        ("eject", CHANNEL, {}, "packet not whole|no intact head|left its channel"),
        ("eject", CHANNEL, {"heads": 1}, "packet not whole|left its channel"),
        *(("eject", FLIP, {"bit": bit}, "corrupted flit|packet not whole") for bit in (0, 9, 14, 20, 27, 33, 36, 62)),
        *(("eject", FLIP, {"bit": bit, "heads": 1}, "no intact head|wrong destination") for bit in (3, 10, 25, 31, 34)),
        ("inject", DROP, {"heads": 1}, "fault|packet not whole|no intact head"),
        ("inject", DROP, {}, "lost, duplicated, reordered or corrupted flit"),
        ("inject", OVERTAKE, {}, "lost, duplicated, reordered or corrupted flit"),
        ("inject", FLIP, {"bit": 0, "heads": 1}, "no intact head"),  # arrives at another tile
        ("inject", FLIP, {"bit": 7, "heads": 1}, "fault: tile 00 dropped"),  # there is no such tile
        ("inject", FLIP, {"bit": 26, "heads": 1}, "no intact head"),  # the length
        ("inject", FLIP, {"bit": 36, "heads": 1}, "fault|no intact head"),  # what is no route is taken for one
        ("inject", LAST, {}, "wrong length|fault"),  # what is behind the end is no head
        ("eject", SHUT, {}, "stuck: no flit has moved for 20000 cycles"),
    ],
)
def test_a_wrong_mesh_is_caught(where: str, kind: int, settings: dict[str, int], words: str) -> None:
    wrong = {f"{where}_{name}": value for name, value in {"mutation": kind, "at": 1500, **settings}.items()}
    with pytest.raises(TrafficError, match=words) as caught:
        traffic.soak(MUTABLE, FLITS, seed=3, stalls=False, **wrong)
    assert MUTABLE.name in str(caught.value)
    assert "seed 3" in str(caught.value)


@pytest.mark.parametrize("at", range(200, 1000, 100))
@pytest.mark.parametrize("kind", [DROP, TWICE, OVERTAKE, FLIP, LAST, CHANNEL])
def test_wherever_it_happens(kind: int, at: int) -> None:
    with pytest.raises(TrafficError):
        traffic.soak(MUTABLE, FLITS, seed=at, eject_mutation=kind, eject_at=at, eject_bit=at % 63)


def test_a_packet_that_arrives_twice_is_caught_where_order_is_free() -> None:
    ones = {"queued": 1, "load": 1 << 30, "length": 1, "warmup": 0, "sample": 1000, "limit": 3000}
    assert traffic.run(MUTABLE, **ones).done > 0
    with pytest.raises(TrafficError, match="duplicated packet"):
        traffic.run(MUTABLE, **ones, eject_mutation=TWICE, eject_at=50)
    lost = traffic.run(MUTABLE, **ones, eject_mutation=DROP, eject_at=50)
    assert lost.done == lost.created - 1


def test_a_simulator_that_cannot_run_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bench"
    program.write_text("#!/bin/sh\necho no such library\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(traffic, "simulator", lambda mesh: program)
    with pytest.raises(TrafficError, match="status 3: no such library"):
        traffic.run(FREE)


# -- routes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("routing", ["xy", "yx"])
@pytest.mark.parametrize(("width", "height"), [(2, 2), (4, 3), (1, 6), (6, 6)])
def test_route_tables_hold_legal_ways(width: int, height: int, routing: str) -> None:
    mesh = Mesh(width, height, routing=routing, routed=True)
    words = list(traffic.route_table(mesh))
    tiles = [tile_address(x, y) for y in range(height) for x in range(width)]
    longer = 0
    for at, (source, target) in enumerate((source, target) for source in tiles for target in tiles):
        for variety in range(traffic.VARIETY):
            word = words[at * traffic.VARIETY + variety]
            if source == target:
                assert word == 0
                continue
            entries = [word >> 2 * turn & 3 for turn in range(ROUTES.turns)]
            path = decode(entries, source, width, height)
            direct = dimension_ordered(source, target, routing)
            assert path[-1] == target
            assert len(path) - 1 == word >> 26
            if variety == 0:
                assert path == direct
            longer += len(path) > len(direct)
            headings = [DIRECTIONS[entries[0]]]
            for turn in entries[1 : len(path) - 1]:
                headings.append(heading_after(headings[-1], turn))
            first = traffic.FIRST[routing]
            assert first not in headings[headings.count(first) :]  # only before all others
    assert (longer > 0) == (min(width, height) > 1)


def test_no_more_nodes_than_flits_can_name() -> None:
    Mesh(8, 8)
    for width, bits in ((13, 63), (2, 62)):
        with pytest.raises(ValueError, match="name up to 64 nodes in at least 63 bits"):
            Mesh(width, 5, bits=bits)


def test_a_digest_is_of_everything_that_is_built() -> None:
    meshes = [FREE, replace(FREE, depth=2), replace(FREE, gated=True), replace(FREE, mutable=True)]
    assert len({key("x", **build.ingredients(mesh)) for mesh in meshes}) == len(meshes)
    assert build.ingredients(FREE) == build.ingredients(replace(FREE))


# -- load curves ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 5])
def test_without_load_a_packet_takes_a_cycle_for_each_router_and_flit(length: int) -> None:
    counters = traffic.load_point(MUTABLE, {}, 1 / 512, length, warmup=100, sample=50_000, limit=60_000)
    assert counters.done == counters.created > 50
    assert counters.worst == 4 + length  # the longest way leads through four routers
    # three columns and two rows, any to any: 8/9 + 1/2 hops on average
    assert counters.latency / counters.done == pytest.approx(8 / 9 + 1 / 2 + 1 + length, rel=0.1)


def test_load_is_offered_and_accepted() -> None:
    counters = traffic.load_point(MUTABLE, {}, 0.3, 5, warmup=1000, sample=20_000, limit=30_000)
    assert counters.offered == pytest.approx(0.3 * 20_000 * 6, rel=0.05)
    assert counters.accepted == pytest.approx(counters.offered, rel=0.02)
    assert counters.done == counters.created == counters.offered / 5


def test_hot_spots_and_transposition_go_where_they_should() -> None:
    hot = traffic.load_point(MUTABLE, {"hot": 4, "weight": 10**6}, 1.0, 1, warmup=500, sample=5000, limit=5500)
    assert hot.accepted == pytest.approx(5000, rel=0.01)  # all to one sink, which takes a flit a cycle
    assert hot.done < hot.created
    crossed = traffic.load_point(FREE, {"transposed": 1}, 1.0, 1, warmup=500, sample=5000, limit=5500)
    assert crossed.accepted == pytest.approx(4 * 5000, rel=0.01)  # nobody is in another's way


@pytest.fixture
def queue_like(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replaces the simulator by a queue: latency 4 / (1 - load / 0.5), and never done beyond. Returns the loads run."""
    ran: list[float] = []

    def point(mesh: Mesh, settings: object, load: float, length: int, **rest: int) -> Counters:
        ran.append(load)
        if load >= 0.5:
            return counted(created=10, done=9, offered=1)
        return counted(created=1000, done=1000, latency=round(1000 * 4 / (1 - load / 0.5)))

    monkeypatch.setattr(noc_curves, "load_point", point)
    return ran


def test_saturation_is_where_latency_reaches_three_times_that_without_load(queue_like: list[float]) -> None:
    curve = Curve(Mesh(3, 3), PEERS[0])
    assert curve.zero_load == pytest.approx(4, rel=0.03)
    exact = 0.5 * (1 - 4 / (3 * curve.zero_load))
    assert exact <= curve.saturation <= exact + 1 / noc_curves.STEPS
    assert curve.load_at(1e9) == 0.5  # where not everything arrives any more
    assert curve.at(0.6).latency == float("inf")
    assert len(queue_like) == len(set(queue_like)) < 30  # no load runs twice
    assert curve.cpu_seconds == len(queue_like) / 2


def figures(zero_load: float, saturation: float, equal: float, points: tuple[LoadPoint, ...] = ()) -> CurveFigures:
    return CurveFigures(zero_load, saturation, equal, 0.9, points, 1.0)


def test_bars() -> None:
    """3x3, uniform, single flits: C2 has 10.4 cycles without load and saturates at 0.860."""
    point, other = (CurvePoint(3, "uniform", 1, policy) for policy in ("free", "same"))
    good = figures(4.5, 0.86, 0.9)
    assert noc.missed(point, good) == []
    assert len(noc.COLUMNS) == 12
    slow = figures(10.5, 0.84, 0.85)
    for each, missed in ((point, ["zero-load", "31.2", "saturation"]), (other, ["zero-load", "31.2"])):
        assert [words.split()[0] for words in noc.missed(each, slow)] == missed
    assert "keeps its VC: 3x3 uniform, 1 flits (0.840, theirs 0.860)" in noc.below([(other, slow)])
    assert "any free VC: none." in noc.below([(other, slow)])
    page = page_of(noc.STUDY, {point: good, other: figures(4.5, 0.8, 0.9)})
    assert page.missed == []
    assert page.texts == {"earlier": "5.90", "more": "1.047", "free": "+0.000"}
    assert page.tables[0].rows[0][4:] == (
        "4.50", "10.4", "16.0", "0.860", "0.860", "0.821", "0.900", "0.900",
    )  # fmt: skip


def test_patterns_of_the_peers() -> None:
    assert len(PEERS) == 14
    settings = {(one.side, one.pattern): pattern(one) for one in PEERS}
    assert settings[4, "uniform"] == {}
    assert settings[4, "transpose"] == {"transposed": 1}
    assert settings[3, "hotmix"] == {"hot": 4, "weight": 3}
    assert settings[5, "hotmix"] == {"hot": 12, "weight": 7}


def test_a_picture_has_a_curve_for_each_policy(queue_like: list[float], tmp_path: Path) -> None:
    known = {
        CurvePoint(one.side, one.pattern, one.length, policy): figures(
            4, 0.4, 0.4, Curve(noc.mesh(one.side, policy), one).shape()
        )
        for one in PEERS
        for policy in noc.POLICIES
    }
    panels = noc.panels(rows_of(known))
    assert len(panels) == 6
    paths = [tmp_path / name for name in ("a.svg", "b.svg")]
    for path in paths:
        draw(panels, path)
    text = paths[0].read_text()
    assert text == paths[1].read_text()
    for words in (*map(title, panels), "RTL, any free VC", "mean packet latency", "offered load"):
        assert words in text


# -- soak -------------------------------------------------------------------------------------------------------------


def test_a_soak_has_every_kind_of_mesh() -> None:
    meshes = noc_soak.MESHES
    assert {mesh.vcs for mesh in meshes} == {1, 2, 3, 4}
    assert {mesh.depth for mesh in meshes} == {2, 4}
    assert {(mesh.vcs, mesh.routing) for mesh in meshes} == {(vcs, way) for vcs in (1, 2, 3, 4) for way in ("xy", "yx")}
    assert {mesh.allocate for mesh in meshes if mesh.vcs > 1} == {"same", "free"}
    assert {(2, 2), (1, 6), (6, 1), (3, 5), (6, 6)} <= {(mesh.width, mesh.height) for mesh in meshes}
    for name in ("routed", "gated"):
        assert {getattr(mesh, name) for mesh in meshes} == {False, True}
    plan = noc_soak.doses(meshes, noc_soak.FLITS, 1)
    assert sum(dose.flits for dose in plan) >= noc_soak.FLITS >= 10_000_000
    assert len({dose.name for dose in plan}) == len(plan) == 3 * len(meshes)
    assert {dose.stalls for dose in plan} == {False, True}
    assert any(dose.routed for dose in plan)


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> list[noc_soak.Dose]:
    monkeypatch.setattr(noc_soak, "ingredients", lambda mesh: {"mesh": mesh.name})
    return noc_soak.doses((FREE, MUTABLE), 6000, 1)


def taker(ran: list[str], bad: Callable[[noc_soak.Dose], BaseException | None] = lambda dose: None) -> Any:
    def take(dose: noc_soak.Dose) -> Counters:
        if (error := bad(dose)) is not None:
            raise error
        ran.append(dose.name)
        return counted(taken=dose.flits, pairs=(dose.mesh.width * dose.mesh.height) ** 2)

    return take


def test_an_interrupted_soak_goes_on(
    plan: list[noc_soak.Dose], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[str] = []
    stop = taker(ran, lambda dose: KeyboardInterrupt() if dose.mesh == MUTABLE else None)
    monkeypatch.setattr(noc_soak, "take", stop)
    with pytest.raises(KeyboardInterrupt):
        noc_soak.run(plan, noc_soak.record_of(plan, tmp_path), 1, lambda words: None)
    assert ran == [dose.name for dose in plan[:3]]
    texts: list[str] = []
    monkeypatch.setattr(noc_soak, "take", taker(ran))
    record = noc_soak.record_of(plan, tmp_path)
    assert noc_soak.run(plan, record, 1, texts.append) == []
    assert ran == [dose.name for dose in plan]
    assert texts[0].startswith("continuing: 3 of 6 runs are done")
    assert f"{sum(dose.flits for dose in plan):,} flits so far" in texts[-1]
    record.forget()
    assert noc_soak.record_of(plan, tmp_path).done == {}


def test_a_soak_goes_on_after_a_failure_and_reports_it(
    plan: list[noc_soak.Dose], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[str] = []
    lost = TrafficError("lost packet")
    monkeypatch.setattr(noc_soak, "take", taker(ran, lambda dose: lost if dose == plan[1] else None))
    record = noc_soak.record_of(plan, tmp_path)
    wrong = noc_soak.run(plan, record, 2, lambda words: None)
    assert wrong == [f"{plan[1].name}: lost packet"]
    assert plan[1].name not in record.done
    assert len(ran) == len(record.done) == 5


def test_pairs_of_tiles_that_no_run_of_a_mesh_served_are_told(plan: list[noc_soak.Dose]) -> None:
    served = {dose.name: counted(pairs=pairs) for dose, pairs in zip(plan, (15, 16, 14, 35, 34, 33), strict=True)}
    assert [words.split("; ")[0] for words in noc_soak.left_out(plan, served)] == [
        f"{MUTABLE.name}: packets between 35 of 36 pairs of tiles"
    ]
    assert noc_soak.left_out(plan, {}) == []


# -- area -------------------------------------------------------------------------------------------------------------


def test_more_channels_are_more_cells() -> None:
    one, two = (areas.RouterArea(vcs, bits=92, depth=2).measure(lambda what: None) for vcs in (1, 2))
    flits = 5 * 2 * 93  # what the buffers of five ports hold
    assert flits < one.flip_flops < 1.2 * flits
    assert 1.8 * one.flip_flops < two.flip_flops < 2.4 * one.flip_flops
    assert one.flip_flops < one.cells < two.cells
