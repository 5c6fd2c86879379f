"""What is kept is kept under all that decides it: whatever differs in one input is another entry, in every store.

Each user of `SearchCache` is asked for something, and then for the same with one thing changed at a time. Nothing is
searched: the first look into the store ends it. (Code, chip and kind are in every key, see below and
`test_findings.py`; stores of the bench are in `tests/tb/test_keys.py`.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig, TileKind, load
from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.lowering.templates.compiling import compile_stage, template_cache
from meshloom.sched.lowering.templates.schemes import Scheme
from meshloom.sched.mapping.emit.expansion import Expansion
from meshloom.sched.mapping.tiling.problem import pose
from meshloom.sched.papers.dtt.search import Laid, shortest
from meshloom.sched.papers.flexer.layer import LayerSearch
from meshloom.sched.papers.flexer.policy import Policy
from meshloom.sched.papers.gradient import chain_search
from meshloom.sched.papers.gradient.chain_plan import ChainPlan, Update
from meshloom.sched.papers.gradient.scheduler import Searches
from meshloom.sched.papers.klotski import orchestrate as orchestrating
from meshloom.sched.papers.klotski.dag import Dag
from meshloom.sched.papers.klotski.judging import Judge, trial_cache
from meshloom.sched.papers.klotski.orchestrate import orchestrate, orchestration_cache
from meshloom.sched.papers.klotski.trying import Try, Trying, outcomes
from meshloom.sched.papers.klotski.work import Extent, stages_of
from meshloom.sched.papers.layer_puzzle.samples import Draw, measured, sample_cache
from meshloom.sched.schedulers.budget import Budget
from meshloom.sched.schedulers.loop_order import kept as loop_order
from meshloom.sched.schedulers.network import conv, sharing_search
from meshloom.sched.schedulers.network.form import form
from meshloom.sched.schedulers.network.scheduler import schedule as network_schedule
from meshloom.sched.schedulers.network.scheduler import search_cache
from meshloom.sched.schedulers.network.sharing import Between, SharingOptions
from meshloom.sched.schedulers.training.orders import Order
from meshloom.sched.schedulers.training.pair import Split
from meshloom.sched.store.described import described
from meshloom.sched.store.findings import SearchCache
from meshloom.sched.workload.graph import Graph, Layer, PastePlace, Value, Window
from meshloom.sched.workload.layers import ConvShape
from meshloom.sched.workload.regions import ConstantPlace
from meshloom.sched.workload.stages import cut
from meshloom.sched.workload.training import TrainingLayer
from meshloom.sched.workload.training_chain import Chain

from ...network_graphs import POINT, Grower, square

TINY = load("tiny")
OTHER = ChipConfig.model_validate(TINY.model_dump() | {"spm_words": TINY.spm_words // 2})
SHAPE = ConvShape("layer", 1, 8, 6, 6, 8, 3, 3, 1, 1, 1, 1, 1, 1)


class _Looked(Exception):
    """The store has been asked."""


@pytest.fixture
def name_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], str]:
    """Calls something; returns what it looks for first in the store."""

    def get(self: SearchCache, asked: object, form: object) -> None:
        raise _Looked(self._name(asked))

    def looked(call: Callable[[], object]) -> str:
        with pytest.raises(_Looked) as result:
            call()
        return str(result.value)

    monkeypatch.setattr(SearchCache, "get", get)
    return looked


# -- what is asked, as text -------------------------------------------------------------------------------------------


class _Colour(Enum):
    RED = 1
    BLUE = 2


class _Number(int, Enum):
    ONE = 1


@dataclass(frozen=True)
class _Some:
    shown: int
    hidden: object = None

    def __repr__(self) -> str:
        return f"_Some({self.shown})"


@dataclass(frozen=True)
class _Others(_Some):
    pass


def _long(last: int) -> np.ndarray[Any, Any]:
    array = np.zeros(5000, np.int64)
    array[2500] = last
    return array


#: No two of these are the same.
DIFFERENT: list[object] = [
    *(None, True, 1, 1.0, "1", b"1", Path("1"), -1, 0.1, 0.1 + 1e-17 * 10, float("inf"), "None", ""),
    *(_Colour.RED, _Colour.BLUE, "_Colour.RED", _Number.ONE),
    *((), (1,), [1], (1, 1), ((1,), 1), (1, (1,)), ("1", "1"), ("1,1",), ("1','1",), {1}, {1, 2}, frozenset({1})),
    *({}, {1: 2}, {2: 1}, {1: 2, 2: 1}, {2: 1, 1: 2}),
    *(_Some(1), _Some(2), _Some(1, 1), _Some(1, _Some(1)), _Others(1)),
    *(_long(0), _long(1), _long(0).astype(np.int32), _long(0).reshape(50, 100), _long(0)[:-1]),
    *(np.zeros(2, "<i4"), np.zeros(2, "<f4"), np.zeros(2, ">i4")),
    *(SHAPE, TINY, OTHER),
]


def test_no_two_inputs_read_the_same() -> None:
    texts = [described(one) for one in DIFFERENT]
    assert len(set(texts)) == len(texts), sorted(text for text in texts if texts.count(text) > 1)


def test_the_order_of_a_set_and_the_layout_of_an_array_decide_nothing() -> None:
    assert described({"a", "b", "c"}) == described({"c", "b", "a"})
    array = np.arange(6).reshape(2, 3)
    assert described(array) == described(np.asfortranarray(array))
    assert described(np.int64(3)) == described(3)
    assert described(np.float64(0.5)) == described(0.5)


@pytest.mark.parametrize("value", [object(), len, lambda: 1, _Some, [object()], np.array([object()]), iter(())])
def test_what_cannot_be_told_apart_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="cannot be part of what a result is kept under"):
        described(value)


def test_kinds_that_read_alike_share_nothing() -> None:
    """Names of files are cut, and have few characters; RTL results name the simulator's sources at the end."""
    long = "gradients on " + "flags " * 40
    kinds = ["served-a:b", "served-a_b", "served a:b", f"{long} sources 1", f"{long} sources 2"]
    names = [SearchCache(None, TINY, kind, "sched.workload.layers")._name("x") for kind in kinds]
    assert len(set(names)) == len(kinds)


