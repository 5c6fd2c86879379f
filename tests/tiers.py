"""In which order test files run, what tests cost and may cost, and when a bounded run ends. Loaded by `conftest.py`.

Files go to the workers dearest first, by `costs.txt`: a long one that starts last would leave the other worker idle.
A file that is not listed goes first. `pytest --record-costs` measures anew the files that it runs completely; with
`-m 'not slow'`, their first tier. A run that compiled simulators measures nothing that counts: the budget is for tests
whose simulators are there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
COSTS = Path(__file__).with_name("costs.txt")
#: Every single test of the last `--record-costs`, for those who decide what is slow.
EACH = ROOT / "sim_build" / "test_costs.txt"
#: Where compiled gateware is kept.
COMPILED = tuple(ROOT / "sim_build" / name for name in ("simulators", "blocks", "meshes"))
#: How `make test` chooses the first tier.
FIRST_TIER = "not slow"
#: CPU seconds that the first tier may take by `costs.txt`: of two CPUs' eight minutes, what collecting leaves.
BUDGET = 840
#: Seconds until a slow test counts as hanging; those of the first tier have `timeout` of pyproject.toml.
SLOW_LIMIT = 900
_HEADING = (
    "# CPU seconds of test files, with all that they start: first tier, all. `pytest --record-costs` writes it.\n"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers")
    group.addoption("--record-costs", action="store_true", help=f"measure CPU time of tests; write {COSTS.name}")
    group.addoption(
        "--stop-after", type=float, metavar="S", help="start no test later than S seconds from the beginning"
    )


def slow_but(values: Iterable[Any], *first: Any) -> list[Any]:
    """Parameters, of which all but those named are slow."""
    return [value if value in first else pytest.param(value, marks=pytest.mark.slow) for value in values]


def costs() -> dict[str, tuple[float, float]]:
    """CPU seconds by test file, relative to the project's root: of the first tier, and of all its tests."""
    result = {}
    for line in COSTS.read_text(encoding="utf-8").splitlines() if COSTS.exists() else ():
        if not line.startswith("#"):
            first, whole, name = line.split()
            result[name] = float(first), float(whole)
    return result


def file_of(node_id: str) -> str:
    return node_id.partition("::")[0]


@pytest.hookimpl(trylast=True)  # after `-m` has chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_LIMIT))
    if config.getoption("--stop-after") is not None:
        return  # the order of the command line says what matters most
    known = costs()
    tier = 0 if config.getoption("-m") == FIRST_TIER else 1
    items.sort(key=lambda item: -known[file_of(item.nodeid)][tier] if file_of(item.nodeid) in known else float("-inf"))


def _spent() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Bounded:
    """Starts no test after a moment, and says at the end which were left out."""

    def __init__(self, config: pytest.Config, seconds: float | None) -> None:
        # Workers are given the moment of the process that started them.
        self.worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        self.stop_at: float = self.worker["stop_at"] if self.worker else time.time() + (seconds or 0)
        self.left_out: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if time.time() < self.stop_at:
            return None
        self.left_out.append(item.nodeid)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.worker is not None:
            session.config.workeroutput["left_out"] = self.left_out  # pyright: ignore[reportAttributeAccessIssue]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.left_out:
            terminalreporter.section("time is up")
            for name in self.left_out:
                terminalreporter.write_line(f"NOT RUN {name}")


class BoundedMaster(Bounded):
    """The same in the process that has workers."""

    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["stop_at"] = self.stop_at

    def pytest_testnodedown(self, node: Any) -> None:
        self.left_out += getattr(node, "workeroutput", {}).get("left_out", [])


def _compiled() -> set[Path]:
    """What is in the stores of compiled gateware."""
    return {entry for folder in COMPILED if folder.is_dir() for entry in folder.iterdir()}


class Recorder:
    """Notes the CPU seconds of every test, in its report, and writes `costs.txt` at the end."""

    def __init__(self, master: bool) -> None:
        self.master = master
        self.there = _compiled() if master else set[Path]()
        self.built = 0
        self.seconds: dict[str, float] = {}
        self.slow: set[str] = set()
        self.started = 0.0
        if master:
            EACH.parent.mkdir(exist_ok=True)
            EACH.write_text("", encoding="utf-8")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self.started = _spent()
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        if call.when == "teardown":
            slow = item.get_closest_marker("slow") is not None
            item.user_properties += [("cpu", _spent() - self.started), ("slow", slow)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            message = dict(report.user_properties)
            self.seconds[report.nodeid] = float(str(message["cpu"]))
            if message["slow"]:
                self.slow.add(report.nodeid)
            if self.master:  # at once: a long measurement that is broken off has said something
                with EACH.open("a", encoding="utf-8") as file:
                    file.write(self._line(report.nodeid))

    def _line(self, name: str) -> str:
        return f"{self.seconds[name]:9.2f} {'slow' if name in self.slow else '-':4} {name}\n"

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        config = session.config
        if not self.master:
            return
        dearest = sorted(self.seconds, key=lambda name: -self.seconds[name])
        EACH.write_text("".join(map(self._line, dearest)), encoding="utf-8")
        first_tier = config.getoption("-m") == FIRST_TIER
        other = config.getoption("-m") and not first_tier
        chosen = other or config.getoption("-k") or any("::" in name for name in config.args)
        if chosen or session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return  # of some files only a part was run
        self.built = len(_compiled() - self.there)
        if self.built:
            return
        result = {name: pair for name, pair in costs().items() if (ROOT / name).exists()}
        files = {file_of(name) for name in self.seconds}
        for file in files:
            spent = {name: cost for name, cost in self.seconds.items() if file_of(name) == file}
            first = sum(cost for name, cost in spent.items() if name not in self.slow)
            before, whole = result.get(file, (0.0, 0.0))
            # What the second tier adds is known from the last measurement of all tests.
            result[file] = first, first + max(0.0, whole - before) if first_tier else sum(spent.values())
        rows = sorted(result.items(), key=lambda pair: (-pair[1][1], pair[0]))
        text = "".join(f"{first:6.0f} {whole:6.0f} {name}\n" for name, (first, whole) in rows)
        COSTS.write_text(_HEADING + text, encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.built:
            terminalreporter.section("costs")
            terminalreporter.write_line(
                f"{COSTS.name} stays as it was: tests compiled gateware ({self.built} new entries); run this again"
            )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record-costs"):
        config.pluginmanager.register(Recorder(master=not hasattr(config, "workerinput")))
    if (seconds := config.getoption("--stop-after")) is not None:
        spreads = not hasattr(config, "workerinput") and bool(config.getoption("numprocesses", None))
        config.pluginmanager.register((BoundedMaster if spreads else Bounded)(config, seconds))
