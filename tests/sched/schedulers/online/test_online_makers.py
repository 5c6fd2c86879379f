"""Online schedulers of one's own: functions, classes and makers, their options, and what is said when they fail."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from meshloom.sched.schedulers.online.drive import Drive, Run
from meshloom.sched.schedulers.online.interface import Decision, Instance, Network
from meshloom.sched.schedulers.online.metrics import measure
from meshloom.sched.schedulers.online.registry import ONLINE, OnlineMaker, online_scheduler
from meshloom.sched.schedulers.registry import SchedulerError
from meshloom.sched.support.plugins import Registry

from ...fluid import Fluid
from ...serving_world import PLATFORM, InTurn, instances, layer, network

EXAMPLE = Path(__file__).parents[4] / "examples" / "online_scheduler" / "urgent" / "__init__.py"
TUTORIAL = Path(__file__).parents[4] / "docs" / "tutorial.md"
HEAD = """
from __future__ import annotations
from meshloom.sched.schedulers.interface import Options
from meshloom.sched.schedulers.online.registry import OnlineMaker
from meshloom.sched.schedulers.online.interface import Decision, Platform, View

class Given(Options):
    cores: int = 1

def one_each(view: View, options: Given) -> list[Decision]:
    found, free = [], list(view.free)
    for one in view.pending:
        version = one.layer.fastest(min(options.cores, len(free)))
        if version is not None and len(found) < view.slots:
            found.append(Decision(one.number, version, tuple(free[: version.cores]), "its turn"))
            del free[: version.cores]
    return found

class Counting:
    '''Counts its decisions.'''
    def __init__(self, platform: Platform, options: Given) -> None:
        self.platform, self.options, self.calls = platform, options, 0
    def decide(self, view: View) -> list[Decision]:
        self.calls += 1
        return one_each(view, self.options)

