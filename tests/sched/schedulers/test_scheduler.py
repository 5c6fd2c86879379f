"""Schedulers by name: what is handed to them, what they may not do, and what becomes of one that fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, cast

import numpy as np
import pytest
from pydantic import Field

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.ir.schedule import Execution, Schedule
from meshloom.sched.mapping.emit.task import LayerTask
from meshloom.sched.mapping.nodes import Run
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.mapping.tiling.tiles import MTile
from meshloom.sched.schedulers import registry
from meshloom.sched.schedulers.budget import Budget
from meshloom.sched.schedulers.interface import Context, Maker, Options, Scheduler, SearchOptions
from meshloom.sched.schedulers.registry import REGISTRY, SchedulerError
from meshloom.sched.support import file_modules
from meshloom.sched.support.limits import Guard, guarded
from meshloom.sched.workload import zoo
from meshloom.sched.workload.layers import ConvShape
from meshloom.sched.workload.shapes import parse

CHIP = load("tiny")
SHAPE = parse("gemm:8x8x8")
#: Those for layers and networks, and all.
SHIPPED = "atomic, dtt, flexer, hybrid, klotski, loop_order, paper_static, zigzag"
ALL = SHIPPED.replace("dtt", "chain, dtt").replace("hybrid", "gradient, hybrid")

Register = Callable[..., None]


@pytest.fixture
def enter(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    """Registers anything as `mine`, as an installed package does."""

    def enter(thing: object) -> None:
        module = ModuleType("somebodys_scheduler")
        module.THING = thing  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "somebodys_scheduler", module)
        monkeypatch.setitem(REGISTRY._installed, "mine", EntryPoint("mine", "somebodys_scheduler:THING", "group"))
        monkeypatch.setattr(REGISTRY, "_loaded", {})

    return enter


@pytest.fixture
def register(enter: Callable[[object], None]) -> Register:
    """Registers a function of a layer as scheduler `mine`, for layers only."""

    def register(function: Any, options: type[Options] = Options) -> None:
        enter(Scheduler("mine", "", Maker(function, options)))

    return register


def failing(shape: ConvShape, chip: ChipConfig, scale: int, options: Options, context: Context) -> Schedule:
    return 1 / 0  # type: ignore[return-value]


def empty(shape: ConvShape, chip: ChipConfig, name: str = "mine") -> Schedule:
    return Schedule(chip=chip.name, chip_digest=chip.digest, workload=shape.name, scheduler=name, operations=())


def test_one_for_layers_is_not_replaced_on_networks(register: Register) -> None:
    register(failing)
    assert "mine" in registry.names()
    assert "mine" in registry.names("layers")
    assert "mine" not in registry.names("networks")
    with pytest.raises(
        SchedulerError, match=r"^scheduler mine schedules layers, not whole networks; give it .*'NETWORK/"
    ):
        registry.find_network("mine")
    with pytest.raises(SchedulerError, match=rf"take one of {SHIPPED}$"):
        registry.find_network("mine:budget=3")


def test_every_scheduler_that_ships_knows_layers_and_networks_or_training() -> None:
    both, training = registry.names("networks"), (*registry.names("gradients"), *registry.names("chains"))
    assert registry.names("layers") == both
    assert training == ("gradient", "chain")
    assert sorted((*both, *training)) == sorted(REGISTRY.shipped)
    for name in REGISTRY.shipped:
        result = REGISTRY.get(name)
        assert result.name == name
        assert result.summary
        for kind in result.kinds:
            maker = getattr(result, kind)
            assert all(field.description for field in maker.options.model_fields.values())


def test_one_that_fails_on_a_layer_is_named(register: Register) -> None:
    register(failing)
    message = (
        r"^scheduler mine failed on gemm:8x8x8: ZeroDivisionError: division by zero "
        r"\(line \d+ of test_scheduler.py\)$"
    )
    with pytest.raises(SchedulerError, match=message) as error:
        registry.find("mine")(SHAPE, CHIP, 7)
    assert error.value.kind == "ZeroDivisionError"
    assert "in failing" in str(error.value.__cause__)  # its traceback


def test_one_that_fails_on_a_network_is_named(enter: Callable[[object], None]) -> None:
    enter(Scheduler("mine", "", None, Maker(lambda graph, chip, options, context: 1 / 0)))
    with pytest.raises(SchedulerError, match=r"^scheduler mine failed on network resnet8: ZeroDivisionError"):
        registry.find_network("mine")(zoo.load("resnet8"), CHIP, None)
    with pytest.raises(SchedulerError, match=rf"scheduler mine does not schedule layers; take one of {SHIPPED}$"):
        registry.find("mine")


def test_what_does_not_fit_is_told_in_the_schedulers_words(register: Register) -> None:
    def too_big(shape: ConvShape, chip: ChipConfig, *_: object) -> Schedule:
        raise ValueError(f"{shape.name} needs 3 cores, {chip.name} has 1")

    register(too_big)
    message = r"^scheduler mine failed on gemm:8x8x8: gemm:8x8x8 needs 3 cores, tiny has 1 \(line"
    with pytest.raises(SchedulerError, match=message):
        registry.find("mine")(SHAPE, CHIP)


def test_our_own_errors_come_through_as_they_are(register: Register) -> None:
    def none(*_: object) -> Schedule:
        raise DoesNotFit("no room")

    register(none)
    with pytest.raises(DoesNotFit, match=r"^no room$"):
        registry.find("mine")(SHAPE, CHIP)


class Tuned:
    """An object whose call adds a layer's operations."""

    def __init__(self, share: int) -> None:
        self.share = share

    def __call__(self, task: LayerTask, options: Options) -> None:
        raise ValueError(f"has no share of {self.share}")