# -- networks ---------------------------------------------------------------------------------------------------------

#: Each field of a layer, otherwise.
LAYER = Layer("conv", "y", ("x",), w=np.zeros((4, 4, 1, 1), np.int8), bias=np.zeros(4, np.int32))
LAYER_OTHERWISE: dict[str, object] = {
    "kind": "depthwise",
    "output": "z",
    "inputs": ("z",),
    "window": Window(2, 2),
    "relu": True,
    "clamp": 6,
    "scale": 9,
    "w": np.zeros((4, 4, 2, 1), np.int8),
    "bias": None,
    "scales": np.ones(4, np.int32),
    "places": (PastePlace(0, 0, 1, 1, 2, 2),),
    "table": np.zeros(256, np.int8),
    "times16": True,
    "repeat": 2,
    "by": "max",
    "groups": 2,
    "rows": 2,
    "group": 4,
    "density": 0.5,
}


def _unchecked(**values: object) -> Graph:
    """Layers that no network could have."""
    base: dict[str, object] = {
        "inputs": (Value("x", 4, 4, 4),), "layers": (LAYER,), "outputs": ("y",), "constants": {},
    }  # fmt: skip
    result: Any = SimpleNamespace(**(base | values))
    return result


def test_each_field_of_a_layer_is_part_of_its_network() -> None:
    assert set(LAYER_OTHERWISE) == {field.name for field in fields(Layer)}
    forms = [form(_unchecked())]
    for name, value in LAYER_OTHERWISE.items():
        changes: dict[str, Any] = {name: value}
        forms.append(form(_unchecked(layers=(replace(LAYER, **changes),))))
    forms += [form(_unchecked(layers=(LAYER, LAYER))), form(_unchecked(outputs=("x",)))]
    forms += [form(_unchecked(inputs=(Value(*one),))) for one in (("x", 4, 4, 5), ("x", 4, 5, 4), ("x", 5, 4, 4))]
    forms += [form(_unchecked(constants={"a/w": (ConstantPlace(tile, 5, 0, 8),)})) for tile in (1, 2)]
    assert len(set(forms)) == len(forms)


