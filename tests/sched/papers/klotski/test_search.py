"""Searches for partitions: what a trial says, what a schedule of it obeys, and that searches repeat and resume."""

from __future__ import annotations

from collections import defaultdict
from math import ceil, log

import numpy as np
import pytest

from meshloom.hw.spec import config
from meshloom.hw.spec.contracts import GEMM_ISSUE_CYCLES
from meshloom.hw.spec.timing import gemm_tail
from meshloom.sched.model.latency import landing
from meshloom.sched.papers.klotski.alone import alone
from meshloom.sched.papers.klotski.judging import Judge, Objective, entropy, trial_cache
from meshloom.sched.papers.klotski.partition import Partition, cutting, micro_ops
from meshloom.sched.papers.klotski.playing import Cores, play
from meshloom.sched.papers.klotski.search import Method, _Bayes, _Random, search
from meshloom.sched.papers.klotski.space import Form, PartitionSpace
from meshloom.sched.papers.klotski.work import Extent, stages_of, works

from ...network_graphs import every_kind, random_network

CHIP = config.load("klotski9")
WAYS = [(method, form) for method in Method for form in Form if (method is Method.LAYERWISE) <= (form is Form.LAYERS)]


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(stages_of(every_kind(), CHIP), CHIP)


@pytest.mark.parametrize("chip", ["klotski9", "klotski25", "mono16"])
@pytest.mark.parametrize("seed", range(4))
def test_schedules_obey_what_they_promise(chip, seed):
    """Starts are the latest of what each micro-op waits for, and no two share a core at a time."""
    config_ = config.load(chip)
    partition = Partition(2 + seed, 9, config_.lanes * 2, config_.cols)
    stages = stages_of(random_network(seed + 40), config_)
    graph, arrays, cores = micro_ops(stages, config_, partition), cutting(stages, config_, partition), Cores.of(config_)
    given = np.arange(len(graph.ops)) % len(cores) if seed % 2 else None
    result = play(arrays, cores, given)
    starts, where = result.starts.tolist(), result.cores.tolist()
    if given is not None:
        assert where == given.tolist()
    by_core: dict[int, list[int]] = defaultdict(list)
    for number in sorted(
        range(len(starts)), key=lambda number: (starts[number], starts[number] + graph.ops[number].cycles)
    ):
        by_core[where[number]].append(number)
    tail = gemm_tail(config_, config_.rows) + GEMM_ISSUE_CYCLES
    share = max(1, len(config_.cores) * max(1, config_.lanes / config_.dram.bytes_per_cycle) / len(config_.drams))
    for listed in by_core.values():
        held, end, begun = None, 0, 0
        for number in listed:
            op = graph.ops[number]
            earliest, come, handed = end, 0, 0
            for edge in graph.before[number]:
                done = starts[edge.producer] + graph.ops[edge.producer].cycles + tail
                handed += 0 if edge.sums else edge.words
                if where[edge.producer] != where[number]:
                    x, y = (config.tile_position(config_.cores[where[one]]) for one in (edge.producer, number))
                    hops = abs(x[0] - y[0]) + abs(x[1] - y[1])
                    done += landing(config_, hops, edge.words)
                    come += edge.words
                earliest = max(earliest, done)
            fetched = sum(region.words for _, region in op.reads) - handed
            weights = (op.stage, op.result.planes, op.channels)
            if weights != held:
                fetched += op.constants
            if op.constants:
                held = weights
            assert starts[number] == max(earliest, begun + come + ceil(fetched * share))
            begun, end = starts[number], starts[number] + op.cycles
    assert (
        result.makespan == max(start + op.cycles for start, op in zip(starts, graph.ops, strict=True)) >= result.bound
    )
    chain: list[int] = []
    for op in graph.ops:
        chain.append(op.cycles + max((chain[edge.producer] for edge in graph.before[op.number]), default=0))
    assert result.bound == max(max(chain), ceil(sum(op.cycles for op in graph.ops) / len(cores)))
    assert result.orchestration().cores == tuple(where)


def test_with_a_barrier_stages_come_one_after_the_other():
    stages = stages_of(every_kind(), CHIP)
    arrays = cutting(stages, CHIP, Partition(3, 4, 16, 14))
    result = play(arrays, Cores.of(CHIP), barrier=True)
    ends = result.starts + arrays.cycles
    for number in range(1, len(arrays.grids)):
        assert result.starts[arrays.stage == number].min() >= ends[arrays.stage < number].max()
    assert result.makespan > play(arrays, Cores.of(CHIP)).makespan


def test_entropy_is_highest_when_all_are_alike():
    assert entropy(np.full(64, 7)) == pytest.approx(log(64))
    assert entropy(np.array([1, 3])) == pytest.approx(-(log(1 / 4) / 4 + 3 * log(3 / 4) / 4))
    assert entropy(np.array([1, 1000])) < entropy(np.array([400, 601])) < log(2)


def test_a_trial_says_what_its_micro_ops_are(judge):
    expected = [Extent(3, 4, 1, 1) for _ in judge.works]
    trial = judge.look(expected)
    graph = micro_ops(judge.stages, CHIP, trial.partitions(CHIP))
    cycles = [op.cycles for op in graph.ops]
    assert trial.count == len(graph.ops)
    assert trial.kinds == len({(op.stage, op.kind) for op in graph.ops})
    assert trial.mean == pytest.approx(sum(cycles) / len(cycles))
    shares = [count / sum(cycles) for count in cycles]
    assert trial.entropy == pytest.approx(-sum(share * log(share) for share in shares))
    assert trial.makespan == play(cutting(judge.stages, CHIP, trial.partitions(CHIP)), Cores.of(CHIP)).makespan
    alpha = judge.alpha
    assert trial.value(Objective.ENTROPY, alpha) == pytest.approx(trial.entropy / (alpha * trial.makespan))
    assert trial.value(Objective.MEAN, alpha) == pytest.approx(trial.entropy / (alpha * trial.mean))
    assert trial.value(Objective.MAKESPAN, alpha) == pytest.approx(1 / (alpha * trial.makespan))