class Endless:
    def __call__(self, task: LayerTask) -> Iterator[int]:
        yield 1


def test_objects_and_partial_functions_may_be_called(enter: Callable[[object], None]) -> None:
    for thing in (Tuned(3), partial(Tuned.__call__, Tuned(3))):
        enter(thing)
        with pytest.raises(SchedulerError, match=r"has no share of 3 \(line \d+ of test_scheduler.py\)"):
            registry.find("mine")(SHAPE, CHIP)
    enter(Endless())
    with pytest.raises(SchedulerError, match="is a generator, which would never run"):
        registry.find("mine")


def test_a_schedule_is_what_they_make(register: Register) -> None:
    register(lambda *_: None)
    with pytest.raises(SchedulerError, match="scheduler mine made a NoneType of gemm:8x8x8, not a Schedule"):
        registry.find("mine")(SHAPE, CHIP)


class Moody(SearchOptions):
    """Options of a scheduler outside."""

    mood: Literal["good", "bad"] = "bad"
    often: int = Field(default=1, ge=1, le=9)
    really: bool = False


def test_options_come_as_their_types_say(register: Register, tmp_path: Path) -> None:
    given: list[Any] = []

    def curious(shape: ConvShape, chip: ChipConfig, scale: int, options: Moody, context: Context) -> Schedule:
        given.extend([shape, chip, scale, options, context])
        return empty(shape, chip)

    register(curious, Moody)
    with guarded(Guard(None, None)):  # here, where the list is
        result = registry.find("mine:budget=5s,mood=good,really=yes", tmp_path, print)(SHAPE, CHIP, 7)
    expected = Moody(budget=Budget.parse("5s"), mood="good", really=True)
    assert given == [SHAPE, CHIP, 7, expected, Context(tmp_path, print)]
    assert result.execution is Execution.TRIGGERED


class Kind(Enum):
    ONE = 1
    TWO = "two"


class Many(Options):
    """Options of other types than numbers and text."""

    parts: list[int] = []
    size: tuple[int, int] = (1, 2)
    limit: int | None = 5
    kind: Kind = Kind.ONE
    share: float = 0.5
    turn: Literal[1, 2] = 1
    names: list[Kind | None] = []