MAKER = OnlineMaker("a_maker", "made by hand", Counting, Given)
"""


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], str]:
    """Writes a file of schedulers, and says its path."""

    def write(text: str) -> str:
        path = tmp_path / "mine.py"
        path.write_text(HEAD + text)
        return str(path)

    return write


def run(name: str) -> Run:
    request = instances(network("a", 400, 100, words=50), network("b", 900), network("c", 100), deadline=700)
    return Drive(Fluid(PLATFORM), online_scheduler(name, PLATFORM)).run(request)


@pytest.mark.parametrize("thing", ["one_each", "Counting", "MAKER"])
def test_functions_classes_and_makers_schedule(written: Callable[[str], str], thing: str) -> None:
    path = written("")
    widths = [{len(one.cores) for one in run(f"{path}:{thing}{options}").log} for options in ("", ":cores=2")]
    assert widths[0] == {1}
    assert 2 in widths[1]
    with pytest.raises(SchedulerError, match=r"no option 'core'.* did you mean cores"):
        online_scheduler(f"{path}:{thing}:core=2", PLATFORM)


def test_the_summary_is_the_first_line_of_the_docstring(written: Callable[[str], str]) -> None:
    assert ONLINE.get(f"{written('')}:Counting").summary == "Counts its decisions."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def mine(view): ...", "must be a function with a parameter annotated View, a class"),
        ("def mine(task: int): ...", "must be a function with a parameter annotated View, a class"),
        ("def mine(view: View, more): ...", "has a parameter more that is annotated with no model"),
        ("async def mine(view: View): ...", "is an async function, which would never run"),
        (
            "class mine:\n    def decide(self, view):\n        yield 1",
            "is a generator, which would never run",
        ),
        ("mine = 3", "is a int; it must be"),
        ("class mine: ...", "is a type; it must be"),
    ],
)
def test_what_is_no_scheduler_is_refused(written: Callable[[str], str], text: str, message: str) -> None:
    with pytest.raises(SchedulerError, match=message) as error:
        ONLINE.get(f"{written(text)}:mine")
    assert "mine.py:mine" in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def mine(view: View):\n    return [][0]", r"failed in cycle 0: IndexError: .* \(line 29 of mine\.py\)"),
        ("def mine(view: View):\n    raise ValueError('no')", r"failed in cycle 0: no \(line 29 of mine\.py\)"),
        ("def mine(view: View): ...", "answered in cycle 0 with None; it must be a list of Decisions"),
        ("def mine(view: View):\n    return [view]", "answered in cycle 0 with .*; it must be a list of Decisions"),
        (
            "def mine(view: View):\n    return one_each(view, Given()) * 2",
            r"in cycle 0: 0:a is launched twice: a0 runs, and the next decision for it must have a version of a1",
        ),
        ("def mine(view: View):\n    return []", "starves 0:a, 1:b, 2:c"),
        ("MAKER = OnlineMaker('mine', '', lambda platform, options: 3)\nmine = MAKER", "must have a method decide"),
        (
            "class mine:\n    def __init__(self, platform: Platform) -> None:\n        self.x = 1 / 0\n"
            "    def decide(self, view: View): ...",
            r"failed for four: ZeroDivisionError: .* \(line 30 of mine\.py\)",
        ),
    ],
)
def test_one_that_fails_is_named(written: Callable[[str], str], text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        run(f"{written(text)}:mine")
    assert "mine.py:mine" in str(error.value)


def test_the_example_meets_a_deadline_that_taking_turns_misses() -> None:
    """Of one in a hurry that comes when others have all cores."""
    request = instances(*(network(letter, *[1000] * 20) for letter in "abcd"))
    request.append(Instance(4, network("e", 1000, 1000), 100, 100 + 5000))
    missed = {}
    for scheduler in (InTurn(), online_scheduler(f"{EXAMPLE}:decide", PLATFORM)):
        result = measure(Drive(Fluid(PLATFORM), scheduler).run(request))
        assert all(one.end is not None for one in result.turnarounds)
        missed[scheduler.name] = result.sla
    assert list(missed.values()) == [1, 0]
    with pytest.raises(SchedulerError, match=r"least = '0' must be at least 1"):
        online_scheduler(f"{EXAMPLE}:decide:least=0", PLATFORM)


def test_the_example_gives_wide_layers_their_turn() -> None:
    """Ones that need more than an even share."""
    wide = Network("w", 1, (layer("w0", 4000, cores=(4,)), layer("w1", 4000, cores=(4,))))
    run = Drive(Fluid(PLATFORM), online_scheduler(f"{EXAMPLE}:decide", PLATFORM)).run(instances(wide, wide, wide))
    assert all(served.end is not None for served in run.served)


def test_the_example_is_short() -> None:
    """What the tutorial promises: some forty lines."""
    assert len(EXAMPLE.read_text().splitlines()) < 45


def test_the_tutorial_shows_one_that_works(tmp_path: Path) -> None:
    (text,) = re.findall(r"```python\n((?:(?!```).)*def turns.*?)```", TUTORIAL.read_text(), re.DOTALL)
    (tmp_path / "turns.py").write_text(text)
    assert {len(one.cores) for one in run(f"{tmp_path / 'turns.py'}:turns").log} == {1}


def test_the_tutorial_names_the_fields_of_a_decision() -> None:
    row = re.search(r"^\| `Decision\((.*)\)`", TUTORIAL.read_text(), re.MULTILINE)
    assert row is not None
    assert row[1].split(", ") == [field.name for field in fields(Decision)]


def test_entry_points_of_other_packages(monkeypatch: pytest.MonkeyPatch, written: Callable[[str], str]) -> None:
    """A package that is installed registers one by name."""
    path = written("")
    monkeypatch.syspath_prepend(str(Path(path).parent))
    point = EntryPoint("counting", "mine:Counting", ONLINE.group)
    registry: Registry[OnlineMaker] = Registry(ONLINE.what, ONLINE.group, ONLINE.shipped, ONLINE.accept, ONLINE.error)
    monkeypatch.setattr(registry, "_installed", {"counting": point}, raising=False)
    assert "counting" in registry.names()
    assert registry.get("counting").summary == "Counts its decisions."