@pytest.mark.parametrize("form", Form)
def test_points_stand_for_sizes(judge, form):
    space = PartitionSpace(judge.works, form, most=300)
    points = space.draw(np.random.default_rng(1), 50)
    assert points.shape == (50, space.size)
    assert (space.counts(points) <= 300).all()
    assert (points * 128 == np.rint(points * 128)).all()
    for point in points[:10]:
        extents = space.extents(point)
        wholes = [work.whole for work in judge.works]
        sizes = [-(-getattr(w, n) // getattr(e, n)) for w, e in zip(wholes, extents, strict=True) for n in vars(w)]
        assert space.counts(point[None])[0] == np.prod(np.reshape(sizes, (-1, 4)), axis=1).sum()
    finest = 0.0 if form is Form.SIZES else 1.0
    fine = PartitionSpace(judge.works, form).extents(np.full(space.size, finest))
    assert max(extent.rows for extent in fine) == 1
    assert all(
        extent == work.whole
        for extent, work in zip(space.extents(np.full(space.size, 1 - finest)), judge.works, strict=True)
    )


def test_cuts_come_back_from_their_points(judge):
    space = PartitionSpace(judge.works, Form.LAYERS)
    for work in judge.works:
        for parts in ([1, 1, 1, 1], [2, 3, 1, 1], [work.whole.rows, 1, work.whole.planes, work.whole.depth]):
            sizes = [min(count, 32, size) for count, size in zip(parts, vars(work.whole).values(), strict=True)]
            assert space.parts(work, space.numbers_of(work, parts)) == sizes


def test_points_with_too_many_micro_ops_move_on_even_if_nothing_can_be_done(judge):
    space = PartitionSpace(judge.works, Form.PARTS, most=1)
    assert (space.draw(np.random.default_rng(1), 3) == 0).all()


@pytest.mark.parametrize(("method", "form"), WAYS)
def test_searches_repeat_and_report(judge, method, form):
    seen: list[tuple[int, int, int]] = []
    one = search(judge, method, form, Objective.MAKESPAN, 7, 3, lambda *now: seen.append((*now[:2], now[2].makespan)))
    two = search(judge, method, form, Objective.MAKESPAN, 7, 3)
    assert one == two
    assert len(one.trials) == 7
    assert one.best.makespan == min(trial.makespan for trial in one.trials)
    assert seen == [(n, 7, min(trial.makespan for trial in one.trials[:n])) for n in range(1, 8)]
    if method is not Method.LAYERWISE:  # which begins where it always does
        assert search(judge, method, form, Objective.MAKESPAN, 7, 4).trials != one.trials


@pytest.mark.parametrize("method", [Method.ANNEALING, Method.BAYES])
def test_an_interrupted_search_goes_on(tmp_path, monkeypatch, method):
    stages = stages_of(every_kind(), CHIP)

    def stop(number: int, *_: object) -> None:
        if number == 5:
            raise KeyboardInterrupt

    def judging() -> Judge:
        return Judge(stages, CHIP, trial_cache(tmp_path, CHIP))

    with pytest.raises(KeyboardInterrupt):
        search(judging(), method, budget=9, progress=stop)
    tried: list[int] = []
    plain = Judge._look

    def count(self: Judge, parts: list[Extent]) -> object:
        tried.append(len(parts))
        return plain(self, parts)

    monkeypatch.setattr(Judge, "_look", count)
    result = search(judging(), method, budget=9)
    assert len(tried) <= 4
    assert result == search(Judge(stages, CHIP), method, budget=9)


def test_what_cannot_be_asked_for(judge):
    with pytest.raises(ValueError, match="one partition at least, not 0"):
        search(judge, Method.RANDOM, budget=0)
    with pytest.raises(ValueError, match="form is layers, not sizes"):
        search(judge, Method.LAYERWISE, Form.SIZES)


def test_a_gaussian_process_learns(judge):
    """On a smooth hill, of which it is told values only, it comes nearer to the top than points at random do."""
    space = PartitionSpace(judge.works, Form.PARTS, most=10**9)
    top = np.array([0.3, 0.7, 0.2, 0.6])
    left: dict[str, list[float]] = {"bayes": [], "random": []}
    for seed in range(3):
        for name, proposer in (
            ("bayes", _Bayes(space, np.random.default_rng(seed), seed)),
            ("random", _Random(space, np.random.default_rng(seed))),
        ):
            best = np.inf
            for _ in range(20):
                point = proposer.ask()
                away = float(((point - top) ** 2).sum())
                proposer.tell(point, -away)
                best = min(best, away)
            left[name].append(best)
    assert np.mean(left["bayes"]) < np.mean(left["random"]) / 4


@pytest.mark.parametrize("turns", [1, 3])
def test_layers_by_themselves(judge, turns):
    """Enough micro-ops for all cores to have as many turns, wherever a layer can be cut so finely; and they fit."""
    for work in works(judge.stages, CHIP):
        extent = alone(work, CHIP, judge.cores, turns)
        assert not work.too_large(CHIP, extent)
        parts = [
            -(-whole // part) for whole, part in zip(vars(work.whole).values(), vars(extent).values(), strict=True)
        ]
        whole = work.whole
        if whole.rows >= turns * len(judge.cores):
            assert np.prod(parts) > (turns - 1) * len(judge.cores)