def test_options_of_several_values_of_none_and_of_enums(register: Register) -> None:
    def many(text: str) -> Any:
        return registry.typed_options("mine", "layers", Many, registry.options_of(f"loop_order:{text}")[1])

    text = "parts=[3,4],size=[5, 6],limit=none,kind=two,turn=2,names=[1,none]"
    some = Many(parts=[3, 4], size=(5, 6), limit=None, kind=Kind.TWO, turn=2, names=[Kind.ONE, None])
    assert many(text) == some
    assert many(some.named("mine").removeprefix("mine:")) == some
    assert many("parts=7,kind=1,limit=9") == Many(parts=[7], limit=9)
    assert many("parts=[]") == Many()
    for wrong, message in (
        ("share=nan", "share = 'nan' must be a number, not one that is none"),
        ("size=[1]", r"size = '\[1\]' must be 2 or more values, such as \[1,2\]"),
        ("size=[1,2,3]", r"size = '\[1,2,3\]' must be at most 2 values, such as \[1,2\]"),
        ("parts=[1,x]", r"parts = '\[1,x\]' must be a whole number"),
        ("kind=three", "kind = 'three' must be one of 1, two"),
    ):
        with pytest.raises(SchedulerError, match=message):
            many(wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("mood=fine", "scheduler mine: mood = 'fine' must be one of good, bad$"),
        ("often=0", "scheduler mine: often = '0' must be at least 1$"),
        ("often=10", "scheduler mine: often = '10' must be at most 9$"),
        ("often=1.5", "scheduler mine: often = '1.5' must be a whole number$"),
        ("really=perhaps", "scheduler mine: really = 'perhaps' must be yes or no$"),
        ("budget=soon", "scheduler mine: budget 'soon' must be steps of work"),
        ("moot=good", "scheduler mine has no option 'moot' for layers; did you mean mood"),
        ("x=1", "has no option 'x' for layers; it has budget, mood, often, really$"),
        ("mood", "'mood' is not key=value"),
        ("mood=", "'mood=' is not key=value"),
        ("mood=good,mood=bad", "mood is given twice"),
    ],
)
def test_options_that_are_wrong(register: Register, options: str, message: str) -> None:
    register(failing, Moody)
    with pytest.raises(SchedulerError, match=message):
        registry.find(f"mine:{options}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("loop_ordr", rf"unknown scheduler 'loop_ordr'; known are {ALL}; did you mean loop_order\?"),
        ("nobody", rf"unknown scheduler 'nobody'; known are {ALL}; others are named by package.module:NAME or FILE"),
        ("nobody:effort=1", "unknown scheduler 'nobody'"),
        ("loop_order:efort=1", r"scheduler loop_order has no option 'efort' for layers; did you mean effort\?"),
        ("loop_order:colour=1", "scheduler loop_order has no option 'colour' for layers; it has effort$"),
        (
            "dtt:colour=1",
            "dtt has no option 'colour' for layers; it has placing, sources, hop_weight, pushed, base, plans$",
        ),
        ("loop_order:effort=1,effort=2", "effort is given twice"),
        ("loop_order:effort", "'effort' is not key=value"),
        ("loop_order:effort=-1", "effort = '-1' must be above 0"),
        ("loop_order:effort=much", "effort = 'much' must be a number"),
        ("no_such.package:schedule", "scheduler no_such.package:schedule cannot be loaded: ModuleNotFoundError"),
        ("no_such_package:schedule", "unknown scheduler 'no_such_package:schedule'"),
        ("json:lods", r"scheduler json:lods: json has no lods; did you mean loads, load\?"),
        ("json:decoder", "decoder of json is of type module; it must be a Scheduler, or a function of a LayerTask"),
        ("nowhere/mine.py:schedule", "scheduler nowhere/mine.py:schedule: there is no file nowhere/mine.py"),
        ("nowhere/mine.py", "nowhere/mine.py is not a scheduler; name the one in it: nowhere/mine.py:NAME"),
    ],
)
def test_names_and_options(name: str, message: str) -> None:
    with pytest.raises(SchedulerError, match=message):
        registry.find(name)