def _small(kernel: int = 1, height: int = 6, **more: Any) -> Graph:
    grower = Grower(1, Value("x", 4, height, 6))
    grower.conv("a", "x", 4, square(kernel, pad=kernel // 2), **more)
    return grower.graph("small", "a")


# -- every user of the store ------------------------------------------------------------------------------------------

#: Things that may be changed, and a call that looks for what these decide.
Use = Callable[[Mapping[str, Any]], Callable[[], object]]


def _loop_order(given: Mapping[str, Any]) -> Callable[[], object]:
    return lambda: loop_order.schedule(given["shape"], given["chip"], 77, given["effort"], None)


def _schedule(label: str = "base") -> Schedule:
    return Schedule(chip=TINY.name, chip_digest=TINY.digest, workload=label, scheduler="x", operations=(), tensors=())


def _ahead(given: Mapping[str, Any]) -> Callable[[], object]:
    laid = Laid(lambda schedule: schedule, given["options"])
    return lambda: shortest(given["base"], given["shape"], given["chip"], 77, given["plans"], laid)


def _judge(given: Mapping[str, Any]) -> Callable[[], object]:
    graph, chip = given["graph"], given["chip"]
    stages = given["cut"](graph, chip)
    judge = Judge(stages, chip, trial_cache(None, chip))
    return lambda: judge.look([given["part"]] * len(judge.works))


def _trying(given: Mapping[str, Any]) -> Callable[[], object]:
    one = Try("one", "one", given["asked"], lambda: None)  # pyright: ignore[reportArgumentType]  (it is never made)
    search = Trying(given["graph"], given["chip"], None, outcomes(None, given["chip"]), None)
    return lambda: search.quickest([one, one])


def _dag(cycles: tuple[int, ...] = (3, 4), edge: tuple[int, int] = (0, 1), words: int = 5) -> Dag:
    return Dag(np.array(cycles), np.array([edge]), np.array([words]), np.array(sorted(edge)))


def _orchestrate(given: Mapping[str, Any]) -> Callable[[], object]:
    memory = orchestration_cache(None, given["chip"])
    return lambda: orchestrate(given["dag"], given["chip"], given["budget"], memory=memory)


def _chain(given: Mapping[str, Any]) -> Callable[[], object]:
    return lambda: chain_search.schedule(given["chain"], given["chip"], given["plan"], "name")


def _gradient(given: Mapping[str, Any]) -> Callable[[], object]:
    searches = Searches(given["chip"], None, effort=given["effort"], leaders=given["leaders"])
    layer = TrainingLayer(given["shape"], first=given["first"])
    return lambda: searches.stored(layer, given["order"], given["cores"], given["split"])


def _nests(given: Mapping[str, Any]) -> Callable[[], object]:
    memory = search_cache(None, given["chip"])
    return lambda: network_schedule(given["graph"], given["chip"], None, memory, given["sharing"])


class _Planner:
    def __init__(self, key: object) -> None:
        self.key = key


def _refined(given: Mapping[str, Any]) -> Callable[[], object]:
    memory = search_cache(None, given["chip"])
    search = sharing_search.SharingSearch(
        given["graph"], given["chip"], None, memory, sharing_search.ComparisonBudget(9), {}
    )
    return lambda: search.try_(given["sharing"])


def _flexer(given: Mapping[str, Any], what: str) -> Callable[[], object]:
    layer = LayerSearch(given["shape"], given["chip"], 77, None, given["budget"])
    if what == "loop_order":
        return layer.loop_order
    return lambda: layer.choices(given["policy"]) if what == "choices" else layer.decided(*given["policies"])


def _samples(given: Mapping[str, Any]) -> Callable[[], object]:
    return lambda: measured(given["chip"], given["number"], given["drawn"], sample_cache(given["chip"]))


def _template(given: Mapping[str, Any]) -> Callable[[], object]:
    net: Any = SimpleNamespace(chip=given["chip"], form=lambda _: given["form"], varies=lambda _: None)
    return lambda: compile_stage(net, 0, given["scheme"], template_cache(None, given["chip"]))


def _shapes(*left: str) -> list[ConvShape]:
    """The layer with each of its fields changed, but for those that decide nothing."""
    otherwise: dict[str, Any] = {"name": "other", "relu": True, "clamp": 6, "dilation": 2}
    names = [field.name for field in fields(ConvShape) if field.name not in left]
    values = vars(SHAPE) | otherwise
    return [replace(SHAPE, **{name: values[name] if name in otherwise else values[name] + 1}) for name in names]


def _sharings() -> list[SharingOptions]:
    """Each field otherwise; planners of different keys, for other layers."""
    otherwise: dict[str, Any] = {
        "between": Between.DRAM, "fused": False, "tight": True, "staging": 3, "whole": True, "horizon": 7, "deep": True,
        "turned": frozenset({("a", "fair")}), "pushed": frozenset({("a", TileKind.DRAM)}),
    }  # fmt: skip
    names = [field.name for field in fields(SharingOptions) if field.name not in ("planner", "planned")]
    result = [replace(SharingOptions(), **{name: otherwise.get(name, frozenset({"a"}))}) for name in names]
    planners: list[Any] = [_Planner(1), _Planner(2)]
    ways = [None, frozenset({"a"}), frozenset({"b"})]
    return result + [SharingOptions(planner=planner, planned=some) for planner in planners for some in ways]


def _networks() -> list[Graph]:
    """Convolutions that are searched for by themselves: other windows, what is behind them, multipliers by channel."""
    grower = Grower(1, Value("x", 4, 6, 6))
    grower.add("s", grower.conv("a", "x", 4), "x")
    pooled = Grower(1, Value("x", 4, 6, 6))
    pooled.pool("p", pooled.conv("a", "x", 4), Window(2, 2, 2, 2))
    return [
        _small(kernel=3), _small(height=8), grower.graph("added", "s"), pooled.graph("pooled", "p"),
    ]  # fmt: skip


LAYERS = (TrainingLayer(replace(SHAPE, name="n/a")), TrainingLayer(replace(SHAPE, name="n/b")))
CHAIN, PLAN = Chain("n/a-b", LAYERS, True), ChainPlan(1, 1, 1)
POLICIES = [
    replace(Policy(), **{field.name: value})
    for field, value in zip(
        fields(Policy), ("static", 1, 1, 1, 2.0, 2.0, True, True, False, False, "m", "equal", 1), strict=True
    )
]
#: Of each user what it is asked for first, and for each input other values of it.
USES: dict[str, tuple[Use, dict[str, Any], dict[str, list[Any]]]] = {
    "loop_order": (_loop_order, {"shape": SHAPE, "chip": TINY, "effort": 1.0}, {
        "shape": _shapes(), "chip": [OTHER], "effort": [0.5],
    }),
    "ahead": (_ahead, {"shape": SHAPE, "chip": TINY, "base": _schedule(), "plans": 3, "options": ("a",)}, {
        "shape": _shapes(), "chip": [OTHER], "base": [_schedule("other")], "plans": [4], "options": [("b",), ("a", 1)],
    }),
    "klotski: trials": (
        _judge, {"graph": _small(), "chip": TINY, "part": Extent(1, 1, 1, 1), "cut": stages_of}, {
            "graph": [_small(kernel=3), _small(height=8)], "chip": [OTHER],
            "part": [Extent(2, 1, 1, 1), Extent(1, 2, 1, 1)],
        },
    ),
    "klotski: outcomes": (_trying, {"graph": _small(), "chip": TINY, "asked": ("a", 1)}, {
        "graph": [_small(kernel=3), _small(height=8), _small(relu=True)], "chip": [OTHER], "asked": [("a", 2), "a"],
    }),
    "klotski: where and when": (_orchestrate, {"dag": _dag(), "chip": TINY, "budget": Budget(1000)}, {
        "dag": [_dag(cycles=(4, 4)), _dag(edge=(1, 0)), _dag(words=6)], "chip": [OTHER], "budget": [Budget(2000)],
    }),
    "chains": (_chain, {"chain": CHAIN, "chip": TINY, "plan": PLAN}, {
        "chain": [
            replace(CHAIN, name="other"), replace(CHAIN, rectified=False), replace(CHAIN, layers=LAYERS[::-1]),
            replace(CHAIN, layers=(TrainingLayer(replace(SHAPE, name="n/a", in_w=7)), LAYERS[1])),
        ],
        "chip": [OTHER],
        "plan": [
            replace(PLAN, cores=2), replace(PLAN, keep=False), replace(PLAN, defer=False),
            replace(PLAN, update=next(each for each in Update if each is not Update.NONE)),
        ],
    }),
    "gradients": (
        _gradient,
        {
            "shape": SHAPE, "chip": TINY, "first": False, "order": Order.SEQUENTIAL, "cores": 2, "split": Split.K,
            "effort": 1.0, "leaders": 4,
        },
        {
            "shape": [replace(SHAPE, batch=2), replace(SHAPE, in_channels=9), replace(SHAPE, out_channels=9)],
            "chip": [OTHER], "first": [True], "order": [each for each in Order if each is not Order.SEQUENTIAL],
            "cores": [3], "split": [each for each in Split if each is not Split.K], "effort": [0.5], "leaders": [5],
        },
    ),
    "nests of networks": (_nests, {"graph": _small(), "chip": TINY, "sharing": SharingOptions()}, {
        "graph": _networks(), "chip": [OTHER], "sharing": [SharingOptions(staging=3)],
    }),
    "refined networks": (_refined, {"graph": _small(), "chip": TINY, "sharing": SharingOptions()}, {
        "graph": [_small(kernel=3), _small(relu=True)], "chip": [OTHER], "sharing": _sharings(),
    }),
    "flexer: choices": (
        lambda given: _flexer(given, "choices"),
        {"shape": SHAPE, "chip": TINY, "policy": Policy(), "budget": Budget(1000)},
        {
            "shape": _shapes("name", "relu", "clamp"), "chip": [OTHER], "policy": POLICIES,
            "budget": [None, Budget(2000), Budget(seconds=1000.0)],
        },
    ),
    "flexer: decided": (
        lambda given: _flexer(given, "decided"),
        {"shape": SHAPE, "chip": TINY, "policies": (Policy(),), "budget": Budget(1000)},
        {
            "shape": _shapes("name", "relu", "clamp"), "chip": [OTHER],
            "policies": [(Policy(), Policy(home=True)), (Policy(home=True), Policy()), (Policy(home=True),)],
            "budget": [None, Budget(2000)],
        },
    ),
    "flexer: nests": (lambda given: _flexer(given, "loop_order"), {"shape": SHAPE, "chip": TINY, "budget": None}, {
        "shape": _shapes("name", "relu", "clamp"), "chip": [OTHER],
    }),
    "layer samples": (_samples, {"chip": TINY, "number": 1, "drawn": [Draw("a", 1, 2, Scheme())]}, {
        "chip": [OTHER], "number": [2],
        "drawn": [
            [], [Draw("b", 1, 2, Scheme())], [Draw("a", 2, 2, Scheme())], [Draw("a", 1, 3, Scheme())],
            [Draw("a", 1, 2, Scheme(2))], [Draw("a", 1, 2, Scheme()), Draw("b", 1, 2, Scheme())],
        ],
    }),
    "templates": (_template, {"chip": TINY, "form": "form", "scheme": Scheme()}, {
        "chip": [OTHER], "form": ["other"],
        "scheme": [Scheme(2), Scheme(1, 2), Scheme(1, 1, 2), Scheme(1, 1, 1, 2)],
    }),
}  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_whatever_differs_in_one_input_is_another_entry(use: str, name_of: Callable[..., str]) -> None:
    call, given, otherwise = USES[use]
    names = {"as given": name_of(call(given))}
    assert name_of(call(given)) == names["as given"], "the same is found again"
    for field, values in otherwise.items():
        for number, value in enumerate(values):
            names[f"{field} {number}"] = name_of(call({**given, field: value}))
    assert len(set(names.values())) == len(names), _shared(names)


def _task(**values: object) -> Any:
    """A convolution of a network; nothing of it is looked at but what decides its loop nests."""
    stored = SimpleNamespace(homes={1}, rows=6, width=6)
    base: dict[str, object] = {
        "shape": SHAPE, "packed": False, "whole": False, "int4": False, "deep": False, "staging": 2, "epilogue": None,
        "before": None,
        "fixed": {"scale": 1}, "x": stored, "y": stored, "r": None, "there": {},
    }  # fmt: skip
    return SimpleNamespace(**(base | values))


def test_each_part_of_a_convolution_that_decides_its_nests_is_part_of_their_key() -> None:
    def before(window: Window = POINT, rows: int = 6, width: int = 6, **fixed: int) -> Any:
        return SimpleNamespace(window=window, fixed=fixed, x=SimpleNamespace(homes={1}, rows=rows, width=width))

    def expanding(shape: ConvShape = SHAPE, **fixed: int) -> Any:
        stored: Any = SimpleNamespace(homes={1}, rows=6, width=6)
        expansion = Expansion("e", pose(shape, TINY), fixed, stored)
        return SimpleNamespace(window=POINT, fixed=fixed, x=expansion)

    other, by_channel = SimpleNamespace(homes={2}), {"by_channel": 1}
    tasks = [_task(shape=shape) for shape in [SHAPE, *_shapes("name")]]
    tasks += [
        _task(packed=True),
        _task(whole=True),
        _task(int4=True),
        _task(deep=True),
        _task(staging=3),
        _task(fixed=by_channel),
    ]
    tasks += [_task(x=other), _task(y=other), _task(r=other)]
    tasks += [_task(there={"w": (ConstantPlace(tile, 5, first, 8),)}) for tile, first in ((1, 0), (2, 0), (1, 8))]
    tasks += [_task(epilogue=SimpleNamespace(pooling=pooling)) for pooling in (None, (2, 2), (3, 3))]
    befores = [before(), before(Window(2, 2)), before(rows=7), before(width=7), before(by_channel=1)]
    befores += [expanding(), expanding(replace(SHAPE, in_channels=9)), expanding(by_channel=1)]
    tasks += [_task(before=each) for each in befores]
    texts = [described(conv.decisive(task)) for task in tasks]
    assert len(set(texts)) == len(texts)
    assert described(conv.decisive(_task(shape=replace(SHAPE, name="other")))) == texts[0]
    moved = _task(there={"w": (ConstantPlace(1, 99, 0, 8),)})
    assert described(conv.decisive(moved)) in texts, "how weights are cut counts, not where they lie"


def _shared(names: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(one, other) for one in names for other in names if one < other and names[one] == names[other]]


def test_every_user_of_the_store_is_here() -> None:
    """A new one needs a row in `USES`."""
    root = Path(__file__).parents[4] / "sched"
    users = {path.relative_to(root).as_posix() for path in root.rglob("*.py") if "SearchCache(" in path.read_text()}
    assert users == {
        "lowering/templates/compiling.py", "papers/dtt/search.py", "papers/flexer/layer.py",
        "papers/gradient/scheduler.py", "papers/klotski/judging.py", "papers/klotski/orchestrate.py",
        "papers/klotski/trying.py", "papers/layer_puzzle/samples.py", "schedulers/loop_order/kept.py",
        "schedulers/network/scheduler.py", "papers/gradient/chain_search.py",
    }  # fmt: skip


def test_a_second_network_gets_its_own_trials(tmp_path: Path) -> None:
    """Also when both have stages of the same names that are cut in the same way."""

    def makespan(graph: Graph, folder: Path | None) -> int:
        judge = Judge(stages_of(graph, TINY), TINY, trial_cache(folder, TINY))
        return judge.look([Extent(2, 2, 1, 1)]).makespan

    first, second = _small(), _small(kernel=3)
    assert makespan(first, tmp_path) != makespan(second, tmp_path)
    assert makespan(second, tmp_path) == makespan(second, None)


@pytest.mark.parametrize("use", ["klotski: where and when", "gradients"])
def test_what_is_asked_for_in_turn_has_entries_of_its_own(use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stages of a search, or two kinds of results for the same inputs."""
    names: list[str] = []
    known = {"klotski: where and when": orchestrating._StoredPlan([0, 0], [0, 3], 7)}  # else it would search

    def get(self: SearchCache, asked: object, form: object) -> object:
        names.append(self._name(asked))
        return known.get(use)

    monkeypatch.setattr(SearchCache, "get", get)
    call, given, _ = USES[use]
    call(given)()
    assert len(set(names)) == len(names) == 2


def test_stages_that_are_cut_otherwise_have_other_trials(name_of: Callable[..., str]) -> None:
    """Of one network, in which nothing else differs."""
    grower = Grower(1, Value("x", 4, 6, 6))
    a, b = grower.conv("a", "x", 4), grower.conv("b", "x", 4)
    grower.take(Layer("concat", "y", (a, b)))
    graph = grower.graph("joined", "y")
    given = USES["klotski: trials"][1] | {"graph": graph}

    def renamed(graph: Graph, chip: ChipConfig) -> Any:
        result = cut(graph, chip, apart={"a", "b"})
        return replace(result, roots={name: (root, first + 1) for name, (root, first) in result.roots.items()})

    def reordered(graph: Graph, chip: ChipConfig) -> Any:
        result = cut(graph, chip, apart={"a", "b"})
        return replace(result, stages=result.stages[::-1])

    names = {name_of(_judge(given | {"cut": how})) for how in (given["cut"], renamed, reordered)}
    assert len(names) == 3


def test_a_planner_that_makes_nothing_decides_nothing() -> None:
    planner: Any = _Planner(1)
    assert sharing_search._decisive(SharingOptions(planner=planner, planned=frozenset())) == sharing_search._decisive(
        SharingOptions()
    )