def test_options_of_networks_that_may_have_been_meant() -> None:
    with pytest.raises(SchedulerError, match=r"has no option 'betwen' for networks; did you mean between\?"):
        registry.find_network("loop_order:betwen=dram")


def test_one_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = EntryPoint("mine", "no_such_module_at_all:THING", "group")
    monkeypatch.setitem(REGISTRY._installed, "mine", gone)
    with pytest.raises(SchedulerError, match="scheduler mine cannot be loaded: ModuleNotFoundError: No module"):
        registry.find("mine")
    assert "mine" in registry.names()
    assert "mine" not in registry.names("layers")  # one broken package does not break the list of the others


# -- functions in files -------------------------------------------------------------------------------------------

WHOLE = '''
"""A scheduler in a file."""
from beside import LIMIT


def schedule(task):
    """Everything at once, on the first core."""
    tile, (core, *_) = task.tiles(task.rows)[0], task.cores
    n, k = (0, task.n_blocks), (0, task.k_blocks)
    assert task.rows <= LIMIT, "too many rows"
    task.load_bias(core, n, 0)
    task.load_weights(core, n, k, 0)
    task.load_input(core, tile, k, 0)
    task.gemm(core, tile, n, k, a=0, b=0, bias=0, sums=n[1], out=0)
    task.store(core, tile, n, 0)
'''


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside.py").write_text("LIMIT = 8\n")
    path = tmp_path / "mine.py"
    path.write_text(WHOLE)
    yield path
    sys.modules.pop("beside", None)


@pytest.mark.parametrize(
    ("more", "name", "message"),
    [
        ("", "", r"mine\.py is not a scheduler; name the one in it: \S*mine\.py:schedule$"),
        ("def other(task):\n    pass\n", "", r"in it: \S*mine\.py:NAME, one of schedule, other$"),
        ("", ":nothing", r"mine\.py has no nothing; it has schedule$"),
        ("", ":shedule", r"mine\.py has no shedule; did you mean schedule\?$"),
    ],
)
def test_what_a_file_has_is_told(mine: Path, more: str, name: str, message: str) -> None:
    mine.write_text(WHOLE + more)
    with pytest.raises(SchedulerError, match=message):
        registry.find(f"{mine}{name}")


def test_a_folder_is_no_scheduler(mine: Path) -> None:
    with pytest.raises(SchedulerError, match=r"is a folder; name the file in it and what .*/beside\.py:NAME"):
        registry.find(f"{mine.parent}:schedule")


def test_a_name_means_what_its_file_says_now(mine: Path) -> None:
    name = f"{mine}:schedule"
    before = registry.scheduler_of(name).summary
    mine.write_text(WHOLE.replace("Everything at once", "All of it at once"))
    assert (before, registry.scheduler_of(name).summary) == (
        "Everything at once, on the first core.",
        "All of it at once, on the first core.",
    )


def test_a_function_in_a_file_is_a_scheduler(mine: Path) -> None:
    name = f"{mine}:schedule"
    result = registry.scheduler_of(name)
    assert result.summary == "Everything at once, on the first core."
    assert result.kinds == ("layers", "networks")
    outcome = registry.find(name)(SHAPE, CHIP, 99)
    assert outcome.scheduler == name
    assert [op.kind for op in outcome.operations] == ["move", "move", "move", "gemm", "move"]


def test_a_file_that_has_changed_is_read_again(mine: Path) -> None:
    first = file_modules.load(mine)
    assert file_modules.load(mine) is first
    mine.write_text(WHOLE.replace("Everything", "All"))
    assert file_modules.load(mine) is not first


def test_an_edit_of_the_same_size_in_the_same_second_is_seen(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python keeps compiled code by size and second of change alone."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    widths: list[int] = []
    for width in (4, 1):
        mine.write_text(f"WIDTH = {width}\n")
        os.utime(mine, (10**9, 10**9))
        widths.append(file_modules.load(mine).WIDTH)
    assert widths == [4, 1]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("LIMIT, ", "LIMT, ", r"failed on gemm:8x8x8: NameError: name 'LIMT' is not defined.* \(line 10 of mine.py\)$"),
        ("task.rows <= LIMIT", "False", r"failed on gemm:8x8x8: AssertionError: too many rows \(line 10 of mine.py\)$"),
        (
            "assert task",
            "__import__('importlib').import_module('beside')\n    assert task",
            "only the statement `import b",
        ),
        ("n[1], out", "n[1] / 0, out", r"ZeroDivisionError: division by zero \(line 14 of mine.py\)$"),
    ],
)
def test_what_raises_in_a_file_is_told_with_its_line(mine: Path, old: str, new: str, message: str) -> None:
    mine.write_text(WHOLE.replace(old, new))
    with pytest.raises(SchedulerError, match=message):
        registry.find(f"{mine}:schedule")(SHAPE, CHIP, 99)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def schedule(:", "cannot be loaded: SyntaxError"),
        ("\n1 / 0", r"cannot be loaded: ZeroDivisionError: division by zero \(line 2 of mine.py\)$"),
        ("import nothing_of_that_name", "cannot be loaded: ModuleNotFoundError"),
        (
            "from importlib import import_module as take\ntake('beside')",
            r"No module named 'beside'; only the statement `import beside` looks beside the file, importlib does not",
        ),
        ("schedule = 5", "schedule of .*mine.py is of type int; it must be a Scheduler, or a function of a LayerTask"),
        ("async def schedule(task): ...", "is an async function, which would never run; begin it with def alone"),
        ("def schedule(task):\n    yield 1", "is a generator, which would never run; leave out yield"),
        ("def schedule(): ...", "takes nothing; it must take a LayerTask"),
        ("def schedule(a, b, c): ...", "takes a, b, c; it must take a LayerTask"),
        ("def schedule(task, more): ...", "has a parameter more that is annotated with no model"),
        ("def other(task): ...", "has no schedule; it has other$"),
    ],
)
def test_files_that_hold_no_scheduler(mine: Path, text: str, message: str) -> None:
    mine.write_text(text)
    with pytest.raises(SchedulerError, match=message):
        registry.find(f"{mine}:schedule")


def test_options_behind_a_reference(mine: Path) -> None:
    mine.write_text(
        "from meshloom.sched.schedulers.interface import Options\n\n\nclass Mine(Options):\n    loud: bool = False\n"
        "def schedule(task, options: Mine):\n    raise ValueError(f'loud is {options.loud}')\n"
    )
    assert registry.options_of(f"{mine}:schedule:loud=yes") == (f"{mine}:schedule", {"loud": "yes"})
    with pytest.raises(SchedulerError, match="loud is True"):
        registry.find(f"{mine}:schedule:loud=yes")(SHAPE, CHIP, 1)
    with pytest.raises(SchedulerError, match="has no option 'lound' for layers; did you mean loud"):
        registry.find(f"{mine}:schedule:lound=yes")


# -- what authors are given ----------------------------------------------------------------------------------------


def test_a_tasks_mistakes_are_named() -> None:
    task = LayerTask(parse("conv:6x6x20-20,k3,p1"), CHIP, 1)
    tile, core = task.tiles(2)[0], task.cores[0]
    for sizes, what in (((0,), "0 rows"), ((-1,), "-1 rows"), ((1, 0), "0 columns")):
        with pytest.raises(ValueError, match=f"there are no tiles of {what}; give 1 or more"):
            task.tiles(*sizes)
    with pytest.raises(ValueError, match="blocks n = \\(0, 99\\) are not within"):
        task.load_weights(core, (0, 99), (0, 1), 0)
    odd: Any = 0
    for call in (
        lambda: task.load_weights(core, odd, (0, 1), 0),
        lambda: task.load_bias(core, odd, 0),
        lambda: task.store(core, tile, odd, 0),
    ):
        with pytest.raises(
            ValueError, match=r"blocks n = 0 are no pair; give the first and the end, such as \(0, \d+\)"
        ):
            call()
    odd = (0, 1, 2)
    for call in (
        lambda: task.load_input(core, tile, odd, 0),
        lambda: task.gemm(core, tile, (0, 1), odd, a=0, b=0, bias=0, sums=0, out=0),
    ):
        with pytest.raises(ValueError, match=r"blocks k = \(0, 1, 2\) are no pair"):
            call()
    with pytest.raises(ValueError, match="blocks k = \\(1, 1\\) are not within"):
        task.load_input(core, tile, (1, 1), 0)
    with pytest.raises(ValueError, match=r"tiny has no core .*; take one of"):
        task.store(CHIP.host, tile, (0, 1), 0)
    with pytest.raises(DoesNotFit, match=r"A of a tiny core is too small: words .* are used, it has"):
        task.load_input(core, tile, (0, 1), CHIP.core.a_words - 1)
    with pytest.raises(ValueError, match=r"bias = 3 and sums = 2 of a GEMM overlap in ACC, which has 1 rows of bias"):
        LayerTask(parse("gemm:4x4x32"), CHIP, 1).gemm(core, tile, (0, 1), (0, 1), a=0, b=0, bias=3, sums=2, out=0)
    with pytest.raises(ValueError, match="has added no operation; call gemm and store of its task"):
        task.schedule("nobody")


def first_core(task: LayerTask, number: Callable[[int], Any]) -> None:
    """A layer at once, and a move; every number is one of `number`'s."""
    core, tile = number(task.cores[0]), MTile(*map(number, task.tiles(number(task.rows))[0]))
    n, k = (number(0), number(task.n_blocks)), (number(0), number(task.k_blocks))
    task.load_bias(core, n, at=number(0))
    task.load_weights(core, n, k, number(0))
    task.load_input(core, tile, k, at=number(0))
    task.gemm(core, tile, n, k, a=number(0), b=number(0), bias=number(0), sums=number(0), out=number(0))
    task.move(core, Run(core, number(0), number(1), number(0)), Run(task.cores[0], 0, 1, 0), number(1), "twice")
    task.store(core, tile, n, at=number(0))


@pytest.mark.parametrize("number", [np.int64, np.uint8])
def test_a_task_takes_whole_numbers_of_any_type(number: Callable[[int], Any]) -> None:
    """Authors compute addresses and blocks with numpy."""
    plain, task = (LayerTask(parse("gemm:4x4x4"), CHIP, 1) for _ in range(2))
    first_core(plain, int)
    first_core(task, number)
    assert task.schedule("somebody") == plain.schedule("somebody")
    task.load_bias(task.cores[0], cast(Any, np.array([0, 1])), at=0)
    plain.load_bias(plain.cores[0], (0, 1), at=0)
    assert task.schedule("somebody").operations == plain.schedule("somebody").operations, "blocks may be an array"
    with pytest.raises(ValueError, match=r"at = 0\.0: whole numbers are wanted; give ints, such as int"):
        task.load_bias(task.cores[0], (0, 1), cast(Any, 0.0))
    with pytest.raises(ValueError, match=r"n = array\(\[0\.5, 1\. \]\): whole numbers are wanted"):
        task.load_bias(task.cores[0], cast(Any, np.array([0.5, 1])), at=0)
    with pytest.raises(ValueError, match=r"n = \(0, 1\.0\): whole numbers are wanted"):
        task.load_bias(task.cores[0], cast(Any, (0, 1.0)), at=0)


def test_a_value_that_no_schedule_takes_is_told_in_one_line(tmp_path: Path) -> None:
    """Of pydantic's lines only what is wrong, and where the author writes it."""
    path = tmp_path / "mine.py"
    path.write_text(
        "from meshloom.sched.ir.schedule import Span\ndef made(task):\n    Span(tile=0, address='a', run=1)\n"
    )
    with pytest.raises(SchedulerError) as caught:
        registry.find(f"{path}:made")(SHAPE, CHIP, 7)
    text = str(caught.value)
    assert "Span: address = 'a': Input should be a valid integer (line 3 of mine.py)" in text
